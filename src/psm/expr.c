/*
 * expr.c
 *		Plans of the SQL in a block, and evaluation of its expressions.
 *
 * Every piece of SQL becomes a saved SPI plan at its first use and is kept with
 * the script; PostgreSQL's plan cache sees to DDL, changed search paths and row
 * security.  An expression that needs no table is evaluated by the executor
 * directly ("simple", as in plpgsql): its state is compiled once a transaction,
 * its plan is checked for validity at each use.
 *
 * What an evaluation returns lives until psm_eval_cleanup(), which every
 * statement calls when it is done.
 */
#include "psm/psm.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "engine/citus.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

void
psm_eval_tuples_free(PsmExec *ex)
{
	ListCell   *lc;

	SPI_freetuptable(ex->eval_tuples);
	ex->eval_tuples = NULL;
	foreach(lc, ex->more_tuples)
		SPI_freetuptable(lfirst(lc));
	list_free(ex->more_tuples);
	ex->more_tuples = NIL;
}

/* ---------- preparing ---------- */

void
psm_plan_free(PsmPlan *plan)
{
	if (plan->plan != NULL)
		SPI_freeplan(plan->plan);
	plan->plan = NULL;
}

/* Is the analysed query a single expression over nothing? */
static bool
query_is_expression(CachedPlanSource *source)
{
	Query	   *query;

	if (list_length(source->query_list) != 1)
		return false;
	query = linitial_node(Query, source->query_list);
	return query->commandType == CMD_SELECT && query->rtable == NIL &&
		!query->hasAggs && !query->hasWindowFuncs && !query->hasTargetSRFs &&
		!query->hasSubLinks && query->cteList == NIL &&
		query->jointree->fromlist == NIL && query->jointree->quals == NULL &&
		query->groupClause == NIL && query->groupingSets == NIL && query->havingQual == NULL &&
		query->windowClause == NIL && query->distinctClause == NIL && query->sortClause == NIL &&
		query->limitOffset == NULL && query->limitCount == NULL && query->setOperations == NULL &&
		list_length(query->targetList) == 1;
}

/* The expression that a plan without tables computes, or NULL when it is wrapped in more */
static Expr *
plan_expression(CachedPlan *cached)
{
	PlannedStmt *stmt = linitial_node(PlannedStmt, cached->stmt_list);
	Plan	   *plan = stmt->planTree;

	/* debug settings may put a Gather or Material on top; then a query it is */
	if (!IsA(plan, Result) || plan->lefttree != NULL || plan->initPlan != NULL ||
		plan->qual != NIL || ((Result *) plan)->resconstantqual != NULL)
		return NULL;
	return linitial_node(TargetEntry, plan->targetlist)->expr;
}

/*
 * Gets the current generic plan of an expression and takes what simple
 * evaluation needs from it; leaves plan->simple NULL when it is not to be.
 */
static void
make_simple(PsmPlan *plan)
{
	CachedPlan *cached;

	plan->simple = NULL;
	plan->cached = NULL;
	plan->cached_lxid = InvalidLocalTransactionId;
	plan->state_lxid = InvalidLocalTransactionId;
	plan->in_use = false;

	cached = SPI_plan_get_cached_plan(plan->plan);
	if (cached == NULL)
		return;
	if (query_is_expression(plan->source) &&
		CachedPlanAllowsSimpleValidityCheck(plan->source, cached, psm_eval_owner()))
	{
		Expr	   *expr = plan_expression(cached);

		plan->cached = cached;
		plan->cached_lxid = TW_MY_LXID;
		plan->simple = expr;
		if (expr != NULL)
		{
			plan->type = exprType((Node *) expr);
			plan->typmod = exprTypmod((Node *) expr);
			plan->mutable = contain_mutable_functions((Node *) expr);
		}
	}
	ReleaseCachedPlan(cached, CurrentResourceOwner);
}

/*
 * Lets messages and logs show a statement as it is written: PostgreSQL keeps the
 * text for them alone once it is parsed, and :name is as long as what stood in
 * for it.
 */
static void
restore_text(PsmExpr *expr, CachedPlanSource *source)
{
	char	   *text = unconstify(char *, source->query_string) + psm_lead_length(expr);
	const char *written = expr->script->source + expr->pos.offset - expr->prefix;

	for (int i = 0; i < expr->nhosts; i++)
		memcpy(text + expr->hosts[i].offset, written + expr->hosts[i].offset,
			   expr->hosts[i].length);
}

/*
 * Lets go of a plan that is to be made again.  Executions further out may be
 * running it, then it goes with the last of them.  Within one execution nothing
 * but a portal can, which has its own reference.
 */
static void
retire(PsmScript *script, PsmPlan *plan)
{
	if (script->in_use > 1)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(script->mcxt);

		script->retired = lappend(script->retired, plan->plan);
		MemoryContextSwitchTo(oldcontext);
		plan->plan = NULL;
		return;
	}
	if (plan->simple != NULL && plan->cached_lxid == TW_MY_LXID)
		ReleaseCachedPlan(plan->cached, psm_eval_owner());
	plan->simple = NULL;
	plan->cached_lxid = InvalidLocalTransactionId;
	psm_plan_free(plan);
}

/* Makes the plan of a piece of SQL; see psm_prepare() */
void
psm_plan_make(PsmExec *ex, PsmExpr *expr, int cursor_options)
{
	PsmPlan    *plan = expr->plan;
	SPIPrepareOptions options = {0};
	PsmExec    *parsing;
	SPIPlanPtr	spi_plan;
	char	   *text;

	if (plan == NULL)
		plan = expr->plan = MemoryContextAllocZero(ex->script->mcxt, sizeof(PsmPlan));
	else if (plan->plan != NULL)
		retire(ex->script, plan);

	options.parserSetup = psm_parser_setup;
	options.parserSetupArg = expr;
	options.parseMode = psm_lead_length(expr) > 0 ? RAW_PARSE_DEFAULT : expr->mode;
	options.cursorOptions = cursor_options;
	ex->expr = expr;
	parsing = psm_params_parsing(ex);
	text = psm_lead_length(expr) > 0 ? psprintf(PSM_LEAD "%s", expr->text) : expr->text;
	spi_plan = SPI_prepare_extended(text, &options);
	if (spi_plan == NULL)
		elog(ERROR, "SPI_prepare_extended failed: %s", SPI_result_code_string(SPI_result));
	SPI_keepplan(spi_plan);
	plan->plan = spi_plan;
	plan->source = linitial(SPI_plan_get_plan_sources(spi_plan));
	restore_text(expr, plan->source);
	plan->shape = ex->script->shape;
	plan->simple = NULL;
	plan->cached_lxid = InvalidLocalTransactionId;
	plan->state_lxid = InvalidLocalTransactionId;
	if (expr->mode != RAW_PARSE_DEFAULT && query_is_expression(plan->source))
		make_simple(plan);
	psm_params_parsing(parsing);
}

/*
 * The parameter list to run a plan with.  Also when it has no parameters: DDL
 * may have changed what its names mean, and it is analysed again only then.
 *
 * Citus fails on an empty list; it gets none, or, when the plan is about to be
 * analysed again, one that may stay empty: a parameter that nobody asks for.
 */
static ParamListInfo
params_for(PsmExec *ex, PsmExpr *expr)
{
	CachedPlanSource *source = expr->plan->source;

	if (expr->plan->nslots == 0)
		source->cursor_options |= CURSOR_OPT_GENERIC_PLAN;	/* as without the list */
	else
		source->cursor_options &= ~CURSOR_OPT_GENERIC_PLAN;
	ex->params->numParams = expr->plan->nslots;
	ex->params->parserSetupArg = expr;
	if (expr->plan->nslots == 0 && tw_citus_present())
	{
		if (SPI_plan_is_valid(expr->plan->plan))
			return NULL;
		ex->params->numParams = 1;
	}
	return ex->params;
}

/* True: a query changes or locks rows */
static bool
changes_rows(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		return query->commandType != CMD_SELECT || query->hasForUpdate ||
			query_tree_walker(query, changes_rows, arg, 0);
	}
	return expression_tree_walker(node, changes_rows, arg);
}

/*
 * A piece of SQL has run, in a savepoint perhaps.  It may have done what a failing
 * statement behind it must not undo, even without a transaction id: written on another
 * server, or, by a volatile function or a trigger, taken a lock, changed a setting, sent a
 * notification, opened a cursor.  What runs in a savepoint that was left behind belongs to no
 * protected statement at all, and keeps also the locks of what it read.
 */
static void
note_effects(PsmExec *ex, PsmPlan *plan)
{
	if (!plan->effects_known)
	{
		Node	   *queries = (Node *) plan->source->query_list;

		plan->has_effects = changes_rows(queries, NULL) || contain_volatile_functions(queries);
		plan->effects_known = true;
	}
	if (plan->has_effects || ex->savepoint.left)
		ex->savepoint.used = true;
}

/* ---------- simple expressions ---------- */

/* Makes sure that the plan behind a simple expression is valid and ours */
static bool
simple_plan_valid(PsmExec *ex, PsmExpr *expr)
{
	PsmPlan    *plan = expr->plan;

	if (likely(CachedPlanIsSimplyValid(plan->source, plan->cached,
									   plan->cached_lxid != TW_MY_LXID ?
									   psm_eval_owner() : NULL)))
	{
		plan->cached_lxid = TW_MY_LXID;
		return true;
	}
	if (plan->cached_lxid == TW_MY_LXID)
		ReleaseCachedPlan(plan->cached, psm_eval_owner());
	plan->cached_lxid = InvalidLocalTransactionId;

	{
		PsmExec    *parsing = psm_params_parsing(ex);

		make_simple(plan);
		psm_params_parsing(parsing);
	}
	return plan->simple != NULL;
}

/* Evaluates without SPI; false when that cannot be done this time */
static bool
eval_simple(PsmExec *ex, PsmExpr *expr, Datum *value, bool *isnull)
{
	PsmPlan    *plan = expr->plan;
	ExprContext *econtext = psm_econtext(ex);
	ParamListInfo params = ex->params;
	void	   *save_arg = params->parserSetupArg;
	int			save_num = params->numParams;
	ExprState  *state = plan->state;
	MemoryContext oldcontext;
	bool		snapshot;
	bool		in_use = plan->in_use && plan->state_lxid == TW_MY_LXID;
	bool		once = in_use ||
		(plan->state_lxid == TW_MY_LXID && plan->state_role != GetUserId());

	/*
	 * The state is busy further out, or an error has left it half-way, or it was
	 * made when another role was current, and who may execute a function is asked
	 * only then: one is made for this time only.  The plan must stay, the other
	 * one needs it.
	 */
	if (unlikely(once))
	{
		if (!CachedPlanIsSimplyValid(plan->source, plan->cached, NULL))
			return false;
	}
	else if (!simple_plan_valid(ex, expr))
		return false;

	params->parserSetupArg = expr;
	params->numParams = plan->nslots;
	econtext->ecxt_param_list_info = params;
	if (unlikely(once))
	{
		oldcontext = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		state = ExecInitExprWithParams(plan->simple, params);
		MemoryContextSwitchTo(oldcontext);
	}
	else if (unlikely(plan->state_lxid != TW_MY_LXID))
	{
		oldcontext = MemoryContextSwitchTo(psm_eval_estate()->es_query_cxt);
		plan->state = state = ExecInitExprWithParams(plan->simple, params);
		plan->in_use = false;
		plan->state_lxid = TW_MY_LXID;
		plan->state_role = GetUserId();
		MemoryContextSwitchTo(oldcontext);
	}

	/* only a function that is not immutable can see what we wrote before */
	oldcontext = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	snapshot = plan->mutable && !ex->read_only;
	if (snapshot)
	{
		CommandCounterIncrement();
		PushActiveSnapshot(GetTransactionSnapshot());
	}
	plan->in_use = true;
	*value = ExecEvalExpr(state, econtext, isnull);
	plan->in_use = in_use;
	if (snapshot)
		PopActiveSnapshot();
	if (plan->mutable && ex->savepoint.open)
		note_effects(ex, plan);
	MemoryContextSwitchTo(oldcontext);

	econtext->ecxt_param_list_info = NULL;
	params->parserSetupArg = save_arg;
	params->numParams = save_num;
	return true;
}

/* ---------- evaluating ---------- */

static Datum
eval_query(PsmExec *ex, PsmExpr *expr, bool *isnull, Oid *type, int32 *typmod)
{
	int			rc = psm_execute(ex, expr, false, 2);
	SPITupleTable *tuples = SPI_tuptable;
	Form_pg_attribute att;

	if (rc != SPI_OK_SELECT || tuples == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("an expression is needed here, but this returns no value")));
	if (tuples->tupdesc->natts != 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("an expression must return one column, but this returns %d",
						tuples->tupdesc->natts)));
	if (SPI_processed > 1)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("more than one row returned by an expression")));
	if (ex->eval_tuples != NULL)
		ex->more_tuples = lappend(ex->more_tuples, ex->eval_tuples);
	ex->eval_tuples = tuples;
	att = TupleDescAttr(tuples->tupdesc, 0);
	*type = att->atttypid;
	*typmod = att->atttypmod;
	if (SPI_processed == 0)
	{
		*isnull = true;
		return (Datum) 0;
	}
	return SPI_getbinval(tuples->vals[0], tuples->tupdesc, 1, isnull);
}

/*
 * Evaluates an expression.  The value lives until psm_eval_cleanup().
 * Errors: 21000 for more than one row, and whatever the expression raises.
 */
Datum
psm_eval(PsmExec *ex, PsmExpr *expr, bool *isnull, Oid *type, int32 *typmod)
{
	Datum		value;

	ex->expr = expr;
	psm_prepare(ex, expr, CURSOR_OPT_PARALLEL_OK);
	if (expr->plan->simple != NULL && eval_simple(ex, expr, &value, isnull))
	{
		*type = expr->plan->type;
		*typmod = expr->plan->typmod;
		ex->expr = NULL;
		return value;
	}
	value = eval_query(ex, expr, isnull, type, typmod);
	ex->expr = NULL;
	return value;
}

/*
 * Evaluates an expression for a place that needs a value of type wanted, or
 * (InvalidOid) of any.  A parameter that stands alone takes that type at once,
 * or the one its JSON has; all else comes as it is.
 */
Datum
psm_eval_for(PsmExec *ex, PsmExpr *expr, Oid wanted, bool *isnull, Oid *type, int32 *typmod)
{
	Datum		value;

	if (likely(!expr->lone_host))
		return psm_eval(ex, expr, isnull, type, typmod);
	ex->expr = expr;
	*type = OidIsValid(wanted) ? wanted : psm_host_type(ex, expr->hosts[0].host);
	*typmod = -1;
	value = psm_host_datum(ex, expr->hosts[0].host, *type, isnull);
	ex->expr = NULL;
	return value;
}

/* Evaluates a condition; unknown is false.  Leaves nothing to clean up. */
bool
psm_eval_bool(PsmExec *ex, PsmExpr *expr)
{
	bool		isnull;
	Oid			type;
	int32		typmod;
	Datum		value = psm_eval_for(ex, expr, BOOLOID, &isnull, &type, &typmod);

	if (type != BOOLOID)
	{
		if (!psm_is_condition_type(type))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg(PSM_NO_CONDITION, format_type_be(type)),
					 errhint(PSM_NO_CONDITION_HINT)));
		value = psm_cast(psm_econtext(ex), value, &isnull, type, typmod, BOOLOID, -1);
	}
	psm_eval_cleanup(ex);
	return !isnull && DatumGetBool(value);
}

/* Evaluates to text, NULL for null; lives until psm_eval_cleanup() */
char *
psm_eval_text(PsmExec *ex, PsmExpr *expr)
{
	bool		isnull;
	Oid			type;
	int32		typmod;
	Datum		value = psm_eval_for(ex, expr, TEXTOID, &isnull, &type, &typmod);
	MemoryContext oldcontext;
	char	   *result;

	if (isnull)
		return NULL;
	value = psm_cast(psm_econtext(ex), value, &isnull, type, typmod, TEXTOID, -1);
	oldcontext = MemoryContextSwitchTo(psm_econtext(ex)->ecxt_per_tuple_memory);
	result = TextDatumGetCString(value);
	MemoryContextSwitchTo(oldcontext);
	return result;
}

/* ---------- statements ---------- */

/*
 * The text of a utility statement with each :name as one quoted literal.
 * ex->splices says where they stand in it, so that errors find their place.
 */
static char *
splice_text(PsmExec *ex, PsmExpr *expr)
{
	StringInfoData text;
	int			done = 0;

	initStringInfo(&text);
	ex->splices = palloc(expr->nhosts * sizeof(PsmSplice));
	for (int i = 0; i < expr->nhosts; i++)
	{
		PsmHostRef *ref = &expr->hosts[i];
		JsonbValue *value = ex->host_values[ref->host];
		char	   *literal = value ? psm_json_text(value) : NULL;

		appendBinaryStringInfo(&text, expr->text + done, ref->offset - done);
		ex->splices[i].at = text.len;
		literal = literal ? quote_literal_cstr(literal) : pstrdup("NULL");
		appendStringInfoString(&text, literal);
		ex->splices[i].grown = (int) strlen(literal) - ref->length;
		done = ref->offset + ref->length;
	}
	appendStringInfoString(&text, expr->text + done);
	ex->run_text = text.data;
	return text.data;
}

static int
execute(PsmExec *ex, PsmExpr *expr, SPIExecuteOptions *options)
{
	int			rc;

	ex->expr = expr;
	options->read_only = ex->read_only;
	if (expr->spliced)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(psm_econtext(ex)->ecxt_per_tuple_memory);
		char	   *text = splice_text(ex, expr);
		List	   *parsed = raw_parser(text, RAW_PARSE_DEFAULT);

		MemoryContextSwitchTo(oldcontext);
		rc = SPI_execute_extended(text, options);
		ex->run_relation = psm_utility_relation(linitial_node(RawStmt, parsed)->stmt);
		ex->run_text = NULL;
	}
	else
	{
		PsmExec    *parsing;

		psm_prepare(ex, expr, CURSOR_OPT_PARALLEL_OK);
		options->params = params_for(ex, expr);
		parsing = psm_params_parsing(ex);
		rc = SPI_execute_plan_extended(expr->plan->plan, options);
		psm_params_parsing(parsing);
		if (ex->savepoint.open)
			note_effects(ex, expr->plan);
	}
	ex->expr = NULL;

	/* check.c has refused what ends the transaction or talks to the client */
	if (rc < 0)
		elog(ERROR, "SPI failed to execute a statement: %s", SPI_result_code_string(rc));
	return rc;
}

/*
 * Runs a statement; SPI_processed and SPI_tuptable have what it did.  Returns
 * the SPI code.
 */
int
psm_execute(PsmExec *ex, PsmExpr *expr, bool must_return_tuples, uint64 tcount)
{
	SPIExecuteOptions options = {0};

	options.must_return_tuples = must_return_tuples;
	options.tcount = tcount;
	return execute(ex, expr, &options);
}

/* Runs a query whose rows go to dest */
void
psm_execute_into(PsmExec *ex, PsmExpr *expr, DestReceiver *dest)
{
	SPIExecuteOptions options = {0};

	options.must_return_tuples = true;
	options.dest = dest;
	execute(ex, expr, &options);
}

/* Opens a portal on a query, under a name or (NULL) under one that SPI makes up */
Portal
psm_open(PsmExec *ex, PsmExpr *expr, const char *name)
{
	PsmExec    *parsing;
	Portal		portal;

	ex->expr = expr;
	psm_prepare(ex, expr, CURSOR_OPT_NO_SCROLL);
	parsing = psm_params_parsing(ex);
	portal = SPI_cursor_open_with_paramlist(name, expr->plan->plan, params_for(ex, expr),
											ex->read_only);
	psm_params_parsing(parsing);
	if (portal == NULL)
		elog(ERROR, "could not open a cursor: %s", SPI_result_code_string(SPI_result));
	ex->expr = NULL;
	return portal;
}

/* The table that a utility statement is about, or InvalidOid */
Oid
psm_utility_relation(const Node *stmt)
{
	RangeVar   *rel = NULL;

	switch (nodeTag(stmt))
	{
		case T_CopyStmt:
			rel = ((const CopyStmt *) stmt)->relation;
			break;
		case T_CreateStmt:
			rel = ((const CreateStmt *) stmt)->relation;
			break;
		case T_CreateTableAsStmt:
			rel = ((const CreateTableAsStmt *) stmt)->into->rel;
			break;
		case T_TruncateStmt:
			rel = linitial(((const TruncateStmt *) stmt)->relations);
			break;
		case T_AlterTableStmt:
			rel = ((const AlterTableStmt *) stmt)->relation;
			break;
		case T_IndexStmt:
			rel = ((const IndexStmt *) stmt)->relation;
			break;
		default:
			break;
	}
	return rel ? RangeVarGetRelid(rel, NoLock, true) : InvalidOid;
}

/* The table that a statement just executed writes, or InvalidOid */
Oid
psm_expr_relation(PsmExpr *expr)
{
	PsmPlan    *plan = expr->plan;
	Query	   *query;

	if (plan == NULL || plan->plan == NULL || plan->source->raw_parse_tree == NULL)
		return InvalidOid;
	if (plan->source->query_list == NIL)
		return InvalidOid;
	query = linitial_node(Query, plan->source->query_list);
	if (query->commandType == CMD_UTILITY)
		return psm_utility_relation(query->utilityStmt);
	if (query->resultRelation == 0)
		return InvalidOid;
	return rt_fetch(query->resultRelation, query->rtable)->relid;
}
