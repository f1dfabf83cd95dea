-- LANGUAGE psm: functions.
\set VERBOSITY default
\set SHOW_CONTEXT errors
CREATE TABLE fn_t (a int, b text);

-- Arguments: by name, by number, behind the function's name when a column is called the
-- same; defaults, named notation, VARIADIC
CREATE FUNCTION fn_args(a int, b int DEFAULT 10, c text DEFAULT 'z') RETURNS text LANGUAGE psm AS $$
BEGIN
  RETURN concat_ws(',', a, b, c, fn_args.a, $2);
END$$;
SELECT fn_args(1), fn_args(1, c => 'q');
CREATE FUNCTION fn_unnamed(int, text) RETURNS text LANGUAGE psm AS $$BEGIN RETURN $2 || $1; END$$;
SELECT fn_unnamed(1, 'x');
INSERT INTO fn_t VALUES (1, 'one'), (2, 'two');
CREATE FUNCTION fn_column(a int) RETURNS text LANGUAGE psm AS $$
BEGIN
  RETURN (SELECT string_agg(b, ' ') FROM fn_t WHERE a = fn_column.a) ||
    (SELECT count(*) FROM fn_t WHERE a = a);
END$$;
SELECT fn_column(2);
CREATE FUNCTION fn_variadic(VARIADIC parts text[]) RETURNS int LANGUAGE psm AS $$
BEGIN RETURN cardinality(parts); END$$;
SELECT fn_variadic('a', 'b', 'c'), fn_variadic(VARIADIC '{}');
-- An argument may be assigned to; the caller's value stays
CREATE FUNCTION fn_assign(a int[], b text) RETURNS text LANGUAGE psm AS $$
BEGIN
  SET a[1] = 100, b = b || b;
  RETURN concat_ws(' ', a, b);
END$$;
SELECT fn_assign(x, y), x, y FROM (VALUES (ARRAY[1, 2], 'y')) AS v(x, y);
-- Parameters of blocks are none of functions
CREATE FUNCTION fn_host(a int) RETURNS int LANGUAGE psm AS $$BEGIN RETURN :a; END$$;

-- OUT and INOUT
CREATE FUNCTION fn_out(IN a int, OUT b int, INOUT c text) LANGUAGE psm AS $$
BEGIN
  SET b = a, c = c || a;
  IF a > 1 THEN RETURN; END IF;
  SET c = c || '!';
END$$;
SELECT fn_out(1, 'c'), (fn_out(2, 'd')).c;
SELECT * FROM fn_out(3, 'e');
CREATE FUNCTION fn_out1(OUT n int) LANGUAGE psm AS $$BEGIN SET n = 1; END$$;
SELECT fn_out1() + 1;
CREATE FUNCTION fn_void() RETURNS void LANGUAGE psm AS $$BEGIN END$$;
SELECT fn_void();

-- Rows: composite types, records, rows of another type, and casts as in assignments
CREATE FUNCTION fn_row(r fn_t) RETURNS fn_t LANGUAGE psm AS $$
BEGIN
  SET r.a = r.a + 1;
  RETURN r;
END$$;
SELECT fn_row(ROW(1, 'x')), fn_row(NULL), fn_row(t) FROM fn_t AS t;
SELECT * FROM fn_row(ROW(1, 'x'));
CREATE FUNCTION fn_make(n int) RETURNS fn_t LANGUAGE psm AS $$
BEGIN
  CASE n
    WHEN 1 THEN RETURN ROW('7', 5);
    WHEN 2 THEN RETURN (SELECT t FROM fn_t AS t WHERE t.a = 2);
    WHEN 3 THEN RETURN NULL;
    WHEN 4 THEN RETURN ROW(1, 'x', 'y');
    WHEN 5 THEN RETURN 5;
  END CASE;
END$$;
SELECT n, fn_make(n) FROM generate_series(1, 3) AS n;
SELECT fn_make(4);
SELECT fn_make(5);
CREATE FUNCTION fn_record() RETURNS record LANGUAGE psm AS $$BEGIN RETURN ROW(1, 'a'::text); END$$;
SELECT fn_record();
SELECT * FROM fn_record() AS t(a int, b text);
SELECT * FROM fn_record() AS t(a numeric, b varchar(1));
SELECT * FROM fn_record() AS t(a int);
-- A record argument has the columns that the call brings
CREATE FUNCTION fn_takes(r record) RETURNS text LANGUAGE psm AS $$BEGIN RETURN r.a || ' ' || r.b; END$$;
SELECT fn_takes(x) FROM (VALUES (1, 'z'), (2, 'y')) AS x(a, b);
SELECT fn_takes(x), fn_takes(y) FROM (SELECT 1 AS a, 'z' AS b) AS x, (SELECT 'b'::text AS b, 2 AS n, 1.5 AS a) AS y;
SELECT fn_takes(t) FROM fn_t AS t;
SELECT fn_takes(ROW(1, 2));
CREATE FUNCTION fn_nest(r record, n int) RETURNS text LANGUAGE psm AS $$
BEGIN
  IF n = 0 THEN RETURN to_jsonb(r); END IF;
  RETURN fn_nest(ROW(r, n), n - 1);
END$$;
SELECT fn_nest(ROW(1, 'x'), 2);

-- Sets
CREATE FUNCTION fn_set(n int) RETURNS SETOF int LANGUAGE psm AS $$
BEGIN
  IF n > 0 THEN RETURN TABLE SELECT i FROM generate_series(1, n) AS i; END IF;
END$$;
SELECT * FROM fn_set(3);
SELECT fn_set(2), fn_set(1);
SELECT count(*) FROM fn_set(0);
SELECT count(*) FROM fn_set(100000);
CREATE FUNCTION fn_table(n int) RETURNS TABLE (id bigint, name varchar(3)) LANGUAGE psm AS $$
BEGIN
  RETURN TABLE SELECT i, 'x' || i FROM generate_series(1, n) AS i;
END$$;
SELECT * FROM fn_table(2);
CREATE FUNCTION fn_rows() RETURNS SETOF fn_t LANGUAGE psm AS $$BEGIN RETURN TABLE SELECT * FROM fn_t; END$$;
SELECT * FROM fn_rows();
ALTER TABLE fn_t ADD COLUMN c int;
SELECT * FROM fn_rows();
ALTER TABLE fn_t DROP COLUMN a;
SELECT * FROM fn_rows();
ALTER TABLE fn_t DROP COLUMN c, ADD COLUMN a int;
CREATE FUNCTION fn_wrong() RETURNS TABLE (a int, b int) LANGUAGE psm AS $$BEGIN RETURN TABLE SELECT 1; END$$;
SELECT * FROM fn_wrong();
-- What a query gave that failed half-way is not returned
CREATE FUNCTION fn_half() RETURNS SETOF int LANGUAGE psm AS $$
BEGIN
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
  RETURN TABLE SELECT 10 / (3 - i) FROM generate_series(1, 5) AS i;
END$$;
SELECT count(*) FROM fn_half();

-- Polymorphic
CREATE FUNCTION fn_max(a anyelement, VARIADIC b anyarray) RETURNS anyelement LANGUAGE psm AS $$
BEGIN
  DECLARE i int DEFAULT 1;
  WHILE i <= cardinality(b) DO
    IF b[i] > a THEN SET a = b[i]; END IF;
    SET i = i + 1;
  END WHILE;
  RETURN a;
END$$;
SELECT fn_max(1, 2, 9, 3), fn_max('a'::text, 'c', 'b'), fn_max(1.5, VARIADIC ARRAY[2.5]);
SELECT fn_max(1, 2), fn_max(date '2026-01-01', date '2026-02-01');
CREATE FUNCTION fn_pair(a anycompatible, b anycompatible, OUT lo anycompatible, OUT hi anycompatible)
LANGUAGE psm AS $$BEGIN SET lo = least(a, b), hi = greatest(a, b); END$$;
SELECT * FROM fn_pair(2, 1.5);

-- Domains
CREATE DOMAIN fn_pos AS int CHECK (value > 0);
CREATE FUNCTION fn_domain(a fn_pos) RETURNS fn_pos LANGUAGE psm AS $$
BEGIN
  DECLARE x fn_pos;
  SET x = a + 1;
  RETURN a - 5;
END$$;
SELECT fn_domain(6);
SELECT fn_domain(5);
SELECT fn_domain(-1);

-- RETURN that does not suit, and none at all
CREATE FUNCTION fn_bad() RETURNS int LANGUAGE psm AS $$BEGIN RETURN; END$$;
CREATE FUNCTION fn_bad() RETURNS void LANGUAGE psm AS $$BEGIN RETURN 1; END$$;
CREATE FUNCTION fn_bad(OUT a int) LANGUAGE psm AS $$BEGIN RETURN 1; END$$;
CREATE FUNCTION fn_bad() RETURNS int LANGUAGE psm AS $$BEGIN RETURN TABLE SELECT 1; END$$;
CREATE FUNCTION fn_bad() RETURNS SETOF int LANGUAGE psm AS $$BEGIN RETURN 1; END$$;
CREATE FUNCTION fn_bad() RETURNS event_trigger LANGUAGE psm AS $$BEGIN END$$;
CREATE FUNCTION fn_bad(a "any") RETURNS int LANGUAGE psm AS $$BEGIN RETURN 1; END$$;
CREATE FUNCTION fn_bad(a cstring) RETURNS int LANGUAGE psm AS $$BEGIN RETURN 1; END$$;
CREATE FUNCTION fn_none() RETURNS int LANGUAGE psm AS $$BEGIN END$$;
SELECT fn_none();
CREATE FUNCTION fn_cast() RETURNS int LANGUAGE psm AS $$BEGIN RETURN 'x'; END$$;
SELECT fn_cast();

-- The validator, and a body that it was not asked about
CREATE FUNCTION fn_bad() RETURNS int LANGUAGE psm AS $$
BEGIN
  RETURN 1
END$$;
SET check_function_bodies = off;
CREATE FUNCTION fn_bad() RETURNS int LANGUAGE psm AS $$
BEGIN
  RETURN 1
END$$;
RESET check_function_bodies;
SELECT fn_bad();
SELECT fn_bad();

-- Recursion, and a function that is replaced or dropped while it runs
CREATE FUNCTION fn_fib(n int) RETURNS bigint LANGUAGE psm AS $$
BEGIN
  IF n < 2 THEN RETURN n; END IF;
  RETURN fn_fib(n - 1) + fn_fib(n - 2);
END$$;
SELECT fn_fib(15);
CREATE FUNCTION fn_again(n int) RETURNS text LANGUAGE psm AS $$
BEGIN
  EXECUTE IMMEDIATE 'CREATE OR REPLACE FUNCTION fn_again(n int) RETURNS text LANGUAGE psm AS
    ''BEGIN RETURN concat(''''new'''', n); END''';
  RETURN 'old' || n || ' ' || fn_again(n + 1);
END$$;
SELECT fn_again(1), fn_again(5);
CREATE FUNCTION fn_gone() RETURNS int LANGUAGE psm AS $$BEGIN DROP FUNCTION fn_gone(); RETURN 1; END$$;
SELECT fn_gone();
SELECT fn_gone();

-- Types that change behind a cached function
CREATE TYPE fn_type AS (x int);
CREATE FUNCTION fn_typed() RETURNS text LANGUAGE psm AS $$
BEGIN
  DECLARE v fn_type;
  SET v.x = 1;
  RETURN v;
END$$;
SELECT fn_typed();
ALTER TYPE fn_type ADD ATTRIBUTE y text;
SELECT fn_typed();
DROP TYPE fn_type;
SELECT fn_typed();
CREATE TYPE fn_type AS (z int, x numeric);
SELECT fn_typed();

-- Volatility: a stable function writes nothing, and sees what its query saw
CREATE FUNCTION fn_writes() RETURNS int STABLE LANGUAGE psm AS $$
BEGIN INSERT INTO fn_t (b) VALUES ('x'); RETURN 1; END$$;
SELECT fn_writes();
CREATE FUNCTION fn_stable() RETURNS bigint STABLE LANGUAGE psm AS $$
BEGIN RETURN (SELECT count(*) FROM fn_t); END$$;
CREATE FUNCTION fn_volatile() RETURNS bigint LANGUAGE psm AS $$
BEGIN RETURN (SELECT count(*) FROM fn_t); END$$;
INSERT INTO fn_t (a) SELECT fn_volatile() FROM generate_series(1, 3);
INSERT INTO fn_t (a) SELECT fn_stable() FROM generate_series(1, 3);
SELECT a FROM fn_t WHERE b IS NULL;

-- Whose rights, and which search_path
CREATE SCHEMA fn_s;
CREATE TABLE fn_s.secret AS SELECT 42 AS a;
CREATE FUNCTION fn_definer() RETURNS text SECURITY DEFINER SET search_path = fn_s, pg_temp LANGUAGE psm AS $$
BEGIN
  RETURN concat_ws(' ', current_user = session_user, (SELECT a FROM secret), current_setting('search_path'));
END$$;
CREATE FUNCTION fn_invoker() RETURNS int LANGUAGE psm AS $$BEGIN RETURN (SELECT a FROM fn_s.secret); END$$;
CREATE ROLE regress_psm_user;
GRANT USAGE ON SCHEMA public, fn_s TO regress_psm_user;
SELECT fn_invoker();
SET ROLE regress_psm_user;
SELECT fn_definer();
SELECT fn_invoker();
SHOW search_path;
RESET ROLE;
DROP OWNED BY regress_psm_user;
DROP ROLE regress_psm_user;

-- The collation of the call
CREATE FUNCTION fn_collation(a text) RETURNS text LANGUAGE psm AS $$
BEGIN
  DECLARE b text DEFAULT a;
  RETURN concat_ws(' ', pg_collation_for(a), pg_collation_for(b));
END$$;
SELECT fn_collation('a'), fn_collation('a' COLLATE "POSIX"), fn_collation('a' COLLATE "C");

-- In places where queries have functions
CREATE FUNCTION fn_half_of(n int) RETURNS int IMMUTABLE PARALLEL SAFE LANGUAGE psm AS $$BEGIN RETURN n / 2; END$$;
CREATE TABLE fn_used (a int DEFAULT fn_half_of(20), CHECK (fn_half_of(a) > 2));
INSERT INTO fn_used DEFAULT VALUES;
INSERT INTO fn_used VALUES (1);
CREATE INDEX ON fn_used (fn_half_of(a));
SET enable_seqscan = off;
SELECT * FROM fn_used WHERE fn_half_of(a) = 5;
RESET enable_seqscan;
CREATE FUNCTION fn_step(s int[], v int) RETURNS int[] LANGUAGE psm AS $$BEGIN SET s[v] = v; RETURN s; END$$;
CREATE AGGREGATE fn_collect(int) (sfunc = fn_step, stype = int[], initcond = '{}');
SELECT cardinality(fn_collect(i)) FROM generate_series(1, 1000) AS i;
SELECT set_config(CASE WHEN current_setting('server_version_num')::int < 160000
  THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END, 'on', false);
SELECT sum(fn_half_of(i)) FROM generate_series(1, 1000) AS i;
SELECT set_config(CASE WHEN current_setting('server_version_num')::int < 160000
  THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END, 'off', false);

-- Large values come and go
CREATE FUNCTION fn_big(a text) RETURNS text LANGUAGE psm AS $$
BEGIN
  DECLARE b text;
  SET b = a || a, a = '';
  RETURN b;
END$$;
SELECT length(fn_big(repeat('x', 1000000)));
CREATE TABLE fn_toast AS SELECT repeat(md5(i::text), 10000) AS v FROM generate_series(1, 2) AS i;
SELECT length(fn_big(v)) FROM fn_toast;

-- DO
DO LANGUAGE psm $$
BEGIN ATOMIC
  DECLARE n int DEFAULT 0;
  WHILE n < 3 DO
    SET n = n + 1;
    INSERT INTO fn_used VALUES (100 + n);
  END WHILE;
END$$;
SELECT count(*) FROM fn_used WHERE a > 100;
DO LANGUAGE psm $$BEGIN INSERT INTO fn_used VALUES (200); SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END$$;
SELECT count(*) FROM fn_used WHERE a = 200;
DO LANGUAGE psm $$BEGIN COMMIT; END$$;
DO LANGUAGE psm $$BEGIN RETURN :a; END$$;

DROP AGGREGATE fn_collect(int);
DROP TABLE fn_t, fn_used, fn_toast CASCADE;
DROP SCHEMA fn_s CASCADE;
DROP DOMAIN fn_pos CASCADE;
DROP TYPE fn_type CASCADE;
DROP FUNCTION fn_args, fn_unnamed, fn_column, fn_variadic, fn_assign, fn_out, fn_out1, fn_void, fn_record,
  fn_takes, fn_nest, fn_set, fn_table, fn_wrong, fn_half, fn_max, fn_pair, fn_none, fn_cast, fn_bad, fn_fib,
  fn_again, fn_typed, fn_writes, fn_stable, fn_volatile, fn_definer, fn_invoker, fn_collation, fn_half_of, fn_step,
  fn_big;
