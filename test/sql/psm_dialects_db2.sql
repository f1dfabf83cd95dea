-- Blocks and routines as people write them for Db2: unchanged in grammar, on tables
-- of our own.
CREATE TABLE db2_staff (id int PRIMARY KEY, name varchar(20), dept int, salary decimal(9, 2), rating int);
INSERT INTO db2_staff VALUES
  (10, 'Abe', 1, 1000, 1), (20, 'Bea', 1, 2000, 2), (30, 'Cid', 1, 3000, 3),
  (40, 'Dot', 2, 4000, 1), (50, 'Eli', 2, 5000, 2), (60, 'Fay', 2, 6000, 1), (70, 'Gil', 3, 7000, 3);
CREATE TABLE db2_queue (id int PRIMARY KEY, state char(1), note varchar(60));

-- A median by a cursor that is read to its middle; an output argument; a handler
-- that sets a flag
CREATE PROCEDURE db2_median(IN in_dept int, OUT median decimal(9, 2)) LANGUAGE psm AS $$
BEGIN
  DECLARE v_num_records INTEGER DEFAULT 1;
  DECLARE v_counter INTEGER DEFAULT 0;
  DECLARE v_salary DECIMAL(9,2);
  DECLARE c1 CURSOR FOR
    SELECT salary FROM db2_staff WHERE dept = in_dept ORDER BY salary;
  DECLARE EXIT HANDLER FOR NOT FOUND
    SET median = NULL;
  SELECT COUNT(*) INTO v_num_records FROM db2_staff WHERE dept = in_dept;
  OPEN c1;
  WHILE v_counter < (v_num_records / 2 + 1) DO
    FETCH c1 INTO v_salary;
    SET v_counter = v_counter + 1;
  END WHILE;
  SET median = v_salary;
  CLOSE c1;
END
$$;
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE a, b, c DECIMAL(9,2);
  CALL db2_median(1, a);
  CALL db2_median(2, b);
  CALL db2_median(99, c);
  RETURN TABLE SELECT a, b, c;
END
$$);

-- CASE over a rating, and what to do when no branch fits
CREATE PROCEDURE db2_raise(IN who int, IN points int) LANGUAGE psm AS $$
BEGIN
  DECLARE not_found_cond CONDITION FOR SQLSTATE '02000';
  DECLARE bad_rating CONDITION FOR SQLSTATE '20000';
  DECLARE EXIT HANDLER FOR not_found_cond
    SIGNAL SQLSTATE '75002' SET MESSAGE_TEXT = 'no such person';
  DECLARE EXIT HANDLER FOR bad_rating
    SIGNAL SQLSTATE '75003' SET MESSAGE_TEXT = 'no such rating';
  CASE points
    WHEN 1 THEN
      UPDATE db2_staff SET salary = salary * 1.10 WHERE id = who;
    WHEN 2 THEN
      UPDATE db2_staff SET salary = salary * 1.05 WHERE id = who;
    WHEN 3 THEN
      UPDATE db2_staff SET rating = rating WHERE id = who;
  END CASE;
END
$$;
CALL db2_raise(10, 1);
CALL db2_raise(99, 1);
CALL db2_raise(10, 9);
SELECT salary FROM db2_staff WHERE id = 10;

-- An inlined compound: FOR with a cursor's name, positioned UPDATE and DELETE
INSERT INTO db2_queue SELECT i, 'N', 'job ' || i FROM generate_series(1, 6) AS i;
SELECT result, rows FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE done_count INT DEFAULT 0;
  each_job: FOR v AS c1 CURSOR FOR SELECT id, state FROM db2_queue ORDER BY id FOR UPDATE
  DO
    IF MOD(v.id, 3) = 0 THEN
      DELETE FROM db2_queue WHERE CURRENT OF c1;
    ELSE
      UPDATE db2_queue SET state = 'D', note = note || ' done' WHERE CURRENT OF c1;
      SET done_count = done_count + 1;
    END IF;
  END FOR each_job;
  RETURN done_count;
END
$$);
SELECT * FROM db2_queue ORDER BY id;

-- Savepoints: an inner ATOMIC compound that is undone as a whole while the outer
-- goes on
SELECT result FROM tw.atomic($$
BEGIN
  DECLARE tried, failed INT DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR SQLSTATE '23505'
    SET failed = failed + 1;
  l1: WHILE tried < 3 DO
    SET tried = tried + 1;
    BEGIN ATOMIC
      INSERT INTO db2_queue VALUES (100 + tried, 'N', 'first');
      INSERT INTO db2_queue VALUES (tried, 'N', 'second');
    END;
  END WHILE l1;
  RETURN ARRAY[tried, failed];
END
$$);
SELECT id FROM db2_queue WHERE id >= 100 OR id = 3 ORDER BY id;

-- UNDO takes the whole block back, then runs
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE UNDO HANDLER FOR SQLEXCEPTION
    BEGIN
      DECLARE msg VARCHAR(60);
      GET DIAGNOSTICS EXCEPTION 1 msg = MESSAGE_TEXT;
      INSERT INTO db2_queue VALUES (0, 'E', msg);
    END;
  DELETE FROM db2_queue;
  SIGNAL SQLSTATE '70001' SET MESSAGE_TEXT = 'changed my mind';
END
$$);
SELECT id, state, note FROM db2_queue ORDER BY id LIMIT 2;

-- ROW_COUNT; RESIGNAL with another state
CREATE FUNCTION db2_purge(below int) RETURNS int LANGUAGE psm AS $$
P1: BEGIN
  DECLARE rcount INTEGER;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
    RESIGNAL SQLSTATE '70002' SET MESSAGE_TEXT = 'purge failed';
  DELETE FROM db2_queue WHERE db2_queue.id < P1.rcount OR id < below;
  GET DIAGNOSTICS rcount = ROW_COUNT;
  IF rcount > 3 THEN
    SIGNAL SQLSTATE '70001';
  END IF;
  RETURN rcount;
END P1
$$;
SELECT db2_purge(2);
SELECT db2_purge(200);
\echo :LAST_ERROR_SQLSTATE

-- A trigger that keeps a rule and changes the row
CREATE FUNCTION db2_rule() RETURNS trigger LANGUAGE psm AS $$
BEGIN ATOMIC
  IF NEW.salary > OLD.salary * 2 THEN
    SIGNAL SQLSTATE '75000' SET MESSAGE_TEXT = 'raise is too big';
  END IF;
  SET NEW.rating = COALESCE(NEW.rating, OLD.rating);
END
$$;
CREATE TRIGGER db2_rule BEFORE UPDATE ON db2_staff FOR EACH ROW EXECUTE FUNCTION db2_rule();
UPDATE db2_staff SET salary = salary * 3 WHERE id = 70;
UPDATE db2_staff SET salary = salary + 1, rating = NULL WHERE id = 70 RETURNING salary, rating;

DROP TRIGGER db2_rule ON db2_staff;
DROP FUNCTION db2_rule, db2_purge;
DROP PROCEDURE db2_median, db2_raise;
DROP TABLE db2_staff, db2_queue;
