/*
 * change.c
 *		What other transactions have done to one version of a row.
 *
 * A change counts when its transaction is not ours, was not finished when the
 * snapshot was taken, and is in progress (prepared transactions are) or has
 * committed.  In progress counts because it may commit right after we looked: whoever
 * comes second sees the first, so two cannot miss each other (see validate.c).
 *
 * An xid is first looked for among the running ones and then in the commit log:
 * the other way round a commit between the two would be taken for an abort.
 * The transactions of our own rolled back savepoints are neither running nor committed.
 */
#include "conflict/conflict.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

/* Has another transaction done this?  Without a snapshot: at any time. */
static bool
counts(TransactionId xid, Snapshot snapshot, TwChange *change)
{
	if (!TransactionIdIsNormal(xid))
		return false;
	if (snapshot != NULL && !XidInMVCCSnapshot(xid, snapshot))
		return false;
	if (TransactionIdIsCurrentTransactionId(xid))
		return false;
	change->xid = xid;
	change->in_progress = TransactionIdIsInProgress(xid);
#ifdef TW_BROKEN_VALIDATOR
	/* for tests only: the history checker must find what this misses */
	if (change->in_progress)
		return false;
#endif
	return change->in_progress || TransactionIdDidCommit(xid);
}

/* Who has deleted or updated this version, without looking whether that succeeded */
static TransactionId
remover(HeapTupleHeader tuple)
{
	if ((tuple->t_infomask & HEAP_XMAX_INVALID) || HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask))
		return InvalidTransactionId;
	return HeapTupleHeaderGetUpdateXid(tuple);
}

static TwChangeKind
kind_of_removal(HeapTupleHeader tuple, ItemPointer tid)
{
	if (HeapTupleHeaderIndicatesMovedPartitions(tuple))
		return TW_MOVED;
	return ItemPointerEquals(&tuple->t_ctid, tid) ? TW_DELETED : TW_UPDATED;
}

bool
tw_change_possible(HeapTupleHeader tuple, TransactionId xmin)
{
	TransactionId xid;

	if (HeapTupleHeaderXminInvalid(tuple))
		return false;
	if (!HeapTupleHeaderXminFrozen(tuple))
	{
		xid = HeapTupleHeaderGetRawXmin(tuple);
		if (TransactionIdIsNormal(xid) && TransactionIdFollowsOrEquals(xid, xmin))
			return true;
	}
	if ((tuple->t_infomask & HEAP_XMAX_INVALID) || HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask))
		return false;
	if (tuple->t_infomask & HEAP_XMAX_IS_MULTI)
		return true;
	xid = HeapTupleHeaderGetRawXmax(tuple);
	return TransactionIdIsNormal(xid) && TransactionIdFollowsOrEquals(xid, xmin);
}

bool
tw_change_since(HeapTupleHeader tuple, ItemPointer tid, Snapshot snapshot, TwCounts which,
				TwChange *change)
{
	TransactionId xid;

	/* an insertion that was rolled back */
	if (HeapTupleHeaderXminInvalid(tuple))
		return false;

	if (which == TW_ALL_CHANGES && !HeapTupleHeaderXminFrozen(tuple) &&
		counts(HeapTupleHeaderGetRawXmin(tuple), snapshot, change))
	{
		change->kind = (tuple->t_infomask & HEAP_UPDATED) ? TW_UPDATED_INTO : TW_INSERTED;
		return true;
	}
	if (which == TW_KEY_REMOVALS && !(tuple->t_infomask2 & HEAP_KEYS_UPDATED))
		return false;
	xid = remover(tuple);
	if (TransactionIdIsValid(xid) && counts(xid, snapshot, change))
	{
		change->kind = kind_of_removal(tuple, tid);
		return true;
	}
	return false;
}

bool
tw_change_of_row(HeapTupleHeader tuple, ItemPointer tid, TwChange *change)
{
	TransactionId xid = remover(tuple);

	if (!TransactionIdIsValid(xid) || !counts(xid, NULL, change))
		return false;
	change->kind = kind_of_removal(tuple, tid);
	return true;
}
