-- transactional_writer 0.1.0: all-or-nothing, exactly-once batch jobs.

\echo Use "CREATE EXTENSION transactional_writer" to load this file. \quit

-- The schema is created here, not by the control file: it fails when somebody
-- has prepared one, whose objects our own could be mistaken for.
CREATE SCHEMA tw;
GRANT USAGE ON SCHEMA tw TO PUBLIC;
COMMENT ON SCHEMA tw IS 'transactional_writer: atomic blocks and the ledger of batches';

-- ---------------------------------------------------------------------------
-- Tables.  C code reaches them directly, columns by position (src/tw.h), never
-- through SQL.  Nobody but the extension's owner has rights on them: the views
-- below show each user what is his.  They are heap tables whatever the default
-- access method is.
-- ---------------------------------------------------------------------------

-- The owner is a regrole, which is dumped by name, so that a restore into
-- another cluster finds the role (or by '-': see below).
CREATE TABLE tw.job (
	job text COLLATE pg_catalog."C" NOT NULL,
	owner pg_catalog.regrole NOT NULL,
	epoch bigint NOT NULL DEFAULT 0,
	instance text,
	retention interval,
	pruned_version bigint,
	created_at timestamptz NOT NULL,
	CONSTRAINT job_pkey PRIMARY KEY (job)
) USING heap WITH (fillfactor = 50);

-- Insert-only on the way of a batch: the claim.  Batches are told apart by the
-- first column of the key.
CREATE TABLE tw.batch (
	job text COLLATE pg_catalog."C" NOT NULL,
	batch_id text COLLATE pg_catalog."C" NOT NULL,
	epoch bigint,
	version bigint,
	xid xid8 NOT NULL,
	started_at timestamptz NOT NULL,
	fingerprint text,
	CONSTRAINT batch_pkey PRIMARY KEY (batch_id, job)
) USING heap;
CREATE INDEX batch_version_idx ON tw.batch (job, version) WHERE version IS NOT NULL;
CREATE INDEX batch_started_at_idx ON tw.batch (job, started_at);

-- Insert-only as well: what the batch did.  The key begins with the transaction,
-- so that new rows go to one end of the index.
CREATE TABLE tw.batch_outcome (
	xid xid8 NOT NULL,
	job text COLLATE pg_catalog."C" NOT NULL,
	batch_id text COLLATE pg_catalog."C" NOT NULL,
	rows bigint,
	finished_at timestamptz NOT NULL,
	attempts int NOT NULL,
	result jsonb,
	operations jsonb,
	CONSTRAINT batch_outcome_pkey PRIMARY KEY (xid, job, batch_id)
) USING heap;

CREATE TABLE tw.failure (
	job text COLLATE pg_catalog."C",
	batch_id text COLLATE pg_catalog."C",
	attempt int NOT NULL,
	sqlstate text COLLATE pg_catalog."C" NOT NULL,
	message text,
	line int,
	at timestamptz NOT NULL,
	role pg_catalog.regrole NOT NULL,
	relation text,
	kind text
) USING heap;
CREATE INDEX failure_job_at_idx ON tw.failure (job, at);

-- The role is kept by name: the log outlives it
CREATE TABLE tw.audit (
	at timestamptz NOT NULL,
	role text NOT NULL,
	action text NOT NULL,
	job text COLLATE pg_catalog."C" NOT NULL,
	batch_id text COLLATE pg_catalog."C",
	reason text
) USING heap;
CREATE INDEX audit_job_batch_id_idx ON tw.audit (job, batch_id);

-- The next place to read from, moved in the transaction of what was read; the
-- row is updated in place.
CREATE TABLE tw.source_offset (
	job text COLLATE pg_catalog."C" NOT NULL,
	source text COLLATE pg_catalog."C" NOT NULL,
	partition text COLLATE pg_catalog."C" NOT NULL,
	"position" text NOT NULL,
	xid xid8 NOT NULL,
	moved_at timestamptz NOT NULL,
	CONSTRAINT source_offset_pkey PRIMARY KEY (job, source, partition)
) USING heap WITH (fillfactor = 50);

-- Tables without a key are replicated by whole rows
ALTER TABLE tw.failure REPLICA IDENTITY FULL;
ALTER TABLE tw.audit REPLICA IDENTITY FULL;

-- Whoever could write here could invent or erase history
REVOKE ALL ON tw.job, tw.batch, tw.batch_outcome, tw.failure, tw.audit, tw.source_offset
	FROM PUBLIC;

COMMENT ON TABLE tw.job IS 'jobs: named writers with an owner; see view tw.jobs';
COMMENT ON TABLE tw.batch IS 'one row a committed batch, written by its claim; see view tw.ledger';
COMMENT ON TABLE tw.batch_outcome IS 'what each committed batch did, written once when it finished; see view tw.ledger';
COMMENT ON TABLE tw.failure IS 'errors that CALL tw.run retried or gave up on; see view tw.failures';
COMMENT ON TABLE tw.source_offset IS 'where each job goes on reading its sources; see view tw.offsets';
COMMENT ON TABLE tw.audit IS 'what was done to jobs and batches on the record; see view tw.audit_log';

-- A role that was dropped is a number, which is another role's in another cluster: it goes
-- into a dump as nobody, '-'.  What is given here stands behind SELECT the columns FROM the
-- table in the query of pg_dump.
SELECT pg_catalog.pg_extension_config_dump('tw.job', $$
	WHERE EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = owner)
	UNION ALL
	SELECT job, '-'::regrole, epoch, instance, retention, pruned_version, created_at
	FROM tw.job WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = owner)$$);
SELECT pg_catalog.pg_extension_config_dump('tw.batch', '');
SELECT pg_catalog.pg_extension_config_dump('tw.batch_outcome', '');
SELECT pg_catalog.pg_extension_config_dump('tw.failure', $$
	WHERE EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = role)
	UNION ALL
	SELECT job, batch_id, attempt, sqlstate, message, line, at, '-'::regrole, relation, kind
	FROM tw.failure WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = role)$$);
SELECT pg_catalog.pg_extension_config_dump('tw.audit', '');
SELECT pg_catalog.pg_extension_config_dump('tw.source_offset', '');

-- ---------------------------------------------------------------------------
-- Views: each user sees the jobs it may use, members of pg_monitor see all.
-- They are security barriers: no function in a user's query sees other rows.
-- ---------------------------------------------------------------------------

CREATE VIEW tw.jobs WITH (security_barrier) AS
	SELECT j.job, j.owner, j.epoch, j.instance, j.retention, j.pruned_version, j.created_at
	FROM tw.job j
	WHERE pg_catalog.pg_has_role(j.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

CREATE VIEW tw.ledger WITH (security_barrier) AS
	SELECT b.job, b.batch_id, b.epoch, b.version, b.fingerprint, o.result, o.rows, o.operations,
		o.attempts, b.xid, b.started_at, o.finished_at
	FROM tw.batch b
		JOIN tw.job j ON j.job OPERATOR(pg_catalog.=) b.job
		LEFT JOIN tw.batch_outcome o
			ON o.xid OPERATOR(pg_catalog.=) b.xid AND o.job OPERATOR(pg_catalog.=) b.job
				AND o.batch_id OPERATOR(pg_catalog.=) b.batch_id
	WHERE pg_catalog.pg_has_role(j.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

CREATE VIEW tw.offsets WITH (security_barrier) AS
	SELECT s.job, s.source, s.partition, s."position", s.xid, s.moved_at
	FROM tw.source_offset s
		JOIN tw.job j ON j.job OPERATOR(pg_catalog.=) s.job
	WHERE pg_catalog.pg_has_role(j.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

CREATE VIEW tw.failures WITH (security_barrier) AS
	SELECT f.job, f.batch_id, f.attempt, f.sqlstate, f.message, f.line, f.at, f.role,
		f.relation, f.kind
	FROM tw.failure f
		LEFT JOIN tw.job j ON j.job OPERATOR(pg_catalog.=) f.job
	WHERE pg_catalog.pg_has_role(j.owner, 'USAGE') OR pg_catalog.pg_has_role(f.role, 'USAGE')
		OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

CREATE VIEW tw.audit_log WITH (security_barrier) AS
	SELECT a.at, a.role, a.action, a.job, a.batch_id, a.reason
	FROM tw.audit a
		JOIN tw.job j ON j.job OPERATOR(pg_catalog.=) a.job
	WHERE pg_catalog.pg_has_role(j.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

-- Anyone may look: the views show each user only what is his
GRANT SELECT ON tw.jobs, tw.ledger, tw.offsets, tw.failures, tw.audit_log TO PUBLIC;

COMMENT ON VIEW tw.jobs IS 'the jobs the current user may use';
COMMENT ON COLUMN tw.jobs.job IS 'the job';
COMMENT ON COLUMN tw.jobs.owner IS 'the role whose members may use the job';
COMMENT ON COLUMN tw.jobs.epoch IS 'of the newest writer, from tw.init_producer; older ones cannot commit; 0: none yet';
COMMENT ON COLUMN tw.jobs.instance IS 'what the newest writer called itself';
COMMENT ON COLUMN tw.jobs.retention IS 'how long its batches stay in the ledger; null: until tw.prune_ledger is told';
COMMENT ON COLUMN tw.jobs.pruned_version IS 'highest version that was pruned; versions up to it count as used';
COMMENT ON COLUMN tw.jobs.created_at IS 'when its first batch, or tw.create_job, made it';
COMMENT ON VIEW tw.ledger IS 'the committed batches of the jobs the current user may use';
COMMENT ON COLUMN tw.ledger.job IS 'the job';
COMMENT ON COLUMN tw.ledger.batch_id IS 'the batch, an id of the writer''s choice';
COMMENT ON COLUMN tw.ledger.epoch IS 'of the writer that committed it; null: it gave none';
COMMENT ON COLUMN tw.ledger.version IS 'its place in the job''s order; null: it gave none';
COMMENT ON COLUMN tw.ledger.fingerprint IS 'digest of what it was asked to do; the same batch with another one is TW002';
COMMENT ON COLUMN tw.ledger.result IS 'what RETURN or tw.finish_batch gave';
COMMENT ON COLUMN tw.ledger.rows IS 'rows written by INSERT, UPDATE, DELETE, MERGE and COPY of its block';
COMMENT ON COLUMN tw.ledger.operations IS 'a JSON array, an element a statement: line, command, table, rows, executions';
COMMENT ON COLUMN tw.ledger.attempts IS 'tries it took, conflicts included';
COMMENT ON COLUMN tw.ledger.xid IS 'transaction that committed it, with its data';
COMMENT ON COLUMN tw.ledger.started_at IS 'when it was claimed';
COMMENT ON COLUMN tw.ledger.finished_at IS 'when its work was done, before the commit; null: tw.begin_batch without tw.finish_batch';
COMMENT ON VIEW tw.offsets IS 'the next position to read from each partition of each source, of the jobs the current user may use';
COMMENT ON COLUMN tw.offsets.job IS 'the job';
COMMENT ON COLUMN tw.offsets.source IS 'what is read, for example a topic';
COMMENT ON COLUMN tw.offsets.partition IS 'the part of it';
COMMENT ON COLUMN tw.offsets."position" IS 'where to read on; only the writer knows what it means';
COMMENT ON COLUMN tw.offsets.xid IS 'transaction that moved it';
COMMENT ON COLUMN tw.offsets.moved_at IS 'when';
COMMENT ON VIEW tw.audit_log IS 'what was done to jobs and batches on the record: forgotten, run again, aborted, expired, given away; by whom, when and why';
COMMENT ON COLUMN tw.audit_log.at IS 'when';
COMMENT ON COLUMN tw.audit_log.role IS 'who did it; a name, as the log outlives roles';
COMMENT ON COLUMN tw.audit_log.action IS 'forget_batch, run_again (below the highest version, after it was forgotten), abort_prepared, abort_batch, expire_batch or reassign_job';
COMMENT ON COLUMN tw.audit_log.job IS 'the job';
COMMENT ON COLUMN tw.audit_log.batch_id IS 'the batch; null: the job itself';
COMMENT ON COLUMN tw.audit_log.reason IS 'why, in the words of who did it';
COMMENT ON VIEW tw.failures IS 'errors that CALL tw.run retried or gave up on, of the current user''s jobs and its own';
COMMENT ON COLUMN tw.failures.job IS 'the job; null: a block without one';
COMMENT ON COLUMN tw.failures.batch_id IS 'the batch; null: a block without one';
COMMENT ON COLUMN tw.failures.attempt IS 'which try failed';
COMMENT ON COLUMN tw.failures.sqlstate IS 'of the error';
COMMENT ON COLUMN tw.failures.message IS 'of the error';
COMMENT ON COLUMN tw.failures.line IS 'of the block; null: not in a statement of it';
COMMENT ON COLUMN tw.failures.at IS 'when';
COMMENT ON COLUMN tw.failures.role IS 'who ran it';
COMMENT ON COLUMN tw.failures.relation IS 'of a conflict: the relation it was on';
COMMENT ON COLUMN tw.failures.kind IS 'of a conflict that the checks at the commit have found: inserted, updated, deleted, moved, gone or children';

-- ---------------------------------------------------------------------------
-- The outcome
-- ---------------------------------------------------------------------------

CREATE TYPE tw.outcome AS (
	status text,
	job text,
	batch_id text,
	epoch bigint,
	result jsonb,
	rows bigint,
	operations jsonb,
	attempts int,
	xid xid8,
	started_at timestamptz,
	finished_at timestamptz
);
COMMENT ON TYPE tw.outcome IS
'what a batch did. status: applied, committed, started, already_committed or dry_run; rows: written rows; operations: one element a statement';
COMMENT ON COLUMN tw.outcome.status IS 'applied: done in the caller''s open transaction; committed; started: go on; already_committed: do nothing; dry_run';
COMMENT ON COLUMN tw.outcome.job IS 'as given';
COMMENT ON COLUMN tw.outcome.batch_id IS 'as given';
COMMENT ON COLUMN tw.outcome.epoch IS 'as given';
COMMENT ON COLUMN tw.outcome.result IS 'what RETURN or tw.finish_batch gave';
COMMENT ON COLUMN tw.outcome.rows IS 'written rows';
COMMENT ON COLUMN tw.outcome.operations IS 'a JSON array, an element a statement: line, command, table, rows, executions';
COMMENT ON COLUMN tw.outcome.attempts IS 'tries it took';
COMMENT ON COLUMN tw.outcome.xid IS 'transaction that did it';
COMMENT ON COLUMN tw.outcome.started_at IS 'when it was claimed';
COMMENT ON COLUMN tw.outcome.finished_at IS 'when its work was done';

-- ---------------------------------------------------------------------------
-- Functions.  Each works in the caller's transaction, keeps no state past it,
-- and checks the job's owner itself, so PUBLIC may call them.
-- ---------------------------------------------------------------------------

CREATE FUNCTION tw.create_job(job text, retention interval DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_create_job';
COMMENT ON FUNCTION tw.create_job(text, interval) IS
'creates a job (1 to 255 bytes) owned by the current user; retention: how long its batches are kept. Errors: 22008, 22023, 25006, 42710';

CREATE FUNCTION tw.reassign_job(job text, owner pg_catalog.regrole) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_reassign_job';
COMMENT ON FUNCTION tw.reassign_job(text, pg_catalog.regrole) IS
'gives a job to another role, which the current user must be able to set. Errors: 22023, 25006, 42501, 42704';

CREATE FUNCTION tw.begin_batch(job text, batch_id text, fingerprint text DEFAULT NULL,
	epoch bigint DEFAULT NULL, version bigint DEFAULT NULL) RETURNS tw.outcome
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_begin_batch';
COMMENT ON FUNCTION tw.begin_batch(text, text, text, bigint, bigint) IS
'claims a batch (batch_id: 1 to 512 bytes) for this transaction: call it in the one that does the work; on its own it commits at once, with a warning (25P01). started: do the work and commit; already_committed: do nothing. Errors: 22023, 25006, 42501, TW001, TW002, TW003, TW008';

CREATE FUNCTION tw.finish_batch(result jsonb DEFAULT NULL) RETURNS tw.outcome
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_finish_batch';
COMMENT ON FUNCTION tw.finish_batch(jsonb) IS
'records a result for the batch that tw.begin_batch began last in this transaction; optional. Errors: 25006, 55000';

CREATE FUNCTION tw.init_producer(job text, instance text DEFAULT NULL) RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_init_producer';
COMMENT ON FUNCTION tw.init_producer(text, text) IS
'gives the job''s writer its next epoch, and fences the writer before: it cannot commit any more (TW001). The same instance (1 to 255 bytes) gets its epoch again. Errors: 22023, 25006, 42501';

CREATE FUNCTION tw.forget_batch(job text, batch_id text, reason text) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_forget_batch';
COMMENT ON FUNCTION tw.forget_batch(text, text, text) IS
'removes a committed batch from the ledger, so that it may run again; who, when and why go to tw.audit_log. Errors: 22023, 25006, 42501, 42704, 55006, TW003, TW010';

CREATE FUNCTION tw.prune_ledger(job text, older_than interval) RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_prune_ledger';
COMMENT ON FUNCTION tw.prune_ledger(text, interval) IS
'deletes at most 10000 of the job''s batches that started longer than older_than ago (null: the job''s retention), and as many failures; returns the number of batches. Call and commit until it is 0. job null: as many failures of no existing job, of roles of the current user; returns their number. Errors: 22023, 25006, 42501, 42704';

CREATE FUNCTION tw.commit_offset(job text, source text, partition text, expected text, next text)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_commit_offset';
COMMENT ON FUNCTION tw.commit_offset(text, text, text, text, text) IS
'moves a position (source, partition: 1 to 255 bytes; position: 1 to 65536) from expected (null: none yet) to next in this transaction. Errors: 22023, 25006, 42501, TW003, TW005';

CREATE FUNCTION tw."offset"(job text, source text, partition text) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_offset';
COMMENT ON FUNCTION tw."offset"(text, text, text) IS
'the next position to read, committed or of this transaction; null: none yet. Errors: 22023, 42501';

CREATE FUNCTION tw.signal(sqlstate text, message text, detail text DEFAULT NULL,
	hint text DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'tw_signal';
COMMENT ON FUNCTION tw.signal(text, text, text, text) IS
'raises an error with this SQLSTATE (five of 0-9A-Z, not class 00); classes 01 and 02 only warn. Errors: 22004, 22023';

CREATE FUNCTION tw.signal_if(condition boolean, sqlstate text, message text,
	detail text DEFAULT NULL, hint text DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'tw_signal_if';
COMMENT ON FUNCTION tw.signal_if(boolean, text, text, text, text) IS
'tw.signal when condition is true; nothing when it is false or null. Errors: 22004, 22023';

CREATE FUNCTION tw.psm_atomic_support(internal) RETURNS internal
LANGUAGE C STRICT
AS 'MODULE_PATHNAME', 'tw_atomic_support';
COMMENT ON FUNCTION tw.psm_atomic_support(internal) IS
'for the planner: refuses (tw.atomic(...)).*, which would call it once for each column. Errors: 0A000';

CREATE FUNCTION tw.atomic(block text, params jsonb DEFAULT '{}', job text DEFAULT NULL,
	batch_id text DEFAULT NULL, epoch bigint DEFAULT NULL, version bigint DEFAULT NULL,
	dry_run boolean DEFAULT false) RETURNS tw.outcome
LANGUAGE C VOLATILE PARALLEL UNSAFE SUPPORT tw.psm_atomic_support
AS 'MODULE_PATHNAME', 'tw_atomic';
COMMENT ON FUNCTION tw.atomic(text, jsonb, text, text, bigint, bigint, boolean) IS
'runs an atomic block in the caller''s transaction, as a batch when job and batch_id are given. Errors: those of the block and of tw.begin_batch';

CREATE FUNCTION tw.check_block(block text, params jsonb DEFAULT '{}')
RETURNS TABLE (line int, "column" int, sqlstate text, message text, detail text, hint text)
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_check_block';
COMMENT ON FUNCTION tw.check_block(text, jsonb) IS
'parses and plans a block and executes nothing: one row a problem, by line and column from 1; no rows: sound. Errors: 22004, 22023';

CREATE PROCEDURE tw.run(block text, params jsonb DEFAULT '{}', job text DEFAULT NULL,
	batch_id text DEFAULT NULL, epoch bigint DEFAULT NULL, version bigint DEFAULT NULL,
	conflicts text DEFAULT 'row', max_attempts int DEFAULT NULL,
	INOUT status text DEFAULT NULL, INOUT result jsonb DEFAULT NULL,
	INOUT rows bigint DEFAULT NULL, INOUT attempts int DEFAULT NULL)
LANGUAGE C
AS 'MODULE_PATHNAME', 'tw_run';
COMMENT ON PROCEDURE tw.run(text, jsonb, text, text, bigint, bigint, text, int, text, jsonb, bigint, int) IS
'claims, runs and commits an atomic block in transactions of its own, again after a conflict (40001, 40P01), max_attempts times at most. status, result, rows and attempts are its answer: give nothing for them. conflicts: none, write, row, predicate or serializable. Errors: those of tw.atomic, and 2D000 inside a transaction block';

-- ---------------------------------------------------------------------------
-- The two-phase sink: batches in prepared transactions
-- ---------------------------------------------------------------------------

-- Insert-only as well, and written in the transaction that is prepared: its gid.
-- Rows are numbered for each gid, so that no gid can be used for two transactions.
CREATE TABLE tw.prepared (
	gid text COLLATE pg_catalog."C" NOT NULL,
	number int NOT NULL,
	xid xid8 NOT NULL,
	job text COLLATE pg_catalog."C" NOT NULL,
	batch_id text COLLATE pg_catalog."C" NOT NULL,
	epoch bigint,
	CONSTRAINT prepared_pkey PRIMARY KEY (gid, number)
) USING heap;
CREATE INDEX prepared_xid_idx ON tw.prepared (xid);
REVOKE ALL ON tw.prepared FROM PUBLIC;
COMMENT ON TABLE tw.prepared IS
'the gids of batches that were committed by COMMIT PREPARED, kept as long as the batch; those in doubt are in view tw.in_doubt';
SELECT pg_catalog.pg_extension_config_dump('tw.prepared', '');

CREATE FUNCTION tw.prepare_batch(job text, batch_id text) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_prepare_batch';
COMMENT ON FUNCTION tw.prepare_batch(text, text) IS
'marks a batch that this transaction has claimed, and returns the gid for PREPARE TRANSACTION; the same for all batches of one transaction. Errors: 22023, 25006, 55000';

CREATE PROCEDURE tw.commit_prepared(gid text, INOUT status text DEFAULT NULL)
LANGUAGE C
AS 'MODULE_PATHNAME', 'tw_commit_prepared';
COMMENT ON PROCEDURE tw.commit_prepared(text, text) IS
'commits a prepared batch: committed, or already_committed when it was before. May be repeated. Errors: 0A000, 22023, 25006, 2D000, 42501, 42704, TW003, TW010';

CREATE PROCEDURE tw.abort_prepared(gid text, reason text, INOUT status text DEFAULT NULL)
LANGUAGE C
AS 'MODULE_PATHNAME', 'tw_abort_prepared';
COMMENT ON PROCEDURE tw.abort_prepared(text, text, text) IS
'rolls a prepared batch back: aborted, or already_committed when it cannot be any more. Who, when and why go to tw.audit_log. Errors: those of tw.commit_prepared';

CREATE PROCEDURE tw.recover(job text, epoch bigint, commit text[] DEFAULT '{}',
	INOUT committed int DEFAULT NULL, INOUT aborted int DEFAULT NULL)
LANGUAGE C
AS 'MODULE_PATHNAME', 'tw_recover';
COMMENT ON PROCEDURE tw.recover(text, bigint, text[], int, int) IS
'commits the job''s prepared batches that commit names by gid or batch_id, rolls back its others of older epochs, and touches nothing else. epoch: the current one, of tw.init_producer. Errors: 0A000, 22023, 25006, 2D000, 42501, 42704, 55000, TW001, TW003, TW010';

-- The function itself shows each user only what is his, as the views do
CREATE FUNCTION tw.in_doubt_batches(OUT job text, OUT batch_id text, OUT owner pg_catalog.regrole,
	OUT epoch bigint, OUT fenced boolean, OUT gid text, OUT xid xid,
	OUT prepared_by pg_catalog.regrole, OUT prepared_at timestamptz, OUT overdue boolean) RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_in_doubt_batches';
COMMENT ON FUNCTION tw.in_doubt_batches() IS 'what view tw.in_doubt shows';

CREATE VIEW tw.in_doubt WITH (security_barrier) AS
	SELECT d.job, d.batch_id, d.owner, d.epoch, d.fenced, d.gid, d.xid, d.prepared_by,
		d.prepared_at, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) d.prepared_at AS age, d.overdue
	FROM tw.in_doubt_batches() d;
GRANT SELECT ON tw.in_doubt TO PUBLIC;
COMMENT ON VIEW tw.in_doubt IS
'prepared batches of the jobs the current user may use, neither committed nor rolled back. fenced: of an older epoch than the job''s; overdue: older than transactional_writer.prepared_timeout';
COMMENT ON COLUMN tw.in_doubt.job IS 'the job';
COMMENT ON COLUMN tw.in_doubt.batch_id IS 'the batch';
COMMENT ON COLUMN tw.in_doubt.owner IS 'of the job';
COMMENT ON COLUMN tw.in_doubt.epoch IS 'of the writer that prepared it';
COMMENT ON COLUMN tw.in_doubt.fenced IS 'whether a newer writer has started since';
COMMENT ON COLUMN tw.in_doubt.gid IS 'its name for tw.commit_prepared, tw.abort_prepared and COMMIT PREPARED';
COMMENT ON COLUMN tw.in_doubt.xid IS 'the prepared transaction';
COMMENT ON COLUMN tw.in_doubt.prepared_by IS 'role that prepared it';
COMMENT ON COLUMN tw.in_doubt.prepared_at IS 'when';
COMMENT ON COLUMN tw.in_doubt.age IS 'since then; its locks are held as long';
COMMENT ON COLUMN tw.in_doubt.overdue IS 'whether it is older than transactional_writer.prepared_timeout';

-- ---------------------------------------------------------------------------
-- Staged batches.  The tables as above; the staging tables themselves are in a
-- schema for each batch, tw_batch_<n>, which belongs to the job's owner.
-- ---------------------------------------------------------------------------

CREATE SEQUENCE tw.stage_number;

-- A row for each open batch
CREATE TABLE tw.stage (
	job text COLLATE pg_catalog."C" NOT NULL,
	batch_id text COLLATE pg_catalog."C" NOT NULL,
	batch bigint NOT NULL,
	epoch bigint,
	expected_tasks int,
	logged boolean NOT NULL,
	fingerprint text NOT NULL,
	opened_at timestamptz NOT NULL,
	expires_at timestamptz NOT NULL,
	guards text[] NOT NULL,
	digests text[] NOT NULL,
	CONSTRAINT stage_pkey PRIMARY KEY (job, batch_id)
) USING heap;

-- Tables are kept as regclass, which is dumped by name
CREATE TABLE tw.stage_target (
	batch bigint NOT NULL,
	number int NOT NULL,
	target pg_catalog.regclass NOT NULL,
	staging pg_catalog.regclass NOT NULL,
	options jsonb NOT NULL,
	CONSTRAINT stage_target_pkey PRIMARY KEY (batch, number)
) USING heap;

-- Written when a task commits: rows is what it has staged for each target
CREATE TABLE tw.stage_task (
	batch bigint NOT NULL,
	task text COLLATE pg_catalog."C" NOT NULL,
	xid xid8 NOT NULL,
	rows bigint[] NOT NULL,
	committed_at timestamptz NOT NULL,
	role pg_catalog.regrole NOT NULL,
	message jsonb,
	CONSTRAINT stage_task_pkey PRIMARY KEY (batch, task)
) USING heap;

-- Unlogged as the staging tables are: a task that is missing here after a crash
-- has lost its rows.
CREATE UNLOGGED TABLE tw.stage_alive (
	batch bigint NOT NULL,
	task text COLLATE pg_catalog."C" NOT NULL,
	CONSTRAINT stage_alive_pkey PRIMARY KEY (batch, task)
) USING heap;

-- Schemas of ended batches that somebody still used
CREATE TABLE tw.stage_leftover (
	batch bigint NOT NULL,
	since timestamptz NOT NULL,
	CONSTRAINT stage_leftover_pkey PRIMARY KEY (batch)
) USING heap;

-- Whoever could write here could publish rows that nobody has staged
REVOKE ALL ON tw.stage, tw.stage_target, tw.stage_task, tw.stage_alive, tw.stage_leftover
	FROM PUBLIC;
REVOKE ALL ON SEQUENCE tw.stage_number FROM PUBLIC;

COMMENT ON SEQUENCE tw.stage_number IS 'numbers the schemas of staged batches';
COMMENT ON TABLE tw.stage IS 'open staged batches; see view tw.staged_batches';
COMMENT ON TABLE tw.stage_target IS 'the targets of each open staged batch, and their staging tables';
COMMENT ON TABLE tw.stage_task IS 'committed tasks of open staged batches; see view tw.staged_tasks';
COMMENT ON TABLE tw.stage_alive IS 'committed tasks whose rows no crash of the server has taken';
COMMENT ON TABLE tw.stage_leftover IS 'schemas of ended batches, to be dropped by tw.expire_batches';

SELECT pg_catalog.pg_extension_config_dump('tw.stage_number', '');
SELECT pg_catalog.pg_extension_config_dump('tw.stage', '');
SELECT pg_catalog.pg_extension_config_dump('tw.stage_target', '');
SELECT pg_catalog.pg_extension_config_dump('tw.stage_task', $$
	WHERE EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = role)
	UNION ALL
	SELECT batch, task, xid, rows, committed_at, '-'::regrole, message
	FROM tw.stage_task WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = role)$$);
SELECT pg_catalog.pg_extension_config_dump('tw.stage_alive', '');
SELECT pg_catalog.pg_extension_config_dump('tw.stage_leftover', '');

CREATE VIEW tw.staged_batches WITH (security_barrier) AS
	SELECT s.job, s.batch_id, 'tw_batch_' OPERATOR(pg_catalog.||) s.batch AS schema, s.epoch,
		coalesce(t.tasks, 0) AS tasks, s.expected_tasks, coalesce(t.rows, 0) AS rows,
		g.bytes, pg_catalog.now() OPERATOR(pg_catalog.-) s.opened_at AS age,
		s.opened_at, s.expires_at, s.logged, g.targets, s.guards
	FROM tw.stage s
		JOIN tw.job j ON j.job OPERATOR(pg_catalog.=) s.job
		LEFT JOIN LATERAL (SELECT pg_catalog.count(*) AS tasks,
				pg_catalog.sum((SELECT pg_catalog.sum(r) FROM pg_catalog.unnest(k.rows) AS r))::bigint AS rows
			FROM tw.stage_task k WHERE k.batch OPERATOR(pg_catalog.=) s.batch) t ON true
		LEFT JOIN LATERAL (SELECT pg_catalog.sum(coalesce(
					(SELECT pg_catalog.sum(pg_catalog.pg_total_relation_size(p.relid))
						FROM pg_catalog.pg_partition_tree(g.staging) AS p),
					pg_catalog.pg_total_relation_size(g.staging)))::bigint AS bytes,
				pg_catalog.jsonb_agg(g.options ORDER BY g.number) AS targets
			FROM tw.stage_target g WHERE g.batch OPERATOR(pg_catalog.=) s.batch) g ON true
	WHERE pg_catalog.pg_has_role(j.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

CREATE VIEW tw.staged_tasks WITH (security_barrier) AS
	SELECT s.job, s.batch_id, k.task, k.rows, k.message, k.committed_at, k.role, k.xid
	FROM tw.stage_task k
		JOIN tw.stage s ON s.batch OPERATOR(pg_catalog.=) k.batch
		JOIN tw.job j ON j.job OPERATOR(pg_catalog.=) s.job
	WHERE pg_catalog.pg_has_role(j.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

GRANT SELECT ON tw.staged_batches, tw.staged_tasks TO PUBLIC;

COMMENT ON VIEW tw.staged_batches IS 'the open staged batches of the jobs the current user may use: tasks done and expected, rows, bytes, age';
COMMENT ON COLUMN tw.staged_batches.job IS 'the job';
COMMENT ON COLUMN tw.staged_batches.batch_id IS 'the batch';
COMMENT ON COLUMN tw.staged_batches.schema IS 'where its staging tables are';
COMMENT ON COLUMN tw.staged_batches.epoch IS 'of its driver; null: it gave none';
COMMENT ON COLUMN tw.staged_batches.tasks IS 'committed tasks';
COMMENT ON COLUMN tw.staged_batches.expected_tasks IS 'tasks that tw.publish wants; null: any number';
COMMENT ON COLUMN tw.staged_batches.rows IS 'staged by the committed tasks';
COMMENT ON COLUMN tw.staged_batches.bytes IS 'of the staging tables, indexes and rows of failed attempts included';
COMMENT ON COLUMN tw.staged_batches.age IS 'since it was opened';
COMMENT ON COLUMN tw.staged_batches.opened_at IS 'when it was opened';
COMMENT ON COLUMN tw.staged_batches.expires_at IS 'when it is aborted unless published';
COMMENT ON COLUMN tw.staged_batches.logged IS 'whether staged rows survive a crash of the server';
COMMENT ON COLUMN tw.staged_batches.targets IS 'tables and modes, as given';
COMMENT ON COLUMN tw.staged_batches.guards IS 'queries whose results must be the same at the publish';
COMMENT ON VIEW tw.staged_tasks IS 'the committed tasks of those batches; rows: a number for each target, in their order';
COMMENT ON COLUMN tw.staged_tasks.job IS 'the job';
COMMENT ON COLUMN tw.staged_tasks.batch_id IS 'the batch';
COMMENT ON COLUMN tw.staged_tasks.task IS 'the task';
COMMENT ON COLUMN tw.staged_tasks.rows IS 'staged rows, a number for each target';
COMMENT ON COLUMN tw.staged_tasks.message IS 'what tw.commit_task was given for the driver';
COMMENT ON COLUMN tw.staged_tasks.committed_at IS 'when its first attempt to do so committed';
COMMENT ON COLUMN tw.staged_tasks.role IS 'who did it';
COMMENT ON COLUMN tw.staged_tasks.xid IS 'transaction of that attempt';

CREATE TYPE tw.staged_batch AS (
	status text,
	job text,
	batch_id text,
	epoch bigint,
	schema text,
	tasks int,
	expected_tasks int,
	expires_at timestamptz
);
COMMENT ON TYPE tw.staged_batch IS
'an open staged batch. status: opened, taken_over or already_committed; schema: where its staging tables are; tasks: how many are committed';
COMMENT ON COLUMN tw.staged_batch.status IS 'opened, taken_over or already_committed';
COMMENT ON COLUMN tw.staged_batch.job IS 'as given';
COMMENT ON COLUMN tw.staged_batch.batch_id IS 'as given';
COMMENT ON COLUMN tw.staged_batch.epoch IS 'as given';
COMMENT ON COLUMN tw.staged_batch.schema IS 'where its staging tables are';
COMMENT ON COLUMN tw.staged_batch.tasks IS 'committed tasks';
COMMENT ON COLUMN tw.staged_batch.expected_tasks IS 'tasks that tw.publish wants; null: any number';
COMMENT ON COLUMN tw.staged_batch.expires_at IS 'when it is aborted unless published';

CREATE FUNCTION tw.open_batch(job text, batch_id text, targets jsonb, expected_tasks int DEFAULT NULL,
	epoch bigint DEFAULT NULL, timeout interval DEFAULT NULL, logged boolean DEFAULT false,
	guards text[] DEFAULT '{}') RETURNS tw.staged_batch
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_open_batch';
COMMENT ON FUNCTION tw.open_batch(text, text, jsonb, int, bigint, interval, boolean, text[]) IS
'opens a staged batch, or takes an open one over with a newer epoch. targets: [{"table", "mode", "key", "order_by", "delete_when", "where"}, ...]; logged: staged rows survive a crash of the server; guards: queries whose results must be the same at tw.publish. Errors: 22023, 25006, 42501, 42704, 42P01, 42P10, 42809, TW001, TW002, TW003';

CREATE FUNCTION tw.attach_task(job text, batch_id text, task text, epoch bigint DEFAULT NULL,
	OUT target regclass, OUT staging regclass, OUT status text) RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_attach_task';
COMMENT ON FUNCTION tw.attach_task(text, text, text, bigint) IS
'makes this transaction an attempt at a task (1 to 255 bytes). status attached: load the staging tables, call tw.commit_task and commit; already_committed: do nothing. Errors: 22023, 25006, 42501, 42704, 55000, TW001, TW003, TW006, TW009, TW010';

CREATE FUNCTION tw.commit_task(message jsonb DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_commit_task';
COMMENT ON FUNCTION tw.commit_task(jsonb) IS
'the task attached in this transaction is complete, when the transaction commits; message is kept in tw.staged_tasks for the driver. Errors: 25006, 55000, TW001, TW003, TW006, TW010';

CREATE FUNCTION tw.publish(job text, batch_id text, epoch bigint DEFAULT NULL, audit text DEFAULT NULL)
	RETURNS tw.outcome
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_publish';
COMMENT ON FUNCTION tw.publish(text, text, bigint, text) IS
'puts all that the committed tasks have staged into the targets, in the caller''s transaction, and drops the staging. audit: a block that looks at what is staged, by the targets'' unqualified names, and refuses it with SIGNAL. Errors: 21000, 22023, 23502, 25006, 40001, 42501, 42704, 42P01, 44000, 55000, TW001, TW002, TW003, TW007, TW009, TW010, and those of the audit block and the targets';

CREATE FUNCTION tw.abort_batch(job text, batch_id text, epoch bigint DEFAULT NULL,
	reason text DEFAULT NULL) RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_abort_batch';
COMMENT ON FUNCTION tw.abort_batch(text, text, bigint, text) IS
'ends an open staged batch without publishing it, and drops its staging; who, when and why go to tw.audit_log. Errors: 22023, 25006, 42501, 42704, TW001, TW003, TW006, TW010';

CREATE FUNCTION tw.expire_batches() RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_expire_batches';
COMMENT ON FUNCTION tw.expire_batches() IS
'aborts the staged batches past their timeout, of the jobs the current user may use, and drops what ended batches had to leave; returns how many were aborted. Errors: 25006';

CREATE PROCEDURE tw.run_chunks(job text, batch_id text, block text, first bigint, last bigint,
	chunk_size bigint, params jsonb DEFAULT '{}', epoch bigint DEFAULT NULL,
	conflicts text DEFAULT 'row', max_attempts int DEFAULT NULL,
	INOUT chunks bigint DEFAULT NULL, INOUT skipped bigint DEFAULT NULL, INOUT rows bigint DEFAULT NULL)
LANGUAGE C
AS 'MODULE_PATHNAME', 'tw_run_chunks';
COMMENT ON PROCEDURE tw.run_chunks(text, text, text, bigint, bigint, bigint, jsonb, bigint, text, int, bigint, bigint, bigint) IS
'runs a block once for each chunk of first to last, with :chunk_from and :chunk_to, each a committed batch batch_id/from-to; the same call resumes where one stopped. Its answer, to give nothing for, is chunks; skipped: those that were committed before; rows: written by this call. Errors: those of tw.run';

CREATE FUNCTION tw.publish_progress(OUT pid int, OUT job text, OUT batch_id text, OUT phase text,
	OUT "table" text, OUT rows bigint, OUT total bigint, OUT started_at timestamptz,
	OUT phase_at timestamptz) RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_publish_progress';
COMMENT ON FUNCTION tw.publish_progress() IS
'the publishes that are under way in this database, of the jobs the current user may use; see view tw.publish_progress';

CREATE VIEW tw.publish_progress WITH (security_barrier) AS
	SELECT p.pid, p.job, p.batch_id, p.phase, p."table", p.rows, p.total,
		p.rows OPERATOR(pg_catalog.*) 100 OPERATOR(pg_catalog./) nullif(p.total, 0) AS percent,
		pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) p.started_at AS running,
		CASE WHEN p.rows OPERATOR(pg_catalog.>) 0 AND p.total OPERATOR(pg_catalog.>) p.rows
			THEN (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) p.phase_at)
				OPERATOR(pg_catalog.*) ((p.total OPERATOR(pg_catalog.-) p.rows)::float8
				OPERATOR(pg_catalog./) p.rows::float8) END AS phase_left
	FROM tw.publish_progress() AS p;
GRANT SELECT ON tw.publish_progress TO PUBLIC;
COMMENT ON VIEW tw.publish_progress IS
'what each publish is at: phase, table, rows of total, time left of the phase; empty unless the library is in shared_preload_libraries';
COMMENT ON COLUMN tw.publish_progress.pid IS 'process that publishes';
COMMENT ON COLUMN tw.publish_progress.job IS 'the job';
COMMENT ON COLUMN tw.publish_progress.batch_id IS 'the batch';
COMMENT ON COLUMN tw.publish_progress.phase IS 'what it is doing';
COMMENT ON COLUMN tw.publish_progress."table" IS 'target that it is at';
COMMENT ON COLUMN tw.publish_progress.rows IS 'done in this phase';
COMMENT ON COLUMN tw.publish_progress.total IS 'to be done in this phase';
COMMENT ON COLUMN tw.publish_progress.percent IS 'rows in percent of total';
COMMENT ON COLUMN tw.publish_progress.running IS 'time since it began';
COMMENT ON COLUMN tw.publish_progress.phase_left IS 'time that the phase will take at this rate';

-- Trigger of the staging tables
CREATE FUNCTION tw.guard_staging() RETURNS trigger
LANGUAGE C
AS 'MODULE_PATHNAME', 'tw_guard_staging';
COMMENT ON FUNCTION tw.guard_staging() IS
'keeps the tasks that share a staging table apart: rows come from an attached task, and a task changes its own only. Errors: 55000';

-- ---------- LANGUAGE psm ----------

CREATE FUNCTION tw.psm_call_handler() RETURNS language_handler
LANGUAGE C
AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION tw.psm_call_handler() IS 'calls functions, procedures and triggers of LANGUAGE psm';

CREATE FUNCTION tw.psm_inline_handler(internal) RETURNS void
LANGUAGE C STRICT
AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION tw.psm_inline_handler(internal) IS 'runs DO LANGUAGE psm';

CREATE FUNCTION tw.psm_validator(oid) RETURNS void
LANGUAGE C STRICT
AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION tw.psm_validator(oid) IS 'checks a body in LANGUAGE psm when it is created';

-- Trusted: a body can do what its SQL statements can do, with the caller's rights.
CREATE TRUSTED LANGUAGE psm
	HANDLER tw.psm_call_handler INLINE tw.psm_inline_handler VALIDATOR tw.psm_validator;
COMMENT ON LANGUAGE psm IS 'SQL/PSM: BEGIN ATOMIC ... END blocks as functions, procedures, triggers and DO';

-- ---------------------------------------------------------------------------
-- Conflict checks.  They see what the caller's own statements read, and nothing
-- beyond it, so PUBLIC may call them.
-- ---------------------------------------------------------------------------

CREATE FUNCTION tw.track_reads(mode text DEFAULT 'predicate') RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_track_reads';
COMMENT ON FUNCTION tw.track_reads(text) IS
'from the next statement to the end of the transaction, what it reads must still hold when it commits, otherwise 40001. predicate: no row that a scan would find may have changed; row: no row that was read. Errors: 0A000 (what cannot be tracked), 22004, 22023, 25006, 55000';

CREATE FUNCTION tw.check_conflicts(OUT relation regclass, OUT kind text, OUT detail text, OUT xid xid)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_check_conflicts';
COMMENT ON FUNCTION tw.check_conflicts() IS
'what the commit of this transaction would fail for if it came now; nothing: it would go through. kind: inserted, updated, deleted, moved, gone or children';

CREATE FUNCTION tw.watch(relation regclass, predicate text DEFAULT 'true', params jsonb DEFAULT '{}')
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_watch';
COMMENT ON FUNCTION tw.watch(regclass, text, jsonb) IS
'until this transaction commits, no row of the relation that satisfies the predicate may be inserted, changed or deleted by others, otherwise the commit fails with 40001. :name and params.name in the predicate are taken from params. Errors: 0A000, 22004, 22023, 42809, and those of a query';

CREATE FUNCTION tw.tracking_counters(OUT scope text, OUT transactions bigint, OUT relations bigint,
	OUT rows bigint, OUT conditions bigint, OUT escalated bigint, OUT waits bigint, OUT conflicts bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'tw_tracking';
COMMENT ON FUNCTION tw.tracking_counters() IS 'what view tw.tracking shows';

CREATE VIEW tw.tracking WITH (security_barrier) AS SELECT * FROM tw.tracking_counters();
COMMENT ON VIEW tw.tracking IS
'what this session tracks: a row for this transaction, and one for those before it. escalated: rows and index probes that one condition on their whole relation has replaced; waits: for younger transactions, at a commit; conflicts: commits that failed';
COMMENT ON COLUMN tw.tracking.scope IS 'transaction: this one; session: those before it';
COMMENT ON COLUMN tw.tracking.transactions IS 'that tracked';
COMMENT ON COLUMN tw.tracking.relations IS 'that were read';
COMMENT ON COLUMN tw.tracking.rows IS 'remembered one by one';
COMMENT ON COLUMN tw.tracking.conditions IS 'of scans and tw.watch';
COMMENT ON COLUMN tw.tracking.escalated IS 'rows and index probes that one condition on all of their relation has replaced';
COMMENT ON COLUMN tw.tracking.waits IS 'for younger transactions, at a commit';
COMMENT ON COLUMN tw.tracking.conflicts IS 'commits that failed with 40001';

CREATE VIEW tw.conflicts WITH (security_barrier) AS
	SELECT f.job, f.relation, f.kind, f.sqlstate, pg_catalog.count(*) AS conflicts,
		pg_catalog.count(DISTINCT f.batch_id) AS batches, pg_catalog.max(f.attempt) AS max_attempt,
		pg_catalog.max(f.at) AS last_at
	FROM tw.failures f
	WHERE f.sqlstate OPERATOR(pg_catalog.=) '40001' OR f.sqlstate OPERATOR(pg_catalog.=) '40P01'
	GROUP BY f.job, f.relation, f.kind, f.sqlstate;
COMMENT ON VIEW tw.conflicts IS
'conflicts that CALL tw.run has met, as long as tw.failures keeps them. relation and kind: of those that the conflict checks have found; null: of PostgreSQL''s own';
COMMENT ON COLUMN tw.conflicts.job IS 'the job';
COMMENT ON COLUMN tw.conflicts.relation IS 'where; null: unknown';
COMMENT ON COLUMN tw.conflicts.kind IS 'inserted, updated, deleted, moved, gone or children; null: found by PostgreSQL itself';
COMMENT ON COLUMN tw.conflicts.sqlstate IS '40001 or 40P01';
COMMENT ON COLUMN tw.conflicts.conflicts IS 'how many';
COMMENT ON COLUMN tw.conflicts.batches IS 'how many batches have had them';
COMMENT ON COLUMN tw.conflicts.max_attempt IS 'highest number of a try that failed so';
COMMENT ON COLUMN tw.conflicts.last_at IS 'when the last one was';

GRANT SELECT ON tw.tracking, tw.conflicts TO PUBLIC;

-- ---------------------------------------------------------------------------
-- ALTER DEFAULT PRIVILEGES, of whoever installs, has given others rights on what was made
-- above: those that write would be on the ledger itself, those that read past the views.
-- ---------------------------------------------------------------------------

DO LANGUAGE psm $$
BEGIN
	FOR given AS
		SELECT pg_catalog.format('REVOKE %s ON %s %s FROM %s', a.privilege_type, o.kind, o.name,
				CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC'
					ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END) AS statement
		FROM (SELECT CASE WHEN c.relkind OPERATOR(pg_catalog.=) 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind,
					c.oid::pg_catalog.regclass::pg_catalog.text AS name, c.relowner AS owner, c.relacl AS acl,
					CASE WHEN c.relkind OPERATOR(pg_catalog.=) 'v' THEN 'SELECT' END AS public
				FROM pg_catalog.pg_class c
				WHERE c.relnamespace OPERATOR(pg_catalog.=) 'tw'::pg_catalog.regnamespace
					AND c.relkind OPERATOR(pg_catalog.<>) 'i' AND c.relkind OPERATOR(pg_catalog.<>) 'c'
				UNION ALL
				SELECT 'SCHEMA', 'tw', n.nspowner, n.nspacl, 'USAGE' FROM pg_catalog.pg_namespace n
				WHERE n.nspname OPERATOR(pg_catalog.=) 'tw') o,
			pg_catalog.aclexplode(o.acl) a
		WHERE a.grantee OPERATOR(pg_catalog.<>) o.owner
			AND (a.grantee OPERATOR(pg_catalog.=) 0 AND a.privilege_type OPERATOR(pg_catalog.=) o.public) IS NOT TRUE
	DO
		EXECUTE IMMEDIATE given.statement;
	END FOR;
END $$;
