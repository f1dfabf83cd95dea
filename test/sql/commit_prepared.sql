-- CALL tw.commit_prepared and tw.abort_prepared: however often, by whom, of what
SELECT current_setting('max_prepared_transactions') = '0' AS disabled \gset
\if :disabled
\quit
\endif
CREATE TABLE resolved (batch text);
GRANT ALL ON resolved TO PUBLIC;
SELECT tw.create_job('resolve') \g /dev/null
BEGIN;
SELECT status FROM tw.begin_batch('resolve', 'commit');
INSERT INTO resolved VALUES ('commit');
SELECT tw.prepare_batch('resolve', 'commit') AS gid \gset
PREPARE TRANSACTION :'gid';
CALL tw.commit_prepared(:'gid');
CALL tw.commit_prepared(:'gid');
CALL tw.commit_prepared(:'gid', 'whatever');
-- it cannot be aborted any more: said aloud
BEGIN;
SELECT status FROM tw.begin_batch('resolve', 'too late');
PREPARE TRANSACTION 'resolve too late';
CALL tw.commit_prepared('resolve too late');
CALL tw.abort_prepared('resolve too late', 'changed my mind');
-- a gid that somebody uses again for something else is not the batch's
BEGIN;
INSERT INTO resolved VALUES ('something else');
PREPARE TRANSACTION 'resolve too late';
SELECT batch_id FROM tw.in_doubt WHERE gid = 'resolve too late';
CALL tw.commit_prepared('resolve too late');
\echo :SQLSTATE
ROLLBACK PREPARED 'resolve too late';
-- rolled back: unknown from then on, to both
BEGIN;
SELECT status FROM tw.begin_batch('resolve', 'abort');
INSERT INTO resolved VALUES ('abort');
PREPARE TRANSACTION 'resolve abort';
CALL tw.abort_prepared('resolve abort', 'not in the checkpoint');
CALL tw.abort_prepared('resolve abort', 'not in the checkpoint');
\echo :SQLSTATE
CALL tw.commit_prepared('resolve abort');
\echo :SQLSTATE
SELECT role = current_user AS me, action, job, batch_id, reason FROM tw.audit_log WHERE job = 'resolve';
SELECT * FROM resolved;
-- by SQL's own statements
BEGIN;
SELECT status FROM tw.begin_batch('resolve', 'abort');
PREPARE TRANSACTION 'resolve abort';
ROLLBACK PREPARED 'resolve abort';
CALL tw.commit_prepared('resolve abort');
-- not prepared yet
BEGIN;
SELECT status FROM tw.begin_batch('resolve', 'running');
SELECT tw.prepare_batch('resolve', 'running') AS gid \gset
CALL tw.commit_prepared(:'gid');
\echo :SQLSTATE
ROLLBACK;
-- where it cannot run
BEGIN;
SELECT status FROM tw.begin_batch('resolve', 'where');
PREPARE TRANSACTION 'resolve where';
BEGIN;
CALL tw.commit_prepared('resolve where');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
CALL tw.abort_prepared('resolve where', 'why');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
CALL tw.recover('resolve', 1);
\echo :SQLSTATE
ROLLBACK;
CREATE FUNCTION resolve_in_function() RETURNS void LANGUAGE plpgsql AS
	$$DECLARE status text; BEGIN CALL tw.commit_prepared('resolve where', status); END$$;
SELECT resolve_in_function();
\echo :SQLSTATE
SET default_transaction_read_only = on;
CALL tw.commit_prepared('resolve where');
\echo :SQLSTATE
RESET default_transaction_read_only;
-- in a procedure it commits what came before, as COMMIT would
DO $$
DECLARE
	status text;
BEGIN
	INSERT INTO resolved VALUES ('before');
	CALL tw.commit_prepared('resolve where', status);
	RAISE NOTICE '%', status;
	INSERT INTO resolved VALUES ('after');
	ROLLBACK;
END $$;
SELECT * FROM resolved;
-- arguments
CALL tw.commit_prepared(NULL);
\echo :SQLSTATE
CALL tw.commit_prepared('');
CALL tw.abort_prepared('resolve where', '');
\echo :SQLSTATE
CALL tw.commit_prepared(repeat('never heard of ', 1000));
CALL tw.commit_prepared('never heard of');
\echo :SQLSTATE
-- one that holds no batch is not ours to end
BEGIN;
PREPARE TRANSACTION 'resolve bare';
CALL tw.commit_prepared('resolve bare');
\echo :SQLSTATE
CALL tw.abort_prepared('resolve bare', 'why');
\echo :SQLSTATE
ROLLBACK PREPARED 'resolve bare';

-- whose it is: the job's owner and the role that prepared it
CREATE ROLE regress_sink;
CREATE ROLE regress_sink_member LOGIN IN ROLE regress_sink;
CREATE ROLE regress_sink_stranger;
SET SESSION AUTHORIZATION regress_sink_member;
SET ROLE regress_sink;
SELECT tw.create_job('theirs') \g /dev/null
BEGIN;
SELECT status FROM tw.begin_batch('theirs', 'by owner');
PREPARE TRANSACTION 'resolve by owner';
RESET ROLE;
BEGIN;
SELECT status FROM tw.begin_batch('theirs', 'by member');
PREPARE TRANSACTION 'resolve by member';
SELECT batch_id, owner, prepared_by FROM tw.in_doubt ORDER BY batch_id;
-- a member of the owning role, but not who prepared it
CALL tw.commit_prepared('resolve by owner');
\echo :SQLSTATE
SET ROLE regress_sink;
CALL tw.commit_prepared('resolve by owner');
CALL tw.abort_prepared('resolve by member', 'why');
\echo :SQLSTATE
RESET SESSION AUTHORIZATION;
SET ROLE regress_sink_stranger;
SELECT count(*) FROM tw.in_doubt;
CALL tw.commit_prepared('resolve by member');
\echo :SQLSTATE
CALL tw.commit_prepared('resolve by owner');
\echo :SQLSTATE
CALL tw.abort_prepared('resolve by member', 'why');
\echo :SQLSTATE
CALL tw.recover('theirs', 0);
\echo :SQLSTATE
SELECT * FROM tw.prepared;
\echo :SQLSTATE
RESET ROLE;
GRANT pg_monitor TO regress_sink_stranger;
SET ROLE regress_sink_stranger;
SELECT batch_id, owner, prepared_by FROM tw.in_doubt;
RESET ROLE;
-- who may no longer use the job
REVOKE regress_sink FROM regress_sink_member;
SET ROLE regress_sink_member;
CALL tw.commit_prepared('resolve by member');
\echo :SQLSTATE
RESET ROLE;
CALL tw.commit_prepared('resolve by member');

-- another database
SELECT current_database() AS here \gset
CREATE DATABASE regress_sink_other TEMPLATE template0;
\c regress_sink_other
CREATE EXTENSION transactional_writer;
SELECT tw.create_job('elsewhere') \g /dev/null
BEGIN;
SELECT status FROM tw.begin_batch('elsewhere', 'b');
PREPARE TRANSACTION 'resolve elsewhere';
\c :here
CALL tw.commit_prepared('resolve elsewhere');
\echo :SQLSTATE
CALL tw.abort_prepared('resolve elsewhere', 'why');
\echo :SQLSTATE
SELECT count(*) FROM tw.in_doubt;
SELECT tw.create_job('elsewhere') \g /dev/null
SELECT tw.init_producer('elsewhere') AS epoch;
CALL tw.recover('elsewhere', 1);
\c regress_sink_other
CALL tw.commit_prepared('resolve elsewhere');
\c :here
DROP DATABASE regress_sink_other;

-- a job that somebody has deleted: the batch cannot be committed any more, but aborted
SELECT tw.create_job('deleted') \g /dev/null
BEGIN;
SELECT status FROM tw.begin_batch('deleted', 'b');
PREPARE TRANSACTION 'resolve deleted';
DELETE FROM tw.job WHERE job = 'deleted';
SELECT job, owner, fenced, gid FROM tw.in_doubt;
CALL tw.commit_prepared('resolve deleted');
\echo :SQLSTATE
CALL tw.recover('deleted', 1);
\echo :SQLSTATE
CALL tw.abort_prepared('resolve deleted', 'its job is gone');
SELECT count(*) FROM tw.in_doubt;
-- overdue
BEGIN;
SELECT status FROM tw.begin_batch('resolve', 'overdue');
PREPARE TRANSACTION 'resolve overdue';
SET transactional_writer.prepared_timeout = '1s';
SELECT overdue FROM tw.in_doubt;
SELECT pg_sleep(1.1) \g /dev/null
SELECT overdue FROM tw.in_doubt;
SET transactional_writer.prepared_timeout = 0;
SELECT overdue FROM tw.in_doubt;
RESET transactional_writer.prepared_timeout;
CALL tw.abort_prepared('resolve overdue', 'why');
-- by a serializable transaction, of one: neither counts as running any longer, and what has been read
-- since is let go of
SET default_transaction_isolation = serializable;
BEGIN;
SELECT status FROM tw.begin_batch('resolve', 'serializable');
SELECT count(*) > 0 AS some FROM resolved;
PREPARE TRANSACTION 'resolve serializable';
CALL tw.commit_prepared('resolve serializable');
BEGIN;
SELECT count(*) > 0 AS some FROM resolved;
INSERT INTO resolved VALUES ('serializable');
COMMIT;
RESET default_transaction_isolation;
SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND relation = 'resolved'::regclass;
DELETE FROM tw.batch WHERE job = 'theirs';
DELETE FROM tw.prepared WHERE job = 'theirs';
DELETE FROM tw.audit WHERE job = 'theirs';
DELETE FROM tw.job WHERE job = 'theirs';
DROP TABLE resolved;
DROP FUNCTION resolve_in_function;
DROP ROLE regress_sink, regress_sink_member, regress_sink_stranger;
-- rows of a task that was not committed cannot be prepared either
CREATE TABLE resolved_rows (v int);
SELECT schema AS s FROM tw.open_batch('resolve', 'staged', '[{"table": "resolved_rows", "mode": "append"}]') \gset
BEGIN;
SELECT count(*) FROM tw.attach_task('resolve', 'staged', 'task');
INSERT INTO :s.resolved_rows VALUES (1);
PREPARE TRANSACTION 'resolve task';
SELECT count(*) FROM pg_prepared_xacts;
SELECT tw.abort_batch('resolve', 'staged') \g /dev/null
DROP TABLE resolved_rows;
