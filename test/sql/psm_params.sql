-- Parameters: :name and params.name, each of the type that its place needs
CREATE TYPE mood AS ENUM ('sad', 'fine');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN given AS int NOT NULL;
CREATE TYPE pair AS (a int, b text);
CREATE TABLE t (d date, n numeric(8,2), i int, s varchar(10), v interval, m mood, p positive,
	a int[], j jsonb, c pair, b boolean, u uuid, y bytea, ts timestamptz);

-- one JSON value each, the types taken from where they stand
SELECT result FROM tw.atomic($$BEGIN
	INSERT INTO t (d, n, i, s, v, m, p, j, b, u, y, ts) VALUES
		(:d, :n, :n, :n, :v, :m, :n, :n, :b, :u, :y, :d);
	INSERT INTO t (d, n, j) VALUES (params.d, params.n, params.ids);
	UPDATE t SET a = :ids::int[], c = CAST(:row AS pair) WHERE i = :n;
	RETURN TABLE SELECT d, n, i, s, v, m, p, a, j, c, b, u, y FROM t ORDER BY i;
END$$, '{"d": "2026-11-29", "n": 5, "ids": [1, 2], "v": "1 day", "m": "fine", "b": true, "y": "\\x00ff",
	"u": "00000000-0000-0000-0000-000000000001", "row": {"a": 1, "b": "it''s"}}');
-- :d as a date, :n as numeric and int, :ids as jsonb, :x as a null of whatever is needed
SELECT jsonb_pretty(result) FROM tw.atomic($$BEGIN
	DECLARE a, b, c, d, e text;
	SET a = (SELECT pg_typeof(date '2026-11-30' - :d)::text || (date '2026-11-30' - :d));
	SET b = pg_typeof(:n + 1)::text || (:n + 1);
	SET c = pg_typeof(:n * 1.5)::text || (:n * 1.5);
	SET d = pg_typeof(:ids)::text || (:ids -> 0);
	SET e = (SELECT coalesce(:x, 'text') || coalesce(:x, 1) || coalesce(:x, date '2026-01-01'));
	RETURN jsonb_build_array(a, b, c, d, e, :x IS NULL, :ids, :n::text);
END$$, '{"d": "2026-11-29", "n": 5, "ids": [1, 2], "x": null}');
-- arrays through ANY and casts
SELECT result FROM tw.atomic($$BEGIN
	RETURN jsonb_build_array(
		2 = ANY (:ids), 3 = ANY(:ids), 4 <> ALL (:ids), 'b' = ANY (:names), cardinality(:names::text[]),
		:deep::int[] = '{{1,2},{3,4}}', (:names::text[])[2], :empty::int[] = '{}', :ids @> '[2]');
END$$, '{"ids": [1, 2], "names": ["a\"b\\", "b", null, "NULL", "", "{}"], "deep": [[1, 2], [3, 4]], "empty": []}');
-- rows have the columns that their type has at the time
CREATE TABLE changing (a int, b text);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x, y text;
	SELECT (:r::changing).a, e.b INTO x, y FROM unnest(:rows::changing[]) AS e;
	ALTER TABLE changing ALTER a TYPE text, ALTER b TYPE int USING 1;
	RETURN (SELECT jsonb_build_array(x, y, (:r::changing).a, e.b + 1) FROM unnest(:rows::changing[]) AS e);
END$$, '{"r": {"a": 5, "b": "6"}, "rows": [{"a": 7, "b": "8"}]}');
DROP TABLE changing;
-- boxes have semicolons between them
SELECT result FROM tw.atomic('BEGIN RETURN :boxes::box[]; END', '{"boxes": ["(2,2),(1,1)", "(4,4),(3,3)"]}');
-- alone in a place: the type of the variable, boolean for a condition, text for a message
SELECT result FROM tw.atomic($$BEGIN
	DECLARE d date DEFAULT :d;
	DECLARE s text DEFAULT :d;
	DECLARE i int; DECLARE a int[]; DECLARE c pair; DECLARE j jsonb; DECLARE m mood;
	SET i = :n, a = :ids, c = :row, j = :s, c.b = :n;
	SET (m, s) = (:m, s);
	IF :yes THEN
		CASE :m WHEN 'sad' THEN SET i = 0; WHEN 'fine' THEN SET i = i + 1; END CASE;
	END IF;
	CASE :d WHEN date '2026-11-29' THEN SET i = i + 10; END CASE;
	RETURN jsonb_build_array(d, s, i, a, c, j, m);
END$$, '{"d": "2026-11-29", "n": 5, "ids": [1, 2], "row": {"a": 1}, "s": "a string", "m": "fine", "yes": "yes"}');
SELECT result FROM tw.atomic($$BEGIN
	DECLARE rows pair[];
	SET rows = :rows;
	INSERT INTO t (i, v) SELECT a, b::interval FROM unnest(:rows::pair[]) WHERE a < 3;
	RETURN jsonb_build_array(rows, (rows[2]).b, (SELECT count(*) FROM t WHERE v = '2 hours'));
END$$, '{"rows": [{"a": 1, "b": "1 hour"}, {"a": 2, "b": "2 hours"}, null, {"b": "3 \"h\""}]}');
SELECT result FROM tw.atomic('BEGIN RETURN :x; END', '{"x": {"a": [1, "b", null]}}');
SELECT result FROM tw.atomic('BEGIN RETURN :x; END', '{"x": "a string"}');
SELECT result FROM tw.atomic('BEGIN RETURN :x; END', '{"x": 1.50}');
SELECT result FROM tw.atomic('BEGIN RETURN :x; END', '{"x": null}');
SELECT tw.atomic('BEGIN SIGNAL SQLSTATE ''45000'' SET MESSAGE_TEXT = :x, DETAIL = :y; END', '{"x": "a message", "y": 7}');
-- no precision is lost on the way
SELECT result FROM tw.atomic($$BEGIN
	RETURN jsonb_build_array(:n::numeric + 1, :big::numeric, :x::float8);
END$$, '{"n": 12345678901234567890.123456789, "big": 1e30, "x": 0.1}');

-- a value that its place cannot take
SELECT tw.atomic($$BEGIN
	INSERT INTO t (i) VALUES (1);
	INSERT INTO t (d) VALUES (:d);
END$$, '{"d": "yesterday or so"}');
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	UPDATE t SET p = :n;
END$$, '{"n": -1}');
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE x given DEFAULT 1;
	SET x = :n;
END$$, '{"n": null}');
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	INSERT INTO t (s) VALUES (:s);
END$$, '{"s": "longer than ten"}');
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	RETURN :a + :b;
END$$, '{"a": 1, "b": 2}');
\echo :SQLSTATE
-- the bad one is not reached: no error
SELECT status FROM tw.atomic($$BEGIN
	IF false THEN INSERT INTO t (d) VALUES (:d); END IF;
END$$, '{"d": "no date"}');

-- names: any case, in quotes as written
SELECT result FROM tw.atomic($$BEGIN
	RETURN jsonb_build_array(:deviceId::text, :DEVICEID::text, :"Strange one!"::text, params."Strange one!"::text, params.DeviceId::text);
END$$, '{"deviceId": "camel", "deviceid": "lower", "Strange one!": "quoted"}');
-- ... also where a label, a slice, a cast or a string is near
SELECT result FROM tw.atomic($$begin: BEGIN
	DECLARE a int[] DEFAULT '{1,2,3,4}';
	DECLARE lo int DEFAULT 2;
	DECLARE hi int DEFAULT 3;
	RETURN jsonb_build_array(a[lo:hi], a[:lo:hi], a[:lo::int : :hi::int], ':lo', '{:lo}'::text, :lo::text, 5 -:lo, 1>:lo, array[:lo::int]);
END$$, '{"lo": 1, "hi": 2}');
-- unknown: what and where, before anything runs
SELECT tw.atomic($$BEGIN
	INSERT INTO t (i) VALUES (77);
	IF false THEN
		UPDATE t SET n = :nope;
	END IF;
END$$, '{"d": 1}');
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	UPDATE t SET n = :amonut;
END$$, '{"Amount": 1, "amount": 2, "other": 3}');
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	RETURN params.nope;
END$$);
\echo :SQLSTATE
SELECT tw.atomic('BEGIN RETURN $1; END', '{"1": 5}');
\echo :SQLSTATE
SELECT count(*) FROM t WHERE i = 77;
-- params.name beside a table, an alias and a column of that name: the column wins
CREATE TABLE params (i int, only_here int);
INSERT INTO params VALUES (1, 2);
SELECT result FROM tw.atomic($$BEGIN
	RETURN (SELECT jsonb_build_array(params.i, params.only_here, :i::int) FROM params);
END$$, '{"i": 100}');
SELECT result FROM tw.atomic($$BEGIN
	RETURN (SELECT jsonb_build_array(params.x, params.i::int) FROM (VALUES (5)) params (x));
END$$, '{"i": 100}');
SELECT tw.atomic($$BEGIN
	UPDATE params SET i = params.nope;
END$$, '{"i": 100}');
\echo :SQLSTATE
DROP TABLE params;

-- it is a parameter to the planner: an index is used, and the kept plan fits other values
TRUNCATE t;
INSERT INTO t (i, d, s) SELECT g, date '2026-01-01' + g, g FROM generate_series(1, 5000) g;
CREATE INDEX t_i ON t (i);
CREATE INDEX t_d ON t (d);
ANALYZE t;
SELECT jsonb_agg(result) FROM generate_series(1, 8) g, LATERAL tw.atomic($$BEGIN
	RETURN (SELECT s FROM t WHERE i = :i AND d = :d);
END$$, jsonb_build_object('i', g * 10, 'd', date '2026-01-01' + g * 10));
BEGIN;
SET LOCAL plan_cache_mode = force_generic_plan;
SELECT pg_stat_get_xact_numscans('t'::regclass) AS sequential, pg_stat_get_xact_numscans('t_i'::regclass) AS index \gset
SELECT result FROM tw.atomic('BEGIN RETURN (SELECT s FROM t WHERE i = :i); END', '{"i": "4711"}');
SELECT result FROM tw.atomic('BEGIN RETURN (SELECT s FROM t WHERE i = :i); END', '{"i": 4712}');
SELECT result FROM tw.atomic('BEGIN RETURN (SELECT count(*) FROM t WHERE d < :d); END', '{"d": "2026-01-05"}');
SELECT pg_stat_get_xact_numscans('t'::regclass) - :sequential AS sequential,
	pg_stat_get_xact_numscans('t_i'::regclass) - :index AS index;
COMMIT;

-- no value ever becomes SQL: in utility statements each stands as one quoted literal
CREATE TABLE victim (a int);
SELECT result FROM tw.atomic($$BEGIN
	SET LOCAL application_name TO :name;
	RETURN current_setting('application_name');
END$$, '{"name": "x''; DROP TABLE victim; --"}');
SELECT result FROM tw.atomic($$BEGIN
	SET LOCAL application_name = :name;
	RETURN current_setting('application_name');
END$$, '{"name": "back\\slash '' \" $$ $1 :name"}');
SELECT tw.atomic($$BEGIN
	COPY victim FROM :file;
END$$, '{"file": "/nowhere''; DROP TABLE victim; --"}');
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	COPY victim FROM :file;
END$$, '{"file": "/nowhere\\''; DROP TABLE victim; --"}');
SELECT tw.atomic($$BEGIN
	COMMENT ON TABLE victim IS :text;
	NOTIFY psm_params, :text;
	ALTER TABLE victim ALTER a SET DEFAULT :n, ADD CHECK (a < :n);
	INSERT INTO victim VALUES (:n);
END$$, '{"n": 5, "text": "''; DROP TABLE victim; --"}');
SELECT result FROM tw.atomic($$BEGIN
	CREATE TABLE made AS SELECT :n::int AS n, :x::text AS x, :a AS a;
	RETURN TABLE SELECT * FROM made;
END$$, '{"n": 1, "x": "''); DROP TABLE victim; --", "a": {"k": "''"}}');
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x text;
	EXECUTE IMMEDIATE 'SELECT ?' INTO x USING :x;
	RETURN x;
END$$, '{"x": "''; DROP TABLE victim; --"}');
SELECT count(*) FROM victim;
-- ... where the grammar takes no literal there is no parameter
SELECT tw.atomic('BEGIN DROP TABLE :t; END', '{"t": "victim"}');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN SELECT * FROM :t; END', '{"t": "victim"}');
\echo :SQLSTATE
SELECT result FROM tw.atomic($$BEGIN
	SET LOCAL search_path TO :path;
	RETURN current_setting('search_path');
END$$, '{"path": "pg_catalog, public"}');
-- variables and parameters in one statement, of whatever kind
SELECT result FROM tw.atomic($$BEGIN
	DECLARE v int DEFAULT 5;
	DROP TABLE made;
	CREATE TABLE made AS SELECT v + :n AS x;
	DECLARE_IT: BEGIN
		DECLARE c CURSOR FOR SELECT x + v + :n FROM made;
		OPEN c;
		FETCH c INTO v;
	END;
	RETURN v;
END$$, '{"n": 100}');
DROP TABLE made, victim;

-- rows of an array are the values that were given, whatever the style the session writes them in
CREATE TYPE reading AS (at timestamptz, value float8);
SET timezone = 'Asia/Kolkata';
SET datestyle = 'SQL, DMY';
SET extra_float_digits = -10;
SELECT result FROM tw.atomic($$BEGIN
	DECLARE rows reading[];
	SET rows = :rows;
	RETURN (SELECT bool_and(at = '2026-01-01 00:00+00' AND value = 0.12345678901234566) FROM unnest(rows)) AND
		(SELECT bool_and(at = '2026-01-01 00:00+00' AND value = 0.12345678901234566) FROM unnest(:rows::reading[]));
END$$, '{"rows": [{"at": "01/01/2026 05:30", "value": 0.12345678901234566}]}');
RESET timezone;
RESET datestyle;
RESET extra_float_digits;
DROP TYPE reading;

-- what params may be
SELECT status FROM tw.atomic('BEGIN END', '{}');
SELECT tw.atomic('BEGIN END', '[]');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN END', '"x"');
SELECT tw.atomic('BEGIN END', 'null');
SELECT tw.atomic('BEGIN END', NULL);
\echo :SQLSTATE

DROP TABLE t;
DROP DOMAIN positive, given;
DROP TYPE pair, mood;
-- what tw.check_block makes of them
SELECT line, "column", sqlstate, message FROM tw.check_block('BEGIN CASE :k WHEN ''a'' THEN RETURN 1; ELSE RETURN :k; END CASE; END', '{"k": "a"}');
