-- LANGUAGE psm: procedures.  Each call is one atomic block.
\set VERBOSITY default
\set SHOW_CONTEXT errors
CREATE TABLE pr_acct (id int PRIMARY KEY, bal numeric CHECK (bal >= 0));
CREATE TABLE pr_log (msg text);
INSERT INTO pr_acct VALUES (1, 500), (2, 125);
CREATE PROCEDURE pr_move(amount numeric, source int DEFAULT 1, target int DEFAULT 2, INOUT left_over numeric DEFAULT NULL)
LANGUAGE psm AS $$
BEGIN ATOMIC
  INSERT INTO pr_log VALUES ('moving ' || amount);
  UPDATE pr_acct SET bal = bal + amount WHERE id = target;
  UPDATE pr_acct SET bal = bal - amount WHERE id = source;
  SET left_over = (SELECT bal FROM pr_acct WHERE id = source);
END$$;

-- Called by clients, in a transaction or not; a failure leaves nothing
CALL pr_move(100);
BEGIN;
CALL pr_move(amount => 50, source => 2, target => 1);
ROLLBACK;
CALL pr_move(5000);
SELECT * FROM pr_acct ORDER BY id;
SELECT * FROM pr_log;

-- In a loop, each call is undone alone
DO LANGUAGE plpgsql $$
DECLARE
  amount numeric;
  left_over numeric;
BEGIN
  FOREACH amount IN ARRAY ARRAY[10, 20, 9999, 30] LOOP
    BEGIN
      CALL pr_move(amount, 1, 2, left_over);
    EXCEPTION WHEN check_violation THEN
      RAISE NOTICE 'could not move %', amount;
    END;
  END LOOP;
  RAISE NOTICE 'left over: %', left_over;
END$$;
SELECT result FROM tw.atomic($$
BEGIN ATOMIC
  DECLARE amount, left_over numeric;
  DECLARE failed int DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR SQLSTATE '23514' SET failed = failed + 1;
  FOR r AS SELECT v FROM unnest(ARRAY[10, 20, 9999, 30]) AS v DO
    CALL pr_move(r.v, 1, 2, left_over);
  END FOR;
  RETURN ARRAY[failed, left_over];
END$$);
SELECT * FROM pr_acct ORDER BY id;
SELECT msg, count(*) FROM pr_log GROUP BY msg ORDER BY msg;

-- Transactions are the caller's
CREATE PROCEDURE pr_bad() LANGUAGE psm AS $$BEGIN INSERT INTO pr_log VALUES ('x'); COMMIT; END$$;
CREATE PROCEDURE pr_commits() LANGUAGE plpgsql AS $$BEGIN COMMIT; END$$;
CREATE PROCEDURE pr_calls() LANGUAGE psm AS $$BEGIN CALL pr_commits(); END$$;
CALL pr_calls();

-- Output arguments: all kinds, and as they were when the procedure leaves
CREATE PROCEDURE pr_outs(OUT a int, OUT b text, INOUT c pr_acct, INOUT d int[] DEFAULT '{1}') LANGUAGE psm AS $$
BEGIN
  SET a = 1, b = 'two', c.bal = c.bal + 1, d[2] = cardinality(d);
  RETURN;
END$$;
CALL pr_outs(NULL, NULL, ROW(1, 5));
CALL pr_outs(NULL, NULL, NULL, NULL);
CREATE PROCEDURE pr_none(OUT a int, OUT b pr_acct) LANGUAGE psm AS $$BEGIN END$$;
CALL pr_none(NULL, NULL);
CREATE PROCEDURE pr_value(OUT a int) LANGUAGE psm AS $$BEGIN RETURN 1; END$$;
CREATE PROCEDURE pr_value() LANGUAGE psm AS $$BEGIN RETURN 1; END$$;
CREATE PROCEDURE pr_variadic(OUT n int, VARIADIC v int[]) LANGUAGE psm AS $$BEGIN SET n = cardinality(v); END$$;
CALL pr_variadic(NULL, 1, 2, 3);
SELECT result FROM tw.atomic('BEGIN DECLARE n int; CALL pr_variadic(n, 4, 5); RETURN n; END');

-- Recursion with output arguments
CREATE PROCEDURE pr_hanoi(n int, from_peg text, to_peg text, via text, INOUT moves int) LANGUAGE psm AS $$
BEGIN
  IF n > 0 THEN
    CALL pr_hanoi(n - 1, from_peg, via, to_peg, moves);
    SET moves = moves + 1;
    CALL pr_hanoi(n - 1, via, to_peg, from_peg, moves);
  END IF;
END$$;
CALL pr_hanoi(6, 'a', 'b', 'c', 0);

-- A deferred constraint waits for the caller's commit
CREATE TABLE pr_child (id int REFERENCES pr_acct DEFERRABLE INITIALLY DEFERRED);
CREATE PROCEDURE pr_orphan(id int) LANGUAGE psm AS $$BEGIN INSERT INTO pr_child VALUES (pr_orphan.id); END$$;
BEGIN;
CALL pr_orphan(77);
INSERT INTO pr_acct VALUES (77, 0);
COMMIT;
CALL pr_orphan(78);

-- Security definer, and a setting of the procedure
CREATE PROCEDURE pr_set(OUT v text) SET work_mem = '7MB' LANGUAGE psm AS $$BEGIN SET v = current_setting('work_mem'); END$$;
CALL pr_set(NULL);

DROP TABLE pr_child, pr_log, pr_acct CASCADE;
DROP PROCEDURE pr_move, pr_commits, pr_calls, pr_variadic, pr_hanoi, pr_orphan, pr_set;
