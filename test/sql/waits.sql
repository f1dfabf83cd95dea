-- What a session was waiting for when it gave up: the error says it.  The other side is a
-- transaction that is prepared, and so holds what it has.  Needs max_prepared_transactions.
CREATE TABLE waits (id int PRIMARY KEY);
SELECT tw.create_job('waits');
SET lock_timeout = '10ms';

-- a claim
BEGIN;
SELECT status FROM tw.begin_batch('waits', 'claim');
PREPARE TRANSACTION 'waits';
SELECT status FROM tw.begin_batch('waits', 'claim');
CALL tw.run('BEGIN ATOMIC END', job => 'waits', batch_id => 'claim');
SELECT tw.forget_batch('waits', 'claim', 'why not');
ROLLBACK PREPARED 'waits';

-- the move of an offset
BEGIN;
SELECT tw.commit_offset('waits', 's', 'p', NULL, '1');
PREPARE TRANSACTION 'waits';
SELECT tw.commit_offset('waits', 's', 'p', NULL, '1');
ROLLBACK PREPARED 'waits';

-- a staged batch, and a task of it
SELECT status FROM tw.open_batch('waits', 'staged', '[{"table": "waits", "mode": "append"}]');
BEGIN;
SELECT count(*) FROM tw.attach_task('waits', 'staged', 'one');
SELECT tw.commit_task();
PREPARE TRANSACTION 'waits';
SELECT status FROM tw.publish('waits', 'staged');
SELECT tw.abort_batch('waits', 'staged');
BEGIN;
SELECT status FROM tw.attach_task('waits', 'staged', 'one');
SELECT tw.commit_task();
ROLLBACK;
SET transactional_writer.claim_wait = off;
SELECT status FROM tw.publish('waits', 'staged');
BEGIN;
SELECT status FROM tw.attach_task('waits', 'staged', 'one');
\set VERBOSITY terse
SELECT tw.commit_task();
\set VERBOSITY default
ROLLBACK;
RESET transactional_writer.claim_wait;
ROLLBACK PREPARED 'waits';

-- the target of a publish
BEGIN;
LOCK TABLE waits IN SHARE MODE;
PREPARE TRANSACTION 'waits';
SELECT status FROM tw.publish('waits', 'staged');
ROLLBACK PREPARED 'waits';
RESET lock_timeout;
SELECT tw.abort_batch('waits', 'staged');
DROP TABLE waits;

-- the epoch, at the end of a batch
SELECT tw.init_producer('waits', 'one');
BEGIN;
SELECT tw.init_producer('waits', 'two');
PREPARE TRANSACTION 'waits';
SET lock_timeout = '10ms';
SELECT status FROM tw.begin_batch('waits', 'epoch', epoch => 1);
BEGIN;
SELECT status FROM tw.begin_batch('waits', 'epoch', epoch => 1);
PREPARE TRANSACTION 'epoch';
RESET lock_timeout;
ROLLBACK PREPARED 'waits';
BEGIN;
SELECT status FROM tw.begin_batch('waits', 'epoch', epoch => 1);
PREPARE TRANSACTION 'epoch';
ROLLBACK PREPARED 'epoch';
