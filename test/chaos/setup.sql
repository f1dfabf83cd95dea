-- What the operations of test/t/095_chaos.pl write, and a view of what must never be seen.
-- Rows carry the operation that they are of, and direct ones their transaction.
CREATE TABLE a (op int, n int, x xid8 DEFAULT pg_current_xact_id());
CREATE TABLE b (op int, n int, x xid8 DEFAULT pg_current_xact_id());
CREATE TABLE piece (op int, n int);
CREATE INDEX ON a (op);
CREATE INDEX ON b (op);
CREATE INDEX ON piece (op);

-- Money moves inside, from outside (no source) and to outside (no target).  Accounts from 10 on
-- are in pairs, which may not be overdrawn together.
CREATE TABLE account (id int PRIMARY KEY, pair int, settled int NOT NULL DEFAULT 100, balance int NOT NULL DEFAULT 100);
CREATE TABLE transfer (op int, source int, target int, amount int);
CREATE INDEX ON transfer (op);
INSERT INTO account SELECT id, id / 2 FROM generate_series(0, 13) id;

-- A source's lines, read by fives
CREATE TABLE line (job text, n int);

-- What was checked and taken away, so that looking at the rest stays quick: lines of a job, batches of a lane
CREATE TABLE settled (what text PRIMARY KEY, n int NOT NULL);
INSERT INTO settled VALUES ('lane1', 0), ('lane2', 0), ('lane3', 0), ('source1', 0), ('source2', 0), ('source3', 0);

-- Staged batches, in lanes: batch after batch
CREATE TABLE event (lane int, batch int, task int, n int, total int);
CREATE TABLE state (lane int, k int, batch int, gone bool NOT NULL, PRIMARY KEY (lane, k));
CREATE TABLE kept (lane int, k int, batch int, PRIMARY KEY (lane, k));
CREATE TABLE part (lane int, batch int, k int);
CREATE TABLE snap (batch int, k int) PARTITION BY RANGE (k);
CREATE TABLE snap1 PARTITION OF snap FOR VALUES FROM (0) TO (20);
CREATE TABLE snap2 PARTITION OF snap FOR VALUES FROM (20) TO (40);
CREATE INDEX ON event (lane, batch);

-- Three rows in a and in b; what is undone must not be there
CREATE PROCEDURE put(the_op int) LANGUAGE psm AS $$
BEGIN
	DECLARE i int DEFAULT 0;
	WHILE i < 3 DO
		SET i = i + 1;
		INSERT INTO a (op, n) VALUES (the_op, i);
	END WHILE;
	BEGIN ATOMIC
		DECLARE UNDO HANDLER FOR SQLSTATE '22012' INSERT INTO b (op, n) VALUES (the_op, 1);
		INSERT INTO b (op, n) VALUES (the_op, 99);
		SET i = i / (i - 3);
	END;
	INSERT INTO b (op, n) SELECT the_op, g FROM generate_series(2, 3) g;
END
$$;

-- Takes money out of an account as long as its pair has enough
CREATE PROCEDURE withdraw(the_op int, from_id int, the_amount int) LANGUAGE psm AS $$
BEGIN
	DECLARE available int;
	SELECT sum(balance) INTO available FROM account WHERE pair = from_id / 2;
	IF available < the_amount THEN
		SIGNAL SQLSTATE '45001' SET MESSAGE_TEXT = 'not enough';
	END IF;
	UPDATE account SET balance = balance - the_amount WHERE id = from_id;
	INSERT INTO transfer VALUES (the_op, from_id, NULL, the_amount);
END
$$;

CREATE FUNCTION since() RETURNS int LANGUAGE sql STABLE RETURN current_setting('chaos.since')::int;

-- One row for each operation since chaos.since: what is there of it, "a3 b3" for a batch
CREATE VIEW found AS
	SELECT op, string_agg(what || n, ' ' ORDER BY what) AS rows, count(DISTINCT x) AS transactions, max(x::text) AS x
	FROM (SELECT op, 'a' AS what, count(*) AS n, x FROM a WHERE op >= since() GROUP BY op, x
		UNION ALL SELECT op, 'b', count(*), x FROM b WHERE op >= since() GROUP BY op, x
		UNION ALL SELECT op, 'p', count(*), NULL FROM piece WHERE op >= since() GROUP BY op
		UNION ALL SELECT op, 't', count(*), NULL FROM transfer WHERE op >= since() GROUP BY op) r
	GROUP BY op;
CREATE VIEW known AS
	-- jobs two1 and two2 have one batch together
	SELECT substring(batch_id FROM 3 FOR 9)::int AS op,
		(count(*) FILTER (WHERE job NOT IN ('two1', 'two2')) + count(*) FILTER (WHERE job IN ('two1', 'two2')) / 2.0)::float AS batches, max(xid::text) AS x
	FROM tw.ledger WHERE batch_id >= 'op' || lpad(since()::text, 9, '0') COLLATE "C" AND batch_id < 'oq'
		-- which stands for all chunks, and comes before the first
		AND NOT (job = 'chunks' AND batch_id !~ '/')
	GROUP BY 1;

-- What a lane's position says that must be there, and what is
CREATE VIEW lane AS
	SELECT lane.n AS lane, coalesce(o.position::int, 0) AS position, (SELECT n FROM settled WHERE what = 'lane' || lane.n) AS settled, e.*, s.*, k.*, p.*, z.*, l.*
	FROM (VALUES (1), (2), (3)) lane (n)
		LEFT JOIN tw.offsets o ON o.job = 'lane' || lane.n,
		LATERAL (SELECT count(*) AS events, count(DISTINCT batch) AS event_batches,
				count(*) FILTER (WHERE wrong) AS events_wrong
			FROM (SELECT batch, total, count(*) OVER b <> total AS wrong FROM event WHERE event.lane = lane.n WINDOW b AS (PARTITION BY batch)) e) e,
		LATERAL (SELECT count(*) AS states, min(batch) AS state_first, max(batch) AS state_last, coalesce(bool_or(gone), false) AS state_gone
			FROM state WHERE state.lane = lane.n) s,
		LATERAL (SELECT count(*) AS keys, count(*) FILTER (WHERE batch <> greatest((k - 2) / 10, 1)) AS keys_wrong
			FROM kept WHERE kept.lane = lane.n) k,
		LATERAL (SELECT count(*) AS parts, min(batch) AS part_first, max(batch) AS part_last FROM part WHERE part.lane = lane.n) p,
		LATERAL (SELECT count(*) AS snaps, min(batch) AS snap_first, max(batch) AS snap_last FROM snap WHERE lane.n = 1) z,
		LATERAL (SELECT count(*) AS ledger FROM tw.ledger WHERE job = 'lane' || lane.n) l;

CREATE VIEW anomaly AS
	SELECT format('operation %s: %s, of %s transactions, %s in the ledger', coalesce(f.op, k.op), coalesce(f.rows, 'nothing'),
		f.transactions, coalesce(k.batches, 0)) AS anomaly
	FROM found f FULL JOIN known k USING (op)
	WHERE NOT coalesce(f.rows = 'a3 b3' AND f.transactions = 1 AND (k.batches = 1 AND k.x = f.x OR k.op IS NULL AND (SELECT count(*) > 0 FROM tw.jobs WHERE job = 'versions'
				AND pruned_version >= f.op))
			OR f.rows = 't1' AND k.batches = 1
			OR f.rows ~ '^p\d+$' AND k.batches = substring(f.rows FROM 2)::int / 5.0, false)
	UNION ALL
	SELECT format('accounts: %s with a wrong balance', count(*)) FROM account
		WHERE balance <> settled - (SELECT coalesce(sum(amount), 0) FROM transfer WHERE source = id)
			+ (SELECT coalesce(sum(amount), 0) FROM transfer WHERE target = id) HAVING count(*) > 0
	UNION ALL
	SELECT format('pair %s: overdrawn to %s', pair, sum(balance)) FROM account WHERE id >= 10 GROUP BY pair HAVING sum(balance) < 0
	UNION ALL
	SELECT format('source of %s: at %s, %s lines, %s different ones', job, position, lines, different)
	FROM (SELECT s.what AS job, s.n + count(l.n) AS lines, s.n + count(DISTINCT l.n) AS different
			FROM settled s LEFT JOIN line l ON l.job = s.what WHERE s.what ^@ 'source' GROUP BY s.what) n
		FULL JOIN (SELECT job, position::int FROM tw.offsets WHERE source = 'lines') o USING (job)
	WHERE (lines, different) IS DISTINCT FROM (coalesce(position, 0)::bigint, coalesce(position, 0)::bigint);
CREATE VIEW lane_anomaly AS
	SELECT 'lane ' || lane || ': ' || to_jsonb(lane) AS anomaly FROM lane
	WHERE position > 0 AND (event_batches, events_wrong, states, state_first, state_last, state_gone, keys, keys_wrong, parts, part_first, part_last, ledger)
			IS DISTINCT FROM (position::bigint - settled, 0::bigint, 41::bigint, position, position, false, position * 10 + 2::bigint, 0::bigint, 20::bigint, position, position, position::bigint)
		OR position > 0 AND lane = 1 AND (snaps, snap_first, snap_last) IS DISTINCT FROM (40::bigint, position, position)
		OR position = 0 AND events + states + keys + parts + ledger > 0;

-- Takes away what was checked, while nothing else runs
CREATE PROCEDURE settle() LANGUAGE sql AS $$
	DELETE FROM a;
	DELETE FROM b;
	DELETE FROM piece;
	UPDATE account SET settled = balance;
	DELETE FROM transfer;
	UPDATE settled SET n = n + (SELECT count(*) FROM line WHERE job = what) WHERE what ^@ 'source';
	DELETE FROM line;
	UPDATE settled SET n = position FROM lane WHERE what = 'lane' || lane;
	DELETE FROM event;
$$;
