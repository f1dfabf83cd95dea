/*
 * record.c
 *		The rows that say what is staged: open batches, their targets, their
 *		committed tasks.
 *
 * tw.stage has a row for each open batch, deleted when the batch is published or
 * aborted.  tw.stage_task gets a row when a task commits, in the task's own
 * transaction, with the number of rows that it has staged for each target: the
 * manifest that publish checks.  tw.stage_alive gets one as well, and is
 * unlogged like the staging tables: after a crash a task that has a row in the
 * first and none in the second has lost what it staged, and may run again.
 *
 * Locks: an object lock of our own on the batch, the hash of job and batch_id in
 * class tw.stage.  Exclusive, to the end of the transaction: who opens, takes
 * over, publishes or aborts.  Shared, to the end of the transaction: a task from
 * its tw.commit_task on, so that it is either in the publish or told that it is
 * too late.  Shared, for a moment: who looks.  Tasks that are still loading hold
 * nothing, so a task that hangs stops nobody.
 */
#include "stage/stage.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

static List *strings_of_array(Datum array);
static Datum array_of_strings(const List *strings);
static bool is_alive(int64 number, const char *task, TwRow *row);

/* ---------- the lock ---------- */

bool
stage_lock_if_free(const char *job, const char *batch_id, LOCKMODE mode)
{
	LOCKTAG		tag;

	tw_batch_tag(&tag, TW_TABLE_STAGE, job, batch_id);
	return LockAcquire(&tag, mode, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
stage_lock(const char *job, const char *batch_id, LOCKMODE mode)
{
	LOCKTAG		tag;

	if (stage_lock_if_free(job, batch_id, mode))
		return;
	if (!tw_claim_wait)
		ereport(ERROR,
				(errcode(ERRCODE_TW_JOB_IN_PROGRESS),
				 errmsg("batch \"%s\" of job \"%s\" is in use by another transaction",
						batch_id, job),
				 errhint("Try again later, or set transactional_writer.claim_wait to on.")));
	tw_batch_tag(&tag, TW_TABLE_STAGE, job, batch_id);
	tw_job_wait_for_lock(&tag, mode, "staged batch", job, batch_id);
}

void
stage_unlock(const char *job, const char *batch_id, LOCKMODE mode)
{
	LOCKTAG		tag;

	tw_batch_tag(&tag, TW_TABLE_STAGE, job, batch_id);
	(void) LockRelease(&tag, mode, false);
}

/* ---------- arrays ---------- */

static List *
strings_of_array(Datum array)
{
	List	   *strings = NIL;
	Datum	   *values;
	bool	   *nulls;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT,
					  &values, &nulls, &n);
	for (int i = 0; i < n; i++)
		strings = lappend(strings, TextDatumGetCString(values[i]));
	return strings;
}

static Datum
array_of_strings(const List *strings)
{
	Datum	   *values = palloc(sizeof(Datum) * (list_length(strings) + 1));
	int			n = 0;
	ListCell   *lc;

	foreach(lc, strings)
		values[n++] = CStringGetTextDatum((char *) lfirst(lc));
	return PointerGetDatum(construct_array(values, n, TEXTOID, -1, false, TYPALIGN_INT));
}

/* ---------- batches ---------- */

void
stage_from_row(const TwRow *row, StageBatch *batch)
{
	memset(batch, 0, sizeof(*batch));
	batch->row = *row;
	batch->job = TextDatumGetCString(row->values[TW_STAGE_JOB]);
	batch->batch_id = TextDatumGetCString(row->values[TW_STAGE_BATCH_ID]);
	batch->number = DatumGetInt64(row->values[TW_STAGE_BATCH]);
	batch->has_epoch = !row->nulls[TW_STAGE_EPOCH];
	if (batch->has_epoch)
		batch->epoch = DatumGetInt64(row->values[TW_STAGE_EPOCH]);
	batch->expected_tasks = row->nulls[TW_STAGE_EXPECTED_TASKS] ? -1 :
		DatumGetInt32(row->values[TW_STAGE_EXPECTED_TASKS]);
	batch->logged = DatumGetBool(row->values[TW_STAGE_LOGGED]);
	batch->fingerprint = TextDatumGetCString(row->values[TW_STAGE_FINGERPRINT]);
	batch->opened_at = DatumGetTimestampTz(row->values[TW_STAGE_OPENED_AT]);
	batch->expires_at = DatumGetTimestampTz(row->values[TW_STAGE_EXPIRES_AT]);
	batch->guards = strings_of_array(row->values[TW_STAGE_GUARDS]);
	batch->digests = strings_of_array(row->values[TW_STAGE_DIGESTS]);
}

bool
stage_find(const char *job, const char *batch_id, StageBatch *batch)
{
	Datum		keys[2];
	TwRow		row;

	tw_batch_keys(job, batch_id, keys);
	if (!tw_table_find(TW_INDEX_STAGE, SnapshotSelf, 2, keys, ForwardScanDirection, &row))
		return false;
	stage_from_row(&row, batch);
	return true;
}

void
stage_require(const char *job, const char *batch_id, StageBatch *batch)
{
	Datum		keys[2];
	TwRow		row;

	if (stage_find(job, batch_id, batch))
		return;
	tw_batch_keys(job, batch_id, keys);
	if (tw_table_find(TW_INDEX_BATCH, SnapshotSelf, 2, keys, ForwardScanDirection, &row))
		ereport(ERROR,
				(errcode(ERRCODE_TW_ATTEMPT_SUPERSEDED),
				 errmsg("batch \"%s\" of job \"%s\" is already published", batch_id, job),
				 errdetail("It was published with what its committed tasks had staged.")));
	stage_unknown(job, batch_id);
}

void
stage_unknown(const char *job, const char *batch_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_TW_UNKNOWN_BATCH),
			 errmsg("batch \"%s\" of job \"%s\" is not open", batch_id, job),
			 errdetail("It was never opened, or it was aborted or has expired."),
			 errhint("Open it with tw.open_batch.")));
}

void
stage_insert(const StageBatch *batch)
{
	Datum		values[TW_STAGE_NATTS];
	bool		nulls[TW_STAGE_NATTS] = {false};

	tw_batch_keys(batch->job, batch->batch_id, &values[TW_STAGE_JOB]);
	values[TW_STAGE_BATCH] = Int64GetDatum(batch->number);
	nulls[TW_STAGE_EPOCH] = !batch->has_epoch;
	values[TW_STAGE_EPOCH] = Int64GetDatum(batch->epoch);
	nulls[TW_STAGE_EXPECTED_TASKS] = batch->expected_tasks < 0;
	values[TW_STAGE_EXPECTED_TASKS] = Int32GetDatum(batch->expected_tasks);
	values[TW_STAGE_LOGGED] = BoolGetDatum(batch->logged);
	values[TW_STAGE_FINGERPRINT] = CStringGetTextDatum(batch->fingerprint);
	values[TW_STAGE_OPENED_AT] = TimestampTzGetDatum(batch->opened_at);
	values[TW_STAGE_EXPIRES_AT] = TimestampTzGetDatum(batch->expires_at);
	values[TW_STAGE_GUARDS] = array_of_strings(batch->guards);
	values[TW_STAGE_DIGESTS] = array_of_strings(batch->digests);
	tw_table_insert(TW_TABLE_STAGE, values, nulls);
}

/* The caller holds the lock exclusively, so nobody else changes the row */
void
stage_take_over(StageBatch *batch, int64 epoch, int expected_tasks, TimestampTz expires_at)
{
	if (expected_tasks >= 0)
	{
		batch->expected_tasks = expected_tasks;
		batch->row.nulls[TW_STAGE_EXPECTED_TASKS] = false;
		batch->row.values[TW_STAGE_EXPECTED_TASKS] = Int32GetDatum(expected_tasks);
	}
	batch->has_epoch = true;
	batch->epoch = epoch;
	batch->expires_at = expires_at;
	batch->row.nulls[TW_STAGE_EPOCH] = false;
	batch->row.values[TW_STAGE_EPOCH] = Int64GetDatum(epoch);
	batch->row.values[TW_STAGE_EXPIRES_AT] = TimestampTzGetDatum(expires_at);
	CommandCounterIncrement();
	if (!tw_table_update(TW_TABLE_STAGE, &batch->row.tuple->t_self, batch->row.values,
						 batch->row.nulls))
		elog(ERROR, "row of batch %lld was changed by somebody else", (long long) batch->number);
}

void
stage_check_epoch(const StageBatch *batch, int64 epoch)
{
	TwJob		job;

	if (batch->has_epoch && epoch == batch->epoch)
		return;
	if (batch->has_epoch && epoch < batch->epoch)
		ereport(ERROR,
				(errcode(ERRCODE_TW_PRODUCER_FENCED),
				 errmsg("epoch %lld of job \"%s\" has been replaced by a newer writer",
						(long long) epoch, batch->job),
				 errdetail("Batch \"%s\" was taken over with epoch %lld.", batch->batch_id,
						   (long long) batch->epoch),
				 errhint("This writer must stop.")));
	tw_job_require(batch->job, &job);
	tw_job_check_epoch(batch->job, &job, epoch);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("epoch %lld is not that of batch \"%s\" of job \"%s\"",
					(long long) epoch, batch->batch_id, batch->job),
			 batch->has_epoch ?
			 errdetail("It was opened with epoch %lld.", (long long) batch->epoch) :
			 errdetail("It was opened without an epoch."),
			 errhint("Take it over with tw.open_batch and this epoch first.")));
}

/* ---------- targets ---------- */

void
stage_target_insert(int64 number, const StageTarget *target)
{
	Datum		values[TW_STARGET_NATTS];
	bool		nulls[TW_STARGET_NATTS] = {false};

	values[TW_STARGET_BATCH] = Int64GetDatum(number);
	values[TW_STARGET_NUMBER] = Int32GetDatum(target->number);
	values[TW_STARGET_TARGET] = ObjectIdGetDatum(target->target);
	values[TW_STARGET_STAGING] = ObjectIdGetDatum(target->staging);
	values[TW_STARGET_OPTIONS] = JsonbPGetDatum(target->options);
	tw_table_insert(TW_TABLE_STAGE_TARGET, values, nulls);
}

List *
stage_targets(int64 number)
{
	Datum		key = Int64GetDatum(number);
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_STAGE_TARGET, SnapshotSelf, 1, &key);
	List	   *targets = NIL;
	TwRow		row;

	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		Jsonb	   *options = DatumGetJsonbPCopy(row.values[TW_STARGET_OPTIONS]);
		StageTarget *target = stage_target_parse(options,
												 DatumGetInt32(row.values[TW_STARGET_NUMBER]));

		target->target = DatumGetObjectId(row.values[TW_STARGET_TARGET]);
		target->staging = DatumGetObjectId(row.values[TW_STARGET_STAGING]);
		targets = lappend(targets, target);
	}
	tw_table_scan_end(scan);
	return targets;
}

/* ---------- tasks ---------- */

static void
task_keys(int64 number, const char *task, Datum *keys)
{
	keys[0] = Int64GetDatum(number);
	keys[1] = CStringGetTextDatum(task);
}

static bool
is_alive(int64 number, const char *task, TwRow *row)
{
	Datum		keys[2];

	task_keys(number, task, keys);
	return tw_table_find(TW_INDEX_STAGE_ALIVE, SnapshotSelf, 2, keys, ForwardScanDirection, row);
}

static void
task_from_row(const StageBatch *batch, const TwRow *row, StageTask *task)
{
	ArrayType  *array = DatumGetArrayTypeP(row->values[TW_STASK_ROWS]);
	TwRow		alive;

	task->row = *row;
	task->task = TextDatumGetCString(row->values[TW_STASK_TASK]);
	task->xid = DatumGetFullTransactionId(row->values[TW_STASK_XID]);
	task->nrows = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	task->rows = palloc(sizeof(int64) * (task->nrows + 1));
	memcpy(task->rows, ARR_DATA_PTR(array), sizeof(int64) * task->nrows);
	task->lost = !batch->logged && !is_alive(batch->number, task->task, &alive);
}

bool
stage_task_find(const StageBatch *batch, const char *task, StageTask *result)
{
	SnapshotData dirty;
	Datum		keys[2];
	TwRow		row;

	task_keys(batch->number, task, keys);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		InitDirtySnapshot(dirty);
		if (!tw_table_find(TW_INDEX_STAGE_TASK, &dirty, 2, keys, ForwardScanDirection, &row))
			return false;
		if (dirty.speculativeToken != 0)
			SpeculativeInsertionWait(dirty.xmin, dirty.speculativeToken);
		else if (TransactionIdIsValid(dirty.xmin))
			tw_job_wait_for_task(dirty.xmin, batch->job, batch->batch_id, task);
		else if (TransactionIdIsValid(dirty.xmax))
			tw_job_wait_for_task(dirty.xmax, batch->job, batch->batch_id, task);
		else
			break;
	}
	task_from_row(batch, &row, result);
	return true;
}

bool
stage_task_insert(const StageBatch *batch, const char *task, const int64 *rows, int nrows,
				  Jsonb *message)
{
	Datum		values[TW_STASK_NATTS];
	bool		nulls[TW_STASK_NATTS] = {false};
	Datum	   *counts = palloc(sizeof(Datum) * (nrows + 1));

	for (int i = 0; i < nrows; i++)
		counts[i] = Int64GetDatum(rows[i]);
	task_keys(batch->number, task, &values[TW_STASK_BATCH]);
	values[TW_STASK_XID] = FullTransactionIdGetDatum(GetTopFullTransactionId());
	values[TW_STASK_ROWS] = PointerGetDatum(construct_array(counts, nrows, INT8OID, 8,
															FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[TW_STASK_COMMITTED_AT] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[TW_STASK_ROLE] = ObjectIdGetDatum(GetUserId());
	nulls[TW_STASK_MESSAGE] = message == NULL;
	values[TW_STASK_MESSAGE] = PointerGetDatum(message);
	if (!tw_table_insert_new(TW_TABLE_STAGE_TASK, values, nulls))
		return false;
	if (!batch->logged)
	{
		Datum		alive[TW_ALIVE_NATTS];

		task_keys(batch->number, task, &alive[TW_ALIVE_BATCH]);
		tw_table_insert(TW_TABLE_STAGE_ALIVE, alive, nulls);
	}
	return true;
}

/*
 * That of a task that was lost, which has no row in tw.stage_alive: what is there by now is
 * another attempt's, that was faster
 */
void
stage_task_delete(const StageTask *task)
{
	(void) tw_table_delete(TW_TABLE_STAGE_TASK, &task->row.tuple->t_self, true);
}

/* The rows live as long as the caller's context, and so must not point into the scan's */
static List *
scan_tasks(const StageBatch *batch, int nkeys, const Datum *keys)
{
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_STAGE_TASK, SnapshotSelf, nkeys, keys);
	List	   *tasks = NIL;
	TwRow		row;

	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		StageTask  *task = palloc0(sizeof(StageTask));

		task_from_row(batch, &row, task);
		task->row.tuple = heap_copytuple(row.tuple);
		tasks = lappend(tasks, task);
	}
	tw_table_scan_end(scan);
	return tasks;
}

List *
stage_tasks(const StageBatch *batch)
{
	Datum		key = Int64GetDatum(batch->number);

	return scan_tasks(batch, 1, &key);
}

List *
stage_tasks_named(const StageBatch *batch, const char *task)
{
	Datum		keys[2];

	task_keys(batch->number, task, keys);
	return scan_tasks(batch, 2, keys);
}

void
stage_forget(const StageBatch *batch)
{
	Datum		key = Int64GetDatum(batch->number);
	static const struct
	{
		TwIndex		index;
		TwTable		table;
	}			parts[] = {
		{TW_INDEX_STAGE_TARGET, TW_TABLE_STAGE_TARGET},
		{TW_INDEX_STAGE_TASK, TW_TABLE_STAGE_TASK},
		{TW_INDEX_STAGE_ALIVE, TW_TABLE_STAGE_ALIVE},
	};

	/* some of them may be of this very command */
	CommandCounterIncrement();
	for (int i = 0; i < lengthof(parts); i++)
	{
		TwScan	   *scan = tw_table_scan_begin(parts[i].index, SnapshotSelf, 1, &key);
		TwRow		row;

		while (tw_table_scan_next(scan, ForwardScanDirection, &row))
			(void) tw_table_delete(parts[i].table, &row.tuple->t_self, true);
		tw_table_scan_end(scan);
	}
	if (!tw_table_delete(TW_TABLE_STAGE, &batch->row.tuple->t_self, true))
		elog(ERROR, "row of batch %lld was changed by somebody else", (long long) batch->number);
}
