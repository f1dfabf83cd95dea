/*
 * constraint.c
 *		What a transaction learns from constraints, in mode "predicate".
 *
 * A unique index, an exclusion constraint or a foreign key looks at rows that no scan of
 * the statement reads.  When the statement goes through nothing more is needed: what it
 * found absent is now there, written by us, and what it found present it has locked; unless
 * it is in a savepoint that rolls back: then it has told that the keys of its rows were
 * absent, and these become conditions, if it added a single row to a plain table, or else the
 * whole of the table does.  There are two other cases.
 *
 * INSERT ... ON CONFLICT DO NOTHING may do nothing, because of a row that it does
 * not lock.  Then no row of the table may be deleted or change its key until we commit.
 *
 * An error of a constraint may be caught.  Then it has told of a row that is there, or
 * of one that is not; the keys of the row become conditions when it was a single one, and
 * else the tables of the constraint.  The error itself is only noted: catalogs must not be
 * looked at before the subtransaction has been rolled back.
 */
#include "conflict/conflict.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

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

/*
 * A condition on a table and all its partitions or children; of each its own indexes say which
 * changes count, if by_indexes.  Returns the new conditions.
 */
static List *
add_conditions(Oid relid, Snapshot snapshot, TwCounts which, bool by_indexes)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, find_all_inheritors(relid, AccessShareLock, NULL))
	{
		Relation	rel = relation_open(lfirst_oid(lc), AccessShareLock);

		if (rel->rd_rel->relkind == RELKIND_RELATION && tw_track_wanted(rel))
		{
			TwCounts	counts = by_indexes ? removals_of(rel, NIL) : which;
			TwCondition *condition = tw_condition_add_scan(tw_track_relation(rel, snapshot),
														   snapshot, NIL, counts);

			if (condition != NULL)
				result = lappend(result, condition);
		}
		relation_close(rel, NoLock);
	}
	return result;
}

/*
 * No row may go that ON CONFLICT DO NOTHING has found in the way.  Without arbiters that is
 * by any index, and a partition may have some of its own.  Returns the new conditions.
 */
static List *
add_removals(Relation rel, Snapshot snapshot, List *arbiters)
{
	return add_conditions(RelationGetRelid(rel), snapshot, removals_of(rel, arbiters),
						  arbiters == NIL);
}

/* ---------- what keys tell ---------- */

/* Columns of unique indexes and exclusion constraints of a table, and what else they rest on */
typedef struct Keys
{
	bool		any;
	bool		plain;			/* all are unique, by btree */
	bool		others;			/* expressions and predicates look at more than columns */
	Bitmapset  *columns;		/* offset as in sets of updated columns */
} Keys;

static bool
is_key(Relation index)
{
	return index->rd_index->indisunique || index->rd_index->indisexclusion;
}

static Keys
keys_of(Relation rel)
{
	Keys		keys = {.plain = true};
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (is_key(index))
		{
			keys.any = true;
			if (index->rd_index->indisexclusion || index->rd_rel->relam != BTREE_AM_OID)
				keys.plain = false;
			if (RelationGetIndexPredicate(index) != NIL || RelationGetIndexExpressions(index) != NIL)
				keys.others = true;
			for (int i = 0; i < index->rd_index->indnkeyatts; i++)
				keys.columns = bms_add_member(keys.columns, index->rd_index->indkey.values[i] -
											  FirstLowInvalidHeapAttributeNumber);
		}
		index_close(index, NoLock);
	}
	return keys;
}

/* The key of a row in one index, as a probe; NULL when the index does not compare it */
static TwCondition *
probe_of_row(Relation index, TupleTableSlot *slot, EState *estate, Snapshot snapshot)
{
	IndexInfo  *info = BuildIndexInfo(index);
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	ScanKeyData keys[INDEX_MAX_KEYS];

	FormIndexDatum(info, slot, estate, values, nulls);
	for (int i = 0; i < info->ii_NumIndexKeyAttrs; i++)
	{
		Oid			type = index->rd_opcintype[i];
		Oid			equal;

		if (nulls[i])
		{
			if (!info->ii_NullsNotDistinct)
				return NULL;
			ScanKeyEntryInitialize(&keys[i], SK_ISNULL | SK_SEARCHNULL, i + 1, InvalidStrategy,
								   InvalidOid, InvalidOid, InvalidOid, (Datum) 0);
			continue;
		}
		equal = get_opfamily_member(index->rd_opfamily[i], type, type, BTEqualStrategyNumber);
		if (!OidIsValid(equal))
			elog(ERROR, "missing operator %d(%u,%u) in opfamily %u", BTEqualStrategyNumber, type, type,
				 index->rd_opfamily[i]);
		/* a value that is stored elsewhere may go with the row */
		if (TupleDescAttr(RelationGetDescr(index), i)->attlen == -1)
			values[i] = PointerGetDatum(PG_DETOAST_DATUM(values[i]));
		ScanKeyEntryInitialize(&keys[i], 0, i + 1, BTEqualStrategyNumber, type,
							   index->rd_indcollation[i], get_opcode(equal), values[i]);
	}
	return tw_condition_make_probe(snapshot, index, keys, info->ii_NumIndexKeyAttrs);
}

/*
 * A row's keys in all unique indexes: no other row has had them, or, if that is how it failed,
 * one has.  *named becomes true when there is an index of that name among them.
 */
static List *
probes_of_row(Relation rel, TupleTableSlot *slot, Snapshot snapshot, const char *name, bool *named)
{
	EState	   *estate = CreateExecutorState();
	List	   *result = NIL;
	ListCell   *lc;

	GetPerTupleExprContext(estate)->ecxt_scantuple = slot;
	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (is_key(index))
		{
			TwCondition *probe = probe_of_row(index, slot, estate, snapshot);

			if (probe != NULL)
				result = lappend(result, probe);
			if (name != NULL && strcmp(name, RelationGetRelationName(index)) == 0)
				*named = true;
		}
		index_close(index, NoLock);
	}
	FreeExecutorState(estate);
	return result;
}

/* ---------- statements that write ---------- */

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
			tw_track_spared(tw_track_relation(part, snapshot), snapshot, NIL);
		relation_close(part, NoLock);
	}
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

/*
 * In mode "predicate": what its scans have read is remembered as that of any statement.
 * Beyond that a DELETE learns nothing, an UPDATE something only when it changes a key, and
 * an INSERT of one row nothing but its keys.
 */
static void
spare_keys(ModifyTableState *mt, bool on_top, TwTargets *targets)
{
	ResultRelInfo *info = mt->rootResultRelInfo;
	Relation	rel = info->ri_RelationDesc;
	bool		table = rel->rd_rel->relkind == RELKIND_RELATION && !rel->rd_rel->relhassubclass;
	OnConflictAction action = ((ModifyTable *) mt->ps.plan)->onConflictAction;
	Keys		keys;

	if (mt->operation == CMD_DELETE)
		return;
	if (table && action != ONCONFLICT_UPDATE)
	{
		keys = keys_of(rel);
		if (!keys.any)
			return;
		if (mt->operation == CMD_UPDATE && !keys.others &&
			(rel->trigdesc == NULL || !rel->trigdesc->trig_update_before_row) &&
			!bms_overlap(keys.columns, ExecGetAllUpdatedCols(info, mt->ps.state)))
			return;
		if (mt->operation == CMD_INSERT && on_top && keys.plain && rows_given(&mt->ps) == 1)
		{
			/* the lock must outlast the subtransaction: the row is looked at later */
			(void) tw_track_relation(rel, targets->snapshot);
			targets->single = mt;
			GetUserIdAndSecContext(&targets->userid, &targets->sec_context);
			return;
		}
	}
	spare_target(rel, targets->snapshot);
}

typedef struct WriteWalk
{
	QueryDesc  *query;
	TwTargets  *targets;
	bool		custom;			/* below a node of another extension */
} WriteWalk;

static bool
write_walker(PlanState *ps, WriteWalk *walk)
{
	walk->custom |= IsA(ps, CustomScanState);
	if (IsA(ps, ModifyTableState))
	{
		ModifyTable *plan = (ModifyTable *) ps->plan;
		Relation	rel = ((ModifyTableState *) ps)->rootResultRelInfo->ri_RelationDesc;
		TwTargets  *targets = walk->targets;
		bool		predicate = tw_track->mode == TW_TRACK_PREDICATE;
		bool		conflicts = plan->onConflictAction != ONCONFLICT_NONE;
		bool		tracked = (predicate ? conflicts || tw_track_in_savepoint() :
							   plan->onConflictAction == ONCONFLICT_UPDATE) &&
			(rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
			 (rel->rd_rel->relkind == RELKIND_RELATION && tw_track_wanted(rel)));

		if (tracked && targets->snapshot == NULL)
			targets->snapshot = tw_track_snapshot(walk->query->snapshot);
		if (tracked && predicate && plan->onConflictAction == ONCONFLICT_NOTHING)
		{
			List	   *added = add_removals(rel, targets->snapshot, plan->arbiterIndexes);

			/* of another one in WITH it is not known how many rows it was given */
			if (ps == walk->query->planstate)
				targets->conditions = added;
		}
		if (tracked && tw_track_in_savepoint())
		{
			if (predicate)
				spare_keys((ModifyTableState *) ps, ps == walk->query->planstate, targets);
			else
				spare_target(rel, targets->snapshot);
		}

		/* a hypertable gets another chunk when a row needs it, and that one has not been seen */
		if (tracked && predicate && walk->custom)
			tw_track_parent(RelationGetRelid(rel));
	}
	return planstate_tree_walker(ps, write_walker, walk);
}

/* One ModifyTable without ON CONFLICT: outside of a savepoint it has nothing for the walk */
static bool
is_simple_write(QueryDesc *query)
{
	PlanState  *ps = query->planstate;

	return IsA(ps, ModifyTableState) && !query->plannedstmt->hasModifyingCTE &&
		((ModifyTable *) ps->plan)->onConflictAction == ONCONFLICT_NONE;
}

void
tw_constraint_before_write(QueryDesc *query, TwTargets *targets)
{
	WriteWalk	walk = {query, targets, false};
	bool		savepoint = tw_track_in_savepoint();

	if (query->snapshot == NULL || !IsMVCCSnapshot(query->snapshot) ||
		(!savepoint && (tw_track->mode != TW_TRACK_PREDICATE || is_simple_write(query))))
		return;
	write_walker(query->planstate, &walk);
}

/* COPY FROM learns by constraints what an INSERT of many rows does */
void
tw_constraint_before_copy(Relation rel)
{
	bool		table = rel->rd_rel->relkind == RELKIND_RELATION && !rel->rd_rel->relhassubclass;

	if (tw_track->mode != TW_TRACK_PREDICATE || !tw_track_in_savepoint() ||
		(table && (!tw_track_wanted(rel) || !keys_of(rel).any)))
		return;
	spare_target(rel, tw_track_snapshot(GetActiveSnapshot()));
}

/*
 * The row that an INSERT has just added, from where it stands: triggers may have changed
 * it.  False: it is not found.
 */
static bool
spare_single(const TwTargets *targets)
{
	Relation	rel = targets->single->rootResultRelInfo->ri_RelationDesc;
	TupleTableSlot *added = targets->single->rootResultRelInfo->ri_newTupleSlot;
	TupleTableSlot *slot;
	bool		found;

	if (added == NULL || !ItemPointerIsValid(&added->tts_tid))
		return false;
	slot = table_slot_create(rel, NULL);
	found = table_tuple_fetch_row_version(rel, &added->tts_tid, SnapshotSelf, slot);
	if (found)
	{
		List	   *probes = probes_of_row(rel, slot, targets->snapshot, NULL, NULL);

		if (probes != NIL)
			tw_track_spared(tw_track_relation(rel, targets->snapshot), targets->snapshot, probes);
	}
	ExecDropSingleTupleTableSlot(slot);
	return found;
}

void
tw_constraint_after_write(QueryDesc *query, const TwTargets *targets, uint64 processed)
{
	ListCell   *lc;

	if (targets->single != NULL && processed == 1 && !spare_single(targets))
		spare_target(targets->single->rootResultRelInfo->ri_RelationDesc, targets->snapshot);
	if (targets->conditions == NIL || rows_given(query->planstate) != (int64) processed)
		return;
	/* all were inserted: no row was in the way */
	foreach(lc, targets->conditions)
	{
		TwCondition *condition = lfirst(lc);

		condition->off = !condition->shared;
	}
}

/* ---------- errors ---------- */

static char *
copy_string(const char *s)
{
	return s == NULL ? NULL : pstrdup(s);
}

/* The row that the statement was adding when it failed, in the current memory context */
static void
copy_row(TwViolation *violation, const TwTargets *targets)
{
	ResultRelInfo *info;

	if (targets == NULL || targets->single == NULL)
		return;
	info = targets->single->rootResultRelInfo;
	if (info->ri_newTupleSlot == NULL || TTS_EMPTY(info->ri_newTupleSlot))
		return;
	violation->target = RelationGetRelid(info->ri_RelationDesc);
	violation->desc = CreateTupleDescCopyConstr(RelationGetDescr(info->ri_RelationDesc));
	violation->row = ExecCopySlotHeapTuple(info->ri_newTupleSlot);
	violation->userid = targets->userid;
	violation->sec_context = targets->sec_context;
}

/* An error passes through the statements around the one that has raised it */
static bool
noted_before(const ErrorData *error)
{
	TwViolation *last = tw_track->violations == NIL ? NULL : llast(tw_track->violations);

	return last != NULL && last->sqlstate == error->sqlerrcode && last->detail != NULL &&
		error->detail != NULL && strcmp(last->detail, error->detail) == 0 &&
		strcmp(last->schema, error->schema_name) == 0 && strcmp(last->table, error->table_name) == 0 &&
		last->constraint != NULL && error->constraint_name != NULL &&
		strcmp(last->constraint, error->constraint_name) == 0;
}

void
tw_constraint_violated(const TwTargets *targets)
{
	MemoryContext old;
	ErrorData  *error;
	TwViolation *violation;
	bool		constraint;

	if (tw_track->mode != TW_TRACK_PREDICATE)
		return;
	old = MemoryContextSwitchTo(tw_track->mcxt);
	error = CopyErrorData();
	constraint = error->table_name != NULL && error->schema_name != NULL &&
		(error->sqlerrcode == ERRCODE_UNIQUE_VIOLATION ||
		 error->sqlerrcode == ERRCODE_EXCLUSION_VIOLATION ||
		 error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION ||
		 error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION) && !noted_before(error);
	violation = palloc0(sizeof(TwViolation));
	copy_row(violation, targets);
	if (constraint)
	{
		violation->sqlstate = error->sqlerrcode;
		violation->schema = copy_string(error->schema_name);
		violation->table = copy_string(error->table_name);
		violation->constraint = copy_string(error->constraint_name);
		violation->detail = copy_string(error->detail);
	}
	if (constraint || violation->row != NULL)
	{
		tw_track->violations = lappend(tw_track->violations, violation);
		if (tw_track->oldest == NULL && ActiveSnapshotSet())
			(void) tw_track_snapshot(GetActiveSnapshot());
	}
	FreeErrorData(error);
	MemoryContextSwitchTo(old);
}

/*
 * The keys of a row that failed, in *probes.  Expressions of indexes may fail again, and then
 * it is not known what has; false: then all that is done here is undone.  They run as the one
 * who was adding the row.  In a commit no subtransaction can be rolled back, so they are not run.
 */
static bool
keys_of_failed(const TwViolation *violation, Relation rel, TupleTableSlot *slot, List **probes,
			   bool *named)
{
	MemoryContext mcxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool done = false;

	if (!keys_of(rel).others)
	{
		*probes = probes_of_row(rel, slot, tw_track->oldest, violation->constraint, named);
		return true;
	}
	if (tw_track->ending)
		return false;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(mcxt);
	PG_TRY();
	{
		Oid			userid;
		int			sec_context;

		GetUserIdAndSecContext(&userid, &sec_context);
		SetUserIdAndSecContext(violation->userid, violation->sec_context);
		*probes = probes_of_row(rel, slot, tw_track->oldest, violation->constraint, named);
		SetUserIdAndSecContext(userid, sec_context);
		ReleaseCurrentSubTransaction();
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(mcxt);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(mcxt);
		CurrentResourceOwner = owner;
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(mcxt);
	CurrentResourceOwner = owner;
	return done;
}

/*
 * The keys of a row that an INSERT was adding.  True: they tell all that its error has told of
 * the table.
 */
static bool
settle_row(TwViolation *violation)
{
	/* NULL: it was made in the subtransaction */
	Relation	rel = try_relation_open(violation->target, AccessShareLock);
	TwRelation *relation;
	List	   *probes = NIL;
	bool		known = false;
	bool		all = false;
	ListCell   *lc;

	if (rel == NULL)
		return false;
	relation = tw_track_relation(rel, tw_track->oldest);
	if (equalTupleDescs(violation->desc, RelationGetDescr(rel)))
	{
		TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);

		ExecStoreHeapTuple(violation->row, slot, false);
		slot->tts_tableOid = violation->target;
		known = keys_of_failed(violation, rel, slot, &probes, &all);
		ExecDropSingleTupleTableSlot(slot);
	}
	if (known)
	{
		foreach(lc, probes)
			tw_condition_link(relation, lfirst(lc));
	}
	else
	{
		all = false;
		tw_condition_add_whole(relation, tw_track->oldest);
	}
	relation_close(rel, NoLock);
	return all && violation->sqlstate == ERRCODE_UNIQUE_VIOLATION;
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
		tw_conflict_refuse("hypertable", RelationGetRelationName(rel),
						 "It has compressed chunks, and the error of a constraint was caught.");
	table_close(rel, NoLock);
}

static void
settle(TwViolation *violation)
{
	Oid			namespace;
	Oid			relid = InvalidOid;
	Oid			constraint;
	HeapTuple	tuple;
	bool		told = violation->row != NULL && settle_row(violation);

	if (violation->sqlstate == 0)
		return;
	namespace = get_namespace_oid(violation->schema, true);
	if (OidIsValid(namespace))
		relid = get_relname_relid(violation->table, namespace);
	/* made, and gone, in the subtransaction; or whatever a statement has put into its error */
	if (!OidIsValid(relid) || (get_rel_relkind(relid) != RELKIND_RELATION &&
							   get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE))
		return;
	refuse_compressed(relid);
	if (told && relid == violation->target)
		return;
	if (violation->sqlstate == ERRCODE_UNIQUE_VIOLATION ||
		violation->sqlstate == ERRCODE_EXCLUSION_VIOLATION)
	{
		(void) add_conditions(relid, tw_track->oldest, TW_REMOVALS, false);
		return;
	}
	(void) add_conditions(relid, tw_track->oldest, TW_ALL_CHANGES, false);
	if (violation->constraint == NULL)
		return;
	constraint = get_relation_constraint_oid(relid, violation->constraint, true);
	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	if (HeapTupleIsValid(tuple))
	{
		Oid			parent = ((Form_pg_constraint) GETSTRUCT(tuple))->confrelid;

		ReleaseSysCache(tuple);
		if (OidIsValid(parent))
			(void) add_conditions(parent, tw_track->oldest, TW_ALL_CHANGES, false);
	}
}

/* What is known by now becomes conditions */
static void
settle_all(void)
{
	List	   *violations = tw_track->violations;
	List	   *unsettled = tw_track->unsettled;
	ListCell   *lc;

	tw_track->violations = tw_track->unsettled = NIL;
	foreach(lc, unsettled)
	{
		TwSpared   *spared = lfirst(lc);
		ListCell   *probe;

		foreach(probe, spared->probes)
			tw_condition_link(spared->relation, lfirst(probe));
	}
	foreach(lc, violations)
		settle(lfirst(lc));
}

/* Functions in indexes may run queries, and before a commit there is no snapshot for them */
void
tw_constraint_settle(void)
{
	bool		busy = tw_track->busy;

	if (likely(tw_track->violations == NIL && tw_track->unsettled == NIL) ||
		tw_track->oldest == NULL)
		return;
	tw_track->busy = true;
	PushActiveSnapshot(tw_track->oldest);
	PG_TRY();
	{
		settle_all();
	}
	PG_FINALLY();
	{
		tw_track->busy = busy;
	}
	PG_END_TRY();
	PopActiveSnapshot();
}
