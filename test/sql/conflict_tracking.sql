-- What is tracked, how much of it is remembered, and what is refused.
CREATE TABLE tracked (id int PRIMARY KEY, v int, s text);
INSERT INTO tracked SELECT n, n % 10, 'text ' || n FROM generate_series(1, 1000) n;
CREATE INDEX ON tracked (v);
VACUUM ANALYZE tracked;
CREATE VIEW counters AS
	SELECT relations, rows, conditions, escalated FROM tw.tracking WHERE scope = 'transaction';

-- arguments
SELECT tw.track_reads('all');
SELECT tw.track_reads(NULL);

-- rows, once each, whatever reads them
BEGIN;
SELECT tw.track_reads('row');
SELECT count(*) FROM tracked WHERE v = 3;
SELECT * FROM counters;
SELECT count(*) FROM tracked WHERE v = 3;
SET LOCAL enable_nestloop = off;
SET LOCAL enable_mergejoin = off;
SELECT count(*) FROM tracked a JOIN tracked b ON b.id = a.id + 1 WHERE a.v = 4;
SELECT * FROM counters;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM tracked WHERE id < 10;
SELECT count(id) FROM tracked WHERE id < 10;
SELECT rows FROM counters;
-- its own rows need no tracking
INSERT INTO tracked VALUES (2000, 2000, '');
SELECT s FROM tracked WHERE id = 2000;
SELECT rows FROM counters;
COMMIT;

-- a statement's own target is left to the rule that the first updater wins
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT tw.track_reads('row');
UPDATE tracked t SET v = t.v FROM tracked o WHERE o.id = t.id AND o.id < 10;
SELECT rows BETWEEN 9 AND 10 AS only_the_other FROM counters;
ROLLBACK;

-- more rows than are remembered: one condition on the relation
BEGIN;
SET LOCAL transactional_writer.max_tracked_rows = 500;
SELECT tw.track_reads('row');
SELECT count(*) FROM tracked WHERE id <= 500;
SELECT * FROM counters;
SELECT count(*) FROM tracked WHERE id > 500;
SELECT * FROM counters;
COMMIT;

-- conditions: a scan each, a probe for each key, none twice
BEGIN;
SELECT tw.track_reads('predicate');
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM tracked WHERE id = 1;
SELECT count(*) FROM tracked WHERE id = 1;
SELECT * FROM counters;
DO $$ BEGIN FOR i IN 1 .. 20 LOOP PERFORM v FROM tracked WHERE id = i % 10; END LOOP; END $$;
SELECT * FROM counters;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_indexscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT count(*) FROM tracked WHERE s = 'text 1';
SELECT count(*) FROM tracked WHERE s = 'text 1';
SELECT * FROM counters;
-- the whole relation stands for them all
SELECT count(*) FROM tracked;
SELECT count(*) FROM tracked WHERE id = 3;
SELECT relations, rows, conditions FROM counters;
COMMIT;

-- very many probes
BEGIN;
SET LOCAL transactional_writer.max_tracked_rows = 1000;
SELECT tw.track_reads('predicate');
SET LOCAL enable_seqscan = off;
DO $$ BEGIN FOR i IN 1 .. 200 LOOP PERFORM v FROM tracked WHERE id = i; END LOOP; END $$;
SELECT relations, conditions, escalated > 0 AS escalated FROM counters;
COMMIT;

-- many relations
CREATE TABLE parted (id int) PARTITION BY RANGE (id);
DO $$ BEGIN FOR i IN 1 .. 30 LOOP
	EXECUTE format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES FROM (%s) TO (%s)', i, i * 10, i * 10 + 10);
END LOOP; END $$;
INSERT INTO parted SELECT generate_series(10, 309);
BEGIN;
SELECT tw.track_reads('row');
SELECT count(*) FROM parted;
SELECT count(*) FROM parted WHERE id % 2 = 0;
SELECT relations, rows FROM counters;
COMMIT;
DROP TABLE parted;

-- parallel plans run without workers
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SET plan_cache_mode = force_generic_plan;
PREPARE summed AS SELECT sum(v) FROM tracked WHERE id < 1000;
EXPLAIN (COSTS OFF) EXECUTE summed;
BEGIN;
SELECT tw.track_reads('row');
EXECUTE summed;
SELECT rows FROM counters;
EXPLAIN (COSTS OFF) SELECT sum(v) FROM tracked;
COMMIT;
DEALLOCATE summed;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;
RESET plan_cache_mode;

-- not tracked: temporary tables, catalogs, a table that this transaction has made
CREATE TEMPORARY TABLE temporary AS SELECT 1 AS id;
BEGIN;
SELECT tw.track_reads('predicate');
SELECT count(*) FROM temporary;
SELECT count(*) > 0 FROM pg_class;
CREATE TABLE made AS SELECT 1 AS id;
SELECT count(*) FROM made;
SELECT relations, rows, conditions FROM counters;
ROLLBACK;

-- refused: what changes outside of transactions
CREATE SEQUENCE sequence;
BEGIN;
SELECT tw.track_reads('row');
SELECT last_value FROM sequence;
ROLLBACK;

-- tw.watch
BEGIN;
SELECT tw.watch('tracked', 'v = :v AND s <> params.s', '{"v": 5, "s": "it''s"}');
SELECT tw.watch('tracked', 'id = ANY (:ids)', '{"ids": "{1,2}"}');
SELECT relations, conditions FROM counters;
-- tracks nothing else
SELECT count(*) FROM tracked;
SELECT relations, conditions FROM counters;
COMMIT;
SELECT tw.watch('tracked', 'v=:"a""b"AND(id=:"c d")', '{"a\"b": 5, "c d": 1}');
SELECT tw.watch('tracked', 'v=:"a""b"', '{"a\"c": 5}');
SELECT tw.watch('tracked', 'v = :w', '{"v": 5}');
-- errors show them as they were written
SELECT tw.watch('tracked', 'v = 1 / :none AND id > :some', '{"none": 0, "some": 1}');
SELECT tw.watch('tracked', 'v = :none AND w > :some', '{"none": 0, "some": 1}');
SELECT tw.watch('tracked', 'v = $1', '{"v": 5}');
SELECT tw.watch('tracked', 'v = 5', '[]');
SELECT tw.watch('tracked', NULL);
SELECT tw.watch('tracked', 'w = 5');
SELECT tw.watch('tracked', 'v');
SELECT tw.watch('tracked', 'v = 5) OR (true');
SELECT tw.watch('tracked', 'true UNION SELECT 1');
SELECT tw.watch('tracked', 'id IN (SELECT 1)');
SELECT tw.watch('tracked', 'random() < 0.5');
SELECT tw.watch('counters', 'true');

-- a condition is the user's own query
CREATE ROLE conflict_reader;
SET ROLE conflict_reader;
SELECT tw.watch('tracked', 'v = 5');
RESET ROLE;
DROP ROLE conflict_reader;

-- conflicts => of tw.run
CALL tw.run('BEGIN ATOMIC SELECT count(*) FROM tracked; RETURN (SELECT rows FROM counters); END');
CALL tw.run('BEGIN ATOMIC SELECT count(*) FROM tracked; RETURN (SELECT conditions FROM counters); END', conflicts => 'predicate');
CALL tw.run('BEGIN ATOMIC SELECT count(*) FROM tracked; RETURN (SELECT relations FROM counters); END', conflicts => 'write');
CALL tw.run('BEGIN ATOMIC SELECT 1; END', conflicts => 'all');

-- functions in an index may look at tables, in a transaction's end as well; they run as who adds the row
CREATE ROLE conflict_adder;
CREATE FUNCTION place(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'place of % for %', $1, current_user;
	RETURN (SELECT count(*) FROM tracked WHERE id < $1);
END $$;
CREATE TABLE placed (id int);
CREATE UNIQUE INDEX ON placed (place(id));
INSERT INTO placed VALUES (1);
GRANT SELECT ON tracked TO conflict_adder;
GRANT SELECT, INSERT ON placed TO conflict_adder;
BEGIN;
SELECT tw.track_reads('predicate');
SAVEPOINT a;
SET LOCAL ROLE conflict_adder;
INSERT INTO placed VALUES (1);
ROLLBACK TO a;
COMMIT;
-- an error may name whatever it likes
BEGIN;
SELECT tw.track_reads('predicate');
SAVEPOINT a;
DO $$ BEGIN RAISE unique_violation USING SCHEMA = 'public', TABLE = 'tracked_pkey', CONSTRAINT = 'tracked_pkey'; END $$;
ROLLBACK TO a;
DO $$ BEGIN RAISE unique_violation USING SCHEMA = 'public', TABLE = 'counters', CONSTRAINT = 'none'; EXCEPTION WHEN unique_violation THEN END $$;
COMMIT;
DROP TABLE placed;
DROP FUNCTION place;
REVOKE ALL ON tracked FROM conflict_adder;
DROP ROLE conflict_adder;

-- nothing outlives its transaction
SELECT * FROM counters;
SELECT * FROM tw.check_conflicts();
SELECT transactions > 5 AS transactions, rows > 1000 AS rows, conflicts FROM tw.tracking WHERE scope = 'session';

DROP VIEW counters;
DROP TABLE tracked;
DROP SEQUENCE sequence;
