-- tw.prepare_batch, and what a transaction with batches must be to be prepared
SELECT tw.init_producer('sink', 'one') AS epoch;
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'first', epoch => 1);
SELECT current_setting('max_prepared_transactions') = '0' AS disabled \gset
\if :disabled
SELECT tw.prepare_batch('sink', 'first');
\echo :SQLSTATE
ROLLBACK;
CALL tw.commit_prepared('sink first');
\echo :SQLSTATE
CALL tw.recover('sink', 1);
\echo :SQLSTATE
SELECT * FROM tw.in_doubt;
\quit
\endif
-- the gid: the transaction's id and the names, in characters that need no quotes
SELECT tw.prepare_batch('sink', 'first') AS gid \gset
SELECT :'gid' = 'tw_' || pg_current_xact_id() || '_sink_first' AS named;
-- again, and for another batch of the transaction: the same
SELECT tw.prepare_batch('sink', 'first') = :'gid' AS same;
ROLLBACK;
SELECT tw.create_job('Œuvre d''"art"') \g /dev/null
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'first', epoch => 1);
SELECT status FROM tw.begin_batch('Œuvre d''"art"', repeat('x', 512));
SELECT tw.prepare_batch('Œuvre d''"art"', repeat('x', 512)) AS gid \gset
SELECT regexp_replace(:'gid', '\d+', 'N') AS gid, length(:'gid') < 200 AS fits,
	tw.prepare_batch('sink', 'first') = :'gid' AS same;
PREPARE TRANSACTION :'gid';
SELECT job, left(batch_id, 5) AS batch_id, owner = current_user::regrole AS mine, epoch, fenced, gid = :'gid' AS gid,
	prepared_by = current_user::regrole AS by_me, age < '1 min' AS age, overdue
FROM tw.in_doubt ORDER BY job;
CALL tw.commit_prepared(:'gid');
SELECT job, left(batch_id, 5) AS batch_id FROM tw.ledger WHERE job IN ('sink', 'Œuvre d''"art"') ORDER BY job;
-- what is not open here
SELECT tw.prepare_batch('sink', 'second');
\echo :SQLSTATE
SELECT tw.prepare_batch('sink', 'first');
\echo :SQLSTATE
SELECT tw.prepare_batch('no such job', 'first');
\echo :SQLSTATE
SELECT tw.prepare_batch(NULL, 'first');
\echo :SQLSTATE
SELECT tw.prepare_batch('sink', '');
\echo :SQLSTATE
BEGIN READ ONLY;
SELECT tw.prepare_batch('sink', 'first');
\echo :SQLSTATE
ROLLBACK;
-- committed directly after all: known by its gid as well
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'direct', epoch => 1);
SELECT tw.prepare_batch('sink', 'direct') AS gid \gset
COMMIT;
CALL tw.commit_prepared(:'gid');
-- a mark that was rolled back with a savepoint is made again by PREPARE itself
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'savepoint', epoch => 1);
SAVEPOINT s;
SELECT tw.prepare_batch('sink', 'savepoint') AS gid \gset
ROLLBACK TO s;
PREPARE TRANSACTION :'gid';
SELECT batch_id, gid = :'gid' AS gid FROM tw.in_doubt;
CALL tw.commit_prepared(:'gid');
CALL tw.commit_prepared(:'gid');
-- ... and one that was claimed there is not in it
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'kept', epoch => 1);
SAVEPOINT s;
SELECT status FROM tw.begin_batch('sink', 'dropped', epoch => 1);
SELECT tw.prepare_batch('sink', 'dropped') AS gid \gset
ROLLBACK TO s;
PREPARE TRANSACTION 'sink kept';
SELECT batch_id, gid FROM tw.in_doubt;
CALL tw.commit_prepared('sink kept');
\set VERBOSITY sqlstate
CALL tw.commit_prepared(:'gid');
\set VERBOSITY default
-- a driver's own gid
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'driver', epoch => 1);
SELECT tw.prepare_batch('sink', 'driver') AS gid \gset
PREPARE TRANSACTION '131077_AAAAAAAA_c2luaw==';
SELECT batch_id, gid FROM tw.in_doubt;
COMMIT PREPARED '131077_AAAAAAAA_c2luaw==';
CALL tw.commit_prepared('131077_AAAAAAAA_c2luaw==');
CALL tw.commit_prepared(:'gid');
-- used before: by a batch that is committed; in use: by one in doubt, or by anything else
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'used', epoch => 1);
PREPARE TRANSACTION '131077_AAAAAAAA_c2luaw==';
\echo :SQLSTATE
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'used', epoch => 1);
PREPARE TRANSACTION 'sink used';
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'in use', epoch => 1);
PREPARE TRANSACTION 'sink used';
\echo :SQLSTATE
BEGIN;
PREPARE TRANSACTION 'sink used';
\echo :SQLSTATE
-- one that was rolled back may be used again
CALL tw.abort_prepared('sink used', 'a test');
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'used', epoch => 1);
PREPARE TRANSACTION 'sink used';
CALL tw.commit_prepared('sink used');
-- PostgreSQL's own refusals; the batch can run again
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'refused', epoch => 1);
NOTIFY sink;
PREPARE TRANSACTION 'sink refused';
\echo :SQLSTATE
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'refused', epoch => 1);
CREATE TEMPORARY TABLE refused (v int);
PREPARE TRANSACTION 'sink refused';
\echo :SQLSTATE
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'refused', epoch => 1);
DECLARE held CURSOR WITH HOLD FOR SELECT 1;
PREPARE TRANSACTION 'sink refused';
\echo :SQLSTATE
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'refused', epoch => 1);
SELECT format('PREPARE TRANSACTION %L', repeat('x', 200)) \gexec
SELECT count(*) FROM tw.in_doubt;
SELECT status FROM tw.begin_batch('sink', 'refused', epoch => 1);
-- a job that this transaction has created or changed would be locked with it
BEGIN;
SELECT status FROM tw.begin_batch('new sink', 'first');
SELECT tw.prepare_batch('new sink', 'first');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT status FROM tw.begin_batch('new sink', 'first');
PREPARE TRANSACTION 'sink new';
\echo :SQLSTATE
BEGIN;
SELECT tw.init_producer('sink', 'one') AS epoch;
SELECT status FROM tw.begin_batch('sink', 'late', epoch => 1);
PREPARE TRANSACTION 'sink late';
\echo :SQLSTATE
-- a replaced writer: fenced at PREPARE, in doubt when it was faster
BEGIN;
SELECT status FROM tw.begin_batch('sink', 'old', epoch => 1);
PREPARE TRANSACTION 'sink old';
SELECT tw.init_producer('sink', 'two') AS epoch;
SELECT batch_id, epoch, fenced FROM tw.in_doubt;
CALL tw.commit_prepared('sink old');
SELECT status FROM tw.begin_batch('sink', 'old', epoch => 2);
-- other transactions are none of our business
BEGIN;
PREPARE TRANSACTION 'no batch';
SELECT count(*) FROM tw.in_doubt;
ROLLBACK PREPARED 'no batch';
-- what leaves the ledger takes its gid along
SELECT tw.forget_batch('sink', 'old', 'a test') \g /dev/null
CALL tw.commit_prepared('sink old');
SELECT tw.prune_ledger('sink', '0') > 0 AS pruned;
CALL tw.commit_prepared('sink used');
