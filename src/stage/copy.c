/*
 * copy.c
 *		Appends what is staged to a plain table, many rows at a time.
 *
 * INSERT ... SELECT gives the table one row after the other.  COPY gives it a
 * thousand, which takes the locks of a page once and logs it in one record; this
 * does the same with the staging table as its source.  Checks, NOT NULL, bounds of
 * a partition and indexes are the executor's own.
 *
 * Whatever else an INSERT would have to do is left to INSERT: triggers, foreign
 * keys among them, row security, columns that are generated or number themselves,
 * constraints that are checked later, partitioned tables and hypertables.
 *
 * Unlike COPY it goes through all of the shared buffers, as INSERT does: in COPY's
 * small ring each page is written out, and the log before it, as soon as the ring
 * comes around.
 *
 * The rows read are counted, so that a batch needs no other look at them to know
 * that none is missing.
 */
#include "stage/stage.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define ROWS_AT_A_TIME	1000
#define BYTES_AT_A_TIME 65536

/* Where the rows go; lives for one call */
typedef struct Sink
{
	Relation	rel;
	EState	   *estate;
	ResultRelInfo *info;
	CommandId	cid;
	TupleTableSlot *slots[ROWS_AT_A_TIME];
	int			n;				/* rows in slots */
	Size		bytes;			/* of these, about */
	bool		constraints;
	AttrNumber *map;			/* of the source's columns, by the target's; NULL: the same rows */
} Sink;

/* ---------- is it possible? ---------- */

/* A constraint that is checked later has triggers for that */
static bool
is_possible(const StageTarget *target, Relation rel)
{
	ListCell   *lc;

	if (target->mode != STAGE_APPEND || rel->rd_rel->relkind != RELKIND_RELATION ||
		target->hypertable || target->placement != TW_IN_TABLE ||
		rel->rd_rel->relam != HEAP_TABLE_AM_OID ||
		rel->trigdesc != NULL || rel->rd_rel->relrowsecurity)
		return false;
	foreach(lc, target->columns)
	{
		StageColumn *column = (StageColumn *) lfirst(lc);

		if (column->generated || column->left_out)
			return false;
	}
	return true;
}

/*
 * The source's column of each of the target's, 0 for a dropped one; NULL: rows can
 * be taken as they are.  Not those of a table that got a column with a default: the
 * stored rows may be without it, and each table would put its own default there.
 */
static AttrNumber *
map_columns(Relation rel, Relation staging)
{
	TupleDesc	to = RelationGetDescr(rel);
	TupleDesc	from = RelationGetDescr(staging);
	AttrNumber *map = palloc0(sizeof(AttrNumber) * to->natts);
	bool		same = to->natts == from->natts;

	for (int i = 0; i < from->natts; i++)
		same = same && !TupleDescAttr(from, i)->atthasmissing;
	for (int i = 0; i < to->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(to, i);

		if (!attr->attisdropped)
			map[i] = get_attnum(RelationGetRelid(staging), NameStr(attr->attname));
		same = same && !attr->atthasmissing && map[i] == i + 1;
	}
	if (!same)
		return map;
	pfree(map);
	return NULL;
}

/* ---------- writing ---------- */

static void
sink_open(Sink *sink, Relation rel, Relation staging)
{
	ParseState *pstate = make_parsestate(NULL);

	memset(sink, 0, sizeof(*sink));
	sink->rel = rel;
	sink->estate = CreateExecutorState();
	(void) addRangeTableEntryForRelation(pstate, rel, RowExclusiveLock, NULL, false, false);
	tw_init_range_table(sink->estate, pstate);
	sink->info = makeNode(ResultRelInfo);
	ExecInitResultRelation(sink->estate, sink->info, 1);
	ExecOpenIndices(sink->info, false);
	sink->cid = GetCurrentCommandId(true);
	sink->constraints = RelationGetDescr(rel)->constr != NULL;
	sink->map = map_columns(rel, staging);
}

static void
sink_flush(Sink *sink)
{
	MemoryContext old;

	CHECK_FOR_INTERRUPTS();
	if (sink->n == 0)
		return;
	/* what it makes of toasted rows it does not free */
	old = MemoryContextSwitchTo(GetPerTupleMemoryContext(sink->estate));
	table_multi_insert(sink->rel, sink->slots, sink->n, sink->cid, 0, NULL);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < sink->n; i++)
	{
		TupleTableSlot *slot = sink->slots[i];

		if (sink->info->ri_NumIndices > 0)
		{
			slot->tts_tableOid = RelationGetRelid(sink->rel);
			list_free(tw_insert_index_tuples(sink->info, slot, sink->estate));
		}
		ExecClearTuple(slot);
		ResetPerTupleExprContext(sink->estate);
	}
	sink->n = 0;
	sink->bytes = 0;
}

static void
sink_row(Sink *sink, TupleTableSlot *source)
{
	TupleTableSlot *slot;

	if (sink->slots[sink->n] == NULL)
		sink->slots[sink->n] = ExecAllocTableSlot(&sink->estate->es_tupleTable,
												  RelationGetDescr(sink->rel), &TTSOpsHeapTuple);
	slot = sink->slots[sink->n];
	if (sink->map == NULL)
	{
		/* a copy, because a thousand pinned buffers cost more */
		(void) ExecStoreHeapTuple(ExecCopySlotHeapTuple(source), slot, true);
	}
	else
	{
		slot_getallattrs(source);
		for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
		{
			slot->tts_isnull[i] = sink->map[i] == 0 || source->tts_isnull[sink->map[i] - 1];
			if (!slot->tts_isnull[i])
				slot->tts_values[i] = source->tts_values[sink->map[i] - 1];
		}
		ExecStoreVirtualTuple(slot);
		ExecMaterializeSlot(slot);
	}
	slot->tts_tableOid = RelationGetRelid(sink->rel);
	if (sink->constraints)
		ExecConstraints(sink->info, slot, sink->estate);
	if (sink->rel->rd_rel->relispartition)
		(void) ExecPartitionCheck(sink->info, slot, sink->estate, true);
	sink->n++;
	sink->bytes += ((HeapTupleTableSlot *) slot)->tuple->t_len;
	if (sink->n == ROWS_AT_A_TIME || sink->bytes >= BYTES_AT_A_TIME)
		sink_flush(sink);
}

static void
sink_close(Sink *sink)
{
	sink_flush(sink);
	table_finish_bulk_insert(sink->rel, 0);
	ExecResetTupleTable(sink->estate->es_tupleTable, false);
	ExecCloseResultRelations(sink->estate);
	ExecCloseRangeTableRelations(sink->estate);
	FreeExecutorState(sink->estate);
}

/* ---------- the whole ---------- */

/* Appends the rows of a staging table to its target; -1: not possible, nothing was done */
int64
stage_copy(const StageTarget *target)
{
	Relation	rel = table_open(target->target, RowExclusiveLock);
	Relation	staging = table_open(target->staging, AccessShareLock);
	int64		rows = 0;
	TableScanDesc scan;
	TupleTableSlot *slot;
	Sink		sink;

	if (!is_possible(target, rel))
	{
		table_close(staging, NoLock);
		table_close(rel, NoLock);
		return -1;
	}
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	sink_open(&sink, rel, staging);
	slot = table_slot_create(staging, NULL);
	scan = table_beginscan(staging, GetActiveSnapshot(), 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		sink_row(&sink, slot);
		if (++rows % ROWS_AT_A_TIME == 0)
			stage_progress_rows(rows);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	sink_close(&sink);
	PopActiveSnapshot();
	CommandCounterIncrement();
	table_close(staging, NoLock);
	table_close(rel, NoLock);
	return rows;
}
