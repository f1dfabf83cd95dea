/*
 * quiet.c
 *		Pages that cannot have changed, by their LSN.
 *
 * A transaction that began after some moment writes WAL beyond the end that WAL had then.
 * So a page whose LSN lies before that end holds no change of such a transaction, and need
 * not be looked at row by row.  A session notes such moments, the next xid and the end of
 * WAL, when it begins to track; the last checkpoint is one as well.  For a snapshot the
 * latest moment counts whose next xid is not newer than the snapshot's oldest running
 * transaction.
 *
 * Holds for relations that are WAL-logged, which those are that others can write and that
 * outlive a crash.
 */
#include "conflict/conflict.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#define MOMENTS 16
#define MOMENT_EVERY_MS 50

/* Transactions from next on write WAL beyond lsn */
typedef struct Moment
{
	uint64		next;			/* full transaction id */
	XLogRecPtr	lsn;
} Moment;

static Moment moments[MOMENTS];	/* a ring, oldest overwritten */
static int64 nmoments = 0;		/* ever noted */
static TimestampTz noted_at = 0;

static void
note_moment(uint64 next, XLogRecPtr lsn)
{
	moments[nmoments % MOMENTS].next = next;
	moments[nmoments % MOMENTS].lsn = lsn;
	nmoments++;
}

static void
note_checkpoint(void)
{
	ControlFileData *control;
	bool		intact;

	LWLockAcquire(ControlFileLock, LW_SHARED);
	control = get_controlfile(DataDir, &intact);
	LWLockRelease(ControlFileLock);
	if (intact)
		note_moment(U64FromFullTransactionId(control->checkPointCopy.nextXid),
					control->checkPointCopy.redo);
	pfree(control);
}

void
tw_quiet_note(void)
{
	TimestampTz now = GetCurrentTransactionStartTimestamp();
	XLogRecPtr	lsn;

	if (nmoments == 0)
		note_checkpoint();
	if (!TimestampDifferenceExceeds(noted_at, now, MOMENT_EVERY_MS))
		return;
	noted_at = now;
	/* in this order: whoever gets that xid starts after the first look */
	lsn = GetXLogInsertRecPtr();
	note_moment(U64FromFullTransactionId(ReadNextFullTransactionId()), lsn);
}

/* No page up to this LSN has been changed by a transaction from xmin on */
XLogRecPtr
tw_quiet_lsn(TransactionId xmin)
{
	FullTransactionId now = ReadNextFullTransactionId();
	uint64		oldest;

	/* xmin as a full transaction id: it is less than 2^31 behind */
	oldest = U64FromFullTransactionId(now) - (uint32) (XidFromFullTransactionId(now) - xmin);
	for (int64 i = nmoments - 1; i >= 0 && i >= nmoments - MOMENTS; i--)
	{
		if (moments[i % MOMENTS].next <= oldest)
			return moments[i % MOMENTS].lsn;
	}
	return InvalidXLogRecPtr;
}
