# Random transactions on lists, in all modes and with all kinds of scans, and a proof of their
# history: see TwHistory.pm for what it looks for, test/history for what the transactions do.
#
# TW_HISTORY=1000000 runs a million transactions instead of 100,000.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;
use TwHistory;

my $total = $ENV{TW_HISTORY} || 100000;
my $dir = "$FindBin::Bin/../history";
my $clients = 8;

my $node = new_server('history', 'fsync = off', 'autovacuum_naptime = 1s', 'deadlock_timeout = 5ms', 'max_connections = 50',
	'log_min_messages = log');

# Plans that read by other scans
my %plans = (
	any => '',
	index => '-c enable_seqscan=off -c enable_bitmapscan=off',
	bitmap => '-c enable_seqscan=off -c enable_indexscan=off -c enable_indexonlyscan=off',
);

# What no isolation must allow: elements that vanish, come twice, or were never committed
my @always = ('duplicate', 'lost append', 'incompatible order', 'internal', 'G0', 'G1a', 'G1b', 'G1c');

# Runs scripts on a new history; each is [ file, clients, transactions ].  Returns the checked history.
sub history
{
	my ($database, $rows, $plans, $level, $mode, @scripts) = @_;
	my $first = 0;
	my @running;

	$node->safe_psql($database, 'DROP SCHEMA IF EXISTS h CASCADE');
	$node->safe_psql($database, slurp_file("$dir/setup.sql"));

	# mode row does not cover absent rows, so all are there from the start
	$node->safe_psql($database, 'INSERT INTO h.list SELECT k, k / h.lists() * h.lists() + k % 2, ARRAY[]::bigint[] '
		  . "FROM generate_series(0, $rows / h.turns() * h.lists() + 100) k") if $rows;
	local $ENV{PGOPTIONS} = "-c client_min_messages=warning $plans";
	foreach my $script (@scripts)
	{
		my ($file, $n, $transactions) = @$script;
		my $output = '';

		push @running,
		  [
			IPC::Run::start(
				[
					'pgbench', '-n', '-c', $n, '-j', 1, '-t', int($transactions / $n) || 1,
					'-D', "level=$level", '-D', "mode=$mode", '-D', "first=$first",
					'-f', "$dir/$file", $node->connstr($database)
				],
				'<' => \undef, '>' => \$output, '2>' => \$output),
			\$output, $file
		  ];
		$first += $n;
	}
	foreach my $run (@running)
	{
		$run->[0]->finish;
		diag(${ $run->[1] }) unless $run->[0]->result == 0;
		is($run->[0]->result, 0, "pgbench $run->[2]") unless $run->[0]->result == 0;
	}
	return TwHistory::check(
		[ split /\n/, $node->safe_psql($database, 'SELECT * FROM h.log') ],
		[ split /\n/, $node->safe_psql($database, q{SELECT k, array_to_string(v, ',') FROM h.list WHERE v <> '{}'}) ]);
}

sub summary
{
	my ($history) = @_;
	my $anomalies = join ', ', map { "$history->{anomaly}{$_} $_" } sort keys %{ $history->{anomaly} };

	return sprintf '%d committed, %d reads, %d appends: %s', scalar @{ $history->{txn} }, $history->{reads},
	  $history->{appends}, $anomalies || 'no anomaly';
}

# None of these anomalies, and enough has happened for that to mean something
sub clean
{
	my ($history, $name, $transactions, @classes) = @_;
	my @found = grep { $history->{anomaly}{$_} } @classes;

	note("$name: " . summary($history));
	ok(!@found, "$name: " . summary($history)) or diag(map { "$_: $history->{example}{$_}\n" } @found);
	cmp_ok(scalar @{ $history->{txn} }, '>', $transactions / 20, "$name: enough transactions have committed");
}

# ---------- the checker finds what PostgreSQL allows ----------

my $history = history('postgres', 0, $plans{any}, 'READ COMMITTED', 'none', [ 'untracked.sql', $clients, 2000 ]);

note('read committed: ' . summary($history));
ok($history->{anomaly}{'G-single'} && $history->{anomaly}{'lost update'},
	'READ COMMITTED without tracking: anomalies are found');
$history = history('postgres', 0, $plans{index}, 'REPEATABLE READ', 'none', [ 'untracked.sql', $clients, 4000 ]);
note('repeatable read: ' . summary($history));
ok($history->{anomaly}{G2}, 'REPEATABLE READ without tracking: write skew is found');
clean($history, 'REPEATABLE READ without tracking', 4000, @always, 'G-single', 'lost update');
$history = history('postgres', 0, $plans{index}, 'SERIALIZABLE', 'none', [ 'untracked.sql', $clients, 2000 ]);
clean($history, 'SERIALIZABLE without tracking', 2000, @always, 'G-single', 'lost update', 'G2');

# ---------- with tracking ----------

my $share = int($total / 12);

foreach my $plans (sort keys %plans)
{
	foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
	{
		my @all = keys %{ { map { $_ => 1 } @always, 'G-single', 'lost update', 'G2', 'real time' } };

		$history = history('postgres', 0, $plans{$plans}, $level, 'predicate', [ 'tracked.sql', $clients, $share ]);
		clean($history, "predicate, $level, plans: $plans", $share, @all);
	}
}
foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	$history = history('postgres', $share, $plans{any}, $level, 'row', [ 'tracked.sql', $clients, $share ]);
	clean($history, "row, $level", $share, @always, 'G-single', 'lost update');
	$history = history('postgres', 0, $plans{index}, $level, 'predicate',
		[ 'tracked.sql', $clients / 2, $share ], [ 'plain.sql', $clients / 2, $share ]);
	clean($history, "predicate, $level, half of the sessions plain", $share, @always, 'G-single', 'lost update', 'G2',
		'real time');
}

# ---------- a validator that is broken on purpose ----------

my $build = PostgreSQL::Test::Utils::tempdir();
my $source = "$FindBin::Bin/../..";

system_or_bail('cp', '-a', "$source/Makefile", "$source/transactional_writer.control", "$source/src", "$source/sql", $build);
# all of it anew, for this server: objects that lie about may be those of another one
system_or_bail('find', "$build/src", '-name', '*.o', '-delete');
system_or_bail('make', '-s', '-C', $build, 'with_llvm=no', 'PG_CONFIG=' . $node->config_data('--bindir') . '/pg_config',
	'PG_CPPFLAGS=-Isrc -DTW_VERSION=\"broken\" -DTW_BROKEN_VALIDATOR', 'all');
$node->safe_psql('postgres', 'CREATE DATABASE broken');
$node->safe_psql('broken', 'CREATE SCHEMA tw');
$node->safe_psql('broken',
	qq{CREATE FUNCTION tw.track_reads(text) RETURNS void LANGUAGE C AS '$build/transactional_writer.so', 'tw_track_reads'});

# With a longer way from the check to the end of the commit, on which a transaction is in progress
$node->append_conf('postgresql.conf', "fsync = on\ncommit_delay = 2000\ncommit_siblings = 1");
$node->reload;
$history = history('broken', 0, $plans{index}, 'REPEATABLE READ', 'predicate', [ 'tracked.sql', $clients, 20000 ]);
note('broken: ' . summary($history));
ok($history->{anomaly}{G2} || $history->{anomaly}{'G-single'},
	'a validator that ignores transactions in progress: anomalies are found');

$node->stop;
done_testing();
