/*
 * batch.c
 *		The claim: of all transactions that ask for a batch, one gets it.
 *
 * A claim is a row of tw.batch with the primary key (job, batch_id), inserted in
 * the batch's own transaction.  It is never updated.  What the batch did is a row
 * of tw.batch_outcome, inserted once at the finish (open.c).  Either row is there
 * exactly when the batch's data are.
 *
 * We look (look.c), perhaps wait for another transaction, and look again.  A committed
 * row is a replay, no row is ours to insert, speculatively, so that of two that
 * find nothing one gets false and looks again.  No snapshot of the transaction is
 * used: what REPEATABLE READ and SERIALIZABLE would report as 40001 or 23505 is a
 * replay here.
 *
 * Locks: the transaction's own xid is what the others wait for.
 */
#include "tw.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "engine/citus.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

/* in PostgreSQL's "cannot execute ..." */
#define CLAIM	"batch claim"

static void check_same(const TwClaim *claim, const TwRow *row);
static bool insert_claim(const TwClaim *claim, TwOutcome *outcome);
static bool recorded_outcome(const TwClaim *claim, const TwRow *row, TwOutcome *outcome);

/* ---------- the claim ---------- */

/*
 * A replay writes nothing, so a read-only transaction can have one.  It asks as any other
 * and may have to wait, but what there is to write ends it.  On a standby nothing can be
 * waited for.
 */
bool
tw_batch_claim(const TwClaim *claim, TwOutcome *outcome)
{
	bool		replay_only = XactReadOnly && !RecoveryInProgress();
	TwJob		job;
	TwRow		row;

	if (replay_only)
		tw_batch_check_place(CLAIM);
	else
	{
		tw_batch_check_writable(CLAIM);
		tw_citus_protect();
	}
	if (!tw_batch_requested(claim->job, claim->batch_id))
		elog(ERROR, "claim without a job");
	if (claim->fingerprint != NULL)
		tw_batch_check_length("fingerprint", claim->fingerprint, TW_FINGERPRINT_MAX_BYTES);

	if (!replay_only)
		tw_job_require_or_create(claim->job, &job);
	else if (tw_job_find(claim->job, &job))
		tw_job_require(claim->job, &job);
	else
		PreventCommandIfReadOnly(CLAIM);
	if (claim->has_epoch)
		tw_job_check_epoch(claim->job, &job, claim->epoch);

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		switch (tw_batch_look(claim->job, claim->batch_id, &row))
		{
			case TW_LOOK_AGAIN:
				break;
			case TW_OURS:
				ereport(ERROR,
						(errcode(ERRCODE_TW_JOB_IN_PROGRESS),
						 errmsg("batch \"%s\" of job \"%s\" is already claimed in this transaction",
								claim->batch_id, claim->job),
						 errhint("Claim a batch once in a transaction. " TW_HINT_STAR)));
				break;
			case TW_IN_LEDGER:
				check_same(claim, &row);
				if (recorded_outcome(claim, &row, outcome))
					return false;
				break;
			case TW_NOT_THERE:
				if (replay_only)
					PreventCommandIfReadOnly(CLAIM);
				if (!insert_claim(claim, outcome))
					break;
				tw_open_add(claim, outcome, claim->has_version && !tw_batch_check_version(claim));
				return true;
		}
	}
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
					 errhint("Use another batch_id for other work. A changed script is other work too: "
							 "to run it under this id, call tw.forget_batch first.")));
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

	tw_batch_keys(claim->job, claim->batch_id, &values[TW_BATCH_JOB]);
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
	 * Values that were toasted are fetched under a snapshot, which is taken
	 * first, so that VACUUM leaves them alone.
	 */
	snapshot = tw_table_toast_snapshot();
	if (!tw_batch_find_outcome(batch, &row))
	{
		/* never finished by its caller, or forgotten a moment ago */
		tw_table_toast_done(snapshot);
		tw_batch_keys(claim->job, claim->batch_id, keys);
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
	tw_table_toast_done(snapshot);
	return true;
}

/* ---------- SQL ---------- */

/* tw.begin_batch(job, batch_id, fingerprint, epoch, version) */
PG_FUNCTION_INFO_V1(tw_begin_batch);
Datum
tw_begin_batch(PG_FUNCTION_ARGS)
{
	TwClaim		claim = {0};
	TwOutcome	outcome;

	claim.job = tw_argument_text_or_null(fcinfo, 0);
	claim.batch_id = tw_argument_text_or_null(fcinfo, 1);
	claim.fingerprint = tw_argument_text_or_null(fcinfo, 2);
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
	claim.by_caller = true;
	(void) tw_batch_claim(&claim, &outcome);
	PG_RETURN_DATUM(tw_history_outcome_datum(&outcome));
}
