/*
 * job.c
 *		Jobs: finding, creating, and who may use them.
 *
 * A job's row is written when the job is created, when its epoch moves
 * (producer.c) and when its batches are pruned (prune.c); never by a claim, so
 * that sessions of one job do not queue behind each other.  Two first claims of
 * one job are the exception: the second waits until the first has committed or
 * rolled back the row.
 *
 * A job belongs to the role that was the current user when it was created, until
 * tw.reassign_job gives it to another.  Members of that role may use it.  A role
 * that is dropped leaves its jobs to superusers; so do those of nobody (InvalidOid), which
 * a dump makes of it.
 *
 * Locks: the epoch is checked under a share lock and moved under an exclusive
 * one on an object of our own, the job's name hashed in class tw.job.  Batches with
 * versions commit one after another under another such lock.  They are not
 * row locks because it must be possible to give them back at PREPARE TRANSACTION:
 * a prepared transaction would hold a row lock until somebody resolves it.  Until
 * it is prepared the session holds the lock on the epoch, so that after
 * tw.init_producer has returned no older writer's PREPARE can succeed any more.
 * Two names with the same hash only wait for each other.
 */
#include "tw.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* Where a job was found last; "" when none was */
static char last_job[TW_JOB_MAX_BYTES + 1] = "";
static ItemPointerData last_tid;

/* What a wait is for, for the error context */
typedef struct WaitTarget
{
	const char *job;
	const char *batch_id;		/* NULL: the job itself, or: */
	const char *source;			/* NULL: no offset */
	const char *partition;
	const char *task;			/* of the batch; NULL: the batch itself */
	const char *lock;			/* what a lock of ours is on; NULL: it is a transaction's */
} WaitTarget;

static void job_from_row(const TwRow *row, TwJob *job);
static bool find_where_it_was(const char *job, TwRow *row);
static bool create(const char *job, const Interval *retention);
static void check_member(const char *job, const TwJob *row);
static void job_tag(LOCKTAG *tag, const char *job, TwJobLock what);
static void wait_callback(void *arg);
static void wait_for(TransactionId xid, WaitTarget *target);

void
tw_job_check_interval(const char *what, const Interval *interval)
{
	Interval	zero = {0};

	if (DatumGetInt32(DirectFunctionCall2(interval_cmp, IntervalPGetDatum(interval),
										  IntervalPGetDatum(&zero))) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be negative", what)));
}

TimestampTz
tw_job_time_before(const Interval *age)
{
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_mi_interval,
												   TimestampTzGetDatum(GetCurrentTimestamp()),
												   IntervalPGetDatum(age)));
}

static void
job_from_row(const TwRow *row, TwJob *job)
{
	memset(job, 0, sizeof(*job));
	job->row = *row;
	job->owner = DatumGetObjectId(row->values[TW_JOB_OWNER]);
	job->epoch = DatumGetInt64(row->values[TW_JOB_EPOCH]);
	if (!row->nulls[TW_JOB_INSTANCE])
		job->instance = TextDatumGetCString(row->values[TW_JOB_INSTANCE]);
	if (!row->nulls[TW_JOB_RETENTION])
		job->retention = DatumGetIntervalP(row->values[TW_JOB_RETENTION]);
	job->has_pruned_version = !row->nulls[TW_JOB_PRUNED_VERSION];
	if (job->has_pruned_version)
		job->pruned_version = DatumGetInt64(row->values[TW_JOB_PRUNED_VERSION]);
}

/* A session mostly asks for the same job: its row is tried where it was last */
static bool
find_where_it_was(const char *job, TwRow *row)
{
	Datum		found;

	if (strcmp(job, last_job) != 0 || job[0] == '\0' ||
		!tw_table_fetch(TW_TABLE_JOB, &last_tid, SnapshotSelf, row))
		return false;

	/* the place may be another row's by now */
	found = row->values[TW_JOB_JOB];
	return VARSIZE_ANY_EXHDR(DatumGetPointer(found)) == strlen(job) &&
		memcmp(VARDATA_ANY(DatumGetPointer(found)), job, strlen(job)) == 0;
}

/*
 * SnapshotSelf judges each version of the row at a moment of its own: when an
 * update commits between two of them, the old one is seen as replaced and the
 * new one as not yet there.  Then we look again.
 */
bool
tw_job_find(const char *job, TwJob *result)
{
	Datum		key;
	TwRow		row;

	if (find_where_it_was(job, &row))
	{
		job_from_row(&row, result);
		return true;
	}
	key = CStringGetTextDatum(job);
	for (int tries = 0; tries < TW_MAX_LOOKS; tries++)
	{
		if (tw_table_find(TW_INDEX_JOB, SnapshotSelf, 1, &key, ForwardScanDirection, &row))
		{
			strlcpy(last_job, job, sizeof(last_job));
			last_tid = row.tuple->t_self;
			job_from_row(&row, result);
			return true;
		}
		/* jobs are not deleted */
		if (!tw_table_was_committed(TW_INDEX_JOB, 1, &key))
			break;
	}
	return false;
}

/*
 * Inserts the job unless it exists.  False: another transaction had it first,
 * and has committed it by now, or has let go of it.
 */
static bool
create(const char *job, const Interval *retention)
{
	Datum		values[TW_JOB_NATTS];
	bool		nulls[TW_JOB_NATTS] = {false};
	SnapshotData dirty;
	TwRow		row;

	values[TW_JOB_JOB] = CStringGetTextDatum(job);
	values[TW_JOB_OWNER] = ObjectIdGetDatum(GetUserId());
	values[TW_JOB_EPOCH] = Int64GetDatum(0);
	nulls[TW_JOB_INSTANCE] = true;
	nulls[TW_JOB_RETENTION] = retention == NULL;
	values[TW_JOB_RETENTION] = PointerGetDatum(retention);
	nulls[TW_JOB_PRUNED_VERSION] = true;
	values[TW_JOB_CREATED_AT] = TimestampTzGetDatum(GetCurrentTimestamp());

	/* Wait for who is creating it, or is moving its row just now */
	InitDirtySnapshot(dirty);
	if (tw_table_find(TW_INDEX_JOB, &dirty, 1, &values[TW_JOB_JOB], ForwardScanDirection, &row))
	{
		if (dirty.speculativeToken != 0)
			SpeculativeInsertionWait(dirty.xmin, dirty.speculativeToken);
		else if (TransactionIdIsValid(dirty.xmin))
			tw_job_wait(dirty.xmin, job, NULL);
		return false;
	}
	return tw_table_insert_new(TW_TABLE_JOB, values, nulls);
}

bool
tw_job_update(const TwJob *job)
{
	TwRow		row = job->row;
	TwRow		now;

	row.values[TW_JOB_OWNER] = ObjectIdGetDatum(job->owner);
	row.values[TW_JOB_EPOCH] = Int64GetDatum(job->epoch);
	row.nulls[TW_JOB_INSTANCE] = job->instance == NULL;
	if (job->instance != NULL)
		row.values[TW_JOB_INSTANCE] = CStringGetTextDatum(job->instance);
	row.nulls[TW_JOB_PRUNED_VERSION] = !job->has_pruned_version;
	row.values[TW_JOB_PRUNED_VERSION] = Int64GetDatum(job->pruned_version);

	/* the row may be one that this very command has written */
	CommandCounterIncrement();

	/* no lock was kept since it was read: in its place may be a row of a new extension */
	tw_table_close(tw_table_open(TW_TABLE_JOB));
	if (!tw_table_fetch(TW_TABLE_JOB, &row.tuple->t_self, SnapshotSelf, &now) ||
		HeapTupleHeaderGetRawXmin(now.tuple->t_data) != HeapTupleHeaderGetRawXmin(row.tuple->t_data) ||
		strcmp(TextDatumGetCString(now.values[TW_JOB_JOB]),
			   TextDatumGetCString(row.values[TW_JOB_JOB])) != 0)
		return false;
	return tw_table_update(TW_TABLE_JOB, &row.tuple->t_self, row.values, row.nulls);
}

static void
check_member(const char *job, const TwJob *row)
{
	char	   *owner;

	if (has_privs_of_role(GetUserId(), row->owner))
		return;
	owner = GetUserNameFromId(row->owner, true);
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for job \"%s\"", job),
			 owner != NULL ?
			 errdetail("It belongs to role \"%s\", of which \"%s\" is not a member.",
					   owner, GetUserNameFromId(GetUserId(), false)) :
			 errdetail("The role that it belongs to, %u, has been dropped.", row->owner),
			 owner != NULL ? 0 : errhint("A superuser can give it to another role with tw.reassign_job.")));
}

void
tw_job_require(const char *job, TwJob *row)
{
	tw_job_check_name(job);
	if (!tw_job_find(job, row))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("job \"%s\" does not exist", job)));
	check_member(job, row);
}

void
tw_job_require_or_create(const char *job, TwJob *row)
{
	tw_job_check_name(job);
	while (!tw_job_find(job, row))
	{
		CHECK_FOR_INTERRUPTS();
		(void) create(job, NULL);
	}
	check_member(job, row);
}

/* ---------- waiting ---------- */

static void
wait_callback(void *arg)
{
	WaitTarget *target = (WaitTarget *) arg;

	if (target->lock != NULL && target->batch_id != NULL)
		errcontext("while waiting for the lock on %s \"%s\" of job \"%s\"", target->lock,
				   target->batch_id, target->job);
	else if (target->lock != NULL)
		errcontext("while waiting for the lock on %s of job \"%s\"", target->lock, target->job);
	else if (target->task != NULL)
		errcontext("while waiting for another attempt at task \"%s\" of batch \"%s\" of job \"%s\"",
				   target->task, target->batch_id, target->job);
	else if (target->batch_id != NULL)
		errcontext("while waiting for another transaction's claim of batch \"%s\" of job \"%s\"",
				   target->batch_id, target->job);
	else if (target->source != NULL)
		errcontext("while waiting for another transaction's move of the offset of partition \"%s\" of source \"%s\" of job \"%s\"",
				   target->partition, target->source, target->job);
	else
		errcontext("while waiting for another transaction's creation of job \"%s\"", target->job);
}

static void
wait_for(TransactionId xid, WaitTarget *target)
{
	ErrorContextCallback callback;

	if (!tw_claim_wait)
		ereport(ERROR,
				(errcode(ERRCODE_TW_JOB_IN_PROGRESS),
				 target->task != NULL ?
				 errmsg("task \"%s\" of batch \"%s\" is being committed by another attempt",
						target->task, target->batch_id) :
				 target->batch_id != NULL ?
				 errmsg("batch \"%s\" of job \"%s\" is in progress", target->batch_id, target->job) :
				 target->source != NULL ?
				 errmsg("offset of partition \"%s\" of source \"%s\" of job \"%s\" is being moved",
						target->partition, target->source, target->job) :
				 errmsg("job \"%s\" is being created", target->job),
				 errdetail("Transaction %u holds it.", xid),
				 errhint("Try again later, or set transactional_writer.claim_wait to wait for it.")));

	callback.callback = wait_callback;
	callback.arg = target;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	XactLockTableWait(xid, NULL, NULL, XLTW_None);
	error_context_stack = callback.previous;
}

void
tw_job_wait(TransactionId xid, const char *job, const char *batch_id)
{
	WaitTarget	target = {job, batch_id};

	wait_for(xid, &target);
}

void
tw_job_wait_for_task(TransactionId xid, const char *job, const char *batch_id, const char *task)
{
	WaitTarget	target = {job, batch_id, NULL, NULL, task};

	wait_for(xid, &target);
}

void
tw_job_wait_for_offset(TransactionId xid, const char *job, const char *source,
					   const char *partition)
{
	WaitTarget	target = {job, NULL, source, partition};

	wait_for(xid, &target);
}

/* ---------- locks, and the epoch ---------- */

static void
job_tag(LOCKTAG *tag, const char *job, TwJobLock what)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, tw_table_oid(TW_TABLE_JOB),
					   hash_bytes((const unsigned char *) job, strlen(job)), what);
}

/* session: it outlives the transaction, until it is unlocked */
static void
acquire(const LOCKTAG *tag, LOCKMODE mode, bool session, WaitTarget *target)
{
	ErrorContextCallback callback = {error_context_stack, wait_callback, target};

	error_context_stack = &callback;
	(void) LockAcquire(tag, mode, session, false);
	error_context_stack = callback.previous;
}

void
tw_job_wait_for_lock(const LOCKTAG *tag, LOCKMODE mode, const char *lock, const char *job,
					 const char *batch_id)
{
	WaitTarget	target = {job, batch_id, NULL, NULL, NULL, lock};

	acquire(tag, mode, false, &target);
}

void
tw_job_lock(const char *job, TwJobLock what, LOCKMODE mode)
{
	LOCKTAG		tag;

	job_tag(&tag, job, what);
	tw_job_wait_for_lock(&tag, mode, what == TW_LOCK_EPOCH ? "the epoch" : "the versions", job,
						 NULL);
}

void
tw_job_unlock(const char *job, TwJobLock what, LOCKMODE mode)
{
	LOCKTAG		tag;

	job_tag(&tag, job, what);
	(void) LockRelease(&tag, mode, false);
}

void
tw_job_hold_epoch(const char *job, LOCKTAG *tag)
{
	WaitTarget	target = {job, NULL, NULL, NULL, NULL, "the epoch"};

	job_tag(tag, job, TW_LOCK_EPOCH);
	acquire(tag, ShareLock, true, &target);
}

/*
 * What a transaction has done to the job itself stays locked while it is
 * prepared: nobody could create the job, or get an epoch, to resolve it.
 */
void
tw_job_check_preparable(const char *job)
{
	LOCKTAG		tag;
	TwJob		row;

	job_tag(&tag, job, TW_LOCK_EPOCH);
	if (tw_job_find(job, &row) && !tw_lock_held(&tag, ExclusiveLock) &&
		!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row.row.tuple->t_data)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot prepare a transaction that has created or changed job \"%s\"", job),
			 errdetail("The job would be locked until the prepared transaction is resolved."),
			 errhint("Call tw.create_job or tw.init_producer in a transaction of its own, before the batch.")));
}

void
tw_job_check_epoch(const char *job, const TwJob *row, int64 epoch)
{
	if (epoch > row->epoch || epoch < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("epoch %lld of job \"%s\" was never given out", (long long) epoch, job),
				 errdetail("The job's current epoch is %lld.", (long long) row->epoch),
				 errhint("Get an epoch from tw.init_producer.")));
	if (epoch < row->epoch)
		ereport(ERROR,
				(errcode(ERRCODE_TW_PRODUCER_FENCED),
				 errmsg("epoch %lld of job \"%s\" has been replaced by a newer writer",
						(long long) epoch, job),
				 errdetail("The job's current epoch is %lld.", (long long) row->epoch),
				 errhint("This writer must stop.")));
}

/* ---------- SQL ---------- */

/* tw.create_job(job, retention) */
PG_FUNCTION_INFO_V1(tw_create_job);
Datum
tw_create_job(PG_FUNCTION_ARGS)
{
	Interval   *retention = PG_ARGISNULL(1) ? NULL : PG_GETARG_INTERVAL_P(1);
	char	   *job = tw_argument_text(fcinfo, 0, "job");
	TwJob		row;

	tw_batch_check_writable("tw.create_job()");
	tw_job_check_name(job);
	if (retention != NULL)
	{
		tw_job_check_interval("retention", retention);
		/* what cannot be counted back from now would fail whenever it is used */
		(void) tw_job_time_before(retention);
	}
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (tw_job_find(job, &row))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("job \"%s\" already exists", job)));
	} while (!create(job, retention));
	PG_RETURN_VOID();
}

/*
 * tw.reassign_job(job, owner): as ALTER ... OWNER TO, by who may use the job and
 * could have created it as the new owner
 */
PG_FUNCTION_INFO_V1(tw_reassign_job);
Datum
tw_reassign_job(PG_FUNCTION_ARGS)
{
	char	   *job;
	Oid			owner;
	TwJob		row;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job and owner must not be null")));
	job = text_to_cstring(PG_GETARG_TEXT_PP(0));
	owner = PG_GETARG_OID(1);

	tw_batch_check_writable("tw.reassign_job()");
	do
	{
		CHECK_FOR_INTERRUPTS();
		tw_job_require(job, &row);
		if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(owner)))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("role with OID %u does not exist", owner)));
		if (!tw_can_set_role(GetUserId(), owner))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to give job \"%s\" to role \"%s\"",
							job, GetUserNameFromId(owner, false)),
					 errdetail("Role \"%s\" cannot set that role.",
							   GetUserNameFromId(GetUserId(), false))));
		if (row.owner == owner)
			PG_RETURN_VOID();
		row.owner = owner;
	} while (!tw_job_update(&row));

	tw_stage_reassign(job, owner);
	tw_audit_record(TW_ACTION_REASSIGN, job, NULL, GetUserNameFromId(owner, false));
	PG_RETURN_VOID();
}
