-- Staged batches: columns that were added with a default while rows were staged, guards
-- over rows without a type, and what a manifest may say
CREATE SCHEMA altered;
SET search_path = altered;
CREATE TABLE t (a int);
CREATE TABLE p (a int NOT NULL) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);

-- Stages rows for b, each load a task and a transaction
CREATE PROCEDURE stage(batch text, targets jsonb, load text, guards text[] DEFAULT '{}', expected int DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
	s text;
BEGIN
	PERFORM tw.open_batch('altered', batch, targets, expected, guards => guards);
	COMMIT;
	SELECT staging INTO s FROM tw.attach_task('altered', batch, 'task 1');
	EXECUTE replace(load, '$S', s);
	PERFORM tw.commit_task();
	COMMIT;
END $$;

-- A row that is stored without a column has the default of the table it was staged in,
-- and not that of the one it goes to
CALL stage('add', '[{"table": "t", "mode": "append"}]', 'INSERT INTO $S VALUES (1)');
SELECT schema AS s FROM tw.staged_batches WHERE batch_id = 'add' \gset
ALTER TABLE t ADD b int, ADD c int DEFAULT 5;
ALTER TABLE :s.t ADD b int DEFAULT 7, ADD c int;
SELECT rows FROM tw.publish('altered', 'add');
TABLE t;

-- The same where whole partitions would be swapped
CALL stage('swap', '[{"table": "p", "mode": "append"}]', 'INSERT INTO $S VALUES (1)');
SELECT schema AS s FROM tw.staged_batches WHERE batch_id = 'swap' \gset
ALTER TABLE p ADD b int;
ALTER TABLE :s.p ADD b int DEFAULT 7;
SELECT operations -> 0 ->> 'command' AS command FROM tw.publish('altered', 'swap');
TABLE p;
DELETE FROM p;
VACUUM p;
CALL stage('swap 2', '[{"table": "p", "mode": "append"}]', 'INSERT INTO $S VALUES (2, 2)');
SELECT schema AS s FROM tw.staged_batches WHERE batch_id = 'swap 2' \gset
ALTER TABLE p ADD c int DEFAULT 5;
ALTER TABLE :s.p ADD c int;
SELECT operations -> 0 ->> 'command' AS command FROM tw.publish('altered', 'swap 2');
TABLE p;

-- A guard's digest is the same in every session, also of rows that have no type of their own
CALL stage('guard', '[{"table": "t", "mode": "append"}]', 'INSERT INTO $S VALUES (2)',
	'{"SELECT (a, b) FROM altered.t", "SELECT array_agg((a, (b, c))) FROM altered.t"}');
\c
SET search_path = altered;
SELECT ROW(1), ROW(1, 2), ROW(1, 2, 3), ROW(1, 2, 3, 4);
SELECT rows FROM tw.publish('altered', 'guard');
CALL stage('guard 2', '[{"table": "t", "mode": "append"}]', 'INSERT INTO $S VALUES (3)',
	'{"SELECT array_agg((a, (b, c))) FROM altered.t"}');
UPDATE t SET c = 6 WHERE a = 1;
SELECT tw.publish('altered', 'guard 2');
\echo :SQLSTATE
SELECT tw.abort_batch('altered', 'guard 2');

-- Very many tasks are expected: the missing ones are not looked for by their names
CALL stage('many', '[{"table": "t", "mode": "append"}]', 'SELECT', expected => 2147483647);
SELECT tw.publish('altered', 'many');
SELECT tw.abort_batch('altered', 'many');

-- Tasks that another server has run, before a dump and a restore, are of the past
CALL stage('restored', '[{"table": "t", "mode": "append"}]', 'INSERT INTO $S VALUES (4)');
UPDATE tw.stage_task SET xid = '4000000000000' WHERE task = 'task 1';
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT rows FROM tw.publish('altered', 'restored');
COMMIT;

\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA altered CASCADE;
