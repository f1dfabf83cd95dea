-- IF, CASE, LOOP, WHILE, REPEAT and FOR
CREATE TABLE acct (id int PRIMARY KEY, bal numeric);

-- the first branch that is true; unknown is not true
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	DECLARE n int DEFAULT 0;
	WHILE n < 6 DO
		SET n = n + 1;
		IF NULL THEN SET seen = seen || 'never';
		ELSEIF n = 1 THEN SET seen = seen || 'one ';
		ELSEIF n < 3 THEN SET seen = seen || 'two ';
		ELSEIF n = 3 THEN
		ELSEIF n = 4 THEN SET seen = seen || 'four ', seen = seen || 'and ';
		ELSE SET seen = seen || 'many ';
		END IF;
	END WHILE;
	IF NULL THEN SET seen = 'never'; END IF;
	RETURN seen;
END$$);
-- a condition is cast to boolean as an assignment would; what cannot be is an error
SELECT result FROM tw.atomic($$BEGIN IF 'on' THEN RETURN 1; END IF; END$$);
SELECT tw.atomic($$BEGIN IF 'perhaps' THEN RETURN 1; END IF; END$$);
\echo :SQLSTATE
-- conditions with queries
SELECT result FROM tw.atomic($$BEGIN
	IF NOT EXISTS (SELECT FROM acct) THEN
		INSERT INTO acct VALUES (1, 100);
	END IF;
	IF (SELECT bal FROM acct WHERE id = 1) = 100 AND 1 IN (SELECT id FROM acct) THEN
		RETURN 'rich';
	END IF;
END$$);

-- simple CASE: the operand is evaluated once, each WHEN may list several values
CREATE SEQUENCE ticks;
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	FOR r AS SELECT g FROM generate_series(1, 6) g DO
		CASE r.g
			WHEN 1 THEN SET seen = seen || 'one ';
			WHEN 2, 3 THEN SET seen = seen || 'few ';
			WHEN r.g + 0 - (r.g % 2) THEN SET seen = seen || 'even ';
			ELSE SET seen = seen || 'odd ';
		END CASE;
	END FOR;
	CASE nextval('ticks')
		WHEN 5 THEN SET seen = seen || 'never';
		WHEN 1 THEN SET seen = seen || 'first';
		WHEN 2 THEN SET seen = seen || 'twice';
	END CASE;
	RETURN seen;
END$$);
-- ... of text, of null, with a column and a variable of the same name as the loop's
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x text DEFAULT 'b';
	DECLARE y text;
	CASE x WHEN 'a' THEN RETURN 1; WHEN 'b' THEN
		CASE y WHEN NULL THEN RETURN 2; ELSE RETURN 3; END CASE;
	END CASE;
END$$);
-- ... nested in its own WHEN, and as an expression in there
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x int DEFAULT 2;
	CASE x
		WHEN CASE x WHEN 2 THEN 2 ELSE 0 END THEN
			CASE x + 1 WHEN 3 THEN RETURN CASE WHEN x = 2 THEN 'both' END; END CASE;
	END CASE;
END$$);
-- searched CASE
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x int DEFAULT 15;
	CASE
		WHEN x < 10 THEN RETURN 'small';
		WHEN x BETWEEN 10 AND 20 THEN RETURN 'medium';
		ELSE RETURN 'large';
	END CASE;
END$$);
-- nothing matches and there is no ELSE
SELECT tw.atomic($$BEGIN
	DECLARE x int DEFAULT 3;
	CASE x WHEN 1 THEN SET x = 0; END CASE;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	CASE WHEN false THEN RETURN 1; WHEN NULL THEN RETURN 2; END CASE;
END$$);
\echo :SQLSTATE
-- ... an empty ELSE is one
SELECT status FROM tw.atomic('BEGIN CASE 1 WHEN 2 THEN RETURN 1; ELSE END CASE; END');
-- operand and WHEN that cannot be compared
SELECT tw.atomic($$BEGIN
	CASE 1
		WHEN date '2026-11-29' THEN RETURN 1;
	END CASE;
END$$);
\echo :SQLSTATE

-- LOOP, WHILE and REPEAT
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a, b, c, d int DEFAULT 0;
	x: LOOP
		SET a = a + 1;
		IF a % 2 = 0 THEN ITERATE x; END IF;
		SET b = b + a;
		IF a >= 10 THEN LEAVE x; END IF;
		IF a > 5 THEN LEAVE x; END IF;
	END LOOP x;
	WHILE c > 0 DO SET c = c + 100; END WHILE;
	y: WHILE c < 5 DO
		SET c = c + 1;
		ITERATE y;
		SET c = c + 100;
	END WHILE y;
	REPEAT SET d = d + 1; UNTIL true END REPEAT;
	z: REPEAT
		SET d = d + 1;
		ITERATE z;
		SET d = d + 100;
	UNTIL d >= 7 END REPEAT z;
	WHILE NULL DO SET d = 1000; END WHILE;
	RETURN jsonb_build_array(a, b, c, d);
END$$);
-- an endless one can be cancelled
BEGIN;
SET LOCAL statement_timeout = '50ms';
SELECT tw.atomic($$BEGIN
	LOOP END LOOP;
END$$);
ROLLBACK;
BEGIN;
SET LOCAL statement_timeout = '50ms';
\set SHOW_CONTEXT never
SELECT tw.atomic($$BEGIN
	x: WHILE true DO ITERATE x; END WHILE;
END$$);
\set SHOW_CONTEXT errors
ROLLBACK;

-- FOR: named row, unnamed row, label, expressions, order of the query
TRUNCATE acct;
INSERT INTO acct SELECT g, g * 10 FROM generate_series(1, 250) g;
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a, b, c numeric DEFAULT 0;
	FOR r AS SELECT id, bal FROM acct DO SET a = a + r.bal; END FOR;
	FOR SELECT id, bal FROM acct WHERE id <= 3 DO SET b = b + id * bal; END FOR;
	l: FOR r AS SELECT id, bal FROM acct ORDER BY id DESC DO
		SET c = c + l.bal + r.id + l.r.id;
		IF id = 249 THEN LEAVE l; END IF;
	END FOR l;
	RETURN jsonb_build_array(a, b, c);
END$$);
-- no rows at all; VALUES, WITH, TABLE, a function and DML with RETURNING
SELECT result, rows FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	FOR r AS SELECT id FROM acct WHERE false DO SET seen = 'never'; END FOR;
	FOR r AS VALUES (1, 'a'), (2, 'b') DO SET seen = seen || r.column1 || r.column2; END FOR;
	FOR r AS WITH w AS (SELECT 3 AS x) SELECT x + 1 AS y FROM w DO SET seen = seen || ' ' || y; END FOR;
	FOR r AS DELETE FROM acct WHERE id > 245 RETURNING id DO SET seen = seen || ' ' || r.id; END FOR;
	FOR r AS INSERT INTO acct VALUES (1000, 1), (1001, 2) RETURNING * DO
		SET seen = seen || ' ' || r.id;
		IF r.id = 1000 THEN
			FOR s AS TABLE acct DO SET seen = seen || '.'; EXIT_IF: BEGIN LEAVE EXIT_IF; END; END FOR;
		END IF;
	END FOR;
	RETURN replace(seen, repeat('.', 247), '247 rows');
END$$);
SELECT jsonb_path_query_array(operations, '$[*] ? (@.command == "DELETE" || @.command == "INSERT")') FROM tw.atomic($$BEGIN
	x: FOR r AS DELETE FROM acct WHERE id > 999 RETURNING id DO
		LEAVE x;			-- both are gone all the same
	END FOR;
	FOR r AS SELECT 1 DO
		INSERT INTO acct VALUES (999, 1);
	END FOR;
END$$);
-- the rows are those of the moment the loop began
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 0;
	FOR r AS SELECT id FROM acct WHERE id <= 240 DO
		SET n = n + 1;
		UPDATE acct SET bal = 0 WHERE id = r.id + 1;
		INSERT INTO acct VALUES (-r.id, 0);
		DELETE FROM acct WHERE id = 240 - r.id;
	END FOR;
	RETURN jsonb_build_array(n, (SELECT count(*) FROM acct));
END$$);
-- the same FOR in a loop, its query depending on variables
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 0;
	DECLARE seen text DEFAULT '';
	WHILE n < 3 DO
		SET n = n + 1;
		FOR r AS SELECT g, g * n AS m FROM generate_series(1, n) g DO
			SET seen = seen || r.m || ' ';
		END FOR;
	END WHILE;
	RETURN seen;
END$$);
-- FOR with a cursor's name: WHERE CURRENT OF
TRUNCATE acct;
INSERT INTO acct SELECT g, g FROM generate_series(1, 25) g;
SELECT rows FROM tw.atomic($$BEGIN
	FOR r AS c CURSOR FOR SELECT id FROM acct FOR UPDATE DO
		IF r.id % 2 = 0 THEN
			UPDATE acct SET bal = -bal WHERE CURRENT OF c;
		ELSEIF r.id % 5 = 0 THEN
			DELETE FROM acct WHERE CURRENT OF c;
		END IF;
	END FOR;
END$$);
SELECT sum(bal), count(*) FROM acct;
-- the row of a FOR may be passed whole, and is not to be assigned
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a jsonb DEFAULT '[]';
	FOR r AS SELECT id, bal AS "The Balance" FROM acct WHERE id <= 2 ORDER BY id DO
		SET a = a || to_jsonb(r) || to_jsonb(r."The Balance");
	END FOR;
	RETURN a;
END$$);
-- all of its columns at once
CREATE TABLE copy (LIKE acct);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE d acct;
	l: FOR r AS SELECT id, bal FROM acct WHERE id <= 4 ORDER BY id DO
		INSERT INTO copy VALUES (r.*);
		INSERT INTO copy SELECT l.r.*;
		SELECT r.* INTO d;
	END FOR;
	RETURN jsonb_build_array((SELECT sum(id) FROM copy), d, (SELECT jsonb_agg(x) FROM (SELECT d.*) x));
END$$);
DROP TABLE copy;
-- columns change with DDL from one loop to the next, and between runs
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	DECLARE n int DEFAULT 0;
	WHILE n < 3 DO
		SET n = n + 1;
		CREATE TEMP TABLE t AS SELECT 1 AS x;
		IF n = 2 THEN
			ALTER TABLE t ALTER x TYPE text USING 'as text';
			ALTER TABLE t ADD y date DEFAULT '2026-11-29';
		END IF;
		FOR r AS SELECT * FROM t DO
			SET seen = seen || pg_typeof(r.x) || ' ' || r.x || ' ' || to_jsonb(r) || ';';
		END FOR;
		DROP TABLE t;
	END WHILE;
	RETURN seen;
END$$);
SELECT tw.atomic($$BEGIN
	FOR r AS SELECT 1 AS a DO
		SELECT r.b;
	END FOR;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	FOR r AS DELETE FROM acct DO END FOR;
END$$);
\echo :SQLSTATE

-- A number is no condition, whatever its value; strings, JSON and domains over boolean are
SELECT tw.atomic('BEGIN IF 1 THEN END IF; END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN DECLARE n int DEFAULT 1; WHILE n DO SET n = n - 1; END WHILE; END');
SELECT tw.atomic('BEGIN REPEAT UNTIL now() END REPEAT; END');
SELECT tw.atomic('BEGIN CASE WHEN 0.5 THEN ELSE END CASE; END');
CREATE DOMAIN agreed AS boolean;
SELECT result FROM tw.atomic($$BEGIN
	DECLARE t text DEFAULT 'on';
	DECLARE d agreed DEFAULT true;
	DECLARE j jsonb DEFAULT 'true';
	IF t THEN IF d THEN IF j THEN IF 'yes' THEN IF :n THEN RETURN 'one by one'; END IF; END IF; END IF; END IF; END IF;
END$$, '{"n": 1}');
DROP DOMAIN agreed;

DROP TABLE acct;
DROP SEQUENCE ticks;
