/*
 * forget.c
 *		Taking a batch out of the ledger on purpose, and the log of who did.
 *
 * A forgotten batch may run again, also when its version is below the job's
 * highest: the log holds one entry for each time it was forgotten and one for
 * each such claim since, and while the first are more the claim is let through.
 * A claim that needs no such leave does not use it up by itself, so that claims
 * need not look here; whoever takes the batch out of the ledger again, by pruning
 * or forgetting, does it then.  Entries are only ever added.
 *
 * Locks: tw.forget_batch holds an object lock of its own on the batch, hashed in
 * class tw.batch, to the end of its transaction.  By it a claim tells a row that
 * is being forgotten, which it waits for, from one that is being pruned, which
 * it does not: until a pruned row is gone, its batch counts as committed.
 */
#include "tw.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

static void lock_batch(const char *job, const char *batch_id);
static void find_for_delete(const char *job, const char *batch_id, TwRow *row);

/* ---------- the lock ---------- */

static void
lock_batch(const char *job, const char *batch_id)
{
	LOCKTAG		tag;

	tw_batch_tag(&tag, TW_TABLE_BATCH, job, batch_id);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

bool
tw_forget_wait(TransactionId xid, const char *job, const char *batch_id)
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

/* ---------- the log ---------- */

void
tw_audit_record(const char *action, const char *job, const char *batch_id, const char *reason)
{
	Datum		values[TW_AUDIT_NATTS] = {0};
	bool		nulls[TW_AUDIT_NATTS] = {false};

	values[TW_AUDIT_AT] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[TW_AUDIT_ROLE] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	values[TW_AUDIT_ACTION] = CStringGetTextDatum(action);
	values[TW_AUDIT_JOB] = CStringGetTextDatum(job);
	nulls[TW_AUDIT_BATCH_ID] = batch_id == NULL;
	if (batch_id != NULL)
		values[TW_AUDIT_BATCH_ID] = CStringGetTextDatum(batch_id);
	nulls[TW_AUDIT_REASON] = reason == NULL;
	if (reason != NULL)
		values[TW_AUDIT_REASON] = CStringGetTextDatum(reason);
	tw_table_insert(TW_TABLE_AUDIT, values, nulls);
}

bool
tw_forget_pending(const char *job, const char *batch_id)
{
	Datum		keys[2];
	TwScan	   *scan;
	TwRow		row;
	int			forgotten = 0;
	int			run_again = 0;

	tw_batch_keys(job, batch_id, keys);
	scan = tw_table_scan_begin(TW_INDEX_AUDIT, SnapshotSelf, 2, keys);
	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		char	   *action = TextDatumGetCString(row.values[TW_AUDIT_ACTION]);

		forgotten += strcmp(action, TW_ACTION_FORGET) == 0;
		run_again += strcmp(action, TW_ACTION_RUN_AGAIN) == 0;
	}
	tw_table_scan_end(scan);
	return forgotten > run_again;
}

bool
tw_forget_any(const char *job)
{
	Datum		key = CStringGetTextDatum(job);
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_AUDIT, SnapshotSelf, 1, &key);
	bool		found = false;
	TwRow		row;

	while (!found && tw_table_scan_next(scan, ForwardScanDirection, &row))
		found = strcmp(TextDatumGetCString(row.values[TW_AUDIT_ACTION]), TW_ACTION_FORGET) == 0;
	tw_table_scan_end(scan);
	return found;
}

void
tw_forget_settle(const char *job, const char *batch_id)
{
	if (tw_forget_pending(job, batch_id))
		tw_audit_record(TW_ACTION_RUN_AGAIN, job, batch_id, NULL);
}

/* ---------- SQL ---------- */

/* The batch's row in the ledger, to be deleted; TW010 when there is none */
static void
find_for_delete(const char *job, const char *batch_id, TwRow *row)
{
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		switch (tw_batch_look(job, batch_id, row))
		{
			case TW_LOOK_AGAIN:
				break;
			case TW_IN_LEDGER:
				return;
			case TW_OURS:
				ereport(ERROR,
						(errcode(ERRCODE_OBJECT_IN_USE),
						 errmsg("cannot forget batch \"%s\" of job \"%s\" because this transaction has claimed it",
								batch_id, job)));
				break;
			case TW_NOT_THERE:
				ereport(ERROR,
						(errcode(ERRCODE_TW_UNKNOWN_BATCH),
						 errmsg("batch \"%s\" of job \"%s\" is not in the ledger",
								batch_id, job)));
				break;
		}
	}
}

/* tw.forget_batch(job, batch_id, reason) */
PG_FUNCTION_INFO_V1(tw_forget_batch);
Datum
tw_forget_batch(PG_FUNCTION_ARGS)
{
	char	   *job = tw_argument_words(fcinfo, 0, "job");
	char	   *batch_id = tw_argument_words(fcinfo, 1, "batch_id");
	char	   *reason = tw_argument_words(fcinfo, 2, "reason");
	TwJob		job_row;
	TwRow		batch;
	TwRow		outcome;

	tw_batch_check_writable("tw.forget_batch()");
	(void) tw_batch_requested(job, batch_id);
	tw_job_require(job, &job_row);

	lock_batch(job, batch_id);
	do
	{
		find_for_delete(job, batch_id, &batch);
		/* false: pruned meanwhile */
	} while (!tw_table_delete(TW_TABLE_BATCH, &batch.tuple->t_self, true));

	if (tw_batch_find_outcome(&batch, &outcome))
		(void) tw_table_delete(TW_TABLE_BATCH_OUTCOME, &outcome.tuple->t_self, true);
	tw_forget_settle(job, batch_id);
	tw_prepared_forget(&batch, true);
	tw_audit_record(TW_ACTION_FORGET, job, batch_id, reason);
	PG_RETURN_VOID();
}
