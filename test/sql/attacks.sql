-- What a user may prepare so that somebody else's claim, or the extension, does his work:
-- none of it gets between a claim and the ledger, and nothing runs with more rights than
-- its caller has.
CREATE ROLE tw_test_mallory;
CREATE ROLE tw_test_victim;
CREATE SCHEMA atk;
GRANT ALL ON SCHEMA atk TO tw_test_mallory;
GRANT USAGE ON SCHEMA atk TO tw_test_victim;
CREATE SCHEMA AUTHORIZATION tw_test_mallory;
CREATE TABLE atk.caught (what text, as_user name DEFAULT current_user);
GRANT ALL ON atk.caught TO PUBLIC;

-- ---------- functions, operators and casts that shadow ours ----------
SET ROLE tw_test_mallory;
SET search_path = atk;
CREATE FUNCTION atk.catch(what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO atk.caught VALUES (what);
	RETURN true;
END $$;
CREATE FUNCTION atk.texteq(text, text) RETURNS boolean LANGUAGE sql AS $$SELECT atk.catch('=')$$;
CREATE OPERATOR atk.= (LEFTARG = text, RIGHTARG = text, FUNCTION = atk.texteq);
CREATE FUNCTION atk.xid8eq(xid8, xid8) RETURNS boolean LANGUAGE sql AS $$SELECT atk.catch('= of xid8')$$;
CREATE OPERATOR atk.= (LEFTARG = xid8, RIGHTARG = xid8, FUNCTION = atk.xid8eq);
CREATE FUNCTION atk.pg_has_role(oid, text) RETURNS boolean LANGUAGE sql AS $$SELECT atk.catch('pg_has_role')$$;
CREATE FUNCTION atk.pg_has_role(regrole, text) RETURNS boolean LANGUAGE sql AS $$SELECT atk.catch('pg_has_role')$$;
CREATE FUNCTION atk.now() RETURNS timestamptz LANGUAGE sql AS $$SELECT pg_catalog.now() FROM atk.catch('now')$$;
CREATE FUNCTION atk.to_jsonb(anyelement) RETURNS jsonb LANGUAGE sql AS $$SELECT '1'::jsonb FROM atk.catch('to_jsonb')$$;
CREATE DOMAIN atk.text AS pg_catalog.text CHECK (atk.catch('domain text'));
CREATE DOMAIN atk.jsonb AS pg_catalog.jsonb CHECK (atk.catch('domain jsonb'));
CREATE TABLE atk.batch (job pg_catalog.text, batch_id pg_catalog.text);
CREATE TABLE atk.job (job pg_catalog.text, owner regrole);
CREATE TABLE atk.outcome (status pg_catalog.text);
GRANT ALL ON atk.batch, atk.job, atk.outcome TO PUBLIC;
RESET ROLE;
RESET search_path;

SET ROLE tw_test_victim;
SET search_path = atk, pg_catalog;
CREATE TEMP TABLE batch (job pg_catalog.text, batch_id pg_catalog.text);
CREATE TEMP TABLE job (job pg_catalog.text);
CREATE TEMP TABLE batch_outcome ();
CREATE TEMP TABLE source_offset ();
SET search_path = pg_temp, atk, pg_catalog;
SELECT status FROM tw.begin_batch('atk', 'first', 'f', version => 1);
SELECT status FROM tw.begin_batch('atk', 'first', 'f', version => 1);
BEGIN;
SELECT status FROM tw.begin_batch('atk', 'second', 'f', version => 2);
SELECT status, result FROM tw.finish_batch('{"a": 1}');
SELECT tw.commit_offset('atk', 's', 'p', NULL, '1');
SELECT tw.commit_offset('atk', 's', 'p', '1', '2');
COMMIT;
SELECT tw.offset('atk', 's', 'p');
SELECT tw.init_producer('atk', 'i');
SELECT status, result FROM tw.atomic('BEGIN ATOMIC DECLARE x INT DEFAULT 1; SET x = x + 1; RETURN x; END', '{}',
	'atk', 'block', 1);
SELECT status, result FROM tw.atomic('BEGIN ATOMIC DECLARE x INT DEFAULT 1; SET x = x + 1; RETURN x; END', '{}',
	'atk', 'block', 1);
SELECT tw.forget_batch('atk', 'second', 'why');
SELECT job, owner FROM tw.jobs;
SELECT batch_id, rows FROM tw.ledger ORDER BY batch_id;
SELECT job, "position" FROM tw.offsets;
SELECT action, reason FROM tw.audit_log;
SELECT count(*) FROM tw.failures;
SELECT tw.prune_ledger('atk', '0');
RESET search_path;
RESET ROLE;
SELECT count(*) AS caught FROM atk.caught;
DROP TABLE pg_temp.batch, pg_temp.job, pg_temp.batch_outcome, pg_temp.source_offset;

-- tw in front of the search_path brings our names, and hides none of the user's by surprise
SET ROLE tw_test_victim;
SET search_path = tw, pg_catalog;
SELECT status FROM begin_batch('atk', 'tw in front');
SELECT status, result FROM atomic('BEGIN ATOMIC RETURN (SELECT count(*) FROM ledger WHERE batch_id = ''tw in front''); END');
SELECT count(*) FROM batch;
RESET search_path;
RESET ROLE;

-- ---------- whose rights: the current user's, always ----------
SET ROLE tw_test_victim;
SELECT tw.create_job('atk victim');
SELECT status FROM tw.begin_batch('atk victim', 'b');
RESET ROLE;
-- the name of another's job: neither used nor made again
SET ROLE tw_test_mallory;
SELECT tw.begin_batch('atk victim', 'b');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN ATOMIC END', '{}', 'atk victim', 'b');
\echo :SQLSTATE
CALL tw.run('BEGIN ATOMIC END', '{}', 'atk victim', 'c');
\echo :SQLSTATE
SELECT tw.create_job('atk victim');
\echo :SQLSTATE
SELECT tw.commit_offset('atk victim', 's', 'p', NULL, '1');
SELECT tw.offset('atk victim', 's', 'p');
SELECT tw.reassign_job('atk victim', 'tw_test_mallory');
\echo :SQLSTATE
-- his own failures he may see, the job's not; and they name no job whose owner would have them
SELECT job, batch_id, sqlstate FROM tw.failures WHERE message LIKE '%"atk victim"';
SELECT tw.prune_ledger('atk victim', '0');
-- nor by a name that only looks the same
SELECT status FROM tw.begin_batch('atk victim ', 'b');
RESET ROLE;
SELECT job, owner FROM tw.jobs WHERE job LIKE 'atk victim%' ORDER BY job;

-- SET ROLE counts, the login role does not, nor is a block a way around
SET SESSION AUTHORIZATION tw_test_victim;
SET ROLE tw_test_victim;
SELECT status FROM tw.begin_batch('atk victim', 'b');
RESET SESSION AUTHORIZATION;
SET ROLE tw_test_mallory;
SELECT tw.atomic('BEGIN ATOMIC SET LOCAL ROLE tw_test_mallory; SELECT tw.begin_batch(''atk victim'', ''x''); END');
\echo :SQLSTATE
RESET ROLE;

-- SECURITY DEFINER: the function's owner counts inside, its caller around it
GRANT CREATE ON SCHEMA atk TO tw_test_victim;
SET ROLE tw_test_victim;
CREATE FUNCTION atk.for_all(batch pg_catalog.text) RETURNS pg_catalog.text LANGUAGE sql SECURITY DEFINER
	SET search_path = pg_catalog, pg_temp
	AS $$SELECT status FROM tw.begin_batch('atk victim', batch)$$;
SET ROLE tw_test_mallory;
SELECT atk.for_all('offered');
SELECT tw.begin_batch('atk victim', 'not offered');
-- what the function began its caller can commit, but not put a result into
BEGIN;
SELECT atk.for_all('offered 2');
SAVEPOINT s;
SELECT status, job FROM tw.finish_batch('"by the caller"');
\echo :SQLSTATE
ROLLBACK TO s;
COMMIT;
-- his own code gets the rights of whoever calls it, not of the extension
CREATE FUNCTION atk.mine() RETURNS name LANGUAGE sql AS $$SELECT current_user$$;
SELECT result FROM tw.atomic('BEGIN ATOMIC RETURN atk.mine(); END');
SELECT tw.atomic('BEGIN ATOMIC INSERT INTO tw.batch VALUES (''atk victim'', ''x'', NULL, NULL, ''5'', now()); END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN ATOMIC DELETE FROM tw.source_offset; END');
\echo :SQLSTATE
RESET ROLE;

-- ---------- arguments that run code when they are looked at ----------
SET ROLE tw_test_mallory;
CREATE DOMAIN atk.sly AS pg_catalog.text CHECK (atk.catch('check as ' || current_user));
RESET ROLE;
TRUNCATE atk.caught;
SET ROLE tw_test_victim;
SELECT status FROM tw.begin_batch('atk victim', 'b'::atk.sly);
SELECT tw.commit_offset('atk victim'::atk.sly, 's', 'p', NULL, '1'::atk.sly);
SELECT status FROM tw.atomic('BEGIN ATOMIC DECLARE x atk.sly DEFAULT :v; END', '{"v": "v"}');
RESET ROLE;
SELECT DISTINCT what, as_user FROM atk.caught ORDER BY 1, 2;

-- ---------- triggers on the target: as the writer, and no further ----------
SET ROLE tw_test_mallory;
CREATE TABLE tw_test_mallory.target (v int);
GRANT ALL ON tw_test_mallory.target TO tw_test_victim;
GRANT USAGE ON SCHEMA tw_test_mallory TO tw_test_victim;
CREATE FUNCTION tw_test_mallory.grab() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO atk.caught VALUES ('trigger');
	BEGIN
		DELETE FROM tw.batch;
	EXCEPTION WHEN insufficient_privilege THEN
		INSERT INTO atk.caught VALUES ('denied');
	END;
	-- within the writer's transaction: his batch can not be claimed, finished twice or forgotten
	BEGIN
		PERFORM tw.begin_batch('atk victim', 'triggered');
	EXCEPTION WHEN SQLSTATE 'TW003' THEN
		INSERT INTO atk.caught VALUES ('claimed already');
	END;
	BEGIN
		PERFORM tw.forget_batch('atk victim', 'triggered', 'trigger');
	EXCEPTION WHEN object_in_use THEN
		INSERT INTO atk.caught VALUES ('not forgotten');
	END;
	RETURN NEW;
END $$;
CREATE TRIGGER grab BEFORE INSERT ON tw_test_mallory.target FOR EACH ROW EXECUTE FUNCTION tw_test_mallory.grab();
RESET ROLE;
TRUNCATE atk.caught;
SET ROLE tw_test_victim;
SELECT status, rows FROM tw.atomic('BEGIN ATOMIC INSERT INTO tw_test_mallory.target VALUES (1); END', '{}',
	'atk victim', 'triggered');
SELECT status, rows FROM tw.atomic('BEGIN ATOMIC INSERT INTO tw_test_mallory.target VALUES (1); END', '{}',
	'atk victim', 'triggered');
RESET ROLE;
SELECT what, as_user FROM atk.caught ORDER BY 1;
-- users can put none on our tables
SET ROLE tw_test_mallory;
CREATE TRIGGER grab BEFORE INSERT ON tw.batch FOR EACH ROW EXECUTE FUNCTION tw_test_mallory.grab();
\echo :SQLSTATE
CREATE RULE grab AS ON INSERT TO tw.batch DO INSTEAD NOTHING;
CREATE POLICY grab ON tw.batch USING (true);
CREATE INDEX ON tw.batch (atk.catch(batch_id));
ALTER TABLE tw.batch DISABLE TRIGGER ALL;
CREATE FUNCTION tw.extra() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION tw.begin_batch(pg_catalog.text, pg_catalog.text, pg_catalog.text, bigint, bigint) SET search_path = atk;
CREATE OR REPLACE VIEW tw.jobs AS SELECT 1;
DROP FUNCTION tw.signal(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text);
RESET ROLE;

-- ---------- direct DML without rights ----------
SET ROLE tw_test_mallory;
INSERT INTO tw.job VALUES ('atk forged', 'tw_test_victim', 0, NULL, NULL, NULL, now());
\echo :SQLSTATE
UPDATE tw.job SET owner = 'tw_test_mallory' WHERE job = 'atk victim';
DELETE FROM tw.batch;
TRUNCATE tw.batch;
INSERT INTO tw.batch_outcome VALUES ('5', 'atk victim', 'b', 0, now(), 1, NULL, NULL);
INSERT INTO tw.audit VALUES (now(), 'postgres', 'forget_batch', 'atk victim', 'b', 'forged');
INSERT INTO tw.source_offset VALUES ('atk victim', 's', 'p', '0', '5', now());
\copy tw.batch FROM '/dev/null'
SELECT * FROM tw.source_offset;
UPDATE tw.jobs SET owner = 'tw_test_mallory';
DELETE FROM tw.offsets;
BEGIN;
LOCK TABLE tw.batch;
ROLLBACK;
CREATE TABLE atk.child () INHERITS (tw.batch);
CREATE TABLE atk.fk (job pg_catalog.text REFERENCES tw.job);
ALTER EXTENSION transactional_writer ADD TABLE atk.caught;
RESET ROLE;

-- ---------- views ----------
-- a leaky function sees no rows but its caller's, whatever its cost
CREATE TABLE public.atk_target (v int);
GRANT INSERT ON public.atk_target TO tw_test_victim;
SET ROLE tw_test_victim;
BEGIN;
SELECT status FROM tw.open_batch('atk victim staging', 'staged', '[{"table": "public.atk_target", "mode": "append"}]');
SELECT status FROM tw.attach_task('atk victim staging', 'staged', 'task');
SELECT tw.commit_task('"secret"');
COMMIT;
SET ROLE tw_test_mallory;
CREATE FUNCTION atk.leak(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
	$$BEGIN RAISE NOTICE 'leaked %', $1; RETURN true; END$$;
SELECT job FROM tw.jobs WHERE atk.leak(job) ORDER BY 1;
SELECT count(*) FROM tw.ledger WHERE atk.leak(batch_id) AND atk.leak(result) AND job = 'atk victim';
SELECT count(*) FROM tw.offsets WHERE atk.leak("position");
SELECT count(*) FROM tw.audit_log WHERE atk.leak(reason);
SELECT count(*) FROM tw.failures WHERE atk.leak(message) AND role <> 'tw_test_mallory'::regrole;
SELECT count(*) FROM tw.staged_batches WHERE atk.leak(batch_id);
SELECT count(*) FROM tw.staged_batches WHERE atk.leak(logged);
SELECT count(*) FROM tw.staged_tasks WHERE atk.leak(message);
RESET ROLE;
SELECT tw.abort_batch('atk victim staging', 'staged', reason => 'test');
DROP TABLE public.atk_target;
SET ROLE tw_test_mallory;
-- a view of his over ours shows each reader what that reader may see, and no more
CREATE VIEW atk.peek AS SELECT job, batch_id FROM tw.ledger WHERE job LIKE 'atk victim%' AND atk.catch('view');
GRANT SELECT ON atk.peek TO PUBLIC;
RESET ROLE;
SET ROLE tw_test_victim;
SELECT * FROM atk.peek ORDER BY 1, 2;
RESET ROLE;
-- nor does an error message tell: a division that fails only where the row is another's
SET ROLE tw_test_mallory;
SELECT count(*) FROM tw.ledger WHERE 1 / (CASE job WHEN 'atk victim' THEN 0 ELSE 1 END) = 1;
SELECT count(*) FROM tw.jobs WHERE job::int = 5 AND owner <> 'tw_test_mallory'::regrole;
RESET ROLE;

-- ---------- settings in functions ----------
SET ROLE tw_test_mallory;
CREATE FUNCTION atk.hurried(batch pg_catalog.text) RETURNS pg_catalog.text LANGUAGE sql
	SET transactional_writer.claim_wait = off SET transactional_writer.history = off
	AS $$SELECT status FROM tw.begin_batch('atk mallory', batch)$$;
SELECT atk.hurried('b');
SHOW transactional_writer.claim_wait;
CREATE FUNCTION atk.unset() RETURNS pg_catalog.text LANGUAGE sql SET transactional_writer.nope = 1 AS 'SELECT 1';
\echo :SQLSTATE
RESET ROLE;

-- ---------- row security and column rights hold inside blocks ----------
CREATE TABLE atk.guarded (owner name, v int, secret int DEFAULT 42);
INSERT INTO atk.guarded VALUES ('tw_test_mallory', 1), ('tw_test_victim', 2);
ALTER TABLE atk.guarded ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON atk.guarded USING (owner = current_user);
GRANT SELECT (owner, v), UPDATE (v), INSERT (owner, v), DELETE ON atk.guarded TO tw_test_mallory, tw_test_victim;
-- the same block by three roles in one session: each sees its own, cached or not
\set block 'BEGIN ATOMIC RETURN (SELECT array_agg(v ORDER BY v) FROM atk.guarded); END'
SELECT result FROM tw.atomic(:'block');
SET ROLE tw_test_mallory;
SELECT result FROM tw.atomic(:'block');
SET ROLE tw_test_victim;
SELECT result FROM tw.atomic(:'block');
RESET ROLE;
SELECT result FROM tw.atomic(:'block');
SET ROLE tw_test_mallory;
SELECT rows FROM tw.atomic('BEGIN ATOMIC UPDATE atk.guarded SET v = v + 10; DELETE FROM atk.guarded WHERE owner <> current_user; END');
SELECT tw.atomic('BEGIN ATOMIC RETURN (SELECT max(secret) FROM atk.guarded); END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN ATOMIC UPDATE atk.guarded SET secret = 0; END');
SELECT tw.atomic('BEGIN ATOMIC INSERT INTO atk.guarded (owner, v) VALUES (''tw_test_victim'', 3); END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN ATOMIC EXECUTE IMMEDIATE ''SELECT secret FROM atk.guarded''; END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN ATOMIC MERGE INTO atk.guarded g USING (VALUES (1)) s (v) ON g.v = s.v WHEN NOT MATCHED THEN
	INSERT (owner, v) VALUES (''tw_test_victim'', 4); END');
\set VERBOSITY sqlstate
SELECT tw.atomic('BEGIN ATOMIC COPY atk.guarded TO ''/tmp/tw_test_attack''; END');
\set VERBOSITY default
CALL tw.run('BEGIN ATOMIC UPDATE atk.guarded SET secret = 0; END');
RESET ROLE;
SELECT owner, v, secret FROM atk.guarded ORDER BY 1;

-- ---------- event triggers ----------
-- a user can make none; one of a superuser's fires for DDL in a block as outside, as the user
SET ROLE tw_test_mallory;
CREATE FUNCTION atk.on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO atk.caught VALUES (tg_tag);
END $$;
CREATE EVENT TRIGGER tw_test_ddl ON ddl_command_end EXECUTE FUNCTION atk.on_ddl();
\echo :SQLSTATE
RESET ROLE;
TRUNCATE atk.caught;
CREATE EVENT TRIGGER tw_test_ddl ON ddl_command_end EXECUTE FUNCTION atk.on_ddl();
SET ROLE tw_test_mallory;
SELECT status FROM tw.atomic('BEGIN ATOMIC CREATE TABLE atk.made (v int); END', '{}', 'atk mallory', 'ddl');
RESET ROLE;
DROP EVENT TRIGGER tw_test_ddl;
SELECT what, as_user FROM atk.caught;

-- nothing that was tried has left a trace
SELECT count(*) FROM tw.audit_log WHERE job = 'atk victim';
SELECT batch_id, fingerprint IS NULL AS plain FROM tw.ledger WHERE job = 'atk victim' ORDER BY 1;
SELECT count(*) FROM tw.ledger l WHERE job LIKE 'atk%' AND NOT EXISTS (SELECT FROM tw.jobs j WHERE j.job = l.job);

SET client_min_messages = warning;
SELECT tw.reassign_job(job, current_user::regrole) FROM tw.jobs WHERE owner IN ('tw_test_mallory'::regrole, 'tw_test_victim'::regrole);
DROP OWNED BY tw_test_mallory, tw_test_victim CASCADE;
DROP SCHEMA atk CASCADE;
DROP ROLE tw_test_mallory, tw_test_victim;
DELETE FROM tw.failure;
