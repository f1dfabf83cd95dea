-- dry_run: runs the block, reports what it would do, and leaves nothing
CREATE TABLE t (n int PRIMARY KEY);
INSERT INTO t VALUES (1);

SELECT status, job, batch_id, result, rows, jsonb_path_query_array(operations, '$[*].command') AS commands
FROM tw.atomic($$BEGIN
	INSERT INTO t VALUES (2), (3);
	DELETE FROM t WHERE n = 1;
	CREATE TABLE u AS SELECT * FROM t;
	RETURN TABLE SELECT * FROM u;
END$$, dry_run => true);
SELECT * FROM t;
SELECT to_regclass('u');
-- with a batch: no ledger row, and the batch is still to be done
SELECT status, job, batch_id, rows FROM tw.atomic('BEGIN INSERT INTO t VALUES (2); END', '{}', 'dry', '1', dry_run => true);
SELECT count(*) FROM tw.ledger WHERE job = 'dry';
SELECT status, job, batch_id, rows FROM tw.atomic('BEGIN INSERT INTO t VALUES (2); END', '{}', 'dry', '1');
-- ... of one that is done
SELECT status, job, batch_id, rows FROM tw.atomic('BEGIN INSERT INTO t VALUES (2); END', '{}', 'dry', '1', dry_run => true);
SELECT * FROM t ORDER BY n;
-- errors are the block's own, of deferred constraints as well
SELECT tw.atomic('BEGIN INSERT INTO t VALUES (5), (5); END', dry_run => true);
\echo :SQLSTATE
CREATE TABLE d (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
SELECT tw.atomic('BEGIN INSERT INTO d VALUES (5), (5); END', dry_run => true);
\echo :SQLSTATE
-- in a transaction it touches nothing of what was there
BEGIN;
INSERT INTO t VALUES (10);
SAVEPOINT s;
SELECT status, result FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO t VALUES (11);
	SET LOCAL work_mem TO '99MB';
	DELETE FROM t;
	INSERT INTO t VALUES (1), (1);
	RETURN (SELECT jsonb_agg(n) FROM t);
END$$, dry_run => true);
SHOW work_mem;
INSERT INTO t VALUES (12);
COMMIT;
SELECT * FROM t ORDER BY n;

DROP TABLE t, d;
