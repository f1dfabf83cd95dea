-- What a batch may be given, and where it may be claimed: every wrong thing is refused by
-- name, leaves the transaction's savepoint usable and nothing in the ledger.
CREATE VIEW bad_ledger AS SELECT job, batch_id, epoch, version FROM tw.ledger WHERE job LIKE 'bad%' ORDER BY 1, 2;

-- ---------- epochs ----------
SELECT tw.create_job('bad');
-- of a job that has given none out
SELECT tw.begin_batch('bad', 'b', epoch => 1);
\echo :SQLSTATE
SELECT status, epoch FROM tw.begin_batch('bad', 'b', epoch => 0);
SELECT tw.forget_batch('bad', 'b', 'epoch 0 is the one before the first');
-- of a job that does not exist: nor does it come into being
SELECT tw.begin_batch('bad no job', 'b', epoch => 1);
\echo :SQLSTATE
CALL tw.run('BEGIN ATOMIC END', '{}', 'bad no job', 'b', epoch => 5);
\echo :SQLSTATE
SELECT count(*) FROM tw.jobs WHERE job = 'bad no job';
-- without a job
SELECT tw.atomic('BEGIN ATOMIC END', '{}', epoch => 1);
\echo :SQLSTATE
SELECT tw.atomic('BEGIN ATOMIC END', '{}', version => 1);
\echo :SQLSTATE
CALL tw.run('BEGIN ATOMIC END', '{}', epoch => 1);
\echo :SQLSTATE
SELECT tw.init_producer('bad', 'i');
-- older, newer, the ends of the range
SELECT tw.begin_batch('bad', 'b', epoch => 0);
\echo :SQLSTATE
SELECT tw.begin_batch('bad', 'b', epoch => 2);
\echo :SQLSTATE
SELECT tw.begin_batch('bad', 'b', epoch => -1);
\echo :SQLSTATE
SELECT tw.begin_batch('bad', 'b', epoch => 9223372036854775807);
\echo :SQLSTATE
SELECT tw.begin_batch('bad', 'b', epoch => -9223372036854775808);
\echo :SQLSTATE
SELECT tw.begin_batch('bad', 'b', epoch => 9223372036854775808);
\echo :SQLSTATE
-- an error leaves the savepoint, and the batch free
BEGIN;
SAVEPOINT s;
SELECT tw.begin_batch('bad', 'b', epoch => 2);
ROLLBACK TO s;
SELECT status, epoch FROM tw.begin_batch('bad', 'b', epoch => 1);
COMMIT;

-- ---------- an offset moved twice in one transaction ----------
BEGIN;
SELECT tw.commit_offset('bad', 's', '0', NULL, '1');
SAVEPOINT s;
SELECT tw.commit_offset('bad', 's', '0', NULL, '1');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT tw.commit_offset('bad', 's', '0', '0', '1');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT tw.commit_offset('bad', 's', '0', '1', '2');
COMMIT;
SELECT tw.offset('bad', 's', '0');

-- ---------- NULLs everywhere ----------
DO $$
DECLARE
	call text;
	failed int := 0;
BEGIN
	FOREACH call IN ARRAY ARRAY[
		'tw.begin_batch(NULL, NULL)', 'tw.begin_batch(NULL, ''b'')', 'tw.begin_batch(''bad'', NULL)',
		'tw.begin_batch(NULL, NULL, NULL, NULL, NULL)',
		'tw.create_job(NULL)', 'tw.create_job(NULL, NULL)', 'tw.init_producer(NULL)', 'tw.init_producer(NULL, NULL)',
		'tw.forget_batch(NULL, NULL, NULL)', 'tw.forget_batch(''bad'', ''b'', NULL)', 'tw.forget_batch(NULL, ''b'', ''r'')',
		'tw.forget_batch(''bad'', NULL, ''r'')',
		'tw.prune_ledger(NULL, NULL)', 'tw.prune_ledger(''bad'', NULL)',
		'tw.commit_offset(NULL, NULL, NULL, NULL, NULL)', 'tw.commit_offset(''bad'', ''s'', ''0'', ''2'', NULL)',
		'tw.offset(NULL, NULL, NULL)', 'tw.offset(''bad'', NULL, ''0'')', 'tw.offset(''bad'', ''s'', NULL)',
		'tw.reassign_job(NULL, NULL)', 'tw.reassign_job(''bad'', NULL)',
		'tw.atomic(NULL)', 'tw.atomic(NULL, NULL, NULL, NULL)', 'tw.atomic(''BEGIN ATOMIC END'', ''{}'', ''bad'', NULL)',
		'tw.atomic(''BEGIN ATOMIC END'', ''{}'', NULL, ''b'')']
	LOOP
		BEGIN
			EXECUTE 'SELECT ' || call;
			RAISE WARNING '% was let through', call;
		EXCEPTION
			WHEN invalid_parameter_value OR null_value_not_allowed THEN
				failed := failed + 1;
		END;
	END LOOP;
	RAISE NOTICE '% refused', failed;
END $$;
-- what may be null
SELECT status, epoch FROM tw.begin_batch('bad', 'nulls', NULL, NULL, NULL);
SELECT tw.init_producer('bad nulls', NULL);
SELECT tw.create_job('bad retention', NULL);

-- ---------- names ----------
-- at 63 bytes, where identifiers end, and beyond: jobs and batches are no identifiers
SELECT status, length(job) AS job, length(batch_id) AS batch FROM tw.begin_batch('bad ' || repeat('x', 59), repeat('y', 63));
SELECT status, length(job) AS job, length(batch_id) AS batch FROM tw.begin_batch('bad ' || repeat('x', 60), repeat('y', 64));
SELECT status FROM tw.begin_batch('bad ' || repeat('x', 59), repeat('y', 64));
SELECT status FROM tw.begin_batch('bad ' || repeat('x', 59), repeat('y', 63));
SELECT count(*) FROM tw.jobs WHERE job LIKE 'bad xxx%';
-- quotes, spaces, backslashes, percents, SQL, line ends
SELECT status FROM (VALUES ('it''s'), ('"q"'), (' '), ('  '), (E'\t'), ('a\b'), ('%s%n%m$1'), (''';DROP TABLE tw.batch;--'),
	(E'two\nlines'), ('$$'), ('NULL'), ('null'), ('Ä'), ('ä')) AS n (name), tw.begin_batch('bad ' || name, name);
SELECT status FROM (VALUES ('it''s'), ('"q"'), (' '), ('  '), (E'\t'), ('a\b'), ('%s%n%m$1'), (''';DROP TABLE tw.batch;--'),
	(E'two\nlines'), ('$$'), ('NULL'), ('null'), ('Ä'), ('ä')) AS n (name), tw.begin_batch('bad ' || name, name);
-- and in messages as they are
SELECT tw.begin_batch('bad %s%n%m$1', '%s%n%m$1', epoch => 7);
SELECT tw.forget_batch('bad it''s', 'not "there" %d', 'r');
\echo :SQLSTATE
SELECT tw.commit_offset('bad %s', '%d "s"', '%n', '%s', '%s');
\echo :SQLSTATE

-- ---------- savepoints ----------
BEGIN;
SAVEPOINT s;
SELECT status FROM tw.begin_batch('bad', 'saved', version => 1);
SELECT tw.commit_offset('bad', 'saved', '0', NULL, '1');
ROLLBACK TO s;
SELECT status FROM tw.begin_batch('bad', 'saved', version => 2);
SAVEPOINT s2;
SELECT tw.begin_batch('bad', 'saved', version => 2);
\echo :SQLSTATE
ROLLBACK TO s2;
SELECT tw.commit_offset('bad', 'saved', '0', NULL, '2');
COMMIT;
SELECT * FROM bad_ledger WHERE batch_id = 'saved';
SELECT tw.offset('bad', 'saved', '0');
-- a hundred times
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		BEGIN
			PERFORM tw.begin_batch('bad', 'again');
			RAISE SQLSTATE '75000';
		EXCEPTION WHEN SQLSTATE '75000' THEN
			NULL;
		END;
	END LOOP;
	RAISE NOTICE '%', (tw.begin_batch('bad', 'again')).status;
END $$;
SELECT count(*) FROM tw.ledger WHERE job = 'bad' AND batch_id = 'again';

-- ---------- where nothing may be written ----------
BEGIN READ ONLY;
SAVEPOINT s;
SELECT tw.begin_batch('bad', 'new');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT tw.atomic('BEGIN ATOMIC RETURN 1; END', '{}', 'bad', 'new');
\echo :SQLSTATE
ROLLBACK TO s;
SELECT status, result FROM tw.atomic('BEGIN ATOMIC RETURN 1; END');
SELECT tw.offset('bad', 's', '0');
COMMIT;
SET default_transaction_read_only = on;
CALL tw.run('BEGIN ATOMIC RETURN 1; END', '{}', 'bad', 'new');
\echo :SQLSTATE
RESET default_transaction_read_only;

-- in a parallel worker
CREATE TABLE bad_parallel AS SELECT g AS v FROM generate_series(1, 10000) AS g;
ANALYZE bad_parallel;
CREATE FUNCTION bad_claim(v int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS
	$$BEGIN RETURN (tw.begin_batch('bad', 'parallel ' || v)).status = 'started'; END$$;
CREATE FUNCTION bad_offset(v int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS
	$$BEGIN PERFORM tw.commit_offset('bad', 'parallel', v::text, NULL, '1'); RETURN true; END$$;
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL max_parallel_workers_per_gather = 2;
SAVEPOINT s;
\set VERBOSITY terse
SELECT count(*) FROM bad_parallel WHERE bad_claim(v);
\echo :SQLSTATE
ROLLBACK TO s;
SELECT count(*) FROM bad_parallel WHERE bad_offset(v);
\echo :SQLSTATE
\set VERBOSITY default
ROLLBACK;
-- what is marked as it is runs in the leader
SELECT count(*) FROM (SELECT v FROM bad_parallel WHERE v <= 3) AS p WHERE (tw.begin_batch('bad', 'leader ' || v)).status = 'started';

-- ---------- in a trigger, also a deferred one ----------
CREATE TABLE bad_rows (v int);
CREATE FUNCTION bad_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE '% %', NEW.v, (tw.begin_batch('bad', 'row ' || NEW.v, epoch => 1)).status;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER claim AFTER INSERT ON bad_rows DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION bad_row();
INSERT INTO bad_rows VALUES (1), (2);
INSERT INTO bad_rows VALUES (2), (3);
-- twice in one transaction: none of it
INSERT INTO bad_rows VALUES (4), (4);
\echo :SQLSTATE
-- and its epoch is checked, although it was claimed after COMMIT was said
BEGIN;
SELECT tw.init_producer('bad', 'j');
INSERT INTO bad_rows VALUES (5);
COMMIT;
\echo :SQLSTATE
SELECT v FROM bad_rows ORDER BY v;
SELECT batch_id FROM bad_ledger WHERE batch_id LIKE 'row%';

-- ---------- in an aborted transaction, and a cursor ----------
BEGIN;
SELECT 1 / 0;
SELECT tw.begin_batch('bad', 'aborted');
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT (tw.begin_batch('bad', 'cursor ' || g)).status FROM generate_series(1, 3) AS g;
FETCH 2 FROM c;
CLOSE c;
COMMIT;
SELECT batch_id FROM bad_ledger WHERE batch_id LIKE 'cursor%' OR batch_id = 'aborted';

DROP VIEW bad_ledger;
DROP TABLE bad_rows, bad_parallel;
DROP FUNCTION bad_claim, bad_offset, bad_row;
DELETE FROM tw.failure WHERE job LIKE 'bad%';
