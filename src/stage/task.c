/*
 * task.c
 *		Tasks: tw.attach_task and tw.commit_task, and what keeps a task to itself.
 *
 * A task is one transaction: attach, load, commit_task, COMMIT.  What it is about
 * hangs on TopTransactionContext between the first and the last, and follows
 * subtransactions.  Of several attempts at a task, the first whose row of
 * tw.stage_task commits has done it.
 *
 * How many rows a task has staged is what PostgreSQL itself counts for the
 * transaction's statistics, which is exact for what the transaction has done
 * itself; with track_counts off the rows are counted by looking for them.  Rows of a
 * staging table that is distributed are on other nodes: there each statement says how
 * many it has written.
 *
 * The triggers of staging tables refuse rows without a task, and that a task
 * changes rows of another: all tasks of a target share one table (schema.c).
 */
#include "stage/stage.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(tw_attach_task);
PG_FUNCTION_INFO_V1(tw_commit_task);
PG_FUNCTION_INFO_V1(tw_guard_staging);

/* What statements say they have written */
typedef struct Written
{
	SubTransactionId subid;
	int64		rows;
} Written;

/* A staging table of an attached task */
typedef struct Attachment
{
	Oid			staging;
	bool		distributed;
	List	   *written;		/* Written; of a distributed one */
	List	   *parts;			/* of it, or itself */
	int64		before;			/* rows this transaction had staged when it attached */
} Attachment;

typedef struct Attached
{
	int64		batch;			/* its number */
	char	   *job;
	char	   *batch_id;
	char	   *task;
	bool		has_epoch;
	int64		epoch;
	List	   *attachments;	/* in the order of the targets */
	SubTransactionId attached_in;
	SubTransactionId committed_in;	/* InvalidSubTransactionId: not yet */
} Attached;

static List *attached_tasks = NIL;	/* Attached, the latest last */

static Attached *current_task(void);
static int64 count_own_rows(const List *parts);

/* ---------- counting ---------- */

static int64
count_by_looking(Relation rel)
{
	TableScanDesc scan = table_beginscan(rel, SnapshotSelf, 0, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	int64		count = 0;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		Datum		xmin = slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull);

		CHECK_FOR_INTERRUPTS();
		count += TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin));
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	return count;
}

static int64
count_part(Oid part)
{
	Relation	rel = try_relation_open(part, AccessShareLock);
	int64		count = 0;

	if (rel == NULL)
		return 0;
	if (!pgstat_track_counts)
		count = count_by_looking(rel);
	else if (pgstat_should_count_relation(rel))
	{
		PgStat_TableXactStatus *level;

		/* levels of subtransactions; what was rolled back is in none of them */
		for (level = rel->pgstat_info->trans; level != NULL; level = level->upper)
			count += level->tuples_inserted - level->tuples_deleted;
	}
	relation_close(rel, NoLock);
	return count;
}

/* Rows that this transaction has put into a staging table, and not taken out again */
static int64
count_own_rows(const List *parts)
{
	int64		count = 0;
	ListCell   *lc;

	foreach(lc, parts)
		count += count_part(lfirst_oid(lc));
	return count;
}

static int64
rows_staged(const Attachment *attachment)
{
	int64		rows = 0;
	ListCell   *lc;

	if (!attachment->distributed)
		return count_own_rows(attachment->parts) - attachment->before;
	foreach(lc, attachment->written)
		rows += ((Written *) lfirst(lc))->rows;
	return rows;
}

static bool
has_staged(const Attached *task)
{
	ListCell   *lc;

	foreach(lc, task->attachments)
	{
		if (rows_staged((Attachment *) lfirst(lc)) != 0)
			return true;
	}
	return false;
}

/* ---------- what statements say ---------- */

static bool any_distributed = false;	/* attached */
static ExecutorFinish_hook_type next_finish = NULL;
static ProcessUtility_hook_type next_utility = NULL;

/* A statement has written so many rows of a table, which is perhaps a staging table */
static void
note_written(Oid relid, int64 rows)
{
	Attached   *task = current_task();
	ListCell   *lc;

	if (task == NULL)
		return;
	foreach(lc, task->attachments)
	{
		Attachment *attachment = (Attachment *) lfirst(lc);
		MemoryContext old;
		Written    *written;

		if (attachment->staging != relid || !attachment->distributed)
			continue;
		old = MemoryContextSwitchTo(TopTransactionContext);
		written = palloc(sizeof(Written));
		written->subid = GetCurrentSubTransactionId();
		written->rows = rows;
		attachment->written = lappend(attachment->written, written);
		MemoryContextSwitchTo(old);
	}
}

/* Citus leaves no other trace of what a plan writes than the lock it needs for that */
static void
note_statement(const QueryDesc *query)
{
	ListCell   *lc;

	if (query->operation != CMD_INSERT && query->operation != CMD_DELETE)
		return;
	foreach(lc, query->plannedstmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && rte->rellockmode == RowExclusiveLock)
			note_written(rte->relid, query->operation == CMD_INSERT ?
						 (int64) query->estate->es_processed :
						 -(int64) query->estate->es_processed);
	}
}

static void
finish_noted(QueryDesc *query)
{
	if (next_finish != NULL)
		next_finish(query);
	else
		standard_ExecutorFinish(query);
	if (unlikely(any_distributed))
		note_statement(query);
}

static void
utility_noted(TW_UTILITY_ARGS)
{
	QueryCompletion noted = {0};
	CopyStmt   *copy = any_distributed && IsA(pstmt->utilityStmt, CopyStmt) ?
		(CopyStmt *) pstmt->utilityStmt : NULL;
	Oid			relid = InvalidOid;

	if (copy != NULL && copy->is_from && copy->relation != NULL)
	{
		relid = RangeVarGetRelid(copy->relation, NoLock, true);
		if (completion == NULL)
			completion = &noted;
	}
	if (next_utility != NULL)
		next_utility(TW_UTILITY_PASS);
	else
		standard_ProcessUtility(TW_UTILITY_PASS);
	if (OidIsValid(relid))
		note_written(relid, (int64) completion->nprocessed);
}

void
tw_task_init(void)
{
	next_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish_noted;
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility_noted;
}

/* Sums up what a subtransaction has written, or forgets it */
static void
written_subxact_end(Attached *task, bool commit, SubTransactionId subid, SubTransactionId parent)
{
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, task->attachments)
	{
		Attachment *attachment = (Attachment *) lfirst(lc);

		foreach(lc2, attachment->written)
		{
			Written    *written = (Written *) lfirst(lc2);

			if (written->subid != subid)
				continue;
			if (commit)
				written->subid = parent;
			else
				written->rows = 0;
		}
	}
}

/* ---------- the list ---------- */

/* The task that rows are staged for; NULL: none */
static Attached *
current_task(void)
{
	Attached   *task = attached_tasks == NIL ? NULL : (Attached *) llast(attached_tasks);

	return task != NULL && task->committed_in == InvalidSubTransactionId ? task : NULL;
}

/* Rows without a task would be published with whatever batch is open */
void
tw_task_before_commit(void)
{
	Attached   *task = current_task();

	if (task != NULL && has_staged(task))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task \"%s\" of batch \"%s\" has staged rows but was not committed",
						task->task, task->batch_id),
				 errhint("Call tw.commit_task in the same transaction, before COMMIT.")));
}

void
tw_task_subxact_end(bool commit, SubTransactionId subid, SubTransactionId parent)
{
	ListCell   *lc;

	foreach(lc, attached_tasks)
	{
		Attached   *task = (Attached *) lfirst(lc);

		written_subxact_end(task, commit, subid, parent);
		if (task->attached_in == subid && !commit)
		{
			attached_tasks = foreach_delete_current(attached_tasks, lc);
			continue;
		}
		if (task->attached_in == subid)
			task->attached_in = parent;
		if (task->committed_in == subid)
			task->committed_in = commit ? parent : InvalidSubTransactionId;
	}
}

void
tw_task_clear(void)
{
	attached_tasks = NIL;
	any_distributed = false;
}

/* ---------- attach ---------- */

/* Has another attempt committed the task already?  Does not wait for one that is about to. */
static bool
is_committed(const StageBatch *batch, const char *task)
{
	ListCell   *lc;

	foreach(lc, stage_tasks_named(batch, task))
	{
		if (!((StageTask *) lfirst(lc))->lost)
			return true;
	}
	return false;
}

static Attached *
remember(const StageBatch *batch, const char *name, bool has_epoch, int64 epoch,
		 const List *targets)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	Attached   *task = palloc0(sizeof(Attached));
	ListCell   *lc;

	task->batch = batch->number;
	task->job = pstrdup(batch->job);
	task->batch_id = pstrdup(batch->batch_id);
	task->task = pstrdup(name);
	task->has_epoch = has_epoch;
	task->epoch = epoch;
	task->attached_in = GetCurrentSubTransactionId();
	foreach(lc, targets)
	{
		StageTarget *target = (StageTarget *) lfirst(lc);
		Attachment *attachment = palloc0(sizeof(Attachment));

		attachment->staging = target->staging;
		attachment->distributed = tw_citus_manages(target->staging);
		any_distributed |= attachment->distributed;
		attachment->parts = stage_table_parts(target->staging);
		attachment->before = count_own_rows(attachment->parts);
		task->attachments = lappend(task->attachments, attachment);
	}
	attached_tasks = lappend(attached_tasks, task);
	MemoryContextSwitchTo(old);
	return task;
}

/* Now rather than when the task has loaded */
static void
require_staging(const List *targets)
{
	ListCell   *lc;

	foreach(lc, targets)
	{
		StageTarget *target = (StageTarget *) lfirst(lc);

		if (get_rel_name(target->staging) == NULL)
			stage_table_dropped(target->name);
	}
}

static void
return_targets(FunctionCallInfo fcinfo, const List *targets, const char *status)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	foreach(lc, targets)
	{
		StageTarget *target = (StageTarget *) lfirst(lc);
		Datum		values[3];
		bool		nulls[3] = {false};

		values[0] = ObjectIdGetDatum(target->target);
		values[1] = ObjectIdGetDatum(target->staging);
		values[2] = CStringGetTextDatum(status);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/* tw.attach_task(job, batch_id, task, epoch) RETURNS SETOF (target, staging, status) */
Datum
tw_attach_task(PG_FUNCTION_ARGS)
{
	char	   *job = tw_argument_text(fcinfo, 0, "job");
	char	   *batch_id = tw_argument_text(fcinfo, 1, "batch_id");
	char	   *name = tw_argument_text(fcinfo, 2, "task");
	bool		has_epoch = !PG_ARGISNULL(3);
	int64		epoch = has_epoch ? PG_GETARG_INT64(3) : 0;
	Attached   *current = current_task();
	StageBatch	batch;
	TwJob		job_row;
	List	   *targets;

	InitMaterializedSRF(fcinfo, 0);
	tw_batch_check_writable("tw.attach_task()");
	(void) tw_batch_requested(job, batch_id);
	tw_batch_check_length("task", name, TW_TASK_MAX_BYTES);
	tw_job_require(job, &job_row);

	stage_lock(job, batch_id, ShareLock);
	stage_require(job, batch_id, &batch);
	if (has_epoch)
		stage_check_epoch(&batch, epoch);
	targets = stage_targets(batch.number);
	require_staging(targets);
	if (is_committed(&batch, name))
	{
		stage_unlock(job, batch_id, ShareLock);
		return_targets(fcinfo, targets, "already_committed");
		return (Datum) 0;
	}
	stage_unlock(job, batch_id, ShareLock);

	if (current != NULL && current->batch == batch.number && strcmp(current->task, name) == 0)
	{
		/* asked again */
		return_targets(fcinfo, targets, "attached");
		return (Datum) 0;
	}
	if (current != NULL && has_staged(current))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task \"%s\" of batch \"%s\" has staged rows but was not committed",
						current->task, current->batch_id),
				 errhint("Call tw.commit_task before the next task is attached.")));
	(void) remember(&batch, name, has_epoch, epoch, targets);
	return_targets(fcinfo, targets, "attached");
	return (Datum) 0;
}

/* ---------- commit ---------- */

static void
superseded(const Attached *task)
{
	ereport(ERROR,
			(errcode(ERRCODE_TW_ATTEMPT_SUPERSEDED),
			 errmsg("another attempt has committed task \"%s\" of batch \"%s\"",
					task->task, task->batch_id),
			 errdetail("What this attempt has staged is discarded."),
			 errhint("The task is done; roll back and go on.")));
}

/* The batch must be open still, and be nobody else's */
static void
require_open(const Attached *task, StageBatch *batch)
{
	stage_lock(task->job, task->batch_id, ShareLock);
	stage_require(task->job, task->batch_id, batch);
	if (batch->number != task->batch)
		ereport(ERROR,
				(errcode(ERRCODE_TW_UNKNOWN_BATCH),
				 errmsg("batch \"%s\" of job \"%s\" was aborted while task \"%s\" ran",
						task->batch_id, task->job, task->task),
				 errdetail("It has been opened anew since."),
				 errhint("Roll back, and run the task again.")));
	if (task->has_epoch)
		stage_check_epoch(batch, task->epoch);
}

/* tw.commit_task(message) */
Datum
tw_commit_task(PG_FUNCTION_ARGS)
{
	Jsonb	   *message = PG_ARGISNULL(0) ? NULL : PG_GETARG_JSONB_P(0);
	Attached   *task = current_task();
	StageBatch	batch;
	StageTask	other;
	int64	   *rows;
	ListCell   *lc;

	tw_batch_check_writable("tw.commit_task()");
	if (task == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no task is attached in this transaction"),
				 errhint("Call tw.attach_task in the same transaction first; when it says already_committed, there is nothing to commit.")));
	require_open(task, &batch);

	rows = palloc0(sizeof(int64) * (list_length(task->attachments) + 1));
	foreach(lc, task->attachments)
	{
		Attachment *attachment = (Attachment *) lfirst(lc);

		rows[foreach_current_index(lc)] = rows_staged(attachment);
	}
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!stage_task_find(&batch, task->task, &other))
			continue;
		if (!other.lost)
			superseded(task);
		stage_task_delete(&other);
	} while (!stage_task_insert(&batch, task->task, rows, list_length(task->attachments), message));

	task->committed_in = GetCurrentSubTransactionId();
	PG_RETURN_VOID();
}

/* ---------- the triggers of staging tables ---------- */

static void
refuse_change(const Relation rel, const char *message, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg(message, RelationGetRelationName(rel)),
			 errhint("%s", hint)));
}

static bool
is_attached(Oid staging)
{
	Attached   *task = current_task();
	ListCell   *lc;

	if (task == NULL)
		return false;
	foreach(lc, task->attachments)
	{
		Attachment *attachment = (Attachment *) lfirst(lc);

		if (attachment->staging == staging || list_member_oid(attachment->parts, staging))
			return true;
	}
	return false;
}

/*
 * BEFORE INSERT OR TRUNCATE ... FOR EACH STATEMENT, BEFORE UPDATE OR DELETE ...
 * FOR EACH ROW
 */
Datum
tw_guard_staging(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("tw.guard_staging must be called as a trigger")));
	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		refuse_change(trigger->tg_relation, "cannot truncate staging table \"%s\"",
					  "It holds rows of all tasks. Roll back to discard those of a task, or abort the batch.");
	if (!is_attached(RelationGetRelid(trigger->tg_relation)))
		refuse_change(trigger->tg_relation, "no task is attached for staging table \"%s\"",
					  "Call tw.attach_task in the same transaction first.");
	if (TRIGGER_FIRED_FOR_STATEMENT(trigger->tg_event))
		return PointerGetDatum(NULL);

	if (!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(trigger->tg_trigtuple->t_data)))
		refuse_change(trigger->tg_relation, "cannot change a row of another task in staging table \"%s\"",
					  "The table holds rows of all tasks. Name rows of this task, for example by xmin = pg_current_xact_id()::xid.");
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple :
						   trigger->tg_trigtuple);
}
