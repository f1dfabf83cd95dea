/*
 * handle.c
 *		Handlers: undoing what failed, running the one that condition.c has chosen.
 *
 * A statement that fails under error handlers is undone alone: what earlier
 * statements of the block did stays.  So such statements run in a
 * subtransaction.  One is not begun for each: the open one is used on as long
 * as nothing in it has to be kept, which is known by its having no transaction
 * id and having called no volatile function (that may have taken a lock, changed
 * a setting or sent a notification), and is begun anew only behind another.  Its
 * nest level is the same for all statements of an execution's outermost
 * protected block, so that catching an error at any depth means: roll back
 * down to that level.
 *
 * An atomic block inside fails as a whole: it has a savepoint of its own, and
 * handlers further out see it as one failed statement.
 *
 * Errors of class 40, cancels (57014) and TW001, TW004 pass through every
 * handler: only the caller can do something about them.
 */
#include "psm/psm.h"

#include "access/xact.h"
#include "utils/memutils.h"

/* ---------- savepoints ---------- */

void
psm_savepoint_begin(PsmExec *ex, PsmSavepoint *savepoint)
{
	savepoint->oldcontext = CurrentMemoryContext;
	savepoint->oldowner = CurrentResourceOwner;
	savepoint->oldecontext = ex->econtext;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(savepoint->oldcontext);
	savepoint->level = GetCurrentTransactionNestLevel();
	savepoint->open = true;
	savepoint->used = false;

	/* what is evaluated in here must be forgotten with it */
	ex->econtext = NULL;
}

static void
savepoint_closed(PsmExec *ex, PsmSavepoint *savepoint)
{
	MemoryContextSwitchTo(savepoint->oldcontext);
	CurrentResourceOwner = savepoint->oldowner;
	ex->econtext = savepoint->oldecontext;
	savepoint->open = false;
	savepoint->used = false;
}

void
psm_savepoint_release(PsmExec *ex, PsmSavepoint *savepoint)
{
	if (!savepoint->open)
		return;
	Assert(GetCurrentTransactionNestLevel() == savepoint->level);
	ReleaseCurrentSubTransaction();
	savepoint_closed(ex, savepoint);
}

/* Undoes everything since the savepoint, with all subtransactions left open inside */
void
psm_savepoint_rollback(PsmExec *ex, PsmSavepoint *savepoint)
{
	if (!savepoint->open)
		return;
	while (GetCurrentTransactionNestLevel() >= savepoint->level)
		RollbackAndReleaseCurrentSubTransaction();
	savepoint_closed(ex, savepoint);
}

/* Makes the savepoint of a protected statement ready: open, and with nothing in it to keep */
void
psm_savepoint_renew(PsmExec *ex)
{
	PsmSavepoint *savepoint = &ex->savepoint;

	if (savepoint->open && (savepoint->used ||
							TransactionIdIsValid(GetCurrentTransactionIdIfAny())))
		psm_savepoint_release(ex, savepoint);
	if (!savepoint->open)
		psm_savepoint_begin(ex, savepoint);
}

/* ---------- running ---------- */

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
