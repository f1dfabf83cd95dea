/*
 * hook.c
 *		Where PostgreSQL tells us what a transaction reads.
 *
 * The hooks are installed when the library is loaded and do nothing but one
 * comparison in transactions that do not track.
 *
 * Planner: no parallel plans while tracking.  Executor: a plan that was made parallel
 * before runs without workers, as it would under a cursor; every statement's scans are
 * attached to when it starts, or when it is continued, for one that was started before the
 * tracking.  Utility: COPY of a table reads it without the executor.  All of them: an error
 * that is caught tells of rows.
 */
#include "conflict/conflict.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "executor/executor.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"
#include "tcop/utility.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static planner_hook_type next_planner = NULL;
static ExecutorStart_hook_type next_start = NULL;
static ExecutorRun_hook_type next_run = NULL;
static ExecutorFinish_hook_type next_finish = NULL;
static ProcessUtility_hook_type next_utility = NULL;

static inline bool
tracking(void)
{
	return unlikely(tw_track != NULL) && tw_track->mode != TW_TRACK_NONE && !tw_track->busy;
}

static PlannedStmt *
plan_without_workers(Query *parse, const char *query_string, int cursor_options,
					 ParamListInfo params)
{
	if (tracking())
		cursor_options &= ~CURSOR_OPT_PARALLEL_OK;
	return next_planner != NULL ? next_planner(parse, query_string, cursor_options, params) :
		standard_planner(parse, query_string, cursor_options, params);
}

static void
start_tracked(QueryDesc *query, int eflags)
{
	bool		track = tracking();

	if (track && query->plannedstmt->parallelModeNeeded)
	{
		PlannedStmt *serial = MemoryContextAlloc(GetMemoryChunkContext(query), sizeof(PlannedStmt));

		*serial = *query->plannedstmt;
		serial->parallelModeNeeded = false;
		query->plannedstmt = serial;
	}
	if (next_start != NULL)
		next_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if (track)
	{
		tw_constraint_settle();
		tw_attach(query, eflags);
	}
}

static void
run_next(TW_RUN_ARGS)
{
	if (next_run != NULL)
		next_run(TW_RUN_PASS);
	else
		standard_ExecutorRun(TW_RUN_PASS);
}

static void
run_tracked(TW_RUN_ARGS)
{
	TwTargets	targets = {0};
	uint64		processed;

	if (!tracking())
	{
		run_next(TW_RUN_PASS);
		return;
	}
	if (!tw_attached(query))
		tw_attach(query, 0);
	if (query->plannedstmt->resultRelations != NIL)
		tw_constraint_before_write(query, &targets);
	processed = query->estate->es_processed;
	PG_TRY();
	{
		run_next(TW_RUN_PASS);
	}
	PG_CATCH();
	{
		/* whoever catches it has learned of rows by it */
		if (tracking())
		{
			tw_attach_failed(query);
			tw_constraint_violated(&targets);
		}
		PG_RE_THROW();
	}
	PG_END_TRY();
	processed = query->estate->es_processed - processed;
	if (query->plannedstmt->resultRelations != NIL && tracking())
	{
		tw_constraint_after_write(query, &targets, processed);
		tw_attach_written(query, processed);
	}
}

/* Triggers that fire at the end of a statement, those of foreign keys among them */
static void
finish_tracked(QueryDesc *query)
{
	PG_TRY();
	{
		if (next_finish != NULL)
			next_finish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_CATCH();
	{
		/* what WITH has written may have run to its end only now */
		if (tracking())
		{
			tw_attach_failed(query);
			tw_constraint_violated(NULL);
		}
		PG_RE_THROW();
	}
	PG_END_TRY();
}

static void
finish_hook(QueryDesc *query)
{
	/* where no trigger is left to fire nothing can fail */
	if (tracking() && (query->operation != CMD_SELECT || query->plannedstmt->hasModifyingCTE))
		finish_tracked(query);
	else if (next_finish != NULL)
		next_finish(query);
	else
		standard_ExecutorFinish(query);
}

/* COPY of a table */
static void
track_copy(CopyStmt *stmt)
{
	Relation	rel;

	if (stmt->relation == NULL)
		return;
	rel = table_openrv(stmt->relation, stmt->is_from ? RowExclusiveLock : AccessShareLock);
	if (stmt->is_from)
	{
		tw_constraint_before_copy(rel);
		table_close(rel, NoLock);
		return;
	}
	tw_copies_refuse(RelationGetRelid(rel));
	if (rel->rd_rel->relkind == RELKIND_RELATION && tw_track_wanted(rel))
	{
		Snapshot	snapshot = tw_track_snapshot(GetActiveSnapshot());

		tw_condition_add_whole(tw_track_relation(rel, snapshot), snapshot);
	}
	table_close(rel, NoLock);
}

static void
utility_next(TW_UTILITY_ARGS)
{
	if (next_utility != NULL)
		next_utility(TW_UTILITY_PASS);
	else
		standard_ProcessUtility(TW_UTILITY_PASS);
}

static void
utility_tracked(TW_UTILITY_ARGS)
{
	if (!tracking())
	{
		utility_next(TW_UTILITY_PASS);
		return;
	}
	/*
	 * Before it changes what the errors so far were about, also before a COMMIT, in which no
	 * subtransaction can be rolled back; not in a failed transaction
	 */
	if (IsTransactionState())
		tw_constraint_settle();
	if (IsA(pstmt->utilityStmt, CopyStmt))
		track_copy((CopyStmt *) pstmt->utilityStmt);
	PG_TRY();
	{
		utility_next(TW_UTILITY_PASS);
	}
	PG_CATCH();
	{
		/* COPY FROM, SET CONSTRAINTS */
		if (tracking())
			tw_constraint_violated(NULL);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

void
tw_conflict_init(void)
{
	next_planner = planner_hook;
	planner_hook = plan_without_workers;
	next_start = ExecutorStart_hook;
	ExecutorStart_hook = start_tracked;
	next_run = ExecutorRun_hook;
	ExecutorRun_hook = run_tracked;
	next_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish_hook;
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility_tracked;
}
