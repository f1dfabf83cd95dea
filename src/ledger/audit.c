/*
 * audit.c
 *		The log of what was done to batches by hand, and what a forgotten one may still do.
 *
 * A forgotten batch may run again, also when its version is below the job's
 * highest: the log holds one entry for each time it was forgotten and one for
 * each such claim since, and while the first are more the claim is let through.
 * A claim that needs no such leave does not use it up by itself, so that claims
 * need not look here; whoever takes the batch out of the ledger again, by pruning
 * or forgetting, does it then.  Entries are only ever added.
 */
#include "tw.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

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
