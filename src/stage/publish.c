/*
 * publish.c
 *		tw.publish: all that the tasks have staged goes into the targets, in one
 *		transaction, or nothing does.
 *
 * The order of things: lock the batch, claim it in the ledger, check that the
 * tasks are complete and their rows there, run the audit block, evaluate the
 * guards, write each target, finish the ledger's row, drop the staging.  An error
 * anywhere is an ordinary error: everything stays staged.
 *
 * Locks: the batch's, exclusive.  On a target what INSERT takes for append, and
 * ShareRowExclusiveLock for the other modes, on its partitions as well, which keeps other
 * writers out but no reader; all of them before the first is written, in the order of their OIDs,
 * so that two batches with the same targets wait for each other instead of
 * deadlocking.
 */
#include "stage/stage.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

PG_FUNCTION_INFO_V1(tw_publish);

TwBlockRunner tw_block_runner = NULL;

#define MAX_NAMED_TASKS 20

/* Of so many tasks at most the missing ones are looked for by their names */
#define MAX_NUMBERED_TASKS 100000

/* A publish that is under way */
typedef struct Publish
{
	List	   *targets;		/* StageTarget */
	StageSql   *sqls;			/* one each; of those that were not swapped */
	TransactionId newest_task;
	int64		rows;
	StringInfoData operations;	/* JSON array, without its end */
} Publish;

static Jsonb *
json_of(const char *text)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}

/* ---------- the tasks ---------- */

/* The names in a list, the first MAX_NAMED_TASKS of them */
static char *
names_of(const List *names)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, names)
	{
		if (foreach_current_index(lc) == MAX_NAMED_TASKS)
		{
			appendStringInfo(&buf, " and %d more", list_length(names) - MAX_NAMED_TASKS);
			break;
		}
		appendStringInfo(&buf, "%s\"%s\"", foreach_current_index(lc) > 0 ? ", " : "",
						 (char *) lfirst(lc));
	}
	return buf.data;
}

/* Splits "part-07" into "part-" and 7; false: it does not end with a number */
static bool
split_name(const char *name, int *prefix, int *digits, int64 *number)
{
	int			length = strlen(name);
	int			start = length;

	while (start > 0 && name[start - 1] >= '0' && name[start - 1] <= '9')
		start--;
	if (start == length || length - start > 9)
		return false;
	*prefix = start;
	*digits = length - start;
	*number = strtol(name + start, NULL, 10);
	return true;
}

/*
 * The names that are missing, where the tasks are numbered from 0 or 1, with the
 * same text before the number.  NIL: they cannot be told.
 */
static List *
missing_names(const List *tasks, int expected)
{
	bool	   *seen;
	List	   *missing = NIL;
	int			prefix = -1;
	int			width = 0;
	char	   *first = NULL;
	ListCell   *lc;

	if (expected > MAX_NUMBERED_TASKS)
		return NIL;
	seen = palloc0(sizeof(bool) * (expected + 1));
	foreach(lc, tasks)
	{
		char	   *name = ((StageTask *) lfirst(lc))->task;
		int			this_prefix;
		int			digits;
		int64		number;

		if (!split_name(name, &this_prefix, &digits, &number) || number > expected)
			return NIL;
		if (first == NULL)
			first = name;
		else if (this_prefix != prefix || strncmp(first, name, prefix) != 0)
			return NIL;
		prefix = this_prefix;
		/* a zero in front: all are of this width */
		if (digits > 1 && name[this_prefix] == '0')
			width = digits;
		seen[number] = true;
	}
	if (first == NULL || (seen[0] && seen[expected]))
		return NIL;
	for (int i = seen[expected] ? 1 : 0; i <= (seen[expected] ? expected : expected - 1); i++)
	{
		if (!seen[i])
			missing = lappend(missing, psprintf("%.*s%0*d", prefix, first, width, i));
	}
	/* neither end is there: which of the two is meant? */
	if (!seen[0] && !seen[expected])
	{
		char	   *either = psprintf("%s\" or \"%.*s%0*d", (char *) linitial(missing),
									  prefix, first, width, expected);

		missing = lappend(list_delete_first(missing), either);
	}
	return missing;
}

static void
check_tasks(const StageBatch *batch, const List *tasks)
{
	int			done = list_length(tasks);
	List	   *lost = NIL;
	ListCell   *lc;

	foreach(lc, tasks)
	{
		if (((StageTask *) lfirst(lc))->lost)
			lost = lappend(lost, ((StageTask *) lfirst(lc))->task);
	}
	if (lost != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_TW_STAGING_LOST),
				 errmsg("rows staged for batch \"%s\" of job \"%s\" were lost",
						batch->batch_id, batch->job),
				 errdetail("The server has crashed, and the staging tables are unlogged. Tasks to run again: %s.",
						   names_of(lost)),
				 errhint("Attach, load and commit these tasks again; the others' rows are still staged.")));
	if (batch->expected_tasks < 0 || done == batch->expected_tasks)
		return;
	if (done > batch->expected_tasks)
		ereport(ERROR,
				(errcode(ERRCODE_TW_INCOMPLETE_BATCH),
				 errmsg("batch \"%s\" of job \"%s\" has more tasks than expected",
						batch->batch_id, batch->job),
				 errdetail("%d tasks are committed, %d are expected.", done, batch->expected_tasks),
				 errhint("Look at tw.staged_tasks; abort the batch if a task does not belong to it.")));
	else
	{
		List	   *missing = missing_names(tasks, batch->expected_tasks);

		ereport(ERROR,
				(errcode(ERRCODE_TW_INCOMPLETE_BATCH),
				 errmsg("batch \"%s\" of job \"%s\" is not complete", batch->batch_id, batch->job),
				 missing != NIL ?
				 errdetail("%d of %d tasks are committed. Missing: %s.", done,
						   batch->expected_tasks, names_of(missing)) :
				 errdetail("%d of %d tasks are committed.", done, batch->expected_tasks),
				 errhint("Committed tasks are in tw.staged_tasks. Publish again when the others have committed.")));
	}
}

/*
 * Adds up the manifest, and returns the latest transaction of a task.  A task that our
 * snapshot does not show cannot be published with it.  One whose transaction was another
 * server's, before a dump and restore, is as old as any.
 */
static TransactionId
sum_rows(const List *tasks, const List *targets)
{
	FullTransactionId newest = InvalidFullTransactionId;
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, tasks)
	{
		StageTask  *task = (StageTask *) lfirst(lc);
		TransactionId xid = XidFromFullTransactionId(task->xid);
		bool		ours = FullTransactionIdPrecedes(task->xid, ReadNextFullTransactionId());

		if (ours && IsolationUsesXactSnapshot() && !TransactionIdIsCurrentTransactionId(xid) &&
			XidInMVCCSnapshot(xid, GetActiveSnapshot()))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not publish because task \"%s\" was committed after this transaction began",
							task->task),
					 errhint("Publish again in a new transaction.")));
		foreach(lc2, targets)
		{
			if (foreach_current_index(lc2) < task->nrows)
				((StageTarget *) lfirst(lc2))->staged += task->rows[foreach_current_index(lc2)];
		}
		if (ours && FullTransactionIdPrecedes(newest, task->xid))
			newest = task->xid;
	}
	return XidFromFullTransactionId(newest);
}

/* ---------- running statements ---------- */

static uint64
run_sql(const char *sql)
{
	if (SPI_execute(sql, false, 0) < 0)
		elog(ERROR, "could not run \"%s\"", sql);
	return SPI_processed;
}

/* A look at the staged rows: the first row of the result, NULL when there is none */
static SPITupleTable *
look(const char *sql)
{
	if (SPI_execute(sql, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not run \"%s\"", sql);
	return SPI_processed > 0 ? SPI_tuptable : NULL;
}

/* The n columns of a row as (a, b) */
static char *
row_as_text(SPITupleTable *row, int n)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '(');
	for (int i = 1; i <= n; i++)
	{
		char	   *value = SPI_getvalue(row->vals[0], row->tupdesc, i);

		appendStringInfo(&buf, "%s%s", i > 1 ? ", " : "", value == NULL ? "null" : value);
	}
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* ---------- what is staged ---------- */

/* TW009 unless there are as many rows as the tasks say */
static void
compare_count(const StageTarget *target, int64 count)
{
	if (count != target->staged)
		ereport(ERROR,
				(errcode(ERRCODE_TW_STAGING_LOST),
				 errmsg("what is staged for target %s is not what the tasks have staged",
						target->quoted),
				 errdetail("The tasks have committed %lld rows, and there are %lld.",
						   (long long) target->staged, (long long) count),
				 errhint("Somebody has changed %s. Abort the batch with tw.abort_batch, and run it again.",
						 target->staging_quoted)));
}

static void
count_staged(const StageTarget *target)
{
	SPITupleTable *row = look(psprintf("SELECT pg_catalog.count(*) FROM %s",
									   target->staging_quoted));
	bool		isnull;

	compare_count(target, DatumGetInt64(SPI_getbinval(row->vals[0], row->tupdesc, 1, &isnull)));
}

static char *
keys_as_text(const StageTarget *target)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '(');
	foreach(lc, target->keys)
		appendStringInfo(&buf, "%s%s", foreach_current_index(lc) > 0 ? ", " : "",
						 stage_key_as_text(target, (StageKey *) lfirst(lc)));
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* Errors that name the row, before anything is written */
static void
check_staged(const StageTarget *target, const StageSql *sql)
{
	SPITupleTable *row;
	int			nkeys = list_length(target->keys);

	if (sql->misplaced != NULL && (row = look(sql->misplaced)) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_WITH_CHECK_OPTION_VIOLATION),
				 errmsg("a row staged for target %s is outside of the part that is overwritten",
						target->quoted),
				 errdetail("Row %s does not satisfy \"%s\".",
						   tw_excerpt(SPI_getvalue(row->vals[0], row->tupdesc, 1)),
						   tw_excerpt(target->where))));
	if (sql->null_key != NULL && (row = look(sql->null_key)) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NOT_NULL_VIOLATION),
				 errmsg("a row staged for target %s has a null in its key", target->quoted),
				 errdetail("Its key is %s=%s.", keys_as_text(target),
						   tw_excerpt(row_as_text(row, nkeys)))));
	if (sql->duplicate != NULL && (row = look(sql->duplicate)) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("a key is staged more than once for target %s", target->quoted),
				 errdetail("Key %s=%s is in %s rows.", keys_as_text(target),
						   tw_excerpt(row_as_text(row, nkeys)),
						   SPI_getvalue(row->vals[0], row->tupdesc, nkeys + 1)),
				 errhint("Give the target an \"order_by\": of the rows of a key the first is taken.")));
}

/* A column that numbers itself is left to the target when no task has given it a value */
static void
leave_out_numbered(StageTarget *target)
{
	ListCell   *lc;

	foreach(lc, target->columns)
	{
		StageColumn *column = (StageColumn *) lfirst(lc);

		if (column->numbered)
			column->left_out = look(stage_sql_any_value(target, column)) == NULL;
	}
}

/* ---------- the audit ---------- */

/*
 * The caller's search_path with the staging schema in front, also of temporary tables, which
 * are looked for first where a path does not say otherwise
 */
static char *
audit_path(const StageBatch *batch)
{
	char	   *schema = stage_schema_name(batch->number);
	List	   *path;
	ListCell   *lc;

	if (!SplitIdentifierString(pstrdup(namespace_search_path), ',', &path) || path == NIL)
		return psprintf("%s, pg_temp", schema);
	foreach(lc, path)
	{
		if (strcmp((char *) lfirst(lc), "pg_temp") == 0)
			return psprintf("%s, %s", schema, namespace_search_path);
	}
	return psprintf("%s, pg_temp, %s", schema, namespace_search_path);
}

/* Runs the block on what is staged; it may only look */
static void
run_audit(const StageBatch *batch, const char *audit)
{
	bool		save_read_only = XactReadOnly;
	int			nestlevel = NewGUCNestLevel();
	TwOutcome	ignored = {0};
	Jsonb	   *params = json_of("{}");

	if (tw_block_runner == NULL)
		elog(ERROR, "there is no block language");
	(void) set_config_option("search_path", audit_path(batch), PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	XactReadOnly = true;
	PG_TRY();
	{
		tw_block_runner(audit, strlen(audit), params, &ignored);
	}
	PG_FINALLY();
	{
		XactReadOnly = save_read_only;
	}
	PG_END_TRY();
	AtEOXact_GUC(true, nestlevel);
}

/* ---------- writing ---------- */

static int
compare_targets(const ListCell *a, const ListCell *b)
{
	Oid			one = ((StageTarget *) lfirst(a))->target;
	Oid			other = ((StageTarget *) lfirst(b))->target;

	return one < other ? -1 : one > other;
}

/* Here, so that an error can say what was waited for */
static void
lock_table(const StageBatch *batch, Oid relid, LOCKMODE mode, const char *what)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	tw_job_wait_for_lock(&tag, mode, what, batch->job, batch->batch_id);
}

/* Who writes a partition by its own name takes no lock on the table that it is a part of */
static void
lock_parts(const StageBatch *batch, const StageTarget *target, LOCKMODE mode)
{
	ListCell   *lc;

	if (mode < ShareRowExclusiveLock ||
		!(target->relkind == RELKIND_PARTITIONED_TABLE || target->hypertable))
		return;
	foreach(lc, find_all_inheritors(target->target, NoLock, NULL))
	{
		if (lfirst_oid(lc) != target->target)
			lock_table(batch, lfirst_oid(lc), mode,
					   psprintf("partition %s of target %s of batch",
								get_rel_name(lfirst_oid(lc)), target->name));
	}
}

static void
lock_targets(const StageBatch *batch, const List *targets)
{
	List	   *sorted = list_copy(targets);
	ListCell   *lc;

	list_sort(sorted, compare_targets);
	foreach(lc, sorted)
	{
		StageTarget *target = (StageTarget *) lfirst(lc);
		LOCKMODE	mode = target->mode == STAGE_APPEND ? RowExclusiveLock : ShareRowExclusiveLock;

		lock_table(batch, target->target, mode, psprintf("target %s of batch", target->name));
		stage_target_load(target, mode);
		lock_parts(batch, target, mode);
		target->staging_name = get_rel_name(target->staging);
		if (target->staging_name == NULL)
			target->staging_name = "";
		target->staging_quoted =
			quote_qualified_identifier(target->schema, target->staging_name);
		stage_table_check(target);
		if (target->placement != TW_IN_TABLE && target->mode != STAGE_APPEND)
			stage_lock_everywhere(target);
	}
	list_free(sorted);
}

/* What one target's publish did, for the outcome's operations */
static void
append_operation(Publish *publish, const StageTarget *target, const char *command, int64 rows)
{
	StringInfo	buf = &publish->operations;

	appendStringInfo(buf, "%s{\"command\": ", buf->len > 1 ? ", " : "");
	escape_json(buf, command);
	appendStringInfoString(buf, ", \"table\": ");
	escape_json(buf, target->quoted);
	appendStringInfo(buf, ", \"rows\": %lld, \"staged\": %lld, \"executions\": 1}",
					 (long long) rows, (long long) target->staged);
	publish->rows += rows;
}

/* Rows of a table may refer to rows of one before it: those go last */
static void
delete_rows(Publish *publish, bool last)
{
	for (int i = list_length(publish->targets) - 1; i >= 0; i--)
	{
		StageTarget *target = (StageTarget *) list_nth(publish->targets, i);

		if (target->moves && publish->sqls[i].delete != NULL &&
			publish->sqls[i].delete_last == last)
		{
			int64		rows;

			stage_progress_phase("DELETE", target->quoted, -1);
			rows = run_sql(publish->sqls[i].delete);
			stage_progress_done(rows);
			append_operation(publish, target, "DELETE", rows);
		}
	}
}

/* Many rows at a time where that is possible */
static int64
append_rows(const StageTarget *target, const StageSql *sql)
{
	int64		rows = stage_copy(target);

	if (rows >= 0)
	{
		compare_count(target, rows);
		return rows;
	}
	count_staged(target);
	return run_sql(sql->write);
}

static bool
is_partitioned(const StageTarget *target)
{
	return get_rel_relkind(target->staging) == RELKIND_PARTITIONED_TABLE;
}

/* Moves what is staged for targets that say so: the checks first, so that an error names the row */
static void
move_rows(Publish *publish)
{
	ListCell   *lc;

	foreach(lc, publish->targets)
	{
		StageTarget *target = (StageTarget *) lfirst(lc);
		StageSql   *sql = &publish->sqls[foreach_current_index(lc)];

		if (!target->moves)
			continue;
		stage_progress_phase("check", target->quoted, target->staged);
		leave_out_numbered(target);
		stage_sql_build(target, sql);
		/* an append counts what it reads */
		if (target->mode != STAGE_APPEND)
			count_staged(target);
		check_staged(target, sql);
		stage_progress_done(target->staged);
	}
	delete_rows(publish, false);
	foreach(lc, publish->targets)
	{
		StageTarget *target = (StageTarget *) lfirst(lc);
		StageSql   *sql = &publish->sqls[foreach_current_index(lc)];
		int64		rows;

		if (!target->moves)
			continue;
		stage_progress_phase(sql->command, target->quoted, target->staged);
		if (target->mode == STAGE_APPEND)
			rows = append_rows(target, sql);
		else
		{
			if (sql->source != NULL)
				(void) run_sql(sql->source);
			rows = sql->remove != NULL ? run_sql(sql->remove) : 0;
			rows += sql->update != NULL ? run_sql(sql->update) : 0;
			rows += run_sql(sql->write);
		}
		if (sql->write_rest != NULL)
			rows += run_sql(sql->write_rest);
		stage_progress_done(rows);
		append_operation(publish, target, sql->command, rows);
	}
	delete_rows(publish, true);
	foreach(lc, publish->targets)
		((StageTarget *) lfirst(lc))->moves = false;
}

/*
 * Partitions that can be replaced as a whole, and the rows of those parts that
 * cannot.  A target that cannot be swapped now is left to move.
 */
static void
swap_partitions(Publish *publish)
{
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, publish->targets)
	{
		StageTarget *target = (StageTarget *) lfirst(lc);
		List	   *rest;
		int64		rows = 0;

		if (!is_partitioned(target))
			continue;
		stage_progress_phase("swap", target->quoted, -1);
		if (!stage_swap(target, publish->newest_task, &target->swapped, &rest))
		{
			target->moves = true;
			continue;
		}
		foreach(lc2, rest)
			rows += run_sql(stage_sql_append_from(target, lfirst_oid(lc2)));
		/* it has the rows that were in the partitions, which are not for its owner to see */
		stage_table_drop(target->staging);
		append_operation(publish, target, "SWAP PARTITIONS", target->staged - rows);
		if (rows > 0)
			append_operation(publish, target, "INSERT", rows);
	}
}

/* The batch's rows go into its targets */
static void
publish_batch(const StageBatch *batch, const char *audit, TwOutcome *outcome)
{
	List	   *tasks = stage_tasks(batch);
	Publish		publish = {0};
	ListCell   *lc;

	publish.targets = stage_targets(batch->number);
	publish.sqls = palloc0(sizeof(StageSql) * (list_length(publish.targets) + 1));
	initStringInfo(&publish.operations);
	appendStringInfoChar(&publish.operations, '[');
	stage_progress_begin(batch);
	check_tasks(batch, tasks);
	publish.newest_task = sum_rows(tasks, publish.targets);
	foreach(lc, publish.targets)
		((StageTarget *) lfirst(lc))->schema = stage_schema_name(batch->number);
	lock_targets(batch, publish.targets);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (audit != NULL)
	{
		stage_progress_phase("audit", NULL, -1);
		run_audit(batch, audit);
	}
	stage_guards_check(batch);
	foreach(lc, publish.targets)
		((StageTarget *) lfirst(lc))->moves = !is_partitioned((StageTarget *) lfirst(lc));
	move_rows(&publish);
	/* last, because it keeps readers out */
	swap_partitions(&publish);
	move_rows(&publish);
	SPI_finish();

	appendStringInfoChar(&publish.operations, ']');
	outcome->has_rows = true;
	outcome->rows = publish.rows;
	outcome->operations = json_of(publish.operations.data);
	outcome->result = json_of(psprintf("{\"tasks\": %d}", list_length(tasks)));
}

/* ---------- SQL ---------- */

/* tw.publish(job, batch_id, epoch, audit) RETURNS tw.outcome */
Datum
tw_publish(PG_FUNCTION_ARGS)
{
	char	   *audit = tw_argument_text_or_null(fcinfo, 3);
	TwClaim		claim = {0};
	TwOutcome	outcome;
	StageBatch	batch;
	TwJob		job_row;
	bool		open;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job and batch_id must not be null")));
	claim.job = text_to_cstring(PG_GETARG_TEXT_PP(0));
	claim.batch_id = text_to_cstring(PG_GETARG_TEXT_PP(1));
	tw_batch_check_writable("tw.publish()");
	(void) tw_batch_requested(claim.job, claim.batch_id);
	tw_job_require(claim.job, &job_row);

	stage_lock(claim.job, claim.batch_id, ExclusiveLock);
	open = stage_find(claim.job, claim.batch_id, &batch);
	claim.has_epoch = !PG_ARGISNULL(2);
	claim.epoch = claim.has_epoch ? PG_GETARG_INT64(2) : 0;
	if (open)
	{
		if (claim.has_epoch)
			stage_check_epoch(&batch, claim.epoch);
		/* who does not say it is held to the batch's */
		claim.has_epoch = batch.has_epoch;
		claim.epoch = batch.epoch;
		claim.fingerprint = batch.fingerprint;
	}
	if (!tw_batch_claim(&claim, &outcome))
		PG_RETURN_DATUM(tw_history_outcome_datum(&outcome));
	if (!open)
		stage_unknown(claim.job, claim.batch_id);

	publish_batch(&batch, audit, &outcome);
	outcome.status = TW_APPLIED;
	tw_batch_finish(&outcome);
	stage_forget(&batch);
	stage_schema_drop(batch.number);
	tw_progress_end();
	PG_RETURN_DATUM(tw_history_outcome_datum(&outcome));
}
