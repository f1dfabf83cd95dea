/*
 * prune.c
 *		Deleting what is older than a job's memory has to be.
 *
 * A batch that was pruned counts as new, unless it was claimed with a version:
 * the highest version that was pruned stays in the job's row.
 *
 * One call deletes at most PRUNE_CHUNK batches, the oldest first, and as many
 * failures, in the caller's transaction; the caller commits and calls again
 * until it gets 0.  Rows that somebody else is deleting are passed over.
 *
 * Locks: none that a claim waits for (see forget.c).  The job's row is updated
 * when a version was pruned, which tw.init_producer may wait for.
 */
#include "tw.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define PRUNE_CHUNK 10000

static TimestampTz cutoff(const TwJob *job, const Interval *older_than);
static bool prune_batch(const TwRow *batch);
static void remember_version(TwJob *pruned, int64 version);
static int64 prune_batches(const char *job, TimestampTz before, TwJob *pruned);
static void prune_failures(const char *job, TimestampTz before);
static int64 prune_stray_failures(TimestampTz before);
static void keep_version(const char *job, const TwJob *pruned);

/* Nothing that began at or after this may go; job NULL: there is no retention */
static TimestampTz
cutoff(const TwJob *job, const Interval *older_than)
{
	if (older_than == NULL && job != NULL)
		older_than = job->retention;
	if (older_than == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 job == NULL ? errmsg("older_than must not be null without a job") :
				 errmsg("older_than must not be null for a job without retention")));
	tw_job_check_interval("older_than", older_than);
	return tw_job_time_before(older_than);
}

/* Deletes a batch and its outcome; false: it is not committed, or somebody else is at it */
static bool
prune_batch(const TwRow *batch)
{
	TwRow		row;

	if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(batch->tuple->t_data)) ||
		!tw_table_delete(TW_TABLE_BATCH, &batch->tuple->t_self, false))
		return false;
	if (tw_batch_find_outcome(batch, &row))
		(void) tw_table_delete(TW_TABLE_BATCH_OUTCOME, &row.tuple->t_self, false);
	tw_prepared_forget(batch, false);
	return true;
}

static void
remember_version(TwJob *pruned, int64 version)
{
	pruned->pruned_version = pruned->has_pruned_version ?
		Max(pruned->pruned_version, version) : version;
	pruned->has_pruned_version = true;
}

/* Deletes a chunk of old batches; pruned gets the highest version among them */
static int64
prune_batches(const char *job, TimestampTz before, TwJob *pruned)
{
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext, "pruned batch",
													  ALLOCSET_DEFAULT_SIZES);
	Datum		key = CStringGetTextDatum(job);
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_BATCH_STARTED, SnapshotSelf, 1, &key);
	bool		forgotten = tw_forget_any(job);
	int64		count = 0;
	TwRow		row;

	while (count < PRUNE_CHUNK && tw_table_scan_next(scan, ForwardScanDirection, &row) &&
		   DatumGetTimestampTz(row.values[TW_BATCH_STARTED_AT]) < before)
	{
		MemoryContext old = MemoryContextSwitchTo(row_context);
		bool		gone = prune_batch(&row);

		if (gone && forgotten)
			tw_forget_settle(job, TextDatumGetCString(row.values[TW_BATCH_BATCH_ID]));

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(old);
		MemoryContextReset(row_context);
		if (!gone)
			continue;
		count++;
		if (!row.nulls[TW_BATCH_VERSION])
			remember_version(pruned, DatumGetInt64(row.values[TW_BATCH_VERSION]));
	}
	tw_table_scan_end(scan);
	MemoryContextDelete(row_context);
	return count;
}

static void
prune_failures(const char *job, TimestampTz before)
{
	Datum		key = CStringGetTextDatum(job);
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_FAILURE, SnapshotSelf, 1, &key);
	int			count = 0;
	TwRow		row;

	while (count < PRUNE_CHUNK && tw_table_scan_next(scan, ForwardScanDirection, &row) &&
		   DatumGetTimestampTz(row.values[TW_FAILURE_AT]) < before)
	{
		CHECK_FOR_INTERRUPTS();
		if (!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row.tuple->t_data)) &&
			tw_table_delete(TW_TABLE_FAILURE, &row.tuple->t_self, false))
			count++;
	}
	tw_table_scan_end(scan);
}

/*
 * The same for failures of no job, or of one that was never committed: those of
 * roles that the current user may act for.
 */
static int64
prune_stray_failures(TimestampTz before)
{
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_FAILURE, SnapshotSelf, 0, NULL);
	int64		count = 0;
	TwRow		row;
	TwJob		job;

	while (count < PRUNE_CHUNK && tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		CHECK_FOR_INTERRUPTS();
		if (DatumGetTimestampTz(row.values[TW_FAILURE_AT]) >= before ||
			!has_privs_of_role(GetUserId(), DatumGetObjectId(row.values[TW_FAILURE_ROLE])) ||
			(!row.nulls[TW_FAILURE_JOB] &&
			 tw_job_find(TextDatumGetCString(row.values[TW_FAILURE_JOB]), &job)))
			continue;
		if (tw_table_delete(TW_TABLE_FAILURE, &row.tuple->t_self, false))
			count++;
	}
	tw_table_scan_end(scan);
	return count;
}

/* The highest version that was pruned outlives its row */
static void
keep_version(const char *job, const TwJob *pruned)
{
	TwJob		row;

	if (!pruned->has_pruned_version)
		return;
	do
	{
		CHECK_FOR_INTERRUPTS();
		tw_job_require(job, &row);
		if (row.has_pruned_version && row.pruned_version >= pruned->pruned_version)
			return;
		row.has_pruned_version = true;
		row.pruned_version = pruned->pruned_version;
	} while (!tw_job_update(&row));
}

/* tw.prune_ledger(job, older_than) */
PG_FUNCTION_INFO_V1(tw_prune_ledger);
Datum
tw_prune_ledger(PG_FUNCTION_ARGS)
{
	Interval   *older_than = PG_ARGISNULL(1) ? NULL : PG_GETARG_INTERVAL_P(1);
	TwJob		pruned = {0};
	TwJob		row;
	char	   *job;
	TimestampTz before;
	int64		count;

	tw_batch_check_writable("tw.prune_ledger()");
	if (PG_ARGISNULL(0))
		PG_RETURN_INT64(prune_stray_failures(cutoff(NULL, older_than)));

	job = text_to_cstring(PG_GETARG_TEXT_PP(0));
	tw_job_require(job, &row);
	before = cutoff(&row, older_than);
	count = prune_batches(job, before, &pruned);
	prune_failures(job, before);
	keep_version(job, &pruned);
	PG_RETURN_INT64(count);
}
