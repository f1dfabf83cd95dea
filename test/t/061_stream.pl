# A consumer of Kafka (test/clients/consume.py) that writes rows and moves its positions in one
# commit, on real partitions: librdkafka has a broker built in.  It is killed at random, with
# the server's processes and the server itself, and started again; then two share the partitions
# in a group, are killed, and stopped until they count as dead.  At any time as many messages are
# in the tables as the positions say, and in the end each is there exactly once: that is worked out
# from what the broker has acknowledged, not from what the consumer says.
#
# TW_KILL_ROUNDS is how often it is killed in the first part.
use strict;
use warnings;

use Documentation qw(missing client_path);
use File::Basename;
use File::Copy;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use TransactionalWriter qw(:DEFAULT is_running);

my $rounds = $ENV{TW_KILL_ROUNDS} || 25;
my $dir = PostgreSQL::Test::Utils::tempdir_short();

mkdir "$dir/bin";
$ENV{PATH} = client_path("$dir/bin");
my $missing = missing('psycopg,kafka');
plan skip_all => "$missing is not installed" if defined $missing;
copy($_, $dir) or die "$_: $!" foreach glob(dirname(__FILE__) . '/../clients/*');

my $node = new_server('main', 'fsync = off', 'log_min_messages = fatal', 'max_connections = 40');
my %said;						# how often the consumers said what

($ENV{PGHOST}, $ENV{PGPORT}, $ENV{PGUSER}) = ($node->host, $node->port, $node->safe_psql('postgres', 'SELECT current_user'));
$node->safe_psql('postgres', 'CREATE DATABASE empty');
$node->safe_psql('empty', 'CREATE EXTENSION transactional_writer');
$node->safe_psql('empty', slurp_file("$dir/payments.sql"));

# A broker with so many messages; the database that they are for gets its name from the topic
sub new_broker
{
	my ($topic, $messages) = @_;
	my $broker = { address => '', topic => $topic };

	$node->safe_psql('postgres', qq(CREATE DATABASE "$topic" TEMPLATE empty));
	$ENV{PGDATABASE} = $topic;
	$broker->{run} = IPC::Run::start([ 'python3', 'mock_broker.py', $topic, $messages ],
		'<' => \undef, '>' => \$broker->{address}, '2>' => "$dir/broker.err", init => sub { chdir $dir or die $! }, IPC::Run::timeout(600));
	$broker->{run}->pump until $broker->{address} =~ /\n/;
	chomp $broker->{address};
	$broker->{sent} = [ map { chomp; [ split /\t/ ] } split(/^/, slurp_file("$dir/sent.txt")) ];
	is(scalar @{ $broker->{sent} }, $messages, "$topic: the broker has $messages messages");
	return $broker;
}

sub start
{
	my ($broker, $program, @options) = @_;
	my $consumer = { out => "$dir/out." . ++$said{programs} };

	$consumer->{run} = IPC::Run::start(
		[ 'python3', "$program.py", $broker->{topic}, @options, "bootstrap.servers=$broker->{address}", 'session.timeout.ms=6000', 'log_level=2' ],
		'<' => \undef, '>' => $consumer->{out}, '2>' => "$consumer->{out}.err", init => sub { chdir $dir or die $! });
	$consumer->{pid} = $consumer->{run}{KIDS}[0]{PID};
	return $consumer;
}

# Waits for one to end, or kills it; counts what it said.  Returns its errors.
sub finish
{
	my ($consumer, $kill) = @_;

	kill 'KILL', $consumer->{pid} if $kill;
	$consumer->{run}->finish;
	$said{$_}++ foreach slurp_file($consumer->{out}) =~ /^(once more|replaced|rejected|opened|taken_over)\b/mg;
	return slurp_file("$consumer->{out}.err");
}

# In one snapshot, whatever is going on: as many messages are written as the positions say.
# Returns '' or what is wrong, and how many.
sub agrees
{
	my ($broker) = @_;
	my ($written, $positions) = split /\|/, $node->safe_psql($broker->{topic}, q(
		SELECT (SELECT count(*) FROM payment) + (SELECT count(*) FROM rejected),
			(SELECT coalesce(sum(position::int), 0) FROM tw.offsets WHERE job NOT LIKE 'backfill%')));

	return ($written == $positions ? '' : "$written messages written, the positions say $positions\n", $written);
}

# All messages once: '' or what is wrong
sub verdict
{
	my ($broker) = @_;
	my (@ids, @rejected, %balance);
	my ($wrong) = agrees($broker);

	foreach (@{ $broker->{sent} })
	{
		my ($partition, $offset, $message) = @$_;

		if ($message =~ /^\{"id": (\d+), "account": "([^"]*)", "amount": ([1-9]\d*)\}$/)
		{
			push @ids, $1;
			$balance{$2} += $3;
		}
		else
		{
			push @rejected, "$partition/$offset $message";
		}
	}
	my %want = (
		payments => [ 'SELECT id FROM payment', sort { $a <=> $b } @ids ],
		fees => [ q(SELECT id FROM payment WHERE fee <> amount * (SELECT percent FROM fee) / 100) ],
		balances => [ q(SELECT name || ' ' || balance FROM account), map { "$_ $balance{$_}" } sort keys %balance ],
		rejected => [ q(SELECT concat(partition, '/', "offset", ' ', message) FROM rejected), sort @rejected ]);

	foreach my $what (sort keys %want)
	{
		my ($sql, @values) = @{ $want{$what} };
		my %times;

		$times{$_}++ foreach @values;
		$times{$_}-- foreach split(/\n/, $node->safe_psql($broker->{topic}, $sql));
		$wrong .= "$what: $_ is " . ($times{$_} > 0 ? "missing\n" : "there too often\n") foreach grep { $times{$_} } sort keys %times;
	}
	return $wrong;
}

sub crash
{
	$node->stop('immediate');
	$node->start;
}

# ---------- One consumer, killed ----------

my $broker = new_broker('payments', 30_000);
my $wrong = '';
my %kills;

foreach my $round (1 .. $rounds)
{
	my ($bad, $before) = agrees($broker);
	my $consumer = start($broker, 'consume', '--all');
	my $how = (qw(consumer consumer consumer backend server))[ int rand 5 ];

	# It begins to write, and goes on for a while
	foreach (1 .. 3600)
	{
		($bad, my $now) = agrees($broker);
		$wrong .= $bad;
		last if $now > $before || $now == @{ $broker->{sent} };
		usleep 50_000;
	}
	usleep(rand 300_000);
	if ($how eq 'server')
	{
		crash();
	}
	elsif ($how eq 'backend')
	{
		my ($pid) = split /\n/, $node->safe_psql('postgres',
			q(SELECT pid FROM pg_stat_activity WHERE datname = 'payments' AND pid <> pg_backend_pid()));

		kill_backend($node, $pid) if $pid;
	}
	$kills{$how}++;
	finish($consumer, 1);
	$wrong .= (agrees($broker))[0];
}
note 'kills: ', join ', ', map { "$_ $kills{$_}" } sort keys %kills;
note 'after them ', $node->safe_psql('payments', 'SELECT count(*) FROM payment'), ' payments were there';
is($wrong, '', "killed $rounds times: rows and positions agree all the time");
is(finish(start($broker, 'consume', '--all', '--end')), '', 'one more comes to the end');
is(verdict($broker), '', 'each message is there exactly once');
is(finish(start($broker, 'consume', '--all', '--end')), '', 'one that begins at the end');
is(verdict($broker), '', '... finds nothing to do');

# ---------- The same as staged batches ----------

%kills = ();
foreach my $round (1 .. $rounds)
{
	my $copier = start($broker, 'backfill');

	usleep(150_000 + rand 300_000);
	$kills{ is_running($copier->{run}) ? 'at work' : 'done' }++;
	finish($copier, 1);
}
is(finish(start($broker, 'backfill')), '', 'after kills, a staged batch is published');
is($node->safe_psql('payments', q(SELECT count(*), count(DISTINCT (partition, "offset")) FROM raw_message)), '30000|30000',
	'... with each message once');
is($node->safe_psql('payments', q(SELECT string_agg(concat_ws('/', r.partition, r."offset", r.body), ',' ORDER BY r.partition, r."offset") FROM raw_message AS r)),
	join(',', map { join('/', @$_) } sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] } @{ $broker->{sent} }), '... as the broker has it');
is($node->safe_psql('payments', q(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%')), '0', '... and no staging is left');
note 'staged: ', join ', ', map { "$_ $kills{$_}" } sort keys %kills;
kill_client($broker->{run});

# ---------- One that hangs in the middle of a transaction, and is replaced ----------

$broker = new_broker('zombies', 2000);
my ($in, $out) = ("BEGIN;\nSELECT count(*) FROM (SELECT FROM account FOR UPDATE) AS locked;\n", '');
my $other = IPC::Run::start([ 'psql', '-XqAt' ], '<' => \$in, '>' => \$out, IPC::Run::timeout(180));
$other->pump until $out =~ /^10$/m;
my $zombie = start($broker, 'consume', '--all');
my $backend = q(SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'zombies' AND query LIKE '%tw.atomic%' AND pid <> pg_backend_pid());
$node->poll_query_until('zombies', "$backend AND wait_event_type = 'Lock'") or die 'the consumer does not come to its UPDATE';
kill 'STOP', $zombie->{pid};
$in .= "COMMIT;\n";
$other->finish;
$node->poll_query_until('zombies', "$backend AND state = 'idle in transaction'") or die 'its transaction does not stay open';

# The next one asks for epochs without waiting, then waits for the rows that the transaction has locked
my $heir = start($broker, 'consume', '--all', '--end');
$node->poll_query_until('zombies', q(SELECT count(*) = 4 AND sum(epoch) = 8 FROM tw.jobs)) or die 'the next one does not take over';
kill 'CONT', $zombie->{pid};
like(finish($zombie), qr/epoch 1 of job "zombies\/\d" has been replaced by a newer writer\nDETAIL:  The job's current epoch is 2\./,
	'a consumer that hung in its transaction cannot commit any more');
is(finish($heir), '', '... the one in its place comes to the end');
is(verdict($broker), '', '... and each message is there exactly once');
kill_client($broker->{run});

# ---------- Two in a group ----------

$broker = new_broker('transfers', 40_000);
my @group = map { start($broker, 'consume') } 1 .. 2;
my $changes = 0;

$wrong = '';
foreach my $what (qw(kill stop kill))
{
	# They join, the partitions are shared out, they work; the fee changes, so that what they read does not hold
	my $before = $node->safe_psql('transfers', 'SELECT count(*) FROM payment');
	$node->poll_query_until('transfers', "SELECT count(*) > $before + 1000 OR count(*) >= 39900 FROM payment") or die 'the group does not work';
	for (1 .. 5)
	{
		$node->safe_psql('transfers', 'UPDATE fee SET percent = 1');
		$changes++;
	}
	$wrong .= (agrees($broker))[0];
	if ($what eq 'kill')
	{
		$wrong .= finish(shift @group, 1);
	}
	else
	{
		# Dead for the group, and alive again when the other has its partitions
		kill 'STOP', $group[0]{pid};
		my $epochs = $node->safe_psql('transfers', 'SELECT sum(epoch) FROM tw.jobs');
		$node->poll_query_until('transfers', "SELECT sum(epoch) > $epochs FROM tw.jobs") or die 'nobody takes over';
		kill 'CONT', $group[0]{pid};
		usleep 500_000;
		finish(shift @group, 1);
	}
	push @group, start($broker, 'consume');
}
finish($_, 1) foreach @group;
is($wrong, '', 'two in a group, killed and stopped: rows and positions agree all the time');
is(finish(start($broker, 'consume', '--all', '--end')), '', 'one alone comes to the end');
is(verdict($broker), '', 'each message is there exactly once');
note "the fee was changed $changes times; the consumers said: ", join ', ', map { "$_ $said{$_}" } sort keys %said;
kill_client($broker->{run});

$node->stop;
done_testing();
