/*
 * timeout.c
 *		transactional_writer.block_timeout: how long a block may run.
 *
 * The outermost block arms a timer of PostgreSQL's own.  When that fires it
 * cancels the statement at hand, as a cancel from outside would, and the error
 * context of the block, which knows better, turns the error into TW004 while it
 * is being raised.  A function in between that catches all errors may swallow
 * it; then the block's next statement raises it again.
 */
#include "psm/psm.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timeout.h"

volatile sig_atomic_t psm_timed_out = false;

static bool armed = false;
static int	limit;				/* in ms, while armed */

/* Signal handler */
static void
time_is_up(void)
{
	psm_timed_out = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

static TimeoutId
timeout_id(void)
{
	static TimeoutId id;
	static bool registered = false;

	if (!registered)
	{
		id = RegisterTimeout(USER_TIMEOUT, time_is_up);
		registered = true;
	}
	return id;
}

static void
raise_timed_out(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_TW_TRANSACTION_TIMED_OUT),
			 errmsg("the block did not end within %d ms", limit),
			 errhint("Run it again, or raise transactional_writer.block_timeout.")));
}

/* Arms the timer for a block; false: there is no limit, or a block around it is limited */
bool
psm_timeout_begin(void)
{
	if (tw_block_timeout <= 0 || armed)
		return false;
	armed = true;
	limit = tw_block_timeout;
	psm_timed_out = false;
	enable_timeout_after(timeout_id(), limit);
	return true;
}

/*
 * The block has ended, well or by an error that is being caught.  A cancel of ours must not
 * hit what comes behind it, and one from outside cannot be told from it: both are the block's.
 */
void
psm_timeout_end(void)
{
	bool		pending;

	if (!armed)
		return;
	armed = false;
	disable_timeout(timeout_id(), false);
	pending = psm_timed_out && QueryCancelPending;
	psm_timed_out = false;
	if (!pending)
		return;
	QueryCancelPending = false;
	raise_timed_out();
}

/* Raises TW004 when the time is up; errors of a cancel become it in psm_timeout_error() */
void
psm_timeout_check(void)
{
	if (likely(!psm_timed_out))
		return;
	CHECK_FOR_INTERRUPTS();		/* the cancel that belongs to it must not come later */
	raise_timed_out();
}

/* Error context of what belongs to a block and is none of its statements */
void
psm_timeout_error_callback(void *arg)
{
	psm_timeout_error();
}

/* For the error context of a block: tells our own cancel from one from outside */
void
psm_timeout_error(void)
{
	if (!psm_timed_out || geterrcode() != ERRCODE_QUERY_CANCELED)
		return;
	errcode(ERRCODE_TW_TRANSACTION_TIMED_OUT);
	errmsg("the block did not end within %d ms", limit);
	errhint("Run it again, or raise transactional_writer.block_timeout.");
}
