-- Where errors say that they are: line and column of the script, psql's caret, nested levels
CREATE TABLE t (n int PRIMARY KEY, v text);

-- a statement that fails: its own place
SELECT tw.atomic($$
BEGIN
	INSERT INTO t
	VALUES (1, 'a');


	  INSERT INTO t VALUES (1, 'b');
END
$$);
-- names that are unknown only when the statement is planned
SELECT tw.atomic($$BEGIN
	INSERT INTO t
		SELECT n,
			wrong
		FROM t;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	SELECT
		*
	FROM no_such_table;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a int;
	IF a = 1 THEN
	ELSEIF no_such_function(a) THEN
	END IF;
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE a int DEFAULT 1
		+ no_such_name;
END$$);
SELECT tw.atomic($$BEGIN
	FOR r AS
		SELECT wrong FROM t
	DO
	END FOR;
END$$);
SELECT tw.atomic($$BEGIN
	SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'x',
		DETAIL = wrong;
END$$);
SELECT tw.atomic($$BEGIN
	RETURN TABLE
		SELECT wrong;
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE a, b int;
	SET (a, b) = (SELECT 1,
		wrong);
END$$);
-- syntax
SELECT tw.atomic($$BEGIN
	INSERT INTO t VALUES (1);
	SELECT FROM WHERE;
END$$);
\echo :SQLSTATE
SELECT tw.atomic('BEGIN
	SELECT ''it''''s'', ''and'';
	SELECT 1 +* 2;
END');
SELECT tw.atomic(E'BEGIN\n\tSELECT E''\\\\'';\n\tSELECT ) ;\nEND');
-- behind letters of several bytes
SELECT tw.atomic($$BEGIN
	-- größe, 長さ, 🐘
	INSERT INTO t SELECT 1, 'größe 長さ 🐘' || größe, wrong FROM (VALUES ('é')) x (größe);
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE größe text DEFAULT '長さ🐘'; SET größe = größe || '長さ' || falsch;
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE größe text DEFAULT '長さ🐘'; SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = größe;
END$$);
SELECT tw.atomic($$BEGIN /* 長さ🐘 */ SELECT 'é' 'è' FROM; END$$);
-- a utility statement that was made longer or shorter by its parameters
SELECT tw.atomic($$BEGIN
	ALTER TABLE t ALTER v SET DEFAULT :a, ALTER n SET DEFAULT :b || wrong;
END$$, '{"a": "a very much longer one", "b": ""}');
SELECT tw.atomic($$BEGIN
	CREATE TABLE u AS SELECT :looooooooooooooooong::int AS a, wrong;
END$$, '{"looooooooooooooooong": 1}');
SELECT tw.atomic($$BEGIN
	ALTER TABLE t ADD CHECK (n < :looooooooooooooooong AND wrong);
END$$, '{"looooooooooooooooong": 1}');

-- the script comes as a parameter: it is shown as QUERY
PREPARE run(text) AS SELECT tw.atomic($1);
EXECUTE run(E'BEGIN\n\tSELECT wrong;\nEND');
EXECUTE run(E'BEGIN\n\tSELECT FROM WHERE;\nEND');
EXECUTE run(E'BEGIN\n\tINSERT INTO t VALUES (1), (1);\nEND');
DEALLOCATE run;
SELECT tw.atomic(script) FROM (SELECT E'BEGIN\n\tSELECT ' || 'wrong' || E';\nEND' AS script) s;
-- two scripts in one query: the caret may only be set where it is certain
SELECT tw.atomic('BEGIN SELECT wrong; END'), tw.atomic('BEGIN SELECT wrong; END');

-- nested: a block in a function in a trigger in a block
CREATE FUNCTION inner_block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tw.atomic('BEGIN
		IF :n > 2 THEN
			SIGNAL SQLSTATE ''45000'' SET MESSAGE_TEXT = ''too deep'';
		END IF;
		INSERT INTO t VALUES (:n::int + 1);
	END', jsonb_build_object('n', NEW.n));
	RETURN NEW;
END$$;
CREATE TRIGGER nested BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION inner_block();
SELECT tw.atomic($$BEGIN
	DECLARE first int DEFAULT 1;
	INSERT INTO t VALUES (first);
END$$);
\echo :SQLSTATE
SELECT count(*) FROM t;
-- ... whose handler says the line of its own statement
SELECT result FROM tw.atomic($$BEGIN
	DECLARE line int; DECLARE state text;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
		GET STACKED DIAGNOSTICS line = LINE_NUMBER, state = RETURNED_SQLSTATE;
		RETURN jsonb_build_array(line, state);
	END;
	INSERT INTO t VALUES (1);
END$$);
DROP TRIGGER nested ON t;
DROP FUNCTION inner_block;
-- an error in a function that the block calls: its context, then ours
CREATE FUNCTION fails(n int) RETURNS int LANGUAGE plpgsql AS $$BEGIN RETURN wrong; END$$;
SELECT tw.atomic($$BEGIN
	SELECT
		fails(1);
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE a int;
	SET a = fails(1);
END$$);
DROP FUNCTION fails;

-- what is raised on the way has the block's line as well
\set SHOW_CONTEXT always
SELECT result FROM tw.atomic($$BEGIN
	DO 'BEGIN RAISE NOTICE ''from inside''; END';
	SIGNAL SQLSTATE '01000' SET MESSAGE_TEXT = 'a warning';
	RETURN 1;
END$$);
\set SHOW_CONTEXT errors

DROP TABLE t;
