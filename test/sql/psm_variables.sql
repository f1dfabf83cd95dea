-- Variables: types, defaults, assignment, and which name means what
CREATE TYPE mood AS ENUM ('sad', 'fine', 'happy');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN given AS text NOT NULL;
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN good_pair AS pair CHECK ((VALUE).a > 0);
CREATE TABLE item (id int, name varchar(5), price numeric(6,2), tags text[]);
INSERT INTO item VALUES (1, 'one', 1.5, '{x,y}'), (2, 'two', 2.25, NULL);

-- types are the database's own, modifiers and all
SELECT jsonb_pretty(result) FROM tw.atomic($$BEGIN
	DECLARE a numeric(5,2) DEFAULT 3.14159;
	DECLARE b varchar(3);
	DECLARE c char(4) DEFAULT 'ab';
	DECLARE d timestamp(0) DEFAULT '2026-11-29 12:00:00.7';
	DECLARE e interval hour to minute DEFAULT '1:02:03';
	DECLARE f int[] DEFAULT ARRAY[1, 2];
	DECLARE g mood DEFAULT 'fine';
	DECLARE h positive DEFAULT 3;
	DECLARE i double precision DEFAULT 1e3;
	DECLARE j bit varying(5) DEFAULT B'101';
	DECLARE k pg_catalog.text DEFAULT 'named in full';
	DECLARE l "char" DEFAULT 'xyz';
	DECLARE m jsonb DEFAULT '{"x": 1}';
	DECLARE n int4range DEFAULT '[1,5)';
	SET b = 'abc  ';
	SET f = f || 3;
	RETURN jsonb_build_object('a', a, 'b', b, 'c', c || '|', 'd', d, 'e', e, 'f', f, 'g', g, 'h', h,
		'i', i, 'j', j, 'k', k, 'l', l, 'm', m -> 'x', 'n', upper(n));
END$$);
-- a value that does not fit is an error with its place
SELECT tw.atomic($$BEGIN
	DECLARE a varchar(3) DEFAULT 'ab';
	SET a = a || a;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a int;
	SET a = 'twelve';
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a numeric(3,1) DEFAULT 100;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a smallint DEFAULT 1;
	SET a = 40000;
END$$);
\echo :SQLSTATE
-- assignment casts as INSERT does
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a int DEFAULT 2.5;
	DECLARE b text DEFAULT 42;
	DECLARE c date DEFAULT now();
	DECLARE d bool DEFAULT 'yes';
	RETURN jsonb_build_array(a, b, c = current_date, d);
END$$);

-- domains are checked at each assignment, and when a variable begins as NULL
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a positive DEFAULT 1;
	DECLARE failed int DEFAULT 0;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '23514' SET failed = failed + 1;
	SET a = -5;
	SET a = a + 1;
	SET a = NULL;
	SET (a, failed) = (0, 100);
	SELECT -1 INTO a;
	RETURN jsonb_build_array(a, failed);
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE a given;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a given DEFAULT 'x';
	SET a = NULL;
END$$);
\echo :SQLSTATE
SELECT result FROM tw.atomic($$BEGIN
	DECLARE p good_pair DEFAULT row(1, 'x');
	DECLARE failed int DEFAULT 0;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '23514' SET failed = failed + 1;
	SET p.a = 0;
	SET p = row(-1, 'y')::pair;
	SET p.a = 2;
	SELECT -2, 'z' INTO p;
	RETURN jsonb_build_array(p, failed);
END$$);

-- rows: whole, column by column, as argument and in a query
SELECT jsonb_pretty(result) FROM tw.atomic($$BEGIN
	DECLARE i, j item;
	DECLARE p pair;
	DECLARE empty bool DEFAULT i IS NULL;
	SELECT * INTO i FROM item WHERE id = 1;
	SET j = i;
	SET j.id = j.id + 10, j.tags = i.tags || ARRAY['z'];
	SET p = (7, 'seven');
	SET p.b = upper(p.b);
	INSERT INTO item SELECT (j).*;
	UPDATE item SET name = j.name || '!' WHERE item.id = j.id;
	SELECT id, name INTO p FROM item WHERE id = 11;
	RETURN jsonb_build_object('i', i, 'j', j, 'p', p, 'empty', empty, 'all', (SELECT jsonb_agg(t) FROM item t));
END$$);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE p pair;
	SET p.b = 'only b';
	RETURN jsonb_build_array(p, p IS NULL, p.a IS NULL);
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE p pair;
	SET p.c = 1;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE p pair;
	SET p = 5;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE p pair;
	RETURN p.c;
END$$);
\echo :SQLSTATE

-- several at once: all values first, then the assignments
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a int DEFAULT 1;
	DECLARE b int DEFAULT 2;
	DECLARE c, d text DEFAULT 'c';
	SET (a, b) = (b, a);
	SET d = 'd';
	SET (c, d) = (d || c, c || d);
	SET (a, b) = (SELECT a + 10, b + 10);
	RETURN jsonb_build_array(a, b, c, d);
END$$);
-- one after the other
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a int DEFAULT 1;
	DECLARE b int DEFAULT 2;
	SET a = b, b = a;
	RETURN jsonb_build_array(a, b);
END$$);
-- a query of SET (...): no row sets nulls, two are an error
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a, b int DEFAULT 1;
	SET (a, b) = (SELECT id, id FROM item WHERE false);
	RETURN jsonb_build_array(a, b);
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE a, b int DEFAULT 1;
	SET (a, b) = (SELECT id, id FROM item);
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a, b int;
	SET (a, b) = (SELECT id FROM item WHERE id = 1);
END$$);
\echo :SQLSTATE

-- a column wins over a variable, label.variable is always the variable
SELECT result FROM tw.atomic($$me: BEGIN
	DECLARE id int DEFAULT 2;
	DECLARE name text DEFAULT 'mine';
	DECLARE other int DEFAULT 2;
	DECLARE n, m, o int;
	DECLARE s text;
	SELECT count(*) INTO n FROM item WHERE item.id = id;
	SELECT count(*) INTO m FROM item WHERE item.id = me.id;
	SELECT count(*) INTO o FROM item WHERE item.id = other;
	SELECT name INTO s FROM item WHERE item.id = me.id;
	RETURN jsonb_build_array(n, m, o, s, name, me.name, me.id + id);
END me$$);
-- ... where there is no such column the variable is meant, inside subqueries as well
SELECT result FROM tw.atomic($$BEGIN
	DECLARE wanted int DEFAULT 2;
	RETURN (SELECT jsonb_agg(i.name) FROM item i WHERE EXISTS (SELECT FROM generate_series(wanted, wanted) g WHERE g = i.id));
END$$);
-- ... table and label of the same name: the label's variables go first, then the table's columns
SELECT result FROM tw.atomic($$item: BEGIN
	DECLARE id int DEFAULT 2;
	RETURN (SELECT jsonb_agg(jsonb_build_array(item.id, item.name)) FROM item);
END item$$);
-- ... the innermost of several
SELECT result FROM tw.atomic($$a: BEGIN
	DECLARE x int DEFAULT 1;
	b: BEGIN
		DECLARE x int DEFAULT 2;
		RETURN (SELECT jsonb_build_array(x, a.x, b.x, y.x) FROM (VALUES (3)) y (x));
	END;
END$$);
-- columns of a FOR row, by their own names; a variable further in hides them
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	FOR SELECT id, name FROM item ORDER BY id DO
		SET seen = seen || id || name || ' ';
		BEGIN
			DECLARE id text DEFAULT 'hidden';
			SET seen = seen || id || ' ';
		END;
	END FOR;
	RETURN seen;
END$$);
-- names that are written in quotes
SELECT result FROM tw.atomic($$"My Block": BEGIN
	DECLARE "My Var" int DEFAULT 1;
	DECLARE "end" int DEFAULT 2;
	DECLARE myvar, MYVAR2 int DEFAULT 3;
	SET "My Var" = "My Var" + "end" + MyVar + "myvar2";
	RETURN "My Block"."My Var";
END "My Block"$$);
-- unknown names: where and what
SELECT tw.atomic($$BEGIN
	DECLARE amount int DEFAULT 1;
	UPDATE item
		SET price = amonut
		WHERE id = 1;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE amount int;
	SET amonut = 1;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a no_such_type;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a anyelement;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	FOR r AS SELECT 1 AS a DO
		SET r.a = 2;
	END FOR;
END$$);
\echo :SQLSTATE

-- values by reference live on through undone savepoints and many assignments
SELECT result FROM tw.atomic($$BEGIN
	DECLARE s, t text DEFAULT '';
	DECLARE a int[] DEFAULT '{}';
	DECLARE n int DEFAULT 0;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET t = t || repeat('h', n);
	WHILE n < 5 DO
		SET n = n + 1;
		BEGIN ATOMIC
			SET s = s || n || repeat('-', 3), a = a || n;
			SET t = (SELECT t || name FROM item WHERE id = 1);
			IF n % 2 = 0 THEN SIGNAL SQLSTATE '45000'; END IF;
		END;
	END WHILE;
	RETURN jsonb_build_array(s, t, a);
END$$);
-- big values, compressed and out of line, are kept whole after their table is gone
CREATE TABLE big (id int, t text);
INSERT INTO big SELECT 1, string_agg(md5(g::text), '') FROM generate_series(1, 10000) g;
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a text;
	DECLARE r big;
	DECLARE b text;
	SELECT t INTO a FROM big;
	SELECT * INTO r FROM big;
	SET b = a;
	DROP TABLE big;
	SET a = left(a, 3);
	RETURN jsonb_build_array(a, length(r.t), length(b), md5(b) = md5(r.t));
END$$);

DROP TABLE item;
DROP DOMAIN good_pair, positive, given;
DROP TYPE pair, mood;
