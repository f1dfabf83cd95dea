-- Compiled blocks are kept for the session; whatever changes around them is seen
CREATE TABLE t (n int, v text);
INSERT INTO t VALUES (1, 'one');
SELECT 'BEGIN DECLARE r t; FOR x AS SELECT * FROM t DO SELECT x.* INTO r; END FOR; RETURN r; END' AS rows,
	'BEGIN DECLARE c int; SELECT count(*) INTO c FROM t; INSERT INTO t (n) SELECT max(n) + 1 FROM t; RETURN c; END' AS grow,
	'BEGIN DECLARE a int DEFAULT 0; SET a = f(20) + a; RETURN a; END' AS calls \gset
-- a table dropped and made again between two runs, with other columns
SELECT result FROM tw.atomic(:'rows');
SELECT result FROM tw.atomic(:'grow');
DROP TABLE t;
SELECT tw.atomic(:'grow');
\echo :SQLSTATE
SELECT tw.atomic(:'rows');
\echo :SQLSTATE
CREATE TABLE t (v date, n numeric, w int DEFAULT 3);
INSERT INTO t VALUES ('2026-11-29', 1.5);
SELECT result FROM tw.atomic(:'rows');
SELECT result FROM tw.atomic(:'grow');
SELECT * FROM t;
-- a column's type changed, one dropped, one added, one renamed
ALTER TABLE t ALTER n TYPE int;
SELECT result FROM tw.atomic(:'grow');
SELECT result FROM tw.atomic(:'rows');
ALTER TABLE t DROP v;
SELECT result FROM tw.atomic(:'rows');
ALTER TABLE t ADD v bool DEFAULT true;
SELECT result FROM tw.atomic(:'rows');
ALTER TABLE t RENAME n TO m;
SELECT tw.atomic(:'grow');
\echo :SQLSTATE
ALTER TABLE t RENAME m TO n;
SELECT result FROM tw.atomic(:'grow');
-- an index made and dropped, statistics, a view replaced
CREATE INDEX i ON t (n);
ANALYZE t;
SELECT result FROM tw.atomic(:'grow');
DROP INDEX i;
SELECT result FROM tw.atomic(:'grow');
DROP TABLE t;
CREATE VIEW t AS SELECT 1 AS n;
SELECT result FROM tw.atomic(:'rows');
CREATE OR REPLACE VIEW t AS SELECT 2 AS n, 'x' AS more;
SELECT result FROM tw.atomic(:'rows');
DROP VIEW t;

-- a function replaced, and replaced in the block itself
CREATE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
SELECT result FROM tw.atomic(:'calls');
CREATE OR REPLACE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 2';
SELECT result FROM tw.atomic(:'calls');
DROP FUNCTION f(int);
SELECT tw.atomic(:'calls');
\echo :SQLSTATE
CREATE FUNCTION f(numeric) RETURNS numeric LANGUAGE plpgsql STABLE AS 'BEGIN RETURN $1 * 3; END';
SELECT result FROM tw.atomic(:'calls');
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a, b int;
	SET a = f(1);
	CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT -1';
	SET b = f(1);
	RETURN jsonb_build_array(a, b);
END$$);
DROP FUNCTION f(int), f(numeric);

-- a temporary table made in each run
SELECT result FROM generate_series(1, 5) g, LATERAL tw.atomic($$BEGIN
	DECLARE total int;
	CREATE TEMP TABLE tmp (x int, y int);
	INSERT INTO tmp SELECT s, s FROM generate_series(1, :n) s;
	UPDATE tmp SET y = y * 2 WHERE x % 2 = 0;
	FOR r AS SELECT * FROM tmp WHERE x = 1 DO DELETE FROM tmp WHERE x = r.y; END FOR;
	SELECT sum(y) INTO total FROM tmp;
	DROP TABLE tmp;
	RETURN total;
END$$, jsonb_build_object('n', g));
-- ... and its type of row as a variable's
CREATE TEMP TABLE tmp (a int);
SELECT result FROM tw.atomic('BEGIN DECLARE r tmp; SET r.a = 1; RETURN r; END');
DROP TABLE tmp;
CREATE TEMP TABLE tmp (b text, a text);
SELECT result FROM tw.atomic('BEGIN DECLARE r tmp; SET r.a = 1; RETURN r; END');
DROP TABLE tmp;
SELECT tw.atomic('BEGIN DECLARE r tmp; SET r.a = 1; RETURN r; END');
\echo :SQLSTATE

-- types: a domain's constraint changed, an enum's label added, a type dropped and made again
CREATE DOMAIN small AS int CHECK (VALUE < 10);
SELECT result FROM tw.atomic('BEGIN DECLARE s small DEFAULT 5; SET s = s + 4; RETURN s; END');
ALTER DOMAIN small ADD CHECK (VALUE < 8);
SELECT tw.atomic('BEGIN DECLARE s small DEFAULT 5; SET s = s + 4; RETURN s; END');
\echo :SQLSTATE
DROP DOMAIN small;
CREATE DOMAIN small AS text;
SELECT tw.atomic('BEGIN DECLARE s small DEFAULT 5; SET s = s + 4; RETURN s; END');
\echo :SQLSTATE
DROP DOMAIN small;
CREATE DOMAIN small AS numeric(3,1);
SELECT result FROM tw.atomic('BEGIN DECLARE s small DEFAULT 5; SET s = s + 4; RETURN s; END');
DROP DOMAIN small;

-- search_path: the same text means other tables and other types
CREATE SCHEMA a;
CREATE SCHEMA b;
CREATE TABLE a.x (n int);
CREATE TABLE b.x (n text, m text);
CREATE DOMAIN a.d AS int;
CREATE DOMAIN b.d AS text;
INSERT INTO a.x VALUES (1);
INSERT INTO b.x VALUES ('b', 'b');
SELECT 'BEGIN DECLARE v d DEFAULT 7; DECLARE r x; SELECT * INTO r FROM x; RETURN jsonb_build_array(v, r); END' AS look \gset
SET search_path TO a;
SELECT result FROM tw.atomic(:'look');
SET search_path TO b;
SELECT result FROM tw.atomic(:'look');
SET search_path TO a;
SELECT result FROM tw.atomic(:'look');
-- ... changed in the block
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 0;
	DECLARE seen text DEFAULT '';
	WHILE n < 3 DO
		SET n = n + 1;
		FOR r AS SELECT * FROM x DO
			SET seen = seen || to_jsonb(r);
		END FOR;
		SET LOCAL search_path TO b;
	END WHILE;
	RETURN seen;
END$$);
-- ... the same setting, but another schema of the user's own
CREATE ROLE psm_one;
CREATE ROLE psm_two;
CREATE SCHEMA psm_one AUTHORIZATION psm_one;
CREATE SCHEMA psm_two AUTHORIZATION psm_two;
CREATE TABLE psm_one.x (n int);
CREATE TABLE psm_two.x (n text, m text);
CREATE DOMAIN psm_one.d AS int;
CREATE DOMAIN psm_two.d AS text;
INSERT INTO psm_one.x VALUES (1);
INSERT INTO psm_two.x VALUES ('two', 'two');
GRANT SELECT ON psm_one.x TO psm_one;
GRANT SELECT ON psm_two.x TO psm_two;
SET search_path TO "$user";
SET ROLE psm_one;
SELECT result FROM tw.atomic(:'look');
SET ROLE psm_two;
SELECT result FROM tw.atomic(:'look');
SET ROLE psm_one;
SELECT result FROM tw.atomic(:'look');
RESET ROLE;
-- two roles: rights are those of who runs it
SET search_path TO a;
GRANT USAGE ON SCHEMA a TO psm_one, psm_two;
GRANT SELECT ON a.x TO psm_one;
SELECT 'BEGIN DECLARE n int; SELECT count(*) INTO n FROM a.x; RETURN jsonb_build_array(n, current_user); END' AS who \gset
SET ROLE psm_one;
SELECT result FROM tw.atomic(:'who');
SET ROLE psm_two;
SELECT tw.atomic(:'who');
\echo :SQLSTATE
SET ROLE psm_one;
SELECT result FROM tw.atomic(:'who');
RESET ROLE;
REVOKE SELECT ON a.x FROM psm_one;
SET ROLE psm_one;
SELECT tw.atomic(:'who');
\echo :SQLSTATE
RESET ROLE;
-- row security follows the role
ALTER TABLE a.x ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON a.x USING (current_user = 'psm_two');
GRANT SELECT ON a.x TO psm_one, psm_two;
SET ROLE psm_one;
SELECT result FROM tw.atomic(:'who');
SET ROLE psm_two;
SELECT result FROM tw.atomic(:'who');
SET ROLE psm_one;
SELECT result FROM tw.atomic(:'who');
RESET ROLE;
RESET search_path;

-- a small cache, and none: more blocks than it holds, inside one another
SET transactional_writer.block_cache = 2;
CREATE FUNCTION nest(n int) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN (tw.atomic(format('BEGIN DECLARE r jsonb; DECLARE a int DEFAULT %s; IF a > 0 THEN SET r = nest(a - 1); END IF; RETURN jsonb_build_array(a, r); END', n))).result;
END$$;
SELECT nest(5);
SELECT nest(5);
SELECT count(*) FROM (SELECT result FROM generate_series(1, 100) g, LATERAL tw.atomic(format('BEGIN RETURN %s; END', g % 7)) OFFSET 0) s WHERE result IS NOT NULL;
SET transactional_writer.block_cache = 0;
SELECT nest(5);
SELECT result FROM generate_series(1, 3) g, LATERAL tw.atomic('BEGIN RETURN 1; END');
RESET transactional_writer.block_cache;
SELECT nest(5);
DROP FUNCTION nest;
-- the same text with an array and with a string for a parameter
SELECT jsonb_agg(result) FROM (VALUES ('{"x": [1]}'), ('{"x": "1"}'), ('{"x": {"k": 1}}'), ('{"x": 1}'), ('{"x": [2]}')) v (p),
	LATERAL tw.atomic('BEGIN RETURN jsonb_build_array(:x, :x::text); END', p::jsonb);
-- DISCARD
DISCARD PLANS;
SELECT result FROM tw.atomic('BEGIN RETURN 1; END');
DISCARD ALL;
SELECT result FROM tw.atomic('BEGIN RETURN 1; END');
-- an error half-way leaves the compiled block as good as it was
CREATE TABLE e (n int CHECK (n < 3));
SELECT 'BEGIN DECLARE a int DEFAULT 10 / (:n - 1); INSERT INTO e VALUES (:n); RETURN a; END' AS half \gset
SELECT result FROM tw.atomic(:'half', '{"n": 2}');
SELECT tw.atomic(:'half', '{"n": 1}');
SELECT tw.atomic(:'half', '{"n": 3}');
SELECT result FROM tw.atomic(:'half', '{"n": 0}');

DROP TABLE e;
DROP SCHEMA a, b, psm_one, psm_two CASCADE;
DROP ROLE psm_one, psm_two;

-- the same search_path may be another one by now
CREATE SCHEMA cache_first;
CREATE DOMAIN cache_first.number AS int CHECK (VALUE < 0);
CREATE SCHEMA cache_second;
CREATE DOMAIN cache_second.number AS int;
CREATE ROLE regress_tw_cache;
GRANT USAGE ON SCHEMA cache_second TO regress_tw_cache;
SET search_path = cache_first, cache_second;
SET ROLE regress_tw_cache;
SELECT result FROM tw.atomic('BEGIN DECLARE v number DEFAULT 5; RETURN v; END');
RESET ROLE;
GRANT USAGE ON SCHEMA cache_first TO regress_tw_cache;
SET ROLE regress_tw_cache;
SELECT result FROM tw.atomic('BEGIN DECLARE v number DEFAULT 5; RETURN v; END');
RESET ROLE;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA cache_first, cache_second CASCADE;
DROP ROLE regress_tw_cache;
