-- What cannot run inside the block's transaction is refused before the first
-- statement runs, wherever it stands.
CREATE TABLE refused_t (a int);

-- Behind a write, and in branches that are never taken
SELECT tw.atomic($$
BEGIN ATOMIC
  INSERT INTO refused_t VALUES (1);
  COMMIT;
END$$);
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic($$
BEGIN ATOMIC
  INSERT INTO refused_t VALUES (1);
  IF false THEN
    ROLLBACK;
  END IF;
END$$);
SELECT tw.atomic($$
BEGIN ATOMIC
  DECLARE EXIT HANDLER FOR SQLEXCEPTION SAVEPOINT s;
  INSERT INTO refused_t VALUES (1);
END$$);
SELECT tw.atomic($$
BEGIN ATOMIC
  DECLARE x int DEFAULT 0;
  INSERT INTO refused_t VALUES (1);
  WHILE x > 0 DO
    CASE x WHEN 1 THEN VACUUM refused_t; END CASE;
  END WHILE;
END$$);
\echo :LAST_ERROR_SQLSTATE

-- Transaction control
SELECT tw.atomic('BEGIN ROLLBACK TO SAVEPOINT s; END');
SELECT tw.atomic('BEGIN RELEASE SAVEPOINT s; END');
SELECT tw.atomic('BEGIN START TRANSACTION; END');
SELECT tw.atomic('BEGIN BEGIN TRANSACTION; END');
SELECT tw.atomic('BEGIN ABORT; END');
SELECT tw.atomic($$BEGIN PREPARE TRANSACTION 'x'; END$$);
SELECT tw.atomic($$BEGIN COMMIT PREPARED 'x'; END$$);
SELECT tw.atomic($$BEGIN ROLLBACK PREPARED 'x'; END$$);
SELECT tw.atomic('BEGIN SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; END');

-- What PostgreSQL only runs outside a transaction
SELECT tw.atomic('BEGIN CREATE DATABASE refused_db; END');
SELECT tw.atomic('BEGIN DROP DATABASE refused_db; END');
SELECT tw.atomic('BEGIN ALTER DATABASE refused_db SET TABLESPACE pg_default; END');
SELECT tw.atomic($$BEGIN CREATE TABLESPACE refused_ts LOCATION '/nowhere'; END$$);
SELECT tw.atomic('BEGIN DROP TABLESPACE refused_ts; END');
SELECT tw.atomic('BEGIN CREATE INDEX CONCURRENTLY ON refused_t (a); END');
SELECT tw.atomic('BEGIN DROP INDEX CONCURRENTLY refused_i; END');
SELECT tw.atomic('BEGIN REINDEX TABLE CONCURRENTLY refused_t; END');
SELECT tw.atomic('BEGIN REINDEX (CONCURRENTLY) TABLE refused_t; END');
SELECT tw.atomic('BEGIN REINDEX SCHEMA public; END');
SELECT tw.atomic('BEGIN CLUSTER; END');
SELECT tw.atomic('BEGIN ALTER TABLE refused_t DETACH PARTITION p CONCURRENTLY; END');
SELECT tw.atomic('BEGIN ALTER SYSTEM SET work_mem = 1; END');
SELECT tw.atomic($$BEGIN CREATE SUBSCRIPTION s CONNECTION 'x' PUBLICATION p; END$$);
SELECT tw.atomic('BEGIN DISCARD ALL; END');

-- The client's own stream
SELECT tw.atomic('BEGIN COPY refused_t FROM STDIN; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN COPY refused_t TO STDOUT; END');

-- Their harmless relatives run
SELECT (tw.atomic($$
BEGIN
  ANALYZE refused_t;
  CREATE INDEX refused_i ON refused_t (a);
  REINDEX TABLE refused_t;
  REINDEX INDEX refused_i;
  CLUSTER refused_t USING refused_i;
  DROP INDEX refused_i;
  DISCARD PLANS;
  SET LOCAL work_mem = '1MB';
  SET CONSTRAINTS ALL IMMEDIATE;
  LOCK TABLE refused_t;
END$$)).status;

-- Nothing of what was refused has written
SELECT count(*) FROM refused_t;
DROP TABLE refused_t;
