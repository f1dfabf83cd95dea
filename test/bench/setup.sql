-- Tables and the hand-written rivals
CREATE EXTENSION transactional_writer;

CREATE TABLE account (
	id      int PRIMARY KEY,
	balance numeric NOT NULL CHECK (balance >= 0)
) WITH (fillfactor = 50);
INSERT INTO account SELECT i, 1000000000 FROM generate_series(1, 100000) AS i;

CREATE TABLE transfer (source int NOT NULL, target int NOT NULL, amount numeric NOT NULL, at timestamptz NOT NULL);

-- What a careful person would write without the extension: the key is claimed first, so
-- that a second run of the batch does nothing; the history says what each statement did,
-- and is written by one INSERT.
CREATE TABLE hand_ledger (
	job        text NOT NULL,
	batch_id   text NOT NULL,
	started_at timestamptz NOT NULL,
	xid        xid8 NOT NULL,
	PRIMARY KEY (job, batch_id)
);
CREATE TABLE hand_history (
	job        text NOT NULL,
	batch_id   text NOT NULL,
	line       int NOT NULL,
	command    text NOT NULL,
	"table"    text NOT NULL,
	rows       bigint NOT NULL,
	PRIMARY KEY (job, batch_id, line)
);

CREATE FUNCTION hand_transfer(the_job text, the_batch text, from_id int, to_id int, how_much numeric)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	debited  bigint;
	credited bigint;
	logged   bigint;
BEGIN
	INSERT INTO hand_ledger VALUES (the_job, the_batch, clock_timestamp(), pg_current_xact_id())
	ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		RETURN 'already_committed';
	END IF;
	UPDATE account SET balance = balance - how_much WHERE id = from_id;
	GET DIAGNOSTICS debited = ROW_COUNT;
	UPDATE account SET balance = balance + how_much WHERE id = to_id;
	GET DIAGNOSTICS credited = ROW_COUNT;
	INSERT INTO transfer VALUES (from_id, to_id, how_much, now());
	GET DIAGNOSTICS logged = ROW_COUNT;
	INSERT INTO hand_history VALUES
		(the_job, the_batch, 1, 'UPDATE', 'public.account', debited),
		(the_job, the_batch, 2, 'UPDATE', 'public.account', credited),
		(the_job, the_batch, 3, 'INSERT', 'public.transfer', logged);
	RETURN 'applied';
END $$;

-- Whose batches are prepared must exist before
SELECT tw.create_job('two-phase') \g /dev/null

CREATE FUNCTION bare_transfer(from_id int, to_id int, how_much numeric) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE account SET balance = balance - how_much WHERE id = from_id;
	UPDATE account SET balance = balance + how_much WHERE id = to_id;
	INSERT INTO transfer VALUES (from_id, to_id, how_much, now());
END $$;

CREATE FUNCTION plpgsql_loop() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	i bigint := 0;
BEGIN
	WHILE i < 1000000 LOOP
		i := i + 1;
	END LOOP;
	RETURN i;
END $$;
