-- a job that claims with versions claims with increasing ones
SELECT status FROM tw.begin_batch('ver', 'b10', version => 10);
SELECT status FROM tw.begin_batch('ver', 'b20', version => 20);
-- in the ledger: a replay, whatever came after
SELECT status FROM tw.begin_batch('ver', 'b10', version => 10);
SELECT status FROM tw.begin_batch('ver', 'b20', version => 20);
SELECT status FROM tw.begin_batch('ver', 'b10');
-- not in the ledger, and at or below the highest: never a silent skip
SELECT tw.begin_batch('ver', 'b15', version => 15);
\echo :SQLSTATE
SELECT tw.begin_batch('ver', 'b20 again', version => 20);
SELECT tw.begin_batch('ver', 'b1', version => 1);
-- a restarted writer whose counter begins again meets its old keys
SELECT tw.begin_batch('ver', 'b20', version => 1);
\echo :SQLSTATE
SELECT tw.begin_batch('ver', 'b10', version => 30);
-- gaps are fine, and so are batches without a version
SELECT status FROM tw.begin_batch('ver', 'b100', version => 100);
SELECT status FROM tw.begin_batch('ver', 'no version');
SELECT status FROM tw.begin_batch('ver', 'no version', version => 5);
-- what was rolled back does not count
BEGIN;
SELECT status FROM tw.begin_batch('ver', 'b300', version => 300);
ROLLBACK;
SELECT status FROM tw.begin_batch('ver', 'b200', version => 200);
-- what this transaction has claimed does
BEGIN;
SELECT status FROM tw.begin_batch('ver', 'b400', version => 400);
SELECT tw.begin_batch('ver', 'b350', version => 350);
ROLLBACK;
-- other jobs have their own, also negative ones
SELECT status FROM tw.begin_batch('ver other', 'b', version => -5);
SELECT status FROM tw.begin_batch('ver other', 'c', version => -4);
SELECT tw.begin_batch('ver other', 'd', version => -4);
SELECT batch_id, version FROM tw.ledger WHERE job = 'ver' ORDER BY version, batch_id;

-- pruned: still known to be out of order
SELECT tw.prune_ledger('ver', '0');
SELECT count(*) FROM tw.ledger WHERE job = 'ver';
SELECT pruned_version FROM tw.jobs WHERE job = 'ver';
SELECT tw.begin_batch('ver', 'b200', version => 200);
\echo :SQLSTATE
SELECT tw.begin_batch('ver', 'b10', version => 10);
SELECT status FROM tw.begin_batch('ver', 'b201', version => 201);
-- also where a lower one is in the ledger again, because it was forgotten before
SELECT status FROM tw.begin_batch('ver pruned', 'b1', version => 1);
SELECT status FROM tw.begin_batch('ver pruned', 'b5', version => 5);
SELECT tw.forget_batch('ver pruned', 'b1', 'why');
SELECT tw.prune_ledger('ver pruned', '0');
SELECT status FROM tw.begin_batch('ver pruned', 'b1', version => 1);
SELECT tw.begin_batch('ver pruned', 'b3', version => 3);
-- without a version a pruned key counts as new
SELECT status FROM tw.begin_batch('ver', 'no version');
