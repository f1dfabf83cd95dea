/*
 * exec.c
 *		The interpreter: walks the tree of a block.
 *
 * Each statement returns how it ended (PsmResult); jumps travel outwards as
 * such results until the block or loop they name takes them.  Errors are
 * PostgreSQL's own; handle.c catches them where a handler is declared, and
 * calls back to run a handler's action, which is a statement.
 *
 * The caller has connected to SPI and owns the transaction.
 */
#include "psm/psm.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "engine/citus.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/tuplestore.h"

/* Rows that a FOR loop fetches at once: few at first, since it may stop early */
#define FOR_FIRST_BATCH 10
#define FOR_BATCH 100

/* ---------- statements ---------- */

/* The type that an assignment needs, InvalidOid when it has to be seen */
static Oid
target_type(const PsmTarget *target)
{
	int			field;

	if (target->field == NULL)
		return target->var->type;
	field = psm_row_field(target->var, target->field);
	return field < 0 ? InvalidOid : TupleDescAttr(target->var->tupdesc, field)->atttypid;
}

static PsmResult
exec_set(PsmExec *ex, PsmSet *stmt)
{
	bool		isnull;
	Oid			type;
	int32		typmod;
	PsmVar	   *var = stmt->target.var;
	Datum		value;

	if (likely(!stmt->value->lone_host))
		value = psm_eval(ex, stmt->value, &isnull, &type, &typmod);
	else
		value = psm_eval_for(ex, stmt->value, target_type(&stmt->target), &isnull, &type, &typmod);

	/* the common case: nothing to cast, nothing to copy, nothing to free */
	if (likely(type == var->type && var->typbyval && var->typmod == -1 &&
			   var->kind == PSM_VAR_SCALAR && type < FirstNormalObjectId))
	{
		PsmValue   *v = &ex->values[var->number];

		v->value = value;
		v->isnull = isnull;
	}
	else
		psm_assign(ex, &stmt->target, value, isnull, type, typmod);
	psm_eval_cleanup(ex);
	return PSM_NEXT;
}

static void
set_targets_null(PsmExec *ex, List *targets)
{
	ListCell   *lc;

	foreach(lc, targets)
		psm_assign(ex, lfirst(lc), (Datum) 0, true, UNKNOWNOID, -1);
}

/* SET (a, b) = (query): no row sets all to null, more than one is an error */
static PsmResult
exec_set_row(PsmExec *ex, PsmSetRow *stmt)
{
	int			n = list_length(stmt->targets);

	if (stmt->query != NULL)
	{
		SPITupleTable *tuples;

		if (psm_writes_rows(psm_execute(ex, stmt->query, true, 2)))
			psm_count_written(ex, &stmt->stmt, stmt->query, SPI_processed);
		tuples = SPI_tuptable;
		if (SPI_processed > 1)
			ereport(ERROR,
					(errcode(ERRCODE_CARDINALITY_VIOLATION),
					 errmsg("more than one row returned to be assigned")));
		if (SPI_processed == 1)
			psm_assign_tuple(ex, stmt->targets, tuples->vals[0], tuples->tupdesc);
		else
			set_targets_null(ex, stmt->targets);
		SPI_freetuptable(tuples);
	}
	else
	{
		Datum	   *values = palloc(n * sizeof(Datum));
		bool	   *nulls = palloc(n * sizeof(bool));
		Oid		   *types = palloc(n * sizeof(Oid));
		int32	   *typmods = palloc(n * sizeof(int32));

		for (int i = 0; i < n; i++)
			values[i] = psm_eval_for(ex, list_nth(stmt->values, i),
									 target_type(list_nth(stmt->targets, i)),
									 &nulls[i], &types[i], &typmods[i]);

		/* an assignment may free what a variable held, and a later value may be just that */
		for (int i = 0; i < n; i++)
		{
			int16		typlen;
			bool		typbyval;

			get_typlenbyval(types[i], &typlen, &typbyval);
			if (!nulls[i] && !typbyval)
			{
				MemoryContext oldcontext =
					MemoryContextSwitchTo(psm_econtext(ex)->ecxt_per_tuple_memory);

				values[i] = datumCopy(values[i], typbyval, typlen);
				MemoryContextSwitchTo(oldcontext);
			}
		}
		for (int i = 0; i < n; i++)
			psm_assign(ex, list_nth(stmt->targets, i), values[i], nulls[i], types[i], typmods[i]);
		pfree(values);
		pfree(nulls);
		pfree(types);
		pfree(typmods);
	}
	psm_eval_cleanup(ex);
	return PSM_NEXT;
}

/* Ends a statement's query: frees its result, and NOT FOUND when it missed all that it was for */
static PsmResult
end_query(PsmExec *ex, SPITupleTable *tuples, bool missed)
{
	if (tuples != NULL)
		SPI_freetuptable(tuples);
	psm_eval_cleanup(ex);
	return missed ? psm_not_found(ex) : PSM_NEXT;
}

static PsmResult
exec_sql(PsmExec *ex, PsmSqlStmt *stmt)
{
	PsmCount   *count = &ex->counts[stmt->stmt.number];
	int			rc;
	uint64		n;
	SPITupleTable *tuples;

	if (stmt->call)
	{
		/* what cannot take an output is refused before the procedure runs */
		psm_prepare(ex, stmt->sql, CURSOR_OPT_PARALLEL_OK);
		psm_call_check(ex, stmt->sql);
	}

	/* one row more than INTO wants, so that too many are noticed */
	rc = psm_execute(ex, stmt->sql, stmt->into != NIL,
					 stmt->into != NIL && !stmt->utility && strcmp(stmt->command, "SELECT") == 0
					 ? 2 : 0);
	n = stmt->call ? 0 : SPI_processed;
	tuples = SPI_tuptable;

	if (stmt->into != NIL)
		psm_assign_into(ex, stmt->into, tuples, n);
	else if (stmt->call)
		psm_call_outputs(ex, stmt->sql, tuples);
	count->executions++;
	count->rows += n;
	count->writes |= psm_writes_rows(rc) || (stmt->utility && strcmp(stmt->command, "COPY") == 0);
	ex->row_count = n;
	if (stmt->utility)
	{
		ex->savepoint.used = true;
		count->relation = stmt->sql->spliced ? ex->run_relation : psm_expr_relation(stmt->sql);
	}

	return end_query(ex, tuples, n == 0 && (psm_writes_rows(rc) || stmt->into != NIL));
}

static PsmResult
exec_if(PsmExec *ex, PsmIf *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->branches)
	{
		PsmBranch  *branch = lfirst(lc);

		if (psm_eval_bool(ex, branch->when))
			return psm_exec_stmts(ex, branch->body);
	}
	return psm_exec_stmts(ex, stmt->otherwise);
}

/* The operand's type is known when it was evaluated; the WHENs are planned for it */
static void
set_case_operand(PsmExec *ex, PsmCase *stmt)
{
	PsmVar	   *var = stmt->operand_var;
	PsmTarget	target = {var, NULL, stmt->stmt.pos};
	bool		isnull;
	Oid			type;
	int32		typmod;
	Datum		value = psm_eval(ex, stmt->operand, &isnull, &type, &typmod);

	psm_operand_describe(ex, var, type);
	psm_assign(ex, &target, value, isnull, type, typmod);
	psm_eval_cleanup(ex);
}

static PsmResult
exec_case(PsmExec *ex, PsmCase *stmt)
{
	ListCell   *lc;

	if (stmt->operand != NULL && stmt->operand_var->host == NULL)
		set_case_operand(ex, stmt);
	foreach(lc, stmt->branches)
	{
		PsmBranch  *branch = lfirst(lc);

		if (psm_eval_bool(ex, branch->when))
			return psm_exec_stmts(ex, branch->body);
	}
	if (!stmt->has_else)
		ereport(ERROR,
				(errcode(ERRCODE_CASE_NOT_FOUND),
				 errmsg("no WHEN of the CASE statement matched"),
				 errhint("Add an ELSE branch.")));
	return psm_exec_stmts(ex, stmt->otherwise);
}

/* What a loop does with the way its body ended; true: leave the loop with *result */
static bool
loop_ends(PsmExec *ex, PsmScope *scope, PsmResult *result)
{
	if (*result == PSM_NEXT)
		return false;
	if (ex->jump == scope && *result == PSM_JUMP_ITERATE)
	{
		*result = PSM_NEXT;
		return false;
	}
	if (ex->jump == scope && *result == PSM_JUMP_LEAVE)
		*result = PSM_NEXT;
	return true;
}

static PsmResult
exec_loop(PsmExec *ex, PsmLoop *stmt)
{
	PsmResult	result;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		ex->stmt = &stmt->stmt;
		if (stmt->stmt.kind == PSM_WHILE)
		{
			/* what the body did must survive a condition that fails */
			if (ex->frames != NULL && ex->frames->catches_errors)
				psm_savepoint_renew(ex);
			if (!psm_eval_bool(ex, stmt->condition))
				return PSM_NEXT;
		}
		result = psm_exec_stmts(ex, stmt->body);
		if (loop_ends(ex, stmt->scope, &result))
			return result;
		if (stmt->stmt.kind == PSM_REPEAT)
		{
			ex->stmt = &stmt->stmt;
			if (ex->frames != NULL && ex->frames->catches_errors)
				psm_savepoint_renew(ex);
			if (psm_eval_bool(ex, stmt->condition))
				return PSM_NEXT;
		}
	}
}

/* ---------- FOR and cursors ---------- */

/*
 * Fetches from a portal.  INSERT ... RETURNING and the like have done all of
 * their work after the first fetch, and count as what they are.
 */
static void
fetch(PsmExec *ex, PsmStmt *stmt, PsmExpr *query, Portal portal, long n)
{
	bool		writes = portal->strategy == PORTAL_ONE_RETURNING && portal->holdStore == NULL;

	SPI_cursor_fetch(portal, true, n);
	if (writes && portal->holdStore != NULL)
		psm_count_written(ex, stmt, query, tuplestore_tuple_count(portal->holdStore));
}

/*
 * Opens a portal for a query; of a cursor by its own name if that is free, so
 * that SQL outside the block can find it.
 */
static Portal
open_cursor(PsmExec *ex, PsmExpr *query, PsmCursor *cursor)
{
	const char *name = NULL;
	Portal		portal;

	if (cursor != NULL && SPI_cursor_find(cursor->name) == NULL)
		name = cursor->name;
	portal = psm_open(ex, query, name);
	if (cursor != NULL)
		psm_cursor_set_portal(ex, cursor, portal);
	return portal;
}

static PsmResult
for_rows(PsmExec *ex, PsmFor *stmt, Portal portal, long batch)
{
	PsmResult	result = PSM_NEXT;
	bool		ends = false;

	while (!ends)
	{
		SPITupleTable *tuples;
		uint64		n;

		ex->stmt = &stmt->stmt;
		if (ex->frames != NULL && ex->frames->catches_errors)
			psm_savepoint_renew(ex);
		fetch(ex, &stmt->stmt, stmt->query, portal, batch);
		tuples = SPI_tuptable;
		n = SPI_processed;
		ex->savepoint.used = true;	/* it holds the batch */

		for (uint64 i = 0; i < n && !ends; i++)
		{
			CHECK_FOR_INTERRUPTS();
			psm_row_set(ex, stmt->row, tuples->vals[i], tuples->tupdesc);
			result = psm_exec_stmts(ex, stmt->body);
			ends = loop_ends(ex, stmt->scope, &result);
		}
		if (n < (uint64) batch)
			ends = true;
		if (batch > 1)
			batch = FOR_BATCH;
		psm_row_set(ex, stmt->row, NULL, NULL);
		SPI_freetuptable(tuples);
	}
	return result;
}

static PsmResult
exec_for(PsmExec *ex, PsmFor *stmt)
{
	Portal		portal = open_cursor(ex, stmt->query, stmt->cursor);
	PsmOpenLoop *loop;
	PsmResult	result;

	if (portal->tupDesc == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("FOR needs a query that returns rows")));
	ex->savepoint.used = true;	/* it holds the portal */
	psm_eval_cleanup(ex);
	psm_row_describe(ex, stmt->row, portal->tupDesc);

	loop = MemoryContextAlloc(ex->mcxt, sizeof(PsmOpenLoop));
	loop->portal = MemoryContextStrdup(ex->mcxt, portal->name);
	loop->outer = ex->loops;
	ex->loops = loop;

	/* the body must not close it; WHERE CURRENT OF needs it to stand on the row at hand */
	PinPortal(portal);
	result = for_rows(ex, stmt, portal, stmt->cursor ? 1 : FOR_FIRST_BATCH);
	psm_loops_close(ex, loop->outer);
	if (stmt->cursor != NULL)
		psm_cursor_set_portal(ex, stmt->cursor, NULL);
	return result;
}

static PsmResult
exec_open(PsmExec *ex, PsmCursorStmt *stmt)
{
	PsmCursor  *cursor = stmt->cursor;
	const char *name = ex->cursors[cursor->number];

	if (name != NULL && SPI_cursor_find(name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_CURSOR_STATE),
				 errmsg("cursor \"%s\" is already open", cursor->name)));

	(void) open_cursor(ex, cursor->query, cursor);
	ex->savepoint.used = true;
	psm_eval_cleanup(ex);
	return PSM_NEXT;
}

static PsmResult
exec_fetch(PsmExec *ex, PsmCursorStmt *stmt)
{
	Portal		portal = psm_cursor_portal(ex, stmt->cursor);
	SPITupleTable *tuples;
	uint64		n;

	fetch(ex, &stmt->stmt, stmt->cursor->query, portal, 1);
	tuples = SPI_tuptable;
	n = SPI_processed;
	ex->row_count = n;
	ex->savepoint.used = true;
	if (n > 0)
		psm_assign_into(ex, stmt->into, tuples, n);
	return end_query(ex, tuples, n == 0);
}

static PsmResult
exec_close(PsmExec *ex, PsmCursorStmt *stmt)
{
	SPI_cursor_close(psm_cursor_portal(ex, stmt->cursor));
	psm_cursor_set_portal(ex, stmt->cursor, NULL);
	return PSM_NEXT;
}

/* ---------- blocks ---------- */

/* Declarations are evaluated at each entry, outside the block's own handlers */
static void
enter_scope(PsmExec *ex, PsmCompound *block)
{
	ListCell   *lc;

	foreach(lc, block->vars)
	{
		PsmVar	   *var = lfirst(lc);

		ex->declaring = var;
		if (var->init == NULL)
			psm_set_null(ex, var);
		else
		{
			PsmTarget	target = {var, NULL, var->pos};
			bool		isnull;
			Oid			type;
			int32		typmod;
			Datum		value = psm_eval_for(ex, var->init, var->type, &isnull, &type, &typmod);

			psm_assign(ex, &target, value, isnull, type, typmod);
		}
		psm_eval_cleanup(ex);
	}
	ex->declaring = NULL;
}

/* The body of a block, with its handlers active */
static PsmResult
exec_body(PsmExec *ex, PsmCompound *block)
{
	PsmFrame	frame = {block, ex->frames, false, false};
	bool		atomic = block->atomic || block == ex->script->body;
	bool		own_savepoint = !ex->savepoint.open || ex->savepoint.left;
	PsmResult	result;

	if (block->handlers == NIL && (!atomic || ex->frames == NULL))
		return psm_exec_stmts(ex, block->body);

	frame.catches_errors = block->catches_errors ||
		(!atomic && ex->frames != NULL && ex->frames->catches_errors);
	ex->frames = &frame;
	result = psm_exec_stmts(ex, block->body);
	ex->frames = frame.outer;
	if (own_savepoint)
		psm_savepoint_leave(ex);
	return result;
}

static bool
has_undo(PsmCompound *block)
{
	ListCell   *lc;

	foreach(lc, block->handlers)
	{
		if (((PsmHandler *) lfirst(lc))->kind == PSM_UNDO)
			return true;
	}
	return false;
}

/*
 * Runs an atomic block, or the UNDO handler that takes its place, in a savepoint
 * around all of it.  When that is undone, what was counted in it is forgotten.
 */
static PsmResult
run_undoable(PsmExec *ex, PsmCompound *block, PsmHandler *undo)
{
	PsmSavepoint outer = ex->savepoint;
	PsmSavepoint own;
	volatile PsmResult result = PSM_NEXT;
	Size		size = ex->script->nstmts * sizeof(PsmCount);
	PsmCount   *counts = MemoryContextAlloc(ex->mcxt, size);

	memcpy(counts, ex->counts, size);
	psm_savepoint_begin(ex, &own);
	memset(&ex->savepoint, 0, sizeof(PsmSavepoint));
	PG_TRY();
	{
		if (undo == NULL)
			result = exec_body(ex, block);
		else
		{
			PsmFrame	frame = {block, ex->frames, false, false};

			result = psm_handler_run(ex, &frame, undo, ex->undo_diagnostics);
		}
	}
	PG_CATCH();
	{
		ErrorData  *error = psm_error_take(ex, true);

		psm_savepoint_rollback(ex, &own);
		memcpy(ex->counts, counts, size);
		pfree(counts);
		ReThrowError(error);
	}
	PG_END_TRY();

	if (undo == NULL && result == PSM_JUMP_UNDO && ex->jump == block->scope)
	{
		psm_savepoint_rollback(ex, &own);
		memcpy(ex->counts, counts, size);
	}
	else
	{
		psm_savepoint_release(ex, &ex->savepoint);	/* a handler further out may have left one */
		psm_savepoint_release(ex, &own);
	}
	pfree(counts);
	ex->savepoint = outer;
	ex->savepoint.used = true;
	return result;
}

/*
 * An atomic block that can fail alone, because a handler further out may go on
 * behind it or because it has an UNDO handler
 */
static PsmResult
exec_undoable(PsmExec *ex, PsmCompound *block)
{
	PsmFrame   *frames = ex->frames;
	PsmResult	result = run_undoable(ex, block, NULL);

	if (result == PSM_JUMP_UNDO && ex->jump == block->scope)
	{
		PsmDiagnostics *diagnostics = ex->undo_diagnostics;

		ex->frames = frames;
		result = run_undoable(ex, block, ex->undo_handler);
		psm_diagnostics_free(diagnostics);
	}
	return result;
}

static PsmResult
exec_compound(PsmExec *ex, PsmCompound *block)
{
	PsmResult	result;

	enter_scope(ex, block);
	if (has_undo(block) || (block->atomic && block != ex->script->body &&
							ex->frames != NULL && ex->frames->catches_errors))
		result = exec_undoable(ex, block);
	else
		result = exec_body(ex, block);
	if (block->scope->cursors != NIL)
		psm_cursors_close(ex, block->scope);

	if (result == PSM_JUMP_LEAVE && ex->jump == block->scope)
		return PSM_NEXT;
	return result;
}

/* ---------- conditions ---------- */

static PsmResult
exec_signal(PsmExec *ex, PsmSignal *stmt)
{
	ErrorData  *condition = psm_signal(ex, stmt);

	return condition != NULL ? psm_completion(ex, condition) : PSM_NEXT;
}

/* ---------- dispatch ---------- */

/* Runs one statement, errors going straight outwards */
PsmResult
psm_exec_plain(PsmExec *ex, PsmStmt *stmt)
{
	switch (stmt->kind)
	{
		case PSM_COMPOUND:
			return exec_compound(ex, (PsmCompound *) stmt);
		case PSM_SET:
			return exec_set(ex, (PsmSet *) stmt);
		case PSM_SET_ROW:
			return exec_set_row(ex, (PsmSetRow *) stmt);
		case PSM_SQL:
			return exec_sql(ex, (PsmSqlStmt *) stmt);
		case PSM_IF:
			return exec_if(ex, (PsmIf *) stmt);
		case PSM_CASE:
			return exec_case(ex, (PsmCase *) stmt);
		case PSM_LOOP:
		case PSM_WHILE:
		case PSM_REPEAT:
			return exec_loop(ex, (PsmLoop *) stmt);
		case PSM_FOR:
			return exec_for(ex, (PsmFor *) stmt);
		case PSM_LEAVE:
			ex->jump = ((PsmJump *) stmt)->target;
			return PSM_JUMP_LEAVE;
		case PSM_ITERATE:
			ex->jump = ((PsmJump *) stmt)->target;
			return PSM_JUMP_ITERATE;
		case PSM_OPEN:
			return exec_open(ex, (PsmCursorStmt *) stmt);
		case PSM_FETCH:
			return exec_fetch(ex, (PsmCursorStmt *) stmt);
		case PSM_CLOSE:
			return exec_close(ex, (PsmCursorStmt *) stmt);
		case PSM_SIGNAL:
		case PSM_RESIGNAL:
			return exec_signal(ex, (PsmSignal *) stmt);
		case PSM_GET_DIAGNOSTICS:
			psm_get_diagnostics(ex, (PsmGetDiagnostics *) stmt);
			return PSM_NEXT;
		case PSM_EXECUTE:
			return psm_exec_immediate(ex, (PsmExecute *) stmt) ? psm_not_found(ex) : PSM_NEXT;
		case PSM_RETURN:
			ex->do_return(ex, (PsmReturn *) stmt);
			return PSM_RETURNED;
	}
	elog(ERROR, "unrecognized statement kind: %d", (int) stmt->kind);
	return PSM_NEXT;
}

/* Whether a statement is likely to write by itself: in a savepoint it needs one more xid */
static bool
may_write(PsmStmtKind kind)
{
	switch (kind)
	{
		case PSM_SQL:
		case PSM_FOR:
		case PSM_OPEN:
		case PSM_EXECUTE:
		case PSM_RETURN:
			return true;
		default:
			return false;
	}
}

PsmResult
psm_exec_stmt(PsmExec *ex, PsmStmt *stmt)
{
	CHECK_FOR_INTERRUPTS();
	ex->stmt = stmt;
	if (unlikely(psm_timed_out))
		psm_timeout_check();
	if (unlikely(ex->frames != NULL) && ex->frames->catches_errors)
		return psm_exec_protected(ex, stmt);
	if (unlikely(ex->savepoint.left) && may_write(stmt->kind))
		psm_savepoint_release(ex, &ex->savepoint);
	return psm_exec_plain(ex, stmt);
}

PsmResult
psm_exec_stmts(PsmExec *ex, List *stmts)
{
	ListCell   *lc;

	check_stack_depth();
	foreach(lc, stmts)
	{
		PsmResult	result = psm_exec_stmt(ex, lfirst(lc));

		if (unlikely(result != PSM_NEXT))
			return result;
	}
	return PSM_NEXT;
}

/* ---------- an execution ---------- */

/* Reset callback of PsmExec.mcxt */
static void
exec_gone(void *arg)
{
	PsmExec    *ex = arg;

	psm_params_forget(ex);
	psm_script_unuse(ex->script);
}

/*
 * Makes an execution of a script in the current memory context, which must
 * outlive it; the script is in use until that is reset or deleted.  All that
 * has a known size is one allocation.
 */
PsmExec *
psm_exec_create(PsmScript *script)
{
	Size		values = MAXALIGN(sizeof(PsmExec));
	Size		counts = values + MAXALIGN(script->nvars * sizeof(PsmValue));
	Size		cursors = counts + MAXALIGN(script->nstmts * sizeof(PsmCount));
	Size		params = cursors + MAXALIGN(script->ncursors * sizeof(char *));
	char	   *chunk = palloc0(params + sizeof(ParamListInfoData));
	PsmExec    *ex = (PsmExec *) chunk;

	ex->script = script;
	ex->mcxt = CurrentMemoryContext;
	ex->values = (PsmValue *) (chunk + values);
	ex->counts = (PsmCount *) (chunk + counts);
	ex->cursors = (char **) (chunk + cursors);
	psm_params_init(ex, (ParamListInfo) (chunk + params));
	psm_values_init(ex);

	script->in_use++;
	ex->gone.func = exec_gone;
	ex->gone.arg = ex;
	MemoryContextRegisterResetCallback(ex->mcxt, &ex->gone);
	return ex;
}

/*
 * Runs the script to its end.  An error may come between two statements, when
 * the savepoint for the next one is open: it must not outlive the execution.
 */
static void
run_protected(PsmExec *ex)
{
	int			level = GetCurrentTransactionNestLevel();
	MemoryContext oldcontext = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;

	PG_TRY();
	{
		psm_exec_stmt(ex, &ex->script->body->stmt);
		psm_savepoint_release(ex, &ex->savepoint);
		Assert(GetCurrentTransactionNestLevel() == level);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		if (GetCurrentTransactionNestLevel() <= level)
			PG_RE_THROW();
		error = psm_error_take(ex, true);
		while (GetCurrentTransactionNestLevel() > level)
			RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(oldcontext);
		CurrentResourceOwner = oldowner;
		ReThrowError(error);
	}
	PG_END_TRY();
}

void
psm_exec_run(PsmExec *ex)
{
	ErrorContextCallback context;

	tw_citus_protect();
	context.callback = psm_exec_error_callback;
	context.arg = ex;
	context.previous = error_context_stack;
	error_context_stack = &context;

	if (ex->script->has_handlers)
		run_protected(ex);
	else
		psm_exec_stmt(ex, &ex->script->body->stmt);
	psm_timeout_check();

	error_context_stack = context.previous;
	psm_error_line_clear();
	if (ex->econtext != NULL)
		psm_econtext_pop(ex->econtext);
	ex->econtext = NULL;
}
