# Staged batches at their limits: the disk is full while a task is copied into staging, and while
# a batch is published, in each mode; a thousand tasks make one batch.
use strict;
use warnings;

use SmallDisk;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = PostgreSQL::Test::Cluster->new('main');
my $dir = PostgreSQL::Test::Utils::tempdir();

$node->init;
$node->append_conf('postgresql.conf', "autovacuum = off\nfsync = off\nmax_connections = 20\nlog_min_messages = log\n");
my $disk = SmallDisk::possible() ? SmallDisk->new($node) : undef;
$node->start;

sub query { return $node->safe_psql('postgres', $_[0]); }

query(q(
	CREATE EXTENSION transactional_writer;
	CREATE TABLE log (n int, pad text);
	CREATE TABLE state (n int PRIMARY KEY, pad text);
	CREATE TABLE kept (n int PRIMARY KEY, pad text);
	CREATE TABLE part (n int, pad text);
	CREATE TABLE day (n int, pad text) PARTITION BY RANGE (n);
	CREATE TABLE day1 PARTITION OF day FOR VALUES FROM (0) TO (100000);
	INSERT INTO log SELECT n, 'old' FROM generate_series(1, 100) n;
	INSERT INTO state SELECT n, 'old' FROM generate_series(1, 100) n;
	INSERT INTO kept SELECT n, 'old' FROM generate_series(1, 100) n;
	INSERT INTO part SELECT n, 'old' FROM generate_series(1, 100) n;
	INSERT INTO day SELECT n, 'old' FROM generate_series(1, 100) n;
	SELECT tw.create_job('full')));

# ---------- the disk is full ----------

my $rows = 10000;
my %modes = (log => 'append', state => 'merge', kept => 'insert_new', part => 'overwrite', day => 'append');

foreach my $task (1, 2)
{
	append_to_file("$dir/rows$task", join '', map { "$_\t" . 'x' x 60 . "\n" } ($task - 1) * $rows + 1 .. $task * $rows);
}

# Loads a task by COPY from the client
sub task
{
	my ($table, $task) = @_;

	return "BEGIN;\nSELECT tw.attach_task('full', '$table', '$task') LIMIT 1;\n"
	  . "SELECT schema AS s FROM tw.staged_batches WHERE job = 'full' AND batch_id = '$table' \\gset\n"
	  . "\\set copy '\\\\copy ' :s '.$table FROM ''$dir/rows$task'''\n:copy\nSELECT tw.commit_task();\nCOMMIT;";
}

sub publish { return "BEGIN; SELECT tw.publish('full', '$_[0]'); SELECT tw.commit_offset('full', '$_[0]', '0', NULL, '1'); COMMIT;"; }

# What is in the table, in the ledger and as its offset
sub there
{
	my ($table) = @_;

	return query(qq(SELECT count(*), count(*) FILTER (WHERE pad = 'old'), count(DISTINCT n), (SELECT count(*) FROM tw.ledger WHERE batch_id = '$table'),
		coalesce(tw.offset('full', '$table', '0'), 'none') FROM $table));
}

my $staged = q(SELECT tasks, rows FROM tw.staged_batches WHERE job = 'full');

SKIP:
{
	skip 'no file system can be mounted in a user namespace here: nothing is known of a full disk', 8 * keys(%modes) + 3 if !$disk;

	foreach my $table (sort keys %modes)
	{
		query(qq(SELECT tw.open_batch('full', '$table', '[{"table": "$table", "mode": "$modes{$table}"}]', 2)));
		query(task($table, 1));
		$disk->fill(300);
		is(sqlstate($node, task($table, 2)), '53100', "$table: the disk is full in COPY into staging");
		is(query($staged), "1|$rows", "$table: nothing of that task is staged, all of the other is");
		$disk->free;
		is(sqlstate($node, task($table, 2)), '', "$table: the task is loaded again");

		$disk->fill(300);
		is(sqlstate($node, publish($table)), '53100', "$table: the disk is full in publish ($modes{$table})");
		is(there($table), '100|100|100|0|none', "$table: the table is as it was, and so are ledger and offset");
		is(query($staged), '2|' . 2 * $rows, "$table: and all stays staged");
		$disk->free;
		is(sqlstate($node, publish($table)), '', "$table: it is published when there is space");
		is(there($table), { append => '20100|100|20000|1|1', merge => '20000|0|20000|1|1', insert_new => '20000|100|20000|1|1',
			overwrite => '20000|0|20000|1|1' }->{ $modes{$table} }, "$table: and is there once, with ledger and offset");
	}

	# a batch without staging, of which the same holds
	my $direct = q(BEGIN; SELECT tw.begin_batch('full', 'direct'); SELECT tw.commit_offset('full', 'direct', '0', NULL, '1');
		INSERT INTO log SELECT n, 'direct' FROM generate_series(1, 100000) n; COMMIT;);
	$disk->fill(100);
	is(sqlstate($node, $direct), '53100', 'a direct batch finds the disk full');
	$disk->free;
	is(query(q(SELECT count(*), count(*) FILTER (WHERE pad = 'direct'), tw.offset('full', 'direct', '0') IS NULL FROM log)),
		'20100|0|t', 'and leaves nothing');
	is(sqlstate($node, $direct), '', 'until there is space');
}
is(query(q(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%')), '0', 'no staging is left');

# ---------- a thousand tasks ----------

query(q(TRUNCATE log, state;
	SELECT tw.open_batch('many', 'b', '[{"table": "log", "mode": "append"}, {"table": "state", "mode": "merge"}]', 1000)));
my $schema = query('SELECT schema FROM tw.staged_batches');
append_to_file("$dir/task.sql", <<"SQL");
\\set task :client_id * 125 + :n
\\set n :n + 1
BEGIN;
SELECT count(*) FROM tw.attach_task('many', 'b', :task::text);
INSERT INTO $schema.log SELECT g, :task FROM generate_series(1, 10) g;
INSERT INTO $schema.state VALUES (:task, :task);
SELECT tw.commit_task();
COMMIT;
SQL

sub tasks
{
	my ($clients, $each, $first, $name) = @_;

	command_ok([ 'pgbench', '-n', '-c', $clients, '-t', $each, '-D', "n=$first", '-f', "$dir/task.sql", $node->connstr('postgres') ], $name);
}

# all but the last of each client
tasks(8, 124, 0, 'tasks commit, eight at a time');
is(query('SELECT tasks, expected_tasks, rows FROM tw.staged_batches'), '992|1000|10912', '992 of a thousand tasks are there');
my (undef, undef, $error) = $node->psql('postgres', q(SELECT tw.publish('many', 'b')));
like($error, qr/992 of 1000 tasks are committed\. Missing: "124", "249", "374", "499", "624", "749", "874", /, 'and it is said which are not');
tasks(8, 1, 124, 'those are run');
is(query(q(SELECT status, rows, result FROM tw.publish('many', 'b'))), 'applied|11000|{"tasks": 1000}', 'a thousand tasks are published');
is(query(q(SELECT (SELECT count(*) || ' ' || count(DISTINCT (n, pad)) FROM log), (SELECT count(*) FROM state))), '10000 10000|1000', 'each is there once');

$node->stop;
is(join("\n", grep { /PANIC|TRAP:|was terminated by signal/ } split /\n/, slurp_file($node->logfile)), '', 'the server has not crashed');
done_testing();
