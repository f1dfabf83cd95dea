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
-- tw.atomic writes none: its transaction is the caller's
SELECT tw.atomic('BEGIN ATOMIC SIGNAL SQLSTATE ''75001'' SET MESSAGE_TEXT = ''fails in atomic''; END');
SELECT count(*) FROM fail_rows WHERE message = 'fails in atomic';

-- a message of any length and kind
\set VERBOSITY sqlstate
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001'' SET MESSAGE_TEXT = repeat(''fails % "é"'', 1000); END');
\set VERBOSITY default
SELECT length(message), left(message, 11) FROM fail_rows WHERE length(message) > 1000;

-- pruned with their job's ledger, and those of no job by themselves
SELECT tw.prune_ledger('fail', '0');
SELECT count(*) FROM fail_rows WHERE job = 'fail';
CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75001''; END', job => 'fail never made', batch_id => 'b');
SELECT tw.prune_ledger('fail never made', '0');
SELECT tw.prune_ledger(NULL, '1 day');
CREATE ROLE tw_test_fail;
SET ROLE tw_test_fail;
SELECT tw.prune_ledger(NULL, '0');
RESET ROLE;
SELECT job, count(*) FROM fail_rows GROUP BY job ORDER BY job;
SELECT tw.prune_ledger(NULL, '0') >= 3 AS pruned;
SELECT count(*) FROM fail_rows;
DROP ROLE tw_test_fail;
DROP VIEW fail_rows;
DROP TABLE fail_data;
DROP SEQUENCE fail_attempt;
