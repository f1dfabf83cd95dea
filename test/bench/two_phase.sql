\set a random(1, 100000)
\set b random(1, 100000)
\set id random(1, 9223372036854775806)
\if :ready = 0
PREPARE batch(text) AS SELECT CASE status WHEN 'started' THEN tw.prepare_batch(job, batch_id) END AS gid FROM tw.begin_batch('two-phase', $1);
PREPARE move(int, numeric) AS UPDATE account SET balance = balance + $2 WHERE id = $1;
PREPARE log(int, int) AS INSERT INTO transfer VALUES ($1, $2, 1, now());
\set ready 1
\endif
BEGIN;
EXECUTE batch(':id') \gset
EXECUTE move(:a, -1);
EXECUTE move(:b, 1);
EXECUTE log(:a, :b);
PREPARE TRANSACTION ':gid';
CALL tw.commit_prepared(':gid');
