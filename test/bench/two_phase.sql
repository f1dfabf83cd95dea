\set a random(1, 100000)
\set b random(1, 100000)
\set id random(1, 9223372036854775806)
BEGIN;
SELECT CASE status WHEN 'started' THEN tw.prepare_batch(job, batch_id) END AS gid FROM tw.begin_batch('two-phase', ':id') \gset
UPDATE account SET balance = balance - 1 WHERE id = :a;
UPDATE account SET balance = balance + 1 WHERE id = :b;
INSERT INTO transfer VALUES (:a, :b, 1, now());
PREPARE TRANSACTION ':gid';
CALL tw.commit_prepared(':gid');
