/*
 * forget.c
 *		Taking a batch out of the ledger on purpose, so that it may run again.
 *
 * Locks: tw.forget_batch holds an object lock of its own on the batch, hashed in
 * class tw.batch, to the end of its transaction.  By it a claim (look.c) tells a row that
 * is being forgotten, which it waits for, from one that is being pruned, which
 * it does not: until a pruned row is gone, its batch counts as committed.
 */
#include "tw.h"

#include "miscadmin.h"
#include "storage/lock.h"

static void
lock_batch(const char *job, const char *batch_id)
{
	LOCKTAG		tag;

	tw_batch_tag(&tag, TW_TABLE_BATCH, job, batch_id);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* The batch's row in the ledger, to be deleted; TW010 when there is none */
static void
find_for_delete(const char *job, const char *batch_id, TwRow *row)
{
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		switch (tw_batch_look(job, batch_id, row))
		{
			case TW_LOOK_AGAIN:
				break;
			case TW_IN_LEDGER:
				return;
			case TW_OURS:
				ereport(ERROR,
						(errcode(ERRCODE_OBJECT_IN_USE),
						 errmsg("cannot forget batch \"%s\" of job \"%s\" because this transaction has claimed it",
								batch_id, job)));
				break;
			case TW_NOT_THERE:
				ereport(ERROR,
						(errcode(ERRCODE_TW_UNKNOWN_BATCH),
						 errmsg("batch \"%s\" of job \"%s\" is not in the ledger",
								batch_id, job)));
				break;
		}
	}
}

/* tw.forget_batch(job, batch_id, reason) */
PG_FUNCTION_INFO_V1(tw_forget_batch);
Datum
tw_forget_batch(PG_FUNCTION_ARGS)
{
	char	   *job = tw_argument_words(fcinfo, 0, "job");
	char	   *batch_id = tw_argument_words(fcinfo, 1, "batch_id");
	char	   *reason = tw_argument_words(fcinfo, 2, "reason");
	TwJob		job_row;
	TwRow		batch;
	TwRow		outcome;

	tw_batch_check_writable("tw.forget_batch()");
	(void) tw_batch_requested(job, batch_id);
	tw_job_require(job, &job_row);

	lock_batch(job, batch_id);
	do
	{
		find_for_delete(job, batch_id, &batch);
		/* false: pruned meanwhile */
	} while (!tw_table_delete(TW_TABLE_BATCH, &batch.tuple->t_self, true));

	if (tw_batch_find_outcome(&batch, &outcome))
		(void) tw_table_delete(TW_TABLE_BATCH_OUTCOME, &outcome.tuple->t_self, true);
	tw_forget_settle(job, batch_id);
	tw_prepared_forget(&batch, true);
	tw_audit_record(TW_ACTION_FORGET, job, batch_id, reason);
	PG_RETURN_VOID();
}
