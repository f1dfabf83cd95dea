/*
 * stage.h
 *		Private header of the staged batches: what a batch and its targets are, and
 *		which file offers what.
 *
 * record.c reads and writes the rows that say what is staged, target.c learns a
 * target from the catalogs, schema.c makes and removes the staging tables, sql.c
 * writes the statements that publish.  On these stand open.c, task.c, publish.c
 * and expire.c, one SQL function or two each.
 */
#ifndef TW_STAGE_H
#define TW_STAGE_H

#include "tw.h"

#include "engine/citus.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

#pragma GCC visibility push(hidden)

#define TW_TASK_MAX_BYTES	255
#define TW_MAX_TARGETS		1000

#define TW_ACTION_ABORT_BATCH "abort_batch"
#define TW_ACTION_EXPIRE	"expire_batch"

/* A row of tw.stage: a batch that is open */
typedef struct StageBatch
{
	TwRow		row;			/* as it was found */
	int64		number;
	char	   *job;
	char	   *batch_id;
	bool		has_epoch;
	int64		epoch;
	int			expected_tasks; /* -1: not said */
	bool		logged;
	char	   *fingerprint;
	TimestampTz opened_at;
	TimestampTz expires_at;
	List	   *guards;			/* char *: the queries */
	List	   *digests;		/* char *: of their results at tw.open_batch */
} StageBatch;

typedef enum StageMode
{
	STAGE_APPEND,
	STAGE_INSERT_NEW,
	STAGE_MERGE,
	STAGE_OVERWRITE
} StageMode;

/* A column of a target that a row staged for it has as well */
typedef struct StageColumn
{
	const char *name;
	const char *quoted;
	AttrNumber	attnum;			/* in the target */
	bool		generated;		/* by an expression: never written */
	bool		always;			/* GENERATED ALWAYS AS IDENTITY */
	bool		numbered;		/* identity or NOT NULL DEFAULT nextval(): may be left out */
	bool		not_null;
	bool		left_out;		/* numbered, and no staged row has a value */
} StageColumn;

/* A part of a key: a column or expression of a unique index */
typedef struct StageKey
{
	Node	   *expr;			/* varno 1 is the target */
	const char *operator;		/* OPERATOR(schema.name) of the index's equality */
	const char *collate;		/* " COLLATE ..." where the index has its own, or "" */
	bool		not_null;
} StageKey;

/* What a batch does to one table */
typedef struct StageTarget
{
	int			number;			/* from 1, as given */
	Oid			target;
	Oid			staging;		/* InvalidOid: not made yet */
	char	   *schema;			/* of the staging table */
	char	   *staging_name;
	Jsonb	   *options;		/* as given */

	/* From options */
	StageMode	mode;
	List	   *key;			/* char *: as given; NIL: the primary key */
	char	   *order_by;		/* NULL: not given */
	char	   *delete_when;
	char	   *where;
	bool		swap;			/* partitions may be swapped: true unless refused */

	/* From the catalogs, by stage_target_load() */
	char	   *name;			/* schema.table for messages */
	char	   *quoted;			/* the same as SQL has it */
	char	   *staging_quoted;
	char		relkind;
	TwPlacement placement;
	char	   *distributed_by; /* a column; NULL: by none */
	bool		hypertable;		/* of TimescaleDB: its rows are in its children */
	bool		has_row_triggers;	/* BEFORE INSERT, which may drop rows */
	bool		referenced;		/* by foreign keys */
	List	   *columns;		/* StageColumn, without the dropped ones */
	List	   *keys;			/* StageKey; NIL: no key is used */
	Node	   *key_where;		/* of a partial index; NULL: none */

	int64		staged;			/* rows according to the tasks; publish.c */
	int			swapped;		/* partitions that were swapped */
	bool		moves;			/* its rows are moved in this pass */
} StageTarget;

/* ---------- in record.c ---------- */

/*
 * Waits for whoever has the batch, or TW003 when claim_wait is off; held to the end of the
 * transaction
 */
extern void stage_lock(const char *job, const char *batch_id, LOCKMODE mode);
extern void stage_unlock(const char *job, const char *batch_id, LOCKMODE mode);
extern bool stage_lock_if_free(const char *job, const char *batch_id, LOCKMODE mode);

/* The open batch; false: there is none.  The caller holds the lock. */
extern bool stage_find(const char *job, const char *batch_id, StageBatch *batch);

/* The same, but an error says why there is none: TW006 published, TW010 unknown */
extern void stage_require(const char *job, const char *batch_id, StageBatch *batch);
extern pg_noreturn void stage_unknown(const char *job, const char *batch_id);
extern void stage_from_row(const TwRow *row, StageBatch *batch);
extern void stage_insert(const StageBatch *batch);

/* expected_tasks -1: as they were */
extern void stage_take_over(StageBatch *batch, int64 epoch, int expected_tasks,
							TimestampTz expires_at);

/* TW001 and 22023 unless epoch is the batch's */
extern void stage_check_epoch(const StageBatch *batch, int64 epoch);

extern void stage_target_insert(int64 number, const StageTarget *target);
extern List *stage_targets(int64 number);	/* StageTarget, parsed, not loaded */

/* A row of tw.stage_task */
typedef struct StageTask
{
	TwRow		row;
	char	   *task;
	FullTransactionId xid;
	int64	   *rows;			/* a target each */
	int			nrows;
	bool		lost;			/* its rows went with a crash of the server */
} StageTask;

/* Another transaction's task that is not committed yet is waited for */
extern bool stage_task_find(const StageBatch *batch, const char *task, StageTask *row);
extern bool stage_task_insert(const StageBatch *batch, const char *task, const int64 *rows,
							  int nrows, Jsonb *message);
extern void stage_task_delete(const StageTask *task);
extern List *stage_tasks(const StageBatch *batch);	/* StageTask, by name */
extern List *stage_tasks_named(const StageBatch *batch, const char *task);	/* without waiting */

/* Deletes all rows that say what the batch has staged */
extern void stage_forget(const StageBatch *batch);

/* ---------- in target.c ---------- */

/* Options of one element of targets; errors name them by the number */
extern StageTarget *stage_target_parse(Jsonb *options, int number);

/* The table that options name, which the current user must be able to publish into */
extern Oid	stage_target_lookup(StageTarget *target);

/* Fills in what the catalogs say; whatever cannot be published right is an error */
extern void stage_target_load(StageTarget *target, LOCKMODE lockmode);
extern List *stage_columns(Relation rel);	/* StageColumn */

/*
 * For the error context while a statement of ours is planned: an error in what the user wrote
 * is shown at its place in that
 */
typedef struct StageTry
{
	const StageTarget *target;
	const char *statement;
} StageTry;

extern void stage_statement_callback(void *arg);

/* "where" as an expression over the target, which has varno 1 */
extern Node *stage_target_where(const StageTarget *target, Relation rel);

/* ---------- in schema.c ---------- */

extern char *stage_schema_name(int64 number);
extern int64 stage_schema_create(Oid owner);

/* leaves: of stage_swap_leaves(); the staging table is partitioned then, and logged */
extern void stage_table_create(int64 number, Oid owner, StageTarget *target, List *leaves,
							   bool logged);

/* Is a target's staging distributed as the target is, or a table of its own? */
extern bool stage_is_distributed(const StageTarget *target);

/* Drops a staging table that is locked with its partitions */
extern void stage_table_drop(Oid staging);

/* The staging table, or its partitions */
extern List *stage_table_parts(Oid staging);

/* Keeps out writers who come through another node */
extern void stage_lock_everywhere(const StageTarget *target);

/* 55000 unless the staging table still has the columns of its target */
extern void stage_table_check(const StageTarget *target);

/* TW009: somebody has dropped it */
extern pg_noreturn void stage_table_dropped(const char *name);

/* Drops the schema, at once or, when somebody still uses it, later */
extern void stage_schema_drop(int64 number);
extern int64 stage_sweep(void);

/* Runs SQL of ours as another role, with nothing but pg_catalog in sight */
extern void stage_execute_as(Oid role, const char *sql);

/* ---------- in leaf.c ---------- */

/* The partitions that can be replaced as a whole, in the order of their bounds; NIL: none */
extern List *stage_swap_leaves(const StageTarget *target);
extern bool stage_leaf_is_empty(Relation leaf);

/* Can the files of the two be exchanged?  Gives the indexes of both, pair by pair. */
extern bool stage_leaf_fits(Relation leaf, Relation staging, List **ours, List **theirs);

/* ---------- in swap.c ---------- */

extern bool stage_swap(StageTarget *target, TransactionId newest_task, int *swapped, List **rest);
extern bool stage_storage_is_old(Relation rel);

/* ---------- in sql.c ---------- */

/* Statements that publish a target, in the order they run; NULL: not needed */
typedef struct StageSql
{
	char	   *misplaced;		/* a staged row outside of "where" */
	char	   *null_key;		/* a staged row with a null in its key; columns are the key's */
	char	   *duplicate;		/* a key staged twice */
	char	   *delete;			/* overwrite: what is not staged any more */
	bool		delete_last;	/* after all targets are written, otherwise before */
	char	   *source;			/* makes a table of the rows of each key, before remove; NULL: none */
	char	   *remove;			/* before write, where MERGE cannot be used */
	char	   *update;			/* likewise */
	char	   *write;			/* the rows */
	char	   *write_rest;		/* rows that a partial key does not cover */
	const char *command;		/* of write, for the history */
} StageSql;

extern void stage_sql_build(const StageTarget *target, StageSql *sql);
extern char *stage_sql_append_from(const StageTarget *target, Oid part);
extern char *stage_key_as_text(const StageTarget *target, const StageKey *key);
extern char *stage_sql_any_value(const StageTarget *target, const StageColumn *column);

/* Plans the statements without running them: errors now, not at publish */
extern void stage_sql_try(const StageTarget *target, const StageSql *sql);

/* ---------- in copy.c ---------- */

/* Appends what is staged; -1: not possible in this way, and nothing was done */
extern int64 stage_copy(const StageTarget *target);

/* ---------- in progress.c ---------- */

/* What publish is at; shown to the client when it takes long, and in tw.publish_progress */
extern void stage_progress_begin(const StageBatch *batch);
extern void stage_progress_phase(const char *phase, const char *table, int64 total);
extern void stage_progress_rows(int64 rows);
extern void stage_progress_done(int64 rows);

/* ---------- in guard.c ---------- */

/* The digest of a query's result, whatever the order of its rows */
extern char *stage_guard_digest(const char *query, int number);

/* 40001 when a result is another one; what the guards read is tracked to the commit */
extern void stage_guards_check(const StageBatch *batch);

/* ---------- in expire.c ---------- */

/* Ends an open batch that is locked: staging, rows, a line in tw.audit_log */
extern void stage_abort(const StageBatch *batch, const char *action, const char *reason);

#pragma GCC visibility pop

#endif							/* TW_STAGE_H */
