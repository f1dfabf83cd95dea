/*
 * tw.h
 *		The extension's private header.  Prototypes are grouped by file; arrows
 *		point one way: psm may call ledger, ledger never calls psm.
 */
#ifndef TW_H
#define TW_H

#include "postgres.h"

#include "access/htup.h"
#include "access/sdir.h"
#include "access/transam.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "storage/itemptr.h"
#include "storage/lock.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "compat.h"
#include "errors.h"

/* ours alone: nothing but what PostgreSQL looks up by name is exported */
#pragma GCC visibility push(hidden)

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
extern int	tw_batch_timeout;	/* s */
extern int	tw_worker_interval; /* s */
extern char *tw_worker_databases;
extern int	tw_prepared_timeout;	/* s, 0: none */

/*
 * From here on values are written as text that is read as the same value under any
 * settings, until AtEOXact_GUC(true, result)
 */
extern int	tw_write_portably(void);

extern void tw_guc_init(void);

/* ---------- in xact.c: the only transaction callbacks ---------- */

extern void tw_xact_init(void);

/* ---------- in worker.c ---------- */

/* Registers the background workers, when the library is being preloaded */
extern void tw_worker_init(void);

/* ---------- in table.c: the only direct access to our own tables ---------- */

typedef enum TwTable
{
	TW_TABLE_JOB,
	TW_TABLE_BATCH,
	TW_TABLE_BATCH_OUTCOME,
	TW_TABLE_FAILURE,
	TW_TABLE_AUDIT,
	TW_TABLE_STAGE,
	TW_TABLE_STAGE_TARGET,
	TW_TABLE_STAGE_TASK,
	TW_TABLE_STAGE_ALIVE,
	TW_TABLE_STAGE_LEFTOVER,
	TW_TABLE_PREPARED,
	TW_TABLE_OFFSET
} TwTable;

typedef enum TwIndex
{
	TW_INDEX_JOB,				/* (job) */
	TW_INDEX_BATCH,				/* keys job, batch_id */
	TW_INDEX_BATCH_VERSION,		/* (job, version) where version is not null */
	TW_INDEX_BATCH_STARTED,		/* (job, started_at) */
	TW_INDEX_BATCH_OUTCOME,		/* keys xid, job, batch_id */
	TW_INDEX_FAILURE,			/* (job, at) */
	TW_INDEX_STAGE,				/* (job, batch_id) */
	TW_INDEX_STAGE_TARGET,		/* (batch, number) */
	TW_INDEX_STAGE_TASK,		/* (batch, task) */
	TW_INDEX_STAGE_ALIVE,		/* (batch, task) */
	TW_INDEX_STAGE_LEFTOVER,	/* (batch) */
	TW_INDEX_AUDIT,				/* (job, batch_id) */
	TW_INDEX_PREPARED,			/* (gid, number), key gid */
	TW_INDEX_PREPARED_XID,		/* (xid) */
	TW_INDEX_OFFSET				/* (job, source, partition) */
} TwIndex;

/* Column numbers, from 0, and how many there are: as the install script has them */
enum
{
	TW_JOB_JOB, TW_JOB_OWNER, TW_JOB_EPOCH, TW_JOB_INSTANCE, TW_JOB_RETENTION,
	TW_JOB_PRUNED_VERSION, TW_JOB_CREATED_AT, TW_JOB_NATTS
};
enum
{
	TW_BATCH_JOB, TW_BATCH_BATCH_ID, TW_BATCH_EPOCH, TW_BATCH_VERSION, TW_BATCH_XID,
	TW_BATCH_STARTED_AT, TW_BATCH_FINGERPRINT, TW_BATCH_NATTS
};
enum
{
	TW_RESULT_XID, TW_RESULT_JOB, TW_RESULT_BATCH_ID, TW_RESULT_ROWS, TW_RESULT_FINISHED_AT,
	TW_RESULT_ATTEMPTS, TW_RESULT_RESULT, TW_RESULT_OPERATIONS, TW_RESULT_NATTS
};
enum
{
	TW_FAILURE_JOB, TW_FAILURE_BATCH_ID, TW_FAILURE_ATTEMPT, TW_FAILURE_SQLSTATE,
	TW_FAILURE_MESSAGE, TW_FAILURE_LINE, TW_FAILURE_AT, TW_FAILURE_ROLE,
	TW_FAILURE_RELATION, TW_FAILURE_KIND, TW_FAILURE_NATTS
};
enum
{
	TW_AUDIT_AT, TW_AUDIT_ROLE, TW_AUDIT_ACTION, TW_AUDIT_JOB, TW_AUDIT_BATCH_ID,
	TW_AUDIT_REASON, TW_AUDIT_NATTS
};
enum
{
	TW_STAGE_JOB, TW_STAGE_BATCH_ID, TW_STAGE_BATCH, TW_STAGE_EPOCH, TW_STAGE_EXPECTED_TASKS,
	TW_STAGE_LOGGED, TW_STAGE_FINGERPRINT, TW_STAGE_OPENED_AT, TW_STAGE_EXPIRES_AT,
	TW_STAGE_GUARDS, TW_STAGE_DIGESTS, TW_STAGE_NATTS
};
enum
{
	TW_STARGET_BATCH, TW_STARGET_NUMBER, TW_STARGET_TARGET, TW_STARGET_STAGING,
	TW_STARGET_OPTIONS, TW_STARGET_NATTS
};
enum
{
	TW_STASK_BATCH, TW_STASK_TASK, TW_STASK_XID, TW_STASK_ROWS, TW_STASK_COMMITTED_AT,
	TW_STASK_ROLE, TW_STASK_MESSAGE, TW_STASK_NATTS
};
enum
{
	TW_ALIVE_BATCH, TW_ALIVE_TASK, TW_ALIVE_NATTS
};
enum
{
	TW_LEFTOVER_BATCH, TW_LEFTOVER_SINCE, TW_LEFTOVER_NATTS
};
enum
{
	TW_PREPARED_GID, TW_PREPARED_NUMBER, TW_PREPARED_XID, TW_PREPARED_JOB, TW_PREPARED_BATCH_ID,
	TW_PREPARED_EPOCH, TW_PREPARED_NATTS
};
enum
{
	TW_OFFSET_JOB, TW_OFFSET_SOURCE, TW_OFFSET_PARTITION, TW_OFFSET_POSITION, TW_OFFSET_XID,
	TW_OFFSET_MOVED_AT, TW_OFFSET_NATTS
};
#define TW_MAX_NATTS 11

/* A scan by index, in its order or backwards, over the rows whose first columns are the keys */
typedef struct TwScan TwScan;

/*
 * The table opens and locks itself RowExclusiveLock, AccessShareLock on a standby,
 * to be kept to the end of the transaction.
 */
extern Relation tw_table_open(TwTable table);
extern void tw_table_close(Relation rel);
extern Oid	tw_table_oid(TwTable table);

/* What detoasting needs where there may be no snapshot; begun before the row is read */
extern Snapshot tw_table_toast_snapshot(void);
extern void tw_table_toast_done(Snapshot snapshot);

/* Inserts a row; a key that exists is an error of the index */
extern void tw_table_insert(TwTable table, const Datum *values, const bool *nulls);

/*
 * Inserts a row unless its primary key exists, in whatever state: then nothing
 * is inserted, and the caller looks again.
 */
extern bool tw_table_insert_new(TwTable table, const Datum *values, const bool *nulls);

/* A row found: a copy of the tuple, and its columns, which point into it */
typedef struct TwRow
{
	HeapTuple	tuple;
	Datum		values[TW_MAX_NATTS];
	bool		nulls[TW_MAX_NATTS];
} TwRow;

/* The first row in the given direction that snapshot shows; false: none */
extern bool tw_table_find(TwIndex index, Snapshot snapshot, int nkeys, const Datum *keys,
						  ScanDirection direction, TwRow *row);

/* Looks at a row that seems to be gone, before we believe that somebody has deleted it */
#define TW_MAX_LOOKS 100

/* Was a row with these keys ever committed, in whatever version that is still there? */
extern bool tw_table_was_committed(TwIndex index, int nkeys, const Datum *keys);

/* The very version of a row that was seen at tid, if snapshot still shows it */
extern bool tw_table_fetch(TwTable table, ItemPointer tid, Snapshot snapshot, TwRow *row);

extern TwScan *tw_table_scan_begin(TwIndex index, Snapshot snapshot, int nkeys, const Datum *keys);

/* The next row, always in the same direction; it lives until the next call */
extern bool tw_table_scan_next(TwScan *scan, ScanDirection direction, TwRow *row);
extern void tw_table_scan_end(TwScan *scan);

/* Replaces a row found before; false: somebody else has changed it meanwhile */
extern bool tw_table_update(TwTable table, ItemPointer tid, const Datum *values, const bool *nulls);

/*
 * Deletes a row; false: somebody else is deleting or has deleted it.  Does not
 * wait for another transaction unless wait is set.
 */
extern bool tw_table_delete(TwTable table, ItemPointer tid, bool wait);

/* For hints of what a second call in one transaction gets: PostgreSQL expands the star like this */
#define TW_HINT_STAR \
	"(f(...)).* calls f once for each column: write SELECT * FROM f(...)."

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
	bool		by_caller;		/* tw.begin_batch's: tw.finish_batch may finish it */
} TwClaim;

/* ---------- in ledger/key.c ---------- */

#define TW_JOB_MAX_BYTES		255
#define TW_BATCH_ID_MAX_BYTES	512
#define TW_FINGERPRINT_MAX_BYTES 512
#define TW_INSTANCE_MAX_BYTES	255

/* 25006 and its like where nothing may be written; command is for the message */
extern void tw_batch_check_writable(const char *command);

/* Nor is it asked in a parallel worker, on a standby, or on another node than its own */
extern void tw_batch_check_place(const char *command);

/* 22023 unless value has 1 to limit bytes; what names it in the message */
extern void tw_batch_check_length(const char *what, const char *value, int limit);

/* 22023 unless the name is of a sound length */
extern void tw_job_check_name(const char *job);

/*
 * True: both are given, a batch is wanted.  False: neither is.  One alone, or
 * one of a length out of range: 22023.
 */
extern bool tw_batch_requested(const char *job, const char *batch_id);

/* The two keys of tw.batch; those of tw.batch_outcome are the batch's xid and then these */
extern void tw_batch_keys(const char *job, const char *batch_id, Datum *keys);

/* Two batches with the same hash only wait for each other */
extern void tw_batch_tag(LOCKTAG *tag, TwTable table, const char *job, const char *batch_id);

/* ---------- in ledger/job.c ---------- */

/* A row of tw.job */
typedef struct TwJob
{
	TwRow		row;			/* as it was found */
	Oid			owner;
	int64		epoch;			/* 0: tw.init_producer was never called */
	char	   *instance;		/* who holds the epoch; NULL: not said */
	Interval   *retention;		/* NULL: none */
	bool		has_pruned_version;
	int64		pruned_version; /* highest version that was pruned */
} TwJob;

/* 22023 when it is negative */
extern void tw_job_check_interval(const char *what, const Interval *interval);

/* The time that lies so far back; 22008 when none does */
extern TimestampTz tw_job_time_before(const Interval *age);

/* The committed job, or our own uncommitted one; false: there is none */
extern bool tw_job_find(const char *job, TwJob *row);

/* A job that must exist (42704) and that the current user may use (42501) */
extern void tw_job_require(const char *job, TwJob *row);

/* The same, but a job that does not exist is created, owned by the current user */
extern void tw_job_require_or_create(const char *job, TwJob *row);

/*
 * Writes owner, epoch, instance and pruned_version of a row found before; false:
 * somebody else has changed it meanwhile, so find it again.
 */
extern bool tw_job_update(const TwJob *row);

/* Waits for another transaction's hold on a batch or job, or TW003 when claim_wait is off */
extern void tw_job_wait(TransactionId xid, const char *job, const char *batch_id);
extern void tw_job_wait_for_task(TransactionId xid, const char *job, const char *batch_id,
								 const char *task);

/* The same for its hold on an offset */
extern void tw_job_wait_for_offset(TransactionId xid, const char *job, const char *source,
								   const char *partition);

/*
 * Locks on parts of a job's state.  That on the epoch is shared to check it and
 * exclusive to move it; that on the versions is exclusive, by a batch with a
 * version that is about to commit.  Kept to the end of the transaction unless
 * unlocked.
 */
typedef enum TwJobLock
{
	TW_LOCK_EPOCH,
	TW_LOCK_VERSION
} TwJobLock;

/* Takes a lock of ours; lock says for the context of an error what it is on */
extern void tw_job_wait_for_lock(const LOCKTAG *tag, LOCKMODE mode, const char *lock,
								 const char *job, const char *batch_id);
extern void tw_job_lock(const char *job, TwJobLock what, LOCKMODE mode);
extern void tw_job_unlock(const char *job, TwJobLock what, LOCKMODE mode);

/*
 * For PREPARE TRANSACTION: a share lock that the session keeps until the
 * transaction is prepared, and that does not become the prepared one's.  To be
 * released by the tag, since no name can be looked up then.
 */
extern void tw_job_hold_epoch(const char *job, LOCKTAG *tag);

/* 55000 when this transaction has moved the job's epoch or written its row */
extern void tw_job_check_preparable(const char *job);

/* TW001 when a newer writer has taken over; 22023 when the epoch was never given out */
extern void tw_job_check_epoch(const char *job, const TwJob *row, int64 epoch);

/* ---------- in ledger/batch.c ---------- */

/*
 * Claims a batch for the current transaction.  True: it is ours, outcome is
 * filled with status started, and the caller does the work.  False: it was
 * committed before, outcome is the recorded one, and the caller does nothing.
 * Waits for another transaction that has claimed the same batch, or raises
 * TW003 when claim_wait is off.  Works without an active snapshot and at every
 * isolation level; in a read-only transaction for what is committed only.
 * Errors: 22023, 25006, 42501, TW001, TW002, TW003, TW008.
 */
extern bool tw_batch_claim(const TwClaim *claim, TwOutcome *outcome);

/*
 * Records what a claimed batch did: result, rows, operations and attempts of
 * outcome; sets its finished_at.  Once for each claim.
 */
extern void tw_batch_finish(TwOutcome *outcome);

/* ---------- in ledger/look.c ---------- */

/* What a look at the ledger found */
typedef enum TwSight
{
	TW_NOT_THERE,
	TW_IN_LEDGER,				/* committed */
	TW_OURS,					/* claimed by this transaction */
	TW_LOOK_AGAIN				/* another transaction was in the way, and has ended */
} TwSight;

extern TwSight tw_batch_look(const char *job, const char *batch_id, TwRow *row);

/* What a batch did; false: it was never finished by its caller */
extern bool tw_batch_find_outcome(const TwRow *batch, TwRow *outcome);

/* ---------- in ledger/version.c ---------- */

/*
 * TW008 unless the version of a new claim is above all that were committed, or the batch was
 * forgotten on purpose, which uses that up; true then.
 */
extern bool tw_batch_check_version(const TwClaim *claim);

/*
 * TW008 when a higher version than this of the batch was committed meanwhile.
 * Called before the commit, under the lock on the job's versions.
 */
extern void tw_batch_check_overtaken(const char *job, const char *batch_id, int64 version);

/* ---------- in ledger/open.c ---------- */

/* A batch that this transaction has claimed; in TopTransactionContext */
typedef struct TwOpenBatch
{
	char	   *job;
	char	   *batch_id;
	bool		has_epoch;
	int64		epoch;
	bool		in_order;		/* its version must be the job's highest at the commit */
	int64		version;
	TimestampTz started_at;
	bool		by_caller;		/* tw.begin_batch's, so tw.finish_batch may finish it */
	SubTransactionId claimed_in;
	bool		in_block;		/* claimed in a transaction block */
	XLogRecPtr	claimed_to;		/* what had been written when it was claimed */
	CommandId	claimed_by;		/* the command */
	SubTransactionId finished_in;	/* InvalidSubTransactionId: not finished */
	SubTransactionId marked_in; /* by tw.prepare_batch, likewise; owned by sink/prepared.c */
	bool		epoch_held;		/* by tw_job_hold_epoch(), under the tag */
	LOCKTAG		epoch_tag;
} TwOpenBatch;

/* tw_batch_finish(), see above, and; in_order: its version must stay the highest to the commit */
extern void tw_open_add(const TwClaim *claim, const TwOutcome *outcome, bool in_order);

/* TwOpenBatch of each, in the order of their claims; and one of them, or NULL */
extern List *tw_open_list(void);
extern TwOpenBatch *tw_open_find(const char *job, const char *batch_id);

/* For xact.c: the last check of what is open, and its end */
extern void tw_open_before_commit(bool prepare);
extern void tw_open_subxact_end(bool commit, SubTransactionId subid, SubTransactionId parent);
extern void tw_open_clear(void);

/* ---------- in ledger/audit.c ---------- */

#define TW_ACTION_FORGET	"forget_batch"
#define TW_ACTION_RUN_AGAIN "run_again"
#define TW_ACTION_REASSIGN	"reassign_job"
#define TW_ACTION_ABORT		"abort_prepared"

/* A row of tw.audit_log, by the current user, now */
/* batch_id and reason may be NULL */
extern void tw_audit_record(const char *action, const char *job, const char *batch_id,
							const char *reason);

/* True: the batch was forgotten, and has not been run again since */
extern bool tw_forget_pending(const char *job, const char *batch_id);

/* Was any batch of the job ever forgotten? */
extern bool tw_forget_any(const char *job);

/*
 * A batch that leaves the ledger was run: that it may run again, because it was
 * forgotten earlier, is used up.
 */
extern void tw_forget_settle(const char *job, const char *batch_id);

/* ---------- in ledger/offset.c ---------- */

#define TW_SOURCE_MAX_BYTES		255 /* and those of a partition */
#define TW_POSITION_MAX_BYTES	65536

/*
 * Moves the position of a partition of a source from expected (NULL: it has none
 * yet) to next, in the current transaction.  Waits for another transaction that
 * is moving it.  Works without an active snapshot and at every isolation level.
 * Errors: 22023, 25006, 42501, TW003, TW005.
 */
extern void tw_offset_move(const char *job, const char *source, const char *partition,
						   const char *expected, const char *next);

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

/* Adds a key with a number to a JSON object that is being made */
extern void tw_history_push_number(JsonbParseState **state, const char *key, int64 number);

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

/* ---------- in stage/task.c ---------- */

/* For transactional_writer.c: hooks that count what statements write to distributed staging */
extern void tw_task_init(void);

/* For xact.c: a task that was attached must be committed or rolled back */
extern void tw_task_before_commit(void);
extern void tw_task_subxact_end(bool commit, SubTransactionId subid, SubTransactionId parent);
extern void tw_task_clear(void);

/* ---------- in stage/schema.c ---------- */

/* For tw.reassign_job: the staging of the job's open batches gets its new owner */
extern void tw_stage_reassign(const char *job, Oid owner);

/* ---------- in stage/progress.c ---------- */

/* Asks for shared memory, when the library is being preloaded */
extern void tw_progress_init(void);

/* For xact.c: no publish is under way any more */
extern void tw_progress_end(void);

/* ---------- in stage/publish.c ---------- */

/*
 * Runs a block and sets result, rows and operations of outcome.  Whoever has a
 * block language sets it; transactional_writer.c does.
 */
typedef void (*TwBlockRunner) (const char *source, int length, Jsonb *params, TwOutcome *outcome);
extern TwBlockRunner tw_block_runner;

/* ---------- in conflict/: what this transaction has read must hold at its commit ---------- */

typedef enum TwTrackMode
{
	TW_TRACK_NONE,				/* only tw.watch's conditions */
	TW_TRACK_ROW,
	TW_TRACK_PREDICATE
} TwTrackMode;

/* For transactional_writer.c: hooks, which do nothing in transactions that do not track */
extern void tw_conflict_init(void);

/*
 * From here to the end of the transaction all that it reads is tracked.  May be
 * called before the first snapshot is taken.  Errors: 55000, 25006.
 */
extern void tw_track_begin(TwTrackMode mode);

/* The current subtransaction will be rolled back with the whole transaction only */
extern void tw_track_base_here(void);

/* From here on reads are tracked like this; returns how they were before */
extern TwTrackMode tw_track_switch(TwTrackMode mode);

/*
 * For xact.c: 40001 unless all that was read still holds; after all writes and
 * before anything that others could wait for.  Then the end.
 */
extern void tw_conflict_before_commit(void);
extern void tw_conflict_subxact_end(bool commit, SubTransactionId subid, SubTransactionId parent);
extern void tw_conflict_clear(void);

/* Kind of the conflict that a commit has just failed for, to be asked once; NULL: none of ours */
extern const char *tw_conflict_last_kind(void);

/* ---------- in sink/prepared.c ---------- */

extern void tw_prepared_init(void);

/* For xact.c: records the batches of a transaction that is being prepared, and its end */
extern void tw_prepared_before_prepare(void);
extern void tw_prepared_clear(void);

/* 55000 where the server takes no prepared transactions */
extern void tw_prepared_check_enabled(void);

/* Deletes what is known of the gid of a batch that leaves the ledger */
extern void tw_prepared_forget(const TwRow *batch, bool wait);

/* ---------- in sink/doubt.c ---------- */

/* A batch in a prepared transaction, or one that was committed in it */
typedef struct TwDoubtBatch
{
	char	   *job;
	char	   *batch_id;
	bool		has_epoch;
	int64		epoch;
} TwDoubtBatch;

/* A transaction that is prepared, in any database of the server */
typedef struct TwDoubt
{
	TransactionId xid;
	char	   *gid;
	TimestampTz prepared_at;
	Oid			role;			/* that prepared it */
	Oid			database;
	List	   *batches;		/* TwDoubtBatch; NIL: none of ours, or another database */
} TwDoubt;

/* Where a gid stands */
typedef enum TwDoubtState
{
	TW_DOUBT_PREPARED,
	TW_DOUBT_IN_LEDGER,			/* committed */
	TW_DOUBT_RUNNING,			/* its transaction is neither prepared nor ended */
	TW_DOUBT_UNKNOWN			/* never heard of, or rolled back */
} TwDoubtState;

/* The prepared transactions of this database that hold batches: TwDoubt */
extern List *tw_doubt_list(void);

/* Fills doubt: its batches unless the gid is unknown, all of it when it is prepared */
extern TwDoubtState tw_doubt_look(const char *gid, TwDoubt *doubt);

/* The newest epoch of its batches of a job; 0: none has one */
extern int64 tw_doubt_epoch(const TwDoubt *doubt, const char *job);

/*
 * For the worker, in a transaction: writes to the server log which batches of
 * this database have been in doubt for longer than tw_prepared_timeout.  Each is
 * reported once when it becomes overdue, and again whenever as much time has
 * passed, however often this is called.
 */
extern void tw_doubt_report(void);

/* ---------- in sink/resolution.c ---------- */

typedef enum TwResolution
{
	TW_RESOLVED,				/* as was asked for, by us */
	TW_RESOLVED_COMMITTED,		/* by somebody else */
	TW_RESOLVED_ABORTED			/* likewise */
} TwResolution;

/* Begins a procedure that ends transactions, with the memory it keeps things in */
extern MemoryContext tw_resolution_begin(FunctionCallInfo fcinfo, const char *procedure);

/* Commits what has been written so far, and goes on in a new transaction */
extern void tw_resolution_commit(MemoryContext mcxt);

/* The same at the beginning, where there is mostly nothing to commit */
extern void tw_resolution_commit_caller(MemoryContext mcxt);

/* Its end, and that of its memory: the INOUT arguments as a row */
extern Datum tw_resolution_end(FunctionCallInfo fcinfo, MemoryContext mcxt, int n, Datum *values);

/* 42501 and others unless the current user may finish it, jobs and all */
extern void tw_resolution_check(const TwDoubt *doubt, bool commit);

/* Of all its jobs; a job that is gone is nobody's when lenient */
extern void tw_resolution_check_jobs(const TwDoubt *doubt, bool lenient);

/*
 * Commits or aborts a prepared transaction.  An abort is logged first, with its
 * reason.  With job, only while epoch is its current one, otherwise TW001.
 */
extern TwResolution tw_resolve(const TwDoubt *doubt, bool commit, const char *reason,
							   const char *job, int64 epoch, MemoryContext mcxt);

/* ---------- in argument.c ---------- */

extern char *tw_argument_text(FunctionCallInfo fcinfo, int number, const char *name);
extern char *tw_argument_text_or_null(FunctionCallInfo fcinfo, int number);
extern char *tw_argument_words(FunctionCallInfo fcinfo, int number, const char *name);
extern int64 tw_argument_int64(FunctionCallInfo fcinfo, int number, const char *name);

/* For errors that repeat what a user wrote: the text, or if it is long its beginning and "..." */
extern const char *tw_excerpt(const char *text);

/* False: the procedure is called in a transaction that is not its own to end */
extern bool tw_call_may_commit(FunctionCallInfo fcinfo);

/* ---------- in names.c ---------- */

/* What a name stood for; zero: not looked up yet */
typedef struct TwName
{
	uint64		generation;
	Oid			oid;
} TwName;

/* Changes when any relation or schema changes, so perhaps its name */
extern uint64 tw_names_generation(void);

/* A relation by its name, kept in *found; InvalidOid: there is none */
extern Oid	tw_name_lookup(const char *schema, const char *name, TwName *found);

/* ---------- in hypertable.c: TimescaleDB's tables ---------- */

/* The number that TimescaleDB has given a hypertable; 0: the table is none */
extern int32 tw_hypertable_id(Relation table);

/* The hypertable that a table is a chunk of; InvalidOid: of none */
extern Oid	tw_hypertable_of_chunk(Relation table);

/* A hypertable that may have no chunk; quick for what has rows of its own */
extern bool tw_hypertable_is_empty(Oid relid);

/* Are any chunks of a hypertable compressed? */
extern bool tw_hypertable_has_compressed(int32 id);

/* ---------- in scanner.c ---------- */

struct core_yy_extra_type;

/* Begins to scan a text, in which no word is a keyword; to be ended by scanner_finish() */
extern void *tw_scanner_begin(const char *text, struct core_yy_extra_type *extra);
extern int	tw_scanner_token_end(const struct core_yy_extra_type *extra, int start);

/* ---------- in signal.c ---------- */

/*
 * True when s is five characters of [0-9A-Z] and not of class 00, and then
 * sets *sqlstate to the packed value.
 */
extern bool tw_sqlstate_parse(const char *s, int *sqlstate);

#pragma GCC visibility pop

#endif							/* TW_H */
