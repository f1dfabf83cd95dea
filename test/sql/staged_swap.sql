-- Staged batches: whole partitions are swapped where that is possible
CREATE SCHEMA swap;
SET search_path = swap;
\set SHOW_CONTEXT never
CREATE TABLE m (day date NOT NULL, id int NOT NULL, v text, big text, CHECK (id > 0), PRIMARY KEY (day, id)) PARTITION BY RANGE (day);
CREATE INDEX ON m (v DESC NULLS LAST, id);
CREATE INDEX ON m (lower(v)) WHERE id > 10;
CREATE TABLE m1 PARTITION OF m FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE m2 PARTITION OF m FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE m3 (v text, big text, id int NOT NULL, day date NOT NULL);
ALTER TABLE m3 ADD CONSTRAINT m_id_check CHECK (id > 0);
ALTER TABLE m ATTACH PARTITION m3 FOR VALUES FROM ('2026-03-01') TO ('2026-04-01');
CREATE INDEX own ON m2 (length(big));
ALTER TABLE m ALTER big SET STORAGE external;
CREATE VIEW seen AS SELECT * FROM m2;
GRANT SELECT ON m2 TO pg_monitor;
INSERT INTO m SELECT d, n, 'old ' || n, NULL FROM generate_series(1, 20) n, unnest('{2026-01-05,2026-02-05}'::date[]) d;

-- Opens batch b, stages rows with statements, each a task and a transaction, and publishes
CREATE PROCEDURE batch(batch text, target jsonb, VARIADIC load text[]) LANGUAGE plpgsql AS $$
DECLARE
	s text;
BEGIN
	PERFORM tw.open_batch('swap', batch, jsonb_build_array(target));
	COMMIT;
	FOR i IN 1 .. cardinality(load) LOOP
		SELECT staging INTO s FROM tw.attach_task('swap', batch, i::text);
		EXECUTE replace(load[i], '$S', s);
		PERFORM tw.commit_task();
		COMMIT;
	END LOOP;
	PERFORM tw.publish('swap', batch);
	COMMIT;
END $$;
CREATE VIEW way AS SELECT batch_id, o ->> 'command' AS command, o ->> 'rows' AS rows, o ->> 'staged' AS staged
	FROM tw.ledger, jsonb_array_elements(operations) o WHERE job = 'swap' ORDER BY started_at;
CREATE FUNCTION state() RETURNS TABLE (part regclass, rows bigint, ids bigint, v text, big bigint) LANGUAGE sql AS $$
	SELECT tableoid::regclass, count(*), sum(id), max(v), sum(length(big)) FROM m GROUP BY tableoid ORDER BY tableoid::regclass::text
$$;

-- A part that is whole partitions
SELECT 'm2'::regclass::oid AS oid, relfilenode AS file FROM pg_class WHERE oid = 'm2'::regclass \gset
CALL batch('b1', '{"table": "m", "mode": "overwrite", "where": "day >= ''2026-02-01'' AND day < ''2026-03-01''"}',
	$$INSERT INTO $S SELECT '2026-02-07', n, 'new', repeat('x', 5000) FROM generate_series(1, 30) n$$,
	$$INSERT INTO $S SELECT '2026-02-08', n, 'new', repeat(md5(n::text), 200) FROM generate_series(1, 30) n$$);
TABLE way;
SELECT * FROM state();
-- it is the same table, with other files
SELECT 'm2'::regclass::oid = :oid AS same_table, relfilenode <> :file AS other_file FROM pg_class WHERE oid = 'm2'::regclass;
SELECT count(*) FROM seen;
SELECT has_table_privilege('pg_monitor', 'm2', 'SELECT');
-- indexes and TOAST went with it, and are named after it
SET enable_seqscan = off;
SELECT count(*) FROM m WHERE day = '2026-02-08' AND id = 7;
SELECT count(*) FROM m2 WHERE lower(v) = 'new' AND id > 10;
SELECT id FROM m2 ORDER BY v DESC NULLS LAST, id LIMIT 2;
SELECT count(*) FROM m2 WHERE big = repeat(md5('9'), 200);
RESET enable_seqscan;
SELECT t.relname = 'pg_toast_' || :oid AS toast, i.relname = 'pg_toast_' || :oid || '_index' AS toast_index
FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid JOIN pg_index x ON x.indrelid = t.oid JOIN pg_class i ON i.oid = x.indexrelid
WHERE c.oid = :oid;
INSERT INTO m VALUES ('2026-02-07', 1, 'again');
INSERT INTO m VALUES ('2026-02-07', 31, 'more', repeat('y', 3000));
UPDATE m SET big = big || 'z' WHERE id = 5;
DELETE FROM m WHERE id = 6;
VACUUM (FREEZE) m2;
REINDEX TABLE m2;
SELECT * FROM state();
SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%';

-- Everything; a column order of its own; twice
CALL batch('b2', '{"table": "m", "mode": "overwrite"}',
	$$INSERT INTO $S SELECT d, n, 'all', NULL FROM generate_series(1, 5) n, unnest('{2026-01-05,2026-02-05,2026-03-05}'::date[]) d$$);
SELECT * FROM state();
CALL batch('b3', '{"table": "m", "mode": "overwrite"}', $$INSERT INTO $S SELECT '2026-03-05', 1, 'one', NULL$$);
SELECT * FROM state();
-- Append into an empty partition, and one that is not
CALL batch('b4', '{"table": "m", "mode": "append"}',
	$$INSERT INTO $S SELECT d, n, 'app', NULL FROM generate_series(10, 15) n, unnest('{2026-01-05,2026-03-05}'::date[]) d$$);
SELECT * FROM state();
SELECT * FROM way WHERE batch_id > 'b1';

-- What the partition has, the staging table refuses already
CALL batch('b5', '{"table": "m", "mode": "overwrite", "where": "day >= ''2026-02-01'' AND day < ''2026-03-01''"}',
	$$INSERT INTO $S VALUES ('2026-02-01', 1, 'twice'), ('2026-02-01', 1, 'twice')$$);
SELECT tw.abort_batch('swap', 'b5');
CALL batch('b5', '{"table": "m", "mode": "overwrite", "where": "day >= ''2026-02-01'' AND day < ''2026-03-01''"}',
	$$INSERT INTO $S VALUES ('2026-02-01', -1, 'check')$$);
SELECT tw.abort_batch('swap', 'b5');
CALL batch('b5', '{"table": "m", "mode": "overwrite", "where": "day >= ''2026-02-01'' AND day < ''2026-03-01''"}',
	$$INSERT INTO $S VALUES ('2026-01-01', 1, 'elsewhere')$$);
SELECT tw.abort_batch('swap', 'b5');

-- Moved when it cannot be swapped: a part of a partition, refused, not committed before, ...
CALL batch('c1', '{"table": "m", "mode": "overwrite", "where": "day >= ''2026-02-02'' AND day < ''2026-03-01''"}',
	$$INSERT INTO $S VALUES ('2026-02-02', 1, 'c1')$$);
CALL batch('c2', '{"table": "m", "mode": "overwrite", "swap": false}', $$INSERT INTO $S VALUES ('2026-02-02', 1, 'c2')$$);
CALL batch('c3', '{"table": "m", "mode": "overwrite", "order_by": "v"}', $$INSERT INTO $S VALUES ('2026-02-02', 1, 'c3'), ('2026-02-02', 1, 'd')$$);
-- ... altered meanwhile ...
SELECT status FROM tw.open_batch('swap', 'c4', '[{"table": "m", "mode": "overwrite"}]');
BEGIN;
SELECT staging AS s FROM tw.attach_task('swap', 'c4', '1') \gset
INSERT INTO :s VALUES ('2026-02-02', 1, 'c4');
SELECT tw.commit_task();
COMMIT;
CREATE INDEX later ON m2 (id, v);
SELECT status FROM tw.publish('swap', 'c4');
-- ... with triggers
CREATE FUNCTION noop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER noop AFTER INSERT ON m1 FOR EACH ROW EXECUTE FUNCTION noop();
CALL batch('c5', '{"table": "m", "mode": "overwrite"}', $$INSERT INTO $S VALUES ('2026-02-02', 1, 'c5')$$);
DROP TRIGGER noop ON m1;
-- all in one transaction
BEGIN;
SELECT status FROM tw.open_batch('swap', 'c6', '[{"table": "m", "mode": "overwrite"}]');
SELECT staging AS s FROM tw.attach_task('swap', 'c6', '1') \gset
INSERT INTO :s VALUES ('2026-02-02', 1, 'c6');
SELECT tw.commit_task();
SELECT status FROM tw.publish('swap', 'c6');
SELECT v FROM m;
ROLLBACK;
SELECT v FROM m;
-- a default partition
CREATE TABLE m4 PARTITION OF m DEFAULT;
CALL batch('c7', '{"table": "m", "mode": "overwrite"}', $$INSERT INTO $S VALUES ('2029-02-02', 1, 'c7')$$);
SELECT * FROM way WHERE batch_id > 'c';
SELECT * FROM state();

-- A swap that is rolled back
DROP TABLE m4;
SELECT status FROM tw.open_batch('swap', 'd1', '[{"table": "m", "mode": "overwrite"}]');
BEGIN;
SELECT staging AS s FROM tw.attach_task('swap', 'd1', '1') \gset
INSERT INTO :s VALUES ('2026-02-02', 1, 'd1', repeat('x', 9000));
SELECT tw.commit_task();
COMMIT;
SELECT rows, bytes > 0 AS bytes, logged FROM tw.staged_batches;
-- not under what this very session reads
BEGIN;
DECLARE c CURSOR FOR SELECT v FROM m;
FETCH c;
SELECT tw.publish('swap', 'd1');
\echo :SQLSTATE
ROLLBACK;
-- nor with an index that this very transaction has made anew
BEGIN;
REINDEX INDEX own;
SELECT operations -> 0 -> 'command' AS command FROM tw.publish('swap', 'd1');
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT operations -> 0 -> 'command' AS command FROM tw.publish('swap', 'd1');
SELECT v, length(big) FROM m;
ROLLBACK TO a;
SELECT v FROM m;
SELECT operations -> 0 -> 'command' AS command FROM tw.publish('swap', 'd1');
INSERT INTO m VALUES ('2026-02-03', 2, 'with it');
COMMIT;
SELECT v, length(big) FROM m ORDER BY v;
-- What the job's owner has made of the staging tables cannot break what the target's owner
-- has promised of its rows: such parts are moved, and the rows are refused
CREATE ROLE swap_loader NOLOGIN;
GRANT USAGE ON SCHEMA swap TO swap_loader;
CREATE TABLE kept (day int, n int CHECK (n > 0), u int) PARTITION BY LIST (day);
CREATE UNIQUE INDEX ON kept (day, u);
CREATE TABLE kept_1 PARTITION OF kept FOR VALUES IN (1);
GRANT SELECT, INSERT, UPDATE, DELETE ON kept TO swap_loader;
SET ROLE swap_loader;
SELECT schema AS s FROM tw.open_batch('swap loader', 'e1', '[{"table": "kept", "mode": "overwrite"}]') \gset
ALTER TABLE :s.kept_1 DROP CONSTRAINT kept_1_n_check;
BEGIN;
SELECT count(*) FROM tw.attach_task('swap loader', 'e1', '1');
INSERT INTO :s.kept VALUES (1, -5, 1);
SELECT tw.commit_task();
COMMIT;
ALTER TABLE :s.kept_1 ADD CONSTRAINT kept_1_n_check CHECK (n > 0) NOT VALID;
SELECT tw.publish('swap loader', 'e1');
SELECT tw.abort_batch('swap loader', 'e1');
SELECT schema AS s FROM tw.open_batch('swap loader', 'e2', '[{"table": "kept", "mode": "overwrite"}]') \gset
DROP INDEX :s.kept_1_day_u_idx;
BEGIN;
SELECT count(*) FROM tw.attach_task('swap loader', 'e2', '1');
INSERT INTO :s.kept VALUES (1, 1, 1), (1, 2, 1);
SELECT tw.commit_task();
COMMIT;
CREATE UNIQUE INDEX CONCURRENTLY ON :s.kept_1 (day, u);
SELECT tw.publish('swap loader', 'e2');
SELECT tw.abort_batch('swap loader', 'e2');
-- what is in order is swapped, whoever has made it
SELECT schema AS s FROM tw.open_batch('swap loader', 'e3', '[{"table": "kept", "mode": "overwrite"}]') \gset
DROP INDEX :s.kept_1_day_u_idx;
ALTER TABLE :s.kept_1 DROP CONSTRAINT kept_1_n_check;
BEGIN;
SELECT count(*) FROM tw.attach_task('swap loader', 'e3', '1');
INSERT INTO :s.kept VALUES (1, 1, 1), (1, 2, 2);
SELECT tw.commit_task();
COMMIT;
CREATE UNIQUE INDEX CONCURRENTLY ON :s.kept_1 (day, u);
ALTER TABLE :s.kept_1 ADD CONSTRAINT kept_1_n_check CHECK (n > 0);
SELECT operations -> 0 -> 'command' AS command FROM tw.publish('swap loader', 'e3');
RESET ROLE;
TABLE kept;

-- An exclusion is no other, nor an index
CREATE TABLE shut (day int, during int4range) PARTITION BY LIST (day);
CREATE TABLE shut_1 PARTITION OF shut FOR VALUES IN (1);
ALTER TABLE shut_1 ADD CONSTRAINT shut_1_excl EXCLUDE USING gist (during WITH &&);
CREATE FUNCTION exclude(batch text, instead text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	s text;
BEGIN
	s := (tw.open_batch('swap', batch, '[{"table": "shut", "mode": "overwrite"}]')).schema;
	EXECUTE format('ALTER TABLE %I.shut_1 DROP CONSTRAINT shut_1_during_excl; %s', s, format(instead, s));
	PERFORM tw.attach_task('swap', batch, 'one');
	EXECUTE format('INSERT INTO %I.shut VALUES (1, ''[1,5)''), (1, ''[4,6)'')', s);
	PERFORM tw.commit_task();
END $$;
SELECT exclude('f1', 'CREATE INDEX ON %I.shut_1 USING gist (during)');
SELECT tw.publish('swap', 'f1');
SELECT tw.abort_batch('swap', 'f1');
SELECT exclude('f2', 'ALTER TABLE %I.shut_1 ADD EXCLUDE USING gist (during WITH =)');
SELECT tw.publish('swap', 'f2');
SELECT tw.abort_batch('swap', 'f2');
TABLE shut;

RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA swap CASCADE;
SELECT tw.reassign_job('swap loader', current_user::regrole);
DROP OWNED BY swap_loader;
DROP ROLE swap_loader;
