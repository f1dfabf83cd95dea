-- what a job, a batch_id, a fingerprint and an instance may be
SELECT tw.begin_batch('limits', NULL);
\echo :SQLSTATE
SELECT tw.begin_batch(NULL, 'b');
\echo :SQLSTATE
SELECT tw.begin_batch(NULL, NULL);
\echo :SQLSTATE
SELECT tw.begin_batch('', 'b');
\echo :SQLSTATE
SELECT tw.begin_batch('limits', '');
\echo :SQLSTATE
SELECT tw.begin_batch(repeat('j', 256), 'b');
SELECT tw.begin_batch('limits', repeat('b', 513));
SELECT tw.begin_batch('limits', repeat('b', 1024 * 1024));
\echo :SQLSTATE
SELECT tw.begin_batch('limits', 'b', repeat('f', 513));
SELECT tw.begin_batch('limits', 'b', '');
-- bytes, not characters
SELECT tw.begin_batch(repeat('é', 128), 'b');
SELECT tw.begin_batch('limits', 'b', epoch => -1);
SELECT tw.create_job(NULL);
SELECT tw.create_job('');
SELECT tw.create_job(repeat('j', 256));
SELECT tw.create_job('limits', '-1 day');
\echo :SQLSTATE
SELECT tw.init_producer(NULL);
SELECT tw.init_producer('');
SELECT tw.init_producer('limits', '');
SELECT tw.init_producer('limits', repeat('i', 256));
SELECT tw.forget_batch('limits', NULL, 'why');
SELECT tw.forget_batch(NULL, 'b', 'why');
SELECT tw.forget_batch('limits', 'b', NULL);
SELECT tw.forget_batch('limits', 'b', '');
SELECT tw.prune_ledger(NULL, NULL);
-- nothing of that has made a job
SELECT count(*) FROM tw.jobs WHERE job LIKE 'limits%';

-- the longest that are allowed, together
SELECT status, length(job), length(batch_id) FROM
	tw.begin_batch(repeat('j', 255), repeat('b', 512), repeat('f', 512), version => 9223372036854775807);
SELECT status FROM
	tw.begin_batch(repeat('j', 255), repeat('b', 512), repeat('f', 512), version => 9223372036854775807);
SELECT status FROM tw.begin_batch(repeat('j', 255), repeat('b', 511) || 'c');
-- incompressible ones
SELECT status FROM tw.begin_batch(
	(SELECT substr(string_agg(md5(g::text), ''), 1, 255) FROM generate_series(1, 10) AS g),
	(SELECT substr(string_agg(md5(g::text), ''), 1, 512) FROM generate_series(11, 30) AS g),
	(SELECT substr(string_agg(md5(g::text), ''), 1, 512) FROM generate_series(31, 50) AS g));

-- any other text is as good as any
SELECT status FROM tw.begin_batch('limits "quoted" job', 'it''s; a "batch" -- $$ \ %s');
SELECT status, job, batch_id FROM tw.begin_batch('limits "quoted" job', 'it''s; a "batch" -- $$ \ %s');
SELECT status FROM tw.begin_batch('limits "quoted" job', ' ');
SELECT status FROM tw.begin_batch('limits "quoted" job', '  ');
SELECT status FROM tw.begin_batch('limits "quoted" job', 'Größe 数 🙂');
SELECT status FROM tw.begin_batch('limits "quoted" job', 'größe 数 🙂');
SELECT status FROM tw.begin_batch('limits "quoted" job', E'line\nbreak');
SELECT status FROM tw.begin_batch('limits "quoted" job', 'b', version => -9223372036854775808);
SELECT batch_id FROM tw.ledger WHERE job = 'limits "quoted" job' ORDER BY batch_id COLLATE "C";

-- CALL tw.run reports and records it, without the name
SELECT string_agg(md5(i::text), '') AS long_name FROM generate_series(1, 1000) AS i \gset
CALL tw.run('BEGIN ATOMIC END', job => :'long_name', batch_id => 'too long a job');
CALL tw.run('BEGIN ATOMIC END', job => 'limits', batch_id => repeat('b', 513));
SELECT job, batch_id, sqlstate, message FROM tw.failures WHERE message LIKE '% is out of range' ORDER BY message;
