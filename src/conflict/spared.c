/*
 * spared.c
 *		What a transaction has read without remembering it, because its own locks keep
 *		others away.
 *
 * A row that it has changed or locked nobody else can change until it ends.  But what was
 * done in a subtransaction that rolls back is not locked any more: then it has to be
 * remembered after all.
 */
#include "conflict/conflict.h"

#include "access/xact.h"
#include "miscadmin.h"

/* Beyond so many things learned of a relation in a subtransaction they are not kept apart */
#define MAX_SPARED 1000

/*
 * Rows of this relation are read but not remembered, since until the end of the
 * transaction nobody else can change them: unless the subtransaction rolls back.  Then what
 * was learned is a list of probes, or, without one, anything.
 */
void
tw_track_spared(TwRelation *relation, Snapshot snapshot, List *probes)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	TwSpared   *spared;
	MemoryContext old;
	ListCell   *lc;

	if (!tw_track_in_savepoint())
		return;
	foreach(lc, tw_track->spared)
	{
		spared = lfirst(lc);
		if (spared->relation != relation || spared->subid != subid ||
			!tw_snapshot_not_newer(spared->snapshot, snapshot))
			continue;
		if (spared->probes != NIL)
		{
			old = MemoryContextSwitchTo(tw_track->mcxt);
			if (probes == NIL || list_length(spared->probes) >= MAX_SPARED)
				spared->probes = NIL;
			else
				spared->probes = list_concat(spared->probes, probes);
			MemoryContextSwitchTo(old);
		}
		return;
	}
	old = MemoryContextSwitchTo(tw_track->mcxt);
	spared = palloc(sizeof(TwSpared));
	spared->relation = relation;
	spared->snapshot = snapshot;
	spared->subid = subid;
	spared->probes = list_copy(probes);
	tw_track->spared = lappend(tw_track->spared, spared);
	MemoryContextSwitchTo(old);
}

/*
 * A query of a foreign key that locks the rows it finds, FOR KEY SHARE: no key that it has
 * seen can go, and none that it has not seen can come, because whoever adds one needs a
 * lock on the row that we are deleting.  So it needs no tracking, and a busy parent table
 * makes no conflicts.
 *
 * PostgreSQL runs it in a security context that is the foreign keys' own; but so it does with
 * the triggers of rows that a cascade deletes or updates, whose queries can be any.  So it is
 * known by its text as well.
 */
bool
tw_spared_foreign_key(QueryDesc *query)
{
	static const char begin[] = "SELECT 1 FROM ";
	static const char end[] = " FOR KEY SHARE OF x";
	size_t		length;
	Oid			userid;
	int			sec_context;

	if (!IsA(query->planstate, LockRowsState))
		return false;
	GetUserIdAndSecContext(&userid, &sec_context);
	if ((sec_context & SECURITY_NOFORCE_RLS) == 0)
		return false;
	length = strlen(query->sourceText);
	return strncmp(query->sourceText, begin, sizeof(begin) - 1) == 0 && length >= sizeof(end) &&
		strcmp(query->sourceText + length - (sizeof(end) - 1), end) == 0;
}

void
tw_conflict_subxact_end(bool commit, SubTransactionId subid, SubTransactionId parent)
{
	ListCell   *lc;

	if (tw_track == NULL)
		return;
	foreach(lc, tw_track->spared)
	{
		TwSpared   *spared = lfirst(lc);

		if (spared->subid != subid)
			continue;
		if (commit)
			spared->subid = parent;
		else
		{
			/* keys cannot be compared now, since types cannot be looked up */
			if (spared->probes == NIL)
				tw_condition_add_whole(spared->relation, spared->snapshot);
			else
			{
				MemoryContext old = MemoryContextSwitchTo(tw_track->mcxt);

				tw_track->unsettled = lappend(tw_track->unsettled, spared);
				MemoryContextSwitchTo(old);
			}
			tw_track->spared = foreach_delete_current(tw_track->spared, lc);
		}
	}
}
