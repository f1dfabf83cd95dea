-- A ledger of :rows rows, as so many batches of a job have left it, and what measures it
CREATE EXTENSION transactional_writer;
SELECT tw.create_job('scale');

-- Ids in no order, so that old and new ones are spread over all of the key
INSERT INTO tw.batch (job, batch_id, version, xid, started_at, fingerprint)
	SELECT 'scale', md5(i::text), i, i::text::xid8, now() - interval '1 day' + i * interval '1 ms', md5('f' || i)
	FROM generate_series(1, :rows) AS i;
INSERT INTO tw.batch_outcome (xid, job, batch_id, rows, finished_at, attempts, operations)
	SELECT i::text::xid8, 'scale', md5(i::text), 3, now() - interval '1 day' + i * interval '1 ms', 1,
		'[{"line": 2, "rows": 1, "table": "public.account", "command": "UPDATE", "executions": 1}]'
	FROM generate_series(1, :rows) AS i;
-- ... and a thousand whose ids are in order, behind all of those
INSERT INTO tw.batch (job, batch_id, xid, started_at, fingerprint)
	SELECT 'scale', 'in order ' || lpad(i::text, 6, '0'), (:rows + i)::text::xid8, now() - interval '1 day', md5('f' || i)
	FROM generate_series(1, 1000) AS i;
INSERT INTO tw.batch_outcome (xid, job, batch_id, rows, finished_at, attempts)
	SELECT (:rows + i)::text::xid8, 'scale', 'in order ' || lpad(i::text, 6, '0'), 3, now() - interval '1 day', 1
	FROM generate_series(1, 1000) AS i;

-- Nanoseconds that this backend has had a processor
CREATE FUNCTION cpu() RETURNS bigint LANGUAGE sql AS
	$$SELECT split_part(pg_read_file('/proc/self/schedstat', 0, 1000), ' ', 1)::bigint$$;

VACUUM (ANALYZE, FREEZE) tw.batch, tw.batch_outcome;
