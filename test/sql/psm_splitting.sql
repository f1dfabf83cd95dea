-- Text that misleads what cuts SQL at semicolons and looks for keywords.
CREATE TABLE split_t (a int, b text, "end" int, "then" int);

-- Semicolons and words in strings, comments, quoted names and CASE expressions
SELECT (tw.atomic($block$
BEGIN ATOMIC
  DECLARE n int DEFAULT CASE WHEN 1 = 1 THEN 2 ELSE 3 END;
  INSERT INTO split_t (a, b) VALUES (1, 'it''s; END');
  INSERT INTO split_t (a, b) VALUES (2, $q$;$q$ || E'\';' || U&'\003B'); -- ; END
  INSERT INTO split_t (a, "end", "then") VALUES (3, 4, 5) /* ; /* END; */ ; */;
  UPDATE split_t SET b = CASE a WHEN 3 THEN 'three;' ELSE b END WHERE a = CASE WHEN true THEN 3 END;
  IF CASE WHEN n = 2 THEN true ELSE false END THEN
    DELETE FROM split_t WHERE a = 2 AND b <> ';'';;';
  END IF;
  WHILE CASE WHEN n < 4 THEN true END DO
    SET n = n + 1;
  END WHILE;
  REPEAT
    SET n = n + 1;
  UNTIL CASE WHEN n > 5 THEN true ELSE false END END REPEAT;
  RETURN n;
END
$block$)).result;
SELECT a, b, "end", "then" FROM split_t ORDER BY a;

-- Keywords as column names and aliases
SELECT (tw.atomic($$
BEGIN
  RETURN TABLE SELECT t.a AS then, t.end AS end, t."then" AS do, max(t.a) OVER () AS into
    FROM split_t AS t WHERE t.end = 4;
END$$)).result;

-- Bodies of functions with their own semicolons and END
SELECT (tw.atomic($$
BEGIN
  CREATE FUNCTION split_f(x int) RETURNS int LANGUAGE sql
  BEGIN ATOMIC
    SELECT 1;
    SELECT CASE WHEN $1 > 0 THEN x + 1 ELSE (CASE x WHEN 0 THEN 7 END) END;
  END;
  CREATE OR REPLACE PROCEDURE split_p(INOUT x int) LANGUAGE plpgsql AS $f$
  BEGIN
    x := x * 2; -- END;
  END $f$;
  CREATE RULE split_r AS ON DELETE TO split_t WHERE old.a = 0 DO ALSO
    (INSERT INTO split_t (a) VALUES (10); INSERT INTO split_t (a) VALUES (11));
  RETURN split_f(1) + split_f(0);
END$$)).result;
DROP RULE split_r ON split_t;

-- DO of ON CONFLICT and MERGE does not end the query of a FOR
CREATE TABLE split_u (a int PRIMARY KEY, n int DEFAULT 0);
SELECT (tw.atomic($$
BEGIN
  DECLARE seen int DEFAULT 0;
  INSERT INTO split_u VALUES (1);
  FOR r AS INSERT INTO split_u VALUES (1), (2) ON CONFLICT DO NOTHING RETURNING a DO
    SET seen = seen + r.a;
  END FOR;
  FOR r AS INSERT INTO split_u VALUES (1), (2) ON CONFLICT (a) DO UPDATE SET n = 10
    RETURNING a DO
    SET seen = seen + 10 * r.a;
  END FOR;
  MERGE INTO split_u USING (VALUES (1), (3)) AS v (a) ON v.a = split_u.a
    WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT VALUES (v.a, 30);
  RETURN seen;
END$$)).result;
SELECT * FROM split_u ORDER BY a;

-- Parameters: found next to anything, not in slices, casts, strings and comments
SELECT (tw.atomic($$
BEGIN
  DECLARE v int[] DEFAULT ARRAY[10, 20, 30, 40];
  DECLARE i int DEFAULT 3;
  RETURN TABLE SELECT v[1:2] AS a, v[i:4] AS b, v[:n] AS c, v[i:i] AS d, v[:n : :n] AS e,
    ':n'::text AS f, :n::text AS g, ARRAY[:n, 7] AS h, /* :nope */ :"N m" || ':x' AS i,
    CASE WHEN :n = 2 THEN:yes ELSE '' END AS j, :end AS k;
END$$, '{"n": 2, "N m": "quoted", "yes": "y", "end": "e"}')).result;

-- Labels and parameters both have colons
SELECT (tw.atomic($$
outermost : BEGIN
  inner:LOOP
    LEAVE inner;
  END LOOP inner;
  RETURN :loop;
END outermost;$$, '{"loop": [1, {"a": null}]}')).result;

-- Words of the language are ordinary names otherwise
SELECT (tw.atomic($$
BEGIN
  DECLARE handler, condition, cursor, leave, signal, atomic int DEFAULT 1;
  DECLARE declare int DEFAULT 5;
  SET handler = cursor + 1, signal = 4;
  SET (leave, atomic) = (signal, declare);
  RETURN handler + condition + leave + atomic;
END$$)).result;

DROP PROCEDURE split_p(int);
DROP FUNCTION split_f(int);
DROP TABLE split_t, split_u;
