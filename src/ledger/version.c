/*
 * version.c
 *		The versions of a job's batches: each new one is above all that were committed.
 *
 * It is checked at the claim, and again before the commit, under job.c's lock on
 * versions (open.c).
 */
#include "tw.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

/*
 * The highest version of the job that was committed, or with ours also that this
 * transaction claimed, apart from this batch's; false: none was.
 */
static bool
highest_version(const char *job, const char *batch_id, bool ours, int64 *highest)
{
	Datum		key = CStringGetTextDatum(job);
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_BATCH_VERSION, SnapshotSelf, 1, &key);
	bool		found = false;
	TwRow		row;
	TwJob		job_row;

	while (!found && tw_table_scan_next(scan, BackwardScanDirection, &row))
	{
		if (strcmp(TextDatumGetCString(row.values[TW_BATCH_BATCH_ID]), batch_id) == 0 ||
			(!ours &&
			 TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row.tuple->t_data))))
			continue;
		*highest = DatumGetInt64(row.values[TW_BATCH_VERSION]);
		found = true;
	}
	tw_table_scan_end(scan);

	/* after the ledger, because pruning moves a version from there to the job */
	if (!tw_job_find(job, &job_row))
		elog(ERROR, "job \"%s\" has disappeared", job);
	if (!job_row.has_pruned_version)
		return found;
	*highest = found ? Max(*highest, job_row.pruned_version) : job_row.pruned_version;
	return true;
}

/*
 * A batch that is not in the ledger must have a version above all that were
 * committed, or have been forgotten on purpose and not run again since.  Called
 * when our claim is in: before that, somebody else could still claim, commit and
 * prune the same batch.  True: it was forgotten.
 */
bool
tw_batch_check_version(const TwClaim *claim)
{
	int64		highest;

	if (!highest_version(claim->job, claim->batch_id, true, &highest) || claim->version > highest)
		return false;
	if (!tw_forget_pending(claim->job, claim->batch_id))
		ereport(ERROR,
				(errcode(ERRCODE_TW_OUT_OF_ORDER),
				 errmsg("version %lld of job \"%s\" is out of order",
						(long long) claim->version, claim->job),
				 errdetail("The job is at version %lld, and batch \"%s\" is not in the ledger.",
						   (long long) highest, claim->batch_id),
				 errhint("Versions of a job increase; the batch may have been pruned.")));
	tw_audit_record(TW_ACTION_RUN_AGAIN, claim->job, claim->batch_id, NULL);
	return true;
}

/*
 * At the commit of a claim that was in order: another transaction may have
 * overtaken it.  One that was forgotten on purpose may have been.
 */
void
tw_batch_check_overtaken(const char *job, const char *batch_id, int64 version)
{
	int64		highest;

	if (highest_version(job, batch_id, false, &highest) && version <= highest &&
		!tw_forget_pending(job, batch_id))
		ereport(ERROR,
				(errcode(ERRCODE_TW_OUT_OF_ORDER),
				 errmsg("version %lld of job \"%s\" is out of order", (long long) version, job),
				 errdetail("The job has reached version %lld while batch \"%s\" was running.",
						   (long long) highest, batch_id),
				 errhint("Run the batches of a job that has versions one after another.")));
}
