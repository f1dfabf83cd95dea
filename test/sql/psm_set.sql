-- SET of parts of a value, and of several variables from one query.
\set VERBOSITY default
\set SHOW_CONTEXT always
CREATE TYPE set_point AS (x int, y int);
CREATE TYPE set_shape AS (corner set_point, tags text[], "odd name" int);

-- Elements, slices, elements of fields, fields of fields, JSON
SELECT result FROM tw.atomic($$
main: BEGIN ATOMIC
  DECLARE a int[] DEFAULT ARRAY[1, 2, 3];
  DECLARE m int[] DEFAULT '{{1,2},{3,4}}';
  DECLARE e text[];
  DECLARE i int DEFAULT 2;
  DECLARE s set_shape;
  DECLARE j jsonb DEFAULT '{}';
  SET a[i] = 20, a[i + 2] = (SELECT max(v) FROM (VALUES (7), (9)) AS t(v));
  SET a[1:1] = ARRAY[100];
  SET main.a[a[3]] = a[3] * 10;
  SET m[2][1] = 30;
  SET e[3] = 'third';
  SET s.corner = ROW(1, 2);
  SET s.corner.x = 10;
  SET s.tags[2] = 'two', s."odd name" = 1;
  SET j['k'] = '"v"', j['list'][0] = '1';
  RETURN concat_ws(' | ', a, m, e, s, j);
END$$);

-- A loop that fills an array
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE a int[] DEFAULT '{}';
  DECLARE i int DEFAULT 0;
  WHILE i < 1000 DO
    SET i = i + 1;
    SET a[i] = i;
  END WHILE;
  RETURN (SELECT sum(x) FROM unnest(a) AS x);
END$$);

-- Arrays whose elements are used are kept in a form of their own: no copy of one
-- may change with another, and an assignment that fails changes nothing
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE a, b int[] DEFAULT ARRAY[1, 2, 3];
  DECLARE n int[];
  DECLARE t text[] DEFAULT '{}';
  DECLARE seen text DEFAULT '';
  DECLARE i int DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012', SQLSTATE '2202E', SQLSTATE '22004' SET seen = seen || 'caught ';
  SET b = a, b[1] = 100, a[2] = b[1];
  SET a[3] = a[1] + a[2], a = a || a[3], a = 0 || a;
  SET a = a || a;
  SET a[1] = 1 / (a[1] - a[1]);
  SET a[NULL] = 7;
  SET n[2] = 5, n = n || n[2], n = array_append(n, 6), n = array_prepend(4, n);
  SET (a, b) = (b, a);
  WHILE i < 3 DO
    SET i = i + 1, t[i] = 'x' || i, t = t || ('y' || i);
  END WHILE;
  SET t = coalesce(t, n::text[]), t = CASE WHEN true THEN t END;
  SET t[1] = t[2] || t[3];
  BEGIN ATOMIC
    DECLARE c int[] DEFAULT b;
    DECLARE UNDO HANDLER FOR SQLSTATE '45000' SET seen = seen || 'undone ';
    SET b[1] = -1, c[1] = -2;
    SIGNAL SQLSTATE '45000';
  END;
  RETURN concat_ws(' ', a, b, n, t, seen);
END$$);

-- ... nor the caller's with that of a function
CREATE FUNCTION set_array(a int[], n int) RETURNS int[] LANGUAGE psm AS $$
BEGIN
  DECLARE before int[] DEFAULT a;
  SET a[n] = -n;
  IF n > 1 THEN SET a = set_array(a, n - 1), before[1] = 0; END IF;
  RETURN a || before[1];
END$$;
SELECT set_array(v, 3), v FROM (SELECT ARRAY[1, 2, 3, 4]) AS t(v);
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE a, b int[] DEFAULT ARRAY[1, 2];
  SET b = set_array(a, 2), a[1] = 10;
  RETURN concat_ws(' ', a, b);
END$$);
DROP FUNCTION set_array;

-- A row of values, with as many parentheses as one likes
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE a, b, c, d int;
  SET (a, b) = (SELECT 1, 2);
  SET (c, d) = ((SELECT 3, 4));
  SET (a, b) = (b, a);
  SET (a, b) = ((SELECT a + 10), (b + 10));
  SET (c, d) = (((SELECT 5, 6) UNION (SELECT 5, 6)));
  RETURN ARRAY[a, b, c, d];
END$$);

-- Errors, and where
SELECT tw.atomic($$BEGIN
  DECLARE a int[];
  SET a[1] 5;
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE a int[];
  SET a[1] = ;
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE a int[];
  SET a[1 = 5;
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE a int[];
  SET a[1] = 5 6;
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE a int[];
  SET a['x'] = 5;
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE a int;
  SET a[1] = 5;
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE a int[];
  SET a[6:] = ARRAY['x'];
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE s set_shape;
  SET s.corner.z = 5;
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE s set_shape;
  SET s.corne = ROW(1, 2);
END$$);
SELECT tw.atomic($$BEGIN
  FOR r AS SELECT ARRAY[1] AS a DO
    SET r.a[1] = 5;
  END FOR;
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE a, b int;
  SET (a, b) = ((SELECT 1, 2), 3, 4);
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE a, b int;
  SET (a, b) = ((SELECT 1, 2, 3));
END$$);
SELECT tw.atomic($$BEGIN
  DECLARE a, b int;
  SET (a, b) = ((SELECT 1), (SELECT 2);
END$$);

DROP TYPE set_shape, set_point;
