/*
 * recovery.c
 *		CALL tw.recover: a job's new writer settles what the old ones left prepared.
 *
 * The writer has its epoch from tw.init_producer by then, so no older one can
 * prepare any more (open.c), and what is in doubt is all there is.  What the
 * caller names is committed, the rest of older epochs is rolled back; a batch
 * without an epoch counts as older than any.  Batches of the writer's own epoch,
 * of other jobs, and transactions that hold a batch of another job as well, are
 * only touched when they are named.
 *
 * First everything is looked at, and refused when anything that is named can
 * neither be committed nor was, or may not be finished by the caller; only then
 * the first transaction is resolved.  Each is resolved for itself, under the
 * epoch's lock: when a newer writer takes over in the middle, the rest is his.
 *
 * Locks: one of our own on the job's name, hashed in class tw.prepared, by which
 * a second recovery of the job waits for the first.  The session holds it, since
 * a recovery goes over several transactions, and lets go of it on every way out.
 */
#include "tw.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

/* A call of tw.recover; lives in mcxt, as all that hangs on it */
typedef struct Recovery
{
	char	   *job;
	int64		epoch;
	int			nnames;
	char	  **names;			/* to be committed: gids and batch_ids */
	TwDoubt   **found;			/* for each name the prepared transaction; NULL: none */
	List	   *commit;			/* TwDoubt */
	List	   *abort;			/* TwDoubt */
	int32		committed;		/* how many it has */
	int32		aborted;
	MemoryContext mcxt;
} Recovery;

static Recovery *recovery_create(FunctionCallInfo fcinfo, MemoryContext mcxt);
static void names_from_array(Recovery *recovery, ArrayType *array);
static bool holds_job(const TwDoubt *doubt, const char *job, bool *alone);
static bool is_named(Recovery *recovery, TwDoubt *doubt);
static void plan(Recovery *recovery);
static bool in_ledger(const Recovery *recovery, const char *name);
static void check_running(const Recovery *recovery, const char *name);
static void check_names(const Recovery *recovery);
static void resolve_all(Recovery *recovery);
static void recover(Recovery *recovery);

/* ---------- arguments ---------- */

static void
names_from_array(Recovery *recovery, ArrayType *array)
{
	Datum	   *elements;
	bool	   *nulls;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls,
					  &recovery->nnames);
	recovery->names = palloc(sizeof(char *) * Max(recovery->nnames, 1));
	recovery->found = palloc0(sizeof(TwDoubt *) * Max(recovery->nnames, 1));
	for (int i = 0; i < recovery->nnames; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("commit must not contain null")));
		recovery->names[i] = TextDatumGetCString(elements[i]);
	}
}

static Recovery *
recovery_create(FunctionCallInfo fcinfo, MemoryContext mcxt)
{
	Recovery   *recovery = palloc0(sizeof(Recovery));

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job, epoch and commit must not be null"),
				 PG_ARGISNULL(1) ? errhint("Get an epoch from tw.init_producer.") : 0));
	recovery->mcxt = mcxt;
	recovery->job = text_to_cstring(PG_GETARG_TEXT_PP(0));
	recovery->epoch = PG_GETARG_INT64(1);
	names_from_array(recovery, PG_GETARG_ARRAYTYPE_P(2));
	tw_job_check_name(recovery->job);
	return recovery;
}

/* ---------- what to do ---------- */

/* Does it hold a batch of the job, and of no other one? */
static bool
holds_job(const TwDoubt *doubt, const char *job, bool *alone)
{
	bool		any = false;
	ListCell   *lc;

	*alone = true;
	foreach(lc, doubt->batches)
	{
		if (strcmp(((TwDoubtBatch *) lfirst(lc))->job, job) == 0)
			any = true;
		else
			*alone = false;
	}
	return any;
}

/* By its gid, or by one of the job's batches in it */
static bool
is_named(Recovery *recovery, TwDoubt *doubt)
{
	bool		named = false;

	for (int i = 0; i < recovery->nnames; i++)
	{
		bool		this_one = strcmp(recovery->names[i], doubt->gid) == 0;
		ListCell   *lc;

		foreach(lc, doubt->batches)
		{
			TwDoubtBatch *batch = (TwDoubtBatch *) lfirst(lc);

			this_one |= strcmp(batch->job, recovery->job) == 0 &&
				strcmp(batch->batch_id, recovery->names[i]) == 0;
		}
		if (!this_one)
			continue;
		if (recovery->found[i] != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("\"%s\" is the name of two prepared batches of job \"%s\"",
							recovery->names[i], recovery->job),
					 errdetail("They are prepared as \"%s\" and \"%s\".",
							   recovery->found[i]->gid, doubt->gid),
					 errhint("Name them by the one of gid and batch_id that tells them apart.")));
		recovery->found[i] = doubt;
		named = true;
	}
	return named;
}

static void
plan(Recovery *recovery)
{
	ListCell   *lc;

	foreach(lc, tw_doubt_list())
	{
		TwDoubt    *doubt = (TwDoubt *) lfirst(lc);
		bool		alone;

		if (!holds_job(doubt, recovery->job, &alone))
			continue;
		if (is_named(recovery, doubt))
			recovery->commit = lappend(recovery->commit, doubt);
		else if (tw_doubt_epoch(doubt, recovery->job) >= recovery->epoch)
			continue;
		else if (alone)
			recovery->abort = lappend(recovery->abort, doubt);
		else
			ereport(WARNING,
					(errmsg("prepared transaction \"%s\" is left as it is", doubt->gid),
					 errdetail("It holds batches of job \"%s\" and of another one.", recovery->job),
					 errhint("Use tw.commit_prepared or tw.abort_prepared.")));
	}
}

/* Was this gid or batch of the job committed before? */
static bool
in_ledger(const Recovery *recovery, const char *name)
{
	TwDoubt		doubt;
	bool		alone;
	Datum		keys[2];
	TwRow		row;

	tw_batch_keys(recovery->job, name, keys);
	if (tw_table_find(TW_INDEX_BATCH, SnapshotSelf, 2, keys, ForwardScanDirection, &row))
		return true;
	return tw_doubt_look(name, &doubt) == TW_DOUBT_IN_LEDGER &&
		holds_job(&doubt, recovery->job, &alone);
}

/* A transaction that may still be prepared: one that no epoch keeps from it */
static void
check_running(const Recovery *recovery, const char *name)
{
	SnapshotData dirty;
	Datum		keys[2];
	TwRow		row;
	TwDoubt		doubt;
	bool		alone;
	bool		running;

	running = tw_doubt_look(name, &doubt) == TW_DOUBT_RUNNING &&
		holds_job(&doubt, recovery->job, &alone) && tw_doubt_epoch(&doubt, recovery->job) == 0;
	if (!running)
	{
		tw_batch_keys(recovery->job, name, keys);
		InitDirtySnapshot(dirty);
		running = tw_table_find(TW_INDEX_BATCH, &dirty, 2, keys, ForwardScanDirection, &row) &&
			row.nulls[TW_BATCH_EPOCH];
	}
	if (running)
		ereport(ERROR,
				(errcode(ERRCODE_TW_JOB_IN_PROGRESS),
				 errmsg("batch \"%s\" of job \"%s\" is not prepared yet", name, recovery->job),
				 errdetail("Its transaction has no epoch, is still running, and may be prepared or roll back. Nothing was done."),
				 errhint("Try again later.")));
}

/* What is named is prepared or was committed before; otherwise the caller is mistaken */
static void
check_names(const Recovery *recovery)
{
	for (int i = 0; i < recovery->nnames; i++)
	{
		const char *name = recovery->names[i];

		if (recovery->found[i] != NULL || in_ledger(recovery, name))
			continue;
		check_running(recovery, name);
		ereport(ERROR,
				(errcode(ERRCODE_TW_UNKNOWN_BATCH),
				 errmsg("job \"%s\" has no prepared or committed batch \"%s\"", recovery->job,
						tw_excerpt(name)),
				 errdetail("It was rolled back, or never prepared, or has been removed from the ledger since. Nothing was done."),
				 errhint("The work of this batch is lost, unless it is run again.")));
	}
}

/* ---------- and to do it ---------- */

static void
resolve_all(Recovery *recovery)
{
	char	   *reason = psprintf("recovery by epoch %lld", (long long) recovery->epoch);
	ListCell   *lc;

	foreach(lc, recovery->commit)
	{
		TwDoubt    *doubt = (TwDoubt *) lfirst(lc);

		switch (tw_resolve(doubt, true, NULL, recovery->job, recovery->epoch, recovery->mcxt))
		{
			case TW_RESOLVED:
				recovery->committed++;
				break;
			case TW_RESOLVED_COMMITTED:
				break;
			case TW_RESOLVED_ABORTED:
				ereport(ERROR,
						(errcode(ERRCODE_TW_UNKNOWN_BATCH),
						 errmsg("prepared transaction \"%s\" was rolled back by somebody else",
								doubt->gid),
						 errhint("The work of its batches is lost, unless they are run again.")));
		}
	}
	foreach(lc, recovery->abort)
	{
		TwDoubt    *doubt = (TwDoubt *) lfirst(lc);

		switch (tw_resolve(doubt, false, reason, recovery->job, recovery->epoch, recovery->mcxt))
		{
			case TW_RESOLVED:
				recovery->aborted++;
				break;
			case TW_RESOLVED_COMMITTED:
				ereport(WARNING,
						(errmsg("prepared transaction \"%s\" was committed by somebody else",
								doubt->gid)));
				break;
			case TW_RESOLVED_ABORTED:
				break;
		}
	}
}

static void
recover(Recovery *recovery)
{
	TwJob		job;
	ListCell   *lc;

	tw_job_require(recovery->job, &job);
	tw_job_check_epoch(recovery->job, &job, recovery->epoch);
	plan(recovery);
	check_names(recovery);
	foreach(lc, recovery->commit)
		tw_resolution_check((TwDoubt *) lfirst(lc), true);
	foreach(lc, recovery->abort)
		tw_resolution_check((TwDoubt *) lfirst(lc), false);
	resolve_all(recovery);
}

/* CALL tw.recover(job, epoch, commit, INOUT committed, INOUT aborted) */
PG_FUNCTION_INFO_V1(tw_recover);
Datum
tw_recover(PG_FUNCTION_ARGS)
{
	MemoryContext mcxt = tw_resolution_begin(fcinfo, "tw.recover");
	Recovery   *recovery = recovery_create(fcinfo, mcxt);
	LOCKTAG		tag;
	TwJob		job;
	Datum		result[2];

	tw_prepared_check_enabled();
	tw_job_require(recovery->job, &job);
	tw_resolution_commit(mcxt);

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, tw_table_oid(TW_TABLE_PREPARED),
					   hash_bytes((const unsigned char *) recovery->job, strlen(recovery->job)), 0);
	(void) LockAcquire(&tag, ExclusiveLock, true, false);
	PG_TRY();
	{
		recover(recovery);
	}
	PG_FINALLY();
	{
		(void) LockRelease(&tag, ExclusiveLock, true);
	}
	PG_END_TRY();

	result[0] = Int32GetDatum(recovery->committed);
	result[1] = Int32GetDatum(recovery->aborted);
	PG_RETURN_DATUM(tw_resolution_end(fcinfo, mcxt, 2, result));
}
