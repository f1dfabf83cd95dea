/*
 * portal.c
 *		The portals that an execution holds: those of its cursors, and those of its
 *		FOR loops under way.
 *
 * Both are known by name alone, since a rollback or SQL outside the block may
 * have closed a portal: it is looked up whenever it is needed.
 */
#include "psm/psm.h"

#include "access/htup_details.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "commands/portalcmds.h"
#include "nodes/nodeFuncs.h"
#include "utils/syscache.h"

/* ---------- opening ---------- */

static bool
is_sql_function(Oid function)
{
	HeapTuple	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		result = HeapTupleIsValid(proc) &&
		((Form_pg_proc) GETSTRUCT(proc))->prolang == SQLlanguageId;

	if (HeapTupleIsValid(proc))
		ReleaseSysCache(proc);
	return result;
}

/* Does a plan take the rows of a function in SQL one at a time, as in SELECT f()? */
static bool
resumes_sql_function(PlanState *state, void *arg)
{
	if (state == NULL)
		return false;
	if (IsA(state, ProjectSetState))
	{
		ProjectSetState *project = (ProjectSetState *) state;

		for (int i = 0; i < project->nelems; i++)
		{
			SetExprState *set = (SetExprState *) project->elems[i];

			if (IsA(set, SetExprState) && is_sql_function(set->func.fn_oid))
				return true;
		}
	}
	return planstate_tree_walker(state, resumes_sql_function, arg);
}

/*
 * Prepares a portal to be read in several subtransactions.  A function in SQL that has
 * given some of its rows belongs to the subtransaction that called it: in another one it would
 * begin anew, though the first was released.  So its rows are all read at once, and kept.
 */
void
psm_portal_detach(Portal portal)
{
	if (portal->queryDesc == NULL || !resumes_sql_function(portal->queryDesc->planstate, NULL))
		return;
	PortalCreateHoldStore(portal);
	PersistHoldablePortal(portal);
}

/* ---------- cursors ---------- */

/* Remembers under which name a cursor is open; NULL: it is closed */
void
psm_cursor_set_portal(PsmExec *ex, PsmCursor *cursor, Portal portal)
{
	char	  **name = &ex->cursors[cursor->number];

	if (*name != NULL)
		pfree(*name);
	*name = portal ? MemoryContextStrdup(ex->mcxt, portal->name) : NULL;
}

/* The portal of a cursor that must be open */
Portal
psm_cursor_portal(PsmExec *ex, PsmCursor *cursor)
{
	const char *name = ex->cursors[cursor->number];
	Portal		portal = name ? SPI_cursor_find(name) : NULL;

	if (portal == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_CURSOR_STATE),
				 errmsg("cursor \"%s\" is not open", cursor->name)));
	return portal;
}

/* Closes what is open of the cursors of a block */
void
psm_cursors_close(PsmExec *ex, PsmScope *scope)
{
	ListCell   *lc;

	foreach(lc, scope->cursors)
	{
		PsmCursor  *cursor = lfirst(lc);
		const char *name = ex->cursors[cursor->number];
		Portal		portal = name ? SPI_cursor_find(name) : NULL;

		if (portal != NULL)
			SPI_cursor_close(portal);
		psm_cursor_set_portal(ex, cursor, NULL);
	}
}

/* ---------- FOR loops ---------- */

/*
 * Closes the portals of FOR loops that have ended or failed, up to the loop
 * outer.  A failed loop's portal is gone with the rollback unless it was opened
 * in a savepoint that has been released meanwhile.
 */
void
psm_loops_close(PsmExec *ex, PsmOpenLoop *outer)
{
	while (ex->loops != outer)
	{
		PsmOpenLoop *loop = ex->loops;
		Portal		portal = SPI_cursor_find(loop->portal);

		if (portal != NULL)
		{
			UnpinPortal(portal);
			SPI_cursor_close(portal);
		}
		ex->loops = loop->outer;
		pfree(loop->portal);
		pfree(loop);
	}
}
