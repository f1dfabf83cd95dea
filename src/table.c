/*
 * table.c
 *		Direct access to our own tables, and the only place that has it.
 *
 * No SPI and no executor: no operator, function, trigger, rule or search_path of
 * a user can get between us and the ledger, no rights have to be switched, and
 * a claim works without a snapshot and at every isolation level.
 *
 * A table is opened by its name in schema tw under RowExclusiveLock, which is
 * kept to the end of the transaction, as a statement would; on a standby, where it
 * is only read, under AccessShareLock.  Those on indexes, and on a table from which
 * one row is fetched, are given back at once: each that is kept costs a PREPARE and
 * the end of the transaction more than it cost to take.  The install script
 * pins our tables to heap, and its columns are those of the enums in tw.h:
 * a table with another number of columns is refused.
 *
 * Every index a table has is maintained, also one an administrator has added.  Triggers
 * are not fired: a table that has one for what is written is refused.
 *
 * OIDs are looked up by name once and forgotten whenever pg_class or
 * pg_namespace change.
 */
#include "tw.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"
#include "utils/snapmgr.h"

#define MAX_KEYS 3

typedef struct TableInfo
{
	const char *name;
	int			natts;
	TwName		found;
	Buffer		fetched;		/* where tw_table_fetch() found a row last */
} TableInfo;

static TableInfo tables[] =
{
	[TW_TABLE_JOB] = {"job", TW_JOB_NATTS},
	[TW_TABLE_BATCH] = {"batch", TW_BATCH_NATTS},
	[TW_TABLE_BATCH_OUTCOME] = {"batch_outcome", TW_RESULT_NATTS},
	[TW_TABLE_FAILURE] = {"failure", TW_FAILURE_NATTS},
	[TW_TABLE_AUDIT] = {"audit", TW_AUDIT_NATTS},
	[TW_TABLE_STAGE] = {"stage", TW_STAGE_NATTS},
	[TW_TABLE_STAGE_TARGET] = {"stage_target", TW_STARGET_NATTS},
	[TW_TABLE_STAGE_TASK] = {"stage_task", TW_STASK_NATTS},
	[TW_TABLE_STAGE_ALIVE] = {"stage_alive", TW_ALIVE_NATTS},
	[TW_TABLE_STAGE_LEFTOVER] = {"stage_leftover", TW_LEFTOVER_NATTS},
	[TW_TABLE_OFFSET] = {"source_offset", TW_OFFSET_NATTS},
	[TW_TABLE_PREPARED] = {"prepared", TW_PREPARED_NATTS},
};

typedef struct TableIndexInfo
{
	const char *name;
	TwTable		table;
	RegProcedure keys[MAX_KEYS];	/* the equality function of each key, in the caller's order */
	AttrNumber	columns[MAX_KEYS];	/* which column of the index it is for; 0: the same as its
									 * place */
	TwName		found;
} TableIndexInfo;

static TableIndexInfo indexes[] =
{
	[TW_INDEX_JOB] = {"job_pkey", TW_TABLE_JOB, {F_TEXTEQ}},
	[TW_INDEX_BATCH] = {"batch_pkey", TW_TABLE_BATCH, {F_TEXTEQ, F_TEXTEQ}, {2, 1}},
	[TW_INDEX_BATCH_VERSION] = {"batch_version_idx", TW_TABLE_BATCH, {F_TEXTEQ, F_INT8EQ}},
	[TW_INDEX_BATCH_STARTED] = {"batch_started_at_idx", TW_TABLE_BATCH, {F_TEXTEQ}},
	[TW_INDEX_BATCH_OUTCOME] = {"batch_outcome_pkey", TW_TABLE_BATCH_OUTCOME,
	{F_XID8EQ, F_TEXTEQ, F_TEXTEQ}},
	[TW_INDEX_FAILURE] = {"failure_job_at_idx", TW_TABLE_FAILURE, {F_TEXTEQ}},
	[TW_INDEX_AUDIT] = {"audit_job_batch_id_idx", TW_TABLE_AUDIT, {F_TEXTEQ, F_TEXTEQ}},
	[TW_INDEX_STAGE] = {"stage_pkey", TW_TABLE_STAGE, {F_TEXTEQ, F_TEXTEQ}},
	[TW_INDEX_STAGE_TARGET] = {"stage_target_pkey", TW_TABLE_STAGE_TARGET, {F_INT8EQ, F_INT4EQ}},
	[TW_INDEX_STAGE_TASK] = {"stage_task_pkey", TW_TABLE_STAGE_TASK, {F_INT8EQ, F_TEXTEQ}},
	[TW_INDEX_STAGE_ALIVE] = {"stage_alive_pkey", TW_TABLE_STAGE_ALIVE, {F_INT8EQ, F_TEXTEQ}},
	[TW_INDEX_STAGE_LEFTOVER] = {"stage_leftover_pkey", TW_TABLE_STAGE_LEFTOVER, {F_INT8EQ}},
	[TW_INDEX_OFFSET] = {"source_offset_pkey", TW_TABLE_OFFSET, {F_TEXTEQ, F_TEXTEQ, F_TEXTEQ}},
	[TW_INDEX_PREPARED] = {"prepared_pkey", TW_TABLE_PREPARED, {F_TEXTEQ}},
	[TW_INDEX_PREPARED_XID] = {"prepared_xid_idx", TW_TABLE_PREPARED, {F_XID8EQ}},
};

struct TwScan
{
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	MemoryContext row_context;	/* of the row last given out; tw_table_scan_*() only */
};

static Oid	relation_oid(const char *name, TwName *found);
static Relation open_locked(TwTable table, LOCKMODE mode);
static Relation open_to_write(TwTable table, int16 event);
static bool insert_index_entries(Relation rel, TupleTableSlot *slot, bool spare_primary_key,
								 TwUpdateIndexes which);
static EState *evaluation_begin(void);
static void evaluation_end(EState *estate);
static bool insert_index_entry(Relation rel, Relation index, TupleTableSlot *slot,
							   bool spare_primary_key);
static bool is_primary_key(Relation rel, Relation index);
static bool predicate_holds(IndexInfo *info, TupleTableSlot *slot, EState **estate);

/* ---------- tables ---------- */

/* A table or index of schema tw by its name */
static Oid
relation_oid(const char *name, TwName *found)
{
	Oid			oid = tw_name_lookup("tw", name, found);

	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"tw.%s\" does not exist", name),
				 errhint("Run CREATE EXTENSION transactional_writer in this database.")));
	return oid;
}

Oid
tw_table_oid(TwTable table)
{
	return relation_oid(tables[table].name, &tables[table].found);
}

static Relation
open_locked(TwTable table, LOCKMODE mode)
{
	Relation	rel;

	/* the extension may be dropped while we wait for the lock, and be there again */
	while ((rel = try_table_open(tw_table_oid(table), mode)) == NULL)
		CHECK_FOR_INTERRUPTS();
	if (rel->rd_rel->relkind != RELKIND_RELATION ||
		RelationGetNumberOfAttributes(rel) != tables[table].natts)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relation \"tw.%s\" is not what this version of transactional_writer expects",
						tables[table].name),
				 errhint("Run ALTER EXTENSION transactional_writer UPDATE.")));
	return rel;
}

Relation
tw_table_open(TwTable table)
{
	return open_locked(table, RecoveryInProgress() ? AccessShareLock : RowExclusiveLock);
}

void
tw_table_close(Relation rel)
{
	table_close(rel, NoLock);
}

/* ---------- reading ---------- */

static TwScan *
scan_begin(TwScan *scan, TwIndex index, Snapshot snapshot, int nkeys, const Datum *keys)
{
	ScanKeyData scankeys[MAX_KEYS];

	Assert(nkeys <= MAX_KEYS);
	for (int i = 0; i < nkeys; i++)
	{
		AttrNumber	column = indexes[index].columns[i] ? indexes[index].columns[i] : i + 1;
		RegProcedure equal = indexes[index].keys[i];

		/* the access method wants them in the order of its columns */
		ScanKeyEntryInitialize(&scankeys[column - 1], 0, column, BTEqualStrategyNumber, InvalidOid,
							   equal == F_TEXTEQ ? C_COLLATION_OID : InvalidOid, equal, keys[i]);
	}

	scan->rel = tw_table_open(indexes[index].table);
	scan->index = index_open(relation_oid(indexes[index].name, &indexes[index].found),
							 AccessShareLock);
	scan->slot = table_slot_create(scan->rel, NULL);
	scan->scan = tw_index_beginscan(scan->rel, scan->index, snapshot, nkeys);
	index_rescan(scan->scan, scankeys, nkeys, NULL, 0);
	return scan;
}

static void
scan_end(TwScan *scan)
{
	index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, AccessShareLock);
	tw_table_close(scan->rel);
}

/*
 * The index may keep what it allocates here for the rest of the scan, so the
 * row alone goes into a context of its own.
 */
static bool
scan_next(TwScan *scan, ScanDirection direction, MemoryContext row_context, TwRow *row)
{
	MemoryContext old;

	if (!index_getnext_slot(scan->scan, direction, scan->slot))
		return false;
	old = MemoryContextSwitchTo(row_context);
	row->tuple = ExecCopySlotHeapTuple(scan->slot);
	heap_deform_tuple(row->tuple, RelationGetDescr(scan->rel), row->values, row->nulls);
	MemoryContextSwitchTo(old);
	return true;
}

bool
tw_table_find(TwIndex index, Snapshot snapshot, int nkeys, const Datum *keys,
			  ScanDirection direction, TwRow *row)
{
	TwScan		scan;
	bool		found;

	scan_begin(&scan, index, snapshot, nkeys, keys);
	found = scan_next(&scan, direction, CurrentMemoryContext, row);
	scan_end(&scan);
	return found;
}

/*
 * The table may have become shorter since a row was seen, and to read behind its end is an error.
 * To ask for its length is a system call; a buffer that still holds the block says the same.
 */
static bool
has_block(Relation rel, BlockNumber block, Buffer buffer)
{
	if (BufferIsValid(buffer) && ReadRecentBuffer(TW_LOCATOR(rel), MAIN_FORKNUM, block, buffer))
	{
		ReleaseBuffer(buffer);
		return true;
	}
	return block < RelationGetNumberOfBlocks(rel);
}

bool
tw_table_fetch(TwTable table, ItemPointer tid, Snapshot snapshot, TwRow *row)
{
	Relation	rel = open_locked(table, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	bool		found;

	found = has_block(rel, ItemPointerGetBlockNumber(tid), tables[table].fetched) &&
		table_tuple_fetch_row_version(rel, tid, snapshot, slot);
	if (found)
	{
		tables[table].fetched = ((BufferHeapTupleTableSlot *) slot)->buffer;
		row->tuple = ExecCopySlotHeapTuple(slot);
		heap_deform_tuple(row->tuple, RelationGetDescr(rel), row->values, row->nulls);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	return found;
}

bool
tw_table_was_committed(TwIndex index, int nkeys, const Datum *keys)
{
	TwScan	   *scan = tw_table_scan_begin(index, SnapshotAny, nkeys, keys);
	TwRow		row;
	bool		committed = false;

	while (!committed && tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		HeapTupleHeader header = row.tuple->t_data;
		TransactionId xmin = HeapTupleHeaderGetRawXmin(header);

		committed = HeapTupleHeaderXminFrozen(header) ||
			(!TransactionIdIsInProgress(xmin) && TransactionIdDidCommit(xmin));
	}
	tw_table_scan_end(scan);
	return committed;
}

TwScan *
tw_table_scan_begin(TwIndex index, Snapshot snapshot, int nkeys, const Datum *keys)
{
	TwScan	   *scan = palloc(sizeof(TwScan));

	scan->row_context = AllocSetContextCreate(CurrentMemoryContext, "transactional_writer scan",
											  ALLOCSET_SMALL_SIZES);
	return scan_begin(scan, index, snapshot, nkeys, keys);
}

bool
tw_table_scan_next(TwScan *scan, ScanDirection direction, TwRow *row)
{
	MemoryContextReset(scan->row_context);
	return scan_next(scan, direction, scan->row_context, row);
}

void
tw_table_scan_end(TwScan *scan)
{
	scan_end(scan);
	MemoryContextDelete(scan->row_context);
	pfree(scan);
}

/* ---------- writing ---------- */

/* Would a statement fire it in this session?  Rows keep their keys, so those that check an
 * update of a key that is referred to have nothing to do. */
static bool
fires(const Trigger *trigger, int16 event)
{
	char		not_here = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA ?
		TRIGGER_FIRES_ON_ORIGIN : TRIGGER_FIRES_ON_REPLICA;

	return (trigger->tgtype & event) != 0 && trigger->tgenabled != TRIGGER_DISABLED &&
		trigger->tgenabled != not_here &&
		(event != TRIGGER_TYPE_UPDATE || RI_FKey_trigger_type(trigger->tgfoid) != RI_TRIGGER_PK);
}

/*
 * No trigger is fired here, and what relies on one would miss what is written: a tool that
 * copies the table while it is written, a foreign key that refers to it.
 */
static Relation
open_to_write(TwTable table, int16 event)
{
	Relation	rel = tw_table_open(table);

	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
	{
		Trigger    *trigger = &rel->trigdesc->triggers[i];
		bool		constraint = trigger->tgisinternal && OidIsValid(trigger->tgconstraint);

		if (fires(trigger, event))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 constraint ?
					 errmsg("cannot write to relation \"tw.%s\" because of constraint \"%s\"",
							tables[table].name, get_constraint_name(trigger->tgconstraint)) :
					 errmsg("cannot write to relation \"tw.%s\" because of trigger \"%s\"",
							tables[table].name, trigger->tgname),
					 errdetail("No trigger is fired by what transactional_writer writes to its own tables."),
					 errhint("Drop the %s.", constraint ? "constraint" : "trigger")));
	}
	return rel;
}

/* A slot with a new row of rel */
static TupleTableSlot *
new_row(Relation rel, const Datum *values, const bool *nulls)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	int			natts = RelationGetNumberOfAttributes(rel);

	memcpy(slot->tts_values, values, natts * sizeof(Datum));
	memcpy(slot->tts_isnull, nulls, natts * sizeof(bool));
	return ExecStoreVirtualTuple(slot);
}

/*
 * Toasted values are read, and from version 18 on also written, under a
 * snapshot only.  A catalog snapshot will do, and leaves the transaction's own for
 * later.  NULL: there is one already.
 */
Snapshot
tw_table_toast_snapshot(void)
{
	return HaveRegisteredOrActiveSnapshot() ? NULL :
		RegisterSnapshot(GetCatalogSnapshot(InvalidOid));
}

void
tw_table_toast_done(Snapshot snapshot)
{
	if (snapshot != NULL)
		UnregisterSnapshot(snapshot);
}

void
tw_table_insert(TwTable table, const Datum *values, const bool *nulls)
{
	Relation	rel = open_to_write(table, TRIGGER_TYPE_INSERT);
	TupleTableSlot *slot = new_row(rel, values, nulls);
	Snapshot	snapshot = tw_table_toast_snapshot();

	table_tuple_insert(rel, slot, GetCurrentCommandId(true), 0, NULL);
	tw_table_toast_done(snapshot);
	(void) insert_index_entries(rel, slot, false, TW_UPDATES_ALL);

	ExecDropSingleTupleTableSlot(slot);
	tw_table_close(rel);
}

bool
tw_table_insert_new(TwTable table, const Datum *values, const bool *nulls)
{
	Relation	rel = open_to_write(table, TRIGGER_TYPE_INSERT);
	TupleTableSlot *slot = new_row(rel, values, nulls);
	Snapshot	snapshot = tw_table_toast_snapshot();
	TransactionId xid = GetCurrentTransactionId();
	uint32		token;
	bool		inserted;

	/*
	 * As INSERT ... ON CONFLICT does: nobody waits for more than our token until
	 * we know whether the row stays.
	 */
	token = SpeculativeInsertionLockAcquire(xid);
	table_tuple_insert_speculative(rel, slot, GetCurrentCommandId(true), 0, NULL, token);
	tw_table_toast_done(snapshot);
	inserted = insert_index_entries(rel, slot, true, TW_UPDATES_ALL);
	/* a row that goes takes its toasted values with it */
	snapshot = inserted ? NULL : tw_table_toast_snapshot();
	table_tuple_complete_speculative(rel, slot, token, inserted);
	tw_table_toast_done(snapshot);
	SpeculativeInsertionLockRelease(xid);

	ExecDropSingleTupleTableSlot(slot);
	tw_table_close(rel);
	return inserted;
}

bool
tw_table_update(TwTable table, ItemPointer tid, const Datum *values, const bool *nulls)
{
	Relation	rel = open_to_write(table, TRIGGER_TYPE_UPDATE);
	TupleTableSlot *slot = new_row(rel, values, nulls);
	Snapshot	snapshot = tw_table_toast_snapshot();
	TwUpdateIndexes update_indexes;
	LockTupleMode lockmode;
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_update(rel, tid, slot, GetCurrentCommandId(true), InvalidSnapshot,
								InvalidSnapshot, true, &failure, &lockmode, &update_indexes);
	tw_table_toast_done(snapshot);
	if (result == TM_Ok)
		(void) insert_index_entries(rel, slot, false, update_indexes);

	ExecDropSingleTupleTableSlot(slot);
	tw_table_close(rel);
	return result == TM_Ok;
}

bool
tw_table_delete(TwTable table, ItemPointer tid, bool wait)
{
	Relation	rel = open_to_write(table, TRIGGER_TYPE_DELETE);
	Snapshot	snapshot = tw_table_toast_snapshot();
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_delete(rel, tid, GetCurrentCommandId(true), InvalidSnapshot,
								InvalidSnapshot, wait, &failure, false);
	tw_table_toast_done(snapshot);
	tw_table_close(rel);
	return result == TM_Ok;
}

/*
 * Enters a new row into the indexes of its table that which says.  The caller has let go of
 * a snapshot for toasted values, see evaluation_begin().  With spare_primary_key, false when
 * that key exists already; it stands in the index then as well, and the row must go.
 */
static bool
insert_index_entries(Relation rel, TupleTableSlot *slot, bool spare_primary_key,
					 TwUpdateIndexes which)
{
	List	   *oids = RelationGetIndexList(rel);
	ListCell   *lc;
	bool		unique = true;

	foreach(lc, oids)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);

		if (TW_UPDATES_INDEX(which, index))
			unique = insert_index_entry(rel, index, slot, spare_primary_key);
		index_close(index, RowExclusiveLock);
		if (!unique)
			break;
	}
	list_free(oids);
	return unique;
}

/*
 * What evaluates the expressions of an index that an administrator has added.  Their
 * functions may run queries, which need an active snapshot, and may take the transaction's
 * own.  So it is that, which must be the first to be registered.
 */
static EState *
evaluation_begin(void)
{
	PushActiveSnapshot(ActiveSnapshotSet() ? GetActiveSnapshot() : GetTransactionSnapshot());
	return CreateExecutorState();
}

static void
evaluation_end(EState *estate)
{
	FreeExecutorState(estate);
	PopActiveSnapshot();
}

static bool
insert_index_entry(Relation rel, Relation index, TupleTableSlot *slot, bool spare_primary_key)
{
	IndexInfo  *info = BuildIndexInfo(index);
	EState	   *estate = NULL;
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	IndexUniqueCheck check = UNIQUE_CHECK_NO;
	bool		unique = true;

	if (index->rd_index->indisunique)
		check = spare_primary_key && is_primary_key(rel, index) ?
			UNIQUE_CHECK_PARTIAL : UNIQUE_CHECK_YES;

	if (info->ii_Expressions != NIL)
		estate = evaluation_begin();
	if (info->ii_ReadyForInserts && predicate_holds(info, slot, &estate))
	{
		if (estate != NULL)
			GetPerTupleExprContext(estate)->ecxt_scantuple = slot;
		FormIndexDatum(info, slot, estate, values, nulls);
		unique = index_insert(index, values, nulls, &slot->tts_tid, rel, check, false, info);
		tw_index_insert_cleanup(index, info);
	}
	if (estate != NULL)
		evaluation_end(estate);
	pfree(info);

	/* the check of an index that is not to be spared has raised its error itself */
	return check != UNIQUE_CHECK_PARTIAL || unique;
}

/*
 * Does a key that exists in this index exist in the primary key as well?  REINDEX CONCURRENTLY
 * makes another index the primary key while the old one is still kept, and leaves one of them
 * behind when it is cancelled.
 */
static bool
is_primary_key(Relation rel, Relation index)
{
	int			nkeys = index->rd_index->indnkeyatts;
	int			found = 0;
	Oid			oid;
	Relation	primary;

	if (index->rd_index->indisprimary)
		return true;
	oid = TW_PRIMARY_KEY(rel);
	if (!OidIsValid(oid))
		return false;
	primary = index_open(oid, AccessShareLock);
	for (int i = 0; i < nkeys; i++)
	{
		for (int j = 0; j < primary->rd_index->indnkeyatts; j++)
			found += index->rd_index->indkey.values[i] == primary->rd_index->indkey.values[j] &&
				index->rd_indcollation[i] == primary->rd_indcollation[j] &&
				index->rd_opfamily[i] == primary->rd_opfamily[j];
	}
	if (primary->rd_index->indnkeyatts != nkeys)
		found = -1;
	index_close(primary, AccessShareLock);
	return found == nkeys;
}

/*
 * Does a partial index take this row?  "column IS NOT NULL" is all that our own
 * ask; only others pay for an executor state.
 */
static bool
predicate_holds(IndexInfo *info, TupleTableSlot *slot, EState **estate)
{
	if (info->ii_Predicate == NIL)
		return true;

	if (list_length(info->ii_Predicate) == 1 && IsA(linitial(info->ii_Predicate), NullTest))
	{
		NullTest   *test = linitial_node(NullTest, info->ii_Predicate);

		if (test->nulltesttype == IS_NOT_NULL && !test->argisrow && IsA(test->arg, Var) &&
			((Var *) test->arg)->varattno > 0)
			return !slot_attisnull(slot, ((Var *) test->arg)->varattno);
	}

	if (*estate == NULL)
		*estate = evaluation_begin();
	GetPerTupleExprContext(*estate)->ecxt_scantuple = slot;
	return ExecQual(ExecPrepareQual(info->ii_Predicate, *estate), GetPerTupleExprContext(*estate));
}
