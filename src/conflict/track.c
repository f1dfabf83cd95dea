/*
 * track.c
 *		What a transaction tracks: its beginning, its relations and snapshots, its end.
 *
 * The snapshot under which something was read stays registered until the check
 * before the commit, so that neither VACUUM nor pruning removes a version that
 * it could see: the evidence of a change stays on its page.  A relation that
 * was read stays locked (AccessShareLock) until the end of the transaction, so that nobody
 * else truncates or rewrites it.  Both belong to the top transaction: a
 * rolled back savepoint gives up neither.
 *
 * TRUNCATE and rewrites leave no evidence.  One that was committed between the
 * snapshot and our lock is found at the first touch of a relation: its row of pg_class
 * then has a version newer than the snapshot with another file.
 */
#include "conflict/conflict.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#define MAX_SNAPSHOTS 1000
#define FEW_RELATIONS 8

PG_FUNCTION_INFO_V1(tw_track_reads);

TwTrack    *tw_track = NULL;

static void check_trackable(void);
static void check_relation(Relation rel);
static void check_storage(Relation rel, Snapshot snapshot);

/* ---------- beginning and end ---------- */

void
tw_track_begin(TwTrackMode mode)
{
	check_trackable();
	if (tw_track == NULL)
	{
		MemoryContext mcxt = AllocSetContextCreate(TopTransactionContext, "tw tracked reads",
												   ALLOCSET_DEFAULT_SIZES);
		TwTrack    *track = MemoryContextAllocZero(mcxt, sizeof(TwTrack));

		track->mcxt = mcxt;
		dlist_init(&track->queries);
		track->end_relation = &track->first_relation;
		tw_track = track;
		tw_quiet_note();
	}
	if (mode != TW_TRACK_NONE)
		tw_track->mode = mode;

	/* Child tables are compared with what they were before any later planning */
	if (ActiveSnapshotSet() && tw_track->oldest == NULL)
		(void) tw_track_snapshot(GetActiveSnapshot());
}

TwTrackMode
tw_track_switch(TwTrackMode mode)
{
	TwTrackMode before = tw_track == NULL ? TW_TRACK_NONE : tw_track->mode;

	if (mode != TW_TRACK_NONE)
		tw_track_begin(mode);
	else if (tw_track != NULL)
		tw_track->mode = TW_TRACK_NONE;
	return before;
}

static void
check_trackable(void)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot track reads during recovery"),
				 errdetail("A standby cannot see what its primary is about to commit.")));
#if PG_VERSION_NUM < 170000
	if (old_snapshot_threshold >= 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot track reads while \"old_snapshot_threshold\" is set"),
				 errdetail("It lets the server remove row versions that tell of changes."),
				 errhint("Set old_snapshot_threshold = -1.")));
#endif
}

void
tw_conflict_clear(void)
{
	/* the memory goes with TopTransactionContext, the rest with its resource owner */
	tw_track = NULL;
}

/* tw.track_reads(mode text) RETURNS void */
Datum
tw_track_reads(PG_FUNCTION_ARGS)
{
	char	   *mode;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("mode must not be null")));
	mode = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (strcmp(mode, "row") == 0)
		tw_track_begin(TW_TRACK_ROW);
	else if (strcmp(mode, "predicate") == 0)
		tw_track_begin(TW_TRACK_PREDICATE);
	else
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid mode of tracking: \"%s\"", tw_excerpt(mode)),
				 errhint("Use 'row' or 'predicate'.")));
	PG_RETURN_VOID();
}

/* ---------- snapshots ---------- */

/* Not by memcmp(): for the few that there mostly are it takes longer than all else here */
static bool
same_xids(const TransactionId *a, const TransactionId *b, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (a[i] != b[i])
			return false;
	}
	return true;
}

/*
 * True: the two show the same transactions as finished.  An overflowed snapshot says how many
 * subtransactions were seen before there were too many, but its copies do not have them.
 */
static bool
same_snapshot(Snapshot a, Snapshot b)
{
	if (a == b)
		return true;
	if (a->xmin != b->xmin || a->xmax != b->xmax || a->xcnt != b->xcnt ||
		a->suboverflowed != b->suboverflowed || !same_xids(a->xip, b->xip, a->xcnt))
		return false;
	return a->suboverflowed ||
		(a->subxcnt == b->subxcnt && same_xids(a->subxip, b->subxip, a->subxcnt));
}

static bool
in_progress_then(TransactionId xid, Snapshot snapshot)
{
	for (uint32 i = 0; i < snapshot->xcnt; i++)
	{
		if (snapshot->xip[i] == xid)
			return true;
	}
	return false;
}

/*
 * True: whatever a shows as finished, b shows as finished as well.  Copies of snapshots do not
 * know when they were taken, so their contents are compared.
 */
bool
tw_snapshot_not_newer(Snapshot a, Snapshot b)
{
	if (a == b || TransactionIdPrecedesOrEquals(a->xmax, b->xmin))
		return true;
	if (TransactionIdFollows(a->xmax, b->xmax))
		return false;
	for (uint32 i = 0; i < b->xcnt; i++)
	{
		if (TransactionIdPrecedes(b->xip[i], a->xmax) && !in_progress_then(b->xip[i], a))
			return false;
	}
	return true;
}

/*
 * Keeps a snapshot until the check.  Returns it, or one that is the same for
 * us, or an older one when there are very many: that can only find more changes.
 */
Snapshot
tw_track_snapshot(Snapshot snapshot)
{
	TwTrack    *track = tw_track;

	for (int i = track->nsnapshots - 1; i >= Max(track->nsnapshots - 4, 0); i--)
	{
		if (same_snapshot(track->snapshots[i], snapshot))
			return track->snapshots[i];
	}
	if (track->nsnapshots >= MAX_SNAPSHOTS)
	{
		for (int i = track->nsnapshots - 1; i >= 0; i--)
		{
			if (tw_snapshot_not_newer(track->snapshots[i], snapshot))
				return track->snapshots[i];
		}
	}
	if (track->nsnapshots == track->max_snapshots)
	{
		track->max_snapshots = track->max_snapshots == 0 ? 8 : track->max_snapshots * 2;
		track->snapshots = track->snapshots == NULL ?
			MemoryContextAlloc(track->mcxt, track->max_snapshots * sizeof(Snapshot)) :
			repalloc(track->snapshots, track->max_snapshots * sizeof(Snapshot));
	}
	snapshot = RegisterSnapshotOnOwner(snapshot, TopTransactionResourceOwner);
	track->snapshots[track->nsnapshots++] = snapshot;
	if (track->oldest == NULL || tw_snapshot_not_newer(snapshot, track->oldest))
		track->oldest = snapshot;
	return snapshot;
}

/* ---------- relations ---------- */

/*
 * Must what is read from this relation be remembered?  Not what nobody else can
 * change, and not catalogs, whose changes locks keep away.  An error for what
 * cannot be tracked.
 */
bool
tw_track_wanted(Relation rel)
{
	if (RelationUsesLocalBuffers(rel) || IsCatalogRelation(rel) ||
		rel->rd_createSubid != InvalidSubTransactionId)
		return false;
	check_relation(rel);
	return true;
}

static void
check_relation(Relation rel)
{
	if (rel->rd_rel->relkind == RELKIND_SEQUENCE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot track reads of sequence \"%s\"", RelationGetRelationName(rel)),
				 errdetail("Sequences change outside of transactions.")));
	if (rel->rd_tableam != GetHeapamTableAmRoutine())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot track reads of relation \"%s\"", RelationGetRelationName(rel)),
				 errdetail("Its access method is not \"heap\"."),
				 errhint("Run with conflicts => 'write' and lock what must not change.")));
}

/*
 * Keeps a lock for the whole transaction, whatever happens to the subtransaction.  Outside of
 * one the lock that the statement holds stays by itself.
 */
static void
lock_to_the_end(Oid relid)
{
	ResourceOwner owner = CurrentResourceOwner;

	if (!tw_track_in_savepoint())
		return;
	CurrentResourceOwner = TopTransactionResourceOwner;
	LockRelationOid(relid, AccessShareLock);
	CurrentResourceOwner = owner;
}

typedef struct TwRelationEntry
{
	TwRelationKey key;
	TwRelation *relation;
} TwRelationEntry;

static void
enter_relation(TwRelation *relation)
{
	TwRelationEntry *entry = hash_search(tw_track->relations, &relation->key, HASH_ENTER, NULL);

	entry->relation = relation;
}

/* A table of the relations, once there are many of them */
static void
index_relations(void)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(TwRelationKey);
	ctl.entrysize = sizeof(TwRelationEntry);
	ctl.hcxt = tw_track->mcxt;
	tw_track->relations = hash_create("tw tracked relations", 64, &ctl,
									  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	for (TwRelation *r = tw_track->first_relation; r != NULL; r = r->next)
		enter_relation(r);
}

static TwRelation *
find_relation(const TwRelationKey *key)
{
	TwRelationEntry *entry;

	if (tw_track->relations == NULL && tw_track->nrelations > FEW_RELATIONS)
		index_relations();
	if (tw_track->relations != NULL)
	{
		entry = hash_search(tw_track->relations, key, HASH_FIND, NULL);
		return entry == NULL ? NULL : entry->relation;
	}
	for (TwRelation *r = tw_track->first_relation; r != NULL; r = r->next)
	{
		if (r->key.relid == key->relid && r->key.file == key->file)
			return r;
	}
	return NULL;
}

TwRelation *
tw_track_relation(Relation rel, Snapshot snapshot)
{
	TwTrack    *track = tw_track;
	TwRelation *relation = track->last_relation;
	TwRelationKey key;

	if (relation != NULL && relation->key.relid == RelationGetRelid(rel) &&
		relation->key.file == TW_FILE_NUMBER(rel))
		return relation;
	memset(&key, 0, sizeof(key));
	key.relid = RelationGetRelid(rel);
	key.file = TW_FILE_NUMBER(rel);
	relation = find_relation(&key);
	if (relation == NULL)
	{
		lock_to_the_end(key.relid);
		check_storage(rel, snapshot);
		relation = MemoryContextAllocZero(track->mcxt, sizeof(TwRelation));
		relation->key = key;
		if (track->relations != NULL)
			enter_relation(relation);
		track->nrelations++;
		*track->end_relation = relation;
		track->end_relation = &relation->next;
		relation->locator = TW_LOCATOR(rel);
		relation->permanent = rel->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT;
	}
	track->last_relation = relation;
	return relation;
}

/* A parent table was read through its children: a new child would be read as well */
void
tw_track_parent(Oid relid)
{
	TwTrack    *track = tw_track;
	MemoryContext old;

	if (list_member_oid(track->parents, relid))
		return;
	lock_to_the_end(relid);
	old = MemoryContextSwitchTo(track->mcxt);
	track->parents = lappend_oid(track->parents, relid);
	MemoryContextSwitchTo(old);
}

/* ---------- subtransactions ---------- */

void
tw_track_base_here(void)
{
	tw_track->base = GetCurrentSubTransactionId();
}

/* May what is done now be rolled back while the transaction goes on? */
bool
tw_track_in_savepoint(void)
{
	SubTransactionId subid = GetCurrentSubTransactionId();

	return subid != TopSubTransactionId && subid != tw_track->base;
}

/* ---------- what leaves no evidence ---------- */

/* Was this committed by another transaction after the snapshot? */
static bool
committed_since(TransactionId xid, Snapshot snapshot)
{
	return TransactionIdIsNormal(xid) && XidInMVCCSnapshot(xid, snapshot) &&
		!TransactionIdIsCurrentTransactionId(xid) && !TransactionIdIsInProgress(xid) &&
		TransactionIdDidCommit(xid);
}

/* Had this committed when the snapshot was taken? */
static bool
committed_before(TransactionId xid, Snapshot snapshot)
{
	return xid == FrozenTransactionId || xid == BootstrapTransactionId ||
		(TransactionIdIsNormal(xid) && !XidInMVCCSnapshot(xid, snapshot) &&
		 TransactionIdDidCommit(xid));
}

/* Had the version of a row gone when the snapshot was taken? */
static bool
ended_before(HeapTupleHeader tuple, Snapshot snapshot)
{
	if ((tuple->t_infomask & HEAP_XMAX_INVALID) || HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask))
		return false;
	return committed_before(HeapTupleHeaderGetUpdateXid(tuple), snapshot);
}

/*
 * 40001 when the relation was truncated or rewritten, or created, by another
 * transaction that has committed since the snapshot: what we are about to read
 * is not what was there.  We hold a lock, so none is in progress.
 */
static void
check_storage(Relation rel, Snapshot snapshot)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(RelationGetRelid(rel)));
	TransactionId xmin;
	Relation	pg_class;
	SysScanDesc scan;
	ScanKeyData key;
	TwFileNumber file = 0;
	bool		changed = false;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", RelationGetRelid(rel));
	xmin = HeapTupleHeaderGetXmin(tuple->t_data);
	ReleaseSysCache(tuple);
	if (!TransactionIdIsNormal(xmin) || !XidInMVCCSnapshot(xmin, snapshot))
		return;

	/*
	 * Somebody, perhaps we, has changed the relation in some way.  Which file did it have
	 * then, and has anyone else given it another one?
	 */
	pg_class = table_open(RelationRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationGetRelid(rel)));
	scan = systable_beginscan(pg_class, ClassOidIndexId, true, SnapshotAny, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		if (committed_before(HeapTupleHeaderGetXmin(tuple->t_data), snapshot) &&
			!ended_before(tuple->t_data, snapshot))
			file = ((Form_pg_class) GETSTRUCT(tuple))->relfilenode;
	}
	systable_endscan(scan);
	scan = systable_beginscan(pg_class, ClassOidIndexId, true, SnapshotAny, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		if (committed_since(HeapTupleHeaderGetXmin(tuple->t_data), snapshot) &&
			((Form_pg_class) GETSTRUCT(tuple))->relfilenode != file)
			changed = true;
	}
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	if (changed)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to a concurrent change of relation \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("The relation was created, truncated or rewritten after the snapshot of this transaction was taken."),
				 errhint("Retry the transaction."),
				 errtable(rel)));
}
