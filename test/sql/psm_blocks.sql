-- Blocks: nesting, labels, scopes, LEAVE and ITERATE, RETURN
CREATE TABLE acct (id int PRIMARY KEY, bal numeric CHECK (bal >= 0));
CREATE TABLE log (msg text);

-- the third statement fails: its line, nothing kept, nothing in the ledger
SELECT tw.atomic($$BEGIN
	INSERT INTO acct VALUES (1, 10);
	INSERT INTO acct VALUES (2, 10);
	INSERT INTO acct VALUES (1, 10);
END$$, job => 'blocks', batch_id => 'duplicate');
\echo :SQLSTATE
SELECT * FROM acct;
SELECT * FROM tw.ledger WHERE job = 'blocks';

-- a condition that is signalled: its state and text, nothing kept
SELECT tw.atomic($$BEGIN
	INSERT INTO acct VALUES (1, 10);
	INSERT INTO acct VALUES (2, 10);
	IF (SELECT count(*) FROM acct) > 0 THEN
		SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'there are accounts';
	END IF;
END$$, job => 'blocks', batch_id => 'signal');
\echo :SQLSTATE
SELECT * FROM acct;
SELECT * FROM tw.ledger WHERE job = 'blocks';

-- a variable declared after a handler: refused with its line, nothing run
SELECT tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION SET a = 1;
	DECLARE a int;
	INSERT INTO acct VALUES (1, 10);
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE a int;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION SET a = 1;
	DECLARE b int;
	INSERT INTO acct VALUES (1, 10);
END$$);
\echo :SQLSTATE
SELECT * FROM acct;

-- labels that do not match, and ITERATE of a block's
SELECT tw.atomic($$a: BEGIN INSERT INTO acct VALUES (1, 10); END b$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN INSERT INTO acct VALUES (1, 10); END b$$);
\echo :SQLSTATE
SELECT tw.atomic($$a: BEGIN INSERT INTO acct VALUES (1, 10); ITERATE a; END a$$);
\echo :SQLSTATE
SELECT * FROM acct;

-- LEAVE of a block keeps what it did before, of the outermost one as well
SELECT status, result, rows FROM tw.atomic($$a: BEGIN
	INSERT INTO acct VALUES (1, 10);
	LEAVE a;
	INSERT INTO acct VALUES (2, 10);
END a$$);
SELECT status, result, rows FROM tw.atomic($$a: BEGIN
	b: BEGIN ATOMIC
		INSERT INTO acct VALUES (3, 10);
		c: BEGIN
			INSERT INTO acct VALUES (4, 10);
			LEAVE b;
		END;
		INSERT INTO acct VALUES (5, 10);
	END b;
	INSERT INTO acct VALUES (6, 10);
END$$);
SELECT * FROM acct ORDER BY id;
TRUNCATE acct;

-- an empty block, and all the ways to begin one
SELECT status, result, rows, operations FROM tw.atomic('BEGIN END');
SELECT status, result FROM tw.atomic('begin atomic return ''a''; end;');
SELECT status, result FROM tw.atomic('x: BEGIN NOT ATOMIC RETURN 1; END x');
SELECT status, result FROM tw.atomic('BEGIN BEGIN NOT ATOMIC BEGIN ATOMIC BEGIN RETURN 4; END; END; END; END');

-- inner names hide outer ones; label.name reaches both; each entry declares anew
SELECT jsonb_pretty(result) FROM tw.atomic($$a: BEGIN
	DECLARE x int DEFAULT 1;
	DECLARE seen text DEFAULT '';
	DECLARE i int DEFAULT 0;
	again: LOOP
		b: BEGIN
			DECLARE x text DEFAULT 'in' || i;
			DECLARE fresh int;
			SET seen = seen || x || a.x || b.x || coalesce(fresh, 0) || ';';
			SET x = 'changed', a.x = a.x + 10, fresh = 5;
		END b;
		SET i = i + 1;
		IF i < 3 THEN ITERATE again; END IF;
		LEAVE again;
	END LOOP;
	RETURN jsonb_build_object('seen', seen, 'x', x);
END$$);

-- a default may use what is declared before it, hidden or not
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a int DEFAULT 2;
	DECLARE b, c int DEFAULT a * 10;
	BEGIN
		DECLARE a int DEFAULT a + b;
		DECLARE d int DEFAULT a + 1;
		RETURN jsonb_build_array(a, b, c, d);
	END;
END$$);

-- the same label twice in a row is fine, inside itself it is not
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 0;
	x: BEGIN SET n = n + 1; LEAVE x; SET n = 100; END x;
	x: LOOP SET n = n + 1; LEAVE x; END LOOP x;
	RETURN n;
END$$);
SELECT tw.atomic($$x: BEGIN x: LOOP LEAVE x; END LOOP; END$$);

-- LEAVE through several loops and blocks at once, FOR included
SELECT result FROM tw.atomic($$top: BEGIN
	DECLARE n int DEFAULT 0;
	outermost: WHILE true DO
		FOR r AS SELECT g FROM generate_series(1, 1000) g DO
			BEGIN ATOMIC
				REPEAT
					SET n = n + 1;
					IF n = 7 THEN LEAVE outermost; END IF;
				UNTIL n % 3 = 0 END REPEAT;
			END;
		END FOR;
	END WHILE outermost;
	RETURN n;
END$$);

-- ITERATE of an outer loop from inside others
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	a: FOR x AS SELECT g FROM generate_series(1, 3) g DO
		b: FOR y AS SELECT h FROM generate_series(1, 3) h DO
			IF y.h = 2 THEN ITERATE b; END IF;
			IF y.h = 3 AND x.g = 2 THEN ITERATE a; END IF;
			SET seen = seen || x.g || y.h || ' ';
		END FOR b;
		SET seen = seen || '| ';
	END FOR a;
	RETURN seen;
END$$);

-- RETURN ends everything, wherever it stands; nothing behind it runs
SELECT result, rows FROM tw.atomic($$BEGIN
	FOR r AS SELECT g FROM generate_series(1, 10) g DO
		INSERT INTO acct VALUES (r.g, 1);
		BEGIN ATOMIC
			DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO log VALUES ('never');
			IF r.g = 3 THEN RETURN 'third'; END IF;
		END;
	END FOR;
	INSERT INTO log VALUES ('not reached');
END$$);
SELECT (SELECT count(*) FROM acct) AS acct, (SELECT count(*) FROM log) AS log;

-- results: to_jsonb of a value, an array of row objects of a query
SELECT result FROM tw.atomic('BEGIN RETURN; END');
SELECT result FROM tw.atomic('BEGIN RETURN NULL; END');
SELECT result FROM tw.atomic('BEGIN RETURN 1.50; END');
SELECT result FROM tw.atomic('BEGIN RETURN true; END');
SELECT result FROM tw.atomic($$BEGIN RETURN date '2026-11-29'; END$$);
SELECT result FROM tw.atomic($$BEGIN RETURN ARRAY[1, 2, NULL]; END$$);
SELECT result FROM tw.atomic($$BEGIN RETURN json '{"b": 1, "a": [2]}'; END$$);
SELECT result FROM tw.atomic($$BEGIN RETURN row(1, 'x'); END$$);
SELECT result FROM tw.atomic($$BEGIN RETURN (SELECT a FROM acct a WHERE id = 2); END$$);
SELECT result FROM tw.atomic($$BEGIN RETURN (SELECT count(*) FROM acct); END$$);
SELECT result FROM tw.atomic($$BEGIN RETURN TABLE SELECT * FROM acct ORDER BY id; END$$);
SELECT result FROM tw.atomic($$BEGIN RETURN TABLE SELECT * FROM acct WHERE false; END$$);
SELECT result FROM tw.atomic($$BEGIN RETURN TABLE VALUES (1, 'a'), (2, NULL); END$$);
SELECT result, rows FROM tw.atomic($$BEGIN RETURN TABLE DELETE FROM acct WHERE id < 3 RETURNING id, bal; END$$);
SELECT * FROM acct;
-- one value is asked for
SELECT tw.atomic($$BEGIN
	RETURN (SELECT g FROM generate_series(1, 2) g);
END$$);
\echo :SQLSTATE

-- operations: an element for each statement that ran, in the order of the script
TRUNCATE acct;
SELECT rows, jsonb_pretty(operations) FROM tw.atomic($$BEGIN
	DECLARE n int;
	CREATE TEMP TABLE fresh (a int) ON COMMIT DROP;
	INSERT INTO fresh SELECT generate_series(1, 5);
	FOR r AS SELECT a FROM fresh DO
		INSERT INTO acct VALUES (r.a, r.a);
	END FOR;
	UPDATE acct SET bal = bal + 1 WHERE id > 3;
	IF false THEN
		DELETE FROM acct;
	END IF;
	SELECT count(*) INTO n FROM acct;
	DELETE FROM acct WHERE id = 77;
	MERGE INTO acct USING fresh ON id = a + 1
		WHEN MATCHED THEN UPDATE SET bal = 0
		WHEN NOT MATCHED THEN INSERT VALUES (a + 1, 0);
	EXECUTE IMMEDIATE 'INSERT INTO acct VALUES (50, 50)';
END$$);

DROP TABLE acct, log;
