-- tw.forget_batch: a batch may run again, and the log says why
CREATE VIEW forget_log AS
	SELECT role = current_user AS by_us, at <= clock_timestamp() AS at, action, job, batch_id, reason
	FROM tw.audit_log WHERE job = 'forget' ORDER BY audit_log.at, action DESC;
BEGIN;
SELECT status FROM tw.begin_batch('forget', 'b', 'fp');
SELECT status FROM tw.finish_batch('1');
COMMIT;
SELECT tw.forget_batch('forget', 'b', 'wrong file');
SELECT count(*) FROM tw.ledger WHERE job = 'forget';
SELECT * FROM forget_log;
-- all of it is gone: another payload may take the key
BEGIN;
SELECT status, result FROM tw.begin_batch('forget', 'b', 'other');
SELECT status FROM tw.finish_batch('2');
COMMIT;
SELECT status, result FROM tw.begin_batch('forget', 'b', 'other');

-- forgotten and run again in one transaction
BEGIN;
SELECT tw.forget_batch('forget', 'b', 'once more');
SELECT status FROM tw.begin_batch('forget', 'b', 'third');
SELECT status FROM tw.finish_batch('3');
COMMIT;
SELECT status, result FROM tw.begin_batch('forget', 'b', 'third');
-- rolled back: nothing is forgotten, nothing logged
BEGIN;
SELECT tw.forget_batch('forget', 'b', 'a mistake');
ROLLBACK;
SELECT status, result FROM tw.begin_batch('forget', 'b', 'third');
SELECT * FROM forget_log;

-- not there
SELECT tw.forget_batch('forget', 'nope', 'why');
\echo :SQLSTATE
SELECT tw.forget_batch('forget no such job', 'b', 'why');
\echo :SQLSTATE
BEGIN;
SELECT status FROM tw.begin_batch('forget', 'running');
SELECT tw.forget_batch('forget', 'running', 'why');
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT tw.forget_batch('forget', 'b', 'why');
ROLLBACK;

-- a version below the highest is let through, once for each time
SELECT status FROM tw.begin_batch('forget', 'v1', version => 1);
SELECT status FROM tw.begin_batch('forget', 'v2', version => 2);
SELECT tw.forget_batch('forget', 'v1', 'half a file');
BEGIN;
SELECT status FROM tw.begin_batch('forget', 'v1', version => 1);
ROLLBACK;
SELECT status FROM tw.begin_batch('forget', 'v1', version => 1);
SELECT status FROM tw.begin_batch('forget', 'v1', version => 1);
SELECT tw.prune_ledger('forget', '0');
SELECT tw.begin_batch('forget', 'v1', version => 1);
\echo :SQLSTATE
SELECT * FROM forget_log WHERE batch_id = 'v1';
-- one that runs again without need for leave does not keep it for later
SELECT status FROM tw.begin_batch('forget', 'v3', version => 3);
SELECT tw.forget_batch('forget', 'v3', 'the last one');
SELECT status FROM tw.begin_batch('forget', 'v3', version => 3);
SELECT status FROM tw.begin_batch('forget', 'v4', version => 4);
SELECT tw.prune_ledger('forget', '0');
SELECT tw.begin_batch('forget', 'v3', version => 3);
\echo :SQLSTATE
SELECT status FROM tw.begin_batch('forget', 'v5', version => 5);
SELECT tw.forget_batch('forget', 'v5', 'first');
SELECT status FROM tw.begin_batch('forget', 'v5', version => 5);
SELECT tw.forget_batch('forget', 'v5', 'second');
SELECT status FROM tw.begin_batch('forget', 'v6', version => 6);
SELECT status FROM tw.begin_batch('forget', 'v5', version => 5);
SELECT tw.prune_ledger('forget', '0');
SELECT tw.begin_batch('forget', 'v5', version => 5);
SELECT batch_id, action, reason FROM forget_log WHERE batch_id IN ('v3', 'v5');
DROP VIEW forget_log;
