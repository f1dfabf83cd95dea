-- jobs belong to roles
CREATE ROLE tw_test_alice;
CREATE ROLE tw_test_team;
CREATE ROLE tw_test_bob IN ROLE tw_test_team;
CREATE ROLE tw_test_carol NOINHERIT IN ROLE tw_test_team;
CREATE ROLE tw_test_eve;
CREATE ROLE tw_test_watch IN ROLE pg_monitor;
INSERT INTO tw.failure (job, batch_id, attempt, sqlstate, message, line, at, role) VALUES
	('own alice', 'f', 1, '40001', 'of her job', 3, now(), 'tw_test_alice'::regrole),
	(NULL, NULL, 1, '40001', 'of no job', 3, now(), 'tw_test_alice'::regrole),
	('own never made', 'f', 1, '23505', 'of a job that was rolled back', 3, now(), 'tw_test_bob'::regrole);

SET ROLE tw_test_alice;
SELECT status FROM tw.begin_batch('own alice', 'b');
SELECT tw.create_job('own alice 2');
SET ROLE tw_test_team;
SELECT tw.init_producer('own team', 'a');
SELECT status FROM tw.begin_batch('own team', 'b', epoch => 1);

-- a member may do all
SET ROLE tw_test_bob;
SELECT status FROM tw.begin_batch('own team', 'b');
SELECT status FROM tw.begin_batch('own team', 'c');
SELECT tw.init_producer('own team', 'a');
SELECT tw.forget_batch('own team', 'c', 'why');
SELECT tw.prune_ledger('own team', '1 day');
SELECT job, owner FROM tw.jobs ORDER BY job;
SELECT job, batch_id FROM tw.ledger ORDER BY 1, 2;
SELECT job, batch_id, message FROM tw.failures ORDER BY 1, 2;
SELECT role, action, job, batch_id FROM tw.audit_log;
-- a member that does not inherit sets the role
SET ROLE tw_test_carol;
SELECT tw.begin_batch('own team', 'b');
\echo :SQLSTATE

-- nobody else may do anything
SET ROLE tw_test_eve;
SELECT tw.begin_batch('own alice', 'b');
SELECT tw.begin_batch('own alice', 'new');
SELECT tw.init_producer('own alice');
SELECT tw.forget_batch('own alice', 'b', 'why');
SELECT tw.prune_ledger('own alice', '0');
SELECT tw.create_job('own alice');
\echo :SQLSTATE
SELECT count(*) FROM tw.jobs;
SELECT count(*) FROM tw.ledger;
SELECT count(*) FROM tw.failures;
SELECT count(*) FROM tw.audit_log;
-- nor see through a leaky function
CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS
	$$BEGIN RAISE NOTICE 'leaked %', $1; RETURN true; END$$;
SELECT count(*) FROM tw.jobs WHERE pg_temp.leak(job);
SELECT count(*) FROM tw.ledger WHERE pg_temp.leak(batch_id);
SELECT count(*) FROM tw.failures WHERE pg_temp.leak(message);
SELECT count(*) FROM tw.audit_log WHERE pg_temp.leak(reason);
-- nor reach the tables
SELECT count(*) FROM tw.job;
SELECT count(*) FROM tw.batch;
SELECT count(*) FROM tw.batch_outcome;
SELECT count(*) FROM tw.failure;
SELECT count(*) FROM tw.audit;
INSERT INTO tw.batch VALUES ('own alice', 'x', NULL, NULL, '5', now());
DELETE FROM tw.ledger;
CREATE TABLE tw.mine ();

-- the current user counts, so a function can claim for its owner
RESET ROLE;
CREATE FUNCTION own_run(batch_id text) RETURNS text LANGUAGE sql SECURITY DEFINER
	SET search_path = pg_catalog, pg_temp
	AS $$SELECT status FROM tw.begin_batch('own alice', batch_id)$$;
ALTER FUNCTION own_run OWNER TO tw_test_alice;
SET ROLE tw_test_eve;
SELECT own_run('by function');
RESET ROLE;

-- a superuser may use any job, a monitor only look
SELECT status FROM tw.begin_batch('own alice', 'by function');
SET ROLE tw_test_watch;
SELECT job, owner FROM tw.jobs WHERE job LIKE 'own%' ORDER BY job;
SELECT job, batch_id FROM tw.ledger WHERE job LIKE 'own%' ORDER BY 1, 2;
SELECT job, message FROM tw.failures WHERE job LIKE 'own%' OR message = 'of no job' ORDER BY 1;
SELECT tw.begin_batch('own alice', 'b');

-- alice sees her failures, with a job and without
SET ROLE tw_test_alice;
SELECT job, batch_id, attempt, sqlstate, message, line FROM tw.failures ORDER BY 1;
RESET ROLE;

DROP FUNCTION own_run, pg_temp.leak;
DELETE FROM tw.failure;
DROP ROLE tw_test_alice, tw_test_team, tw_test_bob, tw_test_carol, tw_test_eve, tw_test_watch;
-- the owner is gone: a superuser may still use the job, the rest may not
SELECT status FROM tw.begin_batch('own team', 'b');
CREATE ROLE tw_test_late;
SET ROLE tw_test_late;
SELECT regexp_replace(owner::text, '\d+', 'N') FROM tw.jobs WHERE job = 'own team';
DO $$
BEGIN
	PERFORM tw.begin_batch('own team', 'b');
EXCEPTION WHEN insufficient_privilege THEN
	RAISE NOTICE 'denied';
END $$;
RESET ROLE;
DROP ROLE tw_test_late;

-- tw.reassign_job: as ALTER ... OWNER TO
CREATE ROLE tw_test_new;
CREATE ROLE tw_test_giver;
CREATE ROLE tw_test_both IN ROLE tw_test_new, tw_test_giver;
SELECT tw.reassign_job('own team', 'tw_test_giver');
SET ROLE tw_test_giver;
SELECT status FROM tw.begin_batch('own team', 'b');
-- not to a role that one is not
SELECT tw.reassign_job('own team', 'tw_test_new');
\echo :SQLSTATE
SELECT tw.reassign_job('own team', current_user::regrole);
SET ROLE tw_test_new;
-- nor by who may not use the job
SELECT tw.reassign_job('own team', 'tw_test_new');
\echo :SQLSTATE
SET ROLE tw_test_both;
SELECT tw.reassign_job('own team', 'tw_test_new');
SET ROLE tw_test_giver;
SELECT tw.begin_batch('own team', 'b');
SELECT count(*) FROM tw.ledger;
SET ROLE tw_test_new;
SELECT status FROM tw.begin_batch('own team', 'b');
SELECT job, owner FROM tw.jobs;
SELECT role, action, reason FROM tw.audit_log WHERE action = 'reassign_job' ORDER BY at;
RESET ROLE;
-- bad input
SELECT tw.reassign_job(NULL, 'tw_test_new');
\echo :SQLSTATE
SELECT tw.reassign_job('own team', NULL);
SELECT tw.reassign_job('own no such job', 'tw_test_new');
\echo :SQLSTATE
SELECT tw.reassign_job('own team', 'tw_test_no_such_role');
\echo :SQLSTATE
SELECT tw.reassign_job('own team', 1::oid::regrole);
\echo :SQLSTATE
BEGIN READ ONLY;
SELECT tw.reassign_job('own team', 'tw_test_new');
\echo :SQLSTATE
ROLLBACK;
-- rolled back
BEGIN;
SELECT tw.reassign_job('own team', 'tw_test_giver');
ROLLBACK;
SELECT owner FROM tw.jobs WHERE job = 'own team';

-- a role that is renamed keeps its jobs
ALTER ROLE tw_test_new RENAME TO tw_test_renamed;
SELECT owner FROM tw.jobs WHERE job = 'own team';
SET ROLE tw_test_renamed;
SELECT status FROM tw.begin_batch('own team', 'b');
RESET ROLE;
-- REASSIGN OWNED and DROP OWNED know nothing of jobs: all jobs of a role are given away like this
REASSIGN OWNED BY tw_test_renamed TO tw_test_giver;
DROP OWNED BY tw_test_renamed;
SELECT job, owner FROM tw.jobs WHERE owner = 'tw_test_renamed'::regrole;
SELECT tw.reassign_job(job, 'tw_test_giver') FROM tw.jobs WHERE owner = 'tw_test_renamed'::regrole;
-- who is dropped with jobs leaves them to superusers
SELECT tw.create_job('own orphan');
SELECT tw.reassign_job('own orphan', 'tw_test_renamed');
DROP ROLE tw_test_renamed;
SET ROLE tw_test_giver;
SELECT job FROM tw.jobs ORDER BY 1;
\set VERBOSITY terse
SELECT tw.begin_batch('own orphan', 'b');
\set VERBOSITY default
DO $$
DECLARE
	detail text;
	hint text;
BEGIN
	PERFORM tw.begin_batch('own orphan', 'b');
EXCEPTION WHEN insufficient_privilege THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RAISE NOTICE '% / %', regexp_replace(detail, '\d+', 'N'), hint;
END $$;
RESET ROLE;
-- how to find them
SELECT job FROM tw.jobs j WHERE job LIKE 'own%' AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = j.owner) ORDER BY 1;
SELECT tw.reassign_job('own orphan', 'tw_test_giver');
SELECT job, owner FROM tw.jobs WHERE owner = 'tw_test_giver'::regrole ORDER BY 1;
SELECT tw.reassign_job(job, current_user::regrole) FROM tw.jobs WHERE owner = 'tw_test_giver'::regrole;
DROP ROLE tw_test_giver, tw_test_both;
