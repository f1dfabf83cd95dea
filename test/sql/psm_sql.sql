-- SQL statements in a block: what PostgreSQL runs in a transaction runs here
CREATE TABLE acct (id int PRIMARY KEY, bal numeric DEFAULT 0);

-- SELECT INTO and RETURNING INTO
SELECT result, rows FROM tw.atomic($$BEGIN
	DECLARE a int; DECLARE b numeric; DECLARE r acct; DECLARE n int DEFAULT 7;
	INSERT INTO acct VALUES (1, 10) RETURNING id, bal INTO a, b;
	UPDATE acct SET bal = bal * 2 WHERE id = a RETURNING * INTO r;
	SELECT count(*) INTO n FROM acct;
	DELETE FROM acct WHERE id = 1 RETURNING r.bal - bal INTO b;
	RETURN jsonb_build_array(a, b, r, n);
END$$);
SELECT result, rows FROM tw.atomic($$BEGIN
	DECLARE a, b int;
	WITH w AS (INSERT INTO acct VALUES (1), (2), (3) RETURNING id)
	SELECT min(id), max(id) INTO a, b FROM w;
	RETURN jsonb_build_array(a, b, (SELECT count(*) FROM acct));
END$$);
-- INTO before FROM or at the end; in the middle of a string it is none
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a, b, c text;
	SELECT 'x INTO y' INTO a FROM acct WHERE id = 1;
	SELECT 'x INTO y', id FROM acct WHERE id = 2 INTO b, c;
	RETURN jsonb_build_array(a, b, c);
END$$);
-- too many rows
SELECT tw.atomic($$BEGIN
	DECLARE a int;
	SELECT id INTO a FROM acct;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a int;
	DELETE FROM acct RETURNING id INTO a;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a int;
	SELECT id, bal INTO a FROM acct WHERE id = 1;
END$$);
\echo :SQLSTATE
SELECT tw.atomic($$BEGIN
	DECLARE a int;
	DELETE FROM acct INTO a;
END$$);
\echo :SQLSTATE
SELECT count(*) FROM acct;
-- a plain query runs and its rows are dropped
CREATE SEQUENCE s;
SELECT result, rows FROM tw.atomic($$BEGIN
	SELECT nextval('s') FROM generate_series(1, 5);
	VALUES (1), (2);
	TABLE acct;
	(SELECT 1) UNION ALL (SELECT 2);
	RETURN currval('s');
END$$);

-- MERGE, upserts, CTEs, INSERT ... SELECT with a CASE expression, a subquery with LIMIT
TRUNCATE acct;
SELECT rows, result FROM tw.atomic($$BEGIN
	INSERT INTO acct VALUES (1, 1), (2, 2);
	INSERT INTO acct VALUES (2, 20), (3, 30) ON CONFLICT (id) DO UPDATE SET bal = acct.bal + excluded.bal;
	INSERT INTO acct VALUES (1, 99) ON CONFLICT DO NOTHING;
	MERGE INTO acct a
		USING (VALUES (3, 3), (4, 4), (1, NULL)) v (id, bal) ON v.id = a.id
		WHEN MATCHED AND v.bal IS NULL THEN DELETE
		WHEN MATCHED THEN UPDATE SET bal = a.bal + v.bal
		WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.bal);
	WITH old AS (DELETE FROM acct WHERE id = 4 RETURNING *)
	INSERT INTO acct SELECT id + 1, CASE WHEN bal > 3 THEN bal * 10 ELSE 0 END FROM old;
	RETURN (SELECT jsonb_agg(a ORDER BY id) FROM acct a);
END$$);

-- DDL, seen by the statements behind it; all of it undone by an error
SELECT result FROM tw.atomic($$BEGIN
	CREATE TABLE made (a int);
	INSERT INTO made VALUES (1);
	ALTER TABLE made ADD b text DEFAULT 'new';
	UPDATE made SET b = b || '!', a = a + 1;
	CREATE INDEX ON made (a);
	CREATE VIEW seen AS SELECT a * 2 AS twice, b FROM made;
	COMMENT ON TABLE made IS 'here; there';
	RETURN TABLE SELECT s.*, obj_description('made'::regclass) FROM seen s;
END$$);
SELECT tw.atomic($$BEGIN
	DROP VIEW seen;
	ALTER TABLE made DROP b;
	TRUNCATE made;
	CREATE TABLE other (a int);
	INSERT INTO made SELECT 1 / count(*) FROM other;
END$$);
\echo :SQLSTATE
SELECT * FROM seen;
SELECT to_regclass('other');
-- temporary tables, in every run anew
SELECT result FROM (VALUES (1), (2), (3)) v (i), LATERAL tw.atomic($$BEGIN
	CREATE TEMP TABLE work (x int);
	INSERT INTO work VALUES (:i), (:i * 10);
	SELECT sum(x) AS total INTO TEMP sums FROM work;
	CREATE TEMP TABLE more AS SELECT x + :i AS y FROM work;
	DROP TABLE work;
	BEGIN
		DECLARE n int;
		SELECT total + (SELECT sum(y) FROM more) INTO n FROM sums;
		DROP TABLE sums, more;
		RETURN n;
	END;
END$$, jsonb_build_object('i', i));
SELECT result FROM (VALUES (1), (2)) v (i), LATERAL tw.atomic($$BEGIN
	CREATE TEMP TABLE IF NOT EXISTS stays (x int) ON COMMIT DELETE ROWS;
	TRUNCATE stays;
	INSERT INTO stays VALUES (:i);
	RETURN TABLE SELECT * FROM stays;
END$$, jsonb_build_object('i', i));
DROP TABLE stays;
DROP VIEW seen;
DROP TABLE made;

-- partitions, constraints, triggers
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	NEW.bal := coalesce(NEW.bal, 0) + 1000;
	RETURN NEW;
END$$;
SELECT result FROM tw.atomic($$BEGIN
	CREATE TABLE p (k int, v text) PARTITION BY LIST (k);
	CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
	CREATE TABLE p2 (LIKE p);
	ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2);
	INSERT INTO p VALUES (1, 'a'), (2, 'b');
	TRUNCATE acct;
	CREATE TRIGGER note BEFORE INSERT ON acct FOR EACH ROW EXECUTE FUNCTION note();
	INSERT INTO acct VALUES (1, 1);
	RETURN TABLE SELECT p.tableoid::regclass AS part, v, bal FROM p, acct ORDER BY 1;
END$$);
DROP TABLE p;
DROP TRIGGER note ON acct;

-- functions and procedures: made, called, replaced; a body of statements ends nothing
SELECT result FROM tw.atomic($$BEGIN
	DECLARE n int DEFAULT 5;
	CREATE FUNCTION doubled(x int) RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT x * 2; END;
	CREATE PROCEDURE put(i int, b numeric) LANGUAGE sql BEGIN ATOMIC
		INSERT INTO acct VALUES (i, CASE WHEN b > 0 THEN b ELSE 0 END);
		UPDATE acct SET bal = bal + 1 WHERE id = i;
	END;
	CALL put(n + 1, 60);
	CALL put(:id, :amount);
	CREATE OR REPLACE FUNCTION doubled(x int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN x * 3; END';
	RETURN TABLE SELECT id, bal, doubled(n) FROM acct ORDER BY id;
END$$, '{"id": 9, "amount": "-1"}');
-- CALL with OUT arguments: they are dropped
CREATE PROCEDURE outs(IN a int, OUT b int) LANGUAGE plpgsql AS 'BEGIN b := a * 2; END';
SELECT result FROM tw.atomic($$BEGIN
	CALL outs(4, NULL);
	RETURN 'called';
END$$);
DROP PROCEDURE put, outs;
DROP FUNCTION doubled, note;

-- DO, SET LOCAL, SHOW, GRANT, LOCK, LISTEN and NOTIFY, PREPARE and EXECUTE, EXPLAIN, ANALYZE
CREATE ROLE psm_sql_reader;
SELECT result FROM tw.atomic($$BEGIN
	DECLARE before text DEFAULT current_setting('work_mem');
	DO 'BEGIN UPDATE acct SET bal = 0; END';
	SET LOCAL work_mem TO '1234kB';
	SHOW work_mem;
	GRANT SELECT ON acct TO psm_sql_reader;
	LOCK TABLE acct IN SHARE MODE;
	LISTEN psm_sql;
	NOTIFY psm_sql, 'told; in one piece';
	UNLISTEN psm_sql;
	PREPARE psm_get (int) AS SELECT bal FROM acct WHERE id = $1;
	EXECUTE psm_get(9);
	EXECUTE psm_get(:id);
	DEALLOCATE psm_get;
	EXPLAIN SELECT * FROM acct WHERE id = :id;
	ANALYZE acct;
	RETURN jsonb_build_array(has_table_privilege('psm_sql_reader', 'acct', 'SELECT'),
		current_setting('work_mem'), before <> current_setting('work_mem'));
END$$, '{"id": 9}');
SHOW work_mem;
REVOKE ALL ON acct FROM psm_sql_reader;
DROP ROLE psm_sql_reader;

-- a statement sees what those before it did, in functions as well, whatever their volatility
CREATE FUNCTION total() RETURNS numeric LANGUAGE sql STABLE AS 'SELECT sum(bal) FROM acct';
SELECT result FROM tw.atomic($$BEGIN
	DECLARE a, b numeric;
	TRUNCATE acct;
	INSERT INTO acct VALUES (1, 1);
	SET a = total();
	INSERT INTO acct VALUES (2, 2);
	SET b = total();
	IF total() = 3 THEN
		UPDATE acct SET bal = bal + total();
	END IF;
	RETURN jsonb_build_array(a, b, total());
END$$);
DROP FUNCTION total;

-- read only transactions: what writes is PostgreSQL's own error
BEGIN READ ONLY;
SELECT status, result, rows FROM tw.atomic('BEGIN RETURN (SELECT count(*) FROM acct); END');
SELECT tw.atomic($$BEGIN
	IF false THEN DELETE FROM acct; END IF;
	DELETE FROM acct;
END$$);
\echo :SQLSTATE
ROLLBACK;

DROP TABLE acct;
DROP SEQUENCE s;
