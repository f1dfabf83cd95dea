# Staged batches and the server: unlogged staging after a crash, the background worker,
# the view of a running publish, many sessions that attach at once, a dump and a restore.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = new_server('main', 'fsync = off', 'max_connections = 60',
	"shared_preload_libraries = 'transactional_writer'", 'transactional_writer.worker_interval = 1');

sub query { return $node->safe_psql('postgres', $_[0]); }

# Loads one task: a row for each target
sub load
{
	my ($batch, $task) = @_;

	return query(qq(SELECT load('$batch', '$task')));
}

query(<<'SQL');
CREATE TABLE t (batch text, task text);
CREATE FUNCTION load(batch text, task text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	a record;
BEGIN
	SELECT * INTO a FROM tw.attach_task('staged', batch, task);
	IF a.status = 'attached' THEN
		EXECUTE format('INSERT INTO %s VALUES (%L, %L)', a.staging, batch, task);
		PERFORM tw.commit_task();
	END IF;
	RETURN a.status;
END $$;
SQL

my $open = q(SELECT status FROM tw.open_batch('staged', '%s', '[{"table": "t", "mode": "append"}]', %s));

# ---------- a crash ----------

foreach my $logged ('false', 'true')
{
	my $batch = "crash $logged";

	query(sprintf $open, $batch, "3, logged => $logged");
	load($batch, $_) foreach 0, 1;
	$node->stop('immediate');
	$node->start;
	load($batch, 2);
	my ($status, $out, $err) = $node->psql('postgres', "SELECT tw.publish('staged', '$batch')");

	if ($logged eq 'true')
	{
		is($status, 0, 'logged staging survives a crash');
	}
	else
	{
		is(sqlstate($node, "SELECT tw.publish('staged', '$batch')"), 'TW009', 'unlogged staging is lost in a crash');
		like($err, qr/Tasks to run again: "0", "1"\.$/m, 'and the tasks are named');
		is(load($batch, 0), 'attached', 'a task that was lost runs again');
		is(load($batch, 1), 'attached', 'and the other');
		is(load($batch, 2), 'already_committed', 'one that was not does not');
		is(query("SELECT status FROM tw.publish('staged', '$batch')"), 'applied', 'and the batch is published');
	}
	is(query("SELECT string_agg(task, ' ' ORDER BY task) FROM t WHERE batch = '$batch'"), '0 1 2', "every row is there once, logged $logged");
}

# ---------- the worker ----------

query(sprintf $open, 'old', q(1, timeout => '1 s'));
ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM tw.staged_batches)), 'the worker ends a batch past its timeout');
is(query(q(SELECT action || ' ' || role FROM tw.audit_log WHERE batch_id = 'old')), 'expire_batch postgres', 'and says so');
# what fails for one job does not keep the worker from the others
query(q(SELECT tw.create_job('beyond', '1 s'); UPDATE tw.job SET retention = '300000 years' WHERE job = 'beyond'));
query(q(SELECT tw.create_job('short', '1 s'); SELECT tw.begin_batch('short', 'b')));
ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM tw.ledger WHERE job = 'short')), 'the worker prunes a ledger');

# What a task that comes too late still uses goes when it is gone
query(sprintf $open, 'late', 'NULL');
my $late = background($node, q(BEGIN; SELECT load('late', '1'); SELECT pg_sleep(60)));
in_sleep($node);
# the task has called commit_task, so the publish would wait for it
kill_client($late);
is(query(q(SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE wait_event = 'PgSleep')), 't', 'the session of a dead client is ended');
is(query(q(SELECT rows FROM tw.publish('staged', 'late'))), '0', 'a task whose client died is not published');

$late = background($node, q(BEGIN; SELECT tw.attach_task('staged', 'b', '1'); SELECT 1));
$late->finish;
query(sprintf $open, 'b', 'NULL');
$late = background($node, q(BEGIN; DO $$ BEGIN EXECUTE (SELECT format('INSERT INTO %s VALUES (1, 1)', staging) FROM tw.attach_task('staged', 'b', '1')); END $$; SELECT pg_sleep(60)));
in_sleep($node);
is(query(q(SELECT status FROM tw.publish('staged', 'b'))), 'applied', 'publish does not wait for a task that loads');
is(query('SELECT count(*) FROM tw.stage_leftover'), '1', 'its staging stays while the task uses it');
query(q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'));
eval { $late->finish };
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM tw.stage_leftover'), 'the worker drops it afterwards');

# ---------- a swap ----------

# A partition was empty when a publish looked, and is not when it gets the lock
query(q(CREATE TABLE day (d int, v text) PARTITION BY LIST (d); CREATE TABLE day_1 PARTITION OF day FOR VALUES IN (1)));
query(q(SELECT tw.open_batch('staged', 'swapped', '[{"table": "day", "mode": "append"}]')));
query(q(DO $$BEGIN EXECUTE (SELECT format('INSERT INTO %s VALUES (1, ''staged'')', staging) FROM tw.attach_task('staged', 'swapped', '1')); PERFORM tw.commit_task(); END$$));
my $writer = background($node, q(BEGIN; LOCK TABLE day_1 IN ACCESS SHARE MODE;
	DO $$BEGIN WHILE NOT EXISTS (SELECT FROM tw.publish_progress WHERE phase = 'swap') LOOP PERFORM pg_sleep(0.001); END LOOP; PERFORM pg_sleep(0.1); END$$;
	INSERT INTO day VALUES (1, 'meanwhile'); COMMIT));
$node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_locks WHERE relation = 'day_1'::regclass AND pid <> pg_backend_pid())) or die 'nobody holds the partition';
is(query(q(SELECT status FROM tw.publish('staged', 'swapped'))), 'applied', 'a publish waits for a partition');
$writer->finish;
is(query(q(SELECT string_agg(v, ' ' ORDER BY v) FROM day)), 'meanwhile staged', 'and keeps the row that has come meanwhile');

# ---------- watching ----------

query('CREATE FUNCTION slow() RETURNS boolean LANGUAGE sql AS $$SELECT pg_sleep(60) IS NOT NULL$$');
query(sprintf $open, 'watched', 'NULL');
load('watched', 1);
my $driver = background($node, q(SELECT tw.publish('staged', 'watched', audit => 'BEGIN ATOMIC SELECT slow() FROM t; END')));
in_sleep($node);
is(query('SELECT job, batch_id, phase, rows FROM tw.publish_progress'), 'staged|watched|audit|0', 'a publish is seen by other sessions');
query('CREATE ROLE nobody');
is(query('SET ROLE nobody; SELECT count(*) FROM tw.publish_progress'), '0', 'but not by everybody');
query(q(SELECT pg_cancel_backend(pid) FROM tw.publish_progress));
eval { $driver->finish };
is(query('SELECT count(*) FROM tw.publish_progress'), '0', 'and not when it has ended');
is(query(q(SELECT status FROM tw.publish('staged', 'watched'))), 'applied', 'a publish that was cancelled can be made again');

# ---------- many ----------

query(sprintf $open, 'many', '1000');
PostgreSQL::Test::Utils::append_to_file(my $script = PostgreSQL::Test::Utils::tempdir() . '/many.sql', <<'SQL');
SELECT load('many', (n - 1)::text) FROM nextval('task') n WHERE n <= 1000;
SQL
query('CREATE SEQUENCE task');
$node->command_ok([ 'pgbench', '-n', '-c', 16, '-j', 2, '-t', 65, '-f', $script, 'postgres' ], 'sixteen sessions load a thousand tasks');
is(query(q(SELECT rows, result FROM tw.publish('staged', 'many'))), '1000|{"tasks": 1000}', 'and all of them are published');

# ---------- a dump ----------

query(sprintf $open, 'dumped', 'NULL, logged => true');
load('dumped', 1);
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ], 'an open batch is dumped');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
my ($restored, undef, $complaint) = $node->psql('restored', PostgreSQL::Test::Utils::slurp_file($dump), on_error_stop => 1);
is($complaint, '', 'and restored');
is($node->safe_psql('restored', q(SELECT status, rows FROM tw.publish('staged', 'dumped'))), 'applied|1', 'and published there');
is($node->safe_psql('restored', q(SELECT count(*) FROM t WHERE batch = 'dumped')), '1', 'with its rows');

# ---------- pg_upgrade ----------

# A server that pg_upgrade has started has no worker, which would be in its way
my $registered = qr/registering background worker "transactional_writer worker/;
$node->append_conf('postgresql.conf', 'log_min_messages = debug1');
foreach my $option ('', '-b')
{
	$node->stop;
	my $seen = -s $node->logfile;
	system_or_bail('pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, '-o', $option, 'start');
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $seen);

	if ($option eq '') { like($log, $registered, 'a server starts the worker'); }
	else { unlike($log, $registered, 'but not while pg_upgrade is at work'); }
	$node->_update_pid(1);
}

$node->stop;
done_testing();
