-- Staged batches and the constraints that 18 brought: NOT NULL that is NOT VALID, CHECK and FOREIGN KEY
-- that are NOT ENFORCED, virtual generated columns, keys WITHOUT OVERLAPS.  Whatever way a publish goes,
-- by swapping partitions or moving rows, the target gets no row that an INSERT would refuse.
SELECT current_setting('server_version_num')::int < 180000 AS too_old \gset
\if :too_old
\quit
\endif
CREATE SCHEMA modern;
SET search_path = modern, public;
SET client_min_messages = warning;
CREATE EXTENSION btree_gist SCHEMA public;
RESET client_min_messages;
\set SHOW_CONTEXT never
\set VERBOSITY terse

-- Opens a batch, stages rows as a task, and publishes; somebody may alter the staging ($S) before and after
CREATE PROCEDURE batch(batch text, target jsonb, load text, before text DEFAULT NULL, after text DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
	s text;
BEGIN
	PERFORM tw.open_batch('modern', batch, jsonb_build_array(target));
	SELECT schema INTO s FROM tw.staged_batches WHERE batch_id = batch;
	IF before IS NOT NULL THEN
		EXECUTE replace(before, '$S', s);
	END IF;
	COMMIT;
	PERFORM tw.attach_task('modern', batch, 'one');
	EXECUTE replace(load, '$S', s);
	PERFORM tw.commit_task();
	COMMIT;
	IF after IS NOT NULL THEN
		EXECUTE replace(after, '$S', s);
	END IF;
	COMMIT;
	PERFORM tw.publish('modern', batch);
	COMMIT;
END $$;
CREATE FUNCTION way(batch text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT concat_ws(' ', o ->> 'command', o ->> 'rows') FROM tw.ledger, jsonb_array_elements(operations) o
	WHERE job = 'modern' AND batch_id = batch $$;
CREATE FUNCTION give_up(batch text) RETURNS void LANGUAGE sql AS $$SELECT tw.abort_batch('modern', batch)$$;

\echo NOT NULL that is NOT VALID, in the target: its old rows may be null, new ones not
CREATE TABLE n (p int, v int) PARTITION BY LIST (p);
CREATE TABLE n1 PARTITION OF n FOR VALUES IN (1);
CREATE TABLE n2 PARTITION OF n FOR VALUES IN (2);
INSERT INTO n VALUES (1, NULL), (2, NULL);
ALTER TABLE n ADD CONSTRAINT n_v_there NOT NULL v NOT VALID;
CALL batch('n1', '{"table": "n", "mode": "overwrite", "where": "p = 1"}', 'INSERT INTO $S.n VALUES (1, NULL)');
SELECT give_up('n1');
CALL batch('n2', '{"table": "n", "mode": "overwrite", "where": "p = 1"}', 'INSERT INTO $S.n VALUES (1, 10)');
SELECT way('n2');
CALL batch('n3', '{"table": "n", "mode": "append"}', 'INSERT INTO $S.n VALUES (2, NULL)');
SELECT give_up('n3');
TABLE n;
\echo and in the staging table: it may have nulls
CALL batch('n4', '{"table": "n", "mode": "overwrite", "where": "p = 1"}', 'INSERT INTO $S.n VALUES (1, NULL)',
	'ALTER TABLE $S.n ALTER v DROP NOT NULL', 'ALTER TABLE $S.n ADD CONSTRAINT later NOT NULL v NOT VALID');
SELECT give_up('n4');
-- and that it has none by now does not make the constraint valid
CALL batch('n5', '{"table": "n", "mode": "overwrite", "where": "p = 1"}', 'INSERT INTO $S.n VALUES (1, 11)',
	'ALTER TABLE $S.n ALTER v DROP NOT NULL', 'ALTER TABLE $S.n ADD CONSTRAINT later NOT NULL v NOT VALID');
SELECT way('n5');
CALL batch('n6', '{"table": "n", "mode": "overwrite", "where": "p = 1"}', 'INSERT INTO $S.n VALUES (1, 12)',
	'ALTER TABLE $S.n ALTER v DROP NOT NULL',
	'ALTER TABLE $S.n ADD CONSTRAINT later NOT NULL v NOT VALID; ALTER TABLE $S.n VALIDATE CONSTRAINT later');
SELECT way('n6');
TABLE n;

\echo CHECK that is NOT ENFORCED, in the target: nobody holds rows to it
CREATE TABLE c (p int, v int, CONSTRAINT c_small CHECK (v < 100) NOT ENFORCED, CONSTRAINT c_big CHECK (v > 0)) PARTITION BY LIST (p);
CREATE TABLE c1 PARTITION OF c FOR VALUES IN (1);
CALL batch('c1', '{"table": "c", "mode": "append"}', 'INSERT INTO $S.c VALUES (1, 100)');
SELECT way('c1');
CALL batch('c2', '{"table": "c", "mode": "overwrite"}', 'INSERT INTO $S.c VALUES (1, 0)');
SELECT give_up('c2');
TABLE c;
\echo and in the staging table, for one that the target enforces
CALL batch('c3', '{"table": "c", "mode": "overwrite"}', 'INSERT INTO $S.c VALUES (1, 0)',
	'ALTER TABLE $S.c1 DROP CONSTRAINT c1_v_check; ALTER TABLE $S.c1 ADD CONSTRAINT c_big CHECK (v > 0) NOT ENFORCED');
SELECT give_up('c3');
TABLE c;

\echo FOREIGN KEY that is NOT ENFORCED: likewise, until it is
CREATE TABLE r (id int PRIMARY KEY);
CREATE TABLE f (p int, r int, CONSTRAINT f_r FOREIGN KEY (r) REFERENCES r NOT ENFORCED) PARTITION BY LIST (p);
CREATE TABLE f1 PARTITION OF f FOR VALUES IN (1);
CALL batch('f1', '{"table": "f", "mode": "append"}', 'INSERT INTO $S.f VALUES (1, 7)');
SELECT way('f1');
CALL batch('f2', '{"table": "f", "mode": "overwrite"}', 'INSERT INTO $S.f VALUES (1, 8)', after =>
	'DELETE FROM f; ALTER TABLE f DROP CONSTRAINT f_r; ALTER TABLE f ADD CONSTRAINT f_r FOREIGN KEY (r) REFERENCES r');
SELECT give_up('f2');
TABLE f;
-- from another table: nobody holds what refers to it
CREATE TABLE k (p int, id int, PRIMARY KEY (p, id)) PARTITION BY LIST (p);
CREATE TABLE k1 PARTITION OF k FOR VALUES IN (1);
INSERT INTO k VALUES (1, 1);
CREATE TABLE kf (p int, id int, CONSTRAINT kf_k FOREIGN KEY (p, id) REFERENCES k NOT ENFORCED);
INSERT INTO kf VALUES (1, 1);
CALL batch('k1', '{"table": "k", "mode": "overwrite"}', 'INSERT INTO $S.k VALUES (1, 2)');
SELECT way('k1');
DELETE FROM kf;
ALTER TABLE kf DROP CONSTRAINT kf_k;
ALTER TABLE kf ADD CONSTRAINT kf_k FOREIGN KEY (p, id) REFERENCES k;
INSERT INTO kf VALUES (1, 2);
CALL batch('k2', '{"table": "k", "mode": "overwrite"}', 'INSERT INTO $S.k VALUES (1, 3)');
SELECT give_up('k2');
TABLE k;

\echo virtual generated columns: computed by the target, and held to its constraints
CREATE TABLE g (p int, v int, twice int GENERATED ALWAYS AS (v * 2) VIRTUAL NOT NULL CHECK (twice < 100)) PARTITION BY LIST (p);
CREATE TABLE g1 PARTITION OF g FOR VALUES IN (1);
CREATE TABLE g2 PARTITION OF g FOR VALUES IN (2);
INSERT INTO g VALUES (1, 1), (2, 2);
CALL batch('g1', '{"table": "g", "mode": "overwrite", "where": "p = 1"}', 'INSERT INTO $S.g VALUES (1, 10)');
SELECT way('g1');
CALL batch('g2', '{"table": "g", "mode": "append"}', 'INSERT INTO $S.g VALUES (2, 50)');
SELECT give_up('g2');
CALL batch('g3', '{"table": "g", "mode": "append"}', 'INSERT INTO $S.g VALUES (2, NULL)');
SELECT give_up('g3');
CALL batch('g4', '{"table": "g", "mode": "overwrite", "where": "twice = 20"}', 'INSERT INTO $S.g VALUES (1, 10), (2, 10)');
SELECT way('g4');
CALL batch('g5', '{"table": "g", "mode": "overwrite", "where": "twice = 20"}', 'INSERT INTO $S.g VALUES (1, 11)');
SELECT give_up('g5');
SELECT * FROM g ORDER BY p, v;
-- one whose expression was changed since, or that is stored in one of them
CREATE TABLE gx (p int, v int, twice int GENERATED ALWAYS AS (v * 2) VIRTUAL) PARTITION BY LIST (p);
CREATE TABLE gx1 PARTITION OF gx FOR VALUES IN (1);
CALL batch('g6', '{"table": "gx", "mode": "overwrite"}', 'INSERT INTO $S.gx VALUES (1, 40)');
SELECT way('g6');
CALL batch('g7', '{"table": "gx", "mode": "overwrite"}', 'INSERT INTO $S.gx VALUES (1, 40)',
	after => 'ALTER TABLE gx ALTER twice SET EXPRESSION AS (v * 3)');
SELECT way('g7');
TABLE gx;
CREATE TABLE gs (p int, v int, twice int GENERATED ALWAYS AS (v * 2) STORED) PARTITION BY LIST (p);
CREATE TABLE gs1 PARTITION OF gs FOR VALUES IN (1);
CALL batch('g8', '{"table": "gs", "mode": "overwrite"}', 'INSERT INTO $S.gs VALUES (1, 1)',
	'ALTER TABLE $S.gs DROP COLUMN twice; ALTER TABLE $S.gs ADD twice int GENERATED ALWAYS AS (v * 2) VIRTUAL');
SELECT way('g8');
TABLE gs;
-- a plain table, where rows go many at a time, and by merge
CREATE TABLE gp (k int PRIMARY KEY, v int, twice int GENERATED ALWAYS AS (v * 2) VIRTUAL NOT NULL CHECK (twice < 100));
CALL batch('p1', '{"table": "gp", "mode": "append"}', 'INSERT INTO $S.gp SELECT g, g FROM generate_series(1, 3) g');
SELECT way('p1');
CALL batch('p2', '{"table": "gp", "mode": "append"}', 'INSERT INTO $S.gp VALUES (4, NULL)', 'ALTER TABLE $S.gp ALTER twice DROP NOT NULL');
SELECT give_up('p2');
CALL batch('p3', '{"table": "gp", "mode": "append"}', 'INSERT INTO $S.gp VALUES (4, 50)');
SELECT give_up('p3');
CALL batch('p4', '{"table": "gp", "mode": "merge"}', 'INSERT INTO $S.gp VALUES (3, 3), (2, 20), (5, 5)');
SELECT way('p4');
CALL batch('p5', '{"table": "gp", "mode": "merge"}', 'INSERT INTO $S.gp VALUES (2, 50)');
SELECT give_up('p5');
CALL batch('p6', '{"table": "gp", "mode": "merge", "delete_when": "twice = 6"}', 'INSERT INTO $S.gp VALUES (3, 3), (2, 2)');
SELECT way('p6');
CALL batch('p7', '{"table": "gp", "mode": "merge", "order_by": "twice DESC"}', 'INSERT INTO $S.gp VALUES (1, 11), (1, 12)');
SELECT way('p7');
SELECT * FROM gp ORDER BY k;

\echo keys WITHOUT OVERLAPS
CREATE TABLE o (id int, during int4range, v text, PRIMARY KEY (id, during WITHOUT OVERLAPS));
INSERT INTO o VALUES (1, '[1,10)', 'old');
CALL batch('o1', '{"table": "o", "mode": "append"}', $$INSERT INTO $S.o VALUES (1, '[10,20)', 'next')$$);
SELECT way('o1');
CALL batch('o2', '{"table": "o", "mode": "append"}', $$INSERT INTO $S.o VALUES (1, '[5,15)', 'overlaps')$$);
SELECT give_up('o2');
CALL batch('o3', '{"table": "o", "mode": "append"}', $$INSERT INTO $S.o VALUES (2, '[5,15)', 'a'), (2, '[6,7)', 'b')$$);
SELECT give_up('o3');
-- a key is compared by equality, and this one forbids more
CALL batch('o4', '{"table": "o", "mode": "merge"}', $$INSERT INTO $S.o VALUES (1, '[2,3)', 'overlaps')$$);
CALL batch('o5', '{"table": "o", "mode": "insert_new", "key": ["id", "during"]}', $$INSERT INTO $S.o VALUES (1, '[2,3)', 'overlaps')$$);
-- with a unique index of its own
CREATE UNIQUE INDEX ON o (id, during);
CALL batch('o6', '{"table": "o", "mode": "merge", "key": ["id", "during"]}', $$INSERT INTO $S.o VALUES (1, '[1,10)', 'new'), (3, '[1,2)', 'new')$$);
SELECT way('o6');
CALL batch('o7', '{"table": "o", "mode": "insert_new", "key": ["id", "during"]}', $$INSERT INTO $S.o VALUES (1, '[1,10)', 'kept'), (1, '[2,3)', 'overlaps')$$);
SELECT give_up('o7');
CALL batch('o8', '{"table": "o", "mode": "overwrite", "where": "id = 1"}', $$INSERT INTO $S.o VALUES (1, '[1,5)', 'x'), (1, '[5,9)', 'y')$$);
SELECT way('o8');
SELECT * FROM o ORDER BY id, during;
-- of a partitioned table: a partition's index is swapped with one that is the same
CREATE TABLE op (p int, id int, during int4range, PRIMARY KEY (p, id, during WITHOUT OVERLAPS)) PARTITION BY LIST (p);
CREATE TABLE op1 PARTITION OF op FOR VALUES IN (1);
CALL batch('q1', '{"table": "op", "mode": "append"}', $$INSERT INTO $S.op VALUES (1, 1, '[1,10)')$$);
SELECT way('q1');
CALL batch('q2', '{"table": "op", "mode": "overwrite"}', $$INSERT INTO $S.op VALUES (1, 1, '[1,10)'), (1, 1, '[9,12)')$$);
SELECT give_up('q2');
CALL batch('q3', '{"table": "op", "mode": "overwrite"}', $$INSERT INTO $S.op VALUES (1, 1, '[1,10)'), (1, 1, '[10,12)')$$);
SELECT way('q3');
TABLE op;

-- and with no other
CALL batch('q4', '{"table": "op", "mode": "overwrite"}', $$INSERT INTO $S.op VALUES (1, 1, '[1,10)'), (1, 1, '[9,12)')$$,
	'ALTER TABLE $S.op1 DROP CONSTRAINT op1_pkey; ALTER TABLE $S.op1 ADD PRIMARY KEY (p, id, during)');
SELECT give_up('q4');
TABLE op;

SELECT batch_id FROM tw.staged_batches WHERE job = 'modern';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA modern CASCADE;
DROP EXTENSION btree_gist;
