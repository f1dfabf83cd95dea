\set a random(1, 100000)
\set b random(1, 100000)
\set id random(1, 9223372036854775806)
\if :ready = 0
PREPARE move(int, numeric) AS UPDATE account SET balance = balance + $2 WHERE id = $1;
PREPARE log(int, int) AS INSERT INTO transfer VALUES ($1, $2, 1, now());
\set ready 1
\endif
BEGIN;
EXECUTE move(:a, -1);
EXECUTE move(:b, 1);
EXECUTE log(:a, :b);
PREPARE TRANSACTION 'bare :id';
COMMIT PREPARED 'bare :id';
