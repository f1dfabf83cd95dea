/*
 * check.c
 *		tw.check_conflicts: what a commit would fail for if it came now.
 */
#include "conflict/conflict.h"

#include "engine/citus.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(tw_check_conflicts);

/* It tells of so many at most */
#define MAX_REPORTED 1000

typedef struct Report
{
	ReturnSetInfo *rsinfo;
	List	   *details;		/* told so far */
} Report;

static bool
report_row(const TwConflict *conflict, void *arg)
{
	Report	   *report = arg;
	Datum		values[4];
	bool		nulls[4] = {0};
	char	   *detail = tw_conflict_detail(conflict);
	ListCell   *lc;

	/* the other version of a row, or one that several conditions hold for */
	foreach(lc, report->details)
	{
		if (strcmp(lfirst(lc), detail) == 0)
			return true;
	}
	report->details = lappend(report->details, detail);
	values[0] = ObjectIdGetDatum(tw_citus_table_of(conflict->relid));
	values[1] = CStringGetTextDatum(tw_conflict_kind(conflict));
	values[2] = CStringGetTextDatum(detail);
	nulls[3] = !TransactionIdIsValid(conflict->change.xid);
	values[3] = TransactionIdGetDatum(conflict->change.xid);
	tuplestore_putvalues(report->rsinfo->setResult, report->rsinfo->setDesc, values, nulls);
	return list_length(report->details) < MAX_REPORTED;
}

/*
 * tw.check_conflicts() RETURNS SETOF (relation regclass, kind text, detail text, xid xid):
 * what a commit now would fail for, without waiting for anybody
 */
Datum
tw_check_conflicts(PG_FUNCTION_ARGS)
{
	Report		report = {(ReturnSetInfo *) fcinfo->resultinfo, NIL};

	InitMaterializedSRF(fcinfo, 0);
	if (tw_track != NULL && tw_track->oldest != NULL)
	{
		bool		busy = tw_track->busy;

		tw_constraint_settle();
		tw_track->busy = true;
		PG_TRY();
		{
			PushActiveSnapshot(tw_track->oldest);
			(void) tw_validate_all(report_row, &report);
			PopActiveSnapshot();
		}
		PG_FINALLY();
		{
			tw_track->busy = busy;
		}
		PG_END_TRY();
	}
	return (Datum) 0;
}
