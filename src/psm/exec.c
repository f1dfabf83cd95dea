/*
 * exec.c
 *		The interpreter: walks the tree of a block.
 *
 * Each statement returns how it ended (PsmResult); jumps travel outwards as
 * such results until the block or loop they name takes them.  Errors are
 * PostgreSQL's own, caught where a handler is declared: what failed is undone, and the
 * handler that condition.c chooses is run, which is a statement again.  Statements that
 * hold no others are in statement.c.
 *
 * The caller has connected to SPI and owns the transaction.
 */
#include "psm/psm.h"

#include "access/xact.h"
#include "engine/citus.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/portal.h"

/* Rows that a FOR loop fetches at once: few at first, since it may stop early */
#define FOR_FIRST_BATCH 10
#define FOR_BATCH 100

static PsmResult exec_stmt(PsmExec *ex, PsmStmt *stmt);
static PsmResult exec_stmts(PsmExec *ex, List *stmts);
static PsmResult exec_plain(PsmExec *ex, PsmStmt *stmt);

/* ---------- conditions and loops ---------- */

static PsmResult
exec_if(PsmExec *ex, PsmIf *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->branches)
	{
		PsmBranch  *branch = lfirst(lc);

		if (psm_eval_bool(ex, branch->when))
			return exec_stmts(ex, branch->body);
	}
	return exec_stmts(ex, stmt->otherwise);
}

static PsmResult
exec_case(PsmExec *ex, PsmCase *stmt)
{
	ListCell   *lc;

	if (stmt->operand != NULL && stmt->operand_var->host == NULL)
		psm_set_case_operand(ex, stmt);
	foreach(lc, stmt->branches)
	{
		PsmBranch  *branch = lfirst(lc);

		if (psm_eval_bool(ex, branch->when))
			return exec_stmts(ex, branch->body);
	}
	if (!stmt->has_else)
		ereport(ERROR,
				(errcode(ERRCODE_CASE_NOT_FOUND),
				 errmsg("no WHEN of the CASE statement matched"),
				 errhint("Add an ELSE branch.")));
	return exec_stmts(ex, stmt->otherwise);
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
		result = exec_stmts(ex, stmt->body);
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

/* ---------- FOR ---------- */

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
		psm_fetch(ex, &stmt->stmt, stmt->query, portal, batch);
		tuples = SPI_tuptable;
		n = SPI_processed;
		ex->savepoint.used = true;	/* it holds the batch */

		for (uint64 i = 0; i < n && !ends; i++)
		{
			CHECK_FOR_INTERRUPTS();
			psm_row_set(ex, stmt->row, tuples->vals[i], tuples->tupdesc);
			result = exec_stmts(ex, stmt->body);
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
	Portal		portal = psm_open_cursor(ex, stmt->query, stmt->cursor);
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

/* ---------- handlers ---------- */

/*
 * Runs a handler's action, in which neither it nor its siblings are active,
 * and says how the statement that raised the condition ends.
 */
static PsmResult
run_handler(PsmExec *ex, PsmFrame *frame, PsmHandler *handler, PsmDiagnostics *diagnostics)
{
	PsmFrame   *frames = ex->frames;
	PsmFrame	active = {frame->block, frame->outer, false, true};
	PsmResult	result;

	/* a handler of an atomic block that fails takes the block with it */
	active.catches_errors = !frame->block->atomic && frame->outer != NULL &&
		frame->outer->catches_errors;
	ex->frames = &active;
	diagnostics->block = frame->block;
	diagnostics->outer = ex->diagnostics;
	ex->diagnostics = diagnostics;
	result = exec_stmt(ex, handler->action);
	ex->diagnostics = diagnostics->outer;
	ex->frames = frames;

	if (result == PSM_NEXT && handler->kind == PSM_EXIT)
	{
		ex->jump = frame->block->scope;
		return PSM_JUMP_LEAVE;
	}
	return result;
}

/* Hands a condition to the handler that was chosen for it */
static PsmResult
handle(PsmExec *ex, PsmFrame *frame, PsmHandler *handler, ErrorData *error, int line)
{
	PsmDiagnostics *diagnostics = psm_diagnostics_make(ex, error, line);
	PsmResult	result;

	if (handler->kind == PSM_UNDO)
	{
		ex->undo_handler = handler;
		ex->undo_diagnostics = diagnostics;
		ex->jump = frame->block->scope;
		return PSM_JUMP_UNDO;
	}
	result = run_handler(ex, frame, handler, diagnostics);
	psm_diagnostics_free(diagnostics);
	return result;
}

/*
 * Runs a statement of a block that has error handlers around it.  An error is
 * undone and handed to its handler; when there is none it goes on outwards.
 */
static PsmResult
exec_protected(PsmExec *ex, PsmStmt *stmt)
{
	PsmFrame   *frames = ex->frames;
	PsmDiagnostics *diagnostics = ex->diagnostics;
	PsmOpenLoop *loops = ex->loops;
	int			line;
	PsmSavepoint savepoint;
	MemoryContext oldcontext = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;
	volatile PsmResult result = PSM_NEXT;
	PsmHandler *volatile handler = NULL;
	PsmFrame   *volatile frame = NULL;

	psm_savepoint_renew(ex);
	savepoint = ex->savepoint;
	PG_TRY();
	{
		result = exec_plain(ex, stmt);
	}
	PG_CATCH();
	{
		PsmFrame   *found = NULL;

		ex->frames = frames;
		handler = psm_handler_for_error(ex, geterrcode(), diagnostics, &found);
		frame = found;
		MemoryContextSwitchTo(oldcontext);
		error = psm_error_take(ex, handler == NULL);
	}
	PG_END_TRY();
	if (error == NULL)
		return result;

	/* the savepoints of inner blocks are rolled back with this one */
	ex->savepoint = savepoint;
	psm_savepoint_rollback(ex, &ex->savepoint);
	psm_loops_close(ex, loops);
	line = psm_exec_pos(ex).line;	/* of the innermost statement that was running */
	ex->declaring = NULL;
	ex->expr = NULL;
	ex->run_text = NULL;
	ex->eval_tuples = NULL;		/* freed with the subtransaction */
	ex->more_tuples = NIL;

	/* handlers that failed stay on record until the error they raised is handled */
	if (handler == NULL)
		ReThrowError(error);
	while (ex->diagnostics != diagnostics)
	{
		PsmDiagnostics *inner = ex->diagnostics;

		ex->diagnostics = inner->outer;
		psm_diagnostics_free(inner);
	}
	return handle(ex, frame, handler, error, line);
}

/*
 * Raises a completion condition for which there is a handler.  Takes condition
 * over; only the fields that diagnostics show need to be set.
 */
static PsmResult
completion(PsmExec *ex, ErrorData *condition)
{
	PsmFrame   *frame;
	PsmHandler *handler = psm_handler_find(ex, condition->sqlerrcode, false, &frame);

	return handle(ex, frame, handler, condition, ex->stmt->pos.line);
}

/* A statement has missed all rows that it was for */
static PsmResult
not_found(PsmExec *ex)
{
	ErrorData  *condition = psm_not_found(ex);

	return condition != NULL ? completion(ex, condition) : PSM_NEXT;
}

/* ---------- blocks ---------- */

/* The body of a block, with its handlers active */
static PsmResult
exec_body(PsmExec *ex, PsmCompound *block)
{
	PsmFrame	frame = {block, ex->frames, false, false};
	bool		atomic = block->atomic || block == ex->script->body;
	bool		own_savepoint = !ex->savepoint.open || ex->savepoint.left;
	PsmResult	result;

	if (block->handlers == NIL && (!atomic || ex->frames == NULL))
		return exec_stmts(ex, block->body);

	frame.catches_errors = block->catches_errors ||
		(!atomic && ex->frames != NULL && ex->frames->catches_errors);
	ex->frames = &frame;
	result = exec_stmts(ex, block->body);
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

			result = run_handler(ex, &frame, undo, ex->undo_diagnostics);
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

	psm_enter_scope(ex, block);
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

/* ---------- dispatch ---------- */

static PsmResult
exec_signal(PsmExec *ex, PsmSignal *stmt)
{
	ErrorData  *condition = psm_signal(ex, stmt);

	return condition != NULL ? completion(ex, condition) : PSM_NEXT;
}

/* Runs one statement, errors going straight outwards */
static PsmResult
exec_plain(PsmExec *ex, PsmStmt *stmt)
{
	switch (stmt->kind)
	{
		case PSM_COMPOUND:
			return exec_compound(ex, (PsmCompound *) stmt);
		case PSM_SET:
			psm_exec_set(ex, (PsmSet *) stmt);
			return PSM_NEXT;
		case PSM_SET_ROW:
			psm_exec_set_row(ex, (PsmSetRow *) stmt);
			return PSM_NEXT;
		case PSM_SQL:
			return psm_exec_sql(ex, (PsmSqlStmt *) stmt) ? not_found(ex) : PSM_NEXT;
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
			psm_exec_open(ex, (PsmCursorStmt *) stmt);
			return PSM_NEXT;
		case PSM_FETCH:
			return psm_exec_fetch(ex, (PsmCursorStmt *) stmt) ? not_found(ex) : PSM_NEXT;
		case PSM_CLOSE:
			psm_exec_close(ex, (PsmCursorStmt *) stmt);
			return PSM_NEXT;
		case PSM_SIGNAL:
		case PSM_RESIGNAL:
			return exec_signal(ex, (PsmSignal *) stmt);
		case PSM_GET_DIAGNOSTICS:
			psm_get_diagnostics(ex, (PsmGetDiagnostics *) stmt);
			return PSM_NEXT;
		case PSM_EXECUTE:
			return psm_exec_immediate(ex, (PsmExecute *) stmt) ? not_found(ex) : PSM_NEXT;
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

static PsmResult
exec_stmt(PsmExec *ex, PsmStmt *stmt)
{
	CHECK_FOR_INTERRUPTS();
	ex->stmt = stmt;
	if (unlikely(psm_timed_out))
		psm_timeout_check();
	if (unlikely(ex->frames != NULL) && ex->frames->catches_errors)
		return exec_protected(ex, stmt);
	if (unlikely(ex->savepoint.left) && may_write(stmt->kind))
		psm_savepoint_release(ex, &ex->savepoint);
	return exec_plain(ex, stmt);
}

static PsmResult
exec_stmts(PsmExec *ex, List *stmts)
{
	ListCell   *lc;

	check_stack_depth();
	foreach(lc, stmts)
	{
		PsmResult	result = exec_stmt(ex, lfirst(lc));

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
		exec_stmt(ex, &ex->script->body->stmt);
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
		exec_stmt(ex, &ex->script->body->stmt);
	psm_timeout_check();

	error_context_stack = context.previous;
	psm_error_line_clear();
	if (ex->econtext != NULL)
		psm_econtext_pop(ex->econtext);
	ex->econtext = NULL;
}
