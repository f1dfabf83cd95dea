/*
 * producer.c
 *		Fencing: tw.init_producer gives a job's writer its epoch, and takes it from
 *		the writer before.
 *
 * The idea is the producer epoch of transactional producers in message logs: of
 * two that believe they are the job's writer, the one with the older epoch
 * cannot commit.
 *
 * Locks: job.c's epoch lock, exclusive, to the end of the transaction.  A
 * claimant takes it, shared, only when it is about to commit, so a writer that
 * is running or hangs is never waited for.
 */
#include "tw.h"

#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"

static bool move_epoch(const char *job, const TwJob *row, const char *instance);

/* Gives the job its next epoch; false: its row was changed meanwhile */
static bool
move_epoch(const char *job, const TwJob *row, const char *instance)
{
	TwJob		next = *row;

	next.epoch = row->epoch + 1;
	next.instance = instance == NULL ? NULL : pstrdup(instance);
	return tw_job_update(&next);
}

/* tw.init_producer(job, instance) */
PG_FUNCTION_INFO_V1(tw_init_producer);
Datum
tw_init_producer(PG_FUNCTION_ARGS)
{
	char	   *job = tw_argument_text(fcinfo, 0, "job");
	char	   *instance = tw_argument_text_or_null(fcinfo, 1);
	TwJob		row;

	if (instance != NULL)
		tw_batch_check_length("instance", instance, TW_INSTANCE_MAX_BYTES);

	tw_batch_check_writable("tw.init_producer()");
	tw_job_require_or_create(job, &row);
	tw_job_lock(job, TW_LOCK_EPOCH, ExclusiveLock);
	do
	{
		CHECK_FOR_INTERRUPTS();
		tw_job_require(job, &row);
		if (instance != NULL && row.instance != NULL && strcmp(instance, row.instance) == 0)
		{
			/* the lock is kept: the epoch may be one of this very transaction */
			PG_RETURN_INT64(row.epoch);
		}
	} while (!move_epoch(job, &row, instance));

	PG_RETURN_INT64(row.epoch + 1);
}
