/*
 * savepoint.c
 *		The subtransactions that the interpreter begins and ends by itself.
 *
 * A statement that fails under error handlers is undone alone: what earlier
 * statements of the block did stays.  So such statements run in a
 * subtransaction.  One is not begun for each: the open one is used on as long
 * as nothing in it has to be kept, which is known by its having no transaction
 * id, and having run nothing that changes rows (those of another server need no
 * transaction id here) or calls a volatile function (that may have taken a lock, changed
 * a setting or sent a notification), and is begun anew only behind another.  Such
 * a one stays open behind the block, too: a loop may come by again.  Its
 * nest level is the same for all statements of an execution's outermost
 * protected block, so that catching an error at any depth means: roll back
 * down to that level.
 *
 * An atomic block inside fails as a whole: it has a savepoint of its own, and
 * handlers further out see it as one failed statement.
 */
#include "psm/psm.h"

#include "access/xact.h"

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
	savepoint->left = false;

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
	savepoint->left = false;
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

static bool
savepoint_empty(const PsmSavepoint *savepoint)
{
	return !savepoint->used && !TransactionIdIsValid(GetCurrentTransactionIdIfAny());
}

/* Makes the savepoint of a protected statement ready: open, and with nothing in it to keep */
void
psm_savepoint_renew(PsmExec *ex)
{
	PsmSavepoint *savepoint = &ex->savepoint;

	if (savepoint->open && !savepoint_empty(savepoint))
		psm_savepoint_release(ex, savepoint);
	if (!savepoint->open)
		psm_savepoint_begin(ex, savepoint);
	savepoint->left = false;
}

/*
 * The outermost protected block is over.  What runs without protection before the next one can
 * be in the savepoint as well as behind it: when it fails, the execution does.  Whatever it is but
 * an expression without a query, note_effects() has the savepoint released before the next block.
 */
void
psm_savepoint_leave(PsmExec *ex)
{
	PsmSavepoint *savepoint = &ex->savepoint;

	if (!savepoint->open)
		return;
	if (savepoint_empty(savepoint))
		savepoint->left = true;
	else
		psm_savepoint_release(ex, savepoint);
}
