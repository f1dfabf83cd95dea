-- The batches that row (e) asks for again
SELECT count(*) FROM generate_series(1, 1000) AS i,
	tw.atomic(:'transfer', '{"source": 1, "target": 2, "amount": 1}', 'replay', i::text);
SELECT count(*) FROM generate_series(1, 1000) AS i, hand_transfer('replay', i::text, 1, 2, 1);
