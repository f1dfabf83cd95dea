-- Each role runs a block under its own rights, whoever ran the same text before in the session
\set VERBOSITY default
\set SHOW_CONTEXT errors
CREATE ROLE regress_psm_owner;
CREATE ROLE regress_psm_other;
GRANT CREATE ON SCHEMA public TO regress_psm_owner;
SET ROLE regress_psm_owner;
CREATE FUNCTION role_secret() RETURNS text STABLE LANGUAGE plpgsql AS $$BEGIN RETURN 'secret'; END$$;
CREATE FUNCTION role_constant() RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RETURN 'constant'; END$$;
CREATE FUNCTION role_in_psm() RETURNS text LANGUAGE psm AS $$BEGIN RETURN role_secret(); END$$;
CREATE TYPE role_type AS (v text);
CREATE FUNCTION role_cast(role_type) RETURNS int LANGUAGE sql AS 'SELECT 7';
RESET ROLE;
CREATE CAST (role_type AS int) WITH FUNCTION role_cast AS ASSIGNMENT;
SET ROLE regress_psm_owner;
REVOKE EXECUTE ON FUNCTION role_secret, role_constant, role_cast FROM PUBLIC;
CREATE FUNCTION role_definer(block text) RETURNS jsonb SECURITY DEFINER LANGUAGE plpgsql AS
$$BEGIN RETURN (tw.atomic(block)).result; END$$;
CREATE FUNCTION role_definer_psm() RETURNS text SECURITY DEFINER LANGUAGE plpgsql AS
$$BEGIN RETURN role_in_psm(); END$$;
SET ROLE regress_psm_other;

-- in one transaction, where expressions stay compiled
BEGIN;
SELECT role_definer('BEGIN RETURN role_secret(); END');
SAVEPOINT s;
SELECT tw.atomic('BEGIN RETURN role_secret(); END');
ROLLBACK TO s;
SELECT role_definer_psm();
SELECT role_in_psm();
ROLLBACK TO s;
SELECT role_definer('BEGIN DECLARE i int; DECLARE r role_type; SET r.v = 1; SET i = r; RETURN i; END');
SELECT tw.atomic('BEGIN DECLARE i int; DECLARE r role_type; SET r.v = 1; SET i = r; RETURN i; END');
ROLLBACK;
-- and in another, where plans are kept
SELECT role_definer('BEGIN RETURN role_constant(); END');
SELECT tw.atomic('BEGIN RETURN role_constant(); END');
SELECT role_definer('BEGIN RETURN role_constant(); END');

RESET ROLE;
DROP CAST (role_type AS int);
DROP OWNED BY regress_psm_owner;
REVOKE ALL ON SCHEMA public FROM regress_psm_owner;
DROP ROLE regress_psm_owner, regress_psm_other;
