/*
 * validate.c
 *		The proof before the commit: all that was read still is what it would be read now.
 *
 * Why it is sound.  Let V be the moment when a transaction's check begins.  All its writes
 * are on their pages by then (deferred triggers have fired), and every other transaction
 * sees them as in progress from their page locks on.  If the check finds nothing, then no
 * other transaction had, at V, changed anything that was read: those in progress and
 * prepared count as well. A change made after V belongs to a transaction whose own V, or
 * commit, is later than ours. So whenever one transaction depends on another, because it
 * read what that wrote, wrote over it, or read what that replaced later, V is in the same
 * order: the order of the Vs is a serial order with the same results.  This holds for every
 * writer; what other transactions read without tracking it proves nothing, for them.
 *
 * Two that have each changed what the other read would kill each other, or wait for each
 * other.  So by xid: the older waits for the younger, for a while, the younger dies at once.
 */
#include "conflict/conflict.h"

#include "access/genam.h"
#include "access/subtrans.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* So long we look again and again whether the other has ended, before we wait by its lock */
#define LOOK_OFTEN_MS 20

/* ---------- one relation ---------- */

/* A change in pg_inherits is reported as one of the parent */
typedef struct ChildSink
{
	Oid			parent;
	TwConflictSink sink;
	void	   *arg;
} ChildSink;

static bool
child_sink(const TwConflict *conflict, void *arg)
{
	ChildSink  *child = arg;
	TwConflict	of_parent = *conflict;

	of_parent.relid = child->parent;
	of_parent.tuple = NULL;
	of_parent.change.kind = TW_ATTACHED;
	return child->sink(&of_parent, child->arg);
}

static bool
validate_children(Oid relid, TwConflictSink sink, void *arg)
{
	ChildSink	child = {relid, sink, arg};

	return tw_scan_children(relid, tw_track->oldest, child_sink, &child);
}

/* We may have altered the relation: columns of a filter need not be what they were */
static bool
may_be_altered(Oid relid)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	return tw_lock_held(&tag, AccessExclusiveLock);
}

/*
 * May a table that has no children have got one?  Whoever gives it one holds a lock on it
 * until that is committed and its pg_class row has become known: so first the lock, then the row.
 */
static bool
may_have_children(Relation rel)
{
	LOCKTAG		tag;
	int			holders;

	if (rel == NULL || rel->rd_rel->relhassubclass)
		return true;
	SET_LOCKTAG_RELATION(tag, MyDatabaseId, RelationGetRelid(rel));
	pfree(GetLockConflicts(&tag, ShareUpdateExclusiveLock, &holders));
	if (holders > 0)
		return true;
	AcceptInvalidationMessages();
	return rel->rd_rel->relhassubclass;
}

/* The rows of a relation whose file is still what it was, or no longer so; false: stop */
static bool
validate_rows(Relation rel, TwRelation *relation, TwConflictSink sink, void *arg)
{
	bool		go_on;

	if (rel == NULL || !TW_LOCATOR_EQUALS(TW_LOCATOR(rel), relation->locator))
	{
		/* what we have replaced, and what it is now: either may hold others' changes */
		go_on = tw_scan_old_file(relation->key.relid, relation, sink, arg);
		if (rel != NULL)
		{
			TwRelation	now = *relation;

			now.locator = TW_LOCATOR(rel);
			if (go_on)
				go_on = tw_scan_old_file(relation->key.relid, &now, sink, arg);
		}
		return go_on;
	}

	if (relation->whole == NULL && (relation->scans != NULL || relation->probes != NULL) &&
		may_be_altered(relation->key.relid))
		go_on = tw_scan_old_file(relation->key.relid, relation, sink, arg);
	else
	{
		go_on = tw_scan_pages(rel, relation, sink, arg);
		if (go_on && relation->whole == NULL)
			go_on = tw_scan_probes(rel, relation, sink, arg);
	}
	if (go_on && relation->nrows > 0)
		go_on = tw_scan_rows(rel, relation, sink, arg);
	return go_on;
}

/* Is there more to be looked at than whether it has a new child? */
static bool
has_conditions(TwRelation *relation)
{
	return relation->whole != NULL || relation->nscans > 0 || relation->nrows > 0 ||
		relation->nprobes > relation->nprobes_off;
}

static bool
validate_relation(TwRelation *relation, TwConflictSink sink, void *arg)
{
	/* we hold a lock since we have read it; NULL: we have dropped it */
	Relation	rel = RelationIdGetRelation(relation->key.relid);
	bool		children = relation->predicates && may_have_children(rel);
	bool		go_on = true;

	if (has_conditions(relation))
		go_on = validate_rows(rel, relation, sink, arg);
	if (rel != NULL)
		RelationClose(rel);
	if (go_on && children)
		go_on = validate_children(relation->key.relid, sink, arg);
	return go_on;
}

/* Is there anything to prove?  Not where all that was read was then written, see tw_attach_written() */
static bool
anything_to_prove(TwTrack *track)
{
	/* a small job's memory has room for what is asked about locks */
	MemoryContext old = MemoryContextSwitchTo(track->mcxt);
	bool		found = track->parents != NIL;

	for (TwRelation *r = track->first_relation; r != NULL && !found; r = r->next)
		found = has_conditions(r);
	for (TwRelation *r = track->first_relation; r != NULL && !found; r = r->next)
	{
		Relation	rel = RelationIdGetRelation(r->key.relid);

		found = r->predicates && may_have_children(rel);
		if (rel != NULL)
			RelationClose(rel);
	}
	MemoryContextSwitchTo(old);
	return found;
}

/* Tells the sink of every conflict until it returns false */
bool
tw_validate_all(TwConflictSink sink, void *arg)
{
	ListCell   *lc;

	/* What we have written is to be seen before we look at what others have */
	pg_memory_barrier();

	foreach(lc, tw_track->parents)
	{
		if (!validate_children(lfirst_oid(lc), sink, arg))
			return false;
	}
	for (TwRelation *r = tw_track->first_relation; r != NULL; r = r->next)
	{
		if (!validate_relation(r, sink, arg))
			return false;
	}
	return true;
}

/* ---------- older waits, younger dies ---------- */

/*
 * Does anybody wait for us?  Then our waiting could be a deadlock.  Who waits for a row of a
 * subtransaction waits for the transaction: its own lock is gone once it is released.
 */
static bool
others_wait_for_us(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_TRANSACTION(tag, GetTopTransactionId());
	return LockHasWaiters(&tag, ExclusiveLock, false);
}

/*
 * Waits as for a row lock, so that pg_locks and the deadlock detector know of it.
 * False: not within so many milliseconds.
 */
static bool
wait_by_lock(TransactionId xid, int ms)
{
	int			lock_timeout = LockTimeout;
	volatile bool ended = true;
	MemoryContext mcxt = CurrentMemoryContext;

	LockTimeout = lock_timeout > 0 ? Min(lock_timeout, ms) : ms;
	PG_TRY();
	{
		XactLockTableWait(xid, NULL, NULL, XLTW_None);
	}
	PG_CATCH();
	{
		LockTimeout = lock_timeout;
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		/* the caller fails all the same, with its own error */
		MemoryContextSwitchTo(mcxt);
		FlushErrorState();
		ended = false;
	}
	PG_END_TRY();
	LockTimeout = lock_timeout;
	return ended;
}

/*
 * True: the other has ended, look again.  False: it stays in our way.
 *
 * Most transactions end soon, so it is worth to look often at first.  Meanwhile one
 * that comes to wait for us is noticed; later the deadlock detector has to.
 */
static bool
wait_for(TransactionId xid)
{
	TransactionId ours = GetTopTransactionIdIfAny();
	long		pause = 20;		/* microseconds */
	long		waited = 0;

	xid = SubTransGetTopmostTransaction(xid);
	if (!TransactionIdIsValid(ours) || TransactionIdPrecedes(xid, ours))
		return false;
	tw_track->waits++;
	while (waited < LOOK_OFTEN_MS * 1000L)
	{
		if (!TransactionIdIsInProgress(xid))
			return true;
		if (others_wait_for_us() || waited >= tw_conflict_wait * 1000L)
			return false;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(pause);
		waited += pause;
		pause = Min(pause * 2, 1000);
	}
	return tw_conflict_wait > LOOK_OFTEN_MS && wait_by_lock(xid, tw_conflict_wait - LOOK_OFTEN_MS);
}

static bool
first_conflict(const TwConflict *conflict, void *arg)
{
	TwConflict *found = arg;

	*found = *conflict;
	if (conflict->tuple != NULL)
		found->tuple = heap_copytuple(conflict->tuple);
	return false;
}

/* ---------- before the commit ---------- */

static void
forget_snapshots(TwTrack *track)
{
	for (int i = 0; i < track->nsnapshots; i++)
		UnregisterSnapshotFromOwner(track->snapshots[i], TopTransactionResourceOwner);
	track->nsnapshots = 0;
	track->oldest = NULL;
}

void
tw_conflict_before_commit(void)
{
	TwTrack    *track = tw_track;
	MemoryContext mcxt;
	MemoryContext old;

	if (track == NULL)
		return;
	track->ending = true;
	tw_constraint_settle();
	track->busy = true;
	if (track->oldest != NULL && anything_to_prove(track))
	{
		TwConflict	conflict;

		mcxt = AllocSetContextCreate(CurrentMemoryContext, "tw conflict check",
									 ALLOCSET_DEFAULT_SIZES);
		old = MemoryContextSwitchTo(mcxt);
		PushActiveSnapshot(track->oldest);
		while (!tw_validate_all(first_conflict, &conflict))
		{
			if (!conflict.change.in_progress || !wait_for(conflict.change.xid))
			{
				tw_count_transaction();
				tw_count_conflict(&conflict);
				tw_conflict_report(&conflict);
			}
			MemoryContextReset(mcxt);
		}
		PopActiveSnapshot();
		MemoryContextSwitchTo(old);
		MemoryContextDelete(mcxt);
	}
	tw_count_transaction();
	forget_snapshots(track);
}
