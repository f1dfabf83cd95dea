/*
 * custom.c
 *		Custom scans: nodes of a plan that another extension executes.
 *
 * What such a node reads, and from where, nobody can tell, so a plan that has one is
 * refused.  Known are TimescaleDB's nodes that read nothing by themselves:
 *
 * ChunkAppend, ConstraintAwareAppend and ChunkDispatch pass on the rows of ordinary scans
 * of chunks below them, which are there when the statement has started.  Chunks that
 * they leave out cannot have the rows that are looked for; a chunk that is made
 * meanwhile counts as any new child of a table does (tw_track_parent).
 *
 * DeferredChunkAppend runs a statement of its own for each chunk, and these come to our
 * hooks as all statements do.
 *
 * HypertableModify, later called ModifyHypertable, stands above an ordinary ModifyTable.  From
 * 2.27 or so on the nodes below that one come into being as late as the statement
 * runs, where nobody can attach to them.  Then the conditions of the scans are taken from
 * the plan, before it runs: without what only the execution knows, so more rows count.  In mode
 * "row" they cover only rows that have gone or changed.
 *
 * Rows of compressed chunks are in no table that could be checked: nodes that
 * read them are not known here, and statements that find rows to change are refused
 * for a hypertable that has any.
 */
#include "conflict/conflict.h"

#include "access/table.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "nodes/extensible.h"
#include "nodes/plannodes.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

typedef enum CustomKind
{
	CUSTOM_UNKNOWN,
	CUSTOM_PASSES_ON,			/* the rows of nodes below it */
	CUSTOM_RUNS_STATEMENTS,		/* which are tracked by themselves */
	CUSTOM_MODIFIES				/* by a ModifyTable below it */
} CustomKind;

static const struct
{
	const char *name;
	CustomKind	kind;
}			known[] = {
	{"ChunkAppend", CUSTOM_PASSES_ON},
	{"ChunkDispatch", CUSTOM_PASSES_ON},
	{"ConstraintAwareAppend", CUSTOM_PASSES_ON},
	{"DeferredChunkAppend", CUSTOM_RUNS_STATEMENTS},
	{"HypertableModify", CUSTOM_MODIFIES},
	{"ModifyHypertable", CUSTOM_MODIFIES},
};

typedef struct PlanWalk
{
	EState	   *estate;
	bool		spare_all;
	Bitmapset  *spared;
} PlanWalk;

static void track_plan(Plan *plan, PlanWalk *walk);

static const char *
name_of(Plan *plan)
{
	return ((CustomScan *) plan)->methods->CustomName;
}

static CustomKind
kind_of(Plan *plan)
{
	for (int i = 0; i < lengthof(known); i++)
	{
		if (strcmp(name_of(plan), known[i].name) == 0)
			return known[i].kind;
	}
	return CUSTOM_UNKNOWN;
}

static Oid
relation_of(Plan *plan, EState *estate)
{
	Index		rti = ((Scan *) plan)->scanrelid;

	return rti == 0 ? InvalidOid : exec_rt_fetch(rti, estate)->relid;
}

static void
refuse(Plan *plan, EState *estate)
{
	Oid			relid = relation_of(plan, estate);
	char	   *relation = OidIsValid(relid) ? get_rel_name(relid) : NULL;

	if (relation == NULL)
		tw_attach_refuse("custom scan", name_of(plan),
						 "Another extension reads in its own way, perhaps on another node.");
	tw_attach_refuse("relation", relation,
					 psprintf("Another extension reads it in its own way, by custom scan \"%s\".",
							  name_of(plan)));
}

/* Statements of a node read the chunks; that there may be another one is left to us */
static void
track_chunks(Plan *plan, EState *estate)
{
	Oid			relid = relation_of(plan, estate);

	if (!OidIsValid(relid))
		refuse(plan, estate);
	if (tw_track->mode == TW_TRACK_PREDICATE)
		tw_track_parent(relid);
}

/* ---------- a plan whose nodes are not there yet ---------- */

static void
track_scan(Scan *scan, PlanWalk *walk)
{
	Relation	rel = table_open(exec_rt_fetch(scan->scanrelid, walk->estate)->relid, AccessShareLock);

	if (tw_track_wanted(rel))
	{
		Snapshot	snapshot = tw_track_snapshot(walk->estate->es_snapshot);
		TwRelation *relation = tw_track_relation(rel, snapshot);
		bool		row = tw_track->mode == TW_TRACK_ROW;
		List	   *index_tlist;
		List	   *clauses = tw_attach_clauses(&scan->plan, true, &index_tlist);

		/* below REPEATABLE READ a row that is updated may be another one than we have seen */
		if (walk->spare_all ||
			(row && IsolationUsesXactSnapshot() && bms_is_member(scan->scanrelid, walk->spared)))
			tw_track_spared(relation, snapshot, NIL);
		else
			(void) tw_condition_add_scan(relation, snapshot,
										 tw_qual_of_row(clauses, index_tlist,
														walk->estate->es_param_list_info),
										 row ? TW_REMOVALS : TW_ALL_CHANGES);
	}
	table_close(rel, NoLock);
}

static void
track_plans(List *plans, PlanWalk *walk)
{
	ListCell   *lc;

	foreach(lc, plans)
		track_plan((Plan *) lfirst(lc), walk);
}

static void
track_plan(Plan *plan, PlanWalk *walk)
{
	if (plan == NULL)
		return;
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
			track_scan((Scan *) plan, walk);
			return;
		case T_ForeignScan:
			tw_attach_refuse("foreign table", ((Scan *) plan)->scanrelid == 0 ? "a join of several" :
							 get_rel_name(relation_of(plan, walk->estate)),
							 "Its rows are not in this database.");
			break;
		case T_CustomScan:
			if (kind_of(plan) == CUSTOM_UNKNOWN)
				refuse(plan, walk->estate);
			if (kind_of(plan) == CUSTOM_RUNS_STATEMENTS)
				track_chunks(plan, walk->estate);
			track_plans(((CustomScan *) plan)->custom_plans, walk);
			break;
		case T_Append:
			track_plans(((Append *) plan)->appendplans, walk);
			break;
		case T_MergeAppend:
			track_plans(((MergeAppend *) plan)->mergeplans, walk);
			break;
		case T_SubqueryScan:
			track_plan(((SubqueryScan *) plan)->subplan, walk);
			break;
		default:
			break;
	}
	track_plan(outerPlan(plan), walk);
	track_plan(innerPlan(plan), walk);
}

/* ---------- nodes that are there ---------- */

/* A statement that finds rows, by a condition or a constraint, may find compressed ones */
static void
refuse_compressed(ModifyTable *plan, EState *estate)
{
	Relation	rel;
	int32		id;

	if (plan->operation == CMD_INSERT && plan->onConflictAction == ONCONFLICT_NONE)
		return;
	rel = table_open(exec_rt_fetch(plan->nominalRelation, estate)->relid, AccessShareLock);
	id = tw_hypertable_id(rel);
	if (id != 0 && tw_hypertable_has_compressed(id))
		tw_attach_refuse("hypertable", RelationGetRelationName(rel),
						 "It has compressed chunks, whose rows are stored in another way.");
	table_close(rel, NoLock);
}

/* Is what stands below the ModifyTable made from another plan than it will be? */
static bool
is_deferred(CustomScanState *state, ModifyTable *plan)
{
	PlanState  *modify = state->custom_ps == NIL ? NULL : (PlanState *) linitial(state->custom_ps);

	return modify == NULL || !IsA(modify, ModifyTableState) || outerPlanState(modify) == NULL ||
		outerPlanState(modify)->plan != outerPlan(plan);
}

void
tw_custom_attach(CustomScanState *state, bool spare_all, Bitmapset *spared)
{
	Plan	   *plan = state->ss.ps.plan;
	EState	   *estate = state->ss.ps.state;
	List	   *below = ((CustomScan *) plan)->custom_plans;

	switch (kind_of(plan))
	{
		case CUSTOM_UNKNOWN:
			refuse(plan, estate);
			break;
		case CUSTOM_PASSES_ON:
			break;
		case CUSTOM_RUNS_STATEMENTS:
			track_chunks(plan, estate);
			break;
		case CUSTOM_MODIFIES:
			if (list_length(below) != 1 || !IsA(linitial(below), ModifyTable))
				refuse(plan, estate);
			refuse_compressed(linitial(below), estate);
			if (is_deferred(state, linitial(below)))
			{
				PlanWalk	walk = {estate, spare_all, spared};

				track_plan(outerPlan((Plan *) linitial(below)), &walk);
			}
			break;
	}
}
