-- tw.commit_offset and tw.offset: positions in sources, moved with the rows that were read
CREATE TABLE off_data (line text);
CREATE VIEW off_now AS
	SELECT source, partition, "position" FROM tw.offsets WHERE job = 'off' ORDER BY 1, 2;

-- none yet, also of a job that does not exist
SELECT tw.offset('off', 'orders', '0') IS NULL AS none;
SELECT count(*) FROM tw.jobs WHERE job = 'off';
-- the first move creates the job, as the first claim does
SELECT tw.commit_offset('off', 'orders', '0', NULL, '10');
SELECT tw.offset('off', 'orders', '0');
SELECT owner = current_user::regrole AS ours FROM tw.jobs WHERE job = 'off';
SELECT tw.commit_offset('off', 'orders', '0', '10', '20');
SELECT * FROM off_now;

-- anything else stored: both values are said
SELECT tw.commit_offset('off', 'orders', '0', '10', '20');
\echo :SQLSTATE
SELECT tw.commit_offset('off', 'orders', '0', NULL, '10');
\echo :SQLSTATE
SELECT tw.commit_offset('off', 'orders', '1', '5', '10');
\echo :SQLSTATE
SELECT tw.commit_offset('off', 'orders', '0', '20 ', '30');
SELECT tw.commit_offset('off', 'orders', '0', '020', '30');
SELECT * FROM off_now;

-- rows, batch and position commit together, or none does
BEGIN;
SELECT status FROM tw.begin_batch('off', 'rolled back');
INSERT INTO off_data VALUES ('21');
SELECT tw.commit_offset('off', 'orders', '0', '20', '30');
SELECT tw.offset('off', 'orders', '0');
ROLLBACK;
SELECT tw.offset('off', 'orders', '0'), (SELECT count(*) FROM off_data) AS rows;
BEGIN;
SELECT status FROM tw.begin_batch('off', 'committed');
INSERT INTO off_data VALUES ('21');
SELECT tw.commit_offset('off', 'orders', '0', '20', '30');
COMMIT;
SELECT tw.offset('off', 'orders', '0'), (SELECT count(*) FROM off_data) AS rows;
SELECT o.xid = l.xid AS same_transaction, o.moved_at >= l.started_at AS moved_after
	FROM tw.offsets o JOIN tw.ledger l USING (job) WHERE o.job = 'off' AND l.batch_id = 'committed';
-- a writer that was rewound: its batch has another name, but its rows stay out
BEGIN;
SELECT status FROM tw.begin_batch('off', 'rewound');
INSERT INTO off_data VALUES ('21');
SELECT tw.commit_offset('off', 'orders', '0', '20', '30');
\echo :SQLSTATE
COMMIT;
SELECT count(*) FROM off_data;
SELECT count(*) FROM tw.ledger WHERE job = 'off' AND batch_id = 'rewound';

-- in a block
SELECT status FROM tw.atomic('BEGIN ATOMIC
	INSERT INTO off_data VALUES (:line);
	SELECT tw.commit_offset(''off'', ''orders'', ''0'', :from, :to);
END', '{"line": "31", "from": "30", "to": "40"}', 'off', 'block');
SELECT tw.offset('off', 'orders', '0');
-- the error of a rewound block is not one that CALL tw.run tries again
CALL tw.run('BEGIN ATOMIC
	SELECT tw.commit_offset(''off'', ''orders'', ''0'', ''30'', ''40'');
END', '{}', 'off', 'block again');
\echo :SQLSTATE

-- several moves in one transaction follow each other
BEGIN;
SELECT tw.commit_offset('off', 'orders', '0', '40', '50');
SELECT tw.commit_offset('off', 'orders', '0', '50', '60');
SELECT tw.commit_offset('off', 'new', '0', NULL, 'a');
SELECT tw.commit_offset('off', 'new', '0', 'a', 'b');
COMMIT;
SELECT * FROM off_now;
-- also in one statement
SELECT tw.commit_offset('off', 'orders', '0', p::text, (p + 10)::text) FROM generate_series(60, 90, 10) AS p;
SELECT tw.offset('off', 'orders', '0');
-- the same move twice in one transaction is one too many
BEGIN;
SELECT tw.commit_offset('off', 'orders', '0', '100', '110');
SELECT tw.commit_offset('off', 'orders', '0', '100', '110');
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SELECT tw.commit_offset('off', 'twice', '0', NULL, '1');
SELECT tw.commit_offset('off', 'twice', '0', NULL, '1');
\echo :SQLSTATE
ROLLBACK;
-- a move to where it is already is a move
SELECT tw.commit_offset('off', 'orders', '0', '100', '100');

-- savepoints
BEGIN;
SAVEPOINT s;
SELECT tw.commit_offset('off', 'orders', '0', '100', '110');
SELECT tw.commit_offset('off', 'saved', '0', NULL, '1');
ROLLBACK TO s;
SELECT tw.offset('off', 'orders', '0'), tw.offset('off', 'saved', '0') IS NULL AS none;
SELECT tw.commit_offset('off', 'orders', '0', '100', '120');
SELECT tw.commit_offset('off', 'saved', '0', NULL, '2');
SAVEPOINT s2;
SELECT tw.commit_offset('off', 'orders', '0', '120', '130');
RELEASE s2;
COMMIT;
SELECT * FROM off_now;

-- the epoch is the batch's: a fenced writer's offsets do not move
SELECT tw.init_producer('off');
BEGIN;
SELECT status FROM tw.begin_batch('off', 'fenced', epoch => 1);
SELECT tw.commit_offset('off', 'orders', '0', '130', '140');
SELECT tw.init_producer('off');
COMMIT;
\echo :SQLSTATE
SELECT tw.offset('off', 'orders', '0');

-- at the higher isolation levels as well, with and without a snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT tw.commit_offset('off', 'orders', '0', '130', '140');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM off_now;
SELECT tw.commit_offset('off', 'orders', '0', '140', '150');
SELECT tw.commit_offset('off', 'orders', '0', '150', '160');
SELECT tw.offset('off', 'orders', '0');
COMMIT;

-- a position is any text, a large one as well
SELECT tw.commit_offset('off', 'names "q" ''s''', ' ', NULL, '{"file": "a''b\c", "at": 5}');
SELECT tw.offset('off', 'names "q" ''s''', ' ');
SELECT tw.commit_offset('off', 'large', '0', NULL, repeat('é', 32768));
SELECT octet_length(tw.offset('off', 'large', '0'));
SELECT tw.commit_offset('off', 'large', '0', repeat('é', 32768), s),
	tw.offset('off', 'large', '0') = s AS same
	FROM (SELECT substr(string_agg(md5(g::text), ''), 1, 65536) FROM generate_series(1, 2048) AS g) AS _ (s);
SELECT tw.commit_offset(repeat('j', 255), repeat('s', 255), repeat('p', 255), NULL, 'x');
SELECT tw.offset(repeat('j', 255), repeat('s', 255), repeat('p', 255));

-- bad input
SELECT tw.commit_offset(NULL, 's', '0', NULL, '1');
\echo :SQLSTATE
SELECT tw.commit_offset('off', NULL, '0', NULL, '1');
SELECT tw.commit_offset('off', 's', NULL, NULL, '1');
SELECT tw.commit_offset('off', 's', '0', NULL, NULL);
SELECT tw.commit_offset('off', '', '0', NULL, '1');
SELECT tw.commit_offset('off', 's', '', NULL, '1');
SELECT tw.commit_offset('off', 's', '0', NULL, '');
\echo :SQLSTATE
SELECT tw.commit_offset('', 's', '0', NULL, '1');
SELECT tw.commit_offset('off', repeat('s', 256), '0', NULL, '1');
SELECT tw.commit_offset('off', 's', repeat('p', 256), NULL, '1');
SELECT tw.commit_offset('off', 's', '0', NULL, repeat('x', 65537));
SELECT tw.commit_offset('off', 's', '0', '', '1');
SELECT tw.offset(NULL, 's', '0');
\echo :SQLSTATE
SELECT tw.offset('off', NULL, '0');
SELECT tw.offset('off', 's', NULL);
SELECT tw.offset('off', '', '0');
SELECT count(*) FROM tw.offsets WHERE job = 'off' AND source = 's';

-- where nothing may be written a position can still be read
BEGIN READ ONLY;
SELECT tw.offset('off', 'orders', '0');
SELECT tw.commit_offset('off', 'orders', '0', '160', '170');
\echo :SQLSTATE
ROLLBACK;

-- in a trigger
CREATE FUNCTION off_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tw.commit_offset('off', 'trigger', '0', OLD.line, NEW.line);
	RETURN NEW;
END $$;
CREATE TRIGGER move BEFORE UPDATE ON off_data FOR EACH ROW EXECUTE FUNCTION off_move();
SELECT tw.commit_offset('off', 'trigger', '0', NULL, '21');
UPDATE off_data SET line = '22' WHERE line = '21';
SELECT tw.offset('off', 'trigger', '0');

-- pruning leaves positions alone
SELECT tw.prune_ledger('off', '0') > 0 AS pruned;
SELECT tw.offset('off', 'orders', '0');

-- members only
CREATE ROLE tw_test_off_owner;
CREATE ROLE tw_test_off_member IN ROLE tw_test_off_owner;
CREATE ROLE tw_test_off_eve;
SET ROLE tw_test_off_owner;
SELECT tw.commit_offset('off theirs', 's', '0', NULL, 'secret');
SET ROLE tw_test_off_member;
SELECT tw.commit_offset('off theirs', 's', '0', 'secret', 'secret 2');
SELECT tw.offset('off theirs', 's', '0');
SELECT job, "position" FROM tw.offsets;
SET ROLE tw_test_off_eve;
SELECT tw.commit_offset('off theirs', 's', '0', 'guess', 'x');
\echo :SQLSTATE
SELECT tw.offset('off theirs', 's', '0');
\echo :SQLSTATE
SELECT count(*) FROM tw.offsets;
SELECT count(*) FROM tw.source_offset;
RESET ROLE;
SET client_min_messages = error;
DROP ROLE tw_test_off_owner, tw_test_off_member, tw_test_off_eve;
RESET client_min_messages;

-- an update in place: no dead index entries, one row a move
BEGIN;
CREATE TEMP TABLE off_before ON COMMIT DROP AS
	SELECT * FROM pg_stat_xact_all_tables WHERE schemaname = 'tw';
SELECT tw.commit_offset('off', 'orders', '0', '160', '170');
SELECT relname, n.n_tup_ins - b.n_tup_ins AS inserted, n.n_tup_upd - b.n_tup_upd AS updated
	FROM pg_stat_xact_all_tables n JOIN off_before b USING (relname)
	WHERE n.schemaname = 'tw' AND n.n_tup_ins + n.n_tup_upd > b.n_tup_ins + b.n_tup_upd ORDER BY relname;
COMMIT;

DROP VIEW off_now;
DROP TABLE off_data;
DROP FUNCTION off_move;
