-- Staged batches: what each mode does with each kind of table
CREATE SCHEMA modes;
SET search_path = modes;
\set SHOW_CONTEXT never

-- Opens batch b with one target, stages rows with a statement (S is the staging table), publishes
CREATE FUNCTION batch(batch text, target jsonb, load text) RETURNS TABLE (command text, rows int, staged int)
LANGUAGE plpgsql AS $$
DECLARE
	s text;
BEGIN
	PERFORM tw.open_batch('modes', batch, jsonb_build_array(target));
	SELECT a.staging INTO s FROM tw.attach_task('modes', batch, 'only') a;
	EXECUTE replace(load, '$S', s);
	PERFORM tw.commit_task();
	RETURN QUERY SELECT o ->> 'command', (o ->> 'rows')::int, (o ->> 'staged')::int
		FROM jsonb_array_elements((SELECT operations FROM tw.publish('modes', batch))) AS o;
END $$;

CREATE TABLE t (id int PRIMARY KEY, name text, n int DEFAULT 7);
INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3);

-- append
SELECT * FROM batch('append', '{"table": "t", "mode": "append"}', $$INSERT INTO $S (id, name) VALUES (4, 'four')$$);
TABLE t ORDER BY id;

-- insert_new: what is there stays
SELECT * FROM batch('new', '{"table": "t", "mode": "insert_new"}', $$INSERT INTO $S VALUES (1, 'ONE', 1), (5, 'five', 5)$$);
TABLE t ORDER BY id;

-- merge: no new version of a row that is the same
CREATE TEMP TABLE before AS SELECT id, ctid AS place FROM t;
SELECT * FROM batch('merge', '{"table": "t", "mode": "merge", "key": ["id"]}',
	$$INSERT INTO $S VALUES (1, 'one', 1), (2, 'TWO', 2), (6, 'six', NULL)$$);
SELECT t.*, place IS NOT DISTINCT FROM t.ctid AS same FROM t LEFT JOIN before USING (id) ORDER BY id;

-- merge with deletes; of the rows of a key the first
SELECT * FROM batch('merge2', '{"table": "t", "mode": "merge", "key": "id", "order_by": "n DESC -- newest", "delete_when": "name IS NULL -- gone"}',
	$$INSERT INTO $S VALUES (1, 'old', 1), (1, 'new', 2), (2, NULL, 2), (99, NULL, 1)$$);
TABLE t ORDER BY id;

-- overwrite a part: only what differs is touched
TRUNCATE before;
INSERT INTO before SELECT id, ctid FROM t;
SELECT * FROM batch('part', '{"table": "t", "mode": "overwrite", "where": "id > 3"}',
	$$INSERT INTO $S VALUES (5, 'five', 5), (6, 'SIX', 6), (7, 'seven', 7)$$);
SELECT t.*, place IS NOT DISTINCT FROM t.ctid AS same FROM t LEFT JOIN before USING (id) ORDER BY id;

-- overwrite everything; an empty batch is a batch
SELECT * FROM batch('all', '{"table": "t", "mode": "overwrite"}', $$INSERT INTO $S VALUES (1, 'uno', 1)$$);
TABLE t ORDER BY id;
SELECT * FROM batch('none', '{"table": "t", "mode": "overwrite"}', 'SELECT 1');
SELECT count(*) FROM t;

-- without a key
CREATE TABLE bag (day date, v int);
INSERT INTO bag VALUES ('2026-11-28', 1), ('2026-11-29', 2), ('2026-11-29', 2);
SELECT * FROM batch('bag', '{"table": "bag", "mode": "overwrite", "where": "day = ''2026-11-29''"}',
	$$INSERT INTO $S VALUES ('2026-11-29', 3), ('2026-11-29', 3)$$);
TABLE bag ORDER BY day, v;
SELECT * FROM batch('nowhere', '{"table": "bag", "mode": "overwrite", "where": "day = ''2026-11-29''"}',
	$$INSERT INTO $S VALUES (NULL, 4)$$);

-- Rows that cannot be published: the error names them, and all stays staged
SELECT * FROM batch('dup', '{"table": "t", "mode": "merge"}', $$INSERT INTO $S VALUES (1, 'a', 1), (1, 'b', 2)$$);
SELECT * FROM batch('dup', '{"table": "t", "mode": "insert_new"}', $$INSERT INTO $S VALUES (1, 'a', 1), (1, 'b', 2)$$);
SELECT * FROM batch('out', '{"table": "t", "mode": "overwrite", "where": "id > 3"}', $$INSERT INTO $S VALUES (1, 'a', 1)$$);
INSERT INTO t VALUES (1, 'below', 1);
DELETE FROM bag WHERE v = 3;
SELECT * FROM batch('out', '{"table": "t", "mode": "overwrite", "where": "n > 3"}', $$INSERT INTO $S VALUES (1, 'a', 4)$$);
CREATE UNIQUE INDEX ON bag (v, day);
SELECT * FROM batch('null', '{"table": "bag", "mode": "merge", "key": ["day", "v"]}', $$INSERT INTO $S VALUES (NULL, 1)$$);
SELECT * FROM batch('notnull', '{"table": "t", "mode": "append"}', $$INSERT INTO $S VALUES (NULL, 'a', 4)$$);
SELECT count(*) FROM tw.staged_batches;

-- A column for everything, dropped ones too; names that need quotes
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (a int, b text);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE "Odd ""Table""" (
	gone1 int,
	"Id" bigint GENERATED ALWAYS AS IDENTITY,
	"select" text COLLATE "C" NOT NULL,
	"tw.1" positive,
	gone2 text,
	tags text[] DEFAULT '{}',
	span int4range,
	p pair,
	m mood DEFAULT 'ok',
	doc json,
	amount numeric(8, 2),
	code varchar(3),
	s serial,
	"double Amount" numeric GENERATED ALWAYS AS (amount * 2) STORED,
	PRIMARY KEY ("select", "tw.1")
);
ALTER TABLE "Odd ""Table""" DROP COLUMN gone1, DROP COLUMN gone2;
INSERT INTO "Odd ""Table""" ("select", "tw.1", span, p, doc, amount) VALUES ('kept', 1, '[1,3)', '(1,x)', '{"a": 1}', 1.5);
SELECT * FROM batch('odd', '{"table": "\"Odd \"\"Table\"\"\"", "mode": "merge", "order_by": "\"tw.1\""}',
	$$INSERT INTO $S ("select", "tw.1", span, p, doc, amount) VALUES ('kept', 1, '[1,3)', '(1,x)', '{"a": 1}', 1.5),
		('new', 2, '[1,9]', '(2,y)', '{"a":1}', 3)$$);
SELECT * FROM batch('odd2', '{"table": "\"Odd \"\"Table\"\"\"", "mode": "merge"}',
	$$INSERT INTO $S ("select", "tw.1", span, p, doc, amount) VALUES ('kept', 1, '[1,3)', '(1,x)', '{"a":  1}', 1.5)$$);
TABLE "Odd ""Table""";
SELECT * FROM batch('odd3', '{"table": "\"Odd \"\"Table\"\"\"", "mode": "append"}',
	$$INSERT INTO $S ("Id", s, "select", "tw.1") VALUES (100, 200, 'numbered', 3)$$);
SELECT "Id", s FROM "Odd ""Table""" WHERE "tw.1" = 3;
SELECT * FROM batch('odd4', '{"table": "\"Odd \"\"Table\"\"\"", "mode": "append"}', $$INSERT INTO $S ("select", "tw.1") VALUES ('x', 0)$$);

-- What no task has numbered the target numbers; what it checks late is checked
CREATE TABLE numbered (id int GENERATED ALWAYS AS IDENTITY, v text);
SELECT * FROM batch('numbered', '{"table": "numbered", "mode": "append"}', $$INSERT INTO $S (v) VALUES ('a'), ('b')$$);
TABLE numbered;
-- but a key that is left out is none
CREATE TABLE number_key (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v text);
SELECT * FROM batch('number key', '{"table": "number_key", "mode": "merge", "order_by": "v"}', $$INSERT INTO $S (v) VALUES ('a'), ('b')$$);
SELECT * FROM batch('number key', '{"table": "number_key", "mode": "insert_new"}', $$INSERT INTO $S VALUES (1, 'a'), (2, 'b')$$);
TABLE number_key;
CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
SELECT * FROM batch('late', '{"table": "late", "mode": "append"}', 'INSERT INTO $S VALUES (1), (1)');

-- Keys that are expressions, partial, deferrable, of several columns in any order
CREATE TABLE person (id int GENERATED BY DEFAULT AS IDENTITY, email text, active boolean DEFAULT true, name text,
	a int, b int, UNIQUE (a, b) DEFERRABLE INITIALLY DEFERRED);
CREATE UNIQUE INDEX ON person (lower(email)) WHERE active;
INSERT INTO person (email, name, a, b) VALUES ('Ann@x', 'ann', 1, 1), ('bob@x', 'bob', 1, 2);
INSERT INTO person (email, name, active) VALUES ('ann@x', 'was ann', false);
SELECT * FROM batch('partial', '{"table": "person", "mode": "merge", "key": ["lower(email)"]}',
	$$INSERT INTO $S (email, name, active, a, b) VALUES ('ANN@X', 'Ann', true, 1, 1), ('ann@x', 'ex', false, NULL, NULL), ('Eve@x', 'eve', true, 2, 2)$$);
SELECT * FROM batch('deferrable', '{"table": "person", "mode": "merge", "key": ["b", "a"], "order_by": "name"}',
	$$INSERT INTO $S (email, name, active, a, b) VALUES ('bob@x', 'Bob', true, 1, 2), ('cat@x', 'cat', true, 3, 3), ('cat@x', 'dog', true, 3, 3)$$);
TABLE person ORDER BY id;

-- Partitions, of partitions
CREATE TABLE part (day date, region text, v int, PRIMARY KEY (day, region)) PARTITION BY RANGE (day);
CREATE TABLE part_11 PARTITION OF part FOR VALUES FROM ('2026-11-01') TO ('2026-12-01') PARTITION BY LIST (region);
CREATE TABLE part_11_eu (v int, region text NOT NULL, junk int, day date NOT NULL);
ALTER TABLE part_11_eu DROP COLUMN junk;
ALTER TABLE part_11 ATTACH PARTITION part_11_eu FOR VALUES IN ('eu');
CREATE TABLE part_11_other PARTITION OF part_11 DEFAULT;
CREATE TABLE part_12 PARTITION OF part FOR VALUES FROM ('2026-12-01') TO ('2027-01-01');
INSERT INTO part VALUES ('2026-11-01', 'eu', 1), ('2026-11-01', 'us', 2), ('2026-12-01', 'eu', 3);
SELECT * FROM batch('part1', '{"table": "part", "mode": "merge"}',
	$$INSERT INTO $S VALUES ('2026-11-01', 'eu', 10), ('2026-11-01', 'us', 2), ('2026-12-02', 'us', 4)$$);
SELECT * FROM batch('part2', '{"table": "part", "mode": "overwrite", "where": "region = ''us''"}',
	$$INSERT INTO $S VALUES ('2026-12-05', 'us', 5)$$);
SELECT tableoid::regclass, * FROM part ORDER BY day, region;
SELECT * FROM batch('part3', '{"table": "part", "mode": "append"}', $$INSERT INTO $S VALUES ('2030-12-05', 'us', 5)$$);
SELECT * FROM batch('part4', '{"table": "part_12", "mode": "overwrite"}', $$INSERT INTO $S VALUES ('2026-12-06', 'us', 6)$$);
SELECT tableoid::regclass, * FROM part ORDER BY day, region;

-- A bulk append: dropped columns, a partition by its own name, checks, values out of line
CREATE TABLE plain (gone int, a int CHECK (a > 0), gone2 int, b text, UNIQUE (a));
ALTER TABLE plain DROP COLUMN gone, DROP COLUMN gone2;
ALTER TABLE plain ALTER b SET STORAGE external;
SELECT * FROM batch('plain', '{"table": "plain", "mode": "append"}', $$INSERT INTO $S SELECT n, repeat(n::text, n) FROM generate_series(1, 5000, 100) n$$);
SELECT count(*), sum(a), sum(length(b)), max(length(b)) FROM plain;
SET enable_seqscan = off;
SELECT a, length(b) FROM plain WHERE a = 4901;
RESET enable_seqscan;
SELECT * FROM batch('plain2', '{"table": "plain", "mode": "append"}', $$INSERT INTO $S VALUES (2, 'x'), (-1, 'y')$$);
SELECT * FROM batch('plain2', '{"table": "plain", "mode": "append"}', $$INSERT INTO $S VALUES (2, 'x'), (1, 'y')$$);
SELECT * FROM batch('leaf', '{"table": "part_12", "mode": "append"}', $$INSERT INTO $S VALUES ('2026-12-07', 'us', 7)$$);
SELECT * FROM batch('leaf2', '{"table": "part_12", "mode": "append"}', $$INSERT INTO $S VALUES ('2027-12-07', 'us', 7)$$);
SELECT * FROM part_12 ORDER BY day;

-- Triggers, row security, foreign keys from and to, views: all as before
CREATE TABLE log (what text);
CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log VALUES (TG_OP || ' ' || coalesce(NEW.id, OLD.id));
	IF TG_OP <> 'DELETE' THEN
		NEW.name := coalesce(NEW.name, 'from trigger');
		RETURN NEW;
	END IF;
	RETURN OLD;
END $$;
CREATE TABLE parent (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent);
INSERT INTO parent VALUES (1, 'one'), (2, 'two');
INSERT INTO child VALUES (1, 1);
CREATE TRIGGER log BEFORE INSERT OR UPDATE OR DELETE ON parent FOR EACH ROW EXECUTE FUNCTION log();
CREATE VIEW names AS SELECT name FROM parent;
SELECT 'parent'::regclass::oid AS oid \gset
SELECT * FROM batch('parent', '{"table": "parent", "mode": "overwrite"}', $$INSERT INTO $S VALUES (1, 'eins'), (3, NULL)$$);
TABLE log;
TABLE names;
SELECT 'parent'::regclass::oid = :oid AS same_table;
SELECT * FROM batch('parent2', '{"table": "parent", "mode": "overwrite"}', $$INSERT INTO $S VALUES (3, NULL)$$);

-- Two tables that refer to each other, both overwritten, in the order parent, child
SELECT status FROM tw.open_batch('modes', 'both', '[{"table": "parent", "mode": "overwrite"}, {"table": "child", "mode": "overwrite"}]');
DO $$
BEGIN
	EXECUTE format('INSERT INTO %s VALUES (9, %L)', staging, 'nine') FROM tw.attach_task('modes', 'both', 't') WHERE target = 'parent'::regclass;
	EXECUTE format('INSERT INTO %s VALUES (1, 9)', staging) FROM tw.attach_task('modes', 'both', 't') WHERE target = 'child'::regclass;
	PERFORM tw.commit_task();
END $$;
SELECT status, rows FROM tw.publish('modes', 'both');
TABLE parent;
TABLE child;

-- Refused at open
CREATE VIEW v AS SELECT * FROM t;
CREATE TABLE ruled (a int);
CREATE RULE r AS ON INSERT TO ruled DO INSTEAD NOTHING;
CREATE TABLE keyless (a int);
CREATE TABLE empty ();
-- temporary tables have a schema by the session's number
CREATE TEMP TABLE tmp (a int);
\set open 'SELECT status FROM tw.open_batch(''modes'', ''refused'', '
:open '[{"table": "v", "mode": "append"}]');
:open '[{"table": "ruled", "mode": "append"}]');
\set VERBOSITY sqlstate
:open '[{"table": "tmp", "mode": "append"}]');
\set VERBOSITY default
:open '[{"table": "empty", "mode": "append"}]');
:open '[{"table": "pg_catalog.pg_class", "mode": "append"}]');
:open '[{"table": "tw.stage", "mode": "append"}]');
:open '[{"table": "nowhere", "mode": "append"}]');
:open '[{"table": "keyless", "mode": "merge"}]');
:open '[{"table": "keyless", "mode": "merge", "key": "a"}]');
:open '[{"table": "t", "mode": "merge", "key": ["id", "name"]}]');
:open '[{"table": "t", "mode": "merge", "key": "id + "}]');
:open '[{"table": "t", "mode": "merge", "key": "no_column"}]');
:open '[{"table": "person", "mode": "overwrite", "key": "lower(email)"}]');
-- messages that show the statement, with the schema of the batch
\set VERBOSITY sqlstate
:open '[{"table": "t", "mode": "merge", "order_by": "nothing"}]');
:open '[{"table": "t", "mode": "merge", "delete_when": "name"}]');
:open '[{"table": "t", "mode": "overwrite", "where": "sum(n) > 1"}]');
\set VERBOSITY default
:open '[{"table": "t", "mode": "merge", "order_by": "id LIMIT 1"}]');
:open '[{"table": "t", "mode": "merge", "delete_when": "true) OR (false"}]');
:open '[{"table": "t", "mode": "overwrite", "where": "n > 1; DROP TABLE t"}]');
:open '[{"table": "t", "mode": "overwrite", "key": "id", "delete_when": "true"}]');
:open '[{"table": "t", "mode": "append", "key": "id"}]');
:open '[{"table": "t", "mode": "append", "order_by": "id"}]');
:open '[{"table": "t", "mode": "merge", "where": "true"}]');
:open '[{"table": "t", "mode": "upsert"}]');
:open '[{"table": "t"}]');
:open '[{"mode": "append"}]');
:open '[{"table": "t", "mode": "append", "keys": "id"}]');
:open '[{"table": "t", "mode": "merge", "key": [1]}]');
:open '[{"table": "t", "mode": "merge", "key": []}]');
:open '["t"]');
:open '[]');
:open '{"table": "t", "mode": "append"}');
:open '[{"table": "t", "mode": "append"}, {"table": "modes.t", "mode": "merge"}]');
:open NULL);
SELECT count(*) FROM tw.staged_batches;
SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%';

RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA modes CASCADE;
RESET client_min_messages;
