/*
 * guc.c
 *		The settings, transactional_writer.*, and PostgreSQL's that decide how a value is written.
 *
 * All but the worker's can be set by anyone for their own session or transaction:
 * none of them weakens what another session is promised.
 */
#include "tw.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/float.h"
#include "utils/guc.h"

int			tw_max_attempts = 5;
int			tw_retry_backoff = 10;
bool		tw_claim_wait = true;
int			tw_block_timeout = 0;
int			tw_conflict_wait = 1000;
int			tw_max_tracked_rows = 1000000;
bool		tw_history = true;
int			tw_block_cache = 64;
bool		tw_log_failures = true;
int			tw_batch_timeout = 86400;
int			tw_worker_interval = 60;
char	   *tw_worker_databases = NULL;
int			tw_prepared_timeout = 600;

void
tw_guc_init(void)
{
	DefineCustomIntVariable("transactional_writer.max_attempts",
							"How often CALL tw.run runs a block before it passes a conflict on.",
							NULL, &tw_max_attempts, 5, 1, 1000,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("transactional_writer.retry_backoff",
							"Longest pause before the second retry of CALL tw.run; doubles with each.",
							"The pause is random between 0 and this (full jitter), at most 30 s. The first retry comes at once.",
							&tw_retry_backoff, 10, 0, 60000,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("transactional_writer.claim_wait",
							 "Wait for another transaction that has claimed the same batch.",
							 "Off: SQLSTATE TW003 at once.",
							 &tw_claim_wait, true,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("transactional_writer.block_timeout",
							"Longest time a block may run; SQLSTATE TW004 after that.",
							"0 turns it off.",
							&tw_block_timeout, 0, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("transactional_writer.conflict_wait",
							"Longest time a commit waits for a younger transaction that has changed what it read.",
							"0: SQLSTATE 40001 at once.",
							&tw_conflict_wait, 1000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("transactional_writer.max_tracked_rows",
							"Number of read rows a transaction remembers.",
							"Beyond it, a relation's rows are replaced by one condition on the whole relation.",
							&tw_max_tracked_rows, 1000000, 0, 100000000,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("transactional_writer.history",
							 "Record in the ledger what each statement of a block did.",
							 NULL, &tw_history, true,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("transactional_writer.block_cache",
							"Number of compiled blocks a session keeps.",
							NULL, &tw_block_cache, 64, 0, 100000,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("transactional_writer.log_failures",
							 "Write what CALL tw.run had to retry or gave up on to tw.failures.",
							 NULL, &tw_log_failures, true,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("transactional_writer.batch_timeout",
							"Age at which an open staged batch is aborted.",
							"tw.open_batch can set another for a batch; see tw.expire_batches.",
							&tw_batch_timeout, 86400, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("transactional_writer.worker_interval",
							"Pause between two rounds of the background worker.",
							NULL, &tw_worker_interval, 60, 1, 86400,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	/* without preloading it has no effect, and may be shown all the same */
	DefineCustomStringVariable("transactional_writer.worker_databases",
							   "Databases whose staged batches and ledgers a background worker cleans up.",
							   "It takes effect where the server preloads the library.",
							   &tw_worker_databases, "postgres",
							   process_shared_preload_libraries_in_progress ?
							   PGC_POSTMASTER : PGC_SIGHUP,
							   GUC_LIST_INPUT, NULL, NULL, NULL);
	DefineCustomIntVariable("transactional_writer.prepared_timeout",
							"Age from which a prepared batch is reported as overdue.",
							"It stays prepared until somebody resolves it. 0 turns it off.",
							&tw_prepared_timeout, 600, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_S, NULL, NULL, NULL);

	MarkGUCPrefixReserved("transactional_writer");
}

int
tw_write_portably(void)
{
	int			nestlevel = NewGUCNestLevel();

	if (DateStyle != USE_ISO_DATES)
		(void) set_config_option("datestyle", "ISO", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
	if (IntervalStyle != INTSTYLE_POSTGRES)
		(void) set_config_option("intervalstyle", "postgres", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	if (extra_float_digits < 1)
		(void) set_config_option("extra_float_digits", "1", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	return nestlevel;
}
