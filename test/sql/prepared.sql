-- batches in prepared transactions; with max_prepared_transactions = 0 only the error shows
CREATE TABLE prepared_data (v int);
SELECT tw.init_producer('prep') AS epoch;
BEGIN;
SELECT status FROM tw.begin_batch('prep', 'committed', epoch => 1);
SELECT status FROM tw.finish_batch('1');
INSERT INTO prepared_data VALUES (1);
PREPARE TRANSACTION 'tw_test_1';
BEGIN;
SELECT status FROM tw.begin_batch('prep', 'aborted', epoch => 1);
PREPARE TRANSACTION 'tw_test_2';
-- in doubt: neither committed nor free
SET transactional_writer.claim_wait = off;
DO $$
BEGIN
	PERFORM tw.begin_batch('prep', 'committed');
EXCEPTION WHEN SQLSTATE 'TW003' THEN
	RAISE NOTICE '% %', SQLSTATE, SQLERRM;
END $$;
RESET transactional_writer.claim_wait;
-- nobody waits for it to be fenced
SELECT tw.init_producer('prep') AS epoch;
COMMIT PREPARED 'tw_test_1';
ROLLBACK PREPARED 'tw_test_2';
SELECT status, epoch, result FROM tw.begin_batch('prep', 'committed', epoch => 2);
SELECT status FROM tw.begin_batch('prep', 'aborted', epoch => 2);
SELECT v FROM prepared_data;
-- a replaced writer cannot prepare
BEGIN;
SELECT status FROM tw.begin_batch('prep', 'late', epoch => 2);
SELECT tw.init_producer('prep') AS epoch;
PREPARE TRANSACTION 'tw_test_3';
\echo :SQLSTATE
SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'tw_test%';
-- forgotten in doubt
SELECT status FROM tw.begin_batch('prep', 'forgotten');
BEGIN;
SELECT tw.forget_batch('prep', 'forgotten', 'why');
PREPARE TRANSACTION 'tw_test_4';
SET transactional_writer.claim_wait = off;
DO $$
BEGIN
	PERFORM tw.begin_batch('prep', 'forgotten');
EXCEPTION WHEN SQLSTATE 'TW003' THEN
	RAISE NOTICE '% %', SQLSTATE, SQLERRM;
END $$;
RESET transactional_writer.claim_wait;
COMMIT PREPARED 'tw_test_4';
SELECT status FROM tw.begin_batch('prep', 'forgotten');
-- a version in doubt holds up no other, and is decided as it was prepared
BEGIN;
SELECT status FROM tw.begin_batch('prep', 'v1', version => 1);
PREPARE TRANSACTION 'tw_test_5';
SELECT status FROM tw.begin_batch('prep', 'v2', version => 2);
COMMIT PREPARED 'tw_test_5';
SELECT status FROM tw.begin_batch('prep', 'v1', version => 1);
-- an offset in doubt is waited for
BEGIN;
SELECT tw.commit_offset('prep', 's', '0', NULL, '1');
PREPARE TRANSACTION 'tw_test_6';
SELECT tw.offset('prep', 's', '0') IS NULL AS none;
SET transactional_writer.claim_wait = off;
DO $$
BEGIN
	PERFORM tw.commit_offset('prep', 's', '0', NULL, '2');
EXCEPTION WHEN SQLSTATE 'TW003' THEN
	RAISE NOTICE '% %', SQLSTATE, SQLERRM;
END $$;
RESET transactional_writer.claim_wait;
COMMIT PREPARED 'tw_test_6';
SELECT tw.offset('prep', 's', '0');
DROP TABLE prepared_data;
