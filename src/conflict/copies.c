/*
 * copies.c
 *		Reads of tables that Citus has spread over nodes.
 *
 * What Citus reads on this node it reads through a plan of its own, whose scans are
 * attached to like any other's.  So a table that has a copy here, a reference table or
 * a local one, can be tracked, provided that this copy is what is read; Citus decides
 * that while it runs, and so it is seen then.
 *
 * Rows on other nodes cannot be tracked.  To prove that they have not changed, each
 * node would have to look at them as the last thing before it prepares its part of the
 * transaction, with the snapshot it has read them by.
 *
 * One case needs no proof: in mode "row" a statement's own target is covered by the
 * rule that the first updater wins, and Citus gives each node's part the isolation level
 * of the whole.
 */
#include "conflict/conflict.h"

#include "access/xact.h"
#include "engine/citus.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

static void
refuse(Oid relid, TwPlacement placement)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot track reads of %s table \"%s.%s\"",
					placement == TW_ON_EVERY_NODE ? "reference" : "distributed",
					get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid)),
			 placement == TW_ON_EVERY_NODE ?
			 errdetail("The coordinator of the Citus cluster has no copy of it.") :
			 errdetail("Its rows are on other nodes of the Citus cluster."),
			 errhint("Run with conflicts => 'write' and lock what must not change.")));
}

/* The copy here of a table that is read; an error when there is none */
static Oid
copy_of(Oid relid)
{
	TwPlacement placement = tw_citus_placement(relid);
	Oid			copy = InvalidOid;

	if (placement == TW_ON_EVERY_NODE || placement == TW_IN_LOCAL_SHARD)
		copy = tw_citus_local_copy(relid);
	if (!OidIsValid(copy))
		refuse(relid, placement);
	return copy;
}

/* COPY TO, which asks any node, and no executor here */
void
tw_copies_refuse(Oid relid)
{
	if (tw_citus_manages(relid))
		refuse(relid, TW_DISTRIBUTED);
}

/* Is the target all that a statement reads, and what it reads there all that it writes? */
static bool
reads_target_only(QueryDesc *query)
{
	Oid			target = InvalidOid;
	ListCell   *lc;

	if (tw_track->mode != TW_TRACK_ROW || !IsolationUsesXactSnapshot() ||
		query->operation == CMD_SELECT ||
		(query->operation != CMD_INSERT && tw_track_in_savepoint()))
		return false;
	foreach(lc, query->plannedstmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind != RTE_RELATION)
			continue;
		if (rte->rellockmode != RowExclusiveLock || (OidIsValid(target) && rte->relid != target))
			return false;
		target = rte->relid;
	}
	return OidIsValid(target);
}

/*
 * The copies that a statement has to read for a scan of Citus's; an error when it reads
 * what cannot be tracked.  NIL: none, or its parts are statements that are asked for
 * theirs, as those of an INSERT ... SELECT that goes through the coordinator.
 */
List *
tw_copies_needed(QueryDesc *query, const char *scan)
{
	List	   *copies = NIL;
	bool		in_parts = tw_citus_scan_in_parts(scan);
	ListCell   *lc;

	if (reads_target_only(query))
		return NIL;
	foreach(lc, query->plannedstmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind != RTE_RELATION || !tw_citus_manages(rte->relid) ||
			(in_parts && tw_track->mode == TW_TRACK_ROW && rte->rellockmode == RowExclusiveLock))
			continue;
		copies = list_append_unique_oid(copies, copy_of(rte->relid));
	}
	return in_parts ? NIL : copies;
}

/* From here to the end it is noted what is read; returns what was so far */
List *
tw_copies_begin(void)
{
	List	   *before = tw_track->copies_read;

	tw_track->copies_read = NIL;
	return before;
}

/* A statement's tables have been read, or will be */
void
tw_copies_note(QueryDesc *query)
{
	MemoryContext old = MemoryContextSwitchTo(tw_track->mcxt);
	ListCell   *lc;

	foreach(lc, query->plannedstmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION)
			tw_track->copies_read = list_append_unique_oid(tw_track->copies_read, rte->relid);
	}
	MemoryContextSwitchTo(old);
}

void
tw_copies_end(List *before, const List *needed)
{
	MemoryContext old = MemoryContextSwitchTo(tw_track->mcxt);
	ListCell   *lc;

	foreach(lc, needed)
	{
		if (!list_member_oid(tw_track->copies_read, lfirst_oid(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot track reads of table \"%s\" on another node",
							get_rel_name(tw_citus_table_of(lfirst_oid(lc)))),
					 errdetail("Citus has not read the copy of its rows on this node."),
					 errhint("Set citus.enable_local_execution = on, or run with conflicts => 'write' and lock what must not change.")));
	}
	tw_track->copies_read = list_concat_unique_oid(before, tw_track->copies_read);
	MemoryContextSwitchTo(old);
}
