/*
 * batch.c
 *		The claim: of all transactions that ask for a batch, one gets it.
 *
 * A claim is a row of tw.batch with the primary key (job, batch_id), inserted in
 * the batch's own transaction.  It is never updated.  What the batch did is a row
 * of tw.batch_outcome, inserted once at the finish.  Either row is there exactly
 * when the batch's data are.
 *
 * The key is looked up with a dirty snapshot, which shows what others have not
 * committed: then we wait for them to end, outside any buffer lock, and look
 * again.  A committed row is a replay, no row is ours to insert, speculatively,
 * so that of two that find nothing one gets false and looks again.  No snapshot
 * of the transaction is used: what REPEATABLE READ and SERIALIZABLE would report
 * as 40001 or 23505 is a replay here.
 *
 * Locks: the transaction's own xid is what the others wait for.  forget_batch
 * holds an object lock of its own on the batch, see tw_batch_lock().  An epoch
 * is checked under job.c's lock.
 *
 * The list of open batches is for the epoch's last check and for
 * tw.finish_batch.  It hangs on TopTransactionContext.
 */
#include "tw.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

/* A batch this transaction has claimed */
typedef struct OpenBatch
{
	char	   *job;
	char	   *batch_id;
	bool		has_epoch;
	int64		epoch;
	TimestampTz started_at;
	bool		by_sql;			/* tw.begin_batch's, so tw.finish_batch may finish it */
	SubTransactionId claimed_in;
	SubTransactionId finished_in;	/* InvalidSubTransactionId: not finished */
} OpenBatch;

/* What a look at the ledger found */
typedef enum Sight
{
	NOT_THERE,
	COMMITTED,
	OURS,						/* claimed by this transaction */
	LOOK_AGAIN					/* another transaction was in the way, and has ended */
} Sight;

static List *open_batches = NIL;	/* OpenBatch, the latest last */

static void check_length(const char *what, const char *value, int limit);
static Sight look(const TwClaim *claim, TwRow *row);
static void check_same(const TwClaim *claim, const TwRow *row);
static void check_version(const TwClaim *claim);
static bool insert_claim(const TwClaim *claim, TwOutcome *outcome);
static void remember(const TwClaim *claim, const TwOutcome *outcome);
static bool recorded_outcome(const TwClaim *claim, const TwRow *row, TwOutcome *outcome);
static OpenBatch *find_open(const char *job, const char *batch_id);

/* ---------- what may be claimed ---------- */

/* What writes to the ledger may not do so everywhere; command is for the message */
void
tw_batch_check_writable(const char *command)
{
	PreventCommandIfReadOnly(command);
	PreventCommandIfParallelMode(command);
	PreventCommandDuringRecovery(command);
}

static void
check_length(const char *what, const char *value, int limit)
{
	size_t		length = strlen(value);

	if (length < 1 || length > limit)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s of %zu bytes is out of range", what, length),
				 errdetail("A %s has 1 to %d bytes.", what, limit)));
}

void
tw_batch_check_id(const char *batch_id)
{
	check_length("batch_id", batch_id, TW_BATCH_ID_MAX_BYTES);
}

bool
tw_batch_requested(const char *job, const char *batch_id)
{
	if ((job == NULL) != (batch_id == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job and batch_id must be given together"),
				 job == NULL ? errdetail("There is a batch_id but no job.") :
				 errdetail("There is a job but no batch_id.")));
	if (job == NULL)
		return false;
	tw_job_check_name(job);
	tw_batch_check_id(batch_id);
	return true;
}

/* ---------- the claim ---------- */

bool
tw_batch_claim(const TwClaim *claim, TwOutcome *outcome)
{
	TwJob		job;
	TwRow		row;

	tw_batch_check_writable("batch claim");
	if (!tw_batch_requested(claim->job, claim->batch_id))
		elog(ERROR, "claim without a job");
	if (claim->fingerprint != NULL)
		check_length("fingerprint", claim->fingerprint, TW_FINGERPRINT_MAX_BYTES);

	tw_job_require_or_create(claim->job, &job);
	if (claim->has_epoch)
		tw_job_check_epoch(claim->job, &job, claim->epoch);

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		switch (look(claim, &row))
		{
			case LOOK_AGAIN:
				break;
			case OURS:
				ereport(ERROR,
						(errcode(ERRCODE_TW_JOB_IN_PROGRESS),
						 errmsg("batch \"%s\" of job \"%s\" is already claimed in this transaction",
								claim->batch_id, claim->job)));
				break;
			case COMMITTED:
				check_same(claim, &row);
				if (recorded_outcome(claim, &row, outcome))
					return false;
				break;
			case NOT_THERE:
				if (claim->has_version)
					check_version(claim);
				if (insert_claim(claim, outcome))
				{
					remember(claim, outcome);
					return true;
				}
				break;
		}
	}
}

static void
batch_keys(const char *job, const char *batch_id, Datum *keys)
{
	keys[0] = CStringGetTextDatum(job);
	keys[1] = CStringGetTextDatum(batch_id);
}

/* Is the batch in the ledger?  Waits for a transaction that is about to decide that. */
static Sight
look(const TwClaim *claim, TwRow *row)
{
	SnapshotData dirty;
	Datum		keys[2];

	batch_keys(claim->job, claim->batch_id, keys);
	InitDirtySnapshot(dirty);
	if (!tw_table_find(TW_INDEX_BATCH, &dirty, 2, keys, ForwardScanDirection, row))
		return NOT_THERE;

	if (dirty.speculativeToken != 0)
		SpeculativeInsertionWait(dirty.xmin, dirty.speculativeToken);
	else if (TransactionIdIsValid(dirty.xmin))
		tw_job_wait(dirty.xmin, claim->job, claim->batch_id);
	else if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row->tuple->t_data)))
		return OURS;
	else if (TransactionIdIsValid(dirty.xmax) &&
			 tw_batch_wait_forgotten(dirty.xmax, claim->job, claim->batch_id))
		return LOOK_AGAIN;
	else
		return COMMITTED;

	return LOOK_AGAIN;
}

/* The same key for something else is an error, whoever is right */
static void
check_same(const TwClaim *claim, const TwRow *row)
{
	if (claim->fingerprint != NULL && !row->nulls[TW_BATCH_FINGERPRINT])
	{
		char	   *recorded = TextDatumGetCString(row->values[TW_BATCH_FINGERPRINT]);

		if (strcmp(recorded, claim->fingerprint) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_TW_IDEMPOTENCY_KEY_MISMATCH),
					 errmsg("batch \"%s\" of job \"%s\" was committed for something else",
							claim->batch_id, claim->job),
					 errdetail("Its fingerprint is \"%s\", this one's is \"%s\".",
							   recorded, claim->fingerprint),
					 errhint("Use another batch_id for other work.")));
	}
	if (claim->has_version && !row->nulls[TW_BATCH_VERSION])
	{
		int64		recorded = DatumGetInt64(row->values[TW_BATCH_VERSION]);

		if (recorded != claim->version)
			ereport(ERROR,
					(errcode(ERRCODE_TW_IDEMPOTENCY_KEY_MISMATCH),
					 errmsg("batch \"%s\" of job \"%s\" was committed for something else",
							claim->batch_id, claim->job),
					 errdetail("Its version is %lld, this one's is %lld.",
							   (long long) recorded, (long long) claim->version),
					 errhint("Use another batch_id for other work.")));
	}
}

/*
 * A batch that is not in the ledger must have a version above all that were
 * committed.  The ledger is read before the job: pruning moves the highest
 * version from there to here.
 */
static void
check_version(const TwClaim *claim)
{
	Datum		key = CStringGetTextDatum(claim->job);
	bool		has_highest;
	int64		highest = 0;
	TwRow		row;
	TwJob		job;

	has_highest = tw_table_find(TW_INDEX_BATCH_VERSION, SnapshotSelf, 1, &key,
								BackwardScanDirection, &row);
	if (has_highest)
		highest = DatumGetInt64(row.values[TW_BATCH_VERSION]);
	if (tw_job_find(claim->job, &job) && job.has_pruned_version)
	{
		highest = has_highest ? Max(highest, job.pruned_version) : job.pruned_version;
		has_highest = true;
	}

	if (has_highest && claim->version <= highest)
		ereport(ERROR,
				(errcode(ERRCODE_TW_OUT_OF_ORDER),
				 errmsg("version %lld of job \"%s\" is out of order",
						(long long) claim->version, claim->job),
				 errdetail("Version %lld is committed, and batch \"%s\" is not in the ledger.",
						   (long long) highest, claim->batch_id),
				 errhint("Versions of a job increase; the batch may have been pruned.")));
}

/* Inserts our row; false: somebody else was faster */
static bool
insert_claim(const TwClaim *claim, TwOutcome *outcome)
{
	Datum		values[TW_BATCH_NATTS];
	bool		nulls[TW_BATCH_NATTS] = {false};

	memset(outcome, 0, sizeof(*outcome));
	outcome->status = TW_STARTED;
	outcome->job = pstrdup(claim->job);
	outcome->batch_id = pstrdup(claim->batch_id);
	outcome->has_epoch = claim->has_epoch;
	outcome->epoch = claim->epoch;
	outcome->attempts = 1;
	outcome->xid = GetTopFullTransactionId();
	outcome->started_at = GetCurrentTimestamp();

	batch_keys(claim->job, claim->batch_id, &values[TW_BATCH_JOB]);
	nulls[TW_BATCH_EPOCH] = !claim->has_epoch;
	values[TW_BATCH_EPOCH] = Int64GetDatum(claim->epoch);
	nulls[TW_BATCH_VERSION] = !claim->has_version;
	values[TW_BATCH_VERSION] = Int64GetDatum(claim->version);
	values[TW_BATCH_XID] = FullTransactionIdGetDatum(outcome->xid);
	values[TW_BATCH_STARTED_AT] = TimestampTzGetDatum(outcome->started_at);
	nulls[TW_BATCH_FINGERPRINT] = claim->fingerprint == NULL;
	if (claim->fingerprint != NULL)
		values[TW_BATCH_FINGERPRINT] = CStringGetTextDatum(claim->fingerprint);

	return tw_table_insert_new(TW_TABLE_BATCH, values, nulls);
}

/* ---------- replay ---------- */

/*
 * The outcome of a committed batch.  False: it has been forgotten since we saw
 * it, so look again.
 */
static bool
recorded_outcome(const TwClaim *claim, const TwRow *batch, TwOutcome *outcome)
{
	Datum		keys[2];
	TwRow		row;
	Snapshot	snapshot;

	memset(outcome, 0, sizeof(*outcome));
	outcome->status = TW_ALREADY_COMMITTED;
	outcome->job = pstrdup(claim->job);
	outcome->batch_id = pstrdup(claim->batch_id);
	outcome->has_epoch = !batch->nulls[TW_BATCH_EPOCH];
	if (outcome->has_epoch)
		outcome->epoch = DatumGetInt64(batch->values[TW_BATCH_EPOCH]);
	outcome->attempts = 1;
	outcome->xid = DatumGetFullTransactionId(batch->values[TW_BATCH_XID]);
	outcome->started_at = DatumGetTimestampTz(batch->values[TW_BATCH_STARTED_AT]);

	/*
	 * Values that were toasted are fetched under a snapshot; a catalog snapshot
	 * does not settle what the transaction sees later.  It is taken first, so
	 * that VACUUM leaves them alone.
	 */
	snapshot = RegisterSnapshot(GetCatalogSnapshot(InvalidOid));
	batch_keys(claim->job, claim->batch_id, keys);
	if (!tw_table_find(TW_INDEX_BATCH_OUTCOME, SnapshotSelf, 2, keys, ForwardScanDirection, &row))
	{
		/* never finished by its caller, or forgotten a moment ago */
		UnregisterSnapshot(snapshot);
		return tw_table_find(TW_INDEX_BATCH, SnapshotSelf, 2, keys, ForwardScanDirection, &row) &&
			FullTransactionIdEquals(DatumGetFullTransactionId(row.values[TW_BATCH_XID]),
									outcome->xid);
	}

	outcome->has_rows = !row.nulls[TW_RESULT_ROWS];
	if (outcome->has_rows)
		outcome->rows = DatumGetInt64(row.values[TW_RESULT_ROWS]);
	outcome->finished_at = DatumGetTimestampTz(row.values[TW_RESULT_FINISHED_AT]);
	outcome->attempts = DatumGetInt32(row.values[TW_RESULT_ATTEMPTS]);
	if (!row.nulls[TW_RESULT_RESULT])
		outcome->result = DatumGetJsonbP(row.values[TW_RESULT_RESULT]);
	if (!row.nulls[TW_RESULT_OPERATIONS])
		outcome->operations = DatumGetJsonbP(row.values[TW_RESULT_OPERATIONS]);
	UnregisterSnapshot(snapshot);
	return true;
}

/* ---------- forgetting ---------- */

static void
batch_tag(LOCKTAG *tag, const char *job, const char *batch_id)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, tw_table_oid(TW_TABLE_BATCH),
					   hash_combine(hash_bytes((const unsigned char *) job, strlen(job)),
									hash_bytes((const unsigned char *) batch_id, strlen(batch_id))),
					   0);
}

/*
 * Held by tw.forget_batch to the end of its transaction, so that a claim can
 * tell it, which it waits for, from pruning, which it does not: until a pruned
 * row is gone, its batch counts as committed.
 */
void
tw_batch_lock_forgotten(const char *job, const char *batch_id)
{
	LOCKTAG		tag;

	batch_tag(&tag, job, batch_id);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* True: the deleter of the row was tw.forget_batch, and has ended */
bool
tw_batch_wait_forgotten(TransactionId xid, const char *job, const char *batch_id)
{
	LOCKTAG		tag;

	batch_tag(&tag, job, batch_id);
	if (LockAcquire(&tag, ShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL)
	{
		(void) LockRelease(&tag, ShareLock, false);
		return !TransactionIdIsInProgress(xid);
	}
	tw_job_wait(xid, job, batch_id);
	return true;
}

/* ---------- the finish ---------- */

void
tw_batch_finish(TwOutcome *outcome)
{
	OpenBatch  *open = find_open(outcome->job, outcome->batch_id);
	Datum		values[TW_RESULT_NATTS];
	bool		nulls[TW_RESULT_NATTS] = {false};

	if (open == NULL || open->finished_in != InvalidSubTransactionId)
		elog(ERROR, "batch \"%s\" of job \"%s\" is not open", outcome->batch_id, outcome->job);

	outcome->finished_at = GetCurrentTimestamp();
	batch_keys(outcome->job, outcome->batch_id, &values[TW_RESULT_JOB]);
	nulls[TW_RESULT_ROWS] = !outcome->has_rows;
	values[TW_RESULT_ROWS] = Int64GetDatum(outcome->rows);
	values[TW_RESULT_FINISHED_AT] = TimestampTzGetDatum(outcome->finished_at);
	values[TW_RESULT_ATTEMPTS] = Int32GetDatum(outcome->attempts);
	nulls[TW_RESULT_RESULT] = outcome->result == NULL;
	values[TW_RESULT_RESULT] = PointerGetDatum(outcome->result);
	nulls[TW_RESULT_OPERATIONS] = outcome->operations == NULL;
	values[TW_RESULT_OPERATIONS] = PointerGetDatum(outcome->operations);

	tw_table_insert(TW_TABLE_BATCH_OUTCOME, values, nulls);
	open->finished_in = GetCurrentSubTransactionId();
}

/* ---------- what is open ---------- */

static void
remember(const TwClaim *claim, const TwOutcome *outcome)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	OpenBatch  *open = palloc0(sizeof(OpenBatch));

	open->job = pstrdup(claim->job);
	open->batch_id = pstrdup(claim->batch_id);
	open->has_epoch = claim->has_epoch;
	open->epoch = claim->epoch;
	open->started_at = outcome->started_at;
	open->claimed_in = GetCurrentSubTransactionId();
	open_batches = lappend(open_batches, open);
	MemoryContextSwitchTo(old);
}

static OpenBatch *
find_open(const char *job, const char *batch_id)
{
	ListCell   *lc;

	foreach(lc, open_batches)
	{
		OpenBatch  *open = (OpenBatch *) lfirst(lc);

		if (strcmp(open->batch_id, batch_id) == 0 && strcmp(open->job, job) == 0)
			return open;
	}
	return NULL;
}

bool
tw_batch_is_open(const char *job, const char *batch_id)
{
	return find_open(job, batch_id) != NULL;
}

/*
 * A writer that was replaced while it ran must not commit.  The lock makes the
 * check and our commit one step for tw.init_producer; a prepared transaction
 * does not keep it, since nobody knows for how long.
 */
void
tw_batch_before_commit(bool prepare)
{
	ListCell   *lc;

	foreach(lc, open_batches)
	{
		OpenBatch  *open = (OpenBatch *) lfirst(lc);
		TwJob		job;

		if (!open->has_epoch)
			continue;
		tw_job_lock_epoch(open->job, ShareLock);
		if (!tw_job_find(open->job, &job))
			elog(ERROR, "job \"%s\" has disappeared", open->job);
		tw_job_check_epoch(open->job, &job, open->epoch);
		if (prepare)
			tw_job_unlock_epoch(open->job, ShareLock);
	}
}

void
tw_batch_subxact_end(bool commit, SubTransactionId subid, SubTransactionId parent)
{
	ListCell   *lc;

	foreach(lc, open_batches)
	{
		OpenBatch  *open = (OpenBatch *) lfirst(lc);

		if (open->claimed_in == subid && !commit)
		{
			open_batches = foreach_delete_current(open_batches, lc);
			continue;
		}
		if (open->claimed_in == subid)
			open->claimed_in = parent;
		if (open->finished_in == subid)
			open->finished_in = commit ? parent : InvalidSubTransactionId;
	}
}

void
tw_batch_forget_open(void)
{
	open_batches = NIL;
}

/* ---------- SQL ---------- */

static char *
text_or_null(FunctionCallInfo fcinfo, int number)
{
	return PG_ARGISNULL(number) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(number));
}

/* tw.begin_batch(job, batch_id, fingerprint, epoch, version) */
PG_FUNCTION_INFO_V1(tw_begin_batch);
Datum
tw_begin_batch(PG_FUNCTION_ARGS)
{
	TwClaim		claim = {0};
	TwOutcome	outcome;

	claim.job = text_or_null(fcinfo, 0);
	claim.batch_id = text_or_null(fcinfo, 1);
	claim.fingerprint = text_or_null(fcinfo, 2);
	claim.has_epoch = !PG_ARGISNULL(3);
	if (claim.has_epoch)
		claim.epoch = PG_GETARG_INT64(3);
	claim.has_version = !PG_ARGISNULL(4);
	if (claim.has_version)
		claim.version = PG_GETARG_INT64(4);

	if (!tw_batch_requested(claim.job, claim.batch_id))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job and batch_id must not be null")));
	if (tw_batch_claim(&claim, &outcome))
		((OpenBatch *) llast(open_batches))->by_sql = true;
	PG_RETURN_DATUM(tw_history_outcome_datum(&outcome));
}

/* tw.finish_batch(result) */
PG_FUNCTION_INFO_V1(tw_finish_batch);
Datum
tw_finish_batch(PG_FUNCTION_ARGS)
{
	OpenBatch  *open = NULL;
	bool		any = false;
	TwOutcome	outcome = {0};
	ListCell   *lc;

	tw_batch_check_writable("tw.finish_batch()");
	foreach(lc, open_batches)
	{
		OpenBatch  *candidate = (OpenBatch *) lfirst(lc);

		if (!candidate->by_sql)
			continue;
		any = true;
		if (candidate->finished_in == InvalidSubTransactionId)
			open = candidate;
	}
	if (open == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 any ? errmsg("every batch of this transaction is already finished") :
				 errmsg("no batch is open in this transaction"),
				 errhint("Call tw.begin_batch in the same transaction first.")));

	outcome.status = TW_APPLIED;
	outcome.job = open->job;
	outcome.batch_id = open->batch_id;
	outcome.has_epoch = open->has_epoch;
	outcome.epoch = open->epoch;
	outcome.result = PG_ARGISNULL(0) ? NULL : PG_GETARG_JSONB_P(0);
	outcome.attempts = 1;
	outcome.xid = GetTopFullTransactionId();
	outcome.started_at = open->started_at;
	tw_batch_finish(&outcome);
	PG_RETURN_DATUM(tw_history_outcome_datum(&outcome));
}
