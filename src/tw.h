/*
 * tw.h
 *		The extension's private header.  Prototypes are grouped by file; arrows
 *		point one way: psm may call ledger, ledger never calls psm.
 */
#ifndef TW_H
#define TW_H

#include "postgres.h"

#include "access/transam.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/jsonb.h"

#include "compat.h"
#include "errors.h"

/* ---------- in guc.c: settings, transactional_writer.* ---------- */

extern int	tw_max_attempts;
extern int	tw_retry_backoff;	/* ms */
extern bool tw_claim_wait;
extern int	tw_block_timeout;	/* ms, 0: none */
extern int	tw_conflict_wait;	/* ms */
extern int	tw_max_tracked_rows;
extern bool tw_history;
extern int	tw_block_cache;		/* compiled blocks kept in a session */
extern bool tw_log_failures;	/* write tw.failures */

extern void tw_guc_init(void);

/* ---------- in xact.c: the only transaction callbacks ---------- */

extern void tw_xact_init(void);

/* ---------- in table.c: the only direct access to our own tables ---------- */

/* in ledger/job.c, ledger/batch.c, ledger/history.c: see below */

typedef enum TwStatus
{
	TW_APPLIED,
	TW_COMMITTED,
	TW_STARTED,
	TW_ALREADY_COMMITTED,
	TW_DRY_RUN
} TwStatus;

/* One row of tw.outcome.  Pointers live in the context it was made in. */
typedef struct TwOutcome
{
	TwStatus	status;
	char	   *job;			/* NULL: no batch */
	char	   *batch_id;
	bool		has_epoch;
	int64		epoch;
	Jsonb	   *result;			/* NULL: none */
	bool		has_rows;
	int64		rows;			/* written by INSERT, UPDATE, DELETE, MERGE, COPY */
	Jsonb	   *operations;		/* NULL: not recorded */
	int			attempts;
	FullTransactionId xid;		/* invalid: none was needed */
	TimestampTz started_at;
	TimestampTz finished_at;	/* 0: not finished */
} TwOutcome;

/* What a claim asks for */
typedef struct TwClaim
{
	const char *job;
	const char *batch_id;
	const char *fingerprint;	/* NULL: not compared, nor recorded */
	bool		has_epoch;
	int64		epoch;
	bool		has_version;
	int64		version;
} TwClaim;

/* ---------- in ledger/batch.c ---------- */

/*
 * Claims a batch for the current transaction.  True: it is ours, outcome is
 * filled with status started, and the caller does the work.  False: it was
 * committed before, outcome is the recorded one, and the caller does nothing.
 * Waits for another transaction that has claimed the same batch, or raises
 * TW003 when claim_wait is off.  Works without an active snapshot and at every
 * isolation level.  Errors: 22023, 25006, 42501, TW001, TW002, TW003, TW008.
 */
extern bool tw_batch_claim(const TwClaim *claim, TwOutcome *outcome);

/*
 * Records what a claimed batch did: result, rows, operations and attempts of
 * outcome; sets its finished_at.  Once for each claim.
 */
extern void tw_batch_finish(TwOutcome *outcome);

/* ---------- in ledger/history.c ---------- */

/* What one statement of a block did, over all its executions */
typedef struct TwOperation
{
	int			line;
	const char *command;		/* "INSERT" */
	Oid			relation;		/* target, or InvalidOid: no "table" is recorded */
	int64		rows;
	int64		executions;
} TwOperation;

/* [{"line":3,"command":"UPDATE","table":"public.t","rows":1,"executions":1}, ...] */
extern Jsonb *tw_history_operations(const TwOperation *ops, int nops);

/* An outcome as a Datum of type tw.outcome */
extern Datum tw_history_outcome_datum(const TwOutcome *outcome);

/* Name of a status as SQL shows it */
extern const char *tw_history_status(TwStatus status);

/* Digest of a block and its parameters as given: 64 hex digits */
extern char *tw_history_fingerprint(const char *block, Jsonb *params);

/* ---------- in ledger/failure.c ---------- */

/* Inserts a row of tw.failures into the current transaction; job and batch_id may be NULL */
extern void tw_failure_record(const char *job, const char *batch_id, int attempt,
							  const ErrorData *error, int line);

/* ---------- in signal.c ---------- */

/*
 * True when s is five characters of [0-9A-Z] and not of class 00, and then
 * sets *sqlstate to the packed value.
 */
extern bool tw_sqlstate_parse(const char *s, int *sqlstate);

#endif							/* TW_H */
