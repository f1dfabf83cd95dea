/*
 * handle.c
 *		Handlers: undoing what failed, running the one that condition.c has chosen.
 *
 * exec.c hands a statement to psm_exec_protected() where an error may meet a
 * handler, and this file hands both it and the handler's action back: statements
 * hold statements, and this is the one circle among the files that execute them.
 *
 * Errors of class 40, cancels (57014) and TW001, TW004 pass through every
 * handler: only the caller can do something about them.
 */
#include "psm/psm.h"

/*
 * Runs a handler's action, in which neither it nor its siblings are active,
 * and says how the statement that raised the condition ends.
 */
PsmResult
psm_handler_run(PsmExec *ex, PsmFrame *frame, PsmHandler *handler, PsmDiagnostics *diagnostics)
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
	result = psm_exec_stmt(ex, handler->action);
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
	result = psm_handler_run(ex, frame, handler, diagnostics);
	psm_diagnostics_free(diagnostics);
	return result;
}

/*
 * Does the error come out of a handler that belongs to one of these blocks, or
 * one further out?  It ran on behalf of a statement in here, but what fails in a
 * handler fails where that is declared.  before is what was handled when the
 * statement began.
 */
static bool
failed_in_handler(const PsmExec *ex, const PsmFrame *frames, const PsmDiagnostics *before)
{
	for (const PsmDiagnostics *inner = ex->diagnostics; inner != before; inner = inner->outer)
	{
		for (const PsmFrame *frame = frames; frame != NULL; frame = frame->outer)
		{
			if (frame->block == inner->block && !frame->handling)
				return true;
		}
	}
	return false;
}

static bool
passes_every_handler(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK ||
		sqlstate == ERRCODE_QUERY_CANCELED ||
		sqlstate == ERRCODE_TW_PRODUCER_FENCED ||
		sqlstate == ERRCODE_TW_TRANSACTION_TIMED_OUT;
}

/*
 * Runs a statement of a block that has error handlers around it.  An error is
 * undone and handed to its handler; when there is none it goes on outwards.
 */
PsmResult
psm_exec_protected(PsmExec *ex, PsmStmt *stmt)
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
		result = psm_exec_plain(ex, stmt);
	}
	PG_CATCH();
	{
		ex->frames = frames;
		if (!passes_every_handler(geterrcode()) && !failed_in_handler(ex, frames, diagnostics))
		{
			PsmFrame   *found;

			handler = psm_handler_find(ex, geterrcode(), true, &found);
			frame = found;
		}
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
PsmResult
psm_completion(PsmExec *ex, ErrorData *condition)
{
	PsmFrame   *frame;
	PsmHandler *handler = psm_handler_find(ex, condition->sqlerrcode, false, &frame);

	return handle(ex, frame, handler, condition, ex->stmt->pos.line);
}

/* A statement found, changed or fetched no row: 02000, which goes unnoticed without a handler */
PsmResult
psm_not_found(PsmExec *ex)
{
	ErrorData  *condition;
	MemoryContext oldcontext;

	if (ex->frames == NULL || !psm_completion_handled(ex, ERRCODE_NO_DATA))
		return PSM_NEXT;
	oldcontext = MemoryContextSwitchTo(ex->mcxt);
	condition = palloc0(sizeof(ErrorData));
	condition->elevel = WARNING;
	condition->sqlerrcode = ERRCODE_NO_DATA;
	condition->message = pstrdup("no row was found, changed or fetched");
	MemoryContextSwitchTo(oldcontext);
	return psm_completion(ex, condition);
}
