-- What must be whole when a statement has failed and a handler goes on.
\set VERBOSITY default
\set SHOW_CONTEXT errors
CREATE TABLE rec_t (a int, b text);

-- What a volatile function did before without writing stays: a setting, a lock, a cursor
SELECT set_config('rec.setting', 'before', false);
SELECT (tw.atomic($$BEGIN
  DECLARE locks int;
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
  SELECT set_config('rec.setting', 'kept', true);
  SELECT pg_advisory_xact_lock(4711);
  SELECT 1 / 0;
  SET locks = (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711);
  RETURN ROW(current_setting('rec.setting'), locks);
END$$)).result;
SELECT (tw.atomic($$BEGIN
  DECLARE v text DEFAULT set_config('rec.setting', 'kept by an expression', true);
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
  SET v = set_config('rec.setting', v || ' and another', true);
  SET v = 1 / 0;
  RETURN current_setting('rec.setting');
END$$)).result;
CREATE FUNCTION rec_open() RETURNS refcursor LANGUAGE plpgsql AS
$$DECLARE c refcursor := 'rec_cursor'; BEGIN OPEN c FOR SELECT 1; RETURN c; END$$;
SELECT (tw.atomic($$BEGIN
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
  IF rec_open() IS NOT NULL THEN SELECT 1 / 0; END IF;
  RETURN (SELECT count(*) FROM pg_cursors WHERE name = 'rec_cursor');
END$$)).result;
-- What the failing statement did itself does not
SELECT (tw.atomic($$BEGIN
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
  SELECT set_config('rec.setting', 'undone', true), 1 / (SELECT count(*) FROM rec_t);
  RETURN current_setting('rec.setting');
END$$)).result;

-- RETURN that failed has returned nothing
CREATE FUNCTION rec_return() RETURNS text LANGUAGE psm AS $$
BEGIN
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
  RETURN 1 / 0;
END$$;
SELECT rec_return();
CREATE FUNCTION rec_trigger() RETURNS trigger LANGUAGE psm AS $$
BEGIN
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' SET new.b = 'not the row of RETURN';
  RETURN ROW(1 / 0, 'never');
END$$;
CREATE TRIGGER rec_t_trigger BEFORE INSERT ON rec_t FOR EACH ROW EXECUTE FUNCTION rec_trigger();
INSERT INTO rec_t VALUES (1, 'one') RETURNING *;
DROP TRIGGER rec_t_trigger ON rec_t;

-- A set that does not fit in memory, returned out of a savepoint
CREATE FUNCTION rec_set() RETURNS SETOF text LANGUAGE psm AS $$
BEGIN
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22012' BEGIN END;
  RETURN TABLE SELECT repeat('x', 1000) || 1000 / (5000 - i) FROM generate_series(1, 10000) AS i;
  RETURN TABLE SELECT repeat('x', 1000) || i FROM generate_series(1, 10000) AS i;
END$$;
SET work_mem = '64kB';
SELECT count(*), count(DISTINCT right(s, 5)) FROM rec_set() AS s;
RESET work_mem;

-- An error that passes through several blocks, each of which is undone
SELECT (tw.atomic($$BEGIN
  DECLARE message text;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
  BEGIN ATOMIC
    BEGIN ATOMIC
      BEGIN ATOMIC
        DECLARE EXIT HANDLER FOR SQLSTATE '22012' RESIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = repeat('x', 100000);
        INSERT INTO rec_t VALUES (1 / 0);
      END;
    END;
  END;
  RETURN length(message);
END$$)).result;

-- The place of an error behind a utility statement with parameters that failed
SELECT tw.atomic($$BEGIN
  DECLARE CONTINUE HANDLER FOR SQLSTATE '58P01' BEGIN END;
  COPY rec_t FROM :file;
  SELECT a,
    nothing FROM rec_t;
END$$, '{"file": "/nonexistent/file"}');

-- A function that is replaced while it runs, first by a good one and then by a bad one
SET check_function_bodies = off;
CREATE FUNCTION rec_replaced(n int, OUT a int, OUT b text) LANGUAGE psm AS $$
BEGIN
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET b = b || ', then an error';
  SET a = 1, b = 'the first';
  EXECUTE IMMEDIATE 'CREATE OR REPLACE FUNCTION rec_replaced(n int, OUT a int, OUT b text) LANGUAGE psm AS
    ''BEGIN SET a = 2, b = ''''the second''''; END''';
  SET b = b || ', ' || (rec_replaced(n)).b;
  EXECUTE IMMEDIATE 'CREATE OR REPLACE FUNCTION rec_replaced(n int, OUT a int, OUT b text) LANGUAGE psm AS
    ''this is no block''';
  SELECT rec_replaced(n);
END$$;
SELECT * FROM rec_replaced(1);
RESET check_function_bodies;

-- Casts that fail leave no memory behind, nor does a row that is asked for once a row
SELECT (tw.atomic($$BEGIN
  DECLARE i int DEFAULT 0;
  DECLARE s varchar(3);
  DECLARE at_first, at_last bigint;
  DECLARE CONTINUE HANDLER FOR SQLSTATE '22001' BEGIN END;
  WHILE i < 3000 DO
    SET i = i + 1;
    SET s = i + 10000;
    IF i = 1000 THEN SELECT sum(used_bytes) INTO at_first FROM pg_backend_memory_contexts; END IF;
  END WHILE;
  SELECT sum(used_bytes) INTO at_last FROM pg_backend_memory_contexts;
  RETURN at_last - at_first < 100000;
END$$)).result;
SET plan_cache_mode = force_generic_plan;
SELECT (tw.atomic($$BEGIN
  DECLARE r rec_t;
  DECLARE used bigint;
  SET r = ROW(1, repeat('x', 1000));
  SELECT max(m.used_bytes) INTO used FROM generate_series(1, 3000) AS g,
    LATERAL (SELECT sum(used_bytes) AS used_bytes FROM pg_backend_memory_contexts
      WHERE g = 3000 AND name = 'ExprContext') AS m
    WHERE concat(r, g) <> '';
  RETURN used < 1000000;
END$$)).result;
RESET plan_cache_mode;

DROP FUNCTION rec_open, rec_return, rec_trigger, rec_set, rec_replaced;
DROP TABLE rec_t;
