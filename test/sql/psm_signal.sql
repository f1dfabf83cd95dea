-- SIGNAL, and tw.signal and tw.signal_if for plain SQL
CREATE TABLE t (n int);

-- all items
SELECT tw.atomic($$BEGIN
	SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a message', DETAIL = 'The detail.', HINT = 'A hint.',
		SCHEMA_NAME = 's', TABLE_NAME = 't', COLUMN_NAME = 'c', CONSTRAINT_NAME = 'k';
END$$);
\echo :SQLSTATE
DO $$
DECLARE a text; b text; c text; d text; e text; f text; g text;
BEGIN
	PERFORM tw.atomic($b$BEGIN
		SIGNAL SQLSTATE VALUE '4ABCD' SET CONSTRAINT_NAME = 'k', COLUMN_NAME = 'c', TABLE_NAME = 't',
			SCHEMA_NAME = 's', HINT = 'h', DETAIL = 'd' || :x, MESSAGE_TEXT = (SELECT 'm' || count(*) FROM t);
	END$b$, '{"x": 1}');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS a = MESSAGE_TEXT, b = PG_EXCEPTION_DETAIL, c = PG_EXCEPTION_HINT,
		d = SCHEMA_NAME, e = TABLE_NAME, f = COLUMN_NAME, g = CONSTRAINT_NAME;
	RAISE NOTICE '% % % % % % % %', SQLSTATE, a, b, c, d, e, f, g;
END$$;
-- none
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '45000'; END$$);
\echo :SQLSTATE
-- a declared condition, of its own state or 45000; the innermost of that name
SELECT tw.atomic($$BEGIN
	DECLARE too_late CONDITION FOR SQLSTATE '75001';
	SIGNAL too_late SET MESSAGE_TEXT = 'it is ' || 5 || ' past';
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE too_late CONDITION FOR SQLSTATE '75001';
	BEGIN
		DECLARE too_late CONDITION;
		SIGNAL too_late;
	END;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE too_late CONDITION;
	SIGNAL too_lat;
END$$);
\echo :SQLSTATE
-- the message is text, never a format
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '100%s %d %n "quoted"'; END$$);
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = NULL; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'x', HINT = 'y', MESSAGE_TEXT = 'z'; END$$);
\echo :SQLSTATE

-- states that are none: refused when the block is checked, also where they are not reached
SELECT tw.atomic($$BEGIN INSERT INTO t VALUES (1); IF false THEN SIGNAL SQLSTATE '00000'; END IF; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '4500'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '4500a'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN DECLARE c CONDITION FOR SQLSTATE '00123'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN DECLARE EXIT HANDLER FOR SQLSTATE '450000' RETURN 1; END$$);
\echo :SQLSTATE
SELECT count(*) FROM t;

-- class 01 warns and goes on, class 02 too
SELECT status, rows FROM tw.atomic($$BEGIN
	SIGNAL SQLSTATE '01000' SET MESSAGE_TEXT = 'careful', DETAIL = 'Why.', HINT = 'So.';
	INSERT INTO t VALUES (1);
	SIGNAL SQLSTATE '02000' SET MESSAGE_TEXT = 'nothing there';
	SIGNAL SQLSTATE '01ABC';
	INSERT INTO t VALUES (2);
END$$);
SELECT count(*) FROM t;
-- class 03 and others are errors
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE '03000'; END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN SIGNAL SQLSTATE 'ZZZZZ'; END$$);
\echo :SQLSTATE

-- tw.signal: the same from plain SQL
SELECT tw.signal('45000', 'a message', 'The detail.', 'A hint.');
\echo :SQLSTATE
SELECT tw.signal('45000', '100%s');
SELECT tw.signal('01000', 'careful', detail => 'Why.');
SELECT tw.signal('02000', 'nothing there', hint => 'So.');
SELECT tw.signal('00000', 'fine');
\echo :SQLSTATE
SELECT tw.signal('4500', 'short');
\echo :SQLSTATE
SELECT tw.signal('4500a', 'small');
\echo :SQLSTATE
SELECT tw.signal(NULL, 'none');
\echo :SQLSTATE
SELECT tw.signal('45000', NULL);
\echo :SQLSTATE
-- tw.signal_if: only when true
SELECT tw.signal_if(true, '45000', 'a message', 'The detail.', 'A hint.');
\echo :SQLSTATE
SELECT tw.signal_if(false, '45000', 'never'), tw.signal_if(NULL, '45000', 'never');
SELECT tw.signal_if(true, '01000', 'careful');
SELECT tw.signal_if(false, '00000', 'a slip shows before the day it matters');
\echo :SQLSTATE
SELECT count(*) FROM (SELECT tw.signal_if(n = 3, '45000', 'three is there') FROM generate_series(1, 2) n) s;
SELECT tw.signal_if(count(*) > 1, '75001', 'more than one') FROM t;
\echo :SQLSTATE
-- from PL/pgSQL, caught by its condition
DO $$
BEGIN
	PERFORM tw.signal('75001', 'from plpgsql');
EXCEPTION WHEN SQLSTATE '75001' THEN
	RAISE NOTICE 'caught %', SQLERRM;
END$$;
-- from inside a block, caught by its handler
SELECT result FROM tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLSTATE '75001' RETURN 'handled';
	SELECT tw.signal_if(count(*) > 1, '75001', 'more than one') FROM t;
END$$);

DROP TABLE t;
