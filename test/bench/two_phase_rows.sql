\set a random(1, 100000)
\set b random(1, 100000)
\set id random(1, 9223372036854775806)
BEGIN;
SELECT CASE status WHEN 'started' THEN tw.prepare_batch(job, batch_id) END AS gid FROM tw.begin_batch('two-phase', ':id') \gset
INSERT INTO transfer SELECT :a, :b, i, now() FROM generate_series(1, 1000) AS i;
PREPARE TRANSACTION ':gid';
CALL tw.commit_prepared(':gid');
