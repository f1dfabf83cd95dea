-- CALL tw.recover: commits what is named, aborts the job's others of older epochs, touches nothing else
SELECT current_setting('max_prepared_transactions') = '0' AS disabled \gset
\if :disabled
\quit
\endif
CREATE TABLE recovered (job text, batch text);
SELECT tw.init_producer('recover') AS epoch;
SELECT tw.init_producer('bystander') AS epoch;

-- a batch, prepared under the gid "job batch"
CREATE PROCEDURE batch(job text, batch_id text, epoch bigint) LANGUAGE plpgsql AS $$
BEGIN
	IF (tw.begin_batch(job, batch_id, epoch => epoch)).status <> 'started' THEN
		RAISE '% % is committed', job, batch_id;
	END IF;
	INSERT INTO recovered VALUES (job, batch_id);
END $$;
BEGIN;
CALL batch('recover', 'by gid', 1);
PREPARE TRANSACTION 'recover by gid';
BEGIN;
CALL batch('recover', 'by batch_id', 1);
PREPARE TRANSACTION 'recover by batch_id';
BEGIN;
CALL batch('recover', 'not named', 1);
PREPARE TRANSACTION 'recover not named';
BEGIN;
CALL batch('recover', 'without epoch', NULL);
PREPARE TRANSACTION 'recover without epoch';
BEGIN;
CALL batch('bystander', 'by gid', 1);
PREPARE TRANSACTION 'bystander by gid';
BEGIN;
CALL batch('recover', 'mixed', 1);
CALL batch('bystander', 'mixed', 1);
PREPARE TRANSACTION 'both mixed';
SELECT tw.init_producer('recover') AS epoch;
BEGIN;
CALL batch('recover', 'own', 2);
PREPARE TRANSACTION 'recover own';
-- refused before anything is done: a name that is nothing's, or another job's
CALL tw.recover('recover', 2, '{recover by gid, no such batch}');
\echo :SQLSTATE
CALL tw.recover('recover', 2, ARRAY[repeat('no such batch ', 1000)]);
\echo :SQLSTATE
CALL tw.recover('recover', 2, '{recover by gid, bystander by gid}');
\echo :SQLSTATE
-- by an old epoch, one never given out, none
CALL tw.recover('recover', 1, '{recover by gid}');
\echo :SQLSTATE
CALL tw.recover('recover', 3, '{recover by gid}');
\echo :SQLSTATE
CALL tw.recover('recover', NULL);
\echo :SQLSTATE
CALL tw.recover('recover', 2, NULL);
CALL tw.recover('recover', 2, '{NULL}');
\echo :SQLSTATE
CALL tw.recover('no such job', 2);
\echo :SQLSTATE
SELECT count(*) FROM tw.in_doubt;
CALL tw.recover('recover', 2, '{recover by gid, by batch_id}');
SELECT job, batch_id, epoch, fenced, gid FROM tw.in_doubt ORDER BY job, batch_id;
SELECT * FROM recovered ORDER BY batch;
-- again: nothing is left to do, and what is named is committed
CALL tw.recover('recover', 2, '{recover by gid, by batch_id}');
CALL tw.recover('recover', 2, commit => ARRAY['recover not named']);
\echo :SQLSTATE
-- what belongs to two jobs, by name
CALL tw.recover('recover', 2, '{both mixed, own}');
SELECT job, batch_id FROM tw.in_doubt;
CALL tw.recover('bystander', 1, '{both mixed}');
CALL tw.recover('bystander', 1, '{by gid}');
SELECT * FROM recovered ORDER BY job, batch;
SELECT action, job, batch_id, reason FROM tw.audit_log WHERE job IN ('recover', 'bystander') ORDER BY batch_id;
-- a name that fits two
BEGIN;
CALL batch('recover', 'recover twice', 2);
PREPARE TRANSACTION 'recover once';
BEGIN;
CALL batch('recover', 'once', 2);
PREPARE TRANSACTION 'recover twice';
CALL tw.recover('recover', 2, '{recover twice}');
\echo :SQLSTATE
CALL tw.recover('recover', 2, '{once, recover once}');
-- somebody else's preparation: refused before anything is done
CREATE ROLE regress_recover;
GRANT ALL ON recovered TO regress_recover;
SET ROLE regress_recover;
SELECT tw.init_producer('theirs') AS epoch;
BEGIN;
CALL batch('theirs', '1', 1);
PREPARE TRANSACTION 'theirs 1';
RESET ROLE;
BEGIN;
CALL batch('theirs', '2', 1);
PREPARE TRANSACTION 'theirs 2';
SET ROLE regress_recover;
SELECT tw.init_producer('theirs') AS epoch;
CALL tw.recover('theirs', 2, '{1}');
\echo :SQLSTATE
SELECT batch_id FROM tw.in_doubt ORDER BY batch_id;
RESET ROLE;
CALL tw.recover('theirs', 2, '{1}');
SELECT batch FROM recovered WHERE job = 'theirs';
-- that the other job has come further says nothing of what belongs to both
SELECT tw.init_producer('bystander') AS epoch;
SELECT tw.init_producer('bystander') AS epoch;
SELECT tw.init_producer('bystander') AS epoch;
BEGIN;
CALL batch('recover', 'behind', 2);
CALL batch('bystander', 'ahead', 4);
PREPARE TRANSACTION 'both apart';
SELECT tw.init_producer('recover') AS epoch;
CALL tw.recover('recover', 3);
ROLLBACK PREPARED 'both apart';
DELETE FROM tw.batch WHERE job = 'theirs';
DELETE FROM tw.prepared WHERE job = 'theirs';
DELETE FROM tw.audit WHERE job = 'theirs';
DELETE FROM tw.job WHERE job = 'theirs';
DROP TABLE recovered;
DROP PROCEDURE batch;
DROP ROLE regress_recover;
