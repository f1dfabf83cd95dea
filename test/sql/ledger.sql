-- the views and the log of failures, and what a restored dump must not lose
SELECT tw.create_job('led', '1 year');
SELECT tw.create_job('led');
\echo :SQLSTATE
SELECT tw.create_job('led plain');
SELECT job, owner = current_user::regrole AS ours, epoch, instance, retention, pruned_version,
	created_at <= clock_timestamp() AS created
	FROM tw.jobs WHERE job LIKE 'led%' ORDER BY job;
BEGIN READ ONLY;
SELECT tw.create_job('led read only');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT tw.create_job('led rolled back');
ROLLBACK;
SELECT count(*) FROM tw.jobs WHERE job = 'led rolled back';

-- a claim creates a job, and a claim that fails does not
SELECT status FROM tw.begin_batch('led new', 'b');
BEGIN;
SELECT status FROM tw.begin_batch('led newer', 'b');
ROLLBACK;
SELECT job FROM tw.jobs WHERE job LIKE 'led new%';

-- one row a batch
BEGIN;
SELECT status FROM tw.begin_batch('led', 'b', 'fp', version => 7);
SELECT status FROM tw.finish_batch('{"n": 1}');
COMMIT;
SELECT job, batch_id, epoch, version, fingerprint, result, rows, operations, attempts,
	xid IS NOT NULL AS xid, started_at <= finished_at AS times
	FROM tw.ledger WHERE job = 'led';
SELECT pg_xact_status(xid) FROM tw.ledger WHERE job = 'led';

-- all that has data is dumped
SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'r'
	AND NOT c.oid = ANY ((SELECT extconfig FROM pg_extension WHERE extname = 'transactional_writer')::oid[]);

-- an index that an administrator adds is kept up
CREATE INDEX led_by_xid ON tw.batch ((xid::text)) WHERE job <> 'led skipped' AND epoch IS NULL;
CREATE UNIQUE INDEX led_unique ON tw.batch (job, fingerprint) WHERE fingerprint LIKE 'unique%';
SELECT status FROM tw.begin_batch('led skipped', 'b', 'unique 1');
SELECT status FROM tw.begin_batch('led', 'indexed', 'unique 1');
SELECT tw.begin_batch('led', 'same', 'unique 1');
SET enable_seqscan = off;
SELECT b.batch_id FROM tw.batch b WHERE b.xid::text = (SELECT xid::text FROM tw.ledger l WHERE l.batch_id = 'indexed')
	AND b.job <> 'led skipped' AND b.epoch IS NULL;
RESET enable_seqscan;
DROP INDEX tw.led_by_xid, tw.led_unique;
-- also one that keeps something between insertions
CREATE INDEX led_brin ON tw.batch USING brin (started_at);
SELECT status FROM tw.begin_batch('led', 'brin');
DROP INDEX tw.led_brin;
-- and those whose functions run queries, at the snapshot that is there or one that they take,
-- though CALL claims before there is any
CREATE TABLE led_region (job text, region text);
INSERT INTO led_region VALUES ('led', 'north'), ('led elsewhere', 'none');
CREATE FUNCTION led_region(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
	$$BEGIN RETURN (SELECT region FROM public.led_region r WHERE r.job = $1); END$$;
CREATE FUNCTION led_ask(text) RETURNS text LANGUAGE plpgsql AS
	$$BEGIN RETURN (SELECT region FROM public.led_region r WHERE r.job = $1); END$$;
CREATE FUNCTION led_asked(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN (SELECT public.led_ask($1)); END$$;
CREATE INDEX led_batch_region ON tw.batch (led_region(job)) WHERE led_region(job) <> 'none';
CREATE INDEX led_batch_asked ON tw.batch (led_asked(job));
CREATE INDEX led_outcome_region ON tw.batch_outcome (led_region(job));
CREATE INDEX led_failure_region ON tw.failure (led_region(job));
CALL tw.run('BEGIN ATOMIC END', job => 'led', batch_id => 'query');
CALL tw.run('BEGIN ATOMIC END', job => 'led', batch_id => 'query, again', conflicts => 'serializable');
CALL tw.run('BEGIN ATOMIC END', job => 'led elsewhere', batch_id => 'query');
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001''; END', job => 'led', batch_id => 'query and fail');
SET enable_seqscan = off;
SELECT batch_id FROM tw.batch WHERE led_region(job) = 'north' AND led_region(job) <> 'none' AND batch_id LIKE 'query%';
SELECT batch_id FROM tw.batch WHERE led_asked(job) = 'none' AND batch_id LIKE 'query%';
SELECT batch_id FROM tw.batch_outcome WHERE led_region(job) = 'none' AND batch_id LIKE 'query%';
SELECT batch_id FROM tw.failure WHERE led_region(job) = 'north' AND batch_id LIKE 'query%';
RESET enable_seqscan;
DROP INDEX tw.led_batch_region, tw.led_batch_asked, tw.led_outcome_region, tw.led_failure_region;
DROP FUNCTION led_region, led_ask, led_asked;
DROP TABLE led_region;

-- columns are by position: a table that is not ours is refused
BEGIN;
ALTER TABLE tw.batch_outcome ADD extra int;
SELECT status FROM tw.begin_batch('led', 'extra');
SELECT tw.finish_batch();
\echo :SQLSTATE
ROLLBACK;
