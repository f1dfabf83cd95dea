/*
 * count.c
 *		What tracking has cost and found: the view tw.tracking, for this session, and
 *		what tw.failures is told of a conflict.
 *
 * Without shared memory, which an extension that is not preloaded does not have, a session
 * knows its own numbers only; conflicts of CALL tw.run outlast it in tw.failures.
 */
#include "conflict/conflict.h"

#include "access/xact.h"
#include "funcapi.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(tw_tracking);

TwCounters	tw_counters;		/* of this session */

/* The latest conflict that a commit of this session has failed for; NULL: none since */
static const char *last_kind = NULL;

void
tw_count_conflict(const TwConflict *conflict)
{
	tw_counters.conflicts++;
	last_kind = tw_conflict_kind(conflict);
}

const char *
tw_conflict_last_kind(void)
{
	const char *kind = last_kind;

	last_kind = NULL;
	return kind;
}

/* What the transaction remembers now */
static TwCounters
count_transaction(void)
{
	TwCounters	now = {0};
	TwRelation *relation;

	if (tw_track == NULL)
		return now;
	now.transactions = 1;
	for (relation = tw_track->first_relation; relation != NULL; relation = relation->next)
	{
		tw_rows_sort(relation);
		now.relations++;
		now.rows += relation->nrows;
		now.conditions += relation->nscans + relation->nprobes + (relation->whole != NULL);
	}
	now.escalated = tw_track->escalated;
	now.waits = tw_track->waits;
	return now;
}

/* Adds the transaction to the session's numbers, at its end */
void
tw_count_transaction(void)
{
	TwCounters	now = count_transaction();

	tw_counters.transactions += now.transactions;
	tw_counters.relations += now.relations;
	tw_counters.rows += now.rows;
	tw_counters.conditions += now.conditions;
	tw_counters.escalated += now.escalated;
	tw_counters.waits += now.waits;
}

static void
put_counters(ReturnSetInfo *rsinfo, const char *scope, const TwCounters *counters)
{
	Datum		values[8];
	bool		nulls[8] = {0};

	values[0] = CStringGetTextDatum(scope);
	values[1] = Int64GetDatum(counters->transactions);
	values[2] = Int64GetDatum(counters->relations);
	values[3] = Int64GetDatum(counters->rows);
	values[4] = Int64GetDatum(counters->conditions);
	values[5] = Int64GetDatum(counters->escalated);
	values[6] = Int64GetDatum(counters->waits);
	values[7] = Int64GetDatum(counters->conflicts);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* tw.tracking_counters(): a row for this transaction and one for the session's before it */
Datum
tw_tracking(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TwCounters	now = count_transaction();

	InitMaterializedSRF(fcinfo, 0);
	put_counters(rsinfo, "transaction", &now);
	put_counters(rsinfo, "session", &tw_counters);
	return (Datum) 0;
}
