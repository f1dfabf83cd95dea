/*
 * checkblock.c
 *		tw.check_block: what is wrong with a block, without running it.
 *
 * The block is compiled afresh, then every piece of SQL in it is analysed and
 * planned in the order of the script, as it would be at its first execution.
 * What only the execution would tell is supplied where the analysis can: the
 * columns of a FOR row and the type of a CASE's operand come from their
 * queries.  What rests on a query that failed is not reported a second time, and
 * what the block makes itself, tables above all, is not there yet and so nothing
 * is said about it.
 *
 * All of it happens in a subtransaction that is rolled back, begun anew after
 * each problem: no lock stays, and nothing was executed.  Problems are kept
 * outside of it.
 */
#include "psm/psm.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(tw_check_block);

typedef struct Problem
{
	int			offset;			/* in the script; at its end for what is missing there */
	int			sqlstate;
	char	   *message;
	char	   *detail;			/* NULL: none */
	char	   *hint;
} Problem;

typedef struct Check
{
	const char *source;
	Jsonb	   *params;
	PsmScript  *script;
	PsmExec    *ex;				/* never run; NULL while compiling */
	List	   *problems;		/* in mcxt */
	MemoryContext mcxt;
	ResourceOwner owner;		/* outside the subtransaction */
	PsmExec    *parsing;		/* who the parser hooks served before */
	int			place;			/* offset of the error being reported, or -1 */
	bool		other_text;		/* positions of errors are not in the script */

	/* what the block itself has changed so far */
	List	   *made;			/* RangeVar: tables made or altered */
	bool		unsettled;		/* other objects, or what names mean */
	int			unknown_rows;	/* FOR loops around us whose row has no columns */
} Check;

/* A step that may fail */
typedef void (*CheckStep) (Check *check, void *arg);

static void check_statements(Check *check, List *stmts);

/* ---------- problems ---------- */

static void
add_full_problem(Check *check, int offset, int sqlstate, const char *message,
				 const char *detail, const char *hint)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(check->mcxt);
	Problem    *problem = palloc(sizeof(Problem));

	problem->offset = offset;
	problem->sqlstate = sqlstate;
	problem->message = pstrdup(message);
	problem->detail = detail != NULL ? pstrdup(detail) : NULL;
	problem->hint = hint != NULL ? pstrdup(hint) : NULL;
	check->problems = lappend(check->problems, problem);
	MemoryContextSwitchTo(oldcontext);
}

static void
add_problem(Check *check, int offset, int sqlstate, const char *message)
{
	add_full_problem(check, offset, sqlstate, message, NULL, NULL);
}

/* Error context: finds the place in the script */
static void
locate_error(void *arg)
{
	Check	   *check = arg;
	int			position = geterrposition();

	if (check->place >= 0 || check->other_text)
		return;
	if (position > 0)
		check->place = psm_char_offset(check->source, position);
	else if (check->ex != NULL)
		check->place = psm_error_offset(check->ex);
}

/* Errors that say nothing about the block are the caller's */
static bool
is_about_block(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_CONFIG_FILE_ERROR:
		case ERRCODE_INTERNAL_ERROR:
			return false;
		default:
			return true;
	}
}

/* Something is not there, which an earlier statement may make */
static bool
is_missing_object(int sqlstate)
{
	return sqlstate == ERRCODE_UNDEFINED_TABLE || sqlstate == ERRCODE_UNDEFINED_COLUMN ||
		sqlstate == ERRCODE_UNDEFINED_FUNCTION || sqlstate == ERRCODE_UNDEFINED_OBJECT ||
		sqlstate == ERRCODE_UNDEFINED_SCHEMA || sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE;
}

static bool
names_made_table(const Check *check, const char *message)
{
	ListCell   *lc;

	foreach(lc, check->made)
	{
		if (strstr(message, ((RangeVar *) lfirst(lc))->relname) != NULL)
			return true;
	}
	return false;
}

/* Is the error due to something that was reported before, or will not be so when the block runs? */
static bool
is_consequence(const Check *check, const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	/* any name could have been a column of that row, but for a table's */
	if (check->unknown_rows > 0 &&
		(category == ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION ||
		 category == ERRCODE_INTERNAL_ERROR) &&
		(error->message_id == NULL ||
		 strcmp(error->message_id, "relation \"%s\" does not exist") != 0))
		return true;
	if (check->unsettled && is_missing_object(error->sqlerrcode))
		return true;
	return error->sqlerrcode == ERRCODE_UNDEFINED_TABLE && names_made_table(check, error->message);
}

/* ---------- steps ---------- */

static void
begin_work(Check *check)
{
	MemoryContext oldcontext = CurrentMemoryContext;

	check->owner = CurrentResourceOwner;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(oldcontext);
}

static void
undo_work(Check *check)
{
	MemoryContext oldcontext = CurrentMemoryContext;

	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(oldcontext);
	CurrentResourceOwner = check->owner;
}

/*
 * Takes a step; true when it went well.  Otherwise its error is returned in
 * *error if that is wanted, or added to the problems; offset is its place when
 * PostgreSQL gives none.
 */
static bool
try_step(Check *check, CheckStep step, void *arg, int offset, ErrorData **error)
{
	ErrorContextCallback context;
	MemoryContext oldcontext = CurrentMemoryContext;
	ErrorData  *volatile caught = NULL;

	context.callback = locate_error;
	context.arg = check;
	context.previous = error_context_stack;
	check->place = -1;
	PG_TRY();
	{
		error_context_stack = &context;
		step(check, arg);
		error_context_stack = context.previous;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(oldcontext);
		caught = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	check->other_text = false;
	psm_params_parsing(check->parsing);
	if (check->ex != NULL)
		check->ex->expr = NULL;
	if (caught == NULL)
		return true;

	undo_work(check);
	begin_work(check);
	if (check->place < 0)
		check->place = offset;
	if (is_consequence(check, caught))
		return false;
	if (!is_about_block(caught->sqlerrcode))
		ReThrowError(caught);
	if (error != NULL)
		*error = caught;
	else
		add_full_problem(check, check->place, caught->sqlerrcode, caught->message,
						 caught->detail, caught->hint);
	return false;
}

/* ---------- pieces of SQL ---------- */

/* Raw tree walker: is a table named that the block has made or altered? */
static bool
names_made(Node *node, void *arg)
{
	Check	   *check = arg;
	ListCell   *lc;

	if (node == NULL)
		return false;
	if (!IsA(node, RangeVar))
		return raw_expression_tree_walker(node, names_made, arg);
	foreach(lc, check->made)
	{
		RangeVar   *rel = (RangeVar *) node;
		RangeVar   *made = lfirst(lc);

		if (strcmp(rel->relname, made->relname) == 0 &&
			(rel->schemaname == NULL || made->schemaname == NULL ||
			 strcmp(rel->schemaname, made->schemaname) == 0))
			return true;
	}
	return false;
}

/* The same for a statement or expression: only some utility statements hold a query */
static bool
uses_made(Check *check, Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_SelectStmt:
		case T_InsertStmt:
		case T_UpdateStmt:
		case T_DeleteStmt:
		case T_MergeStmt:
			return names_made(stmt, check);
		case T_PLAssignStmt:
			return uses_made(check, (Node *) ((PLAssignStmt *) stmt)->val);
		case T_CallStmt:
			return names_made((Node *) ((CallStmt *) stmt)->funccall, check);
		case T_CreateTableAsStmt:
			return uses_made(check, ((CreateTableAsStmt *) stmt)->query);
		case T_ExplainStmt:
			return uses_made(check, ((ExplainStmt *) stmt)->query);
		case T_DeclareCursorStmt:
			return uses_made(check, ((DeclareCursorStmt *) stmt)->query);
		default:
			return false;
	}
}

static void
prepare_step(Check *check, void *arg)
{
	PsmExpr    *expr = arg;
	CachedPlan *cached;

	psm_prepare(check->ex, expr, CURSOR_OPT_PARALLEL_OK);
	if (expr->mode != RAW_PARSE_DEFAULT)
		return;
	psm_params_parsing(check->ex);
	cached = SPI_plan_get_cached_plan(expr->plan->plan);
	if (cached != NULL)
		ReleaseCachedPlan(cached, CurrentResourceOwner);
}

/* A parameter's value in the type that its place needs; user-defined types would run code */
static void
convert_step(Check *check, void *arg)
{
	PsmSlot    *slot = arg;
	bool		isnull;

	(void) psm_host_datum(check->ex, slot->host, slot->type, &isnull);
}

static void
check_parameters(Check *check, PsmExpr *expr)
{
	for (int i = 0; i < expr->plan->nslots; i++)
	{
		PsmSlot    *slot = &expr->plan->slots[i];
		int			offset = expr->pos.offset;
		bool		given;

		if (slot->kind != PSM_SLOT_HOST)
			continue;
		given = check->ex->host_values[slot->host] != NULL;

		/* a missing one has been reported, if it was known to be a parameter */
		if (given ? slot->type >= FirstNormalObjectId : !check->script->hosts[slot->host].optional)
			continue;
		for (int j = 0; j < expr->nhosts; j++)
		{
			if (expr->hosts[j].host == slot->host)
				offset = expr->pos.offset + expr->hosts[j].offset - expr->prefix;
		}
		(void) try_step(check, convert_step, slot, offset, NULL);
	}
}

/*
 * Analyses and plans a piece of SQL.  True: its plan is there, and the columns
 * of its result are known.  A second time it reports nothing.
 */
static bool
check_expr(Check *check, PsmExpr *expr)
{
	ErrorData  *error = NULL;
	bool		constant_fails;

	if (expr == NULL || expr->spliced)
		return false;
	if (expr->plan != NULL)
		return expr->plan->plan != NULL;
	if (check->made != NIL && uses_made(check, psm_raw_parse(expr)))
		return false;

	if (!try_step(check, prepare_step, expr, expr->pos.offset, &error))
	{
		/* 1/0 fails when it is evaluated, which a handler may be there for */
		constant_fails = expr->plan != NULL && expr->plan->plan != NULL && error != NULL &&
			ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_DATA_EXCEPTION;
		if (error != NULL && !constant_fails)
			add_full_problem(check, check->place, error->sqlerrcode, error->message,
							 error->detail, error->hint);
		if (!constant_fails)
			return false;
	}
	check_parameters(check, expr);
	return expr->plan->plan != NULL;
}

/* The columns that a piece gives back, once check_expr() was true; NULL: none */
static TupleDesc
expr_columns(PsmExpr *expr)
{
	return expr->plan->source->resultDesc;
}

/* Type of an expression, InvalidOid when it is not known */
static Oid
expr_type(PsmExpr *expr)
{
	TupleDesc	columns = expr_columns(expr);

	return columns != NULL && columns->natts == 1 ?
		TupleDescAttr(columns, 0)->atttypid : InvalidOid;
}

static void
check_exprs(Check *check, List *exprs)
{
	ListCell   *lc;

	foreach(lc, exprs)
		(void) check_expr(check, lfirst(lc));
}

static void
check_condition(Check *check, PsmExpr *expr)
{
	Oid			type;

	if (!check_expr(check, expr))
		return;
	type = expr_type(expr);
	if (OidIsValid(type) && !psm_is_condition_type(type))
		add_full_problem(check, expr->pos.offset, ERRCODE_DATATYPE_MISMATCH,
						 psprintf(PSM_NO_CONDITION, format_type_be(type)), NULL,
						 PSM_NO_CONDITION_HINT);
}

/* ---------- targets ---------- */

/* type: of the value, InvalidOid when not known */
static void
check_target(Check *check, const PsmTarget *target, Oid type)
{
	const PsmVar *var = target->var;

	if (var->kind != PSM_VAR_ROW || var->tupdesc == NULL)
		return;
	if (target->field != NULL)
	{
		if (psm_row_field(var, target->field) < 0)
			add_problem(check, target->pos.offset, ERRCODE_UNDEFINED_COLUMN,
						psprintf(PSM_NO_SUCH_FIELD, var->name, target->field));
	}
	else if (OidIsValid(type) && type != UNKNOWNOID && type != TEXTOID && !type_is_rowtype(type))
		add_problem(check, target->pos.offset, ERRCODE_DATATYPE_MISMATCH,
					psprintf("cannot assign a value of type %s to row variable \"%s\"",
							 format_type_be(type), var->name));
}

/* Targets of INTO, FETCH and SET (a, b); columns NULL: not known */
static void
check_targets(Check *check, List *targets, TupleDesc columns)
{
	PsmTarget  *first = targets ? linitial(targets) : NULL;
	ListCell   *lc;
	int			n = 0;

	if (targets == NIL)
		return;
	if (list_length(targets) == 1 && first->var->kind == PSM_VAR_ROW && first->field == NULL)
		return;
	if (columns != NULL && columns->natts != list_length(targets))
	{
		add_problem(check, first->pos.offset, ERRCODE_SYNTAX_ERROR,
					psprintf(PSM_COLUMNS_DIFFER,
							 columns->natts, list_length(targets)));
		columns = NULL;
	}
	foreach(lc, targets)
	{
		check_target(check, lfirst(lc),
					 columns ? TupleDescAttr(columns, n)->atttypid : InvalidOid);
		n++;
	}
}

/* ---------- what the block makes ---------- */

static void
made_table(Check *check, RangeVar *rel)
{
	if (rel != NULL)
		check->made = lappend(check->made, copyObject(rel));
}

/* Notes what a utility statement will have changed for the statements behind it */
static void
note_changes(Check *check, Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_CreateStmt:
			made_table(check, ((CreateStmt *) stmt)->relation);
			break;
		case T_CreateForeignTableStmt:
			made_table(check, ((CreateForeignTableStmt *) stmt)->base.relation);
			break;
		case T_CreateTableAsStmt:
			made_table(check, ((CreateTableAsStmt *) stmt)->into->rel);
			break;
		case T_SelectStmt:
			{
				SelectStmt *select = (SelectStmt *) stmt;

				while (select->op != SETOP_NONE)
					select = select->larg;
				if (select->intoClause != NULL)
					made_table(check, select->intoClause->rel);
				break;
			}
		case T_ViewStmt:
			made_table(check, ((ViewStmt *) stmt)->view);
			break;
		case T_CreateSeqStmt:
			made_table(check, ((CreateSeqStmt *) stmt)->sequence);
			break;
		case T_AlterTableStmt:
			made_table(check, ((AlterTableStmt *) stmt)->relation);
			break;
		case T_RenameStmt:
			{
				RenameStmt *rename = (RenameStmt *) stmt;

				if (rename->relation == NULL)
					check->unsettled = true;
				else
				{
					made_table(check, rename->relation);
					made_table(check, makeRangeVar(NULL, rename->newname, -1));
				}
				break;
			}
		case T_VariableSetStmt:
			{
				const char *name = ((VariableSetStmt *) stmt)->name;

				if (name == NULL || strcmp(name, "search_path") == 0 ||
					strcmp(name, "role") == 0 || strcmp(name, "session_authorization") == 0)
					check->unsettled = true;
				break;
			}
		case T_CreateFunctionStmt:
		case T_CreateSchemaStmt:
		case T_CreateExtensionStmt:
		case T_DefineStmt:
		case T_CompositeTypeStmt:
		case T_CreateEnumStmt:
		case T_CreateRangeStmt:
		case T_CreateDomainStmt:
		case T_CreateCastStmt:
		case T_AlterObjectSchemaStmt:
		case T_ImportForeignSchemaStmt:
		case T_DoStmt:
		case T_ExecuteStmt:
			check->unsettled = true;
			break;
		default:
			break;
	}
}

/* The text of EXECUTE IMMEDIATE when it is a constant, otherwise NULL */
static char *
constant_text(PsmExpr *expr)
{
	SelectStmt *select = castNode(SelectStmt, psm_raw_parse(expr));
	ResTarget  *target = linitial_node(ResTarget, select->targetList);
	A_Const    *constant = (A_Const *) target->val;

	return IsA(constant, A_Const) && !constant->isnull && IsA(&constant->val, String) ?
		strVal(&constant->val) : NULL;
}

typedef struct DynamicStep
{
	char	   *text;
	int			nusing;
	Node	   *stmt;
} DynamicStep;

static void
dynamic_step(Check *check, void *arg)
{
	DynamicStep *step = arg;

	check->other_text = true;
	step->stmt = psm_dynamic_parse(&step->text, step->nusing);
}

static void
check_execute(Check *check, PsmExecute *stmt)
{
	DynamicStep step = {0};
	bool		known = check_expr(check, stmt->text);

	check_exprs(check, stmt->using);
	check_targets(check, stmt->into, NULL);
	step.text = known ? constant_text(stmt->text) : NULL;
	step.nusing = list_length(stmt->using);
	if (step.text == NULL)
		check->unsettled = true;
	else if (try_step(check, dynamic_step, &step, stmt->text->pos.offset, NULL))
		note_changes(check, step.stmt);
}

/* ---------- statements ---------- */

static void
outputs_step(Check *check, void *arg)
{
	psm_call_check(check->ex, arg);
}

static void
check_sql(Check *check, PsmSqlStmt *stmt)
{
	TupleDesc	columns = NULL;

	if (check_expr(check, stmt->sql))
	{
		columns = expr_columns(stmt->sql);
		if (stmt->call)
			(void) try_step(check, outputs_step, stmt->sql, stmt->stmt.pos.offset, NULL);
	}
	check_targets(check, stmt->into, columns);
	if (stmt->utility)
		note_changes(check, psm_raw_parse(stmt->sql));
}

static void
check_set(Check *check, PsmSet *stmt)
{
	bool		known = check_expr(check, stmt->value);

	check_target(check, &stmt->target, known ? expr_type(stmt->value) : InvalidOid);
}

static void
check_set_row(Check *check, PsmSetRow *stmt)
{
	TupleDesc	columns = NULL;

	if (stmt->query != NULL && check_expr(check, stmt->query))
		columns = expr_columns(stmt->query);
	check_exprs(check, stmt->values);
	check_targets(check, stmt->targets, columns);
}

static void
check_branches(Check *check, List *branches, List *otherwise, bool conditions)
{
	ListCell   *lc;

	foreach(lc, branches)
	{
		PsmBranch  *branch = lfirst(lc);

		if (conditions)
			check_condition(check, branch->when);
		check_statements(check, branch->body);
	}
	check_statements(check, otherwise);
}

static void
check_case(Check *check, PsmCase *stmt)
{
	bool		known = true;

	if (stmt->operand != NULL)
	{
		known = check_expr(check, stmt->operand) && OidIsValid(expr_type(stmt->operand));
		if (known)
			psm_operand_describe(check->ex, stmt->operand_var, expr_type(stmt->operand));
	}
	check_branches(check, stmt->branches, stmt->otherwise, known);
}

static void
check_for(Check *check, PsmFor *stmt)
{
	bool		known = check_expr(check, stmt->query) && expr_columns(stmt->query) != NULL;

	if (known)
		psm_row_describe(check->ex, stmt->row, expr_columns(stmt->query));
	else
		check->unknown_rows++;
	check_statements(check, stmt->body);
	if (!known)
		check->unknown_rows--;
}

static void
check_compound(Check *check, PsmCompound *block)
{
	ListCell   *lc;

	foreach(lc, block->vars)
	{
		PsmVar	   *var = lfirst(lc);
		PsmTarget	target = {var, NULL, var->pos};

		if (var->init != NULL && check_expr(check, var->init))
			check_target(check, &target, expr_type(var->init));
	}
	foreach(lc, block->scope->cursors)
		(void) check_expr(check, ((PsmCursor *) lfirst(lc))->query);
	foreach(lc, block->handlers)
		check_statements(check, list_make1(((PsmHandler *) lfirst(lc))->action));
	check_statements(check, block->body);
}

static void
check_statement(Check *check, PsmStmt *stmt)
{
	switch (stmt->kind)
	{
		case PSM_COMPOUND:
			check_compound(check, (PsmCompound *) stmt);
			break;
		case PSM_SET:
			check_set(check, (PsmSet *) stmt);
			break;
		case PSM_SET_ROW:
			check_set_row(check, (PsmSetRow *) stmt);
			break;
		case PSM_SQL:
			check_sql(check, (PsmSqlStmt *) stmt);
			break;
		case PSM_IF:
			check_branches(check, ((PsmIf *) stmt)->branches, ((PsmIf *) stmt)->otherwise, true);
			break;
		case PSM_CASE:
			check_case(check, (PsmCase *) stmt);
			break;
		case PSM_LOOP:
			check_statements(check, ((PsmLoop *) stmt)->body);
			break;
		case PSM_WHILE:
			check_condition(check, ((PsmLoop *) stmt)->condition);
			check_statements(check, ((PsmLoop *) stmt)->body);
			break;
		case PSM_REPEAT:
			check_statements(check, ((PsmLoop *) stmt)->body);
			check_condition(check, ((PsmLoop *) stmt)->condition);
			break;
		case PSM_FOR:
			check_for(check, (PsmFor *) stmt);
			break;
		case PSM_FETCH:
			{
				PsmCursorStmt *fetch = (PsmCursorStmt *) stmt;
				PsmExpr    *query = fetch->cursor->query;

				check_targets(check, fetch->into, query->plan != NULL && query->plan->plan != NULL ?
							  expr_columns(query) : NULL);
				break;
			}
		case PSM_SIGNAL:
		case PSM_RESIGNAL:
			for (int i = 0; i < PSM_NUM_SIGNAL_ITEMS; i++)
				(void) check_expr(check, ((PsmSignal *) stmt)->items[i]);
			break;
		case PSM_GET_DIAGNOSTICS:
			(void) check_expr(check, ((PsmGetDiagnostics *) stmt)->condition);
			break;
		case PSM_EXECUTE:
			check_execute(check, (PsmExecute *) stmt);
			break;
		case PSM_RETURN:
			(void) check_expr(check, ((PsmReturn *) stmt)->value);
			(void) check_expr(check, ((PsmReturn *) stmt)->query);
			break;
		case PSM_LEAVE:
		case PSM_ITERATE:
		case PSM_OPEN:
		case PSM_CLOSE:
			break;
	}
}

static void
check_statements(Check *check, List *stmts)
{
	ListCell   *lc;

	check_stack_depth();
	foreach(lc, stmts)
	{
		CHECK_FOR_INTERRUPTS();
		check_statement(check, lfirst(lc));
	}
}

/* ---------- the whole ---------- */

static void
compile_step(Check *check, void *arg)
{
	check->script = psm_compile(check->source, check->params);
}

static void
missing_step(Check *check, void *arg)
{
	psm_host_missing(check->script, *(int *) arg, check->params);
}

static void
check_script(Check *check)
{
	PsmScript  *script;

	if (!try_step(check, compile_step, NULL, 0, NULL))
		return;
	script = check->script;
	MemoryContextSetParent(script->mcxt, CacheMemoryContext);
	script->stale = true;		/* goes with our memory, whatever happens */
	check->ex = psm_exec_create(script);
	psm_hosts_bind(check->ex, check->params, true);
	for (int i = 0; i < script->nhosts; i++)
	{
		if (check->ex->host_values[i] == NULL && !script->hosts[i].optional)
			(void) try_step(check, missing_step, &i, script->hosts[i].pos.offset, NULL);
	}
	check_statements(check, list_make1(script->body));
}

static void
check_block(Check *check)
{
	MemoryContext oldcontext = CurrentMemoryContext;

	begin_work(check);
	PG_TRY();
	{
		check_script(check);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		/* a cancel, for one: the subtransaction must not be left open */
		MemoryContextSwitchTo(oldcontext);
		error = CopyErrorData();
		FlushErrorState();
		psm_params_parsing(check->parsing);
		undo_work(check);
		ReThrowError(error);
	}
	PG_END_TRY();
	undo_work(check);
}

static int
compare_problems(const ListCell *a, const ListCell *b)
{
	const Problem *pa = lfirst(a);
	const Problem *pb = lfirst(b);

	return (pa->offset > pb->offset) - (pa->offset < pb->offset);
}

/*
 * tw.check_block(block, params) RETURNS TABLE (line, column, sqlstate, message, detail, hint)
 */
Datum
tw_check_block(PG_FUNCTION_ARGS)
{
	Check		check = {0};
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext mcxt;
	ReturnSetInfo *rsi;
	ListCell   *lc;

	check.source = psm_block_text(fcinfo, &check.params);
	InitMaterializedSRF(fcinfo, 0);
	rsi = (ReturnSetInfo *) fcinfo->resultinfo;
	check.mcxt = caller;
	check.parsing = psm_params_parsing(NULL);
	psm_params_parsing(check.parsing);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	mcxt = AllocSetContextCreate(CurrentMemoryContext, "psm check", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(mcxt);
	check_block(&check);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(mcxt);
	SPI_finish();

	list_sort(check.problems, compare_problems);
	foreach(lc, check.problems)
	{
		Problem    *problem = lfirst(lc);
		PsmPos		pos = psm_pos(check.source, problem->offset);
		Datum		values[6];
		bool		nulls[6] = {0};

		values[0] = Int32GetDatum(pos.line);
		values[1] = Int32GetDatum(pos.column);
		values[2] = CStringGetTextDatum(unpack_sql_state(problem->sqlstate));
		values[3] = CStringGetTextDatum(problem->message);
		nulls[4] = problem->detail == NULL;
		values[4] = nulls[4] ? (Datum) 0 : CStringGetTextDatum(problem->detail);
		nulls[5] = problem->hint == NULL;
		values[5] = nulls[5] ? (Datum) 0 : CStringGetTextDatum(problem->hint);
		tuplestore_putvalues(rsi->setResult, rsi->setDesc, values, nulls);
	}
	return (Datum) 0;
}
