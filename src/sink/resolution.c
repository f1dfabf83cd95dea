/*
 * resolution.c
 *		Ending a prepared transaction, once, however often it is asked for:
 *		CALL tw.commit_prepared and tw.abort_prepared, and what recovery.c shares.
 *
 * COMMIT PREPARED and ROLLBACK PREPARED take effect at once, whatever becomes of
 * the transaction that they are called from.  So we are a procedure that first
 * commits what its caller has written, and refuse to run where that cannot be.
 *
 * "Not there" is never taken for "committed": a gid that is not prepared is
 * committed when tw.prepared has it, and unknown otherwise (TW010).
 *
 * Of several that resolve the same gid at once one succeeds; the others see
 * PostgreSQL's "busy" or "does not exist", caught in a subtransaction, and look
 * again.  An abort is logged, and the log committed, before it happens: after a
 * crash it may be logged twice, but is never missing.
 *
 * Locks: none but the epoch's, see tw_resolve().
 */
#include "tw.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/resowner.h"
#include "utils/wait_event.h"

/* Between two tries while somebody else is at the same gid */
#define BUSY_PAUSE_MS 5

static bool finish(const char *gid, bool commit);
static void pause_while_busy(void);
static void log_abort(const TwDoubt *doubt, const char *reason);
static bool guarded_finish(const TwDoubt *doubt, bool commit, const char *job, int64 epoch);
static void check_preparer(const TwDoubt *doubt);
static bool still_prepared(const TwDoubt *doubt, TwResolution *result);
static const char *resolve_gid(const char *gid, bool commit, const char *reason,
							   MemoryContext mcxt);
static void report_unknown(const char *gid);

/* ---------- procedures ---------- */

MemoryContext
tw_resolution_begin(FunctionCallInfo fcinfo, const char *procedure)
{
	MemoryContext mcxt;

	if (!tw_call_may_commit(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("%s cannot run inside a transaction", procedure),
				 errdetail("It takes effect at once, and could not be rolled back with the transaction."),
				 errhint("CALL it outside of a transaction block and of functions; from a driver, in autocommit mode and with no other statement in its pipeline or string.")));
	tw_batch_check_writable(psprintf("%s()", procedure));

	mcxt = AllocSetContextCreate(PortalContext, "transactional_writer resolution",
								 ALLOCSET_SMALL_SIZES);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	MemoryContextSwitchTo(mcxt);
	return mcxt;
}

/*
 * What the caller has written before us; SPI refuses in a subtransaction.  A serializable
 * transaction is ended as well, since it has a snapshot: to let go of what a prepared one of
 * its kind has read, PostgreSQL puts that in the place of the session's own, which would
 * count as running until the server stops.
 */
void
tw_resolution_commit_caller(MemoryContext mcxt)
{
	if (IsSubTransaction() || IsolationIsSerializable() ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		tw_resolution_commit(mcxt);
}

void
tw_resolution_commit(MemoryContext mcxt)
{
	SPI_commit();
	MemoryContextSwitchTo(mcxt);
}

Datum
tw_resolution_end(FunctionCallInfo fcinfo, MemoryContext mcxt, int n, Datum *values)
{
	TupleDesc	tupdesc;
	bool		nulls[8] = {false};
	Datum		result;

	SPI_finish();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != n)
		elog(ERROR, "procedure must return a row of %d columns", n);
	result = HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
	/* the portal may be that of a DO block with very many calls */
	MemoryContextDelete(mcxt);
	return result;
}

/* ---------- who may ---------- */

/* PostgreSQL demands this as well; here it is said before anything is done */
static void
check_preparer(const TwDoubt *doubt)
{
	char	   *role = GetUserNameFromId(doubt->role, true);

	if (doubt->role == GetUserId() || superuser())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to finish prepared transaction \"%s\"", doubt->gid),
			 errdetail("It was prepared by role \"%s\", and you are \"%s\".",
					   role != NULL ? role : psprintf("%u", doubt->role),
					   GetUserNameFromId(GetUserId(), false)),
			 errhint("Only that role or a superuser can finish it. A member can become that role by SET ROLE.")));
}

void
tw_resolution_check_jobs(const TwDoubt *doubt, bool lenient)
{
	ListCell   *lc;

	foreach(lc, doubt->batches)
	{
		TwDoubtBatch *batch = (TwDoubtBatch *) lfirst(lc);
		TwJob		job;

		if (!lenient || tw_job_find(batch->job, &job))
			tw_job_require(batch->job, &job);
	}
}

void
tw_resolution_check(const TwDoubt *doubt, bool commit)
{
	if (doubt->database != MyDatabaseId)
	{
		char	   *database = get_database_name(doubt->database);

		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("prepared transaction \"%s\" belongs to another database", doubt->gid),
				 errhint("Connect to database \"%s\" to finish it.",
						 database != NULL ? database : psprintf("%u", doubt->database))));
	}
	if (doubt->batches == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_TW_UNKNOWN_BATCH),
				 errmsg("prepared transaction \"%s\" holds no batch", doubt->gid),
				 errdetail("It is not of transactional_writer."),
				 errhint("Use COMMIT PREPARED or ROLLBACK PREPARED.")));
	tw_resolution_check_jobs(doubt, !commit);
	check_preparer(doubt);
}

/* ---------- the end of a prepared transaction ---------- */

static void
pause_while_busy(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, BUSY_PAUSE_MS,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* False: it is gone, or somebody else is at it just now, so look again */
static bool
finish(const char *gid, bool commit)
{
	MemoryContext mcxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		FinishPreparedTransaction(gid, commit);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(mcxt);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(mcxt);
	CurrentResourceOwner = owner;

	if (error == NULL)
		return true;
	if (error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)
		pause_while_busy();
	else if (error->sqlerrcode != ERRCODE_UNDEFINED_OBJECT)
		ReThrowError(error);
	FreeErrorData(error);
	return false;
}

static void
log_abort(const TwDoubt *doubt, const char *reason)
{
	ListCell   *lc;

	foreach(lc, doubt->batches)
	{
		TwDoubtBatch *batch = (TwDoubtBatch *) lfirst(lc);

		tw_audit_record(TW_ACTION_ABORT, batch->job, batch->batch_id, reason);
	}
}

/* The epoch cannot move while its writer resolves one transaction */
static bool
guarded_finish(const TwDoubt *doubt, bool commit, const char *job, int64 epoch)
{
	TwJob		row;
	bool		done;

	if (job == NULL)
		return finish(doubt->gid, commit);
	tw_job_lock(job, TW_LOCK_EPOCH, ShareLock);
	tw_job_require(job, &row);
	tw_job_check_epoch(job, &row, epoch);
	done = finish(doubt->gid, commit);
	tw_job_unlock(job, TW_LOCK_EPOCH, ShareLock);
	return done;
}

/* Is it still the transaction that it was?  False: *result says what has become of it. */
static bool
still_prepared(const TwDoubt *doubt, TwResolution *result)
{
	TwDoubt		now;

	*result = TW_RESOLVED_ABORTED;
	switch (tw_doubt_look(doubt->gid, &now))
	{
		case TW_DOUBT_PREPARED:
			/* the gid may be another transaction's by now */
			return now.xid == doubt->xid;
		case TW_DOUBT_IN_LEDGER:
			*result = TW_RESOLVED_COMMITTED;
			break;
		case TW_DOUBT_RUNNING:
		case TW_DOUBT_UNKNOWN:
			break;
	}
	return false;
}

TwResolution
tw_resolve(const TwDoubt *doubt, bool commit, const char *reason, const char *job, int64 epoch,
		   MemoryContext mcxt)
{
	bool		fresh = job == NULL;	/* the caller has looked just now */
	bool		logged = commit;
	TwResolution result;

	for (;; fresh = false)
	{
		if (!fresh && !still_prepared(doubt, &result))
		{
			if (logged && !commit && result == TW_RESOLVED_COMMITTED)
				log_abort(doubt, "not done: it was committed at the same time");
			return result;
		}
		if (!logged)
		{
			log_abort(doubt, reason);
			tw_resolution_commit(mcxt);
			logged = true;
		}
		else if (guarded_finish(doubt, commit, job, epoch))
			return TW_RESOLVED;
	}
}

/* ---------- SQL ---------- */

static void
report_unknown(const char *gid)
{
	ereport(ERROR,
			(errcode(ERRCODE_TW_UNKNOWN_BATCH),
			 errmsg("no batch was prepared or committed as \"%s\"", tw_excerpt(gid)),
			 errdetail("It was rolled back, or never prepared, or has been removed from the ledger since."),
			 max_prepared_xacts == 0 ?
			 errhint("This server takes no prepared transactions: max_prepared_transactions is 0.") : 0));
}

/* The status to return */
static const char *
resolve_gid(const char *gid, bool commit, const char *reason, MemoryContext mcxt)
{
	TwDoubt		doubt;
	TwResolution result = TW_RESOLVED_COMMITTED;

	switch (tw_doubt_look(gid, &doubt))
	{
		case TW_DOUBT_PREPARED:
			tw_resolution_check(&doubt, commit);
			result = tw_resolve(&doubt, commit, reason, NULL, 0, mcxt);
			break;
		case TW_DOUBT_IN_LEDGER:
			tw_resolution_check_jobs(&doubt, false);
			break;
		case TW_DOUBT_RUNNING:
			tw_resolution_check_jobs(&doubt, true);
			ereport(ERROR,
					(errcode(ERRCODE_TW_JOB_IN_PROGRESS),
					 errmsg("transaction \"%s\" is not prepared yet", gid),
					 errdetail("It is still running, and may be prepared or roll back."),
					 errhint("Try again later.")));
			break;
		case TW_DOUBT_UNKNOWN:
			report_unknown(gid);
			break;
	}

	if (result == TW_RESOLVED_COMMITTED)
	{
		if (!commit)
			ereport(WARNING,
					(errmsg("transaction \"%s\" is already committed and cannot be aborted", gid)));
		return tw_history_status(TW_ALREADY_COMMITTED);
	}
	if (commit && result == TW_RESOLVED_ABORTED)
		report_unknown(gid);
	return commit ? tw_history_status(TW_COMMITTED) : "aborted";
}

/* CALL tw.commit_prepared(gid, INOUT status) */
PG_FUNCTION_INFO_V1(tw_commit_prepared);
Datum
tw_commit_prepared(PG_FUNCTION_ARGS)
{
	MemoryContext mcxt = tw_resolution_begin(fcinfo, "tw.commit_prepared");
	char	   *gid = tw_argument_words(fcinfo, 0, "gid");
	Datum		status;

	tw_resolution_commit_caller(mcxt);
	status = CStringGetTextDatum(resolve_gid(gid, true, NULL, mcxt));
	PG_RETURN_DATUM(tw_resolution_end(fcinfo, mcxt, 1, &status));
}

/* CALL tw.abort_prepared(gid, reason, INOUT status) */
PG_FUNCTION_INFO_V1(tw_abort_prepared);
Datum
tw_abort_prepared(PG_FUNCTION_ARGS)
{
	MemoryContext mcxt = tw_resolution_begin(fcinfo, "tw.abort_prepared");
	char	   *gid = tw_argument_words(fcinfo, 0, "gid");
	char	   *reason = tw_argument_words(fcinfo, 1, "reason");
	Datum		status;

	tw_resolution_commit_caller(mcxt);
	status = CStringGetTextDatum(resolve_gid(gid, false, reason, mcxt));
	PG_RETURN_DATUM(tw_resolution_end(fcinfo, mcxt, 1, &status));
}
