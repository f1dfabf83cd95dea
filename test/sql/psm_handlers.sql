-- Handlers: which one is chosen, what is undone, where execution goes on
CREATE TABLE acct (id int PRIMARY KEY, bal numeric CHECK (bal >= 0));
CREATE TABLE log (n int GENERATED ALWAYS AS IDENTITY, msg text);

-- the more specific handler runs, whatever the order
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int;
	DECLARE EXIT HANDLER FOR SQLSTATE '22012' RETURN 'specific';
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN 'general';
	SET n = 1 / 0;
END$$);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN 'general';
	DECLARE EXIT HANDLER FOR SQLSTATE '22012' RETURN 'specific';
	SET n = 1 / 0;
END$$);
-- ... the innermost block counts first
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int;
	DECLARE EXIT HANDLER FOR SQLSTATE '22012' RETURN 'outer, specific';
	BEGIN
		DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN 'inner, general';
		SET n = 1 / 0;
	END;
END$$);
-- ... a handler for something else is passed over
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int;
	DECLARE EXIT HANDLER FOR SQLSTATE '22012' RETURN 'outer';
	BEGIN
		DECLARE EXIT HANDLER FOR SQLSTATE '22013', SQLSTATE '23505' RETURN 'inner';
		DECLARE EXIT HANDLER FOR NOT FOUND, SQLWARNING RETURN 'inner too';
		SET n = 1 / 0;
	END;
END$$);
-- ... a declared condition is a state; the last in a list counts as much as the first
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int;
	DECLARE division CONDITION FOR SQLSTATE '22012';
	DECLARE unused CONDITION;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN 'general';
	DECLARE EXIT HANDLER FOR unused, SQLSTATE '23505', division RETURN 'named';
	SET n = 1 / 0;
END$$);
-- NOT FOUND and SQLWARNING are no errors, SQLEXCEPTION is not for them
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET seen = seen || 'exception ';
	DECLARE CONTINUE HANDLER FOR SQLWARNING SET seen = seen || 'warning ';
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET seen = seen || 'not found ';
	DECLARE CONTINUE HANDLER FOR SQLSTATE '01234' SET seen = seen || 'that warning ';
	DECLARE CONTINUE HANDLER FOR SQLSTATE '02001' SET seen = seen || 'that absence ';
	DELETE FROM acct;
	SIGNAL SQLSTATE '01001';
	SIGNAL SQLSTATE '01234';
	SIGNAL SQLSTATE '02001';
	SIGNAL SQLSTATE '02002';
	SIGNAL SQLSTATE '03000';
	RETURN seen;
END$$);
-- without a handler for them, a warning and an absence are passed on and nothing stops
SELECT result FROM tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN 'handled';
	DELETE FROM acct;
	SIGNAL SQLSTATE '01001' SET MESSAGE_TEXT = 'a warning';
	SIGNAL SQLSTATE '02001' SET MESSAGE_TEXT = 'an absence';
	RETURN 'went on';
END$$);

-- an inner atomic block inserts and fails; its EXIT handler logs: both are there
SELECT status, rows FROM tw.atomic($$BEGIN
	BEGIN ATOMIC
		DECLARE EXIT HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('failed');
		INSERT INTO acct VALUES (1, 10);
		INSERT INTO acct VALUES (2, -1);
		INSERT INTO acct VALUES (3, 10);
	END;
END$$);
SELECT id FROM acct;
SELECT msg FROM log;
TRUNCATE acct, log;
-- with UNDO: only the log
SELECT status FROM tw.atomic($$BEGIN
	BEGIN ATOMIC
		DECLARE UNDO HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('failed');
		INSERT INTO acct VALUES (1, 10);
		INSERT INTO acct VALUES (2, -1);
		INSERT INTO acct VALUES (3, 10);
	END;
	INSERT INTO log (msg) VALUES ('went on');
END$$);
SELECT id FROM acct;
SELECT msg FROM log ORDER BY n;
TRUNCATE acct, log;
-- UNDO of the outermost block: all of it but what the handler does
SELECT status, result, rows FROM tw.atomic($$BEGIN ATOMIC
	DECLARE UNDO HANDLER FOR SQLSTATE '23514' BEGIN
		INSERT INTO log (msg) VALUES ('undone');
		RETURN (SELECT count(*) FROM acct);
	END;
	INSERT INTO acct VALUES (1, 10);
	BEGIN
		INSERT INTO acct VALUES (2, 10);
		UPDATE acct SET bal = bal - 20 WHERE id = 2;
	END;
	INSERT INTO log (msg) VALUES ('not reached');
END$$);
SELECT id FROM acct;
SELECT msg FROM log;
TRUNCATE acct, log;
-- UNDO from deep inside, through loops, blocks and an inner handler's statement
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 0;
	INSERT INTO acct VALUES (1, 10);
	u: BEGIN ATOMIC
		DECLARE UNDO HANDLER FOR SQLSTATE '45001' SET n = n + 1000;
		INSERT INTO acct VALUES (2, 10);
		FOR r AS SELECT g FROM generate_series(1, 5) g DO
			BEGIN ATOMIC
				DECLARE CONTINUE HANDLER FOR SQLSTATE '45002' BEGIN
					SET n = n + 100;
					SIGNAL SQLSTATE '45001';
				END;
				INSERT INTO acct VALUES (10 + r.g, 10);
				SET n = n + 1;
				IF r.g = 3 THEN SIGNAL SQLSTATE '45002'; END IF;
			END;
		END FOR;
	END u;
	RETURN jsonb_build_array(n, (SELECT jsonb_agg(id) FROM acct));
END$$);
TRUNCATE acct;

-- CONTINUE: the next statement of the innermost list, wherever that is
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	DECLARE n int DEFAULT 0;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET seen = seen || 'E';
	IF true THEN
		SET n = 1 / 0;
		SET seen = seen || 'a';
	END IF;
	IF 1 / 0 = 1 THEN					-- the whole IF failed
		SET seen = seen || 'never';
	ELSE
		SET seen = seen || 'never';
	END IF;
	SET seen = seen || 'b';
	CASE 1 / 0 WHEN 1 THEN SET seen = seen || 'never'; ELSE SET seen = seen || 'never'; END CASE;
	SET seen = seen || 'c';
	WHILE n < 3 DO
		SET n = n + 1;
		BEGIN
			BEGIN
				SIGNAL SQLSTATE '45000';
				SET seen = seen || n;
			END;
			CASE n WHEN 99 THEN SET n = 1; END CASE;	-- 20000
			SET seen = seen || 'd';
		END;
	END WHILE;
	REPEAT
		SET n = n + 1;
		SET seen = seen || 'r';
	UNTIL 1 / (n - 5) > 0 END REPEAT;	-- fails at 5: behind the loop
	WHILE 1 / (n - 6) < 0 DO			-- -1 at 5, fails at 6
		SET n = n + 1;
		SET seen = seen || 'w';
	END WHILE;
	FOR r AS SELECT 1 / (3 - g) AS q FROM generate_series(1, 5) g DO
		SET seen = seen || 'never';		-- the first fetch fails already
	END FOR;
	SET seen = seen || 'z';
	RETURN seen;
END$$);
-- rows that a FOR had fetched before it failed have had their turn
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 0;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET n = n + 1000;
	FOR r AS SELECT 1 / (15 - g) AS q, g FROM generate_series(1, 50) g DO
		INSERT INTO acct VALUES (r.g, 0);
		SET n = n + 1;
	END FOR;
	RETURN jsonb_build_array(n > 1000, n - 1000 = (SELECT count(*) FROM acct));
END$$);
TRUNCATE acct;

-- EXIT: the block that declares the handler is left, from whatever depth
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	a: BEGIN
		DECLARE EXIT HANDLER FOR SQLSTATE '45000' SET seen = seen || 'handled ';
		b: BEGIN
			FOR r AS SELECT g FROM generate_series(1, 3) g DO
				SET seen = seen || r.g || ' ';
				IF r.g = 2 THEN SIGNAL SQLSTATE '45000'; END IF;
			END FOR;
			SET seen = seen || 'not b ';
		END b;
		SET seen = seen || 'not a ';
	END a;
	SET seen = seen || 'behind a';
	RETURN seen;
END$$);

-- a failed statement's own effects are undone, those before it stay
SELECT result FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('failed');
	INSERT INTO acct VALUES (1, 10);
	INSERT INTO acct SELECT g, 10 - g FROM generate_series(2, 20) g;
	INSERT INTO acct VALUES (3, 10);
	UPDATE acct SET bal = bal - id * 4;
	RETURN (SELECT jsonb_object_agg(id, bal) FROM acct);
END$$);
SELECT msg FROM log;
TRUNCATE acct, log;

-- a nested atomic block is one statement to handlers further out
SELECT result FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('undone');
	INSERT INTO acct VALUES (1, 10);
	BEGIN ATOMIC
		INSERT INTO acct VALUES (2, 10);
		BEGIN ATOMIC
			INSERT INTO acct VALUES (3, 10);
		END;
		BEGIN
			INSERT INTO acct VALUES (4, 10);
			SIGNAL SQLSTATE '45000';
		END;
		INSERT INTO acct VALUES (5, 10);
	END;
	INSERT INTO acct VALUES (6, 10);
	RETURN (SELECT jsonb_agg(id) FROM acct);
END$$);
SELECT msg FROM log;
TRUNCATE acct, log;
-- ... also when its own handler fails
SELECT result FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('undone');
	INSERT INTO acct VALUES (1, 10);
	BEGIN ATOMIC
		DECLARE CONTINUE HANDLER FOR SQLSTATE '45000' BEGIN
			INSERT INTO log (msg) VALUES ('in the handler');
			INSERT INTO acct VALUES (3, -1);
			INSERT INTO acct VALUES (4, 10);
		END;
		INSERT INTO acct VALUES (2, 10);
		SIGNAL SQLSTATE '45000';
		INSERT INTO acct VALUES (5, 10);
	END;
	BEGIN ATOMIC
		DECLARE UNDO HANDLER FOR SQLSTATE '45000' BEGIN
			INSERT INTO log (msg) VALUES ('in the UNDO handler');
			SIGNAL SQLSTATE '45000';
		END;
		INSERT INTO acct VALUES (6, 10);
		SIGNAL SQLSTATE '45000';
	END;
	INSERT INTO acct VALUES (7, 10);
	RETURN (SELECT jsonb_agg(id) FROM acct);
END$$);
SELECT msg FROM log ORDER BY n;
TRUNCATE acct, log;

-- what fails in a handler fails where the handler is declared, whatever stands around the
-- statement that it handles; all of it is undone
SELECT tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN
		DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO acct VALUES (1, 10);
		INSERT INTO acct VALUES (1, 10);
		SIGNAL SQLSTATE '45000';
	END;
	BEGIN
		DECLARE EXIT HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('not for this');
		DELETE FROM acct;
	END;
END$$);
\echo :SQLSTATE
SELECT result FROM tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLSTATE '23505' RETURN (SELECT count(*) FROM acct);
	INSERT INTO acct VALUES (1, 10);
	BEGIN ATOMIC
		DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN
			INSERT INTO acct VALUES (2, 10);
			INSERT INTO acct VALUES (1, 10);
		END;
		BEGIN
			DECLARE EXIT HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('not for this');
			UPDATE acct SET bal = 0 WHERE id = 3;
		END;
	END;
END$$);
-- ... of an UNDO handler too
SELECT result FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLSTATE '45009' INSERT INTO log (msg) VALUES ('undone');
	BEGIN ATOMIC
		DECLARE UNDO HANDLER FOR SQLSTATE '45000' BEGIN
			BEGIN
				DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' INSERT INTO acct VALUES (4, 10);
				INSERT INTO acct VALUES (5, 10);
				INSERT INTO acct SELECT 1 / 0;
				INSERT INTO acct VALUES (6, 10);
			END;
			SIGNAL SQLSTATE '45009';
		END;
		SIGNAL SQLSTATE '45000';
	END;
	RETURN (SELECT count(*) FROM acct);
END$$);
-- ... and one that another block's handler takes leaves no savepoint behind
BEGIN;
SELECT result FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION RETURN 'never';
	BEGIN
		DECLARE EXIT HANDLER FOR SQLSTATE '02000' INSERT INTO log (msg) VALUES ('not found');
		BEGIN ATOMIC
			DECLARE UNDO HANDLER FOR NOT FOUND SIGNAL SQLSTATE '02000';
			SIGNAL SQLSTATE '02000';
		END;
	END;
	RETURN 'went on';
END$$);
COMMIT;
SELECT msg FROM log ORDER BY n;
TRUNCATE acct, log;

-- a handler is not active in its own statement, nor in its siblings'
SELECT tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLSTATE '45000' SIGNAL SQLSTATE '45001';
	DECLARE CONTINUE HANDLER FOR SQLSTATE '45001' SIGNAL SQLSTATE '45000';
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('never');
	SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'first';
END$$);
\echo :SQLSTATE
-- ... one of its own is
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN
		DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET seen = seen || 'inner ';
		SET seen = seen || 'outer ';
		SIGNAL SQLSTATE '45001';
		SET seen = seen || 'on ';
	END;
	SIGNAL SQLSTATE '45000';
	SET seen = seen || 'end';
	RETURN seen;
END$$);
-- ... and those further out are
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET seen = seen || 'outer ';
	BEGIN
		DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN
			SET seen = seen || 'inner ';
			SIGNAL SQLSTATE '45001';
			SET seen = seen || 'on ';
		END;
		SIGNAL SQLSTATE '45000';
		SET seen = seen || 'end';
	END;
	RETURN seen;
END$$);

-- RESIGNAL: bare it passes the same state, message and all; SET changes only what it names
SELECT tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RESIGNAL;
	INSERT INTO acct VALUES (1, 10), (1, 10);
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RESIGNAL SET MESSAGE_TEXT = 'that id is taken';
	INSERT INTO acct VALUES (1, 10), (1, 10);
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION
		RESIGNAL SQLSTATE '45010' SET DETAIL = 'changed', HINT = 'no hint';
	INSERT INTO acct VALUES (1, 10), (1, 10);
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE taken CONDITION FOR SQLSTATE '45011';
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RESIGNAL taken;
	INSERT INTO acct VALUES (1, 10), (1, 10);
END$$);
\echo :SQLSTATE
-- ... to a handler further out
SELECT result FROM tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLSTATE '23505' BEGIN
		DECLARE text_seen text;
		GET STACKED DIAGNOSTICS text_seen = MESSAGE_TEXT;
		RETURN text_seen;
	END;
	BEGIN
		DECLARE EXIT HANDLER FOR SQLEXCEPTION RESIGNAL SET MESSAGE_TEXT = 'passed on';
		INSERT INTO acct VALUES (1, 10), (1, 10);
	END;
END$$);
-- ... of a warning and of NOT FOUND
SELECT result FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLWARNING RESIGNAL SET MESSAGE_TEXT = 'seen: a warning';
	SIGNAL SQLSTATE '01001' SET MESSAGE_TEXT = 'a warning';
	RETURN 'went on';
END$$);
-- ... of an error as a warning, and of that again
SELECT result FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN
		DECLARE EXIT HANDLER FOR SQLWARNING RESIGNAL;
		RESIGNAL SQLSTATE '01001' SET MESSAGE_TEXT = 'only a warning';
	END;
	INSERT INTO acct VALUES (1, 10), (1, 10);
	RETURN 'went on';
END$$);
-- ... outside a handler it is refused
SELECT tw.atomic($$BEGIN
	INSERT INTO log (msg) VALUES ('never');
	RESIGNAL;
END$$);
\echo :SQLSTATE
SELECT count(*) FROM log;

-- GET DIAGNOSTICS: the line is the script's
SELECT result FROM tw.atomic($$BEGIN
	DECLARE state text; DECLARE line int; DECLARE n int;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
		GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, line = LINE_NUMBER;
		RETURN jsonb_build_array(state, line);
	END;
	SET n = 1/0;
END$$);
-- all items, of a signal and of PostgreSQL's own error
SELECT jsonb_pretty(result) FROM tw.atomic($$BEGIN
	DECLARE r text[]; DECLARE number int; DECLARE rows int;
	DECLARE a, b, c, d, e, f, g, h text; DECLARE line int;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN
		GET STACKED DIAGNOSTICS CONDITION 1 a = RETURNED_SQLSTATE, b = MESSAGE_TEXT, c = DETAIL,
			d = HINT, e = SCHEMA_NAME, f = TABLE_NAME, g = COLUMN_NAME, h = CONSTRAINT_NAME,
			line = LINE_NUMBER;
		GET DIAGNOSTICS number = NUMBER, rows = ROW_COUNT;
		SET r = r || concat_ws('|', a, b, c, d, e, f, g, h, line, number, rows);
	END;
	INSERT INTO acct VALUES (1, 1), (2, 2), (3, 3);
	SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'm', DETAIL = 'd', HINT = 'h', SCHEMA_NAME = 's',
		TABLE_NAME = 't', COLUMN_NAME = 'c', CONSTRAINT_NAME = 'n';
	INSERT INTO acct VALUES (4, -1);
	INSERT INTO acct VALUES (NULL, 1);
	GET DIAGNOSTICS number = NUMBER, a = RETURNED_SQLSTATE, line = LINE_NUMBER;
	RETURN jsonb_build_array(r, number, a, line);
END$$);
TRUNCATE acct;
-- ROW_COUNT outside a handler
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n, m, o int;
	INSERT INTO acct SELECT g, g FROM generate_series(1, 7) g;
	GET DIAGNOSTICS n = ROW_COUNT;
	DELETE FROM acct WHERE id > 4;
	GET CURRENT DIAGNOSTICS m = ROW_COUNT;
	DELETE FROM acct WHERE id > 4;
	GET DIAGNOSTICS o = ROW_COUNT;
	DELETE FROM acct;
	RETURN jsonb_build_array(n, m, o);
END$$);
SELECT tw.atomic($$BEGIN
	DECLARE x text;
	GET STACKED DIAGNOSTICS x = MESSAGE_TEXT;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE x text;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION GET STACKED DIAGNOSTICS CONDITION 2 x = MESSAGE_TEXT;
	SIGNAL SQLSTATE '45000';
END$$);
\echo :SQLSTATE
-- the inner handler's condition, then the outer one's again
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a, b, c text;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '45000' BEGIN
		DECLARE CONTINUE HANDLER FOR SQLEXCEPTION GET STACKED DIAGNOSTICS b = RETURNED_SQLSTATE;
		GET STACKED DIAGNOSTICS a = RETURNED_SQLSTATE;
		SIGNAL SQLSTATE '45001';
		GET STACKED DIAGNOSTICS c = RETURNED_SQLSTATE;
	END;
	SIGNAL SQLSTATE '45000';
	RETURN jsonb_build_array(a, b, c);
END$$);

-- NOT FOUND: DML without a row, SELECT INTO, FETCH; variables stay as they are
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 0;
	DECLARE x, y int DEFAULT 7;
	DECLARE c CURSOR FOR SELECT id FROM acct;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET n = n + 1;
	DELETE FROM acct;
	UPDATE acct SET bal = 1;
	INSERT INTO acct SELECT 1, 1 WHERE false;
	MERGE INTO acct USING (SELECT 1 WHERE false) s ON true WHEN MATCHED THEN DELETE;
	SELECT id INTO x FROM acct;
	DELETE FROM acct RETURNING id INTO x;
	OPEN c;
	FETCH c INTO x;
	SELECT id FROM acct;					-- a plain query raises nothing
	SET y = (SELECT id FROM acct);			-- a null, nothing raised
	EXECUTE IMMEDIATE 'DELETE FROM acct';
	RETURN jsonb_build_array(n, x, y);
END$$);

-- a handler a thousand times, and one that fails a thousand times
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n, caught, failed int DEFAULT 0;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '45001' SET failed = failed + 1;
	WHILE n < 1000 DO
		BEGIN
			DECLARE CONTINUE HANDLER FOR SQLSTATE '23514' BEGIN
				SET caught = caught + 1;
				SIGNAL SQLSTATE '45001';
			END;
			SET n = n + 1;
			INSERT INTO acct VALUES (n, CASE n % 2 WHEN 0 THEN 1 ELSE -1 END);
		END;
	END WHILE;
	RETURN jsonb_build_array(n, caught, failed, (SELECT count(*) FROM acct));
END$$);
TRUNCATE acct;

-- LEAVE, ITERATE and RETURN out of handlers
SELECT result FROM tw.atomic($$BEGIN
	DECLARE seen text DEFAULT '';
	DECLARE n int DEFAULT 0;
	a: LOOP
		SET n = n + 1;
		BEGIN
			DECLARE CONTINUE HANDLER FOR SQLSTATE '45001' ITERATE a;
			DECLARE EXIT HANDLER FOR SQLSTATE '45002' LEAVE a;
			IF n < 4 THEN SIGNAL SQLSTATE '45001'; END IF;
			SET seen = seen || n || ' ';
			IF n > 5 THEN SIGNAL SQLSTATE '45002'; END IF;
		END;
		SET seen = seen || 'end ';
	END LOOP a;
	SET seen = seen || 'out';
	RETURN seen;
END$$);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN
		INSERT INTO log (msg) VALUES ('kept');
		RETURN 'from the handler';
	END;
	FOR r AS SELECT g FROM generate_series(1, 10) g DO
		BEGIN ATOMIC
			INSERT INTO acct VALUES (r.g, 3 - r.g);
		END;
	END FOR;
	RETURN 'never';
END$$);
SELECT count(*) FROM acct;
SELECT msg FROM log;
TRUNCATE acct, log;

-- what is for the caller to retry passes every handler
SELECT tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN 'handled';
	BEGIN ATOMIC
		DECLARE UNDO HANDLER FOR SQLEXCEPTION RETURN 'undone';
		SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = 'conflict';
	END;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN 'handled';
	SIGNAL SQLSTATE '40P01' SET MESSAGE_TEXT = 'deadlock';
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN 'handled';
	SELECT tw.signal('TW001', 'fenced');
END$$);
\echo :SQLSTATE
BEGIN;
SET LOCAL statement_timeout = '50ms';
SELECT tw.atomic($$BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('never');
	LOOP
		BEGIN ATOMIC
			DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('never');
			SELECT pg_sleep(1);
		END;
	END LOOP;
END$$);
\echo :SQLSTATE
ROLLBACK;
SELECT count(*) FROM log;

-- ... also when it comes between two statements, and the session goes on
BEGIN;
SELECT tw.atomic($$BEGIN
	DECLARE cancelled bool;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('never');
	INSERT INTO acct VALUES (1, 1);
	SET cancelled = pg_cancel_backend(pg_backend_pid());
	INSERT INTO acct VALUES (2, 1);
END$$);
\echo :SQLSTATE
ROLLBACK;
SELECT tw.atomic($$BEGIN
	DECLARE cancelled bool;
	DECLARE UNDO HANDLER FOR NOT FOUND INSERT INTO log (msg) VALUES ('never');
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO log (msg) VALUES ('never');
	INSERT INTO acct VALUES (1, 1);
	SET cancelled = pg_cancel_backend(pg_backend_pid());
END$$);
\echo :SQLSTATE
SELECT (SELECT count(*) FROM acct) AS acct, (SELECT count(*) FROM log) AS log;

-- no savepoint is left behind, whatever way a block with handlers ends
BEGIN;
SELECT result FROM tw.atomic($$a: BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION LEAVE a;
	INSERT INTO acct VALUES (1, 1);
	BEGIN ATOMIC
		DECLARE UNDO HANDLER FOR NOT FOUND LEAVE a;
		INSERT INTO acct VALUES (2, 1);
		DELETE FROM acct WHERE id = 3;
	END;
END$$);
SAVEPOINT s;
SELECT tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION SIGNAL SQLSTATE '45009' SET MESSAGE_TEXT = 'out';
	BEGIN ATOMIC
		BEGIN ATOMIC
			INSERT INTO acct VALUES (1, 1);
		END;
	END;
END$$);
ROLLBACK TO s;
SELECT id FROM acct;
COMMIT;
DO $$
BEGIN
	BEGIN
		PERFORM tw.atomic('BEGIN
			DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ATOMIC
				DECLARE EXIT HANDLER FOR SQLSTATE ''45000'' RESIGNAL;
				INSERT INTO acct VALUES (8, 1);
				SIGNAL SQLSTATE ''45000'';
			END;
			INSERT INTO acct VALUES (7, 1);
			INSERT INTO acct VALUES (7, 1);
		END');
	EXCEPTION WHEN SQLSTATE '45000' THEN
		RAISE NOTICE 'caught %: %', SQLSTATE, SQLERRM;
	END;
	INSERT INTO acct VALUES (9, 1);
END$$;
SELECT id FROM acct ORDER BY id;

-- Between two blocks with handlers, nothing is undone with the second: rows, locks,
-- settings, cursors, variables
CREATE FUNCTION in_between() RETURNS text LANGUAGE psm AS $$
BEGIN
	DECLARE i int DEFAULT 0;
	DECLARE held bigint;
	DECLARE seen text DEFAULT '';
	DECLARE caught int DEFAULT 0;
	DECLARE c CURSOR FOR SELECT g FROM generate_series(1, 4) AS g;

	BEGIN
		DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET caught = caught + 1;
		SET i = i + 1;
	END;
	INSERT INTO log(msg) VALUES ('between');
	SET held = (SELECT count(pg_advisory_xact_lock(4711)));
	SET seen = set_config('transactional_writer.block_cache', '77', true);
	OPEN c;
	WHILE i < 5 DO
		BEGIN
			DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET caught = caught + 1;
			SET i = i + 1 / (i % 3);
		END;
		FETCH c INTO held;
		SET seen = concat(seen, ' ', held);
		SET i = i + 1;
		IF i = 3 THEN
			INSERT INTO log(msg) VALUES ('i is ' || i);
		END IF;
	END WHILE;
	BEGIN
		DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET caught = caught + 1;
		SET i = 1 / 0;
	END;
	RETURN format('i %s, caught %s, seen %s, locks %s, setting %s', i, caught, seen,
		(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND pid = pg_backend_pid()),
		current_setting('transactional_writer.block_cache'));
END $$;
BEGIN;
SELECT in_between();
SELECT msg FROM log ORDER BY n;
ROLLBACK;
-- ... nor are locks on what was read, nor a cursor that a function without volatility opened
CREATE TABLE read_between (a int);
CREATE FUNCTION opened() RETURNS refcursor LANGUAGE plpgsql STABLE AS $$
DECLARE
	c refcursor := 'stays';
BEGIN
	OPEN c FOR SELECT 'a row' AS row;
	RETURN c;
END $$;
CREATE FUNCTION reads_between() RETURNS text LANGUAGE psm AS $$
BEGIN
	DECLARE i int DEFAULT 0;
	DECLARE n bigint;
	DECLARE c text;

	BEGIN
		DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET i = 100;
		SET i = i + 1;
	END;
	SET n = (SELECT count(*) FROM read_between);
	SET c = opened()::text;
	BEGIN
		DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET i = i + 10;
		SET i = i / 0;
	END;
	RETURN format('%s, %s', i, (SELECT string_agg(mode, ' ') FROM pg_locks
		WHERE relation = 'read_between'::regclass AND pid = pg_backend_pid()));
END $$;
BEGIN;
SELECT reads_between();
FETCH stays;
COMMIT;
DROP FUNCTION reads_between, opened;
DROP TABLE read_between;
-- ... and what fails there fails the whole, to the caller's handler
CREATE FUNCTION fails_between(bad int) RETURNS int LANGUAGE psm AS $$
BEGIN
	DECLARE i int DEFAULT 0;

	WHILE i < 3 DO
		BEGIN
			DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET i = 100;
			SET i = i + 1;
		END;
		IF i = bad THEN
			SET i = i / 0;
		END IF;
	END WHILE;
	RETURN i;
END $$;
BEGIN;
SELECT result FROM tw.atomic($$BEGIN
	DECLARE good int DEFAULT 0;
	DECLARE failed int DEFAULT 0;

	FOR r AS SELECT bad FROM generate_series(1, 6) AS bad DO
		BEGIN
			DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET failed = failed + 1;
			SET good = good + fails_between(r.bad);
			INSERT INTO log(msg) VALUES ('good with ' || r.bad);
		END;
	END FOR;
	RETURN format('%s good, %s failed', good, failed);
END$$);
SELECT msg FROM log ORDER BY n;
SELECT fails_between(2);
ROLLBACK;
-- ... a loop that is left from inside, an atomic block, a function that calls itself
CREATE FUNCTION comes_again(n int) RETURNS int LANGUAGE psm AS $$
BEGIN
	DECLARE total int DEFAULT 0;

	l: WHILE TRUE DO
		BEGIN
			DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET total = total + 1000;
			IF total >= n THEN
				LEAVE l;
			END IF;
			SET total = total + 1;
		END;
		BEGIN ATOMIC
			DECLARE UNDO HANDLER FOR SQLEXCEPTION SET total = total + 100;
			SET total = total + 1;
			IF total = 2 OR total % 7 = 0 THEN
				INSERT INTO log(msg) VALUES ('undone');
				SET total = total / 0;
			END IF;
		END;
		IF n > 1 THEN
			SET total = total + comes_again(n - 1);
		END IF;
	END WHILE;
	RETURN total;
END $$;
BEGIN;
SELECT n, comes_again(n) FROM generate_series(1, 6) AS n;
SELECT count(*) FROM log WHERE msg = 'undone';
ROLLBACK;
-- ... with a volatile function, and rows of a FOR loop that come in several batches
CREATE FUNCTION notes(t text) RETURNS int LANGUAGE sql VOLATILE AS $$ INSERT INTO log(msg) VALUES (t) RETURNING 1 $$;
BEGIN;
SELECT result, rows FROM tw.atomic($$BEGIN
	DECLARE noted int DEFAULT 0;
	DECLARE failed int DEFAULT 0;

	FOR r AS SELECT g FROM generate_series(1, 120) AS g DO
		BEGIN
			DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET failed = failed + 1;
			SET noted = noted + 0 / (r.g % 3);
		END;
		SET noted = noted + notes('row ' || r.g);
	END FOR;
	RETURN format('%s noted, %s failed', noted, failed);
END$$);
SELECT count(DISTINCT msg) FROM log;
ROLLBACK;
DROP FUNCTION in_between, fails_between, comes_again, notes;

-- what fails in an atomic block with handlers for something else is the whole of it, in a handler's action as well
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' INSERT INTO log(msg) VALUES ('whole: outer');
	BEGIN ATOMIC
		DECLARE EXIT HANDLER FOR SQLSTATE '23505' INSERT INTO log(msg) VALUES ('whole: inner');
		INSERT INTO log(msg) VALUES ('whole: first');
		SET n = 1 / 0;
		INSERT INTO log(msg) VALUES ('whole: third');
	END;
	BEGIN ATOMIC
		DECLARE EXIT HANDLER FOR SQLSTATE '45000' BEGIN
			DECLARE EXIT HANDLER FOR SQLSTATE '23505' INSERT INTO log(msg) VALUES ('whole: inner');
			INSERT INTO log(msg) VALUES ('whole: in the action');
			SET n = 1 / 0;
			INSERT INTO log(msg) VALUES ('whole: behind');
		END;
		INSERT INTO log(msg) VALUES ('whole: first');
		SIGNAL SQLSTATE '45000';
	END;
	RETURN (SELECT string_agg(msg, ', ' ORDER BY log.n) FROM log WHERE msg LIKE 'whole%');
END$$);
-- the line of a declaration is its own
SELECT result FROM tw.atomic($$BEGIN
	DECLARE line int;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
		GET STACKED DIAGNOSTICS line = LINE_NUMBER;
		RETURN line;
	END;
	BEGIN
		DECLARE good int DEFAULT 1;
		DECLARE bad int DEFAULT 1 / 0;
	END;
END$$);
-- what was done stays when a loop's condition fails, or a statement behind it, also what needs no transaction id
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 2;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
	WHILE 1 / n > -1 DO
		SET n = n - 1;
		INSERT INTO log(msg) VALUES ('while ' || n);
	END WHILE;
	SET n = 2;
	REPEAT
		SET n = n - 1;
		INSERT INTO log(msg) VALUES ('repeat ' || n);
	UNTIL 1 / n > 5 END REPEAT;
	RETURN (SELECT string_agg(msg, ', ' ORDER BY log.n) FROM log WHERE msg ~ '^(while|repeat)');
END$$);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int;
	DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
	BEGIN ATOMIC
		SET n = length(set_config('tw_test.kept', 'kept', true));
	END;
	SET n = 1 / 0;
	EXECUTE IMMEDIATE 'SELECT set_config(''tw_test.too'', ''too'', true)';
	SET n = 1 / 0;
	RETURN concat_ws(' ', current_setting('tw_test.kept'), current_setting('tw_test.too'));
END$$);
-- an error behind a block with handlers leaves nothing open to who catches it
DO $do$
BEGIN
	INSERT INTO log(msg) VALUES ('before');
	BEGIN
		PERFORM tw.atomic($$BEGIN
			DECLARE n int;
			BEGIN
				DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
				SET n = 1;
			END;
			SET n = 1 / 0;
		END$$);
	EXCEPTION WHEN division_by_zero THEN
		INSERT INTO log(msg) VALUES ('caught');
	END;
	INSERT INTO log(msg) VALUES ('behind');
END$do$;
SELECT pg_current_xact_id_if_assigned() IS NULL AS over, string_agg(msg, ', ' ORDER BY n) FROM log WHERE msg IN ('before', 'caught', 'behind');

DROP TABLE acct, log;
