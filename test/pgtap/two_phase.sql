-- The two-phase sink: what is there, who may do what, and its errors inside a transaction.
BEGIN;
SELECT no_plan();

CREATE FUNCTION pg_temp.signature(p regproc) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s(%s) %s', p::text, regexp_replace(pg_get_function_arguments(p), '\mIN ', '', 'g'),
		coalesce(pg_get_function_result(p), 'procedure'))
$$;
SELECT is(pg_temp.signature('tw.prepare_batch'), 'tw.prepare_batch(job text, batch_id text) text', 'tw.prepare_batch');
SELECT is(pg_temp.signature('tw.commit_prepared'),
	'tw.commit_prepared(gid text, INOUT status text DEFAULT NULL::text) procedure', 'tw.commit_prepared');
SELECT is(pg_temp.signature('tw.abort_prepared'),
	'tw.abort_prepared(gid text, reason text, INOUT status text DEFAULT NULL::text) procedure', 'tw.abort_prepared');
SELECT is(pg_temp.signature('tw.recover'),
	'tw.recover(job text, epoch bigint, commit text[] DEFAULT ''{}''::text[], '
	'INOUT committed integer DEFAULT NULL::integer, INOUT aborted integer DEFAULT NULL::integer) procedure', 'tw.recover');
SELECT is(prokind, 'p'::"char", proname || ' is a procedure')
	FROM pg_proc WHERE oid = ANY ('{tw.commit_prepared,tw.abort_prepared,tw.recover}'::regproc[]);
SELECT columns_are('tw', 'in_doubt',
	ARRAY['job', 'batch_id', 'owner', 'epoch', 'fenced', 'gid', 'xid', 'prepared_by', 'prepared_at', 'age', 'overdue']);
SELECT has_table('tw', 'prepared', 'table tw.prepared');
SELECT col_is_pk('tw', 'prepared', ARRAY['gid', 'number'], 'key of tw.prepared: a gid is of one transaction');
SELECT is(a.attcollation::regcollation::text, '"C"', 'gids are compared by bytes')
	FROM pg_attribute a WHERE a.attrelid = 'tw.prepared'::regclass AND a.attname = 'gid';
SELECT is(boot_val || unit, '600s', name) FROM pg_settings WHERE name = 'transactional_writer.prepared_timeout';
SELECT is(count(*), 0::bigint, 'nothing is in doubt') FROM tw.in_doubt;

-- procedures end transactions, so they do not run inside one, nor inside a function
SELECT throws_ok(format('CALL tw.%s', call), '2D000',
		format('tw.%s cannot run inside a transaction', split_part(call, '(', 1)))
	FROM unnest(ARRAY['commit_prepared(''gid'')', 'abort_prepared(''gid'', ''why'')', 'recover(''j'', 1)']) AS call;

-- tw.prepare_batch
SELECT throws_ok($$SELECT tw.prepare_batch(NULL, 'b')$$, '22023', 'job and batch_id must not be null');
SELECT throws_ok($$SELECT tw.prepare_batch('j', NULL)$$, '22023', 'job and batch_id must not be null');
SELECT throws_ok($$SELECT tw.prepare_batch('', 'b')$$, '22023', 'job of 0 bytes is out of range');
SELECT throws_ok($$SELECT tw.prepare_batch('j', repeat('x', 513))$$, '22023', 'batch_id of 513 bytes is out of range');
SELECT throws_ok($$SELECT tw.prepare_batch('j', 'b')$$, '42704', 'job "j" does not exist');
SELECT lives_ok($$SELECT tw.begin_batch('j', 'b')$$, 'a batch of a new job');
SELECT throws_ok($$SELECT tw.prepare_batch('j', 'b')$$, '55000',
	'cannot prepare a transaction that has created or changed job "j"');
SELECT throws_ok($$SELECT tw.prepare_batch('j', 'another')$$, '55000',
	'batch "another" of job "j" is not open in this transaction');
CREATE ROLE tw_pgtap_stranger;
GRANT USAGE ON SCHEMA public TO tw_pgtap_stranger;
SET LOCAL ROLE tw_pgtap_stranger;
SELECT throws_ok($$SELECT tw.prepare_batch('j', 'another')$$, '42501', 'permission denied for job "j"');
SELECT throws_ok('SELECT * FROM tw.prepared', '42501', 'permission denied for table prepared');
SELECT lives_ok('SELECT * FROM tw.in_doubt', 'anyone may look at tw.in_doubt');
RESET ROLE;
SET TRANSACTION READ ONLY;
SELECT throws_ok($$SELECT tw.prepare_batch('j', 'b')$$, '25006',
	'cannot execute tw.prepare_batch() in a read-only transaction');

SELECT * FROM finish();
ROLLBACK;
