-- The SQL surface: every object, its signature, who may do what with it, what it promises the planner.
BEGIN;
SELECT no_plan();

SELECT has_schema('tw');
SELECT is((SELECT extversion FROM pg_extension WHERE extname = 'transactional_writer'),
	(SELECT default_version FROM pg_available_extensions WHERE name = 'transactional_writer'),
	'the version of the control file is installed');
SELECT ok(NOT extrelocatable, 'the extension stays where it is')
	FROM pg_extension WHERE extname = 'transactional_writer';

-- ---------- the outcome ----------
SELECT has_type('tw', 'outcome', 'tw.outcome exists');
SELECT is(
	(SELECT string_agg(format('%s %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
		FROM pg_attribute a WHERE a.attrelid = 'tw.outcome'::regclass AND NOT a.attisdropped),
	'status text, job text, batch_id text, epoch bigint, result jsonb, rows bigint, operations jsonb, '
	'attempts integer, xid xid8, started_at timestamp with time zone, finished_at timestamp with time zone',
	'columns of tw.outcome');

-- ---------- functions ----------
CREATE FUNCTION pg_temp.signature(p regproc) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s(%s) %s', p::text, pg_get_function_arguments(p), coalesce(pg_get_function_result(p), 'procedure'))
$$;
SELECT is(pg_temp.signature('tw.create_job'),
	'tw.create_job(job text, retention interval DEFAULT NULL::interval) void', 'tw.create_job');
SELECT is(pg_temp.signature('tw.begin_batch'),
	'tw.begin_batch(job text, batch_id text, fingerprint text DEFAULT NULL::text, epoch bigint DEFAULT NULL::bigint, '
	'version bigint DEFAULT NULL::bigint) tw.outcome', 'tw.begin_batch');
SELECT is(pg_temp.signature('tw.finish_batch'),
	'tw.finish_batch(result jsonb DEFAULT NULL::jsonb) tw.outcome', 'tw.finish_batch');
SELECT is(pg_temp.signature('tw.init_producer'),
	'tw.init_producer(job text, instance text DEFAULT NULL::text) bigint', 'tw.init_producer');
SELECT is(pg_temp.signature('tw.forget_batch'),
	'tw.forget_batch(job text, batch_id text, reason text) void', 'tw.forget_batch');
SELECT is(pg_temp.signature('tw.prune_ledger'),
	'tw.prune_ledger(job text, older_than interval) bigint', 'tw.prune_ledger');
SELECT is(pg_temp.signature('tw.reassign_job'),
	'tw.reassign_job(job text, owner regrole) void', 'tw.reassign_job');
SELECT is(pg_temp.signature('tw.commit_offset'),
	'tw.commit_offset(job text, source text, partition text, expected text, next text) void', 'tw.commit_offset');
SELECT is(pg_temp.signature('tw.offset'),
	'tw."offset"(job text, source text, partition text) text', 'tw.offset');
SELECT is(pg_temp.signature('tw.signal'),
	'tw.signal(sqlstate text, message text, detail text DEFAULT NULL::text, hint text DEFAULT NULL::text) void',
	'tw.signal');
SELECT is(pg_temp.signature('tw.signal_if'),
	'tw.signal_if(condition boolean, sqlstate text, message text, detail text DEFAULT NULL::text, '
	'hint text DEFAULT NULL::text) void', 'tw.signal_if');
SELECT is(pg_temp.signature('tw.atomic'),
	'tw.atomic(block text, params jsonb DEFAULT ''{}''::jsonb, job text DEFAULT NULL::text, '
	'batch_id text DEFAULT NULL::text, epoch bigint DEFAULT NULL::bigint, version bigint DEFAULT NULL::bigint, '
	'dry_run boolean DEFAULT false) tw.outcome', 'tw.atomic');
SELECT matches(pg_temp.signature('tw.run'),
	'^tw\.run\((IN )?block text, (IN )?params jsonb DEFAULT ''{}''::jsonb, (IN )?job text DEFAULT NULL::text, '
	'(IN )?batch_id text DEFAULT NULL::text, (IN )?epoch bigint DEFAULT NULL::bigint, '
	'(IN )?version bigint DEFAULT NULL::bigint, (IN )?conflicts text DEFAULT ''[a-z]+''::text, '
	'(IN )?max_attempts integer DEFAULT NULL::integer, '
	'INOUT status text DEFAULT NULL::text, INOUT result jsonb DEFAULT NULL::jsonb, '
	'INOUT rows bigint DEFAULT NULL::bigint, INOUT attempts integer DEFAULT NULL::integer\)', 'tw.run');
SELECT is(prokind, 'p'::"char", 'tw.run is a procedure') FROM pg_proc WHERE oid = 'tw.run'::regproc;

-- what runs in parallel or is folded away would lose its effect
SELECT is(p.provolatile, 'v'::"char", p.oid::regprocedure || ' is volatile')
	FROM pg_proc p WHERE p.pronamespace = 'tw'::regnamespace AND p.prokind = 'f' ORDER BY p.proname;
SELECT is(p.proparallel, CASE WHEN p.proname LIKE 'signal%' OR p.proname = 'publish_progress' THEN 's' ELSE 'u' END::"char",
		p.oid::regprocedure || CASE WHEN p.proname LIKE 'signal%' OR p.proname = 'publish_progress' THEN ' may' ELSE ' may not' END || ' run in parallel')
	FROM pg_proc p WHERE p.pronamespace = 'tw'::regnamespace ORDER BY p.proname;
-- nothing runs with more rights than its caller's: the C code reaches our tables by itself
SELECT is(count(*), 0::bigint, 'no function is SECURITY DEFINER')
	FROM pg_proc p WHERE p.pronamespace = 'tw'::regnamespace AND p.prosecdef;
SELECT is(count(*), 0::bigint, 'no function is LEAKPROOF')
	FROM pg_proc p WHERE p.pronamespace = 'tw'::regnamespace AND p.proleakproof;
-- a null argument is an error or a meaning, not a silent null
SELECT is(p.proisstrict, false, p.oid::regprocedure || ' is called with nulls')
	FROM pg_proc p WHERE p.pronamespace = 'tw'::regnamespace AND p.proname NOT LIKE 'psm%' ORDER BY p.proname;
SELECT ok(has_function_privilege('public', p.oid, 'EXECUTE'), 'anyone may call ' || p.oid::regprocedure)
	FROM pg_proc p WHERE p.pronamespace = 'tw'::regnamespace AND p.proname NOT LIKE 'psm%' ORDER BY p.proname;

-- ---------- tables and views ----------
SELECT has_table('tw', t, 'table tw.' || t)
	FROM unnest(ARRAY['job', 'batch', 'batch_outcome', 'failure', 'audit', 'source_offset']) AS t;
SELECT has_view('tw', v, 'view tw.' || v)
	FROM unnest(ARRAY['jobs', 'ledger', 'offsets', 'failures', 'audit_log']) AS v;
SELECT columns_are('tw', 'jobs',
	ARRAY['job', 'owner', 'epoch', 'instance', 'retention', 'pruned_version', 'created_at']);
SELECT columns_are('tw', 'ledger',
	ARRAY['job', 'batch_id', 'epoch', 'version', 'fingerprint', 'result', 'rows', 'operations', 'attempts', 'xid',
		'started_at', 'finished_at']);
SELECT columns_are('tw', 'offsets', ARRAY['job', 'source', 'partition', 'position', 'xid', 'moved_at']);
SELECT columns_are('tw', 'failures',
	ARRAY['job', 'batch_id', 'attempt', 'sqlstate', 'message', 'line', 'at', 'role', 'relation', 'kind']);
SELECT columns_are('tw', 'audit_log', ARRAY['at', 'role', 'action', 'job', 'batch_id', 'reason']);
SELECT col_is_pk('tw', 'job', 'job', 'key of tw.job');
SELECT col_is_pk('tw', 'batch', ARRAY['batch_id', 'job'], 'key of tw.batch');
SELECT col_is_pk('tw', 'batch_outcome', ARRAY['xid', 'job', 'batch_id'], 'key of tw.batch_outcome');
SELECT col_is_pk('tw', 'source_offset', ARRAY['job', 'source', 'partition'], 'key of tw.source_offset');
SELECT ok(c.relreplident = 'f' OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
		'deletes of tw.' || c.relname || ' can be replicated')
	FROM pg_class c WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'r' ORDER BY c.relname;
SELECT is(count(*), 0::bigint, 'no foreign key, trigger or rule on our tables')
	FROM pg_class c WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'r'
		AND (c.relhastriggers OR c.relhasrules OR c.relrowsecurity
			OR EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'f'));
SELECT is(a.attcollation::regcollation::text, '"C"', format('tw.%s.%s compares bytes', c.relname, a.attname))
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
	WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'r' AND a.attname IN ('job', 'batch_id', 'source', 'partition')
	ORDER BY c.relname, a.attname;
SELECT is(am.amname, 'heap', 'tw.' || c.relname || ' is a heap')
	FROM pg_class c JOIN pg_am am ON am.oid = c.relam
	WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'r' ORDER BY c.relname;

-- ---------- privileges ----------
SELECT ok(has_schema_privilege('public', 'tw', 'USAGE'), 'anyone may use schema tw');
SELECT ok(NOT has_schema_privilege('public', 'tw', 'CREATE'), 'nobody may create in schema tw');
SELECT ok(NOT has_table_privilege('public', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'),
		'nobody has rights on table tw.' || c.relname)
	FROM pg_class c WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'r' ORDER BY c.relname;
SELECT ok(has_table_privilege('public', c.oid, 'SELECT'), 'anyone may look at view tw.' || c.relname)
	FROM pg_class c WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'v' ORDER BY c.relname;
SELECT ok(NOT has_table_privilege('public', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'),
		'nobody may write through view tw.' || c.relname)
	FROM pg_class c WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'v' ORDER BY c.relname;
SELECT ok(c.reloptions @> ARRAY['security_barrier=true'], 'view tw.' || c.relname || ' is a security barrier')
	FROM pg_class c WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'v' ORDER BY c.relname;

-- ---------- dump and documentation ----------
SELECT ok(c.oid = ANY (e.extconfig), 'tw.' || c.relname || ' is dumped with its rows')
	FROM pg_class c, pg_extension e
	WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind = 'r' AND e.extname = 'transactional_writer'
	ORDER BY c.relname;
SELECT ok(obj_description(p.oid, 'pg_proc') IS NOT NULL, p.oid::regprocedure || ' has a comment')
	FROM pg_proc p WHERE p.pronamespace = 'tw'::regnamespace ORDER BY p.proname;
SELECT ok(obj_description(c.oid, 'pg_class') IS NOT NULL, 'tw.' || c.relname || ' has a comment')
	FROM pg_class c WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind IN ('r', 'v') ORDER BY c.relname;
SELECT ok(obj_description('tw'::regnamespace, 'pg_namespace') IS NOT NULL, 'schema tw has a comment');
SELECT ok(obj_description('tw.outcome'::regtype, 'pg_type') IS NOT NULL, 'type tw.outcome has a comment');
-- all of it belongs to the extension
SELECT is(count(*), 0::bigint, 'nothing in schema tw is outside the extension')
	FROM pg_class c WHERE c.relnamespace = 'tw'::regnamespace AND c.relkind IN ('r', 'v')
		AND NOT EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
			WHERE d.objid = c.oid AND d.deptype = 'e' AND e.extname = 'transactional_writer');

-- ---------- settings ----------
SELECT is(count(*), 0::bigint, 'every setting has a description')
	FROM pg_settings WHERE name LIKE 'transactional_writer.%' AND short_desc IS NULL;
SELECT is(boot_val, v, name)
	FROM (VALUES ('max_attempts', '5'), ('retry_backoff', '10'), ('claim_wait', 'on'), ('block_timeout', '0'),
		('history', 'on'), ('block_cache', '64')) AS expected (n, v)
	JOIN pg_settings ON name = 'transactional_writer.' || n ORDER BY name;

SELECT * FROM finish();
ROLLBACK;
