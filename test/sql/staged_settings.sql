-- Staged batches: what is copied from a target stays the same value, whatever the settings of
-- the session that opens the batch.  In the style SQL a time in India has the abbreviation IST,
-- which is read as that of another country.
CREATE SCHEMA styles;
SET search_path = styles;
\set SHOW_CONTEXT never
CREATE TABLE t (
	at timestamptz NOT NULL,
	since timestamptz DEFAULT '2020-02-01 00:00+00'::timestamptz,
	weight float8 DEFAULT float8 '0.12345678901234566',
	age interval DEFAULT interval '-1 mons +2 days -03:00',
	CHECK (weight <> float8 '0.98765432109876543')
) PARTITION BY RANGE (at);
CREATE TABLE t_01 PARTITION OF t FOR VALUES FROM ('2026-01-01 00:00+00') TO ('2026-02-01 00:00+00');
CREATE TABLE k (id int, at timestamptz, v text);
CREATE UNIQUE INDEX ON k (id) WHERE at >= '2020-02-01 00:00+00'::timestamptz;
INSERT INTO k VALUES (1, '2020-02-01 01:00+00', 'old');

SET timezone = 'Asia/Kolkata';
SET datestyle = 'SQL, DMY';
SET intervalstyle = sql_standard;
SET extra_float_digits = -10;
SELECT status, schema AS s FROM tw.open_batch('styles', '1', '[{"table": "t", "mode": "overwrite"},
	{"table": "k", "mode": "merge", "key": ["id"]}]') \gset
SHOW datestyle;
SHOW intervalstyle;
SHOW extra_float_digits;
BEGIN;
SELECT count(*) FROM tw.attach_task('styles', '1', 'one');
-- half an hour before the end of the partition, and one hour into what the index covers
INSERT INTO :s.t VALUES ('2026-01-31 23:30+00');
INSERT INTO :s.k VALUES (1, '2020-02-01 01:00+00', 'new');
SELECT tw.commit_task();
COMMIT;
SELECT o ->> 'command' AS command, o ->> 'table' AS "table", o ->> 'rows' AS rows
FROM tw.publish('styles', '1'), jsonb_array_elements(operations) AS o ORDER BY 1;
SHOW datestyle;
RESET timezone;
RESET datestyle;
RESET intervalstyle;
RESET extra_float_digits;
SET timezone = 'UTC';
SET datestyle = ISO;
SET intervalstyle = postgres;
SET extra_float_digits = 1;
SELECT at, since, weight, age FROM t;
SELECT * FROM k;
RESET timezone;
RESET datestyle;
RESET intervalstyle;
RESET extra_float_digits;
-- where all tables are published, a task can change its rows all the same
SET client_min_messages = error;
CREATE PUBLICATION tw_test_all FOR ALL TABLES;
RESET client_min_messages;
CREATE TABLE plain (v text);
SELECT status, schema AS s FROM tw.open_batch('styles', '2', '[{"table": "plain", "mode": "append"},
	{"table": "t", "mode": "overwrite"}]', logged => true) \gset
BEGIN;
SELECT count(*) FROM tw.attach_task('styles', '2', 'one');
INSERT INTO :s.plain VALUES ('one'), ('two');
UPDATE :s.plain SET v = 'three' WHERE v = 'one';
INSERT INTO :s.t VALUES ('2026-01-31 23:30+00', NULL, 1), ('2026-01-31 23:30+00', NULL, 2);
DELETE FROM :s.t WHERE weight = 1;
SELECT tw.commit_task();
COMMIT;
SELECT status FROM tw.publish('styles', '2');
SELECT v FROM plain ORDER BY v;
SELECT weight FROM t;
DROP PUBLICATION tw_test_all;

-- an error in a guard says in which
\set SHOW_CONTEXT errors
SELECT tw.open_batch('styles', '3', '[{"table": "plain", "mode": "append"}]',
	guards => ARRAY['SELECT 1', 'WITH gone AS (DELETE FROM plain RETURNING v) SELECT * FROM gone']);
SELECT tw.open_batch('styles', '3', '[{"table": "plain", "mode": "append"}]', guards => ARRAY['SELECT absent FROM plain']);
SELECT tw.open_batch('styles', '3', '[{"table": "plain", "mode": "append"}]', guards => ARRAY['SELECT 1 / count(*) - 2 FROM plain WHERE false']);
SELECT tw.open_batch('styles', '3', '[{"table": "plain", "mode": "append"}]', guards => ARRAY['DELETE FROM plain']);
-- and one in what a target is given with is shown in that, not in a statement nobody has written
SELECT tw.open_batch('styles', '3', '[{"table": "k", "mode": "merge", "key": ["id"], "order_by": "v, absent DESC"}]');
SELECT tw.open_batch('styles', '3', '[{"table": "plain", "mode": "append"},
	{"table": "k", "mode": "merge", "key": ["id"], "delete_when": "id"}]');
SELECT tw.open_batch('styles', '3', '[{"table": "plain", "mode": "overwrite", "where": "true\n AND absent > 1"}]');
SELECT tw.open_batch('styles', '3', '[{"table": "plain", "mode": "overwrite", "where": "v = ''a'' and"}]');
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA styles CASCADE;
