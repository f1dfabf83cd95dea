\set a random(1, 100000)
\set b random(1, 100000)
\set id random(1, 9223372036854775806)
BEGIN;
INSERT INTO transfer SELECT :a, :b, i, now() FROM generate_series(1, 1000) AS i;
PREPARE TRANSACTION 'bare :id';
COMMIT PREPARED 'bare :id';
