/*
 * attach.c
 *		The scans of a statement, seen while they run.
 *
 * Each scan node of a plan that has been started gets a wrapper around its
 * execution.  In mode "predicate" the wrapper remembers what the scan looks for before
 * it returns its first row and again after each rescan, and then gets out of the
 * way when nothing can change any more; in mode "row" it remembers each row returned.  A scan
 * that never runs reads nothing.
 *
 * That a scan starts or has been rescanned shows in its tuple slot, which is empty then and
 * holds the row returned last in between.
 *
 * Here is also what a plan must not contain: reads that nobody could check.
 */
#include "conflict/conflict.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/relscan.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "engine/citus.h"
#include "executor/executor.h"
#include "executor/nodeIndexscan.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "parser/parsetree.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* A scan of a statement that is tracked */
typedef struct TrackedScan
{
	struct TrackedScan *next;	/* of the same statement */
	ScanState  *state;
	ExecProcNodeMtd original;
	bool		rows;			/* its rows are remembered */
	bool		rows_spared;	/* they would be, but for what the statement does with them */
	bool		begun;
	bool		may_stop;		/* the rows come in the order of a btree */
	TwRelation *relation;		/* set when begun */
	Snapshot	snapshot;		/* likewise, registered */
	List	   *qual;			/* likewise; in the executor state's memory */
	TwCondition *condition;		/* to be told how far an index scan has come; NULL: no need */
	TwCondition *probe;			/* of an index scan, what it was remembered as last; NULL: not */
	List	   *copies;			/* tables on this node that a scan of Citus's has to read */
} TrackedScan;

/* Such a statement; it and its scans live and end with its executor state */
typedef struct TrackedQuery
{
	dlist_node	node;
	EState	   *estate;
	TwTrack    *track;
	TrackedScan *first_scan;
	TrackedScan **end_scan;		/* where the next one goes */
	int			nscans;
	struct tw_scan_hash *scans; /* of them, by state, once there are many; otherwise NULL */
	TrackedScan one;			/* room for the first */
	MemoryContextCallback callback;
} TrackedQuery;

#define FEW_SCANS 8

#define SH_PREFIX tw_scan
#define SH_ELEMENT_TYPE ScanEntry
#define SH_KEY_TYPE ScanState *
#define SH_KEY state
#define SH_HASH_KEY(table, key) murmurhash32((uint32) ((uintptr_t) (key) >> 4))
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
typedef struct ScanEntry
{
	ScanState  *state;
	TrackedScan *scan;
	char		status;
} ScanEntry;
#include "common/hashfn.h"
#include "lib/simplehash.h"

/* What a walk over a plan carries */
typedef struct Walk
{
	TrackedQuery *query;
	QueryDesc  *desc;
	Bitmapset  *spared;			/* range table indexes that need not be remembered */
	bool		spare_all;
	bool		marked;			/* below a node that may go back to an earlier row */
	bool		custom;			/* has come to a node of another extension */
} Walk;

static ScanState *last_state = NULL;	/* looked up last */
static TrackedScan *last_scan = NULL;

static bool attach_walker(PlanState *ps, Walk *walk);
static TupleTableSlot *exec_spared(PlanState *ps);
static TupleTableSlot *exec_row(PlanState *ps);
static TupleTableSlot *exec_row_of_index(PlanState *ps);
static TupleTableSlot *exec_predicate(PlanState *ps);
static void ready_keys(PlanState *ps, bool runtime_keys, bool ready);
static TupleTableSlot *exec_copies(PlanState *ps);
static inline TrackedScan *scan_of(PlanState *ps);

/* ---------- statements ---------- */

/* The executor state's memory is about to go */
static void
query_ended(void *arg)
{
	TrackedQuery *query = arg;

	last_state = NULL;
	if (tw_track != NULL && tw_track == query->track)
		dlist_delete(&query->node);
}

/* NULL: not attached to */
static TrackedQuery *
find_query(EState *estate)
{
	dlist_iter	iter;

	dlist_foreach(iter, &tw_track->queries)
	{
		TrackedQuery *query = dlist_container(TrackedQuery, node, iter.cur);

		if (query->estate == estate)
			return query;
	}
	return NULL;
}

bool
tw_attached(QueryDesc *query)
{
	return find_query(query->estate) != NULL;
}

static TrackedQuery *
query_create(EState *estate)
{
	TrackedQuery *query = MemoryContextAllocZero(estate->es_query_cxt, sizeof(TrackedQuery));

	query->estate = estate;
	query->track = tw_track;
	query->callback.func = query_ended;
	query->callback.arg = query;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &query->callback);
	query->end_scan = &query->first_scan;
	dlist_push_head(&tw_track->queries, &query->node);
	return query;
}

static void
enter_scan(TrackedQuery *query, TrackedScan *scan)
{
	bool		found;

	tw_scan_insert(query->scans, scan->state, &found)->scan = scan;
}

/* NULL: no such scan is tracked */
static TrackedScan *
find_scan(TrackedQuery *query, ScanState *state)
{
	if (query->scans != NULL)
	{
		ScanEntry  *entry = tw_scan_lookup(query->scans, state);

		return entry == NULL ? NULL : entry->scan;
	}
	for (TrackedScan *scan = query->first_scan; scan != NULL; scan = scan->next)
	{
		if (scan->state == state)
			return scan;
	}
	return NULL;
}

/* Current memory context is the executor state's */
static TrackedScan *
create_scan(TrackedQuery *query, ScanState *state)
{
	TrackedScan *scan = query->nscans == 0 ? &query->one : palloc0(sizeof(TrackedScan));

	scan->state = state;
	*query->end_scan = scan;
	query->end_scan = &scan->next;
	query->nscans++;
	if (query->scans != NULL)
		enter_scan(query, scan);
	else if (query->nscans > FEW_SCANS)
	{
		query->scans = tw_scan_create(CurrentMemoryContext, 64, NULL);
		for (TrackedScan *each = query->first_scan; each != NULL; each = each->next)
			enter_scan(query, each);
	}
	return scan;
}

static bool
count_scans(PlanState *ps, int *n)
{
	switch (nodeTag(ps))
	{
		case T_SeqScanState:
		case T_SampleScanState:
		case T_IndexScanState:
		case T_IndexOnlyScanState:
		case T_BitmapHeapScanState:
		case T_TidScanState:
		case T_TidRangeScanState:
			(*n)++;
			break;
		default:
			break;
	}
	return planstate_tree_walker(ps, count_scans, n);
}

/* The relations that a SELECT locks so that nobody can change their rows */
static Bitmapset *
locked_relations(QueryDesc *query, Bitmapset *result)
{
	PlanState  *ps = query->planstate;
	ListCell   *lc;

	if (IsA(ps, LimitState))
		ps = outerPlanState(ps);
	if (!IsA(ps, LockRowsState))
		return result;
	foreach(lc, ((LockRows *) ps->plan)->rowMarks)
	{
		PlanRowMark *mark = lfirst_node(PlanRowMark, lc);

		if (mark->markType == ROW_MARK_EXCLUSIVE || mark->markType == ROW_MARK_NOKEYEXCLUSIVE ||
			mark->markType == ROW_MARK_SHARE)
			result = bms_add_member(result, mark->rti);
	}
	return result;
}

/*
 * In mode "row" the rows of a statement's own target are left to PostgreSQL's rule that the
 * first updater wins.  Below REPEATABLE READ it is another one: the statement evaluates its
 * plan again for the new version, and may read other rows than we have seen, so there only
 * a statement without other tables is spared, and then one that locks its rows as well.
 */
static Bitmapset *
spared_relations(QueryDesc *query)
{
	PlannedStmt *stmt = query->plannedstmt;
	Bitmapset  *spared = NULL;
	ListCell   *lc;
	int			n = 0;

	if (tw_track->mode != TW_TRACK_ROW || (stmt->resultRelations == NIL && stmt->rowMarks == NIL))
		return NULL;
	if (stmt->rowMarks != NIL || !IsolationUsesXactSnapshot())
		count_scans(query->planstate, &n);
	if (n > 1 && !IsolationUsesXactSnapshot())
		return NULL;
	foreach(lc, stmt->resultRelations)
		spared = bms_add_member(spared, lfirst_int(lc));
	return n == 1 ? locked_relations(query, spared) : spared;
}

/* Parents of what is scanned; a child table may come to them */
static void
track_parents(QueryDesc *query)
{
	ListCell   *lc;

	if (tw_track->mode != TW_TRACK_PREDICATE)
		return;
	foreach(lc, query->plannedstmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && rte->relid >= FirstNormalObjectId &&
			(rte->inh || tw_hypertable_is_empty(rte->relid)))
			tw_track_parent(rte->relid);
	}
}

/* Wraps the scans of a statement that has been started */
void
tw_attach(QueryDesc *query, int eflags)
{
	Walk		walk = {0};
	ListCell   *lc;

	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) || query->planstate == NULL ||
		query->snapshot == NULL || !IsMVCCSnapshot(query->snapshot))
		return;
	walk.query = query_create(query->estate);
	walk.desc = query;
	if (tw_citus_present())
		tw_copies_note(query);
	walk.spare_all = tw_spared_foreign_key(query);
	walk.spared = spared_relations(query);
	if (!walk.spare_all)
		track_parents(query);
	/* comes to all subplans used but those of nodes made only later, see custom.c */
	attach_walker(query->planstate, &walk);
	foreach(lc, walk.custom ? query->estate->es_subplanstates : NIL)
	{
		if (lfirst(lc) != NULL)
			attach_walker((PlanState *) lfirst(lc), &walk);
	}
}

/* ---------- the walk ---------- */

static TrackedScan *
attach_wrapper(ScanState *state, Walk *walk, ExecProcNodeMtd wrapper)
{
	TrackedScan *scan;
	MemoryContext old;

	scan = find_scan(walk->query, state);
	if (scan != NULL)
		return scan;
	old = MemoryContextSwitchTo(walk->query->estate->es_query_cxt);
	scan = create_scan(walk->query, state);
	scan->original = state->ps.ExecProcNodeReal;
	scan->rows = wrapper == exec_row || wrapper == exec_row_of_index;
	scan->rows_spared = tw_track->mode == TW_TRACK_ROW && !scan->rows;
	scan->may_stop = !walk->marked;
	MemoryContextSwitchTo(old);
	ExecSetExecProcNode(&state->ps, wrapper);
	return scan;
}

static void
attach_scan(ScanState *state, Walk *walk, ExecProcNodeMtd wrapper)
{
	Relation	rel = state->ss_currentRelation;

	if (rel == NULL || !tw_track_wanted(rel))
		return;
	if (walk->spare_all || bms_is_member(((Scan *) state->ps.plan)->scanrelid, walk->spared))
		wrapper = exec_spared;
	(void) attach_wrapper(state, walk, wrapper);
}

/*
 * A bitmap scan that needs no column of a row does not fetch it from an all-visible page;
 * but what is not fetched cannot be remembered.
 */
static void
fetch_all_rows(BitmapHeapScanState *state)
{
#if PG_VERSION_NUM < 170000
	state->can_skip_fetch = false;
#elif PG_VERSION_NUM < 180000
	Plan	   *plan = state->ss.ps.plan;

	/* whether columns are needed is asked of the plan when the scan begins */
	if (plan->targetlist == NIL && plan->qual == NIL)
	{
		MemoryContext old = MemoryContextSwitchTo(state->ss.ps.state->es_query_cxt);
		BitmapHeapScan *copy = palloc(sizeof(BitmapHeapScan));

		memcpy(copy, plan, sizeof(BitmapHeapScan));
		copy->scan.plan.targetlist =
			list_make1(makeTargetEntry((Expr *) makeBoolConst(true, false), 1, NULL, false));
		state->ss.ps.plan = (Plan *) copy;
		MemoryContextSwitchTo(old);
	}
#endif
}

static void
attach_custom_scan(ScanState *state, Walk *walk)
{
	const char *name = ((CustomScanState *) state)->methods->CustomName;
	List	   *copies;
	MemoryContext old;

	walk->custom = true;
	/* not all extensions name their methods */
	if (name == NULL || !tw_citus_is_scan(name))
	{
		tw_custom_attach((CustomScanState *) state, walk->spare_all, walk->spared);
		return;
	}
	old = MemoryContextSwitchTo(walk->query->estate->es_query_cxt);
	copies = tw_copies_needed(walk->desc, name);
	MemoryContextSwitchTo(old);
	if (copies != NIL)
		attach_wrapper(state, walk, exec_copies)->copies = copies;
}

/* The first call does all that Citus reads for the scan */
static TupleTableSlot *
exec_copies(PlanState *ps)
{
	TrackedScan *scan = scan_of(ps);
	List	   *before = tw_copies_begin();
	TupleTableSlot *result = scan->original(ps);

	tw_copies_end(before, scan->copies);
	ExecSetExecProcNode(ps, scan->original);
	return result;
}

static bool
attach_walker(PlanState *ps, Walk *walk)
{
	bool		row = tw_track->mode == TW_TRACK_ROW;

	switch (nodeTag(ps))
	{
		case T_BitmapHeapScanState:
			fetch_all_rows((BitmapHeapScanState *) ps);
			attach_scan((ScanState *) ps, walk, row ? exec_row : exec_predicate);
			break;
		case T_SeqScanState:
		case T_SampleScanState:
		case T_IndexScanState:
		case T_TidScanState:
		case T_TidRangeScanState:
			attach_scan((ScanState *) ps, walk, row ? exec_row : exec_predicate);
			/* mostly there is nothing below */
			if (ps->initPlan == NIL && ps->subPlan == NIL)
				return false;
			break;
		case T_IndexOnlyScanState:
			attach_scan((ScanState *) ps, walk, row ? exec_row_of_index : exec_predicate);
			break;
		case T_ForeignScanState:
			{
				Relation	rel = ((ScanState *) ps)->ss_currentRelation;

				tw_conflict_refuse("foreign table",
								   rel != NULL ? RelationGetRelationName(rel) : "a join of several",
								   "Its rows are not in this database.");
			}
			break;
		case T_CustomScanState:
			attach_custom_scan((ScanState *) ps, walk);
			break;
		case T_MergeJoinState:
			{
				/* the inner side is taken back to where equal keys began */
				bool		marked = walk->marked;

				walk->marked = true;
				planstate_tree_walker(ps, attach_walker, walk);
				walk->marked = marked;
				return false;
			}
		default:
			break;
	}
	return planstate_tree_walker(ps, attach_walker, walk);
}

static inline TrackedScan *
scan_of(PlanState *ps)
{
	if ((ScanState *) ps != last_state)
	{
		TrackedQuery *query = tw_track == NULL ? NULL : find_query(ps->state);

		last_scan = query == NULL ? NULL : find_scan(query, (ScanState *) ps);
		if (last_scan == NULL)
			elog(ERROR, "scan is not tracked in this transaction");
		last_state = (ScanState *) ps;
	}
	return last_scan;
}

/* Before a scan's first row: its relation is locked, its snapshot kept */
static void
begin_scan(TrackedScan *scan)
{
	EState	   *estate = scan->state->ps.state;

	scan->snapshot = tw_track_snapshot(estate->es_snapshot);
	scan->relation = tw_track_relation(scan->state->ss_currentRelation, scan->snapshot);
	scan->begun = true;
}

/*
 * Rows that need not be remembered, as long as the subtransaction stands.  Those of a
 * foreign key's query, the only one of its kind in mode "predicate", by their keys.
 */
static TupleTableSlot *
exec_spared(PlanState *ps)
{
	TrackedScan *scan = scan_of(ps);
	List	   *probes = NIL;

	begin_scan(scan);
	if (tw_track_in_savepoint() && !scan->rows_spared && IsA(ps, IndexScanState))
	{
		IndexScanState *state = (IndexScanState *) ps;

		ready_keys(ps, state->iss_NumRuntimeKeys != 0, state->iss_RuntimeKeysReady);
		probes = list_make1(tw_condition_make_probe(scan->snapshot, state->iss_RelationDesc,
													state->iss_ScanKeys, state->iss_NumScanKeys));
	}
	tw_track_spared(scan->relation, scan->snapshot, probes);
	ExecSetExecProcNode(ps, scan->original);
	return scan->original(ps);
}

/* ---------- mode "row" ---------- */

static void
begin_row_scan(TrackedScan *scan)
{
	begin_scan(scan);
	/* what stands for rows must be old enough for these */
	if (scan->relation->whole != NULL)
		tw_condition_add_whole(scan->relation, scan->snapshot);
}

static TupleTableSlot *
exec_row(PlanState *ps)
{
	TrackedScan *scan = scan_of(ps);
	TupleTableSlot *result;
	TupleTableSlot *slot;

	if (unlikely(!scan->begun))
		begin_row_scan(scan);
	result = scan->original(ps);
	if (TupIsNull(result))
		return result;
	slot = scan->state->ss_ScanTupleSlot;
	if (TTS_EMPTY(slot) || !(TTS_IS_BUFFERTUPLE(slot) || TTS_IS_HEAPTUPLE(slot)) ||
		((HeapTupleTableSlot *) slot)->tuple == NULL)
		elog(ERROR, "scan of relation \"%s\" returned no row of it",
			 RelationGetRelationName(scan->state->ss_currentRelation));
	tw_rows_add(scan->relation, ((HeapTupleTableSlot *) slot)->tuple);
	return result;
}

/* An index-only scan has not seen the row, only its place or that of its HOT chain */
static TupleTableSlot *
exec_row_of_index(PlanState *ps)
{
	TrackedScan *scan = scan_of(ps);
	IndexOnlyScanState *state = (IndexOnlyScanState *) ps;
	Relation	rel = scan->state->ss_currentRelation;
	TupleTableSlot *result;
	ItemPointerData tid;
	HeapTupleData tuple;
	Buffer		buffer;
	Page		page;
	ItemId		lp;

	if (unlikely(!scan->begun))
		begin_row_scan(scan);
	result = scan->original(ps);
	if (TupIsNull(result))
		return result;

	tid = state->ioss_ScanDesc->xs_heaptid;
	buffer = ReadBuffer(rel, ItemPointerGetBlockNumber(&tid));
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	lp = PageGetItemId(page, ItemPointerGetOffsetNumber(&tid));
	if (ItemIdIsNormal(lp) && HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, lp)))
		tw_rows_add_version(scan->relation, &tid, (HeapTupleHeader) PageGetItem(page, lp));
	else if (heap_hot_search_buffer(&tid, rel, buffer, ps->state->es_snapshot, &tuple, NULL, true))
		tw_rows_add_version(scan->relation, &tid, tuple.t_data);
	else
		elog(ERROR, "index of relation \"%s\" returned no row of it", RelationGetRelationName(rel));
	UnlockReleaseBuffer(buffer);
	return result;
}

/* ---------- mode "predicate" ---------- */

static void
remember_qual(TrackedScan *scan, List *clauses, List *index_tlist)
{
	EState	   *estate = scan->state->ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);

	scan->qual = tw_qual_of_row(clauses, index_tlist, estate->es_param_list_info);
	MemoryContextSwitchTo(old);
}

static bool
is_btree(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID;
}

/* The filter of a scan, as far as a row alone decides it; once for each execution */
static void
begin_predicate_scan(TrackedScan *scan)
{
	bool		index = true;
	List	   *index_tlist;
	List	   *clauses;

	begin_scan(scan);
	/* the keys of a btree say it all */
	if (IsA(scan->state, IndexScanState))
		index = !is_btree(((IndexScanState *) scan->state)->iss_RelationDesc);
	else if (IsA(scan->state, IndexOnlyScanState))
		index = !is_btree(((IndexOnlyScanState *) scan->state)->ioss_RelationDesc);
	clauses = tw_qual_clauses(scan->state->ps.plan, index, &index_tlist);
	remember_qual(scan, clauses, index_tlist);
}

/* Computes the keys of an index scan as its own execution would do next */
static void
ready_keys(PlanState *ps, bool runtime_keys, bool ready)
{
	if (ps->chgParam != NULL || (runtime_keys && !ready))
		ExecReScan(ps);
}

static void
remember_index_scan(TrackedScan *scan)
{
	Relation	index;
	ScanKey		keys;
	int			nkeys;
	bool		ordered_by_distance;
	ScanDirection direction;

	if (IsA(scan->state, IndexScanState))
	{
		IndexScanState *state = (IndexScanState *) scan->state;

		ready_keys(&state->ss.ps, state->iss_NumRuntimeKeys != 0, state->iss_RuntimeKeysReady);
		index = state->iss_RelationDesc;
		keys = state->iss_ScanKeys;
		nkeys = state->iss_NumScanKeys;
		ordered_by_distance = state->iss_NumOrderByKeys > 0;
		direction = ((IndexScan *) state->ss.ps.plan)->indexorderdir;
	}
	else
	{
		IndexOnlyScanState *state = (IndexOnlyScanState *) scan->state;

		ready_keys(&state->ss.ps, state->ioss_NumRuntimeKeys != 0, state->ioss_RuntimeKeysReady);
		index = state->ioss_RelationDesc;
		keys = state->ioss_ScanKeys;
		nkeys = state->ioss_NumScanKeys;
		ordered_by_distance = state->ioss_NumOrderByKeys > 0;
		direction = ((IndexOnlyScan *) state->ss.ps.plan)->indexorderdir;
	}
	if (!is_btree(index) || ordered_by_distance)
		scan->may_stop = false;
	if (!ScanDirectionIsBackward(direction))
		direction = ForwardScanDirection;

	scan->probe = NULL;
	if (nkeys == 0 && !scan->may_stop)
		(void) tw_condition_add_scan(scan->relation, scan->snapshot, scan->qual, TW_ALL_CHANGES);
	else
		scan->condition = tw_condition_add_probe(scan->relation, scan->snapshot, index, keys, nkeys,
												 scan->qual, direction, &scan->probe);
	if (!scan->may_stop)
		scan->condition = NULL;
}

/*
 * The keys of the index scans below a bitmap scan: those of all members of an OR, of
 * any member of an AND.  False: they cannot be probed.
 */
static bool
remember_bitmap(TrackedScan *scan, PlanState *ps)
{
	if (ps->chgParam != NULL)
		ExecReScan(ps);
	switch (nodeTag(ps))
	{
		case T_BitmapIndexScanState:
			{
				BitmapIndexScanState *state = (BitmapIndexScanState *) ps;
				TwCondition *probe;

				if (state->biss_NumArrayKeys != 0 || state->biss_NumScanKeys == 0 ||
					state->biss_RelationDesc->rd_indam->amgettuple == NULL)
					return false;
				ready_keys(ps, state->biss_NumRuntimeKeys != 0, state->biss_RuntimeKeysReady);
				(void) tw_condition_add_probe(scan->relation, scan->snapshot,
											  state->biss_RelationDesc, state->biss_ScanKeys,
											  state->biss_NumScanKeys, scan->qual,
											  ForwardScanDirection, &probe);
				return true;
			}
		case T_BitmapOrState:
			{
				BitmapOrState *state = (BitmapOrState *) ps;

				for (int i = 0; i < state->nplans; i++)
				{
					if (!remember_bitmap(scan, state->bitmapplans[i]))
						return false;
				}
				return true;
			}
		case T_BitmapAndState:
			{
				BitmapAndState *state = (BitmapAndState *) ps;

				for (int i = 0; i < state->nplans; i++)
				{
					if (remember_bitmap(scan, state->bitmapplans[i]))
						return true;
				}
				return false;
			}
		default:
			return false;
	}
}

/* A statement's WHERE CURRENT OF finds the row that its cursor has read */
static bool
is_current_of(ScanState *state)
{
	return IsA(state, TidScanState) && ((TidScanState *) state)->tss_isCurrentOf;
}

static void
remember_scan(TrackedScan *scan)
{
	if (!scan->begun)
		begin_predicate_scan(scan);
	scan->condition = NULL;
	switch (nodeTag(scan->state))
	{
		case T_IndexScanState:
		case T_IndexOnlyScanState:
			remember_index_scan(scan);
			return;
		case T_BitmapHeapScanState:
			if (remember_bitmap(scan, outerPlanState(scan->state)))
				return;
			break;
		default:
			break;
	}
	if (!is_current_of(scan->state))
		(void) tw_condition_add_scan(scan->relation, scan->snapshot, scan->qual, TW_ALL_CHANGES);
}

/* Will a rescan look for the same again? */
static bool
is_static(ScanState *state)
{
	return !IsA(state, IndexScanState) && !IsA(state, IndexOnlyScanState) &&
		!IsA(state, BitmapHeapScanState);
}

static const ItemPointerData *
place_of(ScanState *state)
{
	return IsA(state, IndexScanState) ?
		&((IndexScanState *) state)->iss_ScanDesc->xs_heaptid :
		&((IndexOnlyScanState *) state)->ioss_ScanDesc->xs_heaptid;
}

static TupleTableSlot *
exec_predicate(PlanState *ps)
{
	TrackedScan *scan = scan_of(ps);
	TupleTableSlot *result;
	TwCondition *condition;

	if (TTS_EMPTY(scan->state->ss_ScanTupleSlot) || !scan->begun)	/* a cursor's, half-way */
	{
		remember_scan(scan);
		if (is_static(scan->state))
			ExecSetExecProcNode(ps, scan->original);
	}
	condition = scan->condition;
	if (condition == NULL)
		return scan->original(ps);

	/* Should this fail half-way, it may have read anything */
	condition->complete = true;
	if (!ScanDirectionIsForward(ps->state->es_direction))
		condition->stop_fixed = true;
	result = scan->original(ps);
	if (!TupIsNull(result) && !condition->stop_fixed)
	{
		condition->complete = false;
		condition->stop = *place_of(scan->state);
	}
	return result;
}

/* ---------- statements that have written ---------- */

/*
 * Under REPEATABLE READ a row that an UPDATE or DELETE has found by a unique key, and
 * written, had not been changed by others since the snapshot, and nobody can change it, or
 * add another one with that key, until we end.  So the check has nothing to find there: this
 * is most of the work of a transaction that writes what it has read.  In a savepoint, which
 * may be rolled back, it is left to the check.
 */
void
tw_attach_written(QueryDesc *query, uint64 processed)
{
	ModifyTableState *mt = (ModifyTableState *) query->planstate;
	PlanState  *source = outerPlanState(mt);
	TrackedQuery *tracked;
	TrackedScan *scan;

	if (processed != 1 || !IsA(mt, ModifyTableState) || !mt->canSetTag ||
		(mt->operation != CMD_UPDATE && mt->operation != CMD_DELETE) ||
		!IsolationUsesXactSnapshot() || tw_track_in_savepoint())
		return;
	/* a view's INSTEAD OF trigger is given a table's row, and may write what it likes */
	if (!IsA(source, IndexScanState) ||
		((Scan *) source->plan)->scanrelid != mt->resultRelInfo->ri_RangeTableIndex ||
		(tracked = find_query(query->estate)) == NULL)
		return;
	scan = find_scan(tracked, (ScanState *) source);
	if (scan != NULL && scan->probe != NULL &&
		tw_condition_names_one_row(((IndexScanState *) source)->iss_RelationDesc, scan->probe))
		tw_condition_off(scan->relation, scan->probe);
}

/* ---------- errors ---------- */

/*
 * A statement has failed, perhaps on a row that it was looking at, and the error may
 * tell of it.  In mode "predicate" the conditions cover all that a scan could have come to.
 */
void
tw_attach_failed(QueryDesc *query)
{
	TrackedQuery *tracked = find_query(query->estate);

	if (tracked == NULL)
		return;
	for (TrackedScan *scan = tracked->first_scan; scan != NULL; scan = scan->next)
	{
		TupleTableSlot *slot = scan->state->ss_ScanTupleSlot;

		if (!scan->begun || !scan->rows || TTS_EMPTY(slot))
			continue;
		if ((TTS_IS_BUFFERTUPLE(slot) || TTS_IS_HEAPTUPLE(slot)) &&
			((HeapTupleTableSlot *) slot)->tuple != NULL)
			tw_rows_add(scan->relation, ((HeapTupleTableSlot *) slot)->tuple);
		else
			tw_condition_add_whole(scan->relation, scan->snapshot);
	}
}

/* ---------- tw.watch ---------- */

void
tw_attach_conditions(QueryDesc *query)
{
	TrackedQuery *tracked = find_query(query->estate);

	if (tracked == NULL)
		return;
	for (TrackedScan *scan = tracked->first_scan; scan != NULL; scan = scan->next)
	{
		if (scan->copies != NIL)
			tw_conflict_refuse("table", get_rel_name(tw_citus_table_of(linitial_oid(scan->copies))),
							 "It belongs to Citus, which reads only what it runs.");
		remember_scan(scan);
	}
}
