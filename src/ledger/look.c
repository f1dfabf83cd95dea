/*
 * look.c
 *		Is a batch in the ledger, and what did it do?
 *
 * The key is looked up with a dirty snapshot, which shows what others have not
 * committed: then we wait for them to end, outside any buffer lock, and the caller looks
 * again.
 *
 * Locks: the xid of the other transaction is what is waited for.  Of those that
 * delete a row, forget.c's are waited for, prune.c's are not: until a pruned row is gone,
 * its batch counts as committed.  forget.c's are told by the object lock that they hold.
 */
#include "tw.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

/* True: who is deleting the batch's row was tw.forget_batch, and has ended */
static bool
forget_wait(TransactionId xid, const char *job, const char *batch_id)
{
	LOCKTAG		tag;

	tw_batch_tag(&tag, TW_TABLE_BATCH, job, batch_id);
	if (LockAcquire(&tag, ShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL)
	{
		(void) LockRelease(&tag, ShareLock, false);
		return !TransactionIdIsInProgress(xid);
	}
	tw_job_wait(xid, job, batch_id);
	return true;
}

/* Is the batch in the ledger?  Waits for a transaction that is about to decide that. */
TwSight
tw_batch_look(const char *job, const char *batch_id, TwRow *row)
{
	SnapshotData dirty;
	Datum		keys[2];

	tw_batch_keys(job, batch_id, keys);
	InitDirtySnapshot(dirty);
	if (!tw_table_find(TW_INDEX_BATCH, &dirty, 2, keys, ForwardScanDirection, row))
		return TW_NOT_THERE;

	if (dirty.speculativeToken != 0)
		SpeculativeInsertionWait(dirty.xmin, dirty.speculativeToken);
	else if (TransactionIdIsValid(dirty.xmin))
		tw_job_wait(dirty.xmin, job, batch_id);
	else if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row->tuple->t_data)))
		return TW_OURS;
	else if (TransactionIdIsValid(dirty.xmax) &&
			 forget_wait(dirty.xmax, job, batch_id))
		return TW_LOOK_AGAIN;
	else
		return TW_IN_LEDGER;

	return TW_LOOK_AGAIN;
}

/* What a batch did; false: it was never finished by its caller */
bool
tw_batch_find_outcome(const TwRow *batch, TwRow *outcome)
{
	Datum		keys[3];

	keys[0] = batch->values[TW_BATCH_XID];
	keys[1] = batch->values[TW_BATCH_JOB];
	keys[2] = batch->values[TW_BATCH_BATCH_ID];
	return tw_table_find(TW_INDEX_BATCH_OUTCOME, SnapshotSelf, 3, keys, ForwardScanDirection,
						 outcome);
}
