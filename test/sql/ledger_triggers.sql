-- Our tables are written without firing triggers: where one would be missed, nothing is written
SELECT tw.create_job('triggers') \g /dev/null
-- a foreign key to the ledger is kept
CREATE TABLE provenance (job text, batch_id text, FOREIGN KEY (batch_id, job) REFERENCES tw.batch);
BEGIN;
SELECT status FROM tw.begin_batch('triggers', 'first');
INSERT INTO provenance VALUES ('triggers', 'first');
COMMIT;
SELECT tw.prune_ledger('triggers', '0');
\echo :SQLSTATE
SELECT tw.forget_batch('triggers', 'first', 'why not');
SELECT batch_id FROM tw.ledger NATURAL JOIN provenance;
-- one that says so may not be removed either
ALTER TABLE provenance DROP CONSTRAINT provenance_batch_id_job_fkey,
	ADD FOREIGN KEY (batch_id, job) REFERENCES tw.batch ON DELETE CASCADE;
SELECT tw.forget_batch('triggers', 'first', 'why not');
SELECT count(*) FROM provenance;
DROP TABLE provenance;
SELECT tw.prune_ledger('triggers', '0');
-- keys do not change: one to a job is not in the way of its epoch
CREATE TABLE provenance (job text REFERENCES tw.job);
SELECT tw.init_producer('triggers');
DROP TABLE provenance;
-- a tool that copies the table while it is written
CREATE FUNCTION copy_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE NOTICE ''copied''; RETURN NULL; END';
CREATE TRIGGER copy_row AFTER INSERT OR UPDATE OR DELETE ON tw.batch FOR EACH ROW EXECUTE FUNCTION copy_row();
SELECT status FROM tw.begin_batch('triggers', 'copied');
\echo :SQLSTATE
-- one that a statement would not fire either
ALTER TABLE tw.batch DISABLE TRIGGER copy_row;
BEGIN;
SELECT status FROM tw.begin_batch('triggers', 'disabled');
COMMIT;
ALTER TABLE tw.batch ENABLE REPLICA TRIGGER copy_row;
BEGIN;
SELECT status FROM tw.begin_batch('triggers', 'replica');
COMMIT;
SET session_replication_role = replica;
SELECT status FROM tw.begin_batch('triggers', 'in a replica');
RESET session_replication_role;
DROP TRIGGER copy_row ON tw.batch;
CREATE TRIGGER copy_row AFTER TRUNCATE ON tw.batch EXECUTE FUNCTION copy_row();
BEGIN;
SELECT status FROM tw.begin_batch('triggers', 'truncate');
COMMIT;
DROP TRIGGER copy_row ON tw.batch;
DROP FUNCTION copy_row;
