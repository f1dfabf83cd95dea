/*
 * open.c
 *		tw.open_batch: makes a staged batch, or takes over an open one.
 *
 * Whatever publish will need is tried here: the targets are looked at, the
 * statements planned, the guards run.  Nothing of it locks a target beyond this
 * transaction.
 *
 * A batch that is open belongs to the epoch it was opened with.  A newer epoch
 * takes it over with its committed tasks; the fingerprint, a digest of what
 * targets and guards ask for, must be the same.
 */
#include "stage/stage.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(tw_open_batch);

/* Columns of tw.staged_batch, from 0, as the install script has them */
enum
{
	OPENED_STATUS, OPENED_JOB, OPENED_BATCH_ID, OPENED_EPOCH, OPENED_SCHEMA, OPENED_TASKS,
	OPENED_EXPECTED_TASKS, OPENED_EXPIRES_AT, OPENED_NATTS
};

/* What tw.open_batch was called with */
typedef struct Request
{
	char	   *job;
	char	   *batch_id;
	Jsonb	   *targets;
	int			expected_tasks; /* -1: not said */
	bool		has_epoch;
	int64		epoch;
	TimestampTz expires_at;
	bool		logged;
	List	   *guards;
	char	   *fingerprint;
} Request;

/* ---------- the arguments ---------- */

static List *
guards_of(ArrayType *array)
{
	List	   *guards = NIL;
	Datum	   *values;
	bool	   *nulls;
	int			n;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("guard %d must not be null", i + 1)));
		guards = lappend(guards, TextDatumGetCString(values[i]));
	}
	return guards;
}

static TimestampTz
expiry(const Interval *timeout)
{
	TimestampTz now = GetCurrentTimestamp();

	if (timeout == NULL)
		return TimestampTzPlusMilliseconds(now, (int64) tw_batch_timeout * 1000);
	tw_job_check_interval("timeout", timeout);
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(now),
												   IntervalPGetDatum(timeout)));
}

/* Of the targets and guards as given */
static char *
fingerprint_of(const Request *request)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, request->guards)
		appendStringInfo(&buf, "%zu:%s,", strlen((char *) lfirst(lc)), (char *) lfirst(lc));
	return tw_history_fingerprint(buf.data, request->targets);
}

static Request *
read_request(FunctionCallInfo fcinfo)
{
	Request    *request = palloc0(sizeof(Request));

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2) || PG_ARGISNULL(6) || PG_ARGISNULL(7))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be null",
						PG_ARGISNULL(0) ? "job" : PG_ARGISNULL(1) ? "batch_id" :
						PG_ARGISNULL(2) ? "targets" : PG_ARGISNULL(6) ? "logged" : "guards")));
	request->job = text_to_cstring(PG_GETARG_TEXT_PP(0));
	request->batch_id = text_to_cstring(PG_GETARG_TEXT_PP(1));
	(void) tw_batch_requested(request->job, request->batch_id);
	request->targets = PG_GETARG_JSONB_P(2);
	if (!JB_ROOT_IS_ARRAY(request->targets) || JB_ROOT_IS_SCALAR(request->targets) ||
		JB_ROOT_COUNT(request->targets) < 1 || JB_ROOT_COUNT(request->targets) > TW_MAX_TARGETS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("targets must be a JSON array of 1 to %d objects", TW_MAX_TARGETS),
				 errhint("Write them as [{\"table\": \"schema.name\", \"mode\": \"append\"}, ...].")));
	request->expected_tasks = PG_ARGISNULL(3) ? -1 : PG_GETARG_INT32(3);
	if (!PG_ARGISNULL(3) && request->expected_tasks < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("expected_tasks must not be negative")));
	request->has_epoch = !PG_ARGISNULL(4);
	request->epoch = request->has_epoch ? PG_GETARG_INT64(4) : 0;
	request->expires_at = expiry(PG_ARGISNULL(5) ? NULL : PG_GETARG_INTERVAL_P(5));
	request->logged = PG_GETARG_BOOL(6);
	request->guards = guards_of(PG_GETARG_ARRAYTYPE_P(7));
	request->fingerprint = fingerprint_of(request);
	return request;
}

/* ---------- what is there already ---------- */

static void
mismatch(const Request *request, const char *state)
{
	ereport(ERROR,
			(errcode(ERRCODE_TW_IDEMPOTENCY_KEY_MISMATCH),
			 errmsg("batch \"%s\" of job \"%s\" was %s for something else",
					request->batch_id, request->job, state),
			 errdetail("Its targets or guards were others."),
			 errhint("Use another batch_id for other work.")));
}

/* Is the batch published?  Waits for who is about to decide that. */
static bool
is_published(const Request *request)
{
	TwRow		row;

	for (;;)
	{
		TwOpenBatch *ours;

		CHECK_FOR_INTERRUPTS();
		switch (tw_batch_look(request->job, request->batch_id, &row))
		{
			case TW_LOOK_AGAIN:
				break;
			case TW_NOT_THERE:
				return false;
			case TW_OURS:
				/* published a moment ago, or claimed for something else */
				ours = tw_open_find(request->job, request->batch_id);
				if (ours != NULL && ours->by_caller)
					ereport(ERROR,
							(errcode(ERRCODE_TW_JOB_IN_PROGRESS),
							 errmsg("batch \"%s\" of job \"%s\" is already claimed in this transaction",
									request->batch_id, request->job),
							 errhint("A staged batch is claimed by tw.publish, not by tw.begin_batch.")));
				/* FALLTHROUGH */
			case TW_IN_LEDGER:
				if (!row.nulls[TW_BATCH_FINGERPRINT] &&
					strcmp(TextDatumGetCString(row.values[TW_BATCH_FINGERPRINT]),
						   request->fingerprint) != 0)
					mismatch(request, "committed");
				return true;
		}
	}
}

static void
take_over(const Request *request, StageBatch *batch)
{
	TransactionId opener = HeapTupleHeaderGetXmin(batch->row.tuple->t_data);

	if (!request->has_epoch || (batch->has_epoch && request->epoch == batch->epoch))
		ereport(ERROR,
				(errcode(ERRCODE_TW_JOB_IN_PROGRESS),
				 errmsg("batch \"%s\" of job \"%s\" is already open",
						request->batch_id, request->job),
				 batch->has_epoch ?
				 errdetail("It was opened with epoch %lld.", (long long) batch->epoch) :
				 errdetail("It was opened without an epoch."),
				 TransactionIdIsCurrentTransactionId(opener) ?
				 errhint("Open a batch once in a transaction. " TW_HINT_STAR) :
				 errhint("To take it over, give a newer epoch from tw.init_producer; to give it up, call tw.abort_batch.")));
	if (batch->has_epoch && request->epoch < batch->epoch)
		stage_check_epoch(batch, request->epoch);
	if (strcmp(batch->fingerprint, request->fingerprint) != 0)
		mismatch(request, "opened");
	stage_take_over(batch, request->epoch, request->expected_tasks, request->expires_at);
}

/* ---------- a new one ---------- */

static void
check_twice(const List *targets)
{
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, targets)
	{
		StageTarget *one = (StageTarget *) lfirst(lc);

		for_each_from(lc2, targets, foreach_current_index(lc) + 1)
		{
			if (((StageTarget *) lfirst(lc2))->target == one->target)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_OBJECT),
						 errmsg("table \"%s\" is more than one target of the batch", one->name)));
		}
	}
}

static List *
parse_targets(const Request *request)
{
	List	   *targets = NIL;
	int			n = JB_ROOT_COUNT(request->targets);

	for (int i = 0; i < n; i++)
	{
		JsonbValue *element = getIthJsonbValueFromContainer(&request->targets->root, i);
		StageTarget *target = stage_target_parse(JsonbValueToJsonb(element), i + 1);

		(void) stage_target_lookup(target);
		targets = lappend(targets, target);
	}
	check_twice(targets);
	return targets;
}

static void
create(const Request *request, Oid owner, StageBatch *batch)
{
	List	   *targets = parse_targets(request);
	List	   *leaves = NIL;	/* a list for each target */
	bool		logged = request->logged;
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, targets)
	{
		StageTarget *target = (StageTarget *) lfirst(lc);

		stage_target_load(target, AccessShareLock);
		leaves = lappend(leaves, stage_swap_leaves(target));
		/* what becomes a part of a logged table must be logged, and a task is lost as a whole */
		logged |= llast(leaves) != NIL;
		/* a crash of a worker would go unnoticed here */
		logged |= stage_is_distributed(target);
	}

	memset(batch, 0, sizeof(*batch));
	batch->number = stage_schema_create(owner);
	batch->job = request->job;
	batch->batch_id = request->batch_id;
	batch->has_epoch = request->has_epoch;
	batch->epoch = request->epoch;
	batch->expected_tasks = request->expected_tasks;
	batch->logged = logged;
	batch->fingerprint = request->fingerprint;
	batch->opened_at = GetCurrentTimestamp();
	batch->expires_at = request->expires_at;
	batch->guards = request->guards;

	forboth(lc, targets, lc2, leaves)
	{
		StageTarget *target = (StageTarget *) lfirst(lc);
		StageSql	sql;

		stage_table_create(batch->number, owner, target, (List *) lfirst(lc2), logged);
		stage_sql_build(target, &sql);
		stage_sql_try(target, &sql);
		stage_target_insert(batch->number, target);
	}
	foreach(lc, request->guards)
		batch->digests = lappend(batch->digests,
								 stage_guard_digest((char *) lfirst(lc),
													foreach_current_index(lc) + 1));
	stage_insert(batch);
}

/* ---------- SQL ---------- */

static Datum
opened_datum(FunctionCallInfo fcinfo, const char *status, const Request *request,
			 const StageBatch *batch)
{
	TupleDesc	tupdesc;
	Datum		values[OPENED_NATTS] = {0};
	bool		nulls[OPENED_NATTS] = {false};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != OPENED_NATTS)
		elog(ERROR, "tw.open_batch does not return tw.staged_batch");
	values[OPENED_STATUS] = CStringGetTextDatum(status);
	values[OPENED_JOB] = CStringGetTextDatum(request->job);
	values[OPENED_BATCH_ID] = CStringGetTextDatum(request->batch_id);
	nulls[OPENED_EPOCH] = batch == NULL || !batch->has_epoch;
	nulls[OPENED_SCHEMA] = nulls[OPENED_TASKS] = nulls[OPENED_EXPIRES_AT] = batch == NULL;
	nulls[OPENED_EXPECTED_TASKS] = batch == NULL || batch->expected_tasks < 0;
	if (batch != NULL)
	{
		values[OPENED_EPOCH] = Int64GetDatum(batch->epoch);
		values[OPENED_SCHEMA] = CStringGetTextDatum(stage_schema_name(batch->number));
		values[OPENED_TASKS] = Int32GetDatum(list_length(stage_tasks(batch)));
		values[OPENED_EXPECTED_TASKS] = Int32GetDatum(batch->expected_tasks);
		values[OPENED_EXPIRES_AT] = TimestampTzGetDatum(batch->expires_at);
	}
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
}

/*
 * tw.open_batch(job, batch_id, targets, expected_tasks, epoch, timeout, logged,
 * guards) RETURNS tw.staged_batch
 */
Datum
tw_open_batch(PG_FUNCTION_ARGS)
{
	Request    *request;
	StageBatch	batch;
	TwJob		job;

	tw_batch_check_writable("tw.open_batch()");
	request = read_request(fcinfo);
	tw_job_require_or_create(request->job, &job);
	if (request->has_epoch)
		tw_job_check_epoch(request->job, &job, request->epoch);

	stage_lock(request->job, request->batch_id, ExclusiveLock);
	if (is_published(request))
		return opened_datum(fcinfo, "already_committed", request, NULL);
	if (stage_find(request->job, request->batch_id, &batch))
	{
		take_over(request, &batch);
		return opened_datum(fcinfo, "taken_over", request, &batch);
	}
	/* what a publish has left behind on the nodes of a cluster */
	if (tw_citus_present())
		(void) stage_sweep();
	create(request, job.owner, &batch);
	return opened_datum(fcinfo, "opened", request, &batch);
}
