-- transactional_writer.block_timeout: TW004, told apart from a cancel, passes every handler
\set VERBOSITY default
SET transactional_writer.block_timeout = '100ms';
CREATE TABLE timeout_t (a int);

\echo a loop, wherever it is; a statement
\set SHOW_CONTEXT never
SELECT status FROM tw.atomic('BEGIN INSERT INTO timeout_t VALUES (1); LOOP SET LOCAL work_mem = ''4MB''; END LOOP; END');
\set SHOW_CONTEXT errors
\echo :LAST_ERROR_SQLSTATE
SELECT status FROM tw.atomic('BEGIN INSERT INTO timeout_t VALUES (2); SELECT pg_sleep(60); END');
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM timeout_t;

\echo handlers do not catch it, not even when a function in between does
SELECT status FROM tw.atomic('BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO timeout_t VALUES (3);
	SELECT pg_sleep(60);
END');
\echo :LAST_ERROR_SQLSTATE
CREATE FUNCTION timeout_swallow() RETURNS void LANGUAGE plpgsql AS
$$BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN OTHERS THEN NULL; END$$;
SELECT status FROM tw.atomic('BEGIN SELECT timeout_swallow(); INSERT INTO timeout_t VALUES (4); END');
\echo :LAST_ERROR_SQLSTATE
SELECT status FROM tw.atomic('BEGIN SELECT timeout_swallow(); END');
\echo :LAST_ERROR_SQLSTATE

\echo a block in a block counts for the outer one; CALL tw.run has it too
SELECT status FROM tw.atomic('BEGIN SELECT tw.atomic(''BEGIN SELECT pg_sleep(60); END''); END');
\echo :LAST_ERROR_SQLSTATE
CALL tw.run('BEGIN INSERT INTO timeout_t VALUES (5); SELECT pg_sleep(60); END', '{}', 'timeout', '1');
\echo :LAST_ERROR_SQLSTATE
SELECT attempt, sqlstate, line FROM tw.failures WHERE job = 'timeout';

\echo nothing is left over for what comes after
SELECT status FROM tw.atomic('BEGIN INSERT INTO timeout_t VALUES (6); END');
SELECT pg_sleep(0.3);
SELECT * FROM timeout_t;

\echo nor when the time runs out while a block that has failed is rolled back
CREATE SCHEMA timeout_many;
CREATE FUNCTION timeout_fails(tables int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	code text;
BEGIN
	BEGIN
		FOR i IN 1 .. tables LOOP
			EXECUTE format('CREATE TABLE timeout_many.t%s (v int)', i);
		END LOOP;
		PERFORM set_config('transactional_writer.block_timeout', '1ms', true);
		PERFORM tw.atomic('BEGIN SIGNAL SQLSTATE ''75000''; END');
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE;
	END;
	PERFORM pg_sleep(0);
	RETURN code;
END$$;
-- the machine may have been so slow that the block took longer itself
SELECT timeout_fails(0) IN ('75000', 'TW004') AS ok;
SELECT timeout_fails(1000) IN ('75000', 'TW004') AS ok;
DROP SCHEMA timeout_many;
DROP FUNCTION timeout_fails;

\echo a cancel or statement_timeout stays one
SET transactional_writer.block_timeout = 0;
SET statement_timeout = '100ms';
SELECT status FROM tw.atomic('BEGIN SELECT pg_sleep(60); END');
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
RESET transactional_writer.block_timeout;
DROP TABLE timeout_t;
DROP FUNCTION timeout_swallow;

\echo a deferred constraint that is checked at the end counts, too
SET transactional_writer.block_timeout = '100ms';
CREATE TABLE timeout_t (a int);
CREATE FUNCTION timeout_slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(60); RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON timeout_t DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION timeout_slow();
SELECT status FROM tw.atomic('BEGIN INSERT INTO timeout_t VALUES (1); SET LOCAL transactional_writer.block_timeout = 0; END');
\echo :LAST_ERROR_SQLSTATE
RESET transactional_writer.block_timeout;
DROP TABLE timeout_t;
DROP FUNCTION timeout_slow;
