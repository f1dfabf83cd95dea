/*
 * progress.c
 *		What a publish is at, for its client and for other sessions.
 *
 * The client gets a NOTICE for each phase that ends, and now and then within one,
 * as soon as a publish has run for QUIET_SECONDS: a short one says nothing.
 *
 * Other sessions look at tw.publish_progress.  It is kept in shared memory, so it
 * needs the library in shared_preload_libraries; without it the view is empty.
 * Each backend has a slot there, written by itself alone.
 *
 * Locks: a slot's spinlock, held for a copy.
 */
#include "stage/stage.h"

#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(tw_publish_progress);

#define QUIET_SECONDS	2
#define NOTICE_SECONDS	10
#define TABLE_BYTES		192

/* What is known of a publish; ours, and copied to our slot */
typedef struct Progress
{
	int			pid;			/* 0: no publish is under way */
	Oid			database;
	Oid			owner;			/* of the job */
	char		job[TW_JOB_MAX_BYTES + 1];
	char		batch_id[TW_BATCH_ID_MAX_BYTES + 1];
	char		phase[32];
	char		table[TABLE_BYTES];
	int64		rows;			/* done in this phase */
	int64		total;			/* of this phase; -1: not known */
	TimestampTz started_at;
	TimestampTz phase_at;		/* when the phase began */
} Progress;

typedef struct Slot
{
	slock_t		lock;
	Progress	progress;
} Slot;

static Slot *slots = NULL;		/* MaxBackends of them in shared memory; NULL: not preloaded */
static Progress mine;
static TimestampTz noticed_at;

static shmem_request_hook_type next_request = NULL;
static shmem_startup_hook_type next_startup = NULL;

/* ---------- shared memory ---------- */

static Size
slots_size(void)
{
	return mul_size(MaxBackends, sizeof(Slot));
}

static void
request(void)
{
	if (next_request != NULL)
		next_request();
	RequestAddinShmemSpace(slots_size());
}

static void
startup(void)
{
	bool		found;

	if (next_startup != NULL)
		next_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	slots = ShmemInitStruct("transactional_writer progress", slots_size(), &found);
	if (!found)
	{
		memset(slots, 0, slots_size());
		for (int i = 0; i < MaxBackends; i++)
			SpinLockInit(&slots[i].lock);
	}
	LWLockRelease(AddinShmemInitLock);
}

/* From _PG_init() */
void
tw_progress_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	next_request = shmem_request_hook;
	shmem_request_hook = request;
	next_startup = shmem_startup_hook;
	shmem_startup_hook = startup;
}

static void
share(void)
{
	Slot	   *slot;

	if (slots == NULL || TW_MY_PROC_NUMBER >= MaxBackends)
		return;
	slot = &slots[TW_MY_PROC_NUMBER];
	SpinLockAcquire(&slot->lock);
	slot->progress = mine;
	SpinLockRelease(&slot->lock);
}

/* ---------- the client ---------- */

static void
notice(bool ended)
{
	TimestampTz now = GetCurrentTimestamp();
	double		seconds = Max((now - mine.phase_at) / 1e6, 1e-6);

	if (!TimestampDifferenceExceeds(mine.started_at, now, QUIET_SECONDS * 1000) ||
		(!ended && !TimestampDifferenceExceeds(noticed_at, now, NOTICE_SECONDS * 1000)))
		return;
	noticed_at = now;
	if (ended)
		ereport(NOTICE,
				(errmsg("%s %s: %lld rows in %.1f s, %.0f rows/s", mine.phase, mine.table,
						(long long) mine.rows, seconds, mine.rows / seconds)));
	else
		ereport(NOTICE,
				(errmsg("%s %s: %lld of %lld rows, %.0f rows/s, %.0f s left", mine.phase, mine.table,
						(long long) mine.rows, (long long) mine.total, mine.rows / seconds,
						mine.rows > 0 ? seconds / mine.rows * (mine.total - mine.rows) : 0)));
}

/* ---------- for publish.c ---------- */

void
stage_progress_begin(const StageBatch *batch)
{
	TwJob		job;

	memset(&mine, 0, sizeof(mine));
	tw_job_require(batch->job, &job);
	mine.pid = MyProcPid;
	mine.database = MyDatabaseId;
	mine.owner = job.owner;
	strlcpy(mine.job, batch->job, sizeof(mine.job));
	strlcpy(mine.batch_id, batch->batch_id, sizeof(mine.batch_id));
	mine.started_at = mine.phase_at = noticed_at = GetCurrentTimestamp();
	mine.total = -1;
	share();
}

void
stage_progress_phase(const char *phase, const char *table, int64 total)
{
	strlcpy(mine.phase, phase, sizeof(mine.phase));
	mine.table[0] = '\0';
	if (table != NULL)
		strlcpy(mine.table, pnstrdup(table, pg_mbcliplen(table, strlen(table), TABLE_BYTES - 1)),
				sizeof(mine.table));
	mine.rows = 0;
	mine.total = total;
	mine.phase_at = GetCurrentTimestamp();
	share();
}

void
stage_progress_rows(int64 rows)
{
	mine.rows = rows;
	share();
	notice(false);
}

void
stage_progress_done(int64 rows)
{
	mine.rows = rows;
	share();
	notice(true);
}

/* Also for the end of a transaction, however it comes */
void
tw_progress_end(void)
{
	if (mine.pid == 0)
		return;
	mine.pid = 0;
	share();
}

/* ---------- for other sessions ---------- */

/* tw.publish_progress(): what the caller may know of the publishes of this database */
Datum
tw_publish_progress(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		monitor = has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; slots != NULL && i < MaxBackends; i++)
	{
		Progress	progress;
		Datum		values[9];
		bool		nulls[9] = {false};

		SpinLockAcquire(&slots[i].lock);
		progress = slots[i].progress;
		SpinLockRelease(&slots[i].lock);
		if (progress.pid == 0 || progress.database != MyDatabaseId ||
			!(monitor || has_privs_of_role(GetUserId(), progress.owner)))
			continue;
		values[0] = Int32GetDatum(progress.pid);
		values[1] = CStringGetTextDatum(progress.job);
		values[2] = CStringGetTextDatum(progress.batch_id);
		nulls[3] = progress.phase[0] == '\0';
		values[3] = CStringGetTextDatum(progress.phase);
		nulls[4] = progress.table[0] == '\0';
		values[4] = CStringGetTextDatum(progress.table);
		values[5] = Int64GetDatum(progress.rows);
		nulls[6] = progress.total < 0;
		values[6] = Int64GetDatum(progress.total);
		values[7] = TimestampTzGetDatum(progress.started_at);
		values[8] = TimestampTzGetDatum(progress.phase_at);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
