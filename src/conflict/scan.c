/*
 * scan.c
 *		Looking for what others have changed: by index, by page, by row.
 *
 * A page that the visibility map calls all-visible holds nothing that a
 * registered snapshot does not see, so it need not be read: whoever changes such a page clears
 * the bit under the page's lock.  On other pages every version that may be newer
 * than the snapshot, or was ended after it, is copied under the page's share
 * lock; who did it, and whether the row satisfies a condition, is looked at
 * without the lock, since that may run a user's functions.
 *
 * An index is probed for places only, and the HOT chain at each is followed here: an
 * index entry stays as long as some snapshot sees a version below it, and the ones of new
 * versions are there before their transaction checks or commits.
 */
#include "conflict/conflict.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_inherits.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Versions on one page that may tell of a change; copies */
typedef struct Versions
{
	int			n;
	HeapTuple	tuples[MaxHeapTuplesPerPage];
} Versions;

/* For evaluating filters of one relation */
typedef struct Filter
{
	Relation	rel;
	ExprContext *econtext;		/* NULL until needed */
	TupleTableSlot *slot;
	ExprState  *state;			/* of condition */
	TwCondition *condition;
	const char *failure;
} Filter;

/* ---------- filters ---------- */

static void
filter_end(Filter *filter)
{
	if (filter->econtext == NULL)
		return;
	ExecDropSingleTupleTableSlot(filter->slot);
	FreeExprContext(filter->econtext, true);
}

static bool
evaluate(Filter *filter, TwCondition *condition, HeapTuple tuple)
{
	if (filter->econtext == NULL)
	{
		filter->econtext = CreateStandaloneExprContext();
		filter->slot = MakeSingleTupleTableSlot(RelationGetDescr(filter->rel), &TTSOpsHeapTuple);
	}
	if (filter->condition != condition)
	{
		MemoryContext old = MemoryContextSwitchTo(filter->econtext->ecxt_per_query_memory);

		filter->state = ExecInitQual(condition->qual, NULL);
		filter->condition = condition;
		MemoryContextSwitchTo(old);
	}
	ExecStoreHeapTuple(tuple, filter->slot, false);
	filter->slot->tts_tableOid = RelationGetRelid(filter->rel);
	filter->econtext->ecxt_scantuple = filter->slot;
	ResetExprContext(filter->econtext);
	return ExecQual(filter->state, filter->econtext);
}

/*
 * Does a version of a row satisfy the filter of a condition?  One that cannot be evaluated
 * counts as satisfied, and the transaction fails with a conflict: the error is not
 * this transaction's, which has never read the row.
 */
static bool
satisfies(Filter *filter, TwCondition *condition, HeapTuple tuple, const TwChange *change)
{
	MemoryContext old = CurrentMemoryContext;
	Oid			userid;
	int			sec_context;
	volatile bool result = true;

	filter->failure = NULL;
	if (condition->qual == NIL)
		return true;

	/* the values of one that rolls back meanwhile may vanish under our eyes */
	if (change->in_progress && HeapTupleHasExternal(tuple))
		return true;

	GetUserIdAndSecContext(&userid, &sec_context);
	SetUserIdAndSecContext(condition->userid, condition->sec_context);
	PG_TRY();
	{
		result = evaluate(filter, condition, tuple);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		filter->failure = error->message;
	}
	PG_END_TRY();
	SetUserIdAndSecContext(userid, sec_context);
	return result;
}

/* Tells the sink when a version of a row contradicts a condition; false: stop */
static bool
judge(Filter *filter, TwRelation *relation, TwCondition *condition, HeapTuple tuple,
	  TwConflictSink sink, void *arg)
{
	TwConflict	conflict = {0};

	if (condition->off)
		return true;
	if (!tw_change_since(tuple->t_data, &tuple->t_self, condition->snapshot, condition->counts,
						 &conflict.change) ||
		!satisfies(filter, condition, tuple, &conflict.change))
		return true;
	conflict.relid = relation->key.relid;
	conflict.tid = tuple->t_self;
	/* of an old file the layout is not known any more */
	conflict.tuple = filter->rel != NULL ? tuple : NULL;
	conflict.condition = condition;
	conflict.failure = filter->failure;
	return sink(&conflict, arg);
}

/* ---------- pages ---------- */

static void
take_version(Versions *versions, Oid relid, Page page, BlockNumber block, OffsetNumber offset)
{
	ItemId		lp = PageGetItemId(page, offset);
	HeapTupleData tuple;

	tuple.t_data = (HeapTupleHeader) PageGetItem(page, lp);
	tuple.t_len = ItemIdGetLength(lp);
	tuple.t_tableOid = relid;
	ItemPointerSet(&tuple.t_self, block, offset);
	versions->tuples[versions->n++] = heap_copytuple(&tuple);
}

static void
free_versions(Versions *versions)
{
	for (int i = 0; i < versions->n; i++)
		heap_freetuple(versions->tuples[i]);
	versions->n = 0;
}

/*
 * Up to which LSN pages need not be looked at; none for what is not WAL-logged.  Hint bits
 * may give a page another LSN under a share lock, so it must be read with
 * BufferGetLSNAtomic().
 */
static XLogRecPtr
quiet_lsn(const TwRelation *relation, TransactionId xmin)
{
	return relation->permanent ? tw_quiet_lsn(xmin) : InvalidXLogRecPtr;
}

/* All versions on a page that may have changed since any snapshot with this xmin */
static void
take_page(Versions *versions, Buffer buffer, Oid relid, TransactionId xmin, XLogRecPtr quiet)
{
	Page		page;
	OffsetNumber max;
	BlockNumber block = BufferGetBlockNumber(buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	max = PageIsNew(page) || BufferGetLSNAtomic(buffer) <= quiet ?
		0 : PageGetMaxOffsetNumber(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= max; offset++)
	{
		ItemId		lp = PageGetItemId(page, offset);

		if (ItemIdIsNormal(lp) &&
			tw_change_possible((HeapTupleHeader) PageGetItem(page, lp), xmin))
			take_version(versions, relid, page, block, offset);
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
}

/* Conditions that take all pages: those without an index, or of an index that has no use */
static List *
page_conditions(TwRelation *relation)
{
	List	   *result = NIL;

	if (relation->whole != NULL)
		return list_make1(relation->whole);
	for (TwCondition *c = relation->scans; c != NULL; c = c->next)
		result = lappend(result, c);
	for (TwCondition *c = relation->probes; c != NULL; c = c->next)
	{
		if (c->nkeys == 0 && c->complete)
			result = lappend(result, c);
	}
	return result;
}

static bool
judge_versions(Filter *filter, TwRelation *relation, List *conditions, Versions *versions,
			   TwConflictSink sink, void *arg)
{
	for (int i = 0; i < versions->n; i++)
	{
		ListCell   *lc;

		foreach(lc, conditions)
		{
			if (!judge(filter, relation, lfirst(lc), versions->tuples[i], sink, arg))
				return false;
		}
	}
	return true;
}

static TransactionId
oldest_xmin(List *conditions)
{
	TransactionId xmin = InvalidTransactionId;
	ListCell   *lc;

	foreach(lc, conditions)
	{
		TwCondition *condition = lfirst(lc);

		if (!TransactionIdIsValid(xmin) || TransactionIdPrecedes(condition->snapshot->xmin, xmin))
			xmin = condition->snapshot->xmin;
	}
	return xmin;
}

/* All pages of a relation, for all its conditions that need that; false: stop */
bool
tw_scan_pages(Relation rel, TwRelation *relation, TwConflictSink sink, void *arg)
{
	List	   *conditions = page_conditions(relation);
	TransactionId xmin = oldest_xmin(conditions);
	Filter		filter = {.rel = rel};
	BufferAccessStrategy strategy;
	Buffer		map = InvalidBuffer;
	BlockNumber nblocks;
	XLogRecPtr	quiet;
	Versions   *versions;
	bool		go_on = true;

	if (conditions == NIL)
		return true;
	versions = palloc(sizeof(Versions));
	versions->n = 0;
	quiet = quiet_lsn(relation, xmin);
	nblocks = RelationGetNumberOfBlocks(rel);
	strategy = nblocks > NBuffers / 4 ? GetAccessStrategy(BAS_BULKREAD) : NULL;
	for (BlockNumber block = 0; block < nblocks && go_on; block++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		if (VM_ALL_VISIBLE(rel, block, &map))
			continue;
		buffer = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
		take_page(versions, buffer, relation->key.relid, xmin, quiet);
		ReleaseBuffer(buffer);
		if (versions->n > 0)
		{
			go_on = judge_versions(&filter, relation, conditions, versions, sink, arg);
			free_versions(versions);
		}
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	filter_end(&filter);
	pfree(versions);
	return go_on;
}

/* The oldest snapshot under which this relation was read */
static Snapshot
oldest_snapshot(TwRelation *relation)
{
	Snapshot	oldest = NULL;
	ListCell   *lc;
	List	   *conditions = page_conditions(relation);

	if (relation->nrows > 0)
		return tw_track->oldest;
	for (TwCondition *c = relation->probes; c != NULL; c = c->next)
		conditions = lappend(conditions, c);
	foreach(lc, conditions)
	{
		Snapshot	snapshot = ((TwCondition *) lfirst(lc))->snapshot;

		if (oldest == NULL || tw_snapshot_not_newer(snapshot, oldest))
			oldest = snapshot;
		else if (!tw_snapshot_not_newer(oldest, snapshot))
			return tw_track->oldest;	/* they do not compare */
	}
	return oldest == NULL ? tw_track->oldest : oldest;
}

/*
 * The pages of a file that is no longer the relation's: we have truncated, rewritten or
 * dropped it ourselves, which kept others away from then on.  What they did before is still
 * on its pages, which exist until we commit.  The rows' layout may be another by now, so
 * every change counts.
 */
bool
tw_scan_old_file(Oid relid, TwRelation *relation, TwConflictSink sink, void *arg)
{
	SMgrRelation file = smgropen(relation->locator, TW_NO_BACKEND);
	TwCondition all = {0};
	BlockNumber nblocks;
	Versions   *versions;
	Filter		filter = {0};
	bool		go_on = true;

	/* one that a rolled back savepoint had made is gone; its rows are in the relation's file now */
	if (!smgrexists(file, MAIN_FORKNUM))
		return true;
	all.snapshot = oldest_snapshot(relation);
	all.complete = true;
	versions = palloc(sizeof(Versions));
	versions->n = 0;
	nblocks = smgrnblocks(file, MAIN_FORKNUM);
	for (BlockNumber block = 0; block < nblocks && go_on; block++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = ReadBufferWithoutRelcache(relation->locator, MAIN_FORKNUM, block, RBM_NORMAL,
										   NULL, relation->permanent);
		take_page(versions, buffer, relid, all.snapshot->xmin, InvalidXLogRecPtr);
		ReleaseBuffer(buffer);
		go_on = judge_versions(&filter, relation, list_make1(&all), versions, sink, arg);
		free_versions(versions);
	}
	pfree(versions);
	return go_on;
}

/* ---------- by index ---------- */

/*
 * The HOT chain at a place in the index: versions that may have changed, and
 * whether the scan had come just here.
 */
static void
take_chain(Versions *versions, Buffer buffer, ItemPointer root, Oid relid, XLogRecPtr quiet,
		   TwCondition *condition, bool *stop)
{
	Page		page;
	BlockNumber block = BufferGetBlockNumber(buffer);
	OffsetNumber offset = ItemPointerGetOffsetNumber(root);
	TransactionId updater = InvalidTransactionId;
	bool		first = true;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (BufferGetLSNAtomic(buffer) <= quiet && condition->complete)
		offset = InvalidOffsetNumber;
	while (offset >= FirstOffsetNumber && offset <= PageGetMaxOffsetNumber(page))
	{
		ItemId		lp = PageGetItemId(page, offset);
		HeapTupleHeader tuple;
		ItemPointerData tid;

		if (!ItemIdIsNormal(lp))
		{
			if (!ItemIdIsRedirected(lp) || !first)
				break;
			offset = ItemIdGetRedirect(lp);
			first = false;
			continue;
		}
		tuple = (HeapTupleHeader) PageGetItem(page, lp);

		/* a place that another row has taken meanwhile is no member of the chain */
		if ((first && HeapTupleHeaderIsHeapOnly(tuple)) ||
			(TransactionIdIsValid(updater) && HeapTupleHeaderGetRawXmin(tuple) != updater))
			break;
		ItemPointerSet(&tid, block, offset);
		if (!condition->complete && ItemPointerEquals(&tid, &condition->stop))
			*stop = true;
		if (tw_change_possible(tuple, condition->snapshot->xmin) &&
			versions->n < MaxHeapTuplesPerPage)
			take_version(versions, relid, page, block, offset);
		if (!HeapTupleHeaderIsHotUpdated(tuple))
			break;
		offset = ItemPointerGetOffsetNumber(&tuple->t_ctid);
		updater = HeapTupleHeaderGetUpdateXid(tuple);
		first = false;
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
}

/* Walks the part of an index that the scan has walked; false: stop */
static bool
probe(Relation rel, IndexScanDesc scan, TwRelation *relation, TwCondition *condition,
	  TwConflictSink sink, void *arg)
{
	Filter		filter = {.rel = rel};
	ItemPointer root;
	Buffer		map = InvalidBuffer;
	Buffer		buffer = InvalidBuffer;
	XLogRecPtr	quiet = quiet_lsn(relation, condition->snapshot->xmin);
	Versions	versions;
	bool		go_on = true;
	bool		stop = false;

	versions.n = 0;
	index_rescan(scan, condition->keys, condition->nkeys, NULL, 0);
	while (go_on && !stop && (root = index_getnext_tid(scan, condition->direction)) != NULL)
	{
		BlockNumber block = ItemPointerGetBlockNumber(root);

		CHECK_FOR_INTERRUPTS();
		if (!condition->complete && block == ItemPointerGetBlockNumber(&condition->stop))
			stop = ItemPointerEquals(root, &condition->stop);
		else if (VM_ALL_VISIBLE(rel, block, &map))
			continue;
		if (!BufferIsValid(buffer) || BufferGetBlockNumber(buffer) != block)
			buffer = ReleaseAndReadBuffer(buffer, rel, block);
		take_chain(&versions, buffer, root, relation->key.relid, quiet, condition, &stop);
		for (int i = 0; i < versions.n && go_on; i++)
			go_on = judge(&filter, relation, condition, versions.tuples[i], sink, arg);
		free_versions(&versions);
	}
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	filter_end(&filter);
	return go_on;
}

static void
close_index(IndexScanDesc *scan, Relation *index)
{
	if (*scan != NULL)
		index_endscan(*scan);
	if (*index != NULL)
		relation_close(*index, NoLock);
	*scan = NULL;
	*index = NULL;
}

/* All pages in place of an index */
static bool
scan_without_index(Relation rel, TwRelation *relation, TwCondition *condition,
				   TwConflictSink sink, void *arg)
{
	TwRelation	alone = *relation;
	TwCondition all = *condition;

	all.next = NULL;
	/* the keys may have been what hides rows from the user's functions */
	all.qual = tw_qual_of_any_row(condition->qual);
	alone.whole = NULL;
	alone.probes = NULL;
	alone.scans = &all;
	return tw_scan_pages(rel, &alone, sink, arg);
}

/*
 * Probes indexes again.  One that we have built anew ourselves may lack entries of old
 * versions, and one that is gone has none: then the keys are left out, and all pages are
 * looked at.  Probes of the same index mostly come one after the other, and share a scan.
 */
bool
tw_scan_probes(Relation rel, TwRelation *relation, TwConflictSink sink, void *arg)
{
	Relation	index = NULL;
	IndexScanDesc scan = NULL;
	bool		go_on = true;

	for (TwCondition *c = relation->probes; c != NULL && go_on; c = c->next)
	{
		if (c->off || (c->nkeys == 0 && c->complete))
			continue;			/* tw_scan_pages() has seen to the latter */
		if (index == NULL || RelationGetRelid(index) != c->index ||
			(scan != NULL && scan->numberOfKeys != c->nkeys))
		{
			close_index(&scan, &index);
			index = try_relation_open(c->index, AccessShareLock);
		}
		if (index == NULL || TW_FILE_NUMBER(index) != c->index_file ||
			TW_NEW_FILE_SUBID(index) != InvalidSubTransactionId)
		{
			go_on = scan_without_index(rel, relation, c, sink, arg);
			continue;
		}
		if (scan == NULL)
			scan = tw_index_beginscan(rel, index, SnapshotAny, c->nkeys);
		go_on = probe(rel, scan, relation, c, sink, arg);
	}
	close_index(&scan, &index);
	return go_on;
}

/* ---------- rows ---------- */

/* One row, under its page's lock: is it still its newest version? */
static bool
row_changed(Page page, const TwReadRow *row, TwConflict *conflict)
{
	ItemId		lp;
	HeapTupleHeader tuple;

	ItemPointerSet(&conflict->tid, row->block, row->offset);
	conflict->change.kind = TW_GONE;
	conflict->change.xid = InvalidTransactionId;
	conflict->change.in_progress = false;
	if (PageIsNew(page) || row->offset > PageGetMaxOffsetNumber(page))
		return true;
	lp = PageGetItemId(page, row->offset);
	if (!ItemIdIsNormal(lp))
		return true;
	tuple = (HeapTupleHeader) PageGetItem(page, lp);
	if (HeapTupleHeaderGetRawXmin(tuple) != row->xmin)
		return true;
	return tw_change_of_row(tuple, &conflict->tid, &conflict->change);
}

/* So few rows are looked at faster than the visibility map and the size of the relation */
#define FEW_ROWS 16

/* All rows that were read; false: stop */
bool
tw_scan_rows(Relation rel, TwRelation *relation, TwConflictSink sink, void *arg)
{
	TwReadRow  *rows = relation->rows;
	BlockNumber nblocks;
	XLogRecPtr	quiet;
	Buffer		map = InvalidBuffer;
	bool		go_on = true;
	int64		i = 0;

	tw_rows_sort(relation);
	quiet = quiet_lsn(relation, tw_track->oldest->xmin);
	/* our lock keeps others from truncating it, and a new file of ours is another relation */
	nblocks = relation->nrows > FEW_ROWS ? RelationGetNumberOfBlocks(rel) : InvalidBlockNumber;
	while (i < relation->nrows && go_on)
	{
		BlockNumber block = rows[i].block;
		Buffer		buffer;
		Page		page;
		TwConflict	conflict = {0};
		bool		changed = false;

		CHECK_FOR_INTERRUPTS();
		if (relation->nrows > FEW_ROWS && block < nblocks && VM_ALL_VISIBLE(rel, block, &map))
		{
			while (i < relation->nrows && rows[i].block == block)
				i++;
			continue;
		}
		conflict.relid = relation->key.relid;
		if (block >= nblocks)
		{
			ItemPointerSet(&conflict.tid, block, rows[i++].offset);
			conflict.change.kind = TW_GONE;
			go_on = sink(&conflict, arg);
			continue;
		}
		buffer = ReadBuffer(rel, block);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		if (BufferGetLSNAtomic(buffer) <= quiet)
		{
			while (i < relation->nrows && rows[i].block == block)
				i++;
		}
		for (; i < relation->nrows && rows[i].block == block && !changed; i++)
		{
			changed = row_changed(page, &rows[i], &conflict);
			if (changed &&
				ItemPointerGetOffsetNumber(&conflict.tid) <= PageGetMaxOffsetNumber(page) &&
				ItemIdIsNormal(PageGetItemId(page, rows[i].offset)))
			{
				Versions	version = {0};

				take_version(&version, conflict.relid, page, block, rows[i].offset);
				conflict.tuple = version.tuples[0];
			}
		}
		UnlockReleaseBuffer(buffer);
		if (changed)
		{
			if (conflict.change.kind == TW_GONE)
				conflict.tuple = NULL;
			go_on = sink(&conflict, arg);
		}
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	return go_on;
}

/* ---------- children ---------- */

/*
 * Has a table got or lost a child?  Its rows in pg_inherits are looked at as those of any
 * relation; locks do not keep ATTACH PARTITION away.
 */
bool
tw_scan_children(Oid relid, Snapshot snapshot, TwConflictSink sink, void *arg)
{
	Relation	rel = table_open(InheritsRelationId, AccessShareLock);
	TwCondition condition = {0};
	TwRelation	relation = {0};
	ScanKeyData key;
	Relation	index;
	IndexScanDesc scan;
	bool		go_on;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	index = index_open(InheritsParentIndexId, AccessShareLock);
	relation.key.relid = InheritsRelationId;
	condition.snapshot = snapshot;
	condition.complete = true;
	condition.direction = ForwardScanDirection;
	condition.nkeys = 1;
	condition.keys = &key;
	scan = tw_index_beginscan(rel, index, SnapshotAny, 1);
	go_on = probe(rel, scan, &relation, &condition, sink, arg);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return go_on;
}
