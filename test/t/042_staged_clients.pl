# A staged batch loaded by real clients in parallel, in Python (psycopg) and Node (pg),
# through a pooler in transaction mode, with workers killed at random and started again.
use strict;
use warnings;

use File::Basename;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use TransactionalWriter qw(:DEFAULT is_running pgbouncer start_pooler);

my ($python) = grep { -x && system("$_ -c 'import psycopg' 2>/dev/null") == 0 } map { "$_/python3" } split(/:/, $ENV{PATH}), '/usr/bin';
my $node_js = system(q(node -e 'require("pg")' >/dev/null 2>&1)) == 0;

plan skip_all => 'pgbouncer is not installed' if !pgbouncer();
plan skip_all => 'neither psycopg nor node-postgres is installed' if !$python && !$node_js;

my ($tasks, $rows) = (16, 2000);
my $node = new_server('main', 'fsync = off');
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $user = $node->safe_psql('postgres', 'SELECT current_user');
my $pooler = start_pooler($node, $dir);

$node->safe_psql('postgres', 'CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task int, n int, loader text)');

my @kinds = (
	$python ? [ $python, dirname(__FILE__) . '/stage_load.py', "host=$dir port=6432 dbname=postgres user=$user" ] : (),
	$node_js ? [ 'node', dirname(__FILE__) . '/stage_load.js', $dir, 6432, 'postgres', $user ] : ());
my $errors = '';
my $killed = 0;

sub worker
{
	my ($kind, $batch) = @_;

	return { kind => $kind, run => IPC::Run::start([ @{ $kinds[ $kind % @kinds ] }, 'clients', $batch, $tasks, $rows ],
		'<' => \undef, '>>' => \$errors, '2>>' => \$errors) };
}

foreach my $batch (1 .. 3)
{
	my $pool = "host=$dir port=6432 dbname=postgres user=$user";

	$node->command_ok([ 'psql', '-XqAt', '-d', $pool, '-c',
		qq(SELECT status FROM tw.open_batch('clients', '$batch', '[{"table": "t", "mode": "append"}]', $tasks)) ], "batch $batch opens");
	my @workers = map { worker($_, $batch) } 0 .. 3;

	for (1 .. 6)
	{
		usleep 100_000 + rand 200_000;
		my $i = int rand @workers;

		next if !is_running($workers[$i]{run});
		kill_client($workers[$i]{run});
		$workers[$i] = worker($workers[$i]{kind}, $batch);
		$killed++;
	}
	$_->{run}->finish foreach @workers;
	$node->command_like([ 'psql', '-XqAt', '-d', $pool, '-c', qq(SELECT status, rows FROM tw.publish('clients', '$batch')) ],
		qr/^applied\|@{[ $tasks * $rows ]}$/, 'and is published');
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT (task, n)), min(k), max(k)
			FROM (SELECT task, n, count(*) OVER (PARTITION BY task, n) AS k FROM t) x'),
		join('|', $batch * $tasks * $rows, $tasks * $rows, $batch, $batch), 'every row is there once');
}
cmp_ok($killed, '>', 0, "workers were killed while they ran ($killed)");
is($errors, '', 'no worker met an error');
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%')), '0', 'no staging is left');

kill_client($pooler);
$node->stop;
done_testing();
