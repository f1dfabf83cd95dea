# Everything at once, at random, while everything fails: operations of every path in many
# sessions, and faults of sessions, server and machine.  A model outside of the server knows of
# every operation whether it was acknowledged, refused or neither, and compares that with
# what is there: what was acknowledged once, what was refused not at all, the rest whole or
# not, and the ledger, data and offsets agree.  A reader that looks all the time sees
# no part of a batch.
#
# TW_CHAOS_SECONDS is how long it runs, TW_CHAOS_SEED the seed of a run before, TW_CHAOS_FAULTS
# the faults to choose from, by name.
use strict;
use warnings;

use ChaosFaults;
use ChaosLanes;
use ChaosSessions;
use ChaosWork;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);
use TransactionalWriter;

my $seconds = $ENV{TW_CHAOS_SECONDS} || 30;
my $seed = $ENV{TW_CHAOS_SEED} || time ^ $$ << 8;
my $dir = "$FindBin::Bin/../chaos";

$seed = int $seed;
srand $seed;
diag "seed $seed, $seconds s: TW_CHAOS_SEED and TW_CHAOS_SECONDS give others";

# ---------- the server ----------

my $faults = ChaosFaults->new(source => $dir, dir => PostgreSQL::Test::Utils::tempdir());
my $node = $faults->new_server('main',
	'fsync = off', 'max_connections = 30', 'superuser_reserved_connections = 5', 'max_prepared_transactions = 60',
	'max_locks_per_transaction = 20', 'shared_buffers = 32MB', 'deadlock_timeout = 20ms', 'log_min_messages = log',
	'log_line_prefix = \'%m [%p] %q%u %e \'', 'log_statement = none', 'max_wal_senders = 4', 'wal_keep_size = 64MB',
	'client_min_messages = warning', "shared_preload_libraries = 'transactional_writer'",
	'transactional_writer.worker_interval = 1', 'autovacuum_naptime = 2s', 'statement_timeout = 20s',
	'transactional_writer.conflict_wait = 200ms');

$node->safe_psql('postgres', q(CREATE ROLE writer LOGIN; GRANT ALL ON SCHEMA public TO writer; GRANT CREATE ON DATABASE postgres TO writer));
$node->safe_psql('postgres', "SET ROLE writer;\n" . slurp_file("$dir/setup.sql"));
$node->safe_psql('postgres', "SELECT tw.create_job('$_', " . ($_ eq 'versions' ? "'1 hour'" : 'NULL') . ')', extra_params => [ '-U', 'writer' ])
  foreach qw(direct1 direct2 plain1 plain2 two1 two2 fenced versions source1 source2 source3 money chunks sink), map { "lane$_" } @ChaosLanes::lanes;

# ---------- the sessions ----------

my $work = ChaosWork->new;
my $lanes = ChaosLanes->new(work => $work, dir => PostgreSQL::Test::Utils::tempdir());
my $writers = ChaosSessions->new(connstr => $node->connstr('postgres') . ' user=writer', setup => '', count => 8,
	next => sub { return $lanes->next_op // $work->next_op });

# The readers: two of the server, and one of its standby while there is one
my ($checking, %polls, %seen) = (0);

sub new_readers
{
	my ($server, $count, $name) = @_;

	return ChaosSessions->new(connstr => $server->connstr('postgres'), setup => '', count => $count,
		next => sub {
			return undef if $checking;
			return {
				name => $name,
				steps => ["SET chaos.since = $work->{since};\nTABLE " . (($polls{$name} // 0) % 3 ? 'lane_anomaly' : 'anomaly') . ';'],
				done => sub {
					my ($op) = @_;

					$polls{$name}++ if $op->{outcome} eq 'acknowledged' || $op->{outcome} eq 'unknown';
					$seen{"$name: $_"}++ foreach @{ $op->{lines} };
				}
			};
		});
}

my @readers = (new_readers($node, 2, 'server'));

# Runs until the time, or until it is so
sub run_until
{
	my ($until, $so) = @_;

	while (time < $until)
	{
		$writers->turn(0.005);
		$_->turn(0) foreach @readers;
		return 1 if $so && $so->();
	}
	return 0;
}

# Lets everything that runs end, and compares
sub rest
{
	$work->{resting} = 1;
	$checking = 1;
	run_until(time + 90, sub { !$writers->busy && !grep { $_->busy } @readers }) or $work->wrong('operations hang: '
		  . join ', ', map { $_->{op}{name} } $writers->busy);
	$faults->wait_for_server;

	# what clients that were killed have left
	my $left = '';
	for (1 .. 300)
	{
		$left = $faults->query(q(SELECT count(*) FROM pg_stat_activity WHERE usename = 'writer' AND state <> 'idle'));
		last if $left eq '0';
		sleep 0.1;
	}
	$work->wrong("sessions of killed clients stay: $left") if $left ne '0';
	$work->check(sub { $faults->query($_[0]) });
	$lanes->check(sub { $faults->query($_[0]) });
	$work->{resting} = 0;
	$checking = 0;
}

# All go to another server
sub move_to
{
	my ($to) = @_;

	$writers->{connstr} = $to->connstr('postgres') . ' user=writer';
	$readers[0]{connstr} = $to->connstr('postgres');
	(pop @readers)->stop if @readers > 1;
}

# ---------- the run ----------

# Kinds of operations of which none was acknowledged
sub kinds_missing
{
	return grep { !$work->{outcomes}{$_}{acknowledged} } 'tw.atomic', 'dry run', 'tw.run', 'begin_batch', 'two batches', 'with an epoch', 'with a version',
	  'init_producer', 'forget_batch', 'prune_ledger', 'commit_offset', 'transfer', 'withdraw', 'deposit', 'run_chunks', 'prepare_batch', 'commit_prepared',
	  'open_batch', 'task', 'publish';
}

# A standby has its time in the middle, or each minute, and takes over soon.  On a slow machine
# it takes longer until enough has happened.
my ($end, $standbys) = (time + $seconds, 0);
my $next_standby = time + ($seconds < 60 ? $seconds / 2 : 30);
while (time < $end || time < $end + 9 * $seconds
	&& ($work->total('acknowledged') < 1000 || kinds_missing() || $faults->missing || !$standbys || !$polls{standby}))
{
	my $episode = time + 6;

	if (time > $next_standby)
	{
		$next_standby += 60;
		push @readers, new_readers($faults->new_standby('standby' . ++$standbys), 1, 'standby');
		$episode = time + 6;
	}
	while (time < $episode)
	{
		run_until(time + 0.05 + rand 0.3);
		$faults->strike($writers);
		move_to($faults->promote) if $faults->{standby} && $episode - time < 3;
	}
	# an episode in which something took too long
	move_to($faults->promote) if $faults->{standby};
	$faults->heal;
	rest();
}

# ---------- the end ----------

# All that is open is ended, by the means that there are for it
$work->{resting} = 1;
$lanes->{ending} = 1;
run_until(time + 60, sub { $lanes->at_end && !$writers->busy }) or push @{ $work->{wrong} }, 'staged batches do not end';
rest();
$work->{resting} = 1;
my $epoch = $faults->query(q(SET ROLE writer; SELECT tw.init_producer('sink')));
$faults->query("SET ROLE writer; CALL tw.recover('sink', $epoch)");
$faults->query('SELECT tw.expire_batches()');

$writers->stop;
$_->stop foreach @readers;
my ($all, @each) = $work->summary;
diag "operations: $all";
($ENV{TW_CHAOS_SECONDS} ? diag($_) : note($_)) foreach @each;
diag 'faults: ' . $faults->summary;
diag "left out: $_, because " . $faults->left_out->{$_} foreach sort keys %{ $faults->left_out };
diag $lanes->summary;
diag 'readers looked: ' . join ', ', map { "at the $_ $polls{$_} times" } sort keys %polls;

cmp_ok($work->total('acknowledged'), '>=', 1000, 'a thousand operations and more were acknowledged');
is_deeply([ kinds_missing() ], [], 'of each kind at least one');
is_deeply([ $faults->missing ], [], 'there was each fault that is possible here');
is($faults->{count}{promotion} // 0, $standbys, 'and a standby took over');
my @wrong = @{ $work->{wrong} };
diag "wrong: $_" foreach splice @{ $work->{wrong} }, 0, 20;
is(scalar @wrong, 0, 'what is there is what the model says, and no error is unexplained');
cmp_ok($polls{server}, '>', 20, 'readers looked');
cmp_ok($polls{standby}, '>', 0, 'and at the standby, too');
is_deeply(\%seen, {}, 'and they never saw a part of a batch');
is_deeply([ $faults->log_findings ], [], 'the server has not crashed by itself');
is($faults->query('SELECT count(*) FROM tw.in_doubt'), '0', 'nothing is in doubt');
is($faults->query('SELECT count(*) FROM pg_prepared_xacts'), '0', 'nor prepared');
is($faults->query(q(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%')), '0', 'no staging is left');
is($faults->query('SELECT (SELECT count(*) FROM tw.stage) + (SELECT count(*) FROM tw.stage_target)
	+ (SELECT count(*) FROM tw.stage_task) + (SELECT count(*) FROM tw.stage_alive) + (SELECT count(*) FROM tw.stage_leftover)'),
	'0', 'and nothing that says so');

done_testing();
