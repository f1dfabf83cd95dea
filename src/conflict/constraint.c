/*
 * constraint.c
 *		What a transaction learns from constraints, in mode "predicate".
 *
 * A unique index, an exclusion constraint or a foreign key looks at rows that no scan of
 * the statement reads.  When the statement goes through nothing more is needed: what it
 * found absent is now there, written by us, and what it found present it has locked; unless
 * it is in a savepoint that rolls back.  There are two other cases.
 *
 * INSERT ... ON CONFLICT DO NOTHING may do nothing, because of a row that it does
 * not lock.  Then no row of the table may be deleted or change its key until we commit.
 *
 * An error of a constraint may be caught.  Then it has told of a row that is there, or
 * of one that is not; the tables of the constraint get a condition each.  The error
 * itself is only noted: catalogs must not be looked at before the subtransaction has
 * been rolled back.
 */
#include "conflict/conflict.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* A condition on a table and all its partitions or children; returns the new conditions */
static List *
add_conditions(Oid relid, Snapshot snapshot, TwCounts which)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, find_all_inheritors(relid, AccessShareLock, NULL))
	{
		Relation	rel = relation_open(lfirst_oid(lc), AccessShareLock);

		if (rel->rd_rel->relkind == RELKIND_RELATION && tw_track_wanted(rel))
		{
			TwRelation *relation = tw_track_relation(rel, snapshot);
			TwCondition *condition = tw_condition_add_scan(relation, snapshot, NIL, which);

			if (condition != NULL)
				result = lappend(result, condition);
		}
		relation_close(rel, NoLock);
	}
	return result;
}

/* ---------- INSERT and ON CONFLICT ---------- */

/* Are all arbiters plain keys, whose change the tuple header tells of? */
static TwCounts
removals_of(Relation rel, List *arbiters)
{
	ListCell   *lc;

	if (arbiters == NIL)
		arbiters = RelationGetIndexList(rel);
	foreach(lc, arbiters)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		bool		plain = index->rd_index->indisunique ? index->rd_index->indimmediate &&
			RelationGetIndexExpressions(index) == NIL && RelationGetIndexPredicate(index) == NIL :
			!index->rd_index->indisexclusion;

		index_close(index, NoLock);
		if (!plain)
			return TW_REMOVALS;
	}
	return TW_KEY_REMOVALS;
}

typedef struct InsertWalk
{
	List	   *conditions;
	Snapshot	snapshot;
	bool		custom;			/* below a node of another extension */
} InsertWalk;

/*
 * A statement that goes through has seen its target through constraints: that a key was not
 * there, or what stands in the row that ON CONFLICT DO UPDATE has locked.  It is safe as
 * long as what it has done stands, so a subtransaction's rollback must know of it.
 */
static void
spare_target(Relation rel, Snapshot snapshot)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL))
	{
		Relation	part = relation_open(lfirst_oid(lc), AccessShareLock);

		if (part->rd_rel->relkind == RELKIND_RELATION && tw_track_wanted(part))
			tw_track_spared(tw_track_relation(part, snapshot), snapshot);
		relation_close(part, NoLock);
	}
}

static bool
insert_walker(PlanState *ps, InsertWalk *walk)
{
	walk->custom |= IsA(ps, CustomScanState);
	if (IsA(ps, ModifyTableState))
	{
		ModifyTable *plan = (ModifyTable *) ps->plan;
		Relation	rel = ((ModifyTableState *) ps)->rootResultRelInfo->ri_RelationDesc;
		bool		tracked = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
			(rel->rd_rel->relkind == RELKIND_RELATION && tw_track_wanted(rel));

		if (tracked && plan->onConflictAction == ONCONFLICT_NOTHING &&
			tw_track->mode == TW_TRACK_PREDICATE)
			walk->conditions = list_concat(walk->conditions,
										   add_conditions(RelationGetRelid(rel), walk->snapshot,
														  removals_of(rel, plan->arbiterIndexes)));
		if (tracked && tw_track_in_savepoint() &&
			(tw_track->mode == TW_TRACK_PREDICATE || plan->onConflictAction == ONCONFLICT_UPDATE))
			spare_target(rel, walk->snapshot);

		/* a hypertable gets another chunk when a row needs it, and that one has not been seen */
		if (tracked && walk->custom && tw_track->mode == TW_TRACK_PREDICATE &&
			(plan->onConflictAction != ONCONFLICT_NONE || tw_track_in_savepoint()))
			tw_track_parent(RelationGetRelid(rel));
	}
	return planstate_tree_walker(ps, insert_walker, walk);
}

List *
tw_constraint_before_insert(QueryDesc *query)
{
	InsertWalk	walk = {0};

	if (query->plannedstmt->resultRelations == NIL || query->snapshot == NULL ||
		!IsMVCCSnapshot(query->snapshot))
		return NIL;
	walk.snapshot = tw_track_snapshot(query->snapshot);
	insert_walker(query->planstate, &walk);
	return walk.conditions;
}

/* Rows that an INSERT was given, where that is known beforehand; otherwise -1 */
static int64
rows_given(PlanState *ps)
{
	PlanState  *source;

	if (!IsA(ps, ModifyTableState) || !((ModifyTableState *) ps)->canSetTag)
		return -1;
	source = outerPlanState(ps);
	if (IsA(source, ResultState) && outerPlanState(source) == NULL)
		return 1;
	if (IsA(source, ValuesScanState) && source->plan->qual == NIL)
		return list_length(((ValuesScan *) source->plan)->values_lists);
	return -1;
}

void
tw_constraint_after_insert(QueryDesc *query, List *conditions, uint64 processed)
{
	ListCell   *lc;

	if (tw_track == NULL || rows_given(query->planstate) != (int64) processed)
		return;
	/* all were inserted: no row was in the way */
	foreach(lc, conditions)
		((TwCondition *) lfirst(lc))->off = true;
}

/* ---------- errors ---------- */

static char *
copy_string(const char *s)
{
	return s == NULL ? NULL : pstrdup(s);
}

void
tw_constraint_violated(void)
{
	MemoryContext old;
	ErrorData  *error;
	TwViolation *violation;

	if (tw_track->mode != TW_TRACK_PREDICATE ||
		ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION)
		return;
	old = MemoryContextSwitchTo(tw_track->mcxt);
	error = CopyErrorData();
	if (error->table_name != NULL && error->schema_name != NULL &&
		(error->sqlerrcode == ERRCODE_UNIQUE_VIOLATION ||
		 error->sqlerrcode == ERRCODE_EXCLUSION_VIOLATION ||
		 error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION ||
		 error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION))
	{
		violation = palloc(sizeof(TwViolation));
		violation->sqlstate = error->sqlerrcode;
		violation->schema = copy_string(error->schema_name);
		violation->table = copy_string(error->table_name);
		violation->constraint = copy_string(error->constraint_name);
		tw_track->violations = lappend(tw_track->violations, violation);
		if (tw_track->oldest == NULL && ActiveSnapshotSet())
			(void) tw_track_snapshot(GetActiveSnapshot());
	}
	FreeErrorData(error);
	MemoryContextSwitchTo(old);
}

/* The row in the way may have been a compressed one, which nobody can check */
static void
refuse_compressed(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	Oid			whole = tw_hypertable_of_chunk(rel);

	table_close(rel, NoLock);
	if (!OidIsValid(whole))
		return;
	rel = table_open(whole, AccessShareLock);
	if (tw_hypertable_has_compressed(tw_hypertable_id(rel)))
		tw_attach_refuse("hypertable", RelationGetRelationName(rel),
						 "It has compressed chunks, and the error of a constraint was caught.");
	table_close(rel, NoLock);
}

static void
settle(TwViolation *violation)
{
	Oid			namespace = get_namespace_oid(violation->schema, true);
	Oid			relid = InvalidOid;
	Oid			constraint;
	HeapTuple	tuple;

	if (OidIsValid(namespace))
		relid = get_relname_relid(violation->table, namespace);
	/* made, and gone, in the subtransaction */
	if (!OidIsValid(relid))
		return;
	refuse_compressed(relid);
	if (violation->sqlstate == ERRCODE_UNIQUE_VIOLATION ||
		violation->sqlstate == ERRCODE_EXCLUSION_VIOLATION)
	{
		(void) add_conditions(relid, tw_track->oldest, TW_REMOVALS);
		return;
	}
	(void) add_conditions(relid, tw_track->oldest, TW_ALL_CHANGES);
	if (violation->constraint == NULL)
		return;
	constraint = get_relation_constraint_oid(relid, violation->constraint, true);
	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	if (HeapTupleIsValid(tuple))
	{
		Oid			parent = ((Form_pg_constraint) GETSTRUCT(tuple))->confrelid;

		ReleaseSysCache(tuple);
		if (OidIsValid(parent))
			(void) add_conditions(parent, tw_track->oldest, TW_ALL_CHANGES);
	}
}

void
tw_constraint_settle(void)
{
	List	   *violations = tw_track->violations;
	ListCell   *lc;

	if (violations == NIL || tw_track->oldest == NULL)
		return;
	tw_track->violations = NIL;
	foreach(lc, violations)
		settle(lfirst(lc));
}
