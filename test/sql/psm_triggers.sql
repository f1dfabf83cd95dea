-- LANGUAGE psm: triggers.
\set VERBOSITY default
\set SHOW_CONTEXT errors
CREATE TABLE trg_log (id int GENERATED ALWAYS AS IDENTITY, what text);
CREATE TABLE trg_t (id int PRIMARY KEY, dropped int, v text, w numeric DEFAULT 7);
ALTER TABLE trg_t DROP COLUMN dropped;

-- All that a trigger is told, for every kind of it
CREATE FUNCTION trg_all() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  INSERT INTO trg_log (what) VALUES (concat_ws(' ', tg_name, tg_when, tg_level, tg_op, TG_RELID::regclass,
    tg_relname, tg_table_name, tg_table_schema, tg_nargs, tg_argv[0], tg_argv[1], 'new', NEW, 'old', OLD));
END$$;
CREATE TRIGGER a1 BEFORE INSERT OR UPDATE OR DELETE ON trg_t FOR EACH ROW EXECUTE FUNCTION trg_all('x', 'y');
CREATE TRIGGER a2 AFTER INSERT OR UPDATE OR DELETE ON trg_t FOR EACH ROW EXECUTE FUNCTION trg_all();
CREATE TRIGGER a3 BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON trg_t EXECUTE FUNCTION trg_all();
CREATE TRIGGER a4 AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON trg_t EXECUTE FUNCTION trg_all();
INSERT INTO trg_t (id, v) VALUES (1, 'a'), (2, 'b');
UPDATE trg_t SET v = 'c' WHERE id = 1;
DELETE FROM trg_t WHERE id = 2;
TRUNCATE trg_t;
SELECT what FROM trg_log ORDER BY id;
TRUNCATE trg_log;
DROP FUNCTION trg_all CASCADE;

-- What a BEFORE row trigger returns: nothing, NULL, NEW, OLD, another row
CREATE FUNCTION trg_returns() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  CASE NEW.id
    WHEN 1 THEN RETURN NULL;
    WHEN 2 THEN RETURN NEW;
    WHEN 3 THEN
      BEGIN
        DECLARE r trg_t;
        SET r = NEW, r.v = 'other';
        RETURN r;
      END;
    WHEN 4 THEN RETURN ROW('40', 'row', 1);
    WHEN 5 THEN
      SET NEW.v = 'changed';
      RETURN;
    WHEN 6 THEN SET NEW.v = 'changed, ' || NEW.id;
    WHEN 7 THEN SET NEW = ROW(70, 'whole', 3);
    WHEN 8 THEN RETURN OLD;
    WHEN 9 THEN RETURN ROW(1, 2);
    WHEN 10 THEN RETURN 5;
    WHEN 11 THEN SET NEW.id = NULL;
    WHEN 12 THEN SET NEW.vv = 1;
    WHEN 13 THEN RETURN NEW.vv;
  END CASE;
END$$;
CREATE TRIGGER r1 BEFORE INSERT ON trg_t FOR EACH ROW EXECUTE FUNCTION trg_returns();
INSERT INTO trg_t (id, v) SELECT i, 'v' || i FROM generate_series(1, 8) AS i RETURNING *;
INSERT INTO trg_t (id) VALUES (9);
INSERT INTO trg_t (id) VALUES (10);
INSERT INTO trg_t (id) VALUES (11);
INSERT INTO trg_t (id) VALUES (12);
INSERT INTO trg_t (id) VALUES (13);
DROP TRIGGER r1 ON trg_t;
CREATE FUNCTION trg_update() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  IF NEW.v = 'skip' THEN RETURN NULL;
  ELSEIF NEW.v = 'old' THEN RETURN OLD;
  END IF;
  SET NEW.w = OLD.w + 1, OLD.w = 1000;
END$$;
CREATE TRIGGER r2 BEFORE UPDATE ON trg_t FOR EACH ROW EXECUTE FUNCTION trg_update();
UPDATE trg_t SET v = 'skip' WHERE id = 2 RETURNING *;
UPDATE trg_t SET v = 'old' WHERE id = 2 RETURNING *;
UPDATE trg_t SET v = 'new' WHERE id = 2 RETURNING *;
CREATE FUNCTION trg_delete() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  IF OLD.id = 3 THEN RETURN NULL; END IF;
  SET OLD.v = 'z';
END$$;
CREATE TRIGGER r3 BEFORE DELETE ON trg_t FOR EACH ROW EXECUTE FUNCTION trg_delete();
DELETE FROM trg_t WHERE id IN (2, 3) RETURNING *;
-- After the row and for statements it does not matter
CREATE FUNCTION trg_ignored() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  RETURN NULL;
END$$;
CREATE TRIGGER r4 AFTER INSERT ON trg_t FOR EACH ROW EXECUTE FUNCTION trg_ignored();
CREATE TRIGGER r5 BEFORE INSERT ON trg_t EXECUTE FUNCTION trg_ignored();
INSERT INTO trg_t VALUES (300, 'kept') RETURNING *;
DROP TRIGGER r4 ON trg_t;
DROP TRIGGER r5 ON trg_t;

-- INSTEAD OF
CREATE VIEW trg_v AS SELECT id, v FROM trg_t WHERE id >= 300;
CREATE FUNCTION trg_instead() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  CASE tg_op
    WHEN 'INSERT' THEN
      IF NEW.id < 0 THEN RETURN NULL; END IF;
      INSERT INTO trg_t (id, v) VALUES (NEW.id, NEW.v);
      SET NEW.v = 'by the view';
    WHEN 'UPDATE' THEN UPDATE trg_t SET v = NEW.v WHERE id = OLD.id;
    WHEN 'DELETE' THEN DELETE FROM trg_t WHERE id = OLD.id;
  END CASE;
END$$;
CREATE TRIGGER v1 INSTEAD OF INSERT OR UPDATE OR DELETE ON trg_v FOR EACH ROW EXECUTE FUNCTION trg_instead();
INSERT INTO trg_v VALUES (350, 'v'), (-1, 'n') RETURNING *;
UPDATE trg_v SET v = 'updated' WHERE id = 350 RETURNING *;
DELETE FROM trg_v WHERE id = 300 RETURNING *;
SELECT * FROM trg_v;

-- Transition tables
CREATE FUNCTION trg_transition() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  DECLARE n int;
  SELECT count(*) INTO n FROM new_rows;
  INSERT INTO trg_log (what) VALUES (concat_ws(' ', tg_op, n));
  FOR r AS SELECT v FROM new_rows ORDER BY id DO
    INSERT INTO trg_log (what) VALUES ('new ' || r.v);
  END FOR;
  IF tg_op = 'UPDATE' THEN
    INSERT INTO trg_log (what) SELECT 'old ' || v FROM old_rows ORDER BY id;
  END IF;
END$$;
CREATE TRIGGER t1 AFTER INSERT ON trg_t REFERENCING NEW TABLE AS new_rows EXECUTE FUNCTION trg_transition();
CREATE TRIGGER t2 AFTER UPDATE ON trg_t REFERENCING NEW TABLE AS new_rows OLD TABLE AS old_rows
  EXECUTE FUNCTION trg_transition();
INSERT INTO trg_t (id, v) SELECT i, 't' || i FROM generate_series(200, 201) AS i;
INSERT INTO trg_t SELECT 1 WHERE false;
UPDATE trg_t SET v = v || '!' WHERE id IN (200, 201);
SELECT what FROM trg_log ORDER BY id;
TRUNCATE trg_log;
DROP FUNCTION trg_transition CASCADE;

-- One function on two tables, which change
CREATE TABLE trg_u (x int, note text, v text);
CREATE FUNCTION trg_both() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  SET NEW.v = NEW.v || ' by ' || tg_relname;
END$$;
CREATE TRIGGER b1 BEFORE INSERT ON trg_t FOR EACH ROW EXECUTE FUNCTION trg_both();
CREATE TRIGGER b1 BEFORE INSERT ON trg_u FOR EACH ROW EXECUTE FUNCTION trg_both();
INSERT INTO trg_t (id, v) VALUES (400, 'a') RETURNING *;
INSERT INTO trg_u VALUES (1, 'n', 'b') RETURNING *;
INSERT INTO trg_t (id, v) VALUES (401, 'c') RETURNING *;
ALTER TABLE trg_u ADD COLUMN extra int DEFAULT 5;
INSERT INTO trg_u VALUES (2, 'n', 'd') RETURNING *;
ALTER TABLE trg_u DROP COLUMN note;
INSERT INTO trg_u VALUES (3, 'e') RETURNING *;
ALTER TABLE trg_u ALTER COLUMN v TYPE varchar(10);
INSERT INTO trg_u VALUES (4, 'f') RETURNING *;
INSERT INTO trg_u VALUES (5, 'too long') RETURNING *;
ALTER TABLE trg_u DROP COLUMN v;
INSERT INTO trg_u VALUES (6) RETURNING *;

-- Generated columns are not there before the row is written
CREATE TABLE trg_g (a int, b int GENERATED ALWAYS AS (a * 2) STORED, c text);
CREATE FUNCTION trg_generated() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  SET NEW.c = concat_ws(' ', tg_op, NEW.b, 'was', OLD.b);
END$$;
CREATE TRIGGER g1 BEFORE INSERT OR UPDATE ON trg_g FOR EACH ROW EXECUTE FUNCTION trg_generated();
INSERT INTO trg_g (a) VALUES (1) RETURNING *;
UPDATE trg_g SET a = 5 RETURNING *;

-- Partitions, whose columns may be in another order
CREATE TABLE trg_p (a int, b text) PARTITION BY RANGE (a);
CREATE TABLE trg_p1 PARTITION OF trg_p FOR VALUES FROM (0) TO (10);
CREATE TABLE trg_p2 (b text, junk int, a int);
ALTER TABLE trg_p2 DROP COLUMN junk;
ALTER TABLE trg_p ATTACH PARTITION trg_p2 FOR VALUES FROM (10) TO (20);
CREATE FUNCTION trg_partition() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  SET NEW.b = concat_ws(' ', NEW.b, NEW.a, tg_relname);
END$$;
CREATE TRIGGER p1 BEFORE INSERT ON trg_p FOR EACH ROW EXECUTE FUNCTION trg_partition();
INSERT INTO trg_p VALUES (1, 'x'), (11, 'y') RETURNING *;

-- Deferred constraint triggers: at commit, or at the end of a block
CREATE FUNCTION trg_limit() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  IF (SELECT count(*) FROM trg_u WHERE x > 1000) > 1 THEN
    SIGNAL SQLSTATE '23514' SET MESSAGE_TEXT = 'too many', TABLE_NAME = tg_table_name, CONSTRAINT_NAME = tg_name;
  END IF;
END$$;
DROP TRIGGER b1 ON trg_u;
CREATE CONSTRAINT TRIGGER few AFTER INSERT ON trg_u DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION trg_limit();
BEGIN;
INSERT INTO trg_u VALUES (1001), (1002);
DELETE FROM trg_u WHERE x = 1001;
COMMIT;
BEGIN;
INSERT INTO trg_u VALUES (1003);
COMMIT;
SELECT x FROM trg_u WHERE x > 1000;
SELECT tw.atomic('BEGIN INSERT INTO trg_u VALUES (1004); END');
SELECT count(*) FROM trg_u WHERE x > 1000;

-- Handlers in a trigger, and a trigger that is fired by its own statement
CREATE FUNCTION trg_recurse() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  DECLARE EXIT HANDLER FOR SQLSTATE '23505' SET NEW.v = 'there was another';
  IF NEW.id > 500 AND NEW.id < 505 THEN
    INSERT INTO trg_t (id, v) VALUES (NEW.id + 1, 'after ' || NEW.id);
  ELSEIF NEW.id = 510 THEN
    INSERT INTO trg_t (id, v) VALUES (501, 'again');
    INSERT INTO trg_log (what) VALUES ('not reached');
  END IF;
END$$;
CREATE TRIGGER z1 BEFORE INSERT ON trg_t FOR EACH ROW EXECUTE FUNCTION trg_recurse();
INSERT INTO trg_t (id, v) VALUES (501, 'first');
INSERT INTO trg_t (id, v) VALUES (510, 'last');
SELECT id, v FROM trg_t WHERE id > 500 ORDER BY id;
SELECT what FROM trg_log;

-- WHEN of the trigger, and statements that touch no row
CREATE TRIGGER w1 BEFORE UPDATE ON trg_t FOR EACH ROW WHEN (OLD.v IS DISTINCT FROM NEW.v)
  EXECUTE FUNCTION trg_both();
DROP TRIGGER r2 ON trg_t;
UPDATE trg_t SET w = 1 WHERE id = 400 RETURNING *;
UPDATE trg_t SET v = 'n' WHERE id = 400 RETURNING *;

-- A variable of the body may have the name of a row: RETURN means the variable
CREATE TABLE trg_n (a int, v text);
CREATE FUNCTION trg_names() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  DECLARE old trg_n;
  SET old = NEW, old.v = 'old of the body';
  IF NEW.a = 1 THEN RETURN old; END IF;
  FOR SELECT ROW(NEW.a, 'new of the loop')::trg_n AS new DO
    RETURN new;
  END FOR;
END$$;
CREATE TRIGGER n1 BEFORE INSERT ON trg_n FOR EACH ROW EXECUTE FUNCTION trg_names();
INSERT INTO trg_n VALUES (1, 'given'), (2, 'given') RETURNING *;
DROP TABLE trg_n;
DROP FUNCTION trg_names;

-- What is no trigger
SELECT trg_both();
CREATE FUNCTION trg_bad(a int) RETURNS trigger LANGUAGE psm AS 'BEGIN END';
CREATE FUNCTION trg_bad() RETURNS trigger LANGUAGE psm AS 'BEGIN RETURN TABLE SELECT 1; END';
CREATE EVENT TRIGGER trg_event ON ddl_command_end EXECUTE FUNCTION trg_both();

DROP VIEW trg_v;
DROP TABLE trg_log, trg_t, trg_u, trg_g, trg_p;
DROP FUNCTION trg_returns, trg_update, trg_delete, trg_ignored, trg_instead, trg_both, trg_generated,
  trg_partition, trg_limit, trg_recurse;
