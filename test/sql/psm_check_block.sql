-- tw.check_block: one row a problem, nothing executed, nothing kept.
CREATE TABLE check_acct (id int PRIMARY KEY, bal numeric CHECK (bal >= 0));
CREATE TABLE check_log (msg text);
CREATE FUNCTION check_touch() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO check_log VALUES ('touched');
  RETURN 1;
END$$;
CREATE PROCEDURE check_p(IN a int, OUT b int) LANGUAGE psm AS 'BEGIN SET b = a; END';

-- Sound, with most of the language in it
SELECT line, "column", sqlstate, message FROM tw.check_block($$
main: BEGIN ATOMIC
  DECLARE total, n int DEFAULT 0;
  DECLARE who check_acct;
  DECLARE flag boolean;
  DECLARE poor CONDITION FOR SQLSTATE '75001';
  DECLARE c CURSOR FOR SELECT id, bal FROM check_acct;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET n = -1;
  DECLARE EXIT HANDLER FOR SQLSTATE '22012'
    BEGIN
      GET STACKED DIAGNOSTICS total = LINE_NUMBER;
      RESIGNAL;
    END;
  INSERT INTO check_acct VALUES (:id, :amount), (2, check_touch());
  SET total = 1 / 0;
  OPEN c;
  FETCH c INTO n, who.bal;
  FETCH c INTO who;
  CLOSE c;
  SET (n, total) = (SELECT 1, 2);
  SET main.who.bal = :amount;
  SELECT * INTO who FROM check_acct WHERE id = 1;
  IF flag OR :flag THEN SET n = 1; ELSEIF who.bal > 1 THEN SET n = 2; END IF;
  CASE who.id WHEN 1, 2 THEN SET n = 3; ELSE SET n = 4; END CASE;
  WHILE n < 3 DO SET n = n + 1; END WHILE;
  REPEAT SET n = n - 1; UNTIL n < 0 END REPEAT;
  FOR r AS SELECT id AS key, bal FROM check_acct DO
    UPDATE check_acct SET bal = check_acct.bal + r.bal WHERE id = key;
    FOR s AS SELECT r.key + 1 AS k DO SET n = k; END FOR;
  END FOR;
  CALL check_p(n, total);
  EXECUTE IMMEDIATE 'INSERT INTO check_log VALUES (?)' USING who.id::text;
  IF n IS NULL THEN SIGNAL poor SET MESSAGE_TEXT = 'poor ' || who.id; END IF;
  RETURN TABLE SELECT * FROM check_acct;
END main$$, '{"id": 1, "amount": "12.50", "flag": true}');

-- Everything that is wrong, in the order of the script
SELECT line, "column", sqlstate, message FROM tw.check_block($$
BEGIN ATOMIC
  DECLARE total, n int DEFAULT nosuch;
  DECLARE who check_acct;
  DECLARE c CURSOR FOR SELECT id, bal FROM check_acct WHERE nosuch = 1;
  DECLARE d CURSOR FOR SELECT id, bal FROM check_acct;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET n = nosuch;
  INSERT INTO check_acct VALUES (:id, :amount);
  INSERT INTO check_acct VALUES (:id, :when);
  SET total = 'x' || 1 + 2;
  SET who = 3;
  SET who.balance = 3;
  SET (total, n) = (SELECT 1);
  SELECT id INTO total, n FROM check_acct;
  FETCH c INTO n;
  FETCH d INTO n;
  WHILE n DO
    SET n = n - 1;
  END WHILE;
  REPEAT
    SET n = nosuch;
  UNTIL check_acct.id = 1 END REPEAT;
  IF n = 1 THEN
    DELETE FROM nosuch;
  ELSEIF now() THEN
    UPDATE check_acct SET nosuch = 1;
  ELSE
    CALL nosuch();
  END IF;
  CALL check_p(1, n + 1);
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = nosuch();
  EXECUTE IMMEDIATE 'DELETE FRM check_acct';
  EXECUTE IMMEDIATE 'DELETE FROM check_acct WHERE id = ?; COMMIT' USING nosuch;
  EXECUTE IMMEDIATE 'COMMIT';
  RETURN nosuch;
END$$, '{"id": "one", "amuont": 1}');

-- What rests on something that failed is not reported again
SELECT line, "column", sqlstate, message FROM tw.check_block($$
BEGIN ATOMIC
  DECLARE n, key int;
  FOR r AS SELECT id AS key, nosuch FROM check_acct DO
    UPDATE check_acct SET bal = r.nosuch WHERE id = key;
    FOR s AS SELECT r.key AS k DO SET n = s.k + r.nosuch; END FOR;
  END FOR;
  CASE nosuch WHEN 1 THEN SET n = nosuch; WHEN 'a' THEN SET n = 1; END CASE;
END$$);

-- What the block makes is not there yet; what it changes is not what it will be
SELECT line, "column", sqlstate, message FROM tw.check_block($$
BEGIN ATOMIC
  DECLARE n int;
  SELECT count(*) INTO n FROM check_new;
  CREATE TEMP TABLE check_new (a int);
  INSERT INTO check_new VALUES (1);
  SELECT count(*) INTO n FROM check_new;
  FOR r AS SELECT a FROM check_new DO
    INSERT INTO check_log VALUES (r.a);
    DELETE FROM nosuch_1;
  END FOR;
  CREATE TABLE check_copy AS SELECT id FROM nosuch_2;
  SET n = (SELECT max(id) FROM public.check_copy);
  SET n = 'check_copy'::regclass::oid;
  CREATE VIEW check_view AS SELECT 1 AS a;
  SELECT a INTO n FROM check_view;
  SELECT 1 AS x INTO TEMP check_into;
  UPDATE check_into SET x = 2;
  ALTER TABLE check_log ADD COLUMN at date;
  INSERT INTO check_log (msg, at) VALUES ('x', current_date);
  INSERT INTO check_acct (id, nosuch) VALUES (1, 1);
  DELETE FROM nosuch_3;
  CREATE FUNCTION check_f() RETURNS int RETURN 1;
  SET n = check_f();
  SET n = 'a' + 1;
END$$);
SELECT line, "column", sqlstate, message FROM tw.check_block($$
BEGIN ATOMIC
  EXECUTE IMMEDIATE 'CREATE TABLE check_dyn (a int)';
  INSERT INTO check_dyn VALUES (1);
  INSERT INTO nosuch_1 VALUES (1);
  EXECUTE IMMEDIATE concat('CREATE TABLE ', :name, '(a int)');
  INSERT INTO nosuch_2 VALUES (1);
  INSERT INTO check_acct VALUES (1, 2, 3);
END$$, '{"name": "nosuch_2"}');
SELECT line, "column", sqlstate, message FROM tw.check_block($$
BEGIN ATOMIC
  INSERT INTO nosuch_1 VALUES (1);
  SET LOCAL search_path TO elsewhere;
  INSERT INTO nosuch_2 VALUES (1);
END$$);

-- Utility statements are only parsed
SELECT line, "column", sqlstate, message FROM tw.check_block($$
BEGIN
  TRUNCATE nosuch;
  COPY nosuch FROM :file;
  COPY check_acct FROM :file WITH (FORMAT :format);
END$$, '{"file": "/nowhere", "format": "csv"}');

-- What is no block at all: one row
SELECT line, "column", sqlstate, message FROM tw.check_block('');
SELECT line, "column", sqlstate, message FROM tw.check_block('SELECT 1');
SELECT line, "column", sqlstate, message FROM tw.check_block(E'BEGIN\n  SELCT 1;\n  SELCT 2;\nEND');
SELECT line, "column", sqlstate, message FROM tw.check_block(E'BEGIN\n  INSERT INTO check_log VALUES (''x'');\n  COMMIT;\nEND');
SELECT line, "column", sqlstate, message FROM tw.check_block(E'BEGIN\n  DECLARE a int;\n  DECLARE b nosuch;\n  DECLARE c record;\nEND');
SELECT line, "column", sqlstate, message FROM tw.check_block('BEGIN RETURN ''abc; END');
-- The place counts characters
SELECT line, "column", sqlstate, message FROM tw.check_block('BEGIN DECLARE ä text DEFAULT ''äöü''; RETURN ä || öö; END');

-- Two parameters of that name, one only perhaps
SELECT line, "column", sqlstate, message FROM tw.check_block('BEGIN RETURN :a || :b || :a; END', '{"b": 1}');
SELECT line, "column", sqlstate, message FROM tw.check_block('BEGIN RETURN (SELECT params.msg || params.nosuch FROM check_log AS params); END');

-- Arguments
SELECT line, "column", sqlstate, message FROM tw.check_block(NULL);
SELECT line, "column", sqlstate, message FROM tw.check_block('BEGIN END', NULL);
SELECT line, "column", sqlstate, message FROM tw.check_block('BEGIN END', '[]');

-- In a block, in a read-only transaction, and after an error
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE n int;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET n = 7;
  SET n = (SELECT count(*) FROM tw.check_block('BEGIN DELETE FROM nosuch; SET x = 1; END'));
  SET n = n + (SELECT count(*) FROM tw.check_block('BEGIN DELETE FROM nosuch; END'));
  RETURN n;
END$$);
BEGIN TRANSACTION READ ONLY;
SELECT line, "column", sqlstate, message FROM tw.check_block('BEGIN INSERT INTO check_log VALUES (check_touch(), nosuch); END');
ROLLBACK;

-- A cancel is no problem of the block, and leaves a sound session
CREATE FUNCTION check_slow(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep(60);
  RETURN n;
END$$;
SET statement_timeout = '100ms';
\set VERBOSITY terse
BEGIN;
SAVEPOINT s;
SELECT line, "column", sqlstate, message FROM tw.check_block('BEGIN DELETE FROM nosuch; RETURN check_slow(1); END');
ROLLBACK TO s;
SELECT count(*) FROM tw.check_block('BEGIN DELETE FROM nosuch; END');
COMMIT;
RESET statement_timeout;
\set VERBOSITY default
DROP FUNCTION check_slow;

-- Detail and hint are those of the error that a run would raise
SELECT message, detail, hint FROM tw.check_block('BEGIN IF true THEN SELECT 1;');
SELECT message, detail, hint FROM tw.check_block('BEGIN x := 1; END');
SELECT message, detail, hint FROM tw.check_block('BEGIN IF 1 THEN END IF; RETURN :nam; END', '{"name": 1}');

-- Nothing was executed, no lock is left
BEGIN;
SELECT count(*) FROM tw.check_block('BEGIN DELETE FROM check_acct; RETURN check_touch(); END');
SELECT relation::regclass FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'check_acct'::regclass;
COMMIT;
SELECT * FROM check_acct;
SELECT * FROM check_log;

DROP PROCEDURE check_p;
DROP FUNCTION check_touch;
DROP TABLE check_acct, check_log;
