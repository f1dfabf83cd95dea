-- CALL: variables in the places of output arguments receive their values.
\set VERBOSITY default
\set SHOW_CONTEXT always
CREATE TABLE call_log (what text);
CREATE PROCEDURE call_p(IN a int, INOUT b numeric, OUT c text) LANGUAGE psm AS $$
BEGIN
  INSERT INTO call_log VALUES ('called with ' || a);
  SET b = b + a, c = 'c' || a;
END$$;
-- In other languages as well
CREATE PROCEDURE call_pl(INOUT r call_log, INOUT n bigint DEFAULT 7) LANGUAGE plpgsql AS $$
BEGIN
  r.what := upper(r.what);
  n := n + 1;
END$$;
CREATE PROCEDURE call_sql(OUT n int) LANGUAGE sql BEGIN ATOMIC SELECT 42; END;

-- Variables, with a cast of the argument, columns of rows, and a label
SELECT result FROM tw.atomic($$
main: BEGIN ATOMIC
  DECLARE b int DEFAULT 5;
  DECLARE c text;
  DECLARE row call_log;
  CALL call_p(1, b, c);
  CALL call_p(a => 10, c => row.what, b => main.b);
  RETURN concat_ws(' ', b, c, row.what);
END$$);

-- Defaults and constants receive nothing; named arguments; a row as a whole
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE c text;
  DECLARE n int;
  DECLARE row call_log;
  SET row.what = 'quiet';
  CALL call_p(1, 2, c);
  CALL call_p(:p, :p, NULL);
  CALL call_pl(row);
  CALL call_pl(r => row, n => n);
  CALL call_pl(n => n, r => row);
  CALL call_sql(n);
  RETURN concat_ws(' ', c, row.what, n);
END$$, '{"p": 3}');

-- A procedure is found by the types of its outputs, too: a cast does no harm
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE n bigint;
  DECLARE c varchar(10);
  DECLARE v text DEFAULT '5';
  CALL call_sql(n::int);
  CALL call_p(1, CAST(v AS numeric), c);
  RETURN concat_ws(' ', n, c, v);
END$$);

-- A loop: each call sees what the one before has left
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE total numeric DEFAULT 0;
  DECLARE c text;
  DECLARE i int DEFAULT 1;
  WHILE i <= 100 DO
    CALL call_p(i, total, c);
    SET i = i + 1;
  END WHILE;
  RETURN total;
END$$);

-- CALL counts no rows, and is in the operations
SELECT result, rows, operations FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE n, found int;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET found = 0;
  SET found = 1;
  CALL call_sql(n);
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN ARRAY[n, found];
END$$);

-- What cannot receive a value is refused before the procedure runs
TRUNCATE call_log;
SELECT status FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE b int DEFAULT 5;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET b = 6;
  CALL call_p(1, b + 1, NULL);
  IF b = 6 THEN
    CALL call_p(1, b, upper(b::text));
  END IF;
END$$);
SELECT tw.atomic($$
BEGIN ATOMIC
  FOR r AS SELECT 1.5 AS b DO
    CALL call_p(1, r.b, NULL);
  END FOR;
END$$);
SELECT * FROM call_log;

-- A value that the variable cannot take
SELECT tw.atomic($$
BEGIN ATOMIC
  DECLARE c char(1);
  CALL call_p(1, 2, c);
  CALL call_p(10, 2, c);
END$$);
SELECT tw.atomic($$
BEGIN ATOMIC
  DECLARE c int;
  CALL call_p(10, 2, c);
END$$);

-- The procedure fails, and every level says where
CREATE PROCEDURE call_fails(OUT n int) LANGUAGE psm AS $$
BEGIN
  SET n = 1;
  CALL call_p(n, NULL, NULL);
  SET n = 1 / (n - 1);
END$$;
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE n int DEFAULT 7;
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' INSERT INTO call_log VALUES ('handled');
  CALL call_fails(n);
  RETURN n;
END$$);
SELECT * FROM call_log;
SELECT tw.atomic($$
BEGIN ATOMIC
  DECLARE n int DEFAULT 7;
  CALL call_fails(n);
END$$);

-- A procedure that is replaced while the block is cached
CREATE FUNCTION call_again() RETURNS jsonb LANGUAGE sql AS $f$
SELECT (tw.atomic($$
BEGIN ATOMIC
  DECLARE n int;
  CALL call_sql(n);
  RETURN n;
END$$)).result
$f$;
SELECT call_again();
DROP PROCEDURE call_sql;
CREATE PROCEDURE call_sql(OUT n bigint) LANGUAGE psm AS $$BEGIN SET n = 43; END$$;
SELECT call_again();
DROP PROCEDURE call_sql;
CREATE PROCEDURE call_sql(IN m int, OUT n int) LANGUAGE psm AS $$BEGIN SET n = '43'; END$$;
SELECT call_again();

DROP FUNCTION call_again;
DROP PROCEDURE call_p, call_pl, call_sql, call_fails;
DROP TABLE call_log;
