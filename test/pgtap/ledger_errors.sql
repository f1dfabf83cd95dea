-- Every error that the ledger's functions can raise, by state and message.
BEGIN;
SELECT no_plan();

-- 22023: what was given is wrong
SELECT throws_ok($$SELECT tw.begin_batch('j', NULL)$$, '22023', 'job and batch_id must be given together');
SELECT throws_ok($$SELECT tw.begin_batch(NULL, 'b')$$, '22023', 'job and batch_id must be given together');
SELECT throws_ok($$SELECT tw.begin_batch(NULL, NULL)$$, '22023', 'job and batch_id must not be null');
SELECT throws_ok($$SELECT tw.begin_batch('', 'b')$$, '22023', 'job of 0 bytes is out of range');
SELECT throws_ok($$SELECT tw.begin_batch('j', '')$$, '22023', 'batch_id of 0 bytes is out of range');
SELECT throws_ok($$SELECT tw.begin_batch(repeat('j', 256), 'b')$$, '22023', 'job of 256 bytes is out of range');
SELECT throws_ok($$SELECT tw.begin_batch('j', repeat('b', 1000000))$$, '22023',
	'batch_id of 1000000 bytes is out of range');
SELECT throws_ok($$SELECT tw.begin_batch('j', 'b', '')$$, '22023', 'fingerprint of 0 bytes is out of range');
SELECT throws_ok($$SELECT tw.begin_batch('j', 'b', epoch => 7)$$, '22023',
	'epoch 7 of job "j" was never given out');
SELECT throws_ok($$SELECT tw.create_job(NULL)$$, '22023', 'job must not be null');
SELECT throws_ok($$SELECT tw.create_job('j', '-1s')$$, '22023', 'retention must not be negative');
SELECT throws_ok($$SELECT tw.init_producer(NULL)$$, '22023', 'job must not be null');
SELECT throws_ok($$SELECT tw.init_producer('j', '')$$, '22023', 'instance of 0 bytes is out of range');
SELECT throws_ok($$SELECT tw.forget_batch('j', 'b', '')$$, '22023', 'reason must not be null or empty');
SELECT throws_ok($$SELECT tw.forget_batch('j', NULL, 'r')$$, '22023', 'batch_id must not be null or empty');
SELECT throws_ok($$SELECT tw.prune_ledger(NULL, NULL)$$, '22023', 'older_than must not be null without a job');
SELECT throws_ok($$SELECT tw.commit_offset(NULL, 's', 'p', NULL, 'n')$$, '22023', 'job must not be null');
SELECT throws_ok($$SELECT tw.commit_offset('j', NULL, 'p', NULL, 'n')$$, '22023', 'source must not be null');
SELECT throws_ok($$SELECT tw.commit_offset('j', 's', NULL, NULL, 'n')$$, '22023', 'partition must not be null');
SELECT throws_ok($$SELECT tw.commit_offset('j', 's', 'p', NULL, NULL)$$, '22023', 'next must not be null');
SELECT throws_ok($$SELECT tw.commit_offset('j', repeat('s', 256), 'p', NULL, 'n')$$, '22023',
	'source of 256 bytes is out of range');
SELECT throws_ok($$SELECT tw.offset('j', 's', NULL)$$, '22023', 'partition must not be null');
SELECT throws_ok($$SELECT tw.reassign_job(NULL, NULL)$$, '22023', 'job and owner must not be null');
SELECT throws_ok($$SELECT tw.signal('00000', 'm')$$, '22023', 'invalid SQLSTATE "00000"');
SELECT throws_ok($$SELECT tw.signal(NULL, 'm')$$, '22004', 'SQLSTATE to signal must not be null');
SELECT throws_ok($$SELECT tw.signal('45000', NULL)$$, '22004', 'message to signal must not be null');
SELECT throws_ok($$SELECT tw.signal('75001', 'mine')$$, '75001', 'mine');
SELECT throws_ok($$SELECT tw.signal_if(true, '75001', 'mine')$$, '75001', 'mine');
SELECT lives_ok($$SELECT tw.signal_if(NULL, '75001', 'mine')$$, 'a null condition does not signal');
SELECT is(count(*), 0::bigint, 'no error has left a job') FROM tw.jobs WHERE job = 'j';

-- 42710, 42704
SELECT lives_ok($$SELECT tw.create_job('j')$$, 'a job');
SELECT throws_ok($$SELECT tw.create_job('j')$$, '42710', 'job "j" already exists');
SELECT throws_ok($$SELECT tw.forget_batch('nope', 'b', 'r')$$, '42704', 'job "nope" does not exist');
SELECT throws_ok($$SELECT tw.reassign_job('nope', current_user::regrole)$$, '42704', 'job "nope" does not exist');
SELECT throws_ok($$SELECT tw.prune_ledger('nope', '1s')$$, '42704', 'job "nope" does not exist');
SELECT throws_ok($$SELECT tw.prune_ledger('j', NULL)$$, '22023',
	'older_than must not be null for a job without retention');
SELECT throws_ok($$SELECT tw.prune_ledger('j', '-1s')$$, '22023', 'older_than must not be negative');

-- TW010, 55000, 55006, TW003
SELECT throws_ok($$SELECT tw.forget_batch('j', 'b', 'r')$$, 'TW010', 'batch "b" of job "j" is not in the ledger');
SELECT throws_ok($$SELECT tw.finish_batch()$$, '55000', 'no batch is open in this transaction');
SELECT is((tw.begin_batch('j', 'b', 'fp', version => 2)).status, 'started', 'a batch');
SELECT throws_ok($$SELECT tw.begin_batch('j', 'b', 'fp')$$, 'TW003',
	'batch "b" of job "j" is already claimed in this transaction');
SELECT throws_ok($$SELECT tw.forget_batch('j', 'b', 'r')$$, '55006',
	'cannot forget batch "b" of job "j" because this transaction has claimed it');
SELECT is((tw.finish_batch('[1, 2]')).result, '[1, 2]', 'its result');
SELECT throws_ok($$SELECT tw.finish_batch()$$, '55000', 'every batch of this transaction is already finished');

-- TW008
SELECT throws_ok($$SELECT tw.begin_batch('j', 'b1', version => 1)$$, 'TW008', 'version 1 of job "j" is out of order');
SELECT throws_ok($$SELECT tw.begin_batch('j', 'b2', version => 2)$$, 'TW008', 'version 2 of job "j" is out of order');

-- TW005
SELECT lives_ok($$SELECT tw.commit_offset('j', 's', 'p', NULL, '1')$$, 'an offset');
SELECT throws_ok($$SELECT tw.commit_offset('j', 's', 'p', '0', '2')$$, 'TW005',
	'offset of partition "p" of source "s" of job "j" is not where it was expected');

-- TW001
SELECT is(tw.init_producer('j'), 1::bigint, 'an epoch');
SELECT is(tw.init_producer('j'), 2::bigint, 'and the next');
SELECT throws_ok($$SELECT tw.begin_batch('j', 'b3', epoch => 1)$$, 'TW001',
	'epoch 1 of job "j" has been replaced by a newer writer');

-- 42501
CREATE ROLE tw_pgtap_stranger;
GRANT USAGE ON SCHEMA public TO tw_pgtap_stranger;
SET LOCAL ROLE tw_pgtap_stranger;
SELECT throws_ok($$SELECT tw.begin_batch('j', 'b')$$, '42501', 'permission denied for job "j"');
SELECT throws_ok($$SELECT tw.init_producer('j')$$, '42501', 'permission denied for job "j"');
SELECT throws_ok($$SELECT tw.forget_batch('j', 'b', 'r')$$, '42501', 'permission denied for job "j"');
SELECT throws_ok($$SELECT tw.prune_ledger('j', '1s')$$, '42501', 'permission denied for job "j"');
SELECT throws_ok($$SELECT tw.commit_offset('j', 's', 'p', '1', '2')$$, '42501', 'permission denied for job "j"');
SELECT throws_ok($$SELECT tw.offset('j', 's', 'p')$$, '42501', 'permission denied for job "j"');
SELECT throws_ok($$SELECT tw.reassign_job('j', current_user::regrole)$$, '42501', 'permission denied for job "j"');
SELECT is(count(*), 0::bigint, 'a stranger sees no offset') FROM tw.offsets;
SELECT is(count(*), 0::bigint, 'a stranger sees no job') FROM tw.jobs;
SELECT is(count(*), 0::bigint, 'a stranger sees no batch') FROM tw.ledger;
SELECT throws_ok('SELECT * FROM tw.' || t, '42501', 'permission denied for table ' || t)
	FROM unnest(ARRAY['job', 'batch', 'batch_outcome', 'failure', 'audit', 'source_offset']) AS t;
RESET ROLE;

-- 25006
SET TRANSACTION READ ONLY;
SELECT throws_ok($$SELECT tw.begin_batch('j', 'new')$$, '25006',
	'cannot execute batch claim in a read-only transaction');
SELECT throws_ok(format('SELECT tw.%s', call), '25006',
		format('cannot execute tw.%s() in a read-only transaction', split_part(call, '(', 1)))
	FROM unnest(ARRAY['create_job(''k'')', 'init_producer(''j'')', 'forget_batch(''j'', ''b'', ''r'')',
		'prune_ledger(''j'', ''1s'')', 'finish_batch()', 'commit_offset(''j'', ''s'', ''p'', ''1'', ''2'')',
		'reassign_job(''j'', current_user::regrole)']) AS call;

SELECT * FROM finish();
ROLLBACK;
