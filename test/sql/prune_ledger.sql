-- tw.prune_ledger: what is older than a job's memory has to be
SELECT tw.create_job('prune', retention => '30 days');
SELECT count(*) FROM generate_series(1, 100) AS g
	WHERE (tw.begin_batch('prune', g::text)).status = 'started';
DO $$
BEGIN
	FOR i IN 101 .. 110 LOOP
		PERFORM tw.begin_batch('prune', i::text), tw.finish_batch(to_jsonb(i));
	END LOOP;
END $$;
SELECT status FROM tw.begin_batch('prune other', '1');

-- nothing is that old
SELECT tw.prune_ledger('prune', '1 day');
SELECT tw.prune_ledger('prune', NULL);
SELECT count(*) FROM tw.ledger WHERE job = 'prune';

-- the oldest, by when they began (as the owner of the tables may say)
UPDATE tw.batch SET started_at = started_at - interval '40 days'
	WHERE job = 'prune' AND batch_id::int <= 105;
UPDATE tw.batch SET started_at = started_at - interval '20 days'
	WHERE job = 'prune' AND batch_id::int = 106;
SELECT tw.prune_ledger('prune', NULL);
SELECT min(batch_id::int), count(*), count(result) FROM tw.ledger WHERE job = 'prune';
SELECT count(*) FROM tw.batch_outcome WHERE job = 'prune';
SELECT tw.prune_ledger('prune', '10 days');
SELECT tw.prune_ledger('prune', '10 days');
SELECT min(batch_id::int), count(*) FROM tw.ledger WHERE job = 'prune';

-- a pruned key counts as new, a kept one does not
SELECT status FROM tw.begin_batch('prune', '1');
SELECT status FROM tw.begin_batch('prune', '107');
-- no version was pruned
SELECT retention, pruned_version FROM tw.jobs WHERE job = 'prune';

-- what this transaction has claimed is no history yet
BEGIN;
SELECT status FROM tw.begin_batch('prune', 'now');
SELECT tw.prune_ledger('prune', '0');
COMMIT;
SELECT batch_id FROM tw.ledger WHERE job = 'prune';
SELECT batch_id FROM tw.ledger WHERE job = 'prune other';

-- one call is bounded
SELECT count(*) FROM generate_series(1, 10001) AS g
	WHERE (tw.begin_batch('prune many', g::text, version => g)).status = 'started';
SELECT tw.prune_ledger('prune many', '0');
SELECT pruned_version FROM tw.jobs WHERE job = 'prune many';
SELECT tw.begin_batch('prune many', 'x', version => 10001);
SELECT tw.prune_ledger('prune many', '0');
SELECT tw.prune_ledger('prune many', '0');
SELECT pruned_version FROM tw.jobs WHERE job = 'prune many';

-- failures go with the ledger
INSERT INTO tw.failure (job, batch_id, attempt, sqlstate, message, line, at, role) VALUES
	('prune', 'a', 1, '40001', 'old', 1, now() - interval '2 days', current_user::regrole),
	('prune', 'b', 1, '40001', 'new', 1, now(), current_user::regrole),
	('prune other', 'c', 1, '40001', 'not this job''s', 1, now() - interval '2 days', current_user::regrole);
SELECT tw.prune_ledger('prune', '1 day');
SELECT job, batch_id, message FROM tw.failures WHERE job LIKE 'prune%' ORDER BY 1, 2;

SELECT tw.prune_ledger('prune', '-1 day');
\echo :SQLSTATE
SELECT tw.prune_ledger('prune other', NULL);
\echo :SQLSTATE
SELECT tw.prune_ledger('prune no such job', '1 day');
\echo :SQLSTATE
-- an age that cannot be counted back from now is refused at once, not by each pruning
SELECT tw.create_job('prune long', retention => '300000 years');
\echo :SQLSTATE
BEGIN READ ONLY;
SELECT tw.prune_ledger('prune', '1 day');
ROLLBACK;
