-- a key that was committed for something else
SELECT status FROM tw.begin_batch('fp', 'with', 'aaa');
SELECT status FROM tw.begin_batch('fp', 'without');

-- the same again
SELECT status FROM tw.begin_batch('fp', 'with', 'aaa');
-- another: nothing is done, whoever is right
SELECT tw.begin_batch('fp', 'with', 'bbb');
\echo :SQLSTATE
SELECT tw.begin_batch('fp', 'with', 'AAA');
-- compared only when both are there
SELECT status FROM tw.begin_batch('fp', 'with');
SELECT status FROM tw.begin_batch('fp', 'without', 'aaa');
SELECT status FROM tw.begin_batch('fp', 'without', 'bbb');

-- the same fingerprint under another key is another batch
SELECT status FROM tw.begin_batch('fp', 'other', 'aaa');
SELECT batch_id, fingerprint FROM tw.ledger WHERE job = 'fp' ORDER BY batch_id;

-- the error leaves the rest of the transaction to a savepoint
CREATE TABLE fp_data (v int);
BEGIN;
INSERT INTO fp_data VALUES (1);
SAVEPOINT s;
SELECT tw.begin_batch('fp', 'with', 'bbb');
ROLLBACK TO s;
SELECT status FROM tw.begin_batch('fp', 'new', 'bbb');
COMMIT;
SELECT count(*) FROM fp_data;
SELECT count(*) FROM tw.ledger WHERE job = 'fp';
DROP TABLE fp_data;

-- a block's own: white space around it does not count, white space in it does
SELECT status FROM tw.atomic('BEGIN ATOMIC RETURN 1; END', '{}', 'fp', 'block');
SELECT status FROM tw.atomic(E'\n\t BEGIN ATOMIC RETURN 1; END \n', '{}', 'fp', 'block');
SELECT status FROM tw.atomic('BEGIN ATOMIC RETURN  1; END', '{}', 'fp', 'block');
\echo :SQLSTATE
