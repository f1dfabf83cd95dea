-- What test/bench/peer needs for pgq: a queue of :batches batches with an event each, and the
-- consumers' side of the protocol in PL/pgSQL
CREATE EXTENSION pgq;

-- Ticks come from here, one after each event, instead of from its daemon
SELECT pgq.create_queue('transfers') \g /dev/null
SELECT pgq.set_queue_config('transfers', 'external_ticker', 'true') \g /dev/null
-- All batches stay for consumers that are set back
SELECT pgq.set_queue_config('transfers', 'rotation_period', '1 day') \g /dev/null

CREATE PROCEDURE produce(n int) LANGUAGE plpgsql AS $$
DECLARE
	event bigint;
BEGIN
	FOR i IN 1 .. n LOOP
		event := pgq.insert_event('transfers', 'transfer', i::text);
		COMMIT;
		PERFORM pgq.ticker('transfers', i + 1, clock_timestamp(), event);
		COMMIT;
	END LOOP;
END $$;
CALL produce(:batches);

-- Each client of a turn begins with the first batch
CREATE PROCEDURE rewind_consumers() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 0 .. 7 LOOP
		PERFORM pgq.unregister_consumer('transfers', 'consumer ' || i)
		FROM pgq.get_consumer_info('transfers', 'consumer ' || i);
		PERFORM pgq.register_consumer_at('transfers', 'consumer ' || i, 1);
	END LOOP;
END $$;

CREATE FUNCTION here_transfer(consumer text, from_id int, to_id int, how_much numeric) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	batch bigint := pgq.next_batch('transfers', consumer);
BEGIN
	IF batch IS NULL THEN
		RAISE EXCEPTION 'the queue has too few batches';
	END IF;
	UPDATE account SET balance = balance - how_much WHERE id = from_id;
	UPDATE account SET balance = balance + how_much WHERE id = to_id;
	INSERT INTO transfer VALUES (from_id, to_id, how_much, now());
	PERFORM pgq.finish_batch(batch);
	RETURN 'applied';
END $$;

-- In another database: the last batch of each consumer, set in the transaction that did it
CREATE TABLE consumer_done (
	consumer   text PRIMARY KEY,
	last_batch bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO consumer_done SELECT 'consumer ' || i, 0 FROM generate_series(0, 7) AS i;
INSERT INTO consumer_done VALUES ('replay', 7);

CREATE FUNCTION is_batch_done(the_consumer text, batch bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN EXISTS (SELECT FROM consumer_done WHERE consumer = the_consumer AND last_batch >= batch);
END $$;

CREATE FUNCTION set_batch_done(the_consumer text, batch bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE consumer_done SET last_batch = batch WHERE consumer = the_consumer;
	IF NOT FOUND THEN
		INSERT INTO consumer_done VALUES (the_consumer, batch);
	END IF;
END $$;

CREATE FUNCTION there_transfer(consumer text, batch bigint, from_id int, to_id int, how_much numeric) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF is_batch_done(consumer, batch) THEN
		RETURN 'already done';
	END IF;
	UPDATE account SET balance = balance - how_much WHERE id = from_id;
	UPDATE account SET balance = balance + how_much WHERE id = to_id;
	INSERT INTO transfer VALUES (from_id, to_id, how_much, now());
	PERFORM set_batch_done(consumer, batch);
	RETURN 'applied';
END $$;

VACUUM ANALYZE;
