/*
 * expire.c
 *		The end of a batch that is not published: tw.abort_batch, and
 *		tw.expire_batches for those past their time.
 *
 * What was staged is gone with it; who ended it, when and why is in tw.audit_log.
 *
 * Locks: the batch's, exclusive.  tw.expire_batches passes over a batch that is
 * in use, such as one that is being published.
 */
#include "stage/stage.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(tw_abort_batch);
PG_FUNCTION_INFO_V1(tw_expire_batches);

void
stage_abort(const StageBatch *batch, const char *action, const char *reason)
{
	tw_audit_record(action, batch->job, batch->batch_id, reason);
	stage_forget(batch);
	stage_schema_drop(batch->number);
}

/* tw.abort_batch(job, batch_id, epoch, reason) RETURNS void */
Datum
tw_abort_batch(PG_FUNCTION_ARGS)
{
	char	   *job;
	char	   *batch_id;
	char	   *reason = tw_argument_text_or_null(fcinfo, 3);
	StageBatch	batch;
	TwJob		job_row;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job and batch_id must not be null")));
	job = text_to_cstring(PG_GETARG_TEXT_PP(0));
	batch_id = text_to_cstring(PG_GETARG_TEXT_PP(1));
	tw_batch_check_writable("tw.abort_batch()");
	(void) tw_batch_requested(job, batch_id);
	tw_job_require(job, &job_row);

	stage_lock(job, batch_id, ExclusiveLock);
	stage_require(job, batch_id, &batch);
	if (!PG_ARGISNULL(2))
		stage_check_epoch(&batch, PG_GETARG_INT64(2));
	stage_abort(&batch, TW_ACTION_ABORT_BATCH, reason);
	PG_RETURN_VOID();
}

/* tw.expire_batches() RETURNS bigint: the number of batches aborted */
Datum
tw_expire_batches(PG_FUNCTION_ARGS)
{
	TimestampTz now = GetCurrentTimestamp();
	TwScan	   *scan;
	TwRow		row;
	List	   *expired = NIL;
	ListCell   *lc;
	int64		count = 0;

	tw_batch_check_writable("tw.expire_batches()");
	scan = tw_table_scan_begin(TW_INDEX_STAGE, SnapshotSelf, 0, NULL);
	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		if (DatumGetTimestampTz(row.values[TW_STAGE_EXPIRES_AT]) <= now)
		{
			StageBatch *batch = palloc(sizeof(StageBatch));

			stage_from_row(&row, batch);
			expired = lappend(expired, batch);
		}
	}
	tw_table_scan_end(scan);

	foreach(lc, expired)
	{
		StageBatch *seen = (StageBatch *) lfirst(lc);
		StageBatch	batch;
		TwJob		job;

		CHECK_FOR_INTERRUPTS();
		if (!tw_job_find(seen->job, &job) || !has_privs_of_role(GetUserId(), job.owner) ||
			!stage_lock_if_free(seen->job, seen->batch_id, ExclusiveLock))
			continue;
		/* it may have been published, or given more time, since we saw it */
		if (!stage_find(seen->job, seen->batch_id, &batch) || batch.expires_at > now)
			continue;
		stage_abort(&batch, TW_ACTION_EXPIRE, "The batch was open longer than its timeout.");
		count++;
	}
	(void) stage_sweep();
	PG_RETURN_INT64(count);
}
