-- The batches that row (e) asks for again, each committed by itself
SELECT format('SELECT 1 FROM tw.atomic(%L, %L, %L, %L)', :'transfer', '{"source": 1, "target": 2, "amount": 1}', 'replay', i)
FROM generate_series(1, 1000) AS i \gexec
SELECT format('SELECT hand_transfer(%L, %L, 1, 2, 1)', 'replay', i) FROM generate_series(1, 1000) AS i \gexec
