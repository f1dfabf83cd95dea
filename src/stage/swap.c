/*
 * swap.c
 *		Publishing whole partitions by swapping files, in a time that does not grow
 *		with the rows.
 *
 * A partition and its staging table, which has the same columns, checks, bounds
 * and indexes, exchange their files in pg_class, tables and indexes alike, as
 * CLUSTER does with a table and its rewritten copy.  So the partition keeps its
 * OID, grants, views, statistics and settings; the rows that were in it are
 * dropped with the staging.  The order of the steps, and what else in the catalogs
 * belongs to the files, follows swap_relation_files() and finish_heap_swap() of
 * PostgreSQL's commands/cluster.c.
 *
 * Rows keep the transactions that staged them, so a snapshot that is older than
 * one of the tasks would see some of the rows and not the others.  Therefore
 * partitions are swapped only when no session has such a snapshot; and since an
 * older statement may still be at it, when the partitions can be locked without
 * queueing.  Otherwise, after a second of trying, the rows are moved.
 *
 * A query locks what it reads before it takes its snapshot, so at READ COMMITTED it
 * sees the swap as any other commit.  What has its snapshot first, taken after the
 * last task, and comes to the partition after the publish sees the new rows of it
 * already: all of them, but other tables as they were.  That is a transaction at
 * REPEATABLE READ or SERIALIZABLE, or a function that a query calls.  The same
 * holds for TRUNCATE and ATTACH PARTITION, and nothing can be done here about it.
 *
 * A standby's snapshots are not known here.  It is told in the log, as it is of rows
 * that VACUUM removes: a query there whose snapshot is older than one of the tasks ends
 * with an error before it can come to the swapped partition.
 *
 * Locks: AccessExclusiveLock on the staging table and on the partitions, in the order of
 * their bounds, as the last step of a publish; nobody waits behind us while we try.
 */
#include "stage/stage.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/nbtxlog.h"
#include "access/table.h"
#include "access/toast_internals.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "partitioning/partdesc.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/inval.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define TRY_FOR_MS		1000
#define PAUSE_US		2000

#define EXCHANGE(type, a, b) \
	do { type swapped_ = (a); (a) = (b); (b) = swapped_; } while (0)

/* A partition and the table that takes its place */
typedef struct Pair
{
	Oid			leaf;
	Oid			staging;
	List	   *leaf_indexes;
	List	   *staging_indexes;	/* in the order of the leaf's */
} Pair;

bool
stage_storage_is_old(Relation rel)
{
	return TW_NEW_FILE_SUBID(rel) == InvalidSubTransactionId;
}

/* ---------- which ---------- */

/* Of a partitioned staging table, the partition that has a leaf's bounds */
static bool
find_pair(Oid leaf_oid, Relation staging, Pair *pair)
{
	Relation	leaf = table_open(leaf_oid, AccessShareLock);
	PartitionDesc partitions = RelationGetPartitionDesc(staging, false);
	bool		found = false;

	for (int i = 0; !found && i < partitions->nparts; i++)
	{
		Relation	part = table_open(partitions->oids[i], AccessShareLock);

		if (stage_leaf_fits(leaf, part, &pair->leaf_indexes, &pair->staging_indexes))
		{
			pair->leaf = leaf_oid;
			pair->staging = partitions->oids[i];
			found = true;
		}
		table_close(part, NoLock);
	}
	table_close(leaf, NoLock);
	return found;
}

/* Pair; NIL: the target cannot be swapped now, or not be swapped as a whole */
static List *
find_pairs(const StageTarget *target)
{
	List	   *leaves = stage_swap_leaves(target);
	Relation	staging = table_open(target->staging, AccessShareLock);
	List	   *pairs = NIL;
	ListCell   *lc;

	if (staging->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		foreach(lc, leaves)
		{
			Pair	   *pair = palloc0(sizeof(Pair));

			if (find_pair(lfirst_oid(lc), staging, pair))
				pairs = lappend(pairs, pair);
		}
		/* all that is overwritten, and all that is staged, must be among them */
		if (target->mode == STAGE_OVERWRITE &&
			(list_length(pairs) != list_length(leaves) ||
			 list_length(pairs) != RelationGetPartitionDesc(staging, false)->nparts))
			pairs = NIL;
	}
	table_close(staging, NoLock);
	return pairs;
}

static bool
same_pairs(const List *a, const List *b)
{
	ListCell   *lc;
	ListCell   *lc2;

	if (list_length(a) != list_length(b))
		return false;
	forboth(lc, a, lc2, b)
	{
		Pair	   *x = (Pair *) lfirst(lc);
		Pair	   *y = (Pair *) lfirst(lc2);

		if (x->leaf != y->leaf || x->staging != y->staging ||
			!equal(x->leaf_indexes, y->leaf_indexes) ||
			!equal(x->staging_indexes, y->staging_indexes))
			return false;
	}
	return true;
}

/* ---------- when ---------- */

/* Has any session a snapshot that may not see all that the tasks have committed? */
static bool
old_snapshots(TransactionId newest_task)
{
	int			n;
	VirtualTransactionId *found =
		GetCurrentVirtualXIDs(newest_task, true, false, PROC_IS_AUTOVACUUM | PROC_IN_VACUUM, &n);

	pfree(found);
	return n > 0;
}

static bool
out_of_time(TimestampTz started)
{
	CHECK_FOR_INTERRUPTS();
	if (TimestampDifferenceExceeds(started, GetCurrentTimestamp(), TRY_FOR_MS))
		return true;
	pg_usleep(PAUSE_US);
	return false;
}

static bool
lock_one(Oid relid, TimestampTz started, List **locked)
{
	while (!ConditionalLockRelationOid(relid, AccessExclusiveLock))
	{
		if (out_of_time(started))
			return false;
	}
	*locked = lappend_oid(*locked, relid);
	return true;
}

static void
unlock(const List *locked)
{
	ListCell   *lc;

	foreach(lc, locked)
		UnlockRelationOid(lfirst_oid(lc), AccessExclusiveLock);
}

/* The staging table is locked as a whole, since it is dropped with what was in the partitions */
static List *
to_be_locked(const StageTarget *target, const List *pairs)
{
	List	   *oids = list_make1_oid(target->staging);
	ListCell   *lc;

	foreach(lc, pairs)
		oids = lappend_oid(oids, ((Pair *) lfirst(lc))->leaf);
	return list_concat(oids, stage_table_parts(target->staging));
}

/* False: in the time there is, not all could be locked; then none is */
static bool
lock_pairs(const StageTarget *target, const List *pairs, TransactionId newest_task)
{
	TimestampTz started = GetCurrentTimestamp();
	List	   *locked = NIL;
	ListCell   *lc;

	while (old_snapshots(newest_task))
	{
		if (out_of_time(started))
			return false;
	}
	foreach(lc, to_be_locked(target, pairs))
	{
		if (!lock_one(lfirst_oid(lc), started, &locked))
		{
			unlock(locked);
			return false;
		}
	}
	return true;
}

/* The same on standbys, when they come to this place in the log */
static void
end_old_snapshots(Oid leaf_oid, TransactionId newest_task)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);
	xl_btree_reuse_page record = {0};
	Relation	leaf;

	if (!XLogStandbyInfoActive() || !TransactionIdIsNormal(newest_task))
		return;
	if (newest_task > XidFromFullTransactionId(next))
		epoch--;
	leaf = table_open(leaf_oid, NoLock);
	/* what this record says is that and no more; the database is that of the relation */
	TW_REUSE_PAGE_LOCATOR(record) = TW_LOCATOR(leaf);
	TW_REUSE_PAGE_HORIZON(record) = FullTransactionIdFromEpochAndXid(epoch, newest_task);
	table_close(leaf, NoLock);
	XLogBeginInsert();
	XLogRegisterData((char *) &record, SizeOfBtreeReusePage);
	(void) XLogInsert(RM_BTREE_ID, XLOG_BTREE_REUSE_PAGE);
}

/* ---------- how ---------- */

/* Two rows of pg_class exchange what says where the rows are, and what is known of them */
static void
exchange_files(Relation pg_class, Oid a, Oid b)
{
	HeapTuple	tuple_a = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(a));
	HeapTuple	tuple_b = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(b));
	Form_pg_class x;
	Form_pg_class y;

	if (!HeapTupleIsValid(tuple_a) || !HeapTupleIsValid(tuple_b))
		elog(ERROR, "cache lookup failed for relation %u or %u", a, b);
	x = (Form_pg_class) GETSTRUCT(tuple_a);
	y = (Form_pg_class) GETSTRUCT(tuple_b);
	if (!OidIsValid(x->relfilenode) || !OidIsValid(y->relfilenode) ||
		x->relkind != y->relkind || x->relpersistence != y->relpersistence || x->relam != y->relam)
		elog(ERROR, "relations %u and %u cannot be swapped", a, b);

	EXCHANGE(Oid, x->relfilenode, y->relfilenode);
	EXCHANGE(Oid, x->reltoastrelid, y->reltoastrelid);
	EXCHANGE(TransactionId, x->relfrozenxid, y->relfrozenxid);
	EXCHANGE(TransactionId, x->relminmxid, y->relminmxid);
	EXCHANGE(int32, x->relpages, y->relpages);
	EXCHANGE(float4, x->reltuples, y->reltuples);
	EXCHANGE(int32, x->relallvisible, y->relallvisible);
	TW_EXCHANGE_ALL_FROZEN(x, y);
	CatalogTupleUpdate(pg_class, &tuple_a->t_self, tuple_a);
	CatalogTupleUpdate(pg_class, &tuple_b->t_self, tuple_b);
	CacheInvalidateRelcacheByTuple(tuple_a);
	CacheInvalidateRelcacheByTuple(tuple_b);
	heap_freetuple(tuple_a);
	heap_freetuple(tuple_b);
}

/* Rows point to their TOAST table by its OID, so it goes with the rows */
static void
give_toast(Oid toast, Oid owner)
{
	ObjectAddress toast_address;
	ObjectAddress owner_address;

	if (!OidIsValid(toast))
		return;
	if (deleteDependencyRecordsFor(RelationRelationId, toast, false) != 1)
		elog(ERROR, "TOAST table %u has not one dependency", toast);
	ObjectAddressSet(toast_address, RelationRelationId, toast);
	ObjectAddressSet(owner_address, RelationRelationId, owner);
	recordDependencyOn(&toast_address, &owner_address, DEPENDENCY_INTERNAL);
}

static void
name_toast(Oid toast, const char *name)
{
	Oid			index;

	if (!OidIsValid(toast))
		return;
	index = toast_get_valid_index(toast, AccessExclusiveLock);
	RenameRelationInternal(toast, name, true, false);
	RenameRelationInternal(index, psprintf("%s_index", name), true, true);
	CommandCounterIncrement();
}

static Oid
toast_of(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	Oid			toast = rel->rd_rel->reltoastrelid;

	table_close(rel, NoLock);
	if (OidIsValid(toast))
		LockRelationOid(toast, AccessExclusiveLock);
	return toast;
}

static void
swap_pair(Relation pg_class, const Pair *pair)
{
	Relation	leaf = table_open(pair->leaf, NoLock);
	Oid			old_toast;
	Oid			new_toast;
	ListCell   *lc;
	ListCell   *lc2;

	CheckTableNotInUse(leaf, "tw.publish");
	CheckTableForSerializableConflictIn(leaf);
	table_close(leaf, NoLock);

	old_toast = toast_of(pair->leaf);
	new_toast = toast_of(pair->staging);
	exchange_files(pg_class, pair->leaf, pair->staging);
	give_toast(new_toast, pair->leaf);
	give_toast(old_toast, pair->staging);
	forboth(lc, pair->leaf_indexes, lc2, pair->staging_indexes)
	{
		LockRelationOid(lfirst_oid(lc), AccessExclusiveLock);
		LockRelationOid(lfirst_oid(lc2), AccessExclusiveLock);
		exchange_files(pg_class, lfirst_oid(lc), lfirst_oid(lc2));
	}
	CommandCounterIncrement();

	/* a TOAST table is named after its owner; the old one goes with the staging */
	name_toast(old_toast, psprintf("pg_toast_%u_old", pair->leaf));
	name_toast(new_toast, psprintf("pg_toast_%u", pair->leaf));
}

/* The staging tables of the leaves that cannot be swapped: their rows are moved */
static List *
others(const StageTarget *target, const List *pairs)
{
	Relation	staging = table_open(target->staging, AccessShareLock);
	PartitionDesc partitions = RelationGetPartitionDesc(staging, false);
	List	   *left = NIL;
	ListCell   *lc;

	for (int i = 0; i < partitions->nparts; i++)
	{
		bool		swapped = false;

		foreach(lc, pairs)
			swapped |= ((Pair *) lfirst(lc))->staging == partitions->oids[i];
		if (!swapped)
			left = lappend_oid(left, partitions->oids[i]);
	}
	table_close(staging, NoLock);
	return left;
}

/*
 * True: what is staged for the target, but for the partitions in rest, is in the
 * target, swapped partitions of it.  False: nothing was done.
 */
bool
stage_swap(StageTarget *target, TransactionId newest_task, int *swapped, List **rest)
{
	List	   *pairs;
	Relation	pg_class;
	ListCell   *lc;

	pairs = find_pairs(target);
	if (pairs == NIL || !lock_pairs(target, pairs, newest_task))
		return false;

	/* under the locks again: somebody may have been there first */
	if (!same_pairs(pairs, find_pairs(target)))
		return false;

	end_old_snapshots(((Pair *) linitial(pairs))->leaf, newest_task);
	pg_class = table_open(RelationRelationId, RowExclusiveLock);
	foreach(lc, pairs)
		swap_pair(pg_class, (Pair *) lfirst(lc));
	table_close(pg_class, RowExclusiveLock);
	*swapped = list_length(pairs);
	*rest = others(target, pairs);
	return true;
}
