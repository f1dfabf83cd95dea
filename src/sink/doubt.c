/*
 * doubt.c
 *		What is in doubt: prepared transactions that hold batches, as view
 *		tw.in_doubt, the worker's report and the resolving procedures see them.
 *
 * PostgreSQL says which transactions are prepared and under which gid; a dirty
 * snapshot of tw.prepared says which batches each of them holds.  The two are
 * read one after the other, so a transaction may have ended in between: who acts
 * on what is found here has to expect that it is no longer so.
 *
 * Once a transaction is no longer listed as prepared, all its rows are committed
 * for everybody, or gone.  So the list comes first and the ledger second.
 *
 * Locks: none beyond the tables'.  Where nothing is prepared no table of ours is
 * opened, and the view works on a standby.
 */
#include "tw.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

/* Columns of pg_prepared_xact(), from 1 */
enum
{
	XACT_XID = 1, XACT_GID, XACT_PREPARED, XACT_ROLE, XACT_DATABASE
};

/* Columns of tw.in_doubt_batches(), from 0 */
enum
{
	DOUBT_JOB, DOUBT_BATCH_ID, DOUBT_OWNER, DOUBT_EPOCH, DOUBT_FENCED, DOUBT_GID, DOUBT_XID,
	DOUBT_PREPARED_BY, DOUBT_PREPARED_AT, DOUBT_OVERDUE, DOUBT_NATTS
};

static TwDoubt *doubt_from_datum(Datum datum);
static List *list_prepared(void);
static bool find_prepared(const char *gid, TwDoubt *doubt);
static TwDoubtBatch *batch_from_row(const TwRow *row);
static List *batches_of(const TwDoubt *doubt);
static TwDoubtState recorded(const char *gid, List **batches);
static int64 timeouts_passed(const TwDoubt *doubt, TimestampTz when);
static bool may_see(const TwJob *job);

/* ---------- prepared transactions ---------- */

static TwDoubt *
doubt_from_datum(Datum datum)
{
	HeapTupleHeader tuple = DatumGetHeapTupleHeader(datum);
	TwDoubt    *doubt = palloc0(sizeof(TwDoubt));
	bool		isnull;

	doubt->xid = DatumGetTransactionId(GetAttributeByNum(tuple, XACT_XID, &isnull));
	doubt->gid = TextDatumGetCString(GetAttributeByNum(tuple, XACT_GID, &isnull));
	doubt->prepared_at = DatumGetTimestampTz(GetAttributeByNum(tuple, XACT_PREPARED, &isnull));
	doubt->role = DatumGetObjectId(GetAttributeByNum(tuple, XACT_ROLE, &isnull));
	doubt->database = DatumGetObjectId(GetAttributeByNum(tuple, XACT_DATABASE, &isnull));
	return doubt;
}

/*
 * All prepared transactions of the server.  PostgreSQL lists them by a function
 * for SQL only, which is called here as the executor would.
 */
static List *
list_prepared(void)
{
	LOCAL_FCINFO(fcinfo, 0);
	FmgrInfo	function;
	ReturnSetInfo info = {0};
	List	   *result = NIL;

	fmgr_info(F_PG_PREPARED_XACT, &function);
	info.type = T_ReturnSetInfo;
	info.econtext = CreateStandaloneExprContext();
	info.allowedModes = SFRM_ValuePerCall;
	info.returnMode = SFRM_ValuePerCall;
	InitFunctionCallInfoData(*fcinfo, &function, 0, InvalidOid, NULL, (Node *) &info);

	for (;;)
	{
		Datum		datum;

		fcinfo->isnull = false;
		info.isDone = ExprSingleResult;
		datum = FunctionCallInvoke(fcinfo);
		if (info.isDone != ExprMultipleResult)
			break;
		result = lappend(result, doubt_from_datum(datum));
	}
	FreeExprContext(info.econtext, true);
	return result;
}

static bool
find_prepared(const char *gid, TwDoubt *doubt)
{
	ListCell   *lc;

	foreach(lc, list_prepared())
	{
		TwDoubt    *candidate = (TwDoubt *) lfirst(lc);

		if (strcmp(candidate->gid, gid) != 0)
			continue;
		*doubt = *candidate;
		return true;
	}
	return false;
}

/* ---------- their batches ---------- */

static TwDoubtBatch *
batch_from_row(const TwRow *row)
{
	TwDoubtBatch *batch = palloc0(sizeof(TwDoubtBatch));

	batch->job = TextDatumGetCString(row->values[TW_PREPARED_JOB]);
	batch->batch_id = TextDatumGetCString(row->values[TW_PREPARED_BATCH_ID]);
	batch->has_epoch = !row->nulls[TW_PREPARED_EPOCH];
	if (batch->has_epoch)
		batch->epoch = DatumGetInt64(row->values[TW_PREPARED_EPOCH]);
	return batch;
}

/* The batches of a prepared transaction of this database, committed by now or not */
static List *
batches_of(const TwDoubt *doubt)
{
	Datum		key = CStringGetTextDatum(doubt->gid);
	SnapshotData dirty;
	TwScan	   *scan;
	TwRow		row;
	List	   *result = NIL;

	if (doubt->database != MyDatabaseId)
		return NIL;
	InitDirtySnapshot(dirty);
	scan = tw_table_scan_begin(TW_INDEX_PREPARED, &dirty, 1, &key);
	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		FullTransactionId xid = DatumGetFullTransactionId(row.values[TW_PREPARED_XID]);

		if (XidFromFullTransactionId(xid) == doubt->xid)
			result = lappend(result, batch_from_row(&row));
	}
	tw_table_scan_end(scan);
	return result;
}

/* Where a gid stands that is not prepared */
static TwDoubtState
recorded(const char *gid, List **batches)
{
	Datum		key = CStringGetTextDatum(gid);
	TwDoubtState state = TW_DOUBT_UNKNOWN;
	SnapshotData dirty;
	TwScan	   *scan;
	TwRow		row;

	*batches = NIL;
	InitDirtySnapshot(dirty);
	scan = tw_table_scan_begin(TW_INDEX_PREPARED, &dirty, 1, &key);
	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		state = TransactionIdIsValid(dirty.xmin) || dirty.speculativeToken != 0 ?
			TW_DOUBT_RUNNING : TW_DOUBT_IN_LEDGER;
		*batches = lappend(*batches, batch_from_row(&row));
	}
	tw_table_scan_end(scan);
	return state;
}

List *
tw_doubt_list(void)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, list_prepared())
	{
		TwDoubt    *doubt = (TwDoubt *) lfirst(lc);

		doubt->batches = batches_of(doubt);
		if (doubt->batches != NIL)
			result = lappend(result, doubt);
	}
	return result;
}

TwDoubtState
tw_doubt_look(const char *gid, TwDoubt *doubt)
{
	TwDoubtState state;

	for (;;)
	{
		TransactionId xid;

		CHECK_FOR_INTERRUPTS();
		memset(doubt, 0, sizeof(*doubt));
		if (find_prepared(gid, doubt))
		{
			doubt->batches = batches_of(doubt);
			if (doubt->batches != NIL || doubt->database != MyDatabaseId)
				return TW_DOUBT_PREPARED;

			/* it holds none, or has just been rolled back */
			xid = doubt->xid;
			if (find_prepared(gid, doubt) && doubt->xid == xid)
				return TW_DOUBT_PREPARED;
			continue;
		}

		state = recorded(gid, &doubt->batches);
		if (state != TW_DOUBT_RUNNING || !find_prepared(gid, doubt))
			return state;
		/* prepared a moment ago */
	}
}

int64
tw_doubt_epoch(const TwDoubt *doubt, const char *job)
{
	int64		newest = 0;
	ListCell   *lc;

	foreach(lc, doubt->batches)
	{
		TwDoubtBatch *batch = (TwDoubtBatch *) lfirst(lc);

		if (batch->has_epoch && strcmp(batch->job, job) == 0)
			newest = Max(newest, batch->epoch);
	}
	return newest;
}

/* ---------- the alarm ---------- */

/* How often tw_prepared_timeout had passed at that time since it was prepared */
static int64
timeouts_passed(const TwDoubt *doubt, TimestampTz when)
{
	if (tw_prepared_timeout == 0 || when < doubt->prepared_at)
		return 0;
	return (when - doubt->prepared_at) / (tw_prepared_timeout * INT64CONST(1000000));
}

void
tw_doubt_report(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	foreach(lc, tw_doubt_list())
	{
		TwDoubt    *doubt = (TwDoubt *) lfirst(lc);
		ListCell   *lc2;

		if (timeouts_passed(doubt, now) == timeouts_passed(doubt, last))
			continue;
		foreach(lc2, doubt->batches)
		{
			TwDoubtBatch *batch = (TwDoubtBatch *) lfirst(lc2);

			ereport(LOG,
					(errmsg("batch \"%s\" of job \"%s\" has been in doubt for %lld s",
							batch->batch_id, batch->job,
							(long long) ((now - doubt->prepared_at) / 1000000)),
					 errdetail("Transaction %u was prepared as \"%s\" and holds back vacuum.",
							   doubt->xid, doubt->gid),
					 errhint("Resolve it with tw.commit_prepared, tw.abort_prepared or tw.recover.")));
		}
	}
	last = now;
}

/* ---------- SQL ---------- */

static bool
may_see(const TwJob *job)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_MONITOR) ||
		(job != NULL && has_privs_of_role(GetUserId(), job->owner));
}

/* tw.in_doubt_batches(); a batch whose job is gone is its preparing role's to see */
PG_FUNCTION_INFO_V1(tw_in_doubt_batches);
Datum
tw_in_doubt_batches(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *info = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, tw_doubt_list())
	{
		TwDoubt    *doubt = (TwDoubt *) lfirst(lc);
		ListCell   *lc2;

		foreach(lc2, doubt->batches)
		{
			TwDoubtBatch *batch = (TwDoubtBatch *) lfirst(lc2);
			Datum		values[DOUBT_NATTS] = {0};
			bool		nulls[DOUBT_NATTS] = {false};
			TwJob		job;
			bool		known = tw_job_find(batch->job, &job);

			if (!may_see(known ? &job : NULL) &&
				(known || !has_privs_of_role(GetUserId(), doubt->role)))
				continue;
			values[DOUBT_JOB] = CStringGetTextDatum(batch->job);
			values[DOUBT_BATCH_ID] = CStringGetTextDatum(batch->batch_id);
			nulls[DOUBT_OWNER] = nulls[DOUBT_FENCED] = !known;
			if (known)
			{
				values[DOUBT_OWNER] = ObjectIdGetDatum(job.owner);
				values[DOUBT_FENCED] = BoolGetDatum(batch->epoch < job.epoch);
			}
			nulls[DOUBT_EPOCH] = !batch->has_epoch;
			values[DOUBT_EPOCH] = Int64GetDatum(batch->epoch);
			values[DOUBT_GID] = CStringGetTextDatum(doubt->gid);
			values[DOUBT_XID] = TransactionIdGetDatum(doubt->xid);
			values[DOUBT_PREPARED_BY] = ObjectIdGetDatum(doubt->role);
			values[DOUBT_PREPARED_AT] = TimestampTzGetDatum(doubt->prepared_at);
			values[DOUBT_OVERDUE] = BoolGetDatum(timeouts_passed(doubt, now) > 0);
			tuplestore_putvalues(info->setResult, info->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}
