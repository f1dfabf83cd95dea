-- Blocks inside blocks: through functions and triggers, in the same text as well
CREATE TABLE tree (id int PRIMARY KEY, parent int, depth int);

-- a block that runs itself by way of a trigger: each run has its own variables, row and cursor
CREATE FUNCTION grow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.depth < 4 THEN
		PERFORM tw.atomic('BEGIN
			DECLARE mine int DEFAULT :id * 10;
			DECLARE seen int DEFAULT 0;
			DECLARE fetched int;
			DECLARE c CURSOR FOR SELECT g FROM generate_series(mine + 1, mine + 2) g;
			DECLARE CONTINUE HANDLER FOR SQLSTATE ''23505'' SET seen = seen + 100;
			OPEN c;
			FOR r AS SELECT mine + g AS child, g FROM generate_series(1, 2) g DO
				INSERT INTO tree VALUES (r.child, :id, :depth::int + 1);
				FETCH c INTO fetched;
				IF fetched <> r.child OR r.child <> mine + r.g THEN
					SIGNAL SQLSTATE ''XX000'' SET MESSAGE_TEXT = ''mixed up'';
				END IF;
				CASE r.g WHEN 1 THEN SET seen = seen + 1; ELSE SET seen = seen + 2; END CASE;
				INSERT INTO tree VALUES (r.child, 0, 9);
			END FOR;
			IF seen <> 203 THEN
				SIGNAL SQLSTATE ''XX000'' SET MESSAGE_TEXT = ''mixed up: '' || seen;
			END IF;
		END', jsonb_build_object('id', NEW.id, 'depth', NEW.depth));
	END IF;
	RETURN NEW;
END$$;
CREATE TRIGGER grow AFTER INSERT ON tree FOR EACH ROW EXECUTE FUNCTION grow();
SELECT status, rows FROM tw.atomic('BEGIN INSERT INTO tree VALUES (1, NULL, 1); END');
SELECT depth, count(*), min(id), max(id) FROM tree GROUP BY 1 ORDER BY 1;
DROP TABLE tree;
DROP FUNCTION grow;

-- the same in an expression: the function it calls runs the block again
CREATE FUNCTION fib(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RETURN (tw.atomic('BEGIN
		DECLARE a int DEFAULT :n;
		IF a < 2 THEN RETURN a; END IF;
		SET a = fib(a - 1) + fib(a - 2);
		RETURN a;
	END', jsonb_build_object('n', n))).result::int;
END$$;
SELECT fib(12);
DROP FUNCTION fib;
-- ... fails deep inside, is handled on the way, goes on
CREATE FUNCTION dive(n int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (tw.atomic('BEGIN
		DECLARE s text DEFAULT ''<'' || :n;
		DECLARE EXIT HANDLER FOR SQLSTATE ''22012'' RETURN s || '' handled>'';
		SET s = s || CASE WHEN :n::int = 5 THEN (1 / (:n::int - 5))::text WHEN :n::int % 2 = 0 THEN dive(:n::int + 1) ELSE dive(:n::int + 1) || dive(5) END;
		RETURN s || ''>'';
	END', jsonb_build_object('n', n))).result #>> '{}';
END$$;
SELECT dive(1);
-- ... the error passes several blocks, whose atomic parts are undone
CREATE TABLE t (n int);
CREATE FUNCTION fall(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tw.atomic('BEGIN
		INSERT INTO t VALUES (:n);
		BEGIN ATOMIC
			DECLARE EXIT HANDLER FOR SQLSTATE ''45003'' INSERT INTO t VALUES (1000 + :n);
			INSERT INTO t VALUES (100 + :n);
			IF :n::int = 4 THEN
				SIGNAL SQLSTATE ''45001'';
			END IF;
			SELECT fall(:n::int + 1);
			INSERT INTO t VALUES (200 + :n);
			IF :n::int = 2 THEN SIGNAL SQLSTATE ''45003''; END IF;
		END;
	END', jsonb_build_object('n', n));
END$$;
\set SHOW_CONTEXT never
SELECT fall(1);
\set SHOW_CONTEXT errors
SELECT count(*) FROM t;
SELECT status FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLSTATE '45001' INSERT INTO t VALUES (0);
	SELECT fall(1);
	SELECT fall(4);
END$$);
SELECT n FROM t ORDER BY n;
TRUNCATE t;
DROP FUNCTION fall, dive;

-- a block changes what it, or the one around it, is made of
CREATE TABLE d (a int);
INSERT INTO d VALUES (1), (2);
-- a column added while a FOR is open on the table: PostgreSQL refuses
SELECT tw.atomic($$BEGIN
	FOR r AS SELECT * FROM d DO
		ALTER TABLE d ADD b int;
	END FOR;
END$$);
\echo :SQLSTATE
-- a table dropped and made again, with other types, by a run of the same block inside itself
CREATE FUNCTION inside(level int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF level > 1 THEN
		RETURN '';
	END IF;
	SET LOCAL search_path TO two, public;
	RETURN (tw.atomic(current_setting('psm_nested.block'), '{"level": 2}')).result #>> '{}';
END$$;
CREATE SCHEMA one;
CREATE SCHEMA two;
CREATE TABLE one.shape AS SELECT 5 AS x, 6 AS y;
CREATE TABLE two.shape AS SELECT 'some text' AS x, date '2026-11-29' AS y;
SELECT 'BEGIN
	DECLARE s text DEFAULT '''';
	FOR r AS SELECT * FROM shape DO
		SET s = s || inside(:level) || r.x || r.y;
	END FOR;
	RETURN s;
END' AS block \gset
SET psm_nested.block TO :'block';
SET search_path TO one, public;
BEGIN;
SELECT result FROM tw.atomic(:'block', '{"level": 1}');
ROLLBACK;
-- ... by DDL under the same search_path: an error, since the outer run holds a row of the old type
CREATE FUNCTION swap(level int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF level > 1 THEN
		RETURN '';
	END IF;
	ALTER TABLE one.shape RENAME TO old_shape;
	CREATE TABLE one.shape AS SELECT 'some text' AS x, date '2026-11-29' AS y;
	RETURN (tw.atomic(current_setting('psm_nested.block'), '{"level": 2}')).result #>> '{}';
END$$;
SELECT replace(:'block', 'inside', 'swap') AS block \gset
SET psm_nested.block TO :'block';
SELECT tw.atomic(:'block', '{"level": 1}');
\echo :SQLSTATE
SELECT replace(:'block', 'r.x || r.y', 'coalesce(r.x::text, r.y::text)') AS block \gset
SET psm_nested.block TO :'block';
SELECT tw.atomic(:'block', '{"level": 1}');
\echo :SQLSTATE
-- ... a CASE whose operand has another type inside
CREATE FUNCTION other_case(level int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF level > 1 THEN
		RETURN 1;
	END IF;
	ALTER TABLE one.shape RENAME TO old_shape;
	CREATE TABLE one.shape AS SELECT 'some text' AS x;
	PERFORM tw.atomic(current_setting('psm_nested.block'), '{"level": 2}');
	RETURN 1;
END$$;
SELECT 'BEGIN
	CASE (SELECT x FROM shape)
		WHEN (SELECT CASE WHEN other_case(:level) = 2 THEN x END FROM shape) THEN RETURN 0;
		WHEN (SELECT x FROM shape) THEN RETURN 1;
	END CASE;
END' AS block \gset
SET psm_nested.block TO :'block';
SELECT tw.atomic(:'block', '{"level": 1}');
\echo :SQLSTATE
RESET search_path;
DROP FUNCTION inside, one.swap, one.other_case;
DROP TABLE one.shape, two.shape;
DROP SCHEMA one, two;
-- a function that the block calls replaces itself, and a table is dropped under a waiting row
CREATE FUNCTION once() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	CREATE OR REPLACE FUNCTION once() RETURNS int LANGUAGE sql AS 'SELECT 2';
	RETURN 1;
END$$;
SELECT result FROM tw.atomic('BEGIN DECLARE a, b int; SET a = once(); SET b = once(); RETURN a * 10 + b; END');
DROP FUNCTION once;
SELECT result FROM tw.atomic($$BEGIN
	DECLARE r d;
	SELECT * INTO r FROM d WHERE a = 2;
	DROP TABLE d;
	RETURN r.a;
END$$);

-- a table is altered under a row of it: the row as a whole is no longer one of the table's if types have changed
CREATE TABLE d (a int, b text, c numeric);
INSERT INTO d VALUES (1000000, 'b', 2.5);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE r d;
	SELECT * INTO r FROM d;
	ALTER TABLE d ADD e int, DROP c;
	RETURN jsonb_build_array(r.c, r);
END$$);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE r d;
	DECLARE state text;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '55006' GET DIAGNOSTICS state = RETURNED_SQLSTATE;
	SELECT * INTO r FROM d;
	ALTER TABLE d ALTER a TYPE text USING repeat(a::text, 10), ALTER b TYPE int USING 5;
	INSERT INTO d (a) SELECT r.a;
	UPDATE d SET b = 6 WHERE d <> r;
	RETURN jsonb_build_array(state, r.a, r.b, (SELECT jsonb_agg(length(a) ORDER BY a) FROM d));
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE r d;
	SELECT * INTO r FROM d LIMIT 1;
	ALTER TABLE d ALTER a TYPE int USING 1, ALTER b TYPE text;
	RETURN r;
END$$);
\echo :SQLSTATE
DROP TABLE d;

-- rows and values by reference out of what was undone
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a text; DECLARE b int[]; DECLARE c jsonb; DECLARE r t; DECLARE x numeric;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO t SELECT length(a) + cardinality(b);
	FOR f AS SELECT g, repeat('x', g) AS s, ARRAY[g, g] AS l FROM generate_series(1, 250) g DO
		BEGIN ATOMIC
			SELECT f.s, f.l || f.g, jsonb_build_object('s', f.s) INTO a, b, c;
			INSERT INTO t VALUES (f.g) RETURNING n INTO r;
			SET x = (SELECT sum(n) FROM t);
			IF f.g % 50 = 0 THEN SIGNAL SQLSTATE '45000'; END IF;
		END;
		IF length(f.s) <> f.g OR length(a) <> f.g OR b <> ARRAY[f.g, f.g, f.g] OR r.n <> f.g OR c ->> 's' <> f.s THEN
			SIGNAL SQLSTATE 'XX000' SET MESSAGE_TEXT = 'mixed up at ' || f.g;
		END IF;
	END FOR;
	RETURN jsonb_build_array(length(a), b, length(c::text), r.n, x, (SELECT count(*) FROM t), (SELECT max(n) FROM t));
END$$);
-- a FOR inside a handler, over the same table, while one is open outside
TRUNCATE t;
INSERT INTO t SELECT generate_series(1, 30);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE outer_rows, inner_rows int DEFAULT 0;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION
		FOR i AS SELECT n FROM t WHERE n <= 12 DO
			SET inner_rows = inner_rows + 1;
		END FOR;
	FOR o AS SELECT n FROM t DO
		SET outer_rows = outer_rows + 1;
		IF o.n % 10 = 0 THEN
			INSERT INTO t SELECT 1 / 0;
		END IF;
	END FOR;
	RETURN jsonb_build_array(outer_rows, inner_rows);
END$$);
-- ... left by the handler, whose FOR goes on in the middle of another
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	BEGIN
		DECLARE EXIT HANDLER FOR SQLSTATE '45000' SET seen = seen || 'exit ';
		FOR o AS SELECT n FROM t DO
			BEGIN
				DECLARE CONTINUE HANDLER FOR SQLSTATE '45001'
					FOR i AS SELECT n FROM t WHERE n < 100 DO
						IF i.n = 3 THEN SIGNAL SQLSTATE '45000'; END IF;
						SET seen = seen || i.n || ' ';
					END FOR;
				IF o.n = 5 THEN SIGNAL SQLSTATE '45001'; END IF;
			END;
		END FOR;
	END;
	RETURN seen || (SELECT count(*) FROM pg_cursors);
END$$);
DROP TABLE t;
