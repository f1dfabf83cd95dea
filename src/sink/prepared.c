/*
 * prepared.c
 *		What a transaction writes about itself when it is prepared: its gid.
 *
 * tw.prepared holds one row for each batch of a transaction that is prepared,
 * written in that transaction.  While it is prepared the row cannot be seen by
 * any snapshot but a dirty one, which doubt.c uses; after COMMIT PREPARED it says
 * for as long as the batch is in the ledger that this gid was committed; after
 * ROLLBACK PREPARED it has never been.
 *
 * There are two ways to a row.  tw.prepare_batch makes up a gid and records it at
 * once, so that it can be asked for also when the transaction is committed
 * directly.  And whatever gid PREPARE TRANSACTION is given, a driver's own for
 * one, is recorded just before the transaction is prepared, for every batch that
 * does not have it yet.  PostgreSQL does not tell its callbacks the gid: a hook
 * remembers it from the statement.
 *
 * Invariants: all rows of a gid are of one transaction, because their numbers
 * begin at 0 and (gid, number) is unique.  A gid of ours begins with the
 * transaction's id, which is never used again.
 *
 * Locks: none; a gid that somebody else has is an error, not waited for.
 */
#include "tw.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

/* How much of the job's and the batch's name goes into a gid of ours */
#define NAME_BYTES 64

/* Of this transaction, in TopTransactionContext */
static char *prepare_gid = NULL;	/* what PREPARE TRANSACTION was given */
static char *our_gid = NULL;	/* what tw.prepare_batch has handed out */
static int	next_number = 0;	/* of our_gid; never given twice */

static ProcessUtility_hook_type next_process_utility = NULL;

static void process_utility(PlannedStmt *stmt, const char *query, bool read_only_tree,
							ProcessUtilityContext context, ParamListInfo params,
							QueryEnvironment *env, DestReceiver *dest, QueryCompletion *qc);
static void append_name(StringInfo gid, const char *name);
static void make_gid(const TwOpenBatch *open);
static void record(const char *gid, int number, const TwOpenBatch *open);
static bool same_text(Datum a, Datum b);
static char *name_argument(FunctionCallInfo fcinfo, int number);
static void report_not_open(const char *job, const char *batch_id);

/* ---------- the gid ---------- */

void
tw_prepared_init(void)
{
	next_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}

static void
process_utility(PlannedStmt *stmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *env, DestReceiver *dest, QueryCompletion *qc)
{
	if (IsA(stmt->utilityStmt, TransactionStmt))
	{
		TransactionStmt *transaction = (TransactionStmt *) stmt->utilityStmt;

		if (transaction->kind == TRANS_STMT_PREPARE)
			prepare_gid = MemoryContextStrdup(TopTransactionContext, transaction->gid);
	}

	if (next_process_utility != NULL)
		next_process_utility(stmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(stmt, query, read_only_tree, context, params, env, dest, qc);
}

/* A name for people to recognise, in characters that need no quoting anywhere */
static void
append_name(StringInfo gid, const char *name)
{
	appendStringInfoChar(gid, '_');
	for (int i = 0; name[i] != '\0' && i < NAME_BYTES; i++)
	{
		char		c = name[i];
		bool		plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			(c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';

		appendStringInfoChar(gid, plain ? c : '-');
	}
}

/* tw_<xid>_<job>_<batch_id>, of the first batch that was marked */
static void
make_gid(const TwOpenBatch *open)
{
	StringInfoData gid;
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	StaticAssertStmt(3 + 20 + 2 * (NAME_BYTES + 1) < GIDSIZE, "gid does not fit");
	initStringInfo(&gid);
	appendStringInfo(&gid, "tw_" UINT64_FORMAT,
					 U64FromFullTransactionId(GetTopFullTransactionId()));
	append_name(&gid, open->job);
	append_name(&gid, open->batch_id);
	our_gid = gid.data;
	next_number = 0;
	MemoryContextSwitchTo(old);
}

/* ---------- the rows ---------- */

static void
record(const char *gid, int number, const TwOpenBatch *open)
{
	Datum		values[TW_PREPARED_NATTS];
	bool		nulls[TW_PREPARED_NATTS] = {false};

	values[TW_PREPARED_GID] = CStringGetTextDatum(gid);
	values[TW_PREPARED_NUMBER] = Int32GetDatum(number);
	values[TW_PREPARED_XID] = FullTransactionIdGetDatum(GetTopFullTransactionId());
	values[TW_PREPARED_JOB] = CStringGetTextDatum(open->job);
	values[TW_PREPARED_BATCH_ID] = CStringGetTextDatum(open->batch_id);
	nulls[TW_PREPARED_EPOCH] = !open->has_epoch;
	values[TW_PREPARED_EPOCH] = Int64GetDatum(open->epoch);

	if (!tw_table_insert_new(TW_TABLE_PREPARED, values, nulls))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("transaction identifier \"%s\" is in use or has been used before", gid),
				 errdetail("It belongs to another batch, which is in the ledger or in progress."),
				 errhint("Use another identifier for each transaction.")));
}

/*
 * Everybody's data are written by now, and ours have no triggers that would be
 * lost.  Whether the gid is in use already is PostgreSQL's to say, a moment later.
 */
void
tw_prepared_before_prepare(void)
{
	ListCell   *lc;
	int			number = 0;

	foreach(lc, tw_open_list())
	{
		TwOpenBatch *open = (TwOpenBatch *) lfirst(lc);

		if (prepare_gid == NULL)
			elog(ERROR, "transaction is being prepared without an identifier");
		if (our_gid == NULL || strcmp(our_gid, prepare_gid) != 0)
			record(prepare_gid, number++, open);
		else if (open->marked_in == InvalidSubTransactionId)
			record(our_gid, next_number++, open);
	}
}

void
tw_prepared_clear(void)
{
	prepare_gid = NULL;
	our_gid = NULL;
}

static bool
same_text(Datum a, Datum b)
{
	return strcmp(TextDatumGetCString(a), TextDatumGetCString(b)) == 0;
}

void
tw_prepared_forget(const TwRow *batch, bool wait)
{
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_PREPARED_XID, SnapshotSelf, 1,
										   &batch->values[TW_BATCH_XID]);
	TwRow		row;

	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		if (same_text(row.values[TW_PREPARED_JOB], batch->values[TW_BATCH_JOB]) &&
			same_text(row.values[TW_PREPARED_BATCH_ID], batch->values[TW_BATCH_BATCH_ID]))
			(void) tw_table_delete(TW_TABLE_PREPARED, &row.tuple->t_self, wait);
	}
	tw_table_scan_end(scan);
}

/* ---------- SQL ---------- */

void
tw_prepared_check_enabled(void)
{
	if (max_prepared_xacts == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("prepared transactions are disabled"),
				 errdetail("max_prepared_transactions is 0 on this server."),
				 errhint("Set max_prepared_transactions to at least the number of sessions that prepare, and restart the server.")));
}

static char *
name_argument(FunctionCallInfo fcinfo, int number)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job and batch_id must not be null")));
	return text_to_cstring(PG_GETARG_TEXT_PP(number));
}

static void
report_not_open(const char *job, const char *batch_id)
{
	Datum		keys[2];
	TwJob		job_row;
	TwRow		row;
	bool		committed;

	tw_job_require(job, &job_row);
	tw_batch_keys(job, batch_id, keys);
	committed = tw_table_find(TW_INDEX_BATCH, SnapshotSelf, 2, keys, ForwardScanDirection, &row);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("batch \"%s\" of job \"%s\" is not open in this transaction", batch_id, job),
			 committed ? errdetail("It is already committed.") : 0,
			 committed ? errhint("There is nothing to prepare: roll back.") :
			 errhint("Call tw.begin_batch in the same transaction first.")));
}

/* tw.prepare_batch(job, batch_id) */
PG_FUNCTION_INFO_V1(tw_prepare_batch);
Datum
tw_prepare_batch(PG_FUNCTION_ARGS)
{
	char	   *job = name_argument(fcinfo, 0);
	char	   *batch_id = name_argument(fcinfo, 1);
	TwOpenBatch *open;

	tw_batch_check_writable("tw.prepare_batch()");
	(void) tw_batch_requested(job, batch_id);
	tw_prepared_check_enabled();
	open = tw_open_find(job, batch_id);
	if (open == NULL)
		report_not_open(job, batch_id);
	tw_job_check_preparable(job);

	if (open->marked_in == InvalidSubTransactionId)
	{
		if (our_gid == NULL)
			make_gid(open);
		record(our_gid, next_number++, open);
		open->marked_in = GetCurrentSubTransactionId();
	}
	PG_RETURN_TEXT_P(cstring_to_text(our_gid));
}
