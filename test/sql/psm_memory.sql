-- Loops use no more memory the longer they run
CREATE TABLE t (n int PRIMARY KEY, v text);
INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 100) g;

-- true: of the execution's memory hardly anything was added between a tenth of the loop and its end
CREATE FUNCTION stays_flat(declarations text, statements text, params jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $f$
	SELECT result FROM tw.atomic('BEGIN
	DECLARE i, c int DEFAULT 0;
	DECLARE x text;
	DECLARE at_first, at_last bigint;
	' || declarations || '
	WHILE i < 2000 DO
		SET i = i + 1;
		' || statements || '
		IF i = 200 THEN
			SELECT sum(used_bytes) INTO at_first FROM pg_backend_memory_contexts WHERE name LIKE ''psm %'';
		END IF;
	END WHILE;
	SELECT sum(used_bytes) INTO at_last FROM pg_backend_memory_contexts WHERE name LIKE ''psm %'';
	RETURN at_last - at_first < 10000 AND c >= 0;
END', params);
$f$;
SELECT stays_flat('', $$SET x = repeat('y', 200) || i;$$) AS "assignment";
SELECT stays_flat('DECLARE r t;', $$SELECT * INTO r FROM t WHERE n = 7; SET r.v = r.v || i; SET (x, c) = (r.v, r.n);$$) AS "rows";
SELECT stays_flat('', $$BEGIN DECLARE s text DEFAULT repeat('z', i); DECLARE r t; SET r.v = s; END;$$) AS "inner variables";
SELECT stays_flat('', $$FOR r AS SELECT n, v FROM t LIMIT 20 DO SET x = r.v || r.n; END FOR;$$) AS "FOR";
SELECT stays_flat('DECLARE k CURSOR FOR SELECT n, v FROM t;', $$OPEN k; FETCH k INTO c, x; CLOSE k;$$) AS "cursors";
SELECT stays_flat('', $$CASE i % 2 WHEN 0 THEN SET x = (SELECT v FROM t WHERE n = 1); ELSE SET (x, c) = (SELECT v, n FROM t WHERE n = 2); END CASE;$$) AS "CASE";
SELECT stays_flat('DECLARE CONTINUE HANDLER FOR NOT FOUND SET c = c + 1;', $$SELECT v INTO x FROM t WHERE n < 0;$$) AS "NOT FOUND";
SELECT stays_flat('DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET c = c + 1;', $$SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'x' || i;$$) AS "handler";
SELECT stays_flat('DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET c = c + 1;', $$INSERT INTO t VALUES (1); SET c = 1 / 0; SELECT wrong;$$) AS "errors";
SELECT stays_flat('DECLARE CONTINUE HANDLER FOR SQLEXCEPTION GET STACKED DIAGNOSTICS x = MESSAGE_TEXT;',
	$$BEGIN DECLARE EXIT HANDLER FOR SQLSTATE '45000' RESIGNAL SET MESSAGE_TEXT = 'again'; SIGNAL SQLSTATE '45000'; END;$$) AS "RESIGNAL";
SELECT stays_flat('DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET c = c + 1;', $$BEGIN ATOMIC BEGIN ATOMIC SIGNAL SQLSTATE '45000'; END; END;$$) AS "atomic blocks";
SELECT stays_flat('', $$BEGIN ATOMIC DECLARE UNDO HANDLER FOR SQLEXCEPTION SET c = c + 1; SIGNAL SQLSTATE '45000'; END;$$) AS "UNDO";
SELECT stays_flat('DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET c = c + 1;', $$FOR r AS SELECT 1 / (3 - n) AS q FROM t LIMIT 20 DO SET x = r.q; END FOR;$$) AS "failing FOR";
SELECT stays_flat('DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET c = c + 1;',
	$$EXECUTE IMMEDIATE 'SELECT ? || ?' INTO x USING 'a', i; EXECUTE IMMEDIATE 'SELEC'; EXECUTE IMMEDIATE 'SELECT wrong';$$) AS "EXECUTE IMMEDIATE";
SELECT stays_flat('', $$SET LOCAL application_name TO :name; CREATE TEMP TABLE u AS SELECT :name AS a; DROP TABLE u;$$, '{"name": "psm_memory"}') AS "utility statements";

DROP FUNCTION stays_flat;
DROP TABLE t;

-- nothing is left of calls that come one after the other in one portal
SET client_min_messages = warning;
DO $$
DECLARE
	s text; r jsonb; n bigint; a int; c bigint;
BEGIN
	FOR i IN 1 .. 3 LOOP
		CALL tw.run('BEGIN RETURN ''x''; END', status => s, result => r, rows => n, attempts => a);
		CALL tw.run_chunks('memory', i::text, 'BEGIN END', 1, 2, 1, chunks => c, skipped => c, rows => n);
	END LOOP;
	RAISE WARNING 'contexts left: %', (SELECT count(*) FROM pg_backend_memory_contexts WHERE name LIKE 'tw.run%');
END $$;
RESET client_min_messages;
