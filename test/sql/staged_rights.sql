-- Staged batches: whose rights what runs with
CREATE ROLE stage_etl NOLOGIN;
CREATE ROLE stage_loader NOLOGIN;
CREATE ROLE stage_other NOLOGIN;
GRANT stage_etl TO stage_loader;
CREATE SCHEMA rights;
GRANT USAGE ON SCHEMA rights TO PUBLIC;
SET search_path = rights;
\set SHOW_CONTEXT never
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE hidden (id int PRIMARY KEY, v text);
CREATE TABLE keyless (v int);
GRANT SELECT, INSERT ON t, keyless TO stage_etl;

-- The driver needs rights on the targets, no more
SET ROLE stage_etl;
SELECT tw.open_batch('rights', 'b1', '[{"table": "t", "mode": "merge"}]');
SELECT tw.open_batch('rights', 'b1', '[{"table": "hidden", "mode": "append"}]');
SELECT tw.open_batch('rights', 'b1', '[{"table": "t", "mode": "overwrite"}]');
SELECT tw.open_batch('rights', 'b1', '[{"table": "keyless", "mode": "overwrite"}]');
SELECT status FROM tw.open_batch('rights', 'b1', '[{"table": "t", "mode": "insert_new"}]');
RESET ROLE;
SELECT 'tw_batch_' || last_value AS s FROM tw.stage_number \gset
SELECT nspowner::regrole, relowner::regrole FROM pg_namespace n JOIN pg_class c ON relnamespace = n.oid WHERE nspname = :'s';

-- also what a member of the owner opens
SET ROLE stage_loader;
SELECT status FROM tw.open_batch('rights', 'b0', '[{"table": "t", "mode": "insert_new"}]', timeout => '0');
RESET ROLE;
SELECT nspowner::regrole, relowner::regrole FROM tw.stage_number, pg_namespace n JOIN pg_class c ON relnamespace = n.oid
WHERE nspname = 'tw_batch_' || last_value;

-- Members of the job's owner load; others see nothing
SET ROLE stage_loader;
BEGIN;
SELECT target, status FROM tw.attach_task('rights', 'b1', '1');
INSERT INTO :s.t VALUES (1, 'one');
SELECT tw.commit_task();
COMMIT;
SELECT batch_id, tasks, rows FROM tw.staged_batches ORDER BY batch_id;
SET ROLE stage_other;
SELECT count(*) FROM tw.staged_batches;
SELECT count(*) FROM tw.staged_tasks;
SELECT tw.attach_task('rights', 'b1', '2');
SELECT tw.publish('rights', 'b1');
SELECT tw.abort_batch('rights', 'b1');
SELECT tw.expire_batches();
SET ROLE stage_loader;
SELECT tw.expire_batches();
SET ROLE stage_other;
SELECT * FROM tw.stage;
\set VERBOSITY sqlstate
TABLE :s.t;
\set VERBOSITY default
SELECT tw.open_batch('rights', 'b2', '[{"table": "t", "mode": "append"}]');

-- The audit and the statements run as who publishes
RESET ROLE;
REVOKE INSERT ON t FROM stage_etl;
SET ROLE stage_etl;
SELECT tw.publish('rights', 'b1');
RESET ROLE;
GRANT INSERT ON t TO stage_etl;
SET ROLE stage_etl;
SELECT tw.publish('rights', 'b1', audit => 'BEGIN ATOMIC SELECT * FROM rights.hidden; END');
SELECT status, rows FROM tw.publish('rights', 'b1',
	audit => 'BEGIN ATOMIC IF current_user <> ''stage_etl'' THEN SIGNAL SQLSTATE ''45000''; END IF; END');
RESET ROLE;

-- A default of somebody else's runs as who loads, never with more
CREATE TABLE whoami (id int PRIMARY KEY, who text DEFAULT current_user);
GRANT INSERT, SELECT ON whoami TO stage_etl;
SET ROLE stage_etl;
SELECT status FROM tw.open_batch('rights', 'b3', '[{"table": "whoami", "mode": "append"}]');
RESET ROLE;
SELECT 'tw_batch_' || last_value AS s FROM tw.stage_number \gset
SET ROLE stage_loader;
BEGIN;
SELECT count(*) FROM tw.attach_task('rights', 'b3', '1');
INSERT INTO :s.whoami VALUES (1);
SELECT tw.commit_task();
COMMIT;
SET ROLE stage_etl;
SELECT status FROM tw.publish('rights', 'b3');
RESET ROLE;
TABLE whoami;

-- What stands in the search_path before pg_catalog changes nothing
CREATE FUNCTION rights.mine(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR rights.= (LEFTARG = int, RIGHTARG = int, FUNCTION = rights.mine);
CREATE FUNCTION rights.count() RETURNS bigint LANGUAGE sql AS 'SELECT 99::bigint';
SET search_path = rights, pg_catalog;
INSERT INTO t VALUES (2, 'two');
SELECT status FROM tw.open_batch('rights2', 'b1', '[{"table": "t", "mode": "merge"}]');
DO $$
BEGIN
	EXECUTE format('INSERT INTO %s VALUES (2, %L), (3, %L)', staging, 'zwei', 'drei') FROM tw.attach_task('rights2', 'b1', '1');
	PERFORM tw.commit_task();
END $$;
SELECT status, rows FROM tw.publish('rights2', 'b1');
SELECT * FROM t ORDER BY id;

-- Row security is the publisher's
SET search_path = rights;
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON t TO stage_etl USING (id < 100) WITH CHECK (id < 100);
SET ROLE stage_etl;
SELECT status FROM tw.open_batch('rights', 'b4', '[{"table": "t", "mode": "append"}]');
DO $$
BEGIN
	EXECUTE format('INSERT INTO %s VALUES (100, %L)', staging, 'too much') FROM tw.attach_task('rights', 'b4', '1');
	PERFORM tw.commit_task();
END $$;
SELECT tw.publish('rights', 'b4');
SELECT tw.abort_batch('rights', 'b4');
RESET ROLE;

-- A job that is given away takes its staging along
GRANT stage_other TO stage_etl;
SET ROLE stage_etl;
SELECT status FROM tw.open_batch('rights', 'b6', '[{"table": "whoami", "mode": "append"}]');
SELECT tw.reassign_job('rights', 'stage_other');
RESET ROLE;
REVOKE stage_other FROM stage_etl;
GRANT INSERT ON whoami TO stage_other;
SET ROLE stage_other;
DO $$
BEGIN
	EXECUTE format('INSERT INTO %s VALUES (6)', staging) FROM tw.attach_task('rights', 'b6', '1');
	PERFORM tw.commit_task();
END $$;
SELECT status, rows FROM tw.publish('rights', 'b6');
RESET ROLE;
SELECT * FROM whoami WHERE id = 6;

-- A schema of that name that is somebody's is left alone
SELECT 'tw_batch_' || last_value + 1 AS next FROM tw.stage_number \gset
CREATE SCHEMA :next;
SELECT status, schema = :'next' AS taken FROM tw.open_batch('rights', 'b5', '[{"table": "t", "mode": "append"}]');
SELECT tw.abort_batch('rights', 'b5');
DROP SCHEMA :next;

SET client_min_messages = warning;
RESET search_path;
DROP SCHEMA rights CASCADE;
DROP OWNED BY stage_etl, stage_loader, stage_other;
DROP ROLE stage_loader, stage_other, stage_etl;
