\set a random(1, 100000)
\set b random(1, 100000)
\set id random(1, 9223372036854775806)
BEGIN;
UPDATE account SET balance = balance - 1 WHERE id = :a;
UPDATE account SET balance = balance + 1 WHERE id = :b;
INSERT INTO transfer VALUES (:a, :b, 1, now());
PREPARE TRANSACTION 'bare :id';
COMMIT PREPARED 'bare :id';
