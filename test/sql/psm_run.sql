-- CALL tw.run: a batch that commits by itself
CREATE TABLE t (n int PRIMARY KEY);

CALL tw.run('BEGIN INSERT INTO t VALUES (1), (2); RETURN 5; END');
CALL tw.run('BEGIN INSERT INTO t VALUES (:n); END', '{"n": 3}', 'run', '1');
CALL tw.run('BEGIN INSERT INTO t VALUES (:n); END', '{"n": 3}', 'run', '1');
SELECT job, batch_id, rows, attempts FROM tw.ledger WHERE job = 'run';
CALL tw.run(block => $$BEGIN
	RETURN TABLE SELECT current_setting('transaction_isolation') AS level;
END$$, conflicts => 'none');
CALL tw.run('BEGIN RETURN current_setting(''transaction_isolation''); END', conflicts => 'write');
CALL tw.run('BEGIN RETURN current_setting(''transaction_isolation''); END', conflicts => 'serializable');
SHOW transaction_isolation;
-- what cannot be
CALL tw.run('BEGIN END', conflicts => 'sometimes');
\echo :SQLSTATE
CALL tw.run('BEGIN END', conflicts => NULL);
\echo :SQLSTATE
CALL tw.run('BEGIN END', max_attempts => 0);
\echo :SQLSTATE
CALL tw.run(NULL);
\echo :SQLSTATE
CALL tw.run('BEGIN END', job => 'run');
\echo :SQLSTATE
CALL tw.run('BEGIN END', params => '[]');
\echo :SQLSTATE
-- inside a transaction: refused, with what to do
BEGIN;
CALL tw.run('BEGIN INSERT INTO t VALUES (100); END');
\echo :SQLSTATE
ROLLBACK;
CREATE FUNCTION runs() RETURNS void LANGUAGE plpgsql AS $$BEGIN CALL tw.run('BEGIN END'); END$$;
SELECT runs();
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	CALL tw.run('BEGIN END');
END$$);
\echo :SQLSTATE
DROP FUNCTION runs;
SELECT count(*) FROM t WHERE n = 100;

-- an error: all undone, a row in tw.failures with the line, the error passed on
CALL tw.run($$BEGIN
	INSERT INTO t VALUES (4);
	INSERT INTO t VALUES (4);
END$$, job => 'run', batch_id => '2');
\echo :SQLSTATE
SELECT n FROM t ORDER BY n;
SELECT job, batch_id, attempt, sqlstate, message, line FROM tw.failures WHERE job = 'run';
-- ... whose line is not left over from the one before
CALL tw.run($$BEGIN
	DECLARE n int;
	SIGNAL SQLSTATE '01000' SET MESSAGE_TEXT = 'a warning';
END$$, '{}', 'run', '1');
\echo :SQLSTATE
SELECT batch_id, attempt, sqlstate, line FROM tw.failures WHERE job = 'run' ORDER BY at;
-- ... of a syntax error and of a parameter too few
CALL tw.run(E'BEGIN\nSELEC 1;\nEND', '{}', 'run', '3');
CALL tw.run(E'BEGIN\n\n\nINSERT INTO t VALUES (:x);\nEND', '{}', 'run', '4');
SELECT batch_id, sqlstate, line FROM tw.failures WHERE job = 'run' AND batch_id IN ('3', '4') ORDER BY at;
-- ... not written when not wanted
SET transactional_writer.log_failures = off;
CALL tw.run('BEGIN SIGNAL SQLSTATE ''45000''; END', '{}', 'run', '5');
RESET transactional_writer.log_failures;
SELECT count(*) FROM tw.failures WHERE job = 'run' AND batch_id = '5';

-- a conflict is tried again, max_attempts times; each attempt begins from nothing
CREATE SEQUENCE tries;
CALL tw.run($$BEGIN
	INSERT INTO t VALUES (10);
	IF nextval('tries') < 3 THEN
		SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = 'not yet';
	END IF;
	RETURN currval('tries');
END$$, job => 'run', batch_id => 'retried');
SELECT attempts FROM tw.ledger WHERE job = 'run' AND batch_id = 'retried';
SELECT attempt, sqlstate, message, line FROM tw.failures WHERE batch_id = 'retried' ORDER BY attempt;
CALL tw.run($$BEGIN
	SELECT nextval('tries');
	SIGNAL SQLSTATE '40P01' SET MESSAGE_TEXT = 'never';
END$$, max_attempts => 2);
\echo :SQLSTATE
SELECT last_value FROM tries;
SET transactional_writer.max_attempts = 4;
CALL tw.run($$BEGIN
	SELECT nextval('tries');
	SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = 'never';
END$$);
RESET transactional_writer.max_attempts;
SELECT last_value FROM tries;
SELECT attempt, sqlstate FROM tw.failures WHERE job IS NULL AND message = 'never' ORDER BY at;
-- other errors are not
CALL tw.run($$BEGIN
	SELECT nextval('tries');
	SIGNAL SQLSTATE '55P03';
END$$);
SELECT last_value FROM tries;

-- handlers and savepoints inside, and a conflict that passes them
CALL tw.run($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO t VALUES (21);
	INSERT INTO t VALUES (20);
	BEGIN ATOMIC
		INSERT INTO t VALUES (22);
		INSERT INTO t VALUES (22);
	END;
	IF nextval('tries') < 12 THEN
		SIGNAL SQLSTATE '40001';
	END IF;
	RETURN (SELECT jsonb_agg(n ORDER BY n) FROM t WHERE n >= 20);
END$$);

-- called from procedures and DO, several times, with commits around
CREATE PROCEDURE batches() LANGUAGE plpgsql AS $$
DECLARE s text; r jsonb; w bigint; a int;
BEGIN
	INSERT INTO t VALUES (30);
	FOR i IN 1..3 LOOP
		CALL tw.run('BEGIN INSERT INTO t VALUES (30 + :i); RETURN :i * 2; END', jsonb_build_object('i', i),
			'run', 'loop ' || i, status => s, result => r, rows => w, attempts => a);
		RAISE NOTICE '% % % %', s, r, w, a;
	END LOOP;
	COMMIT;
	CALL tw.run('BEGIN INSERT INTO t VALUES (34); END', status => s, result => r, rows => w, attempts => a);
	INSERT INTO t VALUES (35);
	ROLLBACK;
END$$;
CALL batches();
SELECT n FROM t WHERE n >= 30 ORDER BY n;
DO $$
DECLARE s text; r jsonb; w bigint; a int;
BEGIN
	CALL tw.run('BEGIN SIGNAL SQLSTATE ''45000''; END', status => s, result => r, rows => w, attempts => a);
END$$;
DO $$
DECLARE s text; r jsonb; w bigint; a int;
BEGIN
	CALL tw.run('BEGIN INSERT INTO t VALUES (40); END', status => s, result => r, rows => w, attempts => a);
	RAISE NOTICE '%', s;
END$$;
-- ... in a subtransaction of the procedure it cannot commit
DO $$
DECLARE s text; r jsonb; w bigint; a int;
BEGIN
	CALL tw.run('BEGIN END', status => s, result => r, rows => w, attempts => a);
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE '% %', SQLSTATE, SQLERRM;
END$$;
SELECT n FROM t WHERE n >= 40;
-- a block that commits nothing itself, however it is hidden
CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
CALL tw.run('BEGIN CALL commits(); END');
\echo :SQLSTATE
DROP PROCEDURE commits, batches;
-- big results come back whole
CALL tw.run('BEGIN RETURN length(repeat(''x'', 1000000)) ; END');

DROP TABLE t;
DROP SEQUENCE tries;
