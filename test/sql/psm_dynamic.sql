-- EXECUTE IMMEDIATE
CREATE TABLE t (n int PRIMARY KEY, v text);

SELECT result, rows FROM tw.atomic($$BEGIN
	DECLARE name text DEFAULT 't';
	DECLARE a int; DECLARE b text; DECLARE r t;
	EXECUTE IMMEDIATE 'INSERT INTO ' || quote_ident(name) || ' VALUES (1, ''one'')';
	EXECUTE IMMEDIATE 'INSERT INTO t VALUES (?, ?)' USING 2, 'two';
	EXECUTE IMMEDIATE 'INSERT INTO t VALUES ($1, $2 || $2)' USING 3, 'x';
	EXECUTE IMMEDIATE 'SELECT n, v FROM t WHERE n = ? AND v <> ''?'' -- really?' INTO a, b USING 1 + 1;
	EXECUTE IMMEDIATE 'SELECT * FROM t WHERE n = 3' INTO r;
	RETURN jsonb_build_array(a, b, r);
END$$);
-- without USING a question mark is an operator
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a bool; DECLARE b bool;
	EXECUTE IMMEDIATE 'SELECT ''{"k": 1}''::jsonb ? ''k''' INTO a;
	EXECUTE IMMEDIATE 'SELECT ''{"k": 1}''::jsonb ? $1' INTO b USING 'x'::text;
	RETURN jsonb_build_array(a, b);
END$$);
-- parameters of the script, alone and not
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a text; DECLARE b numeric; DECLARE c bool; DECLARE d jsonb; DECLARE e text;
	EXECUTE IMMEDIATE :stmt INTO a, b, c, d, e USING :s, :n, :b, :o, :z;
	RETURN jsonb_build_array(a, b, c, d, e);
END$$, '{"stmt": "SELECT ?, ? * 2, NOT ?, ?, ?", "s": "it''s", "n": 2.5, "b": true, "o": [1], "z": null}');
-- its text sees no variables
SELECT tw.atomic($$BEGIN
	DECLARE x int DEFAULT 1;
	EXECUTE IMMEDIATE 'SELECT x';
END$$);
\echo :SQLSTATE
-- counts, NOT FOUND, and row counts
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n, absent int DEFAULT 0;
	DECLARE x int DEFAULT 5;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET absent = absent + 1;
	EXECUTE IMMEDIATE 'UPDATE t SET v = v';
	GET DIAGNOSTICS n = ROW_COUNT;
	EXECUTE IMMEDIATE 'DELETE FROM t WHERE n = 99';
	EXECUTE IMMEDIATE 'SELECT n FROM t WHERE n = 99' INTO x;
	EXECUTE IMMEDIATE 'SELECT n FROM t WHERE n = 99';
	RETURN jsonb_build_array(n, absent, x);
END$$);
-- DDL, and a DO block
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 0;
	WHILE n < 3 DO
		SET n = n + 1;
		EXECUTE IMMEDIATE 'CREATE TABLE part' || n || ' AS SELECT ' || n || ' AS x';
	END WHILE;
	EXECUTE IMMEDIATE 'DO ''BEGIN ALTER TABLE part3 ADD y int; END''';
	RETURN (SELECT jsonb_agg(relname::text || relnatts ORDER BY relname) FROM pg_class WHERE relname LIKE 'part_' AND relkind = 'r');
END$$);
DROP TABLE part1, part2, part3;

-- refused: the end of the transaction, what cannot run in one, no statement, two, null
SELECT tw.atomic($$BEGIN EXECUTE IMMEDIATE 'COMMIT'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN EXECUTE IMMEDIATE 'rollback to savepoint x'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN EXECUTE IMMEDIATE 'VACUUM t'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN EXECUTE IMMEDIATE 'COPY t TO STDOUT'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN EXECUTE IMMEDIATE 'SELECT 1; DELETE FROM t'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN EXECUTE IMMEDIATE '  -- nothing'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN EXECUTE IMMEDIATE NULL; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN EXECUTE IMMEDIATE 'SELEC 1'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE x int;
	EXECUTE IMMEDIATE 'SELECT n FROM t' INTO x;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE x int;
	EXECUTE IMMEDIATE 'DELETE FROM t' INTO x;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE x int;
	EXECUTE IMMEDIATE 'SELECT ?, ?' INTO x USING 1;
END$$);
\echo :SQLSTATE
-- a call that would commit further in
CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
SELECT tw.atomic($$BEGIN EXECUTE IMMEDIATE 'CALL commits()'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN CALL commits(); END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN DO 'BEGIN COMMIT; END'; END$$);
\echo :SQLSTATE
-- values never become text of the statement
SELECT result FROM tw.atomic($$BEGIN
	DECLARE evil text DEFAULT '''; DROP TABLE t; --';
	DECLARE back text;
	EXECUTE IMMEDIATE 'INSERT INTO t VALUES (100, ?)' USING evil;
	EXECUTE IMMEDIATE 'SELECT v FROM t WHERE v = $1' INTO back USING evil;
	RETURN back = evil;
END$$);

DROP PROCEDURE commits;
DROP TABLE t;
