-- what a job, a batch_id, a fingerprint and an instance may be
SELECT tw.begin_batch('limits', NULL);
\echo :SQLSTATE
SELECT tw.begin_batch(NULL, 'b');
\echo :SQLSTATE
SELECT tw.begin_batch(NULL, NULL);
\echo :SQLSTATE
SELECT tw.begin_batch('', 'b');
\echo :SQLSTATE
SELECT tw.begin_batch('limits', '');
\echo :SQLSTATE
SELECT tw.begin_batch(repeat('j', 256), 'b');
SELECT tw.begin_batch('limits', repeat('b', 513));
SELECT tw.begin_batch('limits', repeat('b', 1024 * 1024));
\echo :SQLSTATE
SELECT tw.begin_batch('limits', 'b', repeat('f', 513));
SELECT tw.begin_batch('limits', 'b', '');
-- bytes, not characters
SELECT tw.begin_batch(repeat('é', 128), 'b');
SELECT tw.begin_batch('limits', 'b', epoch => -1);
SELECT tw.create_job(NULL);
SELECT tw.create_job('');
SELECT tw.create_job(repeat('j', 256));
SELECT tw.create_job('limits', '-1 day');
\echo :SQLSTATE
SELECT tw.init_producer(NULL);
SELECT tw.init_producer('');
SELECT tw.init_producer('limits', '');
SELECT tw.init_producer('limits', repeat('i', 256));
SELECT tw.forget_batch('limits', NULL, 'why');
SELECT tw.forget_batch(NULL, 'b', 'why');
SELECT tw.forget_batch('limits', 'b', NULL);
SELECT tw.forget_batch('limits', 'b', '');
SELECT tw.prune_ledger(NULL, NULL);
-- nothing of that has made a job
SELECT count(*) FROM tw.jobs WHERE job LIKE 'limits%';

-- the longest that are allowed, together
SELECT status, length(job), length(batch_id) FROM
	tw.begin_batch(repeat('j', 255), repeat('b', 512), repeat('f', 512), version => 9223372036854775807);
SELECT status FROM
	tw.begin_batch(repeat('j', 255), repeat('b', 512), repeat('f', 512), version => 9223372036854775807);
SELECT status FROM tw.begin_batch(repeat('j', 255), repeat('b', 511) || 'c');
-- incompressible ones
SELECT status FROM tw.begin_batch(
	(SELECT substr(string_agg(md5(g::text), ''), 1, 255) FROM generate_series(1, 10) AS g),
	(SELECT substr(string_agg(md5(g::text), ''), 1, 512) FROM generate_series(11, 30) AS g),
	(SELECT substr(string_agg(md5(g::text), ''), 1, 512) FROM generate_series(31, 50) AS g));

-- any other text is as good as any
SELECT status FROM tw.begin_batch('limits "quoted" job', 'it''s; a "batch" -- $$ \ %s');
SELECT status, job, batch_id FROM tw.begin_batch('limits "quoted" job', 'it''s; a "batch" -- $$ \ %s');
SELECT status FROM tw.begin_batch('limits "quoted" job', ' ');
SELECT status FROM tw.begin_batch('limits "quoted" job', '  ');
SELECT status FROM tw.begin_batch('limits "quoted" job', 'Größe 数 🙂');
SELECT status FROM tw.begin_batch('limits "quoted" job', 'größe 数 🙂');
SELECT status FROM tw.begin_batch('limits "quoted" job', E'line\nbreak');
SELECT status FROM tw.begin_batch('limits "quoted" job', 'b', version => -9223372036854775808);
SELECT batch_id FROM tw.ledger WHERE job = 'limits "quoted" job' ORDER BY batch_id COLLATE "C";

-- CALL tw.run reports and records it, without the name
SELECT string_agg(md5(i::text), '') AS long_name FROM generate_series(1, 1000) AS i \gset
CALL tw.run('BEGIN ATOMIC END', job => :'long_name', batch_id => 'too long a job');
CALL tw.run('BEGIN ATOMIC END', job => 'limits', batch_id => repeat('b', 513));
SELECT job, batch_id, sqlstate, message FROM tw.failures WHERE message LIKE '% is out of range' ORDER BY message;

-- what an error repeats of a text: its beginning, and whole characters
SELECT tw.signal(repeat('é', 100), 'm');
SELECT tw.signal('x' || repeat('é', 100), 'm');
SELECT tw.signal(repeat('🙂', 1000), 'm');
SET client_min_messages = warning; -- PostgreSQL's scanner repeats a long name in a notice
SELECT tw.atomic('BEGIN ATOMIC SELECT :"' || repeat('p', 201) || '"; END');
-- and of one however long it is
CREATE TABLE limits_target (k text PRIMARY KEY, v int);
CREATE FUNCTION limits_lengths(command text, OUT state text, OUT message int, OUT detail int, OUT hint int)
LANGUAGE plpgsql AS $$
DECLARE
	m text;
	d text;
	h text;
BEGIN
	EXECUTE command USING repeat('ñ', 100000);
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
	state := SQLSTATE;
	message := octet_length(m);
	detail := octet_length(d);
	hint := octet_length(h);
END $$;
SELECT command, l.* FROM unnest(ARRAY[
	$$SELECT tw.create_job($1)$$,
	$$SELECT tw.begin_batch($1, '1')$$,
	$$SELECT tw.begin_batch('limits', $1)$$,
	$$SELECT tw.init_producer($1)$$,
	$$SELECT tw.forget_batch($1, '1', 'r')$$,
	$$SELECT tw.forget_batch('limits "quoted" job', $1, 'r')$$,
	$$SELECT tw.prune_ledger($1, '1 day')$$,
	$$SELECT tw.reassign_job($1, current_user::regrole)$$,
	$$SELECT tw.commit_offset('limits', 's', '0', $1, '1')$$,
	$$SELECT tw.commit_offset('limits', $1, '0', NULL, '1')$$,
	$$SELECT tw."offset"('limits', 's', $1)$$,
	$$SELECT tw.signal($1, 'm')$$,
	$$SELECT tw.signal_if(false, $1, 'm')$$,
	$$SELECT tw.track_reads($1)$$,
	$$SELECT tw.attach_task('limits "quoted" job', $1, 't')$$,
	$$SELECT tw.publish($1, 'b')$$,
	$$SELECT tw.abort_batch('limits "quoted" job', $1)$$,
	$$SELECT tw.open_batch('limits', 'o', jsonb_build_array(jsonb_build_object('table', 'limits_target', 'mode', $1)))$$,
	$$SELECT tw.open_batch('limits', 'o', jsonb_build_array(jsonb_build_object('table', 'limits_target', $1, 'append')))$$,
	$$SELECT tw.open_batch('limits', 'o', jsonb_build_array(jsonb_build_object('table', 'limits_target', 'mode', 'merge', 'key', 'k', 'delete_when', '''' || $1 || ''' LIMIT 1')))$$,
	$$SELECT tw.open_batch('limits', 'o', '[{"table": "limits_target", "mode": "append"}]', guards => ARRAY['ANALYZE limits_target -- ' || $1])$$,
	$$SELECT tw.atomic($1)$$,
	$$SELECT tw.atomic('BEGIN ATOMIC ''' || $1 || '''; END')$$,
	$$SELECT tw.atomic('BEGIN ATOMIC SIGNAL SQLSTATE ''' || $1 || '''; END')$$,
	$$SELECT tw.atomic('BEGIN ATOMIC SELECT :' || $1 || '; END')$$,
	$$SELECT tw.atomic('BEGIN ATOMIC DECLARE t text; GET DIAGNOSTICS CONDITION :c t = MESSAGE_TEXT; END', jsonb_build_object('c', $1))$$,
	$$SELECT tw.atomic('BEGIN ATOMIC END', job => $1, batch_id => '1')$$]) AS command,
	limits_lengths(command) AS l;
RESET client_min_messages;
SELECT schema FROM tw.open_batch('limits', 'keys', '[{"table": "limits_target", "mode": "merge"}]') \gset
BEGIN;
SELECT status FROM tw.attach_task('limits', 'keys', 't');
INSERT INTO :schema.limits_target SELECT repeat('k', 10000), g FROM generate_series(1, 2) AS g;
SELECT tw.commit_task();
COMMIT;
SELECT * FROM limits_lengths($$SELECT tw.publish('limits', 'keys')$$);
CALL tw.run('BEGIN ATOMIC END', conflicts => repeat('c', 1000));
SELECT tw.abort_batch('limits', 'keys') \g /dev/null
DROP TABLE limits_target;
