/*
 * run.c
 *		CALL tw.run: a batch that owns its transactions and is retried; chunks.c
 *		runs many of them.
 *
 * One attempt is one transaction: set the isolation level, claim, take the
 * snapshot, run the block, check deferred constraints, write the outcome,
 * commit.  The claim comes before the snapshot, so that one that had to wait
 * works on fresh data.  After a conflict (40001, 40P01) the whole attempt is
 * rolled back and made again, the first time at once, then after a pause, random between
 * 0 and a bound that doubles each time ("full jitter", from the literature on contention
 * back-off).
 *
 * The body runs in a subtransaction: without it an error inside a nested
 * function would leave SPI's and the portal's books open, and no COMMIT could
 * follow.
 */
#include "psm/psm.h"

#include <math.h>

#include "access/xact.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

PG_FUNCTION_INFO_V1(tw_run);

#define MAX_PAUSE_MS 30000

/* conflicts => ...: the isolation level, and what is tracked */
void
psm_run_read_conflicts(PsmRun *run, const char *conflicts)
{
	run->tracking = TW_TRACK_NONE;
	if (strcmp(conflicts, "none") == 0)
		run->isolation = XACT_READ_COMMITTED;
	else if (strcmp(conflicts, "write") == 0)
		run->isolation = XACT_REPEATABLE_READ;
	else if (strcmp(conflicts, "row") == 0)
	{
		run->isolation = XACT_REPEATABLE_READ;
		run->tracking = TW_TRACK_ROW;
	}
	else if (strcmp(conflicts, "predicate") == 0)
	{
		run->isolation = XACT_REPEATABLE_READ;
		run->tracking = TW_TRACK_PREDICATE;
	}
	else if (strcmp(conflicts, "serializable") == 0)
		run->isolation = XACT_SERIALIZABLE;
	else
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for conflicts: \"%s\"", tw_excerpt(conflicts)),
				 errhint("Use 'none', 'write', 'row', 'predicate' or 'serializable'.")));
}

/* Claim and body of one attempt; false: committed before */
static bool
run_body(PsmRun *run, int number, TwOutcome *outcome)
{
	bool		ours;

	ours = run->claim.job == NULL || tw_batch_claim(&run->claim, outcome);
	if (!ours)
		return false;
	outcome->attempts = number;
	if (run->claim.job == NULL)
		outcome->started_at = GetCurrentTimestamp();

	if (run->tracking != TW_TRACK_NONE)
	{
		tw_track_begin(run->tracking);
		tw_track_base_here();
	}
	PushActiveSnapshot(GetTransactionSnapshot());
	psm_block_run(run->source, run->length, run->params, PSM_MAKE_IMMEDIATE, outcome);
	if (run->claim.job != NULL)
		tw_batch_finish(outcome);
	PopActiveSnapshot();
	return true;
}

/* What is done in a transaction of its own */
typedef struct Attempt
{
	PsmRun	   *run;
	int			number;
	TwOutcome  *outcome;
	ErrorData  *error;			/* of the attempt; NULL while there is none */
} Attempt;

static void
run_attempt(Attempt *attempt)
{
	attempt->outcome->status = run_body(attempt->run, attempt->number, attempt->outcome) ?
		TW_COMMITTED : TW_ALREADY_COMMITTED;
}

static void
write_failure(Attempt *attempt)
{
	tw_failure_record(attempt->run->claim.job, attempt->run->claim.batch_id, attempt->number,
					  attempt->error, psm_error_line());
}

/*
 * Works in this transaction, which is new, and commits it.  Returns NULL when that went
 * well, otherwise the error, after a rollback, in run->mcxt.
 */
static ErrorData *
commit_work(void (*work) (Attempt *attempt), Attempt *attempt)
{
	PsmRun	   *run = attempt->run;
	ErrorData  *volatile error = NULL;
	volatile bool in_subxact = false;
	ResourceOwner oldowner = CurrentResourceOwner;

	PG_TRY();
	{
		BeginInternalSubTransaction(NULL);
		in_subxact = true;
		MemoryContextSwitchTo(run->mcxt);
		work(attempt);
		ReleaseCurrentSubTransaction();
		in_subxact = false;
		MemoryContextSwitchTo(run->mcxt);
		CurrentResourceOwner = oldowner;
		SPI_commit();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(run->mcxt);
		error = CopyErrorData();
		FlushErrorState();
		if (in_subxact)
		{
			RollbackAndReleaseCurrentSubTransaction();
			MemoryContextSwitchTo(run->mcxt);
			CurrentResourceOwner = oldowner;
			SPI_rollback();
		}
	}
	PG_END_TRY();
	MemoryContextSwitchTo(run->mcxt);
	return error;
}

/*
 * Writes the failed attempt to tw.failures, in a transaction of its own.  Where nothing can
 * be written, as on a standby, the error itself has to do; where that fails, it stays what
 * the caller is told, beside a warning.  Returns an error that ends the attempts: a cancel
 * that has come here counts for those that would follow.
 */
static ErrorData *
record_failure(Attempt *attempt)
{
	ErrorData  *failed;

	if (!tw_log_failures || XactReadOnly)
		return NULL;
	failed = commit_work(write_failure, attempt);
	if (failed == NULL)
		return NULL;
	ereport(WARNING,
			(errcode(failed->sqlerrcode),
			 errmsg("could not write the error of attempt %d to tw.failures", attempt->number),
			 errdetail_internal("%s", failed->message)));
	if (failed->sqlerrcode == ERRCODE_QUERY_CANCELED)
		return failed;
	FreeErrorData(failed);
	return NULL;
}

static bool
is_conflict(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/*
 * Attempt number has failed.  The first retry is not delayed: who was in its way has mostly
 * committed by then.
 */
static void
pause_before_retry(int number)
{
	double		bound = number < 2 ? 0 : (double) tw_retry_backoff * pow(2, Min(number - 2, 20));
	long		ms = (long) (pg_prng_double(&pg_global_prng_state) * Min(bound, MAX_PAUSE_MS));

	CHECK_FOR_INTERRUPTS();
	if (ms <= 0)
		return;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Attempts until one commits, or the error is not to be retried, or not once more */
void
psm_run_batch(PsmRun *run, TwOutcome *outcome)
{
	for (int number = 1;; number++)
	{
		Attempt		attempt = {.run = run, .number = number, .outcome = outcome};
		ErrorData  *end;

		SPI_commit();			/* a transaction of our own, without a snapshot */
		XactIsoLevel = run->isolation;
		psm_error_line_clear();
		memset(outcome, 0, sizeof(TwOutcome));
		attempt.error = commit_work(run_attempt, &attempt);
		if (attempt.error == NULL)
			break;
		end = record_failure(&attempt);
		if (!is_conflict(attempt.error) || number >= run->max_attempts)
			ReThrowError(attempt.error);
		if (end != NULL)
			ReThrowError(end);
		FreeErrorData(attempt.error);
		pause_before_retry(number);
	}
}

/* A procedure that commits must be called outside of any transaction block */
void
psm_run_require_call(FunctionCallInfo fcinfo, const char *name)
{
	CallContext *call = (CallContext *) fcinfo->context;

	if (call == NULL || !IsA(call, CallContext) || call->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("%s cannot run inside a transaction", name),
				 errdetail("It begins and commits transactions of its own."),
				 errhint("Use tw.atomic inside a transaction block or a function.")));
}

/* Copies the arguments to memory that outlives the transactions */
static PsmRun *
run_create(FunctionCallInfo fcinfo)
{
	MemoryContext mcxt = AllocSetContextCreate(PortalContext, "tw.run", ALLOCSET_SMALL_SIZES);
	MemoryContext oldcontext = MemoryContextSwitchTo(mcxt);
	PsmRun	   *run = palloc0(sizeof(PsmRun));
	Jsonb	   *params;

	run->mcxt = mcxt;
	run->source = psm_block_arguments(fcinfo, &run->length, &params, &run->claim);
	run->params = palloc(VARSIZE(params));
	memcpy(run->params, params, VARSIZE(params));
	if (run->claim.job != NULL)
		run->claim.fingerprint = tw_history_fingerprint(run->source, run->params);
	if (PG_ARGISNULL(6))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("conflicts must not be null")));
	psm_run_read_conflicts(run, text_to_cstring(PG_GETARG_TEXT_PP(6)));
	run->max_attempts = PG_ARGISNULL(7) ? tw_max_attempts : PG_GETARG_INT32(7);
	if (run->max_attempts < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_attempts must be at least 1")));
	MemoryContextSwitchTo(oldcontext);
	return run;
}

/* The INOUT arguments: status, result, rows, attempts */
static Datum
run_result(FunctionCallInfo fcinfo, const TwOutcome *outcome)
{
	TupleDesc	tupdesc;
	Datum		values[4] = {0};
	bool		nulls[4] = {0};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "tw.run must return a row");
	values[0] = CStringGetTextDatum(tw_history_status(outcome->status));
	nulls[1] = outcome->result == NULL;
	values[1] = JsonbPGetDatum(outcome->result);
	nulls[2] = !outcome->has_rows;
	values[2] = Int64GetDatum(outcome->rows);
	values[3] = Int32GetDatum(outcome->attempts);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
}

/*
 * CALL tw.run(block, params, job, batch_id, epoch, version, conflicts,
 * max_attempts, INOUT status, INOUT result, INOUT rows, INOUT attempts)
 */
Datum
tw_run(PG_FUNCTION_ARGS)
{
	TwOutcome	outcome;
	PsmRun	   *run;
	Datum		result;

	psm_run_require_call(fcinfo, "tw.run");
	run = run_create(fcinfo);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	psm_run_batch(run, &outcome);
	SPI_finish();
	result = run_result(fcinfo, &outcome);
	/* the portal may be that of a DO block with very many calls */
	MemoryContextDelete(run->mcxt);
	PG_RETURN_DATUM(result);
}
