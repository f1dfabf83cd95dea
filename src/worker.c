/*
 * worker.c
 *		The background worker: ends staged batches that are past their time, drops
 *		what ended batches had to leave, prunes the ledgers of jobs that have a
 *		retention, and reports prepared batches that nobody resolves.
 *
 * There is one for each database of transactional_writer.worker_databases, and only
 * when the library is in shared_preload_libraries.  Without it everything else
 * works, and tw.expire_batches and tw.prune_ledger can be called by anyone.
 *
 * It does nothing that SQL could not do: each round calls the same functions, each
 * call in a transaction of its own.  An error goes to the server's log and ends that
 * call alone: what one job stumbles over must not keep the others from being cleaned
 * up.  For the same reason it waits for no lock longer than LOCK_TIMEOUT.
 */
#include "tw.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"
#include "utils/wait_event.h"

#define RESTART_SECONDS 60
#define LOCK_TIMEOUT "10s"

/* found by name by the postmaster */
PGDLLEXPORT void tw_worker_main(Datum main_arg);

/* What to do in a transaction, where the extension is */
typedef void (*Step) (void *arg);

/* A call of one of our functions */
typedef struct Call
{
	const char *sql;
	const char *job;			/* its argument; NULL: none */
	int64		result;			/* 0 also when it has failed */
} Call;

/* A list of jobs, in memory of its own */
typedef struct Jobs
{
	List	   *names;
	MemoryContext context;
} Jobs;

/*
 * Does something in a transaction of its own.  The caller's memory context is kept,
 * which a commit by itself would not do.
 */
static void
in_transaction(const char *activity, Step step, void *arg)
{
	MemoryContext caller = CurrentMemoryContext;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		pgstat_report_activity(STATE_RUNNING, activity);
		if (OidIsValid(get_extension_oid("transactional_writer", true)))
			step(arg);
		PopActiveSnapshot();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		EmitErrorReport();
		AbortCurrentTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
}

static void
run_call(void *arg)
{
	Call	   *call = arg;
	Oid			types[1] = {TEXTOID};
	Datum		values[1] = {0};
	bool		isnull;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (call->job != NULL)
		values[0] = CStringGetTextDatum(call->job);
	if (SPI_execute_with_args(call->sql, call->job != NULL, types, values, NULL, false,
							  1) != SPI_OK_SELECT)
		elog(ERROR, "could not run \"%s\"", call->sql);
	if (SPI_processed > 0)
		call->result = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1,
												   &isnull));
	SPI_finish();
}

static int64
call(const char *sql, const char *job)
{
	Call		this_call = {sql, job, 0};

	in_transaction(sql, run_call, &this_call);
	return this_call.result;
}

/* Finds the jobs that have a retention */
static void
find_jobs(void *arg)
{
	Jobs	   *jobs = arg;
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_JOB, GetActiveSnapshot(), 0, NULL);
	TwRow		row;

	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		MemoryContext old;

		if (row.nulls[TW_JOB_RETENTION])
			continue;
		old = MemoryContextSwitchTo(jobs->context);
		jobs->names = lappend(jobs->names, TextDatumGetCString(row.values[TW_JOB_JOB]));
		MemoryContextSwitchTo(old);
	}
	tw_table_scan_end(scan);
}

/* What is in doubt for too long goes to the log; it is never resolved by itself */
static void
report_doubt(void *arg)
{
	tw_doubt_report();
}

/* One round; context is reset after it */
static void
work(MemoryContext context)
{
	Jobs		jobs = {NIL, context};
	ListCell   *lc;
	int64		expired = call("SELECT tw.expire_batches()", NULL);

	if (expired > 0)
		ereport(LOG,
				(errmsg("aborted %lld staged batches that were past their timeout",
						(long long) expired)));
	in_transaction("looking for jobs with a retention", find_jobs, &jobs);
	foreach(lc, jobs.names)
	{
		while (call("SELECT tw.prune_ledger($1, NULL)", (char *) lfirst(lc)) > 0)
			CHECK_FOR_INTERRUPTS();
	}
	in_transaction("looking for prepared batches", report_doubt, NULL);
}

void
tw_worker_main(Datum main_arg)
{
	MemoryContext context;

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(MyBgworkerEntry->bgw_extra, NULL, 0);
	SetConfigOption("lock_timeout", LOCK_TIMEOUT, PGC_USERSET, PGC_S_OVERRIDE);
	/* a default for sessions, who may choose otherwise */
	SetConfigOption("default_transaction_read_only", "off", PGC_USERSET, PGC_S_OVERRIDE);
	/* it would end us with FATAL, and what takes long would never be done */
	tw_lift_transaction_timeout();
	context = AllocSetContextCreate(TopMemoryContext, "transactional_writer worker",
									ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		MemoryContextSwitchTo(context);
		work(context);
		MemoryContextReset(context);

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 tw_worker_interval * 1000L, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}

/*
 * From _PG_init().  Not while pg_upgrade works: a session of ours would be in the way
 * of its DROP DATABASE, and nobody may write.
 */
void
tw_worker_init(void)
{
	List	   *databases;
	ListCell   *lc;

	if (IsBinaryUpgrade || !process_shared_preload_libraries_in_progress ||
		tw_worker_databases == NULL)
		return;
	if (!SplitIdentifierString(pstrdup(tw_worker_databases), ',', &databases))
	{
		ereport(WARNING,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("transactional_writer.worker_databases is not a list of names"),
				 errdetail("No worker is started.")));
		return;
	}
	foreach(lc, databases)
	{
		BackgroundWorker worker = {0};

		if (strlen((char *) lfirst(lc)) >= NAMEDATALEN)
			continue;
		snprintf(worker.bgw_name, BGW_MAXLEN, "transactional_writer worker %s",
				 (char *) lfirst(lc));
		strcpy(worker.bgw_type, "transactional_writer worker");
		worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
		worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
		worker.bgw_restart_time = RESTART_SECONDS;
		strcpy(worker.bgw_library_name, "transactional_writer");
		strcpy(worker.bgw_function_name, "tw_worker_main");
		strlcpy(worker.bgw_extra, (char *) lfirst(lc), BGW_EXTRALEN);
		RegisterBackgroundWorker(&worker);
	}
}
