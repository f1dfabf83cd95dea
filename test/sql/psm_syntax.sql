-- What is not a block is refused with its place, before anything of it runs.
CREATE TABLE syntax_t (a int, b text);

-- Nothing, and nothing but comments
SELECT tw.atomic('');
SELECT tw.atomic($$ -- a comment
/* and another /* nested */ */ $$);

-- No block, or more than one
SELECT tw.atomic('INSERT INTO syntax_t VALUES (1); INSERT INTO syntax_t VALUES (2);');
SELECT tw.atomic('DECLARE x int; BEGIN SET x = 1; END');
SELECT tw.atomic($$
BEGIN ATOMIC
  INSERT INTO syntax_t VALUES (1);
END;
INSERT INTO syntax_t VALUES (2);
$$);
SELECT tw.atomic('BEGIN END BEGIN END');
SELECT tw.atomic('BEGIN; INSERT INTO syntax_t VALUES (1); COMMIT;');
SELECT tw.atomic('BEGIN NOT ATOMIC INSERT INTO syntax_t VALUES (1); END');

-- Quotes, comments and brackets that do not end
SELECT tw.atomic($$BEGIN SELECT 'abc; END$$);
SELECT tw.atomic($$BEGIN SELECT "abc; END$$);
SELECT tw.atomic($$BEGIN SELECT $q$abc; END$$);
SELECT tw.atomic($$BEGIN SELECT /* abc; END$$);
SELECT tw.atomic($$BEGIN SELECT (1 + (2 * 3); END$$);
SELECT tw.atomic($$BEGIN SELECT array[1, 2; END$$);
SELECT tw.atomic($$BEGIN SELECT (1];END$$);
SELECT tw.atomic($$BEGIN SELECT 1); END$$);

-- A block needs its END, a statement its semicolon
SELECT tw.atomic('BEGIN INSERT INTO syntax_t VALUES (1);');
SELECT tw.atomic('BEGIN INSERT INTO syntax_t VALUES (1) END');
SELECT tw.atomic($$
BEGIN
  INSERT INTO syntax_t VALUES (1)
  INSERT INTO syntax_t VALUES (2);
END$$);
SELECT tw.atomic('BEGIN SELECT 1;; END');
SELECT tw.atomic('BEGIN BEGIN; SELECT 1; END; END');

-- Labels
SELECT tw.atomic('a: BEGIN END b');
SELECT tw.atomic('BEGIN END b');
SELECT tw.atomic('BEGIN a: LOOP LEAVE a; END LOOP b; END');
SELECT tw.atomic('a: BEGIN a: LOOP LEAVE a; END LOOP; END');
SELECT tw.atomic('BEGIN a: SELECT 1; END');
SELECT tw.atomic('BEGIN <<a>> LOOP LEAVE a; END LOOP; END');
SELECT tw.atomic('a: BEGIN ITERATE a; END');
SELECT tw.atomic('outermost: BEGIN LEAVE outermots; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN a: BEGIN END; LEAVE a; END');
SELECT tw.atomic('a: BEGIN LEAVE; END');

-- Declarations: their order, types and names
SELECT tw.atomic($$
BEGIN
  DECLARE a int;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION SET a = 1;
  DECLARE b int;
END$$);
SELECT tw.atomic('BEGIN DECLARE c CURSOR FOR SELECT 1; DECLARE d CONDITION; END');
SELECT tw.atomic('BEGIN DECLARE EXIT HANDLER FOR NOT FOUND SELECT 1; DECLARE c CURSOR FOR SELECT 1; END');
SELECT tw.atomic('BEGIN INSERT INTO syntax_t VALUES (1); DECLARE a int; END');
SELECT tw.atomic('BEGIN DECLARE a int; DECLARE a text; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN DECLARE c CURSOR FOR SELECT 1; DECLARE c CURSOR FOR SELECT 1; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN DECLARE a; END');
SELECT tw.atomic('BEGIN DECLARE a int int; END');
SELECT tw.atomic('BEGIN DECLARE a SETOF int; END');
SELECT tw.atomic('BEGIN DECLARE a int := 5; END');
SELECT tw.atomic('BEGIN DECLARE a syntax_t.a%TYPE; END');
SELECT tw.atomic('BEGIN DECLARE a int DEFAULT; END');
SELECT tw.atomic('BEGIN DECLARE a int DEFAULT 1 +; END');
SELECT tw.atomic('BEGIN DECLARE c SCROLL CURSOR FOR SELECT 1; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN DECLARE c CURSOR WITH RETURN FOR SELECT 1; END');
SELECT tw.atomic('BEGIN DECLARE c CURSOR FOR INSERT INTO syntax_t VALUES (1); END');

-- Handlers
SELECT tw.atomic($$BEGIN DECLARE EXIT HANDLER FOR SQLSTATE '22012', SQLEXCEPTION SELECT 1; END$$);
SELECT tw.atomic($$BEGIN DECLARE EXIT HANDLER FOR SQLSTATE '22012', SQLSTATE '22012' SELECT 1; END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE EXIT HANDLER FOR NOT FOUND SELECT 1;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SELECT 2;
END$$);
SELECT tw.atomic('BEGIN DECLARE stock CONDITION; DECLARE EXIT HANDLER FOR stok SELECT 1; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN DECLARE EXIT HANDLER FOR 1062 SELECT 1; END');
SELECT tw.atomic('BEGIN BEGIN DECLARE UNDO HANDLER FOR SQLEXCEPTION SELECT 1; END; END');

-- SQLSTATEs
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '00000'; END$$);
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '4500'; END$$);
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '4500a'; END$$);
SELECT tw.atomic($$BEGIN DECLARE EXIT HANDLER FOR SQLSTATE '00000' SELECT 1; END$$);
SELECT tw.atomic($$BEGIN DECLARE c CONDITION FOR '45000'; END$$);

-- SIGNAL, RESIGNAL, GET DIAGNOSTICS
SELECT tw.atomic($$BEGIN SIGNAL '45000'; END$$);
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '45000' ('no'); END$$);
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE = 'no'; END$$);
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '45000' SET HINT = 'a', HINT = 'b'; END$$);
SELECT tw.atomic('BEGIN SIGNAL nowhere; END');
SELECT tw.atomic('BEGIN RESIGNAL; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN DECLARE s text; GET STACKED DIAGNOSTICS s = RETURNED_SQLSTATE; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN DECLARE n int; GET DIAGNOSTICS n = ROWCOUNT; END');
SELECT tw.atomic('BEGIN DECLARE n int; GET DIAGNOSTICS CONDITION 1 n = ROW_COUNT; END');

-- IF, CASE and loops
SELECT tw.atomic('BEGIN IF THEN SELECT 1; END IF; END');
SELECT tw.atomic('BEGIN IF 1 + THEN SELECT 1; END IF; END');
SELECT tw.atomic('BEGIN IF true SELECT 1; END IF; END');
SELECT tw.atomic('BEGIN IF true THEN SELECT 1; END; END');
SELECT tw.atomic('BEGIN IF true THEN SELECT 1; ELSIF false THEN SELECT 2; END IF; END');
SELECT tw.atomic('BEGIN IF true THEN SELECT 1; ELSE IF false THEN SELECT 2; END IF; END');
SELECT tw.atomic('BEGIN IF true THEN ELSE SELECT 2; ELSEIF true THEN END IF; END');
SELECT tw.atomic('BEGIN IF a = 1 b = 2 THEN END IF; END');
SELECT tw.atomic('BEGIN IF 1 = 1, 2 = 2 THEN END IF; END');
SELECT tw.atomic('BEGIN CASE 1 ELSE SELECT 1; END CASE; END');
SELECT tw.atomic('BEGIN CASE 1 WHEN 2 + THEN END CASE; END');
SELECT tw.atomic('BEGIN CASE 1 WHEN 2) OR (true THEN END CASE; END');
SELECT tw.atomic('BEGIN CASE WHEN true THEN END; END');
SELECT tw.atomic('BEGIN LOOP SELECT 1; END WHILE; END');
SELECT tw.atomic('BEGIN WHILE true LOOP SELECT 1; END LOOP; END');
SELECT tw.atomic('BEGIN REPEAT SELECT 1; END REPEAT; END');
SELECT tw.atomic('BEGIN FOR i IN 1..10 LOOP SELECT 1; END LOOP; END');
SELECT tw.atomic('BEGIN FOR r AS SELECT 1 SELECT 2; END FOR; END');
SELECT tw.atomic('BEGIN FOR r AS UPDATE syntax_t SET a = 1 DO END FOR; END');

-- Assignments
SELECT tw.atomic('BEGIN DECLARE total int; SET totl = 1; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('a: BEGIN DECLARE total int; SET a.totl = 1; END');
SELECT tw.atomic('BEGIN DECLARE x int; SET x := 1; END');
SELECT tw.atomic('BEGIN DECLARE x int; x := 1; END');
SELECT tw.atomic('BEGIN DECLARE x int; x = 1; END');
SELECT tw.atomic('BEGIN SET @x = 1; END');
SELECT tw.atomic('BEGIN DECLARE x int[]; SELECT 1 INTO x[1]; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN DECLARE x int; SET x = SELECT 1; END');
SELECT tw.atomic('BEGIN DECLARE x int; SET x = count(*) FROM syntax_t; END');
SELECT tw.atomic('BEGIN DECLARE x, y int; SET (x, y) = (1, 2, 3); END');
SELECT tw.atomic('BEGIN DECLARE x, y int; SET (x, y) = 1, 2; END');
SELECT tw.atomic('BEGIN FOR r AS SELECT 1 AS n DO SET r.n = 2; END FOR; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN DECLARE food int; SELECT 1 INTO foo; END');
SELECT tw.atomic('BEGIN DECLARE x int; SELECT 1 INTO STRICT x; END');
SELECT tw.atomic('BEGIN DECLARE x int; SELECT 1 INTO x INTO x; END');
SELECT tw.atomic('BEGIN DECLARE x int; INSERT INTO syntax_t SELECT 1 INTO x; END');

-- Cursors, EXECUTE IMMEDIATE, RETURN
SELECT tw.atomic('BEGIN DECLARE cur CURSOR FOR SELECT 1; OPEN curr; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN DECLARE c CURSOR FOR SELECT 1; FETCH c; END');
SELECT tw.atomic('BEGIN EXECUTE IMMEDIATE; END');
SELECT tw.atomic('BEGIN RETURN QUERY SELECT 1; END');
SELECT tw.atomic('BEGIN RETURN TABLE syntax_t; END');
SELECT tw.atomic('BEGIN RETURN TABLE DELETE FROM syntax_t; END');

-- Words of other languages
SELECT tw.atomic($$BEGIN RAISE EXCEPTION 'no'; END$$);
SELECT tw.atomic('BEGIN PERFORM f(); END');
SELECT tw.atomic('BEGIN NULL; END');
SELECT tw.atomic('BEGIN SELECT 1; EXCEPTION WHEN others THEN END');

-- Parameters
SELECT tw.atomic('BEGIN SELECT $1; END');
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN SELECT : n; END', '{"n": 1}');
SELECT tw.atomic('BEGIN SELECT :1; END', '{"1": 1}');
SELECT tw.atomic('BEGIN SELECT 1 LIMIT:n; END', '{"n": 1}');

-- SQL that is not: PostgreSQL's own message, at its place in the block
SELECT tw.atomic($$
BEGIN
  IF false THEN
    -- ä is one character
    INSERT INTO syntax_t VALUES (1, 'ä'), (2, 'ö' 'ü');
  END IF;
END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE größe int;
  SELECT a INTO größe FROM syntax_t WHERE b = :überschrift AND a a;
END$$);
SELECT tw.atomic('BEGIN INSRT INTO syntax_t VALUES (1); END');

-- The position is also right in a block that is not written in the statement itself
PREPARE run AS SELECT tw.atomic($1);
EXECUTE run($$BEGIN
  SELECT 1;
  SELECT FROM WHERE;
END$$);

-- Nested too deep: errors, and the session goes on
\set VERBOSITY terse
SELECT tw.atomic(repeat('BEGIN ', 100000) || repeat('END;', 100000));
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic('BEGIN ' || repeat('IF true THEN ', 100000) || repeat('END IF;', 100000) || 'END');
SELECT tw.atomic('BEGIN ' || repeat('LOOP ', 100000) || repeat('END LOOP;', 100000) || 'END');
SELECT tw.atomic('BEGIN RETURN ' || repeat('(', 10000) || '1' || repeat(')', 10000) || '; END');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY default

-- Habits of other places: a text without IMMEDIATE, directions of FETCH, commands of psql, bare queries
SELECT tw.atomic('BEGIN EXECUTE ''SELECT 1''; END');
SELECT tw.atomic('BEGIN DECLARE x int; DECLARE c CURSOR FOR SELECT 1; OPEN c; FETCH PRIOR FROM c INTO x; END');
SELECT tw.atomic('BEGIN \copy syntax_t FROM file.csv; END');
SELECT tw.atomic(E'\uFEFFBEGIN END');
SELECT tw.atomic('BEGIN RETURN WITH q AS (SELECT 1) SELECT * FROM q; END');

-- Megabytes of block, as one statement and as many
SELECT (tw.atomic('BEGIN RETURN length(''' || repeat('x', 5000000) || '''); END')).result;
SELECT (tw.atomic('BEGIN DECLARE n int DEFAULT 0; ' || repeat(E'SET n = n + 1;\n', 20000) ||
				  'RETURN n; END')).result;

-- None of these wrote anything
SELECT count(*) FROM syntax_t;
DROP TABLE syntax_t;
