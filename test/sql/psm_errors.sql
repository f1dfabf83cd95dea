-- What errors say: the nearest name for an unknown one, and where they come from
-- at every level.
\set VERBOSITY default
\set SHOW_CONTEXT always
CREATE TABLE err_acct (id int PRIMARY KEY, bal numeric CHECK (bal >= 0));
INSERT INTO err_acct VALUES (1, 100);

-- Variables, parameters, columns of rows, names behind a label
SELECT tw.atomic($$
BEGIN
  DECLARE total_amount int;
  SET total_amount = totl_amount + 1;
END$$);
SELECT tw.atomic($$
BEGIN
  UPDATE err_acct SET bal = bal - amount WHERE id = :acct;
END$$, '{"acct": 1, "amount": 5}');
SELECT tw.atomic($$
BEGIN
  FOR r AS SELECT id, bal AS balance FROM err_acct DO
    UPDATE err_acct SET bal = r.balanse WHERE id = r.id;
  END FOR;
END$$);
SELECT tw.atomic($$
BEGIN
  FOR SELECT id, bal AS balance FROM err_acct DO
    UPDATE err_acct SET bal = balanse;
  END FOR;
END$$);
SELECT tw.atomic($$
main: BEGIN
  DECLARE total int;
  DELETE FROM err_acct WHERE bal < main.totl;
END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE a err_acct;
  RETURN a.ball;
END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE "Total" int;
  RETURN (SELECT "Totl");
END$$);
-- PostgreSQL's own hint goes first; no hint when nothing is near
SELECT tw.atomic($$
BEGIN
  DECLARE ball int;
  RETURN (SELECT balx FROM err_acct);
END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE total int;
  RETURN something;
END$$);
-- A variable cannot be a column to write, nor a table
SELECT tw.atomic($$
BEGIN
  DECLARE balx int;
  INSERT INTO err_acct (bala) VALUES (1);
END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE err_accu int;
  DELETE FROM err_accx;
END$$);
-- Not visible: declared later, or in a block that has ended
SELECT tw.atomic($$
BEGIN
  DECLARE a int DEFAULT total1;
  DECLARE total int;
END$$);
-- The operand of a CASE is nobody's name
SELECT tw.atomic($$
BEGIN
  CASE 1 WHEN "case operan" THEN RETURN 1; END CASE;
END$$);

-- Where: a block, a function, a trigger, a block
CREATE FUNCTION err_trigger() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  IF NEW.bal > 1000 THEN
    SET NEW.bal = (SELECT result::numeric FROM tw.atomic('
BEGIN ATOMIC
  DECLARE n int DEFAULT 0;
  RETURN 1 / n;
END'));
  END IF;
END$$;
CREATE TRIGGER err_trigger BEFORE UPDATE ON err_acct FOR EACH ROW EXECUTE FUNCTION err_trigger();
CREATE FUNCTION err_function(amount numeric) RETURNS numeric LANGUAGE psm AS $$
BEGIN
  DECLARE n numeric;
  UPDATE err_acct SET bal = bal + amount WHERE id = 1;
  SELECT bal INTO n FROM err_acct WHERE id = 1;
  RETURN n;
END$$;
SELECT tw.atomic($$
BEGIN
  DECLARE n numeric;
  BEGIN ATOMIC
    WHILE true DO
      SET n = err_function(600);
    END WHILE;
  END;
END$$);
SELECT err_function(2000);
-- A plain statement, a loop's query, a handler, a declaration
SELECT tw.atomic($$
BEGIN
  FOR r AS SELECT 1 / (id - 1) AS x FROM err_acct DO
    RETURN 1;
  END FOR;
END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION
    BEGIN
      INSERT INTO err_acct VALUES (1, 2);
    END;
  INSERT INTO err_acct VALUES (1, 1);
END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE d date DEFAULT '2026-02-30';
END$$);
DO LANGUAGE psm $$
BEGIN
  DECLARE d date;
  SET d = 'x' || 'y';
END$$;
-- SIGNAL has its own line; RESIGNAL keeps where it came from
SELECT tw.atomic($$
BEGIN
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today', HINT = 'Come again.';
END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
    RESIGNAL;
  SELECT err_function(2000);
END$$);
SELECT tw.atomic($$
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
    RESIGNAL SQLSTATE '45001' SET MESSAGE_TEXT = 'again';
  SELECT err_function(2000);
END$$);
-- In dynamic SQL, and in a query of a PL/pgSQL function
SELECT tw.atomic($$
BEGIN
  DECLARE total int;
  EXECUTE IMMEDIATE 'SELECT totl FROM err_acct';
END$$);
CREATE FUNCTION err_plpgsql() RETURNS int LANGUAGE plpgsql AS $$
DECLARE totl int;
BEGIN
  RETURN (SELECT total);
END$$;
SELECT tw.atomic($$
BEGIN
  DECLARE total1 int;
  SET total1 = err_plpgsql();
END$$);
-- Endless recursion ends
CREATE FUNCTION err_endless(n int) RETURNS int LANGUAGE psm AS 'BEGIN RETURN err_endless(n + 1); END';
\set VERBOSITY terse
SELECT err_endless(1);
\set VERBOSITY default
SELECT err_function(1);

DROP FUNCTION err_endless, err_plpgsql, err_function;
DROP TABLE err_acct;
DROP FUNCTION err_trigger;

\echo a parameter written as psql writes its variables, as a name, or behind its type
SELECT tw.atomic($$BEGIN SELECT :'day'; END$$, '{"day": "2026-11-29"}');
SELECT tw.atomic($$BEGIN TABLE :t; END$$, '{"t": "x"}');
SELECT tw.atomic($$BEGIN TABLE :"t"; END$$, '{"t": "x"}');
SELECT tw.atomic($$BEGIN SELECT 1, DATE :day; END$$, '{"day": "2026-11-29"}');
SELECT tw.atomic($$BEGIN ATOMIC RETURN DATE :jour_férié + 1; END$$, '{"jour_férié": "2026-11-29"}');
