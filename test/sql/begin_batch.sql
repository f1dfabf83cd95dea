-- tw.begin_batch and tw.finish_batch: any SQL as a batch
CREATE TABLE bb_data (v int);
CREATE VIEW bb_ledger AS
	SELECT batch_id, result, rows, operations, attempts, finished_at IS NOT NULL AS finished
	FROM tw.ledger WHERE job = 'bb' ORDER BY batch_id;

-- the first run
BEGIN;
SELECT status, job, batch_id, epoch, result, rows, operations, attempts,
	xid = pg_current_xact_id() AS xid_is_ours, started_at BETWEEN now() AND clock_timestamp() AS started,
	finished_at
	FROM tw.begin_batch('bb', 'one');
INSERT INTO bb_data VALUES (1);
SELECT status, job, batch_id, epoch, result, rows, operations, attempts,
	xid = pg_current_xact_id() AS xid_is_ours, finished_at >= started_at AS finished
	FROM tw.finish_batch('{"loaded": 1}');
COMMIT;
SELECT * FROM bb_ledger;

-- the second is told so, with the outcome of the first, and a third as well
SELECT o.status, o.job, o.batch_id, o.result, o.attempts, o.xid = l.xid AS same_xid,
	o.started_at = l.started_at AND o.finished_at = l.finished_at AS same_times
	FROM tw.begin_batch('bb', 'one') o, tw.ledger l
	WHERE l.job = 'bb' AND l.batch_id = 'one';
SELECT status, result FROM tw.begin_batch('bb', 'one');

-- an earlier one, when others came after it
SELECT status FROM tw.begin_batch('bb', 'two');
SELECT status FROM tw.begin_batch('bb', 'one');

-- finish_batch is optional: the row stands at commit either way
SELECT * FROM bb_ledger;
SELECT status, result, attempts, finished_at FROM tw.begin_batch('bb', 'two');

-- an empty batch is a batch, and so is a result of JSON null
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'empty');
SELECT status, result FROM tw.finish_batch();
COMMIT;
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'json null');
SELECT status, result FROM tw.finish_batch('null');
COMMIT;
SELECT status, result FROM tw.begin_batch('bb', 'empty');
SELECT status, result FROM tw.begin_batch('bb', 'json null');

-- rolled back: neither data nor ledger, and the batch may run
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'three');
INSERT INTO bb_data VALUES (3);
ROLLBACK;
SELECT count(*) FROM bb_data;
SELECT count(*) FROM bb_ledger WHERE batch_id = 'three';
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'three');
SELECT 1/0;
COMMIT;
SELECT status FROM tw.begin_batch('bb', 'three');

-- the same batch twice in one transaction
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'twice');
SELECT status FROM tw.begin_batch('bb', 'twice');
\echo :SQLSTATE
ROLLBACK;

-- which a star does: it calls the function once for each column
SELECT (tw.begin_batch('bb', 'star')).*;
SELECT (tw.atomic('BEGIN ATOMIC INSERT INTO bb_data VALUES (99); END', job => 'bb', batch_id => 'star')).*;
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'star');
SELECT (tw.finish_batch()).*;
ROLLBACK;
SELECT count(*) FROM bb_data WHERE v = 99;
-- of a block without a batch as well; calls that are written twice, or made for each row, are meant
\set insert 'tw.atomic(''BEGIN ATOMIC INSERT INTO bb_data VALUES (98); END'')'
SELECT (:insert).*;
INSERT INTO bb_data VALUES (97) RETURNING (:insert).*;
DO $$BEGIN PERFORM (tw.atomic('BEGIN ATOMIC INSERT INTO bb_data VALUES (98); END')).*; END$$;
CREATE VIEW bb_star AS SELECT (:insert).*;
SELECT * FROM bb_star;
DROP VIEW bb_star;
VALUES ((:insert).*), ((:insert).*);
SELECT 1 WHERE row((:insert).*) IS NOT NULL;
SELECT count(*) FROM bb_data WHERE v > 90;
-- ... a function that calls it is another call each time
CREATE FUNCTION bb_inline(v int) RETURNS text LANGUAGE sql AS $$
	SELECT (tw.atomic('BEGIN ATOMIC INSERT INTO bb_data VALUES (:v); END', jsonb_build_object('v', v))).status $$;
SELECT bb_inline(95), bb_inline(96) WHERE bb_inline(97) IS NOT NULL;
DROP FUNCTION bb_inline;
SELECT v FROM bb_data WHERE v BETWEEN 95 AND 97 ORDER BY v;
DELETE FROM bb_data WHERE v BETWEEN 95 AND 98;
SELECT (:insert).status, (:insert).rows;
SELECT (o).status, (o).rows FROM (SELECT :insert AS o) AS once;
SELECT (:insert).status FROM generate_series(1, 2);
SELECT count(*) FROM bb_data WHERE v = 98;
DELETE FROM bb_data WHERE v BETWEEN 95 AND 98;

-- claimed in a savepoint that is rolled back, and again
BEGIN;
SAVEPOINT s;
SELECT status FROM tw.begin_batch('bb', 'savepoint');
SELECT status FROM tw.finish_batch('1');
ROLLBACK TO s;
SELECT status FROM tw.finish_batch('2');
ROLLBACK TO s;
SELECT status FROM tw.begin_batch('bb', 'savepoint');
SAVEPOINT s2;
SELECT status FROM tw.finish_batch('3');
ROLLBACK TO s2;
SELECT status, result FROM tw.finish_batch('4');
RELEASE s;
SAVEPOINT s3;
SELECT status FROM tw.begin_batch('bb', 'savepoint');
ROLLBACK TO s3;
SELECT status FROM tw.finish_batch('5');
\echo :SQLSTATE
ROLLBACK TO s3;
COMMIT;
SELECT batch_id, result FROM bb_ledger WHERE batch_id = 'savepoint';

-- only a savepoint around it rolls back: the transaction commits without it
BEGIN;
INSERT INTO bb_data VALUES (4);
SAVEPOINT s;
SELECT status FROM tw.begin_batch('bb', 'not kept');
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM bb_ledger WHERE batch_id = 'not kept';

-- in PL/pgSQL's subtransactions
DO $$
DECLARE
	o tw.outcome;
BEGIN
	BEGIN
		o := tw.begin_batch('bb', 'plpgsql');
		PERFORM 1/0;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE 'undone';
	END;
	BEGIN
		o := tw.begin_batch('bb', 'plpgsql');
		RAISE NOTICE '%', o.status;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	BEGIN
		o := tw.finish_batch('"from PL/pgSQL"');
		RAISE NOTICE '% %', o.status, o.result;
	END;
END $$;
SELECT batch_id, result FROM bb_ledger WHERE batch_id = 'plpgsql';

-- several batches in one transaction, finished from the latest back
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'outer');
SELECT status FROM tw.begin_batch('bb other job', 'inner');
SELECT job, batch_id, result FROM tw.finish_batch('"inner"');
SELECT job, batch_id, result FROM tw.finish_batch('"outer"');
SELECT tw.finish_batch();
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'outer');
SELECT status FROM tw.begin_batch('bb other job', 'inner');
COMMIT;
SELECT job, batch_id FROM tw.ledger WHERE batch_id IN ('outer', 'inner') ORDER BY job;
SELECT count(DISTINCT xid::text) FROM tw.ledger WHERE batch_id IN ('outer', 'inner');

-- many in one transaction
SELECT count(*) FROM generate_series(1, 1000) AS g
	WHERE (tw.begin_batch('bb many', g::text)).status = 'started';
SELECT count(*) FROM generate_series(1, 1000) AS g
	WHERE (tw.begin_batch('bb many', g::text)).status = 'already_committed';

-- nothing to finish
SELECT tw.finish_batch('{}');
\echo :SQLSTATE
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'one');
SELECT tw.finish_batch('{}');
ROLLBACK;

-- nor may a block finish the batch that it runs for
SELECT tw.atomic('BEGIN ATOMIC SELECT tw.finish_batch(''1''); END', job => 'bb', batch_id => 'of a block');
\echo :SQLSTATE

-- a result too large for a row comes back as it went in
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'large');
SELECT status FROM tw.finish_batch(
	(SELECT jsonb_agg(md5(g::text)) FROM generate_series(1, 20000) AS g));
COMMIT;
SELECT status, jsonb_array_length(result),
	result = (SELECT jsonb_agg(md5(g::text)) FROM generate_series(1, 20000) AS g) AS same
	FROM tw.begin_batch('bb', 'large');

-- inside a trigger: the row and its batch stand or fall together
CREATE FUNCTION bb_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF (tw.begin_batch('bb', 'row ' || NEW.v)).status = 'started' THEN
		PERFORM tw.finish_batch(to_jsonb(NEW));
		RETURN NEW;
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER claim BEFORE INSERT ON bb_data FOR EACH ROW EXECUTE FUNCTION bb_claim();
INSERT INTO bb_data VALUES (10), (11);
INSERT INTO bb_data VALUES (11), (12);
INSERT INTO bb_data VALUES (13), (13);
SELECT v FROM bb_data WHERE v >= 10 ORDER BY v;
SELECT batch_id, result FROM bb_ledger WHERE batch_id LIKE 'row%';
DROP TRIGGER claim ON bb_data;

-- where nothing may be written
BEGIN READ ONLY;
SELECT tw.begin_batch('bb', 'read only');
\echo :SQLSTATE
ROLLBACK;
-- but a replay writes nothing
SET default_transaction_read_only = on;
SELECT status, result FROM tw.begin_batch('bb', 'one');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT status, result FROM tw.begin_batch('bb', 'one');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SAVEPOINT s;
SELECT tw.finish_batch();
ROLLBACK TO s;
SELECT tw.begin_batch('bb', 'read only');
ROLLBACK TO s;
SELECT tw.begin_batch('bb new job', 'read only');
\echo :SQLSTATE
ROLLBACK;
RESET default_transaction_read_only;
SELECT tw.atomic('BEGIN ATOMIC INSERT INTO bb_data VALUES (50); RETURN 50; END', job => 'bb', batch_id => 'replay') \g /dev/null
CALL tw.run('BEGIN ATOMIC INSERT INTO bb_data VALUES (51); RETURN 51; END', job => 'bb', batch_id => 'replay by call');
SET default_transaction_read_only = on;
SELECT status, result, rows FROM tw.atomic('BEGIN ATOMIC INSERT INTO bb_data VALUES (50); RETURN 50; END',
	job => 'bb', batch_id => 'replay');
SELECT status, result, rows FROM tw.atomic('BEGIN ATOMIC INSERT INTO bb_data VALUES (50); RETURN 50; END',
	job => 'bb', batch_id => 'replay', dry_run => true);
SELECT tw.atomic('BEGIN ATOMIC RETURN 51; END', job => 'bb', batch_id => 'replay');
\echo :SQLSTATE
CALL tw.run('BEGIN ATOMIC INSERT INTO bb_data VALUES (51); RETURN 51; END', job => 'bb', batch_id => 'replay by call');
CALL tw.run('BEGIN ATOMIC RETURN 1; END', job => 'bb', batch_id => 'new by call');
\echo :SQLSTATE
RESET default_transaction_read_only;
SELECT count(*) FROM tw.jobs WHERE job = 'bb new job';
-- nor does it say more than a writer is told
BEGIN;
SELECT tw.init_producer('bb');
SELECT tw.init_producer('bb');
SET TRANSACTION READ ONLY;
SELECT tw.begin_batch('bb', 'one', epoch => 1);
\echo :SQLSTATE
ROLLBACK;
CREATE ROLE regress_bb_stranger;
SET ROLE regress_bb_stranger;
BEGIN READ ONLY;
SELECT tw.begin_batch('bb', 'one');
\echo :SQLSTATE
ROLLBACK;
RESET ROLE;
DROP ROLE regress_bb_stranger;
-- one that was claimed before the transaction became read-only stays ours
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'read only');
SET TRANSACTION READ ONLY;
SELECT tw.begin_batch('bb', 'read only');
ROLLBACK;
BEGIN;
SELECT status FROM tw.begin_batch('bb', 'read only');
SET TRANSACTION READ ONLY;
SELECT tw.finish_batch();
\echo :SQLSTATE
ROLLBACK;

-- a batch is one row at the claim and one at the finish, and nothing is updated
BEGIN;
CREATE TEMP TABLE bb_before ON COMMIT DROP AS
	SELECT * FROM pg_stat_xact_all_tables WHERE schemaname = 'tw';
SELECT status FROM tw.begin_batch('bb', 'counted');
SELECT status FROM tw.finish_batch('{}');
SELECT relname, n.n_tup_ins - b.n_tup_ins AS inserted, n.n_tup_upd - b.n_tup_upd AS updated,
	n.n_tup_del - b.n_tup_del AS deleted
	FROM pg_stat_xact_all_tables n JOIN bb_before b USING (relname)
	WHERE n.schemaname = 'tw' AND (n.n_tup_ins, n.n_tup_upd, n.n_tup_del) <> (b.n_tup_ins, b.n_tup_upd, b.n_tup_del)
	ORDER BY relname;
COMMIT;
SELECT count(*) AS outcomes_without_batch FROM tw.batch_outcome o
	WHERE NOT EXISTS (SELECT FROM tw.batch b WHERE b.xid = o.xid AND b.job = o.job AND b.batch_id = o.batch_id);

-- no search_path, operator or default table space of a user gets in the way
CREATE SCHEMA bb_trap;
CREATE FUNCTION bb_trap.equal(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT 1/0 = 1';
CREATE OPERATOR bb_trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = bb_trap.equal);
SET search_path = bb_trap, pg_catalog;
SELECT status FROM tw.begin_batch('bb', 'one');
SELECT status FROM tw.begin_batch('bb', 'trapped');
SELECT count(*) FROM tw.ledger WHERE job OPERATOR(pg_catalog.=) 'bb' AND batch_id OPERATOR(pg_catalog.=) 'trapped';
RESET search_path;
DROP SCHEMA bb_trap CASCADE;
-- what was found by a name is not what has had it
BEGIN;
ALTER SCHEMA tw RENAME TO bb_elsewhere;
SELECT bb_elsewhere.begin_batch('bb', 'one');
\echo :SQLSTATE
ROLLBACK;
SELECT status FROM tw.begin_batch('bb', 'one');

-- A batch that is committed with the statement that claimed it, and with nothing in it, is warned
-- of; one beside what is written is not, whoever claims it
CREATE TABLE target (id text);
CREATE FUNCTION add_row(id text) RETURNS text LANGUAGE sql AS $$ INSERT INTO target VALUES (id) RETURNING id $$;
CREATE FUNCTION claim_and_write(id text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	s text := (tw.begin_batch('alone', id)).status;
BEGIN
	INSERT INTO target VALUES (id);
	RETURN s;
END $$;
CREATE FUNCTION claim_in_sql(id text) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT status FROM tw.begin_batch('alone', id);
	INSERT INTO target VALUES (id) RETURNING 'written' $$;
SELECT count(*) FROM generate_series(1, 3) AS i, tw.begin_batch('alone', 'many ' || i);
SELECT (o).status FROM (SELECT tw.begin_batch('alone', 'in the list') AS o OFFSET 0) AS x;
SELECT (o).status FROM (SELECT tw.begin_batch('alone', 'in the list') AS o OFFSET 0) AS x;
SELECT claim_and_write('plpgsql');
SELECT claim_in_sql('sql');
DO $$ BEGIN PERFORM tw.begin_batch('alone', 'do'); INSERT INTO target VALUES ('do'); END $$;
WITH c AS (SELECT * FROM tw.begin_batch('alone', 'with')) INSERT INTO target SELECT batch_id FROM c WHERE status = 'started';
CALL tw.run('BEGIN ATOMIC INSERT INTO target SELECT batch_id FROM tw.begin_batch(''alone'', ''run''); END');
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT * FROM tw.begin_batch('alone', 'cursor') LOOP
		INSERT INTO target VALUES (r.batch_id);
	END LOOP;
END $$;
SELECT CASE WHEN (tw.begin_batch('alone', 'case')).status = 'started' THEN add_row('case') END;
SELECT o.status, o.batch_id FROM tw.begin_batch('alone', 'finished') AS b, tw.finish_batch() AS o;
PREPARE claim AS SELECT status FROM tw.begin_batch('alone', $1);
EXECUTE claim('executed');
DEALLOCATE claim;
SELECT status FROM tw.begin_batch('alone', 'several') \; INSERT INTO target VALUES ('several');
BEGIN;
SELECT status FROM tw.begin_batch('alone', 'block');
COMMIT;
DROP TABLE target;
DROP FUNCTION claim_and_write, claim_in_sql, add_row;

DROP VIEW bb_ledger;
DROP TABLE bb_data;
DROP FUNCTION bb_claim;
