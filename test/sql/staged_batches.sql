-- Staged batches: their life, and every error on the way
CREATE SCHEMA life;
SET search_path = life;
\set SHOW_CONTEXT never
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE u (id int, t int REFERENCES t);
\set targets '\'[{"table": "t", "mode": "merge"}, {"table": "u", "mode": "append"}]\''

-- One task after the other
SELECT status, job, batch_id, epoch, schema = 'tw_batch_' || last_value AS schema, tasks, expected_tasks,
	expires_at - now() BETWEEN '23:59:50' AND '24:00:10' AS a_day
FROM tw.open_batch('life', 'b1', :targets, 3), tw.stage_number;
SELECT 'tw_batch_' || last_value AS s FROM tw.stage_number \gset
BEGIN;
SELECT target, staging::text = :'s' || '.' || target AS staging, status FROM tw.attach_task('life', 'b1', 'part-0');
INSERT INTO :s.t VALUES (1, 'one'), (2, 'two');
COPY :s.u FROM stdin;
10	1
20	2
\.
SELECT tw.commit_task('{"file": "part-0.csv"}');
COMMIT;
SELECT job, batch_id, schema = :'s' AS schema, tasks, expected_tasks, rows, bytes > 0 AS bytes, age < '1 min' AS age, logged FROM tw.staged_batches;
SELECT job, batch_id, task, rows, message, role FROM tw.staged_tasks;
TABLE :s.t;
SELECT count(*) FROM t;

-- The same task again
BEGIN;
SELECT target, status FROM tw.attach_task('life', 'b1', 'part-0');
SELECT tw.commit_task();
ROLLBACK;
-- One that rolls back leaves nothing
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b1', 'part-1');
INSERT INTO :s.t VALUES (3, 'three');
SELECT tw.commit_task();
ROLLBACK;
SELECT count(*) FROM :s.t;
SELECT task FROM tw.staged_tasks;
-- Savepoints: what was rolled back does not count
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b1', 'part-1');
SAVEPOINT a;
INSERT INTO :s.t VALUES (100, 'no');
ROLLBACK TO a;
INSERT INTO :s.t VALUES (3, 'three'), (4, 'four'), (5, 'five');
RELEASE a;
DELETE FROM :s.t WHERE id = 5;
UPDATE :s.t SET v = 'THREE' WHERE id = 3;
SAVEPOINT b;
SELECT tw.commit_task();
ROLLBACK TO b;
SELECT tw.commit_task();
-- Nothing after it
INSERT INTO :s.t VALUES (6, 'six');
ROLLBACK TO b;
SELECT tw.commit_task();
COMMIT;
SELECT task, rows FROM tw.staged_tasks;

-- Rows without a task, of another task, all rows
INSERT INTO :s.t VALUES (7, 'seven');
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b1', 'part-2');
UPDATE :s.t SET v = 'x';
ROLLBACK;
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b1', 'part-2');
DELETE FROM :s.t;
ROLLBACK;
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b1', 'part-2');
TRUNCATE :s.t;
ROLLBACK;
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b1', 'part-2');
INSERT INTO :s.t VALUES (7, 'seven');
COMMIT;
SELECT tw.commit_task();
-- Attached and left alone is nothing
SELECT count(*) FROM tw.attach_task('life', 'b1', 'part-2');
SELECT task FROM tw.staged_tasks;

-- A star calls the function once for each column
SELECT (tw.open_batch('life', 'star', :targets)).*;
-- Claimed by the same transaction for something else: that is not published
BEGIN;
SELECT status FROM tw.begin_batch('life', 'mixed');
SELECT status FROM tw.open_batch('life', 'mixed', :targets);
ROLLBACK;
-- Not complete yet: which is missing?
SELECT tw.publish('life', 'b1');
\echo :SQLSTATE
-- A batch without a row in a task
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b1', 'part-2');
SELECT tw.commit_task();
COMMIT;
-- In an aborted transaction
BEGIN;
SELECT 1 / 0;
SELECT tw.publish('life', 'b1');
ROLLBACK;
-- The audit: it sees what is staged, refuses, and may not write
SELECT tw.publish('life', 'b1', audit => $$
BEGIN ATOMIC
	DECLARE n bigint;
	SELECT count(*) INTO n FROM t;
	IF n > 3 THEN
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = n || ' rows are too many';
	END IF;
END$$);
\echo :SQLSTATE
-- not a temporary table of that name
CREATE TEMP TABLE t (id int);
SELECT tw.publish('life', 'b1', audit => $$
BEGIN ATOMIC
	IF (SELECT count(*) FROM t) > 3 THEN
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'too many as well';
	END IF;
END$$);
DROP TABLE pg_temp.t;
SELECT tw.publish('life', 'b1', audit => 'BEGIN ATOMIC DELETE FROM t; END');
SELECT tw.publish('life', 'b1', audit => 'BEGIN ATOMIC INSERT INTO life.u VALUES (1, 1); END');
SELECT tw.publish('life', 'b1', audit => 'BEGIN ATOMIC SELECT; nonsense; END');
SELECT tasks FROM tw.staged_batches;
SELECT count(*) FROM t;
SHOW search_path;
SHOW transaction_read_only;

-- Published once, together with other work of the transaction
BEGIN;
INSERT INTO t VALUES (0, 'by hand');
SELECT status, job, batch_id, epoch, result, rows, operations, attempts FROM tw.publish('life', 'b1',
	audit => 'BEGIN ATOMIC IF NOT EXISTS (SELECT FROM t WHERE v = ''THREE'') THEN SIGNAL SQLSTATE ''45000''; END IF; END');
COMMIT;
TABLE t ORDER BY id;
TABLE u ORDER BY id;
SELECT status, rows FROM tw.publish('life', 'b1');
SELECT status, schema, tasks FROM tw.open_batch('life', 'b1', :targets);
SELECT tw.open_batch('life', 'b1', '[{"table": "t", "mode": "append"}]');
SELECT tw.attach_task('life', 'b1', 'part-9');
\echo :SQLSTATE
SELECT tw.abort_batch('life', 'b1');
SELECT count(*) FROM tw.staged_batches;
SELECT to_regnamespace(:'s') IS NULL AS gone;

-- A batch that was never opened; a job there is not
SELECT tw.publish('life', 'b2');
\echo :SQLSTATE
SELECT tw.attach_task('life', 'b2', '0');
SELECT tw.abort_batch('life', 'b2');
SELECT tw.publish('no such job', 'b2');
SELECT tw.attach_task('life', 'b2', '');
SELECT tw.attach_task('life', 'b2', repeat('x', 256));
SELECT tw.attach_task('life', 'b2', NULL);
SELECT tw.open_batch('life', 'b2', :targets, -1);
SELECT tw.open_batch('life', 'b2', :targets, timeout => '-1 s');
SELECT tw.open_batch('life', 'b2', :targets, guards => '{NULL}');
SELECT tw.open_batch('life', 'b2', :targets, guards => '{DELETE FROM t}');

-- Taken over by a newer writer, with what is committed
SELECT tw.init_producer('life') AS first \gset
SELECT status, epoch = :first AS epoch FROM tw.open_batch('life', 'b3', :targets, 2, :first);
SELECT 'tw_batch_' || last_value AS s FROM tw.stage_number \gset
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b3', '1', :first);
INSERT INTO :s.t VALUES (31, 'first');
SELECT tw.commit_task();
COMMIT;
SELECT tw.open_batch('life', 'b3', :targets, 2);
\echo :SQLSTATE
SELECT tw.open_batch('life', 'b3', :targets, 2, :first);
SELECT tw.init_producer('life') AS second \gset
SELECT (tw.open_batch('life', 'b3', :targets, 2, :second)).*; -- taken over, and again, once a column
SELECT tw.open_batch('life', 'b3', :targets, 2, :first);
\echo :SQLSTATE
SELECT tw.publish('life', 'b3');
\echo :SQLSTATE
SELECT tw.attach_task('life', 'b3', '2', :second);
SELECT tw.open_batch('life', 'b3', '[{"table": "t", "mode": "append"}]', 2, :second);
\echo :SQLSTATE
SELECT status, epoch = :second AS epoch, tasks FROM tw.open_batch('life', 'b3', :targets, 2, :second);
SELECT tw.attach_task('life', 'b3', '2', :first);
SELECT tw.publish('life', 'b3', :first);
SELECT tw.abort_batch('life', 'b3', :first);
SELECT tw.publish('life', 'b3', :second);
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b3', '2', :second);
INSERT INTO :s.t VALUES (32, 'second');
SELECT tw.commit_task();
COMMIT;
SELECT status, epoch = :second AS epoch, result FROM tw.publish('life', 'b3', :second);
SELECT * FROM t WHERE id > 30 ORDER BY id;

-- More tasks than expected; names that cannot be told
SELECT status FROM tw.open_batch('life', 'b4', :targets, 3);
DO $$
DECLARE
	task text;
BEGIN
	FOREACH task IN ARRAY ARRAY['eu', '07'] LOOP
		PERFORM tw.attach_task('life', 'b4', task);
		PERFORM tw.commit_task();
	END LOOP;
END $$;
SELECT tw.publish('life', 'b4');
DO $$
DECLARE
	task text;
BEGIN
	FOREACH task IN ARRAY ARRAY['us', 'x'] LOOP
		PERFORM tw.attach_task('life', 'b4', task);
		PERFORM tw.commit_task();
	END LOOP;
END $$;
SELECT tw.publish('life', 'b4');
\echo :SQLSTATE
SELECT tw.abort_batch('life', 'b4', reason => 'a task too many');
SELECT action, batch_id, reason FROM tw.audit_log WHERE job = 'life';
-- and open again
SELECT status FROM tw.open_batch('life', 'b4', :targets);
SELECT status, result, rows FROM tw.publish('life', 'b4');

-- Expired
SELECT status FROM tw.open_batch('life', 'b5', :targets, timeout => '0');
SELECT status FROM tw.open_batch('life', 'b6', :targets);
SELECT tw.expire_batches();
SELECT batch_id FROM tw.staged_batches;
SELECT action, batch_id, reason FROM tw.audit_log WHERE job = 'life' AND action = 'expire_batch';
SELECT tw.publish('life', 'b5');
SELECT tw.abort_batch('life', 'b6');
SET transactional_writer.batch_timeout = '1 h';
SELECT expires_at - now() BETWEEN '59 min' AND '61 min' AS an_hour FROM tw.open_batch('life', 'b6', :targets);
RESET transactional_writer.batch_timeout;
SELECT tw.abort_batch('life', 'b6');

-- Guards
CREATE TABLE rate (currency text, value numeric);
INSERT INTO rate VALUES ('EUR', 1), ('USD', 1.1);
SELECT status FROM tw.open_batch('life', 'b7', :targets, guards => ARRAY['SELECT max(id) FROM t', 'SELECT * FROM rate']);
UPDATE rate SET value = value;
INSERT INTO rate VALUES ('CHF', 2);
SELECT tw.publish('life', 'b7');
\echo :SQLSTATE
DELETE FROM rate WHERE currency = 'CHF';
SELECT status FROM tw.publish('life', 'b7');

-- Targets and staging tables that were changed meanwhile
SELECT status FROM tw.open_batch('life', 'b8', :targets);
SELECT 'tw_batch_' || last_value AS s FROM tw.stage_number \gset
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b8', '1');
INSERT INTO :s.t VALUES (81, 'eight');
SELECT tw.commit_task();
COMMIT;
ALTER TABLE t RENAME TO renamed;
ALTER TABLE renamed ADD COLUMN more int;
-- messages that name the schema of the batch
\set VERBOSITY terse
SELECT tw.publish('life', 'b8');
\echo :SQLSTATE
ALTER TABLE renamed DROP COLUMN more;
ALTER TABLE renamed ALTER v TYPE varchar(10);
SELECT tw.publish('life', 'b8');
ALTER TABLE :s.t ALTER v TYPE varchar(10);
ALTER TABLE :s.t DISABLE TRIGGER ALL;
DELETE FROM :s.t;
ALTER TABLE :s.t ENABLE TRIGGER ALL;
SELECT tw.publish('life', 'b8');
\echo :SQLSTATE
\set VERBOSITY default
DROP TABLE :s.u;
SELECT tw.publish('life', 'b8');
SELECT tw.attach_task('life', 'b8', 'new');
DROP TABLE u;
SELECT tw.publish('life', 'b8');
ALTER TABLE renamed DROP CONSTRAINT t_pkey;
SELECT tw.publish('life', 'b8');
SELECT tw.abort_batch('life', 'b8');

-- Rows are counted by looking where the server counts none; and those of an append are counted again
CREATE TABLE plain (v int);
SELECT status FROM tw.open_batch('life', 'b10', '[{"table": "plain", "mode": "append"}]');
SELECT 'tw_batch_' || last_value AS s FROM tw.stage_number \gset
SET track_counts = off;
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b10', '1');
SAVEPOINT a;
INSERT INTO :s.plain VALUES (0);
ROLLBACK TO a;
INSERT INTO :s.plain SELECT generate_series(1, 5);
DELETE FROM :s.plain WHERE v = 5;
SELECT tw.commit_task();
COMMIT;
BEGIN;
SELECT count(*) FROM tw.attach_task('life', 'b10', '2');
INSERT INTO :s.plain VALUES (6);
SELECT tw.commit_task();
COMMIT;
RESET track_counts;
SELECT task, rows FROM tw.staged_tasks;
ALTER TABLE :s.plain DISABLE TRIGGER ALL;
DELETE FROM :s.plain WHERE v = 1;
ALTER TABLE :s.plain ENABLE TRIGGER ALL;
\set VERBOSITY sqlstate
SELECT tw.publish('life', 'b10');
\set VERBOSITY default
SELECT count(*) FROM plain;
SELECT tw.abort_batch('life', 'b10');

-- Nowhere else
BEGIN READ ONLY;
SELECT tw.open_batch('life', 'b9', '[{"table": "rate", "mode": "append"}]');
ROLLBACK;
-- All of it in one transaction, at every isolation level
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT status FROM tw.open_batch('life', 'b9', '[{"table": "rate", "mode": "append"}]', logged => true);
DO $$
BEGIN
	EXECUTE format('INSERT INTO %s VALUES (%L, 3)', staging, 'GBP') FROM tw.attach_task('life', 'b9', 'only');
	PERFORM tw.commit_task();
END $$;
SELECT status, rows FROM tw.publish('life', 'b9');
COMMIT;
SELECT * FROM rate WHERE currency = 'GBP';

-- A thousand tasks
SELECT status FROM tw.open_batch('life', 'many', '[{"table": "rate", "mode": "append"}]', 1000);
DO $$
BEGIN
	FOR i IN 0 .. 998 LOOP
		EXECUTE format('INSERT INTO %s VALUES (%L, %s)', staging, 'X', i) FROM tw.attach_task('life', 'many', i::text);
		PERFORM tw.commit_task();
	END LOOP;
END $$;
SELECT tw.publish('life', 'many');
DO $$
BEGIN
	EXECUTE format('INSERT INTO %s VALUES (%L, %s)', staging, 'X', 999) FROM tw.attach_task('life', 'many', '999');
	PERFORM tw.commit_task();
END $$;
SELECT status, result, rows FROM tw.publish('life', 'many');
SELECT count(*), sum(value) FROM rate WHERE currency = 'X';

SELECT count(*) FROM tw.stage_task;
SELECT count(*) FROM tw.stage_alive;
SELECT count(*) FROM tw.stage_target;
SELECT count(*) FROM tw.stage_leftover;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA life CASCADE;
