-- Money goes from one account to another, all or nothing
CREATE TABLE acct (id int PRIMARY KEY, bal numeric CHECK (bal >= 0));
CREATE TABLE log (msg text);
INSERT INTO acct VALUES (1, 500), (2, 125);
SELECT $block$BEGIN ATOMIC
	UPDATE acct SET bal = bal + :amount WHERE id = :to;
	INSERT INTO log VALUES (:amount || ' from ' || :from || ' to ' || :to);
	UPDATE acct SET bal = bal - :amount WHERE id = :from;
END$block$ AS transfer \gset
SELECT $block$BEGIN ATOMIC
	DECLARE available numeric;
	DECLARE overdrawn CONDITION FOR SQLSTATE '75001';
	SELECT bal INTO available FROM acct WHERE id = :from FOR UPDATE;
	IF available < :amount THEN
		SIGNAL overdrawn SET MESSAGE_TEXT = 'account ' || :from || ' has only ' || available;
	END IF;
	UPDATE acct SET bal = bal - :amount WHERE id = :from;
	UPDATE acct SET bal = bal + :amount WHERE id = :to;
	INSERT INTO log VALUES (:amount || ' from ' || :from || ' to ' || :to);
END$block$ AS checked \gset

SELECT status, rows, attempts FROM tw.atomic(:'transfer', '{"from": 1, "to": 2, "amount": 100}', 'transfers', '1');
SELECT * FROM acct ORDER BY id;
SELECT * FROM log;
-- 5000 back, the CHECK violated by the last statement: nothing has changed
SELECT tw.atomic(:'transfer', '{"from": 2, "to": 1, "amount": 5000}', 'transfers', '2');
\echo :SQLSTATE
SELECT * FROM acct ORDER BY id;
SELECT * FROM log;
-- the condition checked first
SELECT tw.atomic(:'checked', '{"from": 2, "to": 1, "amount": 5000}', 'transfers', '2');
\echo :SQLSTATE
SELECT * FROM acct ORDER BY id;
SELECT * FROM log;
SELECT status, rows FROM tw.atomic(:'checked', '{"from": 2, "to": 1, "amount": 25}', 'transfers', '2');
-- the same once more: a no-op, with the record of the first
SELECT status, rows FROM tw.atomic(:'checked', '{"from": 2, "to": 1, "amount": 25}', 'transfers', '2');
SELECT * FROM acct ORDER BY id;
SELECT * FROM log;
SELECT batch_id, rows FROM tw.ledger WHERE job = 'transfers' ORDER BY 1;
-- the key used for another transfer: an error, not a skip
SELECT tw.atomic(:'checked', '{"from": 2, "to": 1, "amount": 26}', 'transfers', '2');
\echo :SQLSTATE

DROP TABLE acct, log;
