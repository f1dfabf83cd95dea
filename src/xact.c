/*
 * xact.c
 *		The only transaction and subtransaction callbacks of the extension.
 *
 * Every part that keeps something for the length of a transaction is told from
 * here, so that the order in which they hear of its end is written in one place.
 * What they keep hangs on TopTransactionContext.
 *
 * Before a commit or a prepare errors are allowed and abort the transaction;
 * there is no active snapshot, and no user's data may be changed any more, whose
 * triggers would be lost.  What is written here comes before what is checked, and
 * what other nodes are asked to prepare, by Citus's own callback, comes after ours.
 * After it nothing may fail.
 */
#include "tw.h"

#include "access/xact.h"
#include "engine/citus.h"
#include "psm/psm.h"

static void xact_callback(XactEvent event, void *arg);
static void subxact_callback(SubXactEvent event, SubTransactionId subid,
							 SubTransactionId parent, void *arg);

void
tw_xact_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			tw_task_before_commit();
			tw_conflict_before_commit();
			tw_open_before_commit(false);
			tw_citus_before_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			tw_task_before_commit();
			tw_prepared_before_prepare();
			tw_conflict_before_commit();
			tw_open_before_commit(true);
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			tw_conflict_clear();
			tw_open_clear();
			tw_task_clear();
			tw_progress_end();
			tw_prepared_clear();
			tw_citus_clear();
			psm_xact_end(event != XACT_EVENT_ABORT);
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			/* a worker claims nothing */
			break;
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			psm_xact_end(event == XACT_EVENT_PARALLEL_COMMIT);
			break;
	}
}

static void
subxact_callback(SubXactEvent event, SubTransactionId subid,
				 SubTransactionId parent, void *arg)
{
	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			tw_conflict_subxact_end(true, subid, parent);
			tw_open_subxact_end(true, subid, parent);
			tw_task_subxact_end(true, subid, parent);
			psm_subxact_end(subid, true);
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			tw_conflict_subxact_end(false, subid, parent);
			tw_open_subxact_end(false, subid, parent);
			tw_task_subxact_end(false, subid, parent);
			psm_subxact_end(subid, false);
			break;
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}
