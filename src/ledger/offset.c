/*
 * offset.c
 *		Positions in sources, moved in the transaction of what was read from there.
 *
 * A position is a row of tw.source_offset with the primary key (job, source,
 * partition): the next place to read from, as text that means something to the
 * reader alone.  It is moved by compare and set, so a writer that was rewound, or
 * has skipped, is told so and its transaction rolls back.  The idea is that of
 * offsets sent to the transaction of a consumer that produces.  Rows are never
 * deleted: a position that was forgotten would be none, and all would be read again.
 *
 * The row is looked up with a dirty snapshot, as a claim looks up its batch: who
 * finds another transaction moving it waits for that to end and compares then.
 * The transaction's own snapshot is not used, so that a move at REPEATABLE READ or
 * SERIALIZABLE is compared with what is there, and fails with TW005, not 40001.
 *
 * Locks: the row, to the end of the transaction; others wait for its xid.
 */
#include "tw.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

#define OFFSET_KEYS 3			/* job, source, partition: the first columns */

static void check_names(const char *job, const char *source, const char *partition);
static void offset_keys(const char *job, const char *source, const char *partition, Datum *keys);
static bool look(const char *job, const char *source, const char *partition, const Datum *keys,
				 TwRow *row, bool *found);
static bool hidden(const Datum *keys, int *looks);
static char *position_of(const TwRow *row);
static void check_expected(const char *job, const char *source, const char *partition,
						   const char *expected, const char *stored);

static void
check_names(const char *job, const char *source, const char *partition)
{
	tw_job_check_name(job);
	tw_batch_check_length("source", source, TW_SOURCE_MAX_BYTES);
	tw_batch_check_length("partition", partition, TW_SOURCE_MAX_BYTES);
}

static void
offset_keys(const char *job, const char *source, const char *partition, Datum *keys)
{
	keys[TW_OFFSET_JOB] = CStringGetTextDatum(job);
	keys[TW_OFFSET_SOURCE] = CStringGetTextDatum(source);
	keys[TW_OFFSET_PARTITION] = CStringGetTextDatum(partition);
}

/*
 * The row as it is, committed or our own; found says whether there is one.  False:
 * another transaction was about to decide that, and has ended, so look again.
 */
static bool
look(const char *job, const char *source, const char *partition, const Datum *keys,
	 TwRow *row, bool *found)
{
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	*found = tw_table_find(TW_INDEX_OFFSET, &dirty, OFFSET_KEYS, keys, ForwardScanDirection, row);
	if (!*found)
		return true;

	if (dirty.speculativeToken != 0)
		SpeculativeInsertionWait(dirty.xmin, dirty.speculativeToken);
	else if (TransactionIdIsValid(dirty.xmin))
		tw_job_wait_for_offset(dirty.xmin, job, source, partition);
	else if (TransactionIdIsValid(dirty.xmax))
		tw_job_wait_for_offset(dirty.xmax, job, source, partition);
	else
		return true;
	return false;
}

/*
 * Each version of a row is judged at a moment of its own: one that was replaced
 * just now can hide the next, which the scan had not seen.  Then it is worth
 * looking again.
 */
static bool
hidden(const Datum *keys, int *looks)
{
	return (*looks)++ < TW_MAX_LOOKS && tw_table_was_committed(TW_INDEX_OFFSET, OFFSET_KEYS, keys);
}

/* A copy, since the row may be toasted; under a snapshot that was taken before */
static char *
position_of(const TwRow *row)
{
	return TextDatumGetCString(row->values[TW_OFFSET_POSITION]);
}

/* stored and expected are NULL when there is no position, or none is expected */
static void
check_expected(const char *job, const char *source, const char *partition,
			   const char *expected, const char *stored)
{
	if (expected == NULL ? stored == NULL : stored != NULL && strcmp(expected, stored) == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_TW_OFFSET_CONFLICT),
			 errmsg("offset of partition \"%s\" of source \"%s\" of job \"%s\" is not where it was expected",
					partition, source, job),
			 stored == NULL ?
			 errdetail("It has no position yet, and \"%s\" was expected.", tw_excerpt(expected)) :
			 expected == NULL ?
			 errdetail("Its position is \"%s\", and none was expected.", tw_excerpt(stored)) :
			 errdetail("Its position is \"%s\", and \"%s\" was expected.", tw_excerpt(stored),
					   tw_excerpt(expected)),
			 errhint("Read again from the position that tw.offset gives; another writer may have taken over.")));
}

void
tw_offset_move(const char *job, const char *source, const char *partition,
			   const char *expected, const char *next)
{
	Datum		values[TW_OFFSET_NATTS];
	bool		nulls[TW_OFFSET_NATTS] = {false};
	bool		found;
	bool		moved = false;
	int			looks = 0;
	TwRow		row;
	TwJob		job_row;

	tw_batch_check_writable("tw.commit_offset()");
	check_names(job, source, partition);
	tw_batch_check_length("next", next, TW_POSITION_MAX_BYTES);
	tw_job_require_or_create(job, &job_row);

	offset_keys(job, source, partition, values);
	values[TW_OFFSET_POSITION] = CStringGetTextDatum(next);
	values[TW_OFFSET_XID] = FullTransactionIdGetDatum(GetTopFullTransactionId());
	while (!moved)
	{
		Snapshot	snapshot;

		CHECK_FOR_INTERRUPTS();
		snapshot = tw_table_toast_snapshot();
		if (!look(job, source, partition, values, &row, &found) ||
			(!found && expected != NULL && hidden(values, &looks)))
		{
			tw_table_toast_done(snapshot);
			continue;
		}
		check_expected(job, source, partition, expected, found ? position_of(&row) : NULL);
		tw_table_toast_done(snapshot);

		values[TW_OFFSET_MOVED_AT] = TimestampTzGetDatum(GetCurrentTimestamp());
		if (found)
		{
			/* the row may be one that this very command has written */
			CommandCounterIncrement();
			moved = tw_table_update(TW_TABLE_OFFSET, &row.tuple->t_self, values, nulls);
		}
		else
			moved = tw_table_insert_new(TW_TABLE_OFFSET, values, nulls);
	}
}

/* ---------- SQL ---------- */

/* tw.commit_offset(job, source, partition, expected, next) */
PG_FUNCTION_INFO_V1(tw_commit_offset);
Datum
tw_commit_offset(PG_FUNCTION_ARGS)
{
	char	   *job = tw_argument_text(fcinfo, 0, "job");
	char	   *source = tw_argument_text(fcinfo, 1, "source");
	char	   *partition = tw_argument_text(fcinfo, 2, "partition");
	char	   *expected = tw_argument_text_or_null(fcinfo, 3);
	char	   *next = tw_argument_text(fcinfo, 4, "next");

	tw_offset_move(job, source, partition, expected, next);
	PG_RETURN_VOID();
}

/*
 * tw.offset(job, source, partition): what tw.commit_offset compares with, so it
 * is what is committed now, or our own, at every isolation level.
 */
PG_FUNCTION_INFO_V1(tw_offset);
Datum
tw_offset(PG_FUNCTION_ARGS)
{
	char	   *job = tw_argument_text(fcinfo, 0, "job");
	char	   *source = tw_argument_text(fcinfo, 1, "source");
	char	   *partition = tw_argument_text(fcinfo, 2, "partition");
	char	   *position = NULL;
	int			looks = 0;
	Datum		keys[OFFSET_KEYS];
	Snapshot	snapshot;
	TwRow		row;
	TwJob		job_row;

	check_names(job, source, partition);
	if (!tw_job_find(job, &job_row))
		PG_RETURN_NULL();
	tw_job_require(job, &job_row);

	offset_keys(job, source, partition, keys);
	snapshot = tw_table_toast_snapshot();
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (tw_table_find(TW_INDEX_OFFSET, SnapshotSelf, OFFSET_KEYS, keys, ForwardScanDirection,
						  &row))
			position = position_of(&row);
	} while (position == NULL && hidden(keys, &looks));
	tw_table_toast_done(snapshot);
	if (position == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(position));
}
