/*
 * open.c
 *		The batches this transaction has claimed: their finish, and the last check
 *		before it commits.
 *
 * The list hangs on TopTransactionContext and follows subtransactions: what was
 * claimed in one that rolls back is no longer open, what was finished in one is
 * unfinished again.
 *
 * Locks: at the commit or PREPARE of a batch with an epoch, job.c's lock on the
 * epoch, shared; at that of one with a version, job.c's lock on versions, exclusive.
 */
#include "tw.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

static List *open_batches = NIL;	/* TwOpenBatch, the latest last */

static void check_epoch(TwOpenBatch *open, bool prepare);
static void check_versions(bool prepare);
static void warn_of_empty(void);
static int	compare_versions(const ListCell *a, const ListCell *b);
static TwOpenBatch *latest_unfinished(void);

/* ---------- the list ---------- */

void
tw_open_add(const TwClaim *claim, const TwOutcome *outcome, bool in_order)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	TwOpenBatch *open = palloc0(sizeof(TwOpenBatch));

	open->job = pstrdup(claim->job);
	open->batch_id = pstrdup(claim->batch_id);
	open->has_epoch = claim->has_epoch;
	open->epoch = claim->epoch;
	open->in_order = in_order;
	open->version = claim->version;
	open->started_at = outcome->started_at;
	open->by_caller = claim->by_caller;
	open->claimed_in = GetCurrentSubTransactionId();
	open->in_block = IsTransactionBlock();
	open->claimed_to = XactLastRecEnd;
	open->claimed_by = GetCurrentCommandId(false);
	open_batches = lappend(open_batches, open);
	MemoryContextSwitchTo(old);
}

List *
tw_open_list(void)
{
	return open_batches;
}

/* The latest come first: they are who is asked for */
TwOpenBatch *
tw_open_find(const char *job, const char *batch_id)
{
	for (int i = list_length(open_batches) - 1; i >= 0; i--)
	{
		TwOpenBatch *open = (TwOpenBatch *) list_nth(open_batches, i);

		if (strcmp(open->batch_id, batch_id) == 0 && strcmp(open->job, job) == 0)
			return open;
	}
	return NULL;
}

/* ---------- the end of a transaction ---------- */

/*
 * A writer that was replaced while it ran must not commit.  The lock makes the
 * check and our commit one step for tw.init_producer.  It is not for a prepared
 * transaction to keep, since nobody knows for how long: the session holds it
 * until the transaction is prepared.
 */
static void
check_epoch(TwOpenBatch *open, bool prepare)
{
	TwJob		job;

	if (prepare)
	{
		tw_job_hold_epoch(open->job, &open->epoch_tag);
		open->epoch_held = true;
	}
	else
		tw_job_lock(open->job, TW_LOCK_EPOCH, ShareLock);
	if (!tw_job_find(open->job, &job))
		elog(ERROR, "job \"%s\" has disappeared", open->job);
	tw_job_check_epoch(open->job, &job, open->epoch);
}

static int
compare_versions(const ListCell *a, const ListCell *b)
{
	TwOpenBatch *left = (TwOpenBatch *) lfirst(a);
	TwOpenBatch *right = (TwOpenBatch *) lfirst(b);
	int			jobs = strcmp(left->job, right->job);

	if (jobs != 0)
		return jobs;
	return left->version < right->version ? -1 : left->version > right->version;
}

/*
 * tw.begin_batch outside of a transaction block: the claim commits with its statement, and what
 * the client sends behind it belongs to other transactions, while the batch counts as done.
 * Nothing was logged since the claim, and no more commands were counted than its own.
 */
static void
warn_of_empty(void)
{
	TwOpenBatch *open = list_length(open_batches) == 1 ? linitial(open_batches) : NULL;

	if (open == NULL || !open->by_caller || open->in_block ||
		open->finished_in != InvalidSubTransactionId ||
		open->claimed_to != XactLastRecEnd ||
		(MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0 ||
		GetCurrentCommandId(false) > open->claimed_by + 1)
		return;
	ereport(WARNING,
			(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
			 errmsg("batch \"%s\" of job \"%s\" is committed with nothing in it",
					open->batch_id, open->job),
			 errdetail("There is no transaction block, so what follows is not part of the batch, which counts as done."),
			 errhint("Call tw.begin_batch behind BEGIN, in the transaction that does the work.")));
}

/*
 * Nor must a version that was overtaken; of several of one job the lowest tells.
 * Two that commit at once lock their jobs in the same order.  A prepared one can
 * still be overtaken, so it keeps no lock at all.
 */
static void
check_versions(bool prepare)
{
	List	   *versioned = NIL;
	TwOpenBatch *last = NULL;
	ListCell   *lc;

	foreach(lc, open_batches)
	{
		if (((TwOpenBatch *) lfirst(lc))->in_order)
			versioned = lappend(versioned, lfirst(lc));
	}
	list_sort(versioned, compare_versions);
	foreach(lc, versioned)
	{
		TwOpenBatch *open = (TwOpenBatch *) lfirst(lc);

		if (last != NULL && strcmp(last->job, open->job) == 0)
			continue;
		last = open;
		tw_job_lock(open->job, TW_LOCK_VERSION, ExclusiveLock);
		tw_batch_check_overtaken(open->job, open->batch_id, open->version);
		if (prepare)
			tw_job_unlock(open->job, TW_LOCK_VERSION, ExclusiveLock);
	}
	list_free(versioned);
}

void
tw_open_before_commit(bool prepare)
{
	ListCell   *lc;

	foreach(lc, open_batches)
	{
		TwOpenBatch *open = (TwOpenBatch *) lfirst(lc);

		if (open->has_epoch)
			check_epoch(open, prepare);
		if (prepare)
			tw_job_check_preparable(open->job);
	}
	check_versions(prepare);
	if (!prepare)
		warn_of_empty();
}

void
tw_open_subxact_end(bool commit, SubTransactionId subid, SubTransactionId parent)
{
	ListCell   *lc;

	foreach(lc, open_batches)
	{
		TwOpenBatch *open = (TwOpenBatch *) lfirst(lc);

		if (open->claimed_in == subid && !commit)
		{
			open_batches = foreach_delete_current(open_batches, lc);
			continue;
		}
		if (open->claimed_in == subid)
			open->claimed_in = parent;
		if (open->finished_in == subid)
			open->finished_in = commit ? parent : InvalidSubTransactionId;
		if (open->marked_in == subid)
			open->marked_in = commit ? parent : InvalidSubTransactionId;
	}
}

void
tw_open_clear(void)
{
	ListCell   *lc;

	foreach(lc, open_batches)
	{
		TwOpenBatch *open = (TwOpenBatch *) lfirst(lc);

		if (open->epoch_held)
			(void) LockRelease(&open->epoch_tag, ShareLock, true);
	}
	open_batches = NIL;
}

/* ---------- the finish ---------- */

void
tw_batch_finish(TwOutcome *outcome)
{
	TwOpenBatch *open = tw_open_find(outcome->job, outcome->batch_id);
	Datum		values[TW_RESULT_NATTS];
	bool		nulls[TW_RESULT_NATTS] = {false};

	if (open == NULL || open->finished_in != InvalidSubTransactionId)
		elog(ERROR, "batch \"%s\" of job \"%s\" is not open", outcome->batch_id, outcome->job);

	outcome->finished_at = GetCurrentTimestamp();
	values[TW_RESULT_XID] = FullTransactionIdGetDatum(GetTopFullTransactionId());
	tw_batch_keys(outcome->job, outcome->batch_id, &values[TW_RESULT_JOB]);
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

/* The latest batch of tw.begin_batch that is not finished */
static TwOpenBatch *
latest_unfinished(void)
{
	bool		any = false;

	for (int i = list_length(open_batches) - 1; i >= 0; i--)
	{
		TwOpenBatch *open = (TwOpenBatch *) list_nth(open_batches, i);

		if (open->by_caller && open->finished_in == InvalidSubTransactionId)
			return open;
		any |= open->by_caller;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 any ? errmsg("every batch of this transaction is already finished") :
			 errmsg("no batch is open in this transaction"),
			 any ? errhint("Finish a batch once. " TW_HINT_STAR) :
			 errhint("Call tw.begin_batch in the same transaction first.")));
	return NULL;
}

/* tw.finish_batch(result) */
PG_FUNCTION_INFO_V1(tw_finish_batch);
Datum
tw_finish_batch(PG_FUNCTION_ARGS)
{
	TwOpenBatch *open;
	TwOutcome	outcome = {0};
	TwJob		job;

	tw_batch_check_writable("tw.finish_batch()");
	open = latest_unfinished();
	/* a function of its owner's may have begun it for somebody else */
	tw_job_require(open->job, &job);

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
