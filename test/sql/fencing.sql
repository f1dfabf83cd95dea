-- tw.init_producer: a newer writer shuts the older one out
SELECT tw.init_producer('fence') AS first;
SELECT tw.init_producer('fence') AS second;
SELECT job, owner = current_user::regrole AS ours, epoch, instance FROM tw.jobs WHERE job = 'fence';

SELECT status, epoch FROM tw.begin_batch('fence', 'b2', epoch => 2);
SELECT status, epoch FROM tw.begin_batch('fence', 'b2', epoch => 2);
-- an older epoch: also for a batch that is in the ledger
SELECT tw.begin_batch('fence', 'b1', epoch => 1);
\echo :SQLSTATE
SELECT tw.begin_batch('fence', 'b2', epoch => 1);
SELECT tw.begin_batch('fence', 'b0', epoch => 0);
-- one that was never given out
SELECT tw.begin_batch('fence', 'b3', epoch => 3);
\echo :SQLSTATE
-- who passes none is not checked
SELECT status, epoch FROM tw.begin_batch('fence', 'no epoch');
-- a replay gives the epoch of the run that committed
SELECT tw.init_producer('fence');
SELECT status, epoch FROM tw.begin_batch('fence', 'b2', epoch => 3);

-- the same instance gets its epoch again, another the next
SELECT tw.init_producer('fence', 'host a');
SELECT tw.init_producer('fence', 'host a');
SELECT tw.init_producer('fence', 'host b');
SELECT tw.init_producer('fence', 'host a');
-- no instance never equals another
SELECT tw.init_producer('fence');
SELECT tw.init_producer('fence');
SELECT epoch, instance FROM tw.jobs WHERE job = 'fence';
SELECT tw.init_producer('fence', 'host a');

-- checked again at commit: replaced by this very transaction
BEGIN;
SELECT status FROM tw.begin_batch('fence', 'late', epoch => 9);
SELECT tw.init_producer('fence', 'host c');
COMMIT;
\echo :SQLSTATE
SELECT count(*) FROM tw.ledger WHERE job = 'fence' AND batch_id = 'late';
SELECT epoch, instance FROM tw.jobs WHERE job = 'fence';
-- a claim that was rolled back is not checked
BEGIN;
SAVEPOINT s;
SELECT status FROM tw.begin_batch('fence', 'late', epoch => 9);
ROLLBACK TO s;
SELECT tw.init_producer('fence', 'host c');
SELECT status FROM tw.begin_batch('fence', 'late', epoch => 10);
COMMIT;
SELECT epoch FROM tw.ledger WHERE job = 'fence' AND batch_id = 'late';

-- a job nobody has called init_producer for is at epoch 0
SELECT status FROM tw.begin_batch('fence new', 'b', epoch => 0);
SELECT tw.begin_batch('fence newer', 'b', epoch => 1);
SELECT count(*) FROM tw.jobs WHERE job = 'fence newer';

-- rolled back: the epoch was not given out
BEGIN;
SELECT tw.init_producer('fence new');
ROLLBACK;
SELECT status FROM tw.begin_batch('fence new', 'c', epoch => 0);
BEGIN READ ONLY;
SELECT tw.init_producer('fence new');
ROLLBACK;
