-- Routines as people write them for MariaDB and MySQL: unchanged in grammar, on
-- tables of our own.
CREATE TABLE maria_a (id int PRIMARY KEY, data text);
CREATE TABLE maria_b (i int);
CREATE TABLE maria_c (who text, i int);
INSERT INTO maria_a VALUES (1, 'one'), (2, 'two'), (3, 'three');
INSERT INTO maria_b VALUES (7), (1), (9), (4);

-- Two cursors read side by side until one of them ends
CREATE PROCEDURE maria_merge() LANGUAGE psm AS $$
BEGIN
  DECLARE done BOOLEAN DEFAULT FALSE;
  DECLARE a TEXT;
  DECLARE b, c INT;
  DECLARE cur1 CURSOR FOR SELECT data, id FROM maria_a ORDER BY id;
  DECLARE cur2 CURSOR FOR SELECT i FROM maria_b;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;

  OPEN cur1;
  OPEN cur2;

  read_loop: LOOP
    FETCH cur1 INTO a, b;
    FETCH cur2 INTO c;
    IF done THEN
      LEAVE read_loop;
    END IF;
    IF b < c THEN
      INSERT INTO maria_c VALUES (a, b);
    ELSE
      INSERT INTO maria_c VALUES (a, c);
    END IF;
  END LOOP;

  CLOSE cur1;
  CLOSE cur2;
END
$$;
CALL maria_merge();
SELECT * FROM maria_c;

-- REPEAT and an argument that goes in and comes out
CREATE PROCEDURE maria_count(IN p1 int, INOUT x int) LANGUAGE psm AS $$
BEGIN
  SET x = 0;
  REPEAT
    SET x = x + 1;
  UNTIL x > p1 END REPEAT;
END
$$;
CALL maria_count(1000, NULL);

-- A duplicate key that is counted and passed over
CREATE PROCEDURE maria_load(OUT loaded int, OUT doubles int) LANGUAGE psm AS $$
BEGIN
  DECLARE duplicate_key CONDITION FOR SQLSTATE '23505';
  DECLARE i INT DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR duplicate_key
    BEGIN
      SET doubles = doubles + 1;
    END;
  SET loaded = 0, doubles = 0;
  my_loop: LOOP
    SET i = i + 1;
    IF i > 6 THEN LEAVE my_loop; END IF;
    IF i = 2 THEN ITERATE my_loop; END IF;
    INSERT INTO maria_a VALUES (i, CONCAT('row ', i));
    SET loaded = loaded + 1;
  END LOOP my_loop;
END
$$;
CALL maria_load(NULL, NULL);

-- All that is known of a condition
CREATE PROCEDURE maria_diagnose() LANGUAGE psm AS $$
BEGIN
  DECLARE state CHAR(5) DEFAULT '00000';
  DECLARE msg TEXT;
  DECLARE nrows, n INT;
  DECLARE result TEXT;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION
    BEGIN
      GET DIAGNOSTICS n = NUMBER;
      GET DIAGNOSTICS CONDITION 1
        state = RETURNED_SQLSTATE, msg = MESSAGE_TEXT;
    END;
  INSERT INTO maria_b (i) VALUES (NULL), (5);
  IF state = '00000' THEN
    GET DIAGNOSTICS nrows = ROW_COUNT;
    SET result = CONCAT('insert succeeded, row count = ', nrows);
  ELSE
    SET result = CONCAT('insert failed, error = ', state, ', message = ', msg);
  END IF;
  INSERT INTO maria_c VALUES (result, n);
END
$$;
CALL maria_diagnose();
ALTER TABLE maria_b ADD CHECK (i IS NOT NULL) NOT VALID;
CALL maria_diagnose();
SELECT * FROM maria_c WHERE who LIKE 'insert%';

-- A trigger that refuses, with a condition of class 45
CREATE FUNCTION maria_guard() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  IF NEW.i < 0 THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'i must not be negative', TABLE_NAME = 'maria_b';
  ELSEIF NEW.i > 100 THEN
    SET NEW.i = 100;
  END IF;
END
$$;
CREATE TRIGGER maria_guard BEFORE INSERT ON maria_b FOR EACH ROW EXECUTE FUNCTION maria_guard();
INSERT INTO maria_b VALUES (-1);
INSERT INTO maria_b VALUES (1000) RETURNING i;

-- RESIGNAL: as it was, with another text, as another condition
SELECT tw.atomic($$
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      INSERT INTO maria_c VALUES ('not kept', 1);
      RESIGNAL;
    END;
  INSERT INTO maria_b VALUES (-2);
END
$$);
SELECT tw.atomic($$
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
    RESIGNAL SET MESSAGE_TEXT = 'nobody likes negative numbers';
  INSERT INTO maria_b VALUES (-2);
END
$$);
\echo :LAST_ERROR_SQLSTATE
SELECT tw.atomic($$
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
    RESIGNAL SQLSTATE '45005' SET MESSAGE_TEXT = 'once more';
  INSERT INTO maria_b VALUES (-2);
END
$$);
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM maria_c WHERE who = 'not kept';

-- A function in a query
CREATE FUNCTION maria_level(credit numeric) RETURNS varchar(10) LANGUAGE psm IMMUTABLE AS $$
BEGIN
  DECLARE lvl VARCHAR(10);
  IF credit > 50000 THEN SET lvl = 'PLATINUM';
  ELSEIF (credit <= 50000 AND credit >= 10000) THEN SET lvl = 'GOLD';
  ELSEIF credit < 10000 THEN SET lvl = 'SILVER';
  END IF;
  RETURN (lvl);
END
$$;
SELECT c, maria_level(c) FROM (VALUES (1), (10000), (50001)) AS v(c);

DROP TABLE maria_a, maria_b, maria_c;
DROP FUNCTION maria_guard, maria_level;
DROP PROCEDURE maria_merge, maria_count, maria_load, maria_diagnose;
