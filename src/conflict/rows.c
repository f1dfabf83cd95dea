/*
 * rows.c
 *		The rows that were read, in mode "row": 12 bytes each, no duplicates.
 *
 * A row is remembered by its place and the raw xmin of the version read.  Both
 * together name the version for as long as the snapshot under which it was seen is
 * held: VACUUM leaves it alone, and freezing keeps the raw xmin.
 *
 * Beyond max_tracked_rows the relation that has most is escalated: all its
 * rows are replaced by one condition on the whole relation.
 */
#include "conflict/conflict.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "utils/memutils.h"

#define FIRST_ROWS 64

static int
compare_rows(const TwReadRow *a, const TwReadRow *b)
{
	if (a->block != b->block)
		return a->block < b->block ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	if (a->xmin != b->xmin)
		return a->xmin < b->xmin ? -1 : 1;
	return 0;
}

#define ST_SORT sort_rows
#define ST_ELEMENT_TYPE TwReadRow
#define ST_COMPARE(a, b) compare_rows(a, b)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Sorts the rows of a relation by page and drops duplicates */
void
tw_rows_sort(TwRelation *relation)
{
	TwReadRow  *rows = relation->rows;
	int64		n = 0;

	if (relation->sorted || relation->nrows == 0)
		return;
	sort_rows(rows, relation->nrows);
	for (int64 i = 1; i < relation->nrows; i++)
	{
		if (compare_rows(&rows[n], &rows[i]) != 0)
			rows[++n] = rows[i];
	}
	tw_track->nrows -= relation->nrows - (n + 1);
	relation->nrows = n + 1;
	relation->sorted = true;
}

static void
escalate_largest(void)
{
	TwRelation *largest = NULL;
	TwRelation *relation;
	int			bound;

	for (relation = tw_track->first_relation; relation != NULL; relation = relation->next)
	{
		tw_rows_sort(relation);
		if (relation->nrows > 0 && (largest == NULL || relation->nrows > largest->nrows))
			largest = relation;
	}

	/* with a large bound, not to come here again for a few rows */
	bound = tw_max_tracked_rows - (tw_max_tracked_rows > 10000 ? tw_max_tracked_rows / 8 : 0);
	if (largest != NULL && tw_track->nrows > bound)
		tw_condition_escalate(largest, tw_track->oldest);
}

/* Makes room for one more row: by growing, by dropping duplicates, or by escalation */
static void
make_room(TwRelation *relation)
{
	if (relation->rows == NULL)
	{
		relation->max_rows = FIRST_ROWS;
		relation->rows = MemoryContextAlloc(tw_track->mcxt, FIRST_ROWS * sizeof(TwReadRow));
		return;
	}
	/* many statements may have read the same rows */
	if (!relation->sorted && relation->nrows >= 4096)
	{
		tw_rows_sort(relation);
		if (relation->nrows < relation->max_rows / 2)
			return;
	}
	relation->max_rows = relation->max_rows < 65536 ? relation->max_rows * 2 :
		relation->max_rows + relation->max_rows / 2;
	relation->rows = repalloc_huge(relation->rows, relation->max_rows * sizeof(TwReadRow));
}

void
tw_rows_add_version(TwRelation *relation, ItemPointer tid, HeapTupleHeader tuple)
{
	TwReadRow	row;
	TwReadRow  *last;

	if (relation->whole != NULL)
		return;
	row.block = ItemPointerGetBlockNumber(tid);
	row.offset = ItemPointerGetOffsetNumber(tid);
	row.xmin = HeapTupleHeaderGetRawXmin(tuple);

	/* what we wrote ourselves nobody else can change */
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) && !HeapTupleHeaderXminFrozen(tuple) &&
		TransactionIdFollowsOrEquals(row.xmin, GetTopTransactionIdIfAny()) &&
		TransactionIdIsCurrentTransactionId(row.xmin))
		return;

	if (relation->nrows > 0)
	{
		int			order;

		last = &relation->rows[relation->nrows - 1];
		order = compare_rows(last, &row);
		if (order == 0)
			return;
		if (order > 0)
			relation->sorted = false;
	}
	else
		relation->sorted = true;

	if (relation->nrows >= relation->max_rows)
	{
		make_room(relation);
		if (relation->nrows > 0 &&
			compare_rows(&relation->rows[relation->nrows - 1], &row) >= 0)
			relation->sorted = false;
	}
	relation->rows[relation->nrows++] = row;
	if (++tw_track->nrows > tw_max_tracked_rows)
		escalate_largest();
}

void
tw_rows_add(TwRelation *relation, HeapTuple tuple)
{
	tw_rows_add_version(relation, &tuple->t_self, tuple->t_data);
}
