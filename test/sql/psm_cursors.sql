-- Cursors: OPEN, FETCH, CLOSE, WHERE CURRENT OF
CREATE TABLE t (n int PRIMARY KEY, v text DEFAULT '');
INSERT INTO t SELECT generate_series(0, 4);

-- the sum of 0 to 4, ended by a handler for NOT FOUND that leaves
SELECT result FROM tw.atomic($$BEGIN
	DECLARE total, x int DEFAULT 0;
	DECLARE c CURSOR FOR SELECT n FROM t ORDER BY n;
	OPEN c;
	summing: LOOP
		BEGIN
			DECLARE CONTINUE HANDLER FOR NOT FOUND LEAVE summing;
			FETCH c INTO x;
			SET total = total + x;
		END;
	END LOOP summing;
	CLOSE c;
	RETURN total;
END$$);
-- ... or by one that sets a flag
SELECT result FROM tw.atomic($$BEGIN
	DECLARE total, x int DEFAULT 0;
	DECLARE done boolean DEFAULT false;
	DECLARE c CURSOR FOR SELECT n FROM t ORDER BY n;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = true;
	OPEN c;
	FETCH NEXT FROM c INTO x;
	WHILE NOT done DO
		SET total = total + x;
		FETCH FROM c INTO x;
	END WHILE;
	RETURN jsonb_build_array(total, x);
END$$);

-- past the end again and again; opened anew with other values of its variables
SELECT result FROM tw.atomic($$BEGIN
	DECLARE from_n int DEFAULT 3;
	DECLARE x, absent int DEFAULT 0;
	DECLARE seen text DEFAULT '';
	DECLARE c CURSOR FOR SELECT n FROM t WHERE n >= from_n ORDER BY n;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET absent = absent + 1;
	OPEN c;
	SET from_n = 0;						-- too late for this time
	FETCH c INTO x; SET seen = seen || x;
	FETCH c INTO x; SET seen = seen || x;
	FETCH c INTO x; SET seen = seen || x;
	FETCH c INTO x; SET seen = seen || x;
	CLOSE c;
	OPEN c;
	FETCH c INTO x; SET seen = seen || x;
	CLOSE c;
	RETURN jsonb_build_array(seen, absent);
END$$);
-- without a handler nothing happens at the end
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x int DEFAULT 7;
	DECLARE n int;
	DECLARE c CURSOR FOR SELECT n FROM t WHERE n > 100;
	OPEN c;
	FETCH c INTO x;
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN jsonb_build_array(x, n);
END$$);
-- the rows are those of the moment it was opened; several at once; rows and lists
SELECT result FROM tw.atomic($$BEGIN
	DECLARE r t;
	DECLARE a int; DECLARE b text;
	DECLARE c CURSOR FOR SELECT * FROM t ORDER BY n;
	DECLARE d CURSOR FOR SELECT n * 2, 'd' || n FROM t ORDER BY n DESC;
	OPEN c;
	OPEN d;
	DELETE FROM t;
	FETCH c INTO r;
	FETCH c INTO r;
	FETCH d INTO a, b;
	INSERT INTO t SELECT generate_series(0, 4);
	RETURN jsonb_build_array(r, a, b);
END$$);

-- not open, open twice, closed twice, closed with its block
SELECT tw.atomic($$BEGIN
	DECLARE x int;
	DECLARE c CURSOR FOR SELECT 1;
	FETCH c INTO x;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE c CURSOR FOR SELECT 1;
	OPEN c;
	OPEN c;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE c CURSOR FOR SELECT 1;
	OPEN c;
	CLOSE c;
	CLOSE c;
END$$);
\echo :SQLSTATE
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n, x int DEFAULT 0;
	WHILE n < 3 DO
		BEGIN
			DECLARE c CURSOR FOR SELECT n;
			OPEN c;
			FETCH c INTO x;
			SET n = n + 1;
		END;
	END WHILE;
	RETURN jsonb_build_array(x, (SELECT count(*) FROM pg_cursors WHERE name = 'c'));
END$$);
-- the wrong number of variables
SELECT tw.atomic($$BEGIN
	DECLARE x int;
	DECLARE c CURSOR FOR SELECT 1, 2;
	OPEN c;
	FETCH c INTO x;
END$$);
\echo :SQLSTATE

-- WHERE CURRENT OF
SELECT result, rows FROM tw.atomic($$BEGIN
	DECLARE x int;
	DECLARE c CURSOR FOR SELECT n FROM t ORDER BY n FOR UPDATE;
	OPEN c;
	FETCH c INTO x;
	FETCH c INTO x;
	UPDATE t SET v = 'second' WHERE CURRENT OF c;
	FETCH c INTO x;
	DELETE FROM t WHERE CURRENT OF c;
	RETURN (SELECT jsonb_agg(t ORDER BY n) FROM t);
END$$);
-- ... means the block's own cursor, whatever else is open under the name
BEGIN;
DECLARE c CURSOR FOR SELECT n FROM t WHERE n = 0 FOR UPDATE;
FETCH c;
SELECT result, rows FROM tw.atomic($$BEGIN
	DECLARE x int;
	DECLARE c CURSOR FOR SELECT n FROM t WHERE n = 4 FOR UPDATE;
	OPEN c;
	FETCH c INTO x;
	UPDATE t SET v = 'own' WHERE CURRENT OF c;
	BEGIN
		DECLARE c CURSOR FOR SELECT n FROM t WHERE n = 3 FOR UPDATE;
		OPEN c;
		FETCH c INTO x;
		UPDATE t SET v = 'inner' WHERE CURRENT OF c;
	END;
	RETURN (SELECT jsonb_agg(t ORDER BY n) FROM t);
END$$);
FETCH c;
ROLLBACK;
SELECT tw.atomic($$BEGIN
	DECLARE c CURSOR FOR SELECT n FROM t FOR UPDATE;
	UPDATE t SET v = 'never' WHERE CURRENT OF c;
END$$);
\echo :SQLSTATE
UPDATE t SET n = 2 WHERE n = 3;

-- under handlers: an error elsewhere leaves the cursor where it was
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x int;
	DECLARE seen text DEFAULT '';
	DECLARE c CURSOR FOR SELECT n FROM t ORDER BY n;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET seen = seen || 'E';
	OPEN c;
	FETCH c INTO x; SET seen = seen || x;
	INSERT INTO t VALUES (0);
	FETCH c INTO x; SET seen = seen || x;
	BEGIN ATOMIC
		FETCH c INTO x; SET seen = seen || x;
		SIGNAL SQLSTATE '45000';
	END;
	FETCH c INTO x; SET seen = seen || x;
	RETURN seen;
END$$);
-- ... one opened in what is undone is not open any more, and may be opened again
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x int;
	DECLARE seen text DEFAULT '';
	DECLARE c CURSOR FOR SELECT n FROM t ORDER BY n;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '24000' SET seen = seen || 'closed ';
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET seen = seen || 'undone ';
	BEGIN ATOMIC
		OPEN c;
		FETCH c INTO x; SET seen = seen || x || ' ';
		SIGNAL SQLSTATE '45000';
	END;
	FETCH c INTO x;
	OPEN c;
	FETCH c INTO x; SET seen = seen || x || ' ';
	RETURN seen;
END$$);
-- ... one whose own fetch fails
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x int;
	DECLARE seen text DEFAULT '';
	DECLARE c CURSOR FOR SELECT 10 / (n - 1) FROM t ORDER BY n;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN
		DECLARE state text;
		GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE;
		SET seen = seen || state || ' ';
	END;
	OPEN c;
	FETCH c INTO x; SET seen = seen || x || ' ';
	FETCH c INTO x;
	FETCH c INTO x;
	CLOSE c;
	OPEN c;
	FETCH c INTO x; SET seen = seen || x || ' ';
	RETURN seen;
END$$);
-- a table cannot go while a cursor is on it; afterwards it can, and the cursor opens on the next one
SELECT tw.atomic($$BEGIN
	DECLARE c CURSOR FOR SELECT n FROM t;
	OPEN c;
	DROP TABLE t;
END$$);
\echo :SQLSTATE
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a, b text;
	DECLARE c CURSOR FOR SELECT * FROM s;
	CREATE TEMP TABLE s AS SELECT 1 AS x;
	OPEN c; FETCH c INTO a; CLOSE c;
	DROP TABLE s;
	CREATE TEMP TABLE s AS SELECT date '2026-11-29' AS y;
	OPEN c; FETCH c INTO b; CLOSE c;
	DROP TABLE s;
	RETURN jsonb_build_array(a, b);
END$$);
-- a function in SQL gives its rows one at a time; under handlers they are taken in several savepoints
CREATE FUNCTION few(n int) RETURNS SETOF int LANGUAGE sql VOLATILE AS 'SELECT generate_series(1, n)';
SELECT result FROM tw.atomic($$BEGIN
	DECLARE x int;
	DECLARE seen text DEFAULT '';
	DECLARE c CURSOR FOR SELECT few(4);
	DECLARE CONTINUE HANDLER FOR SQLSTATE '45000' SET seen = seen || 'E';
	OPEN c;
	FETCH c INTO x; SET seen = seen || x;
	FETCH c INTO x; SET seen = seen || x;
	BEGIN ATOMIC
		FETCH c INTO x; SET seen = seen || x;
		SIGNAL SQLSTATE '45000';
	END;
	FETCH c INTO x; SET seen = seen || x;
	RETURN seen;
END$$);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE rows, total, failed int DEFAULT 0;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' SET failed = failed + 1;
	FOR r AS SELECT * FROM (SELECT few(25) AS n OFFSET 0) AS s DO
		SET rows = rows + 1, total = total + r.n;
		INSERT INTO t SELECT 1 / 0;
	END FOR;
	RETURN jsonb_build_array(rows, total, failed);
END$$);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' SET seen = seen || 'E';
	FOR r AS SELECT 6 / (3 - few(4)) AS n DO
		SET seen = seen || r.n;
	END FOR;
	RETURN seen || (SELECT count(*) FROM pg_cursors);
END$$);
DROP FUNCTION few;
-- no cursor is left behind
SELECT count(*) FROM pg_cursors WHERE name IN ('c', 'd');

DROP TABLE t;
