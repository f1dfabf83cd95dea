-- tw.failures: what CALL tw.run had to retry or gave up on
CREATE VIEW fail_rows AS
	SELECT job, batch_id, attempt, sqlstate, message, line, at <= clock_timestamp() AS at, role = current_user::regrole AS ours
	FROM tw.failures WHERE job LIKE 'fail%' OR batch_id LIKE 'fail%' OR message LIKE 'fail%' ORDER BY failures.at;
CREATE TABLE fail_data (v int PRIMARY KEY);

-- given up on: the job's row is rolled back with the rest, the failure stays
CALL tw.run('BEGIN ATOMIC
	INSERT INTO fail_data VALUES (1);
	SIGNAL SQLSTATE ''75001'' SET MESSAGE_TEXT = ''fails on line 3'';
END', job => 'fail', batch_id => 'b');
SELECT * FROM fail_rows;
SELECT count(*) FROM tw.jobs WHERE job = 'fail';
SELECT count(*) FROM fail_data;

-- each attempt of a conflict, and the success does not take them back
CREATE SEQUENCE fail_attempt;
CALL tw.run('BEGIN ATOMIC
	INSERT INTO fail_data VALUES (2);
	IF nextval(''fail_attempt'') < 3 THEN
		SIGNAL SQLSTATE ''40001'' SET MESSAGE_TEXT = ''fails twice'';
	END IF;
END', job => 'fail', batch_id => 'c');
SELECT * FROM fail_rows WHERE batch_id = 'c';
SELECT batch_id, attempts FROM tw.ledger WHERE job = 'fail';

-- without a job
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001'' SET MESSAGE_TEXT = ''fails without a job''; END');
SELECT * FROM fail_rows WHERE job IS NULL;

-- settable off
SET transactional_writer.log_failures = off;
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001'' SET MESSAGE_TEXT = ''fails unseen''; END');
RESET transactional_writer.log_failures;
SELECT count(*) FROM fail_rows WHERE message = 'fails unseen';
-- where nothing may be written nothing is tried, and the error is all there is
SET default_transaction_read_only = on;
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001'' SET MESSAGE_TEXT = ''fails unseen''; END');
RESET default_transaction_read_only;
-- tw.atomic writes none: its transaction is the caller's
SELECT tw.atomic('BEGIN ATOMIC SIGNAL SQLSTATE ''75001'' SET MESSAGE_TEXT = ''fails in atomic''; END');
SELECT count(*) FROM fail_rows WHERE message = 'fails in atomic';

-- a message of any length and kind
\set VERBOSITY sqlstate
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001'' SET MESSAGE_TEXT = repeat(''fails % "é"'', 1000); END');
\set VERBOSITY default
SELECT length(message), left(message, 11) FROM fail_rows WHERE length(message) > 1000;

-- one that cannot be written is the caller's all the same, and is tried again
CREATE INDEX fail_index ON tw.failure ((1 / strpos(message, '!'))) WHERE message LIKE 'fails unwritten%';
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001'' SET MESSAGE_TEXT = ''fails unwritten''; END', job => 'fail', batch_id => 'd');
\echo :LAST_ERROR_SQLSTATE
SELECT setval('fail_attempt', 1, false);
CALL tw.run('BEGIN ATOMIC
	IF nextval(''fail_attempt'') < 3 THEN
		SIGNAL SQLSTATE ''40001'' SET MESSAGE_TEXT = ''fails unwritten'';
	END IF;
END', job => 'fail', batch_id => 'e');
SELECT count(*) FROM fail_rows WHERE message = 'fails unwritten';
DROP INDEX tw.fail_index;
-- but a cancel that comes while it is written ends the attempts
CREATE FUNCTION fail_slowly(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$BEGIN PERFORM pg_sleep(60); RETURN $1; END$$;
CREATE INDEX fail_index ON tw.failure (fail_slowly(message)) WHERE message LIKE 'fails slowly%';
SET statement_timeout = '200ms';
\set SHOW_CONTEXT never
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''40001'' SET MESSAGE_TEXT = ''fails slowly''; END', max_attempts => 2);
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''40001'' SET MESSAGE_TEXT = ''fails slowly''; END', max_attempts => 1);
\set SHOW_CONTEXT errors
RESET statement_timeout;
DROP INDEX tw.fail_index;
DROP FUNCTION fail_slowly;

-- pruned with their job's ledger, and those of no job by themselves
SELECT tw.prune_ledger('fail', '0');
SELECT count(*) FROM fail_rows WHERE job = 'fail';
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001''; END', job => 'fail never made', batch_id => 'b');
SELECT tw.prune_ledger('fail never made', '0');
SELECT tw.prune_ledger(NULL, '1 day');
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001''; END', job => 'fail', batch_id => 'of a job that there is');
CREATE ROLE tw_test_fail;
SET ROLE tw_test_fail;
SELECT tw.prune_ledger(NULL, '0');
RESET ROLE;
SELECT job, count(*) FROM fail_rows GROUP BY job ORDER BY job;
SELECT tw.prune_ledger(NULL, '0') >= 3 AS pruned;
SELECT job, batch_id FROM fail_rows;
SELECT tw.prune_ledger('fail', '0');
SELECT count(*) FROM fail_rows;
DROP ROLE tw_test_fail;
DROP VIEW fail_rows;
DROP TABLE fail_data;
DROP SEQUENCE fail_attempt;
