# A sink on the JDBC driver's PGXADataSource (XaSink.java), as stream processors have one:
# it dies at every step, and is killed with the server at random; the next run recovers.
# Every checkpoint's rows are there exactly once, and nothing is in doubt.
#
# TW_KILL_ROUNDS is how often it is killed in the random part.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use TransactionalWriter;

my $jar = '/usr/share/java/postgresql.jar';
my ($javac) = grep { -x } map { "$_/javac" } split /:/, $ENV{PATH};

plan skip_all => 'no JDK: install default-jdk-headless' unless $javac;
plan skip_all => "no JDBC driver in $jar: install libpostgresql-jdbc-java" unless -f $jar;

my $rounds = $ENV{TW_KILL_ROUNDS} || 5;
my $dir = PostgreSQL::Test::Utils::tempdir();
my $source = ($ENV{TESTDIR} && -f "$ENV{TESTDIR}/test/t/XaSink.java" ? $ENV{TESTDIR} : '.') . '/test/t/XaSink.java';
command_ok([ $javac, '-d', $dir, '-cp', $jar, $source ], 'the client compiles');

# The driver knows no Unix sockets
my $node = new_server('main', 'max_prepared_transactions = 20', 'fsync = off', 'log_min_messages = log',
	"listen_addresses = '127.0.0.1'");
my $user = $node->safe_psql('postgres', 'SELECT current_user');
my $url = 'jdbc:postgresql://127.0.0.1:' . $node->port . "/postgres?user=$user&loginTimeout=20&socketTimeout=60";
$node->safe_psql('postgres', 'CREATE TABLE xa_data (checkpoint int, row int); SELECT tw.create_job($$xa$$)');

# Starts the client for some checkpoints, to die at a step (0: not)
sub start_client
{
	my ($checkpoints, $halt) = @_;

	return IPC::Run::start(
		[ 'java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-cp', "$dir:$jar", 'XaSink',
			$url, $dir, $checkpoints, $halt ],
		'<' => \undef, '>' => "$dir/out", '2>' => "$dir/err");
}

sub said { return PostgreSQL::Test::Utils::slurp_file("$dir/out") . PostgreSQL::Test::Utils::slurp_file("$dir/err"); }

sub crash
{
	$node->stop('immediate');
	$node->start;
}

# '' when all checkpoints are there once, with their rows, and nothing else is
sub verdict
{
	my ($number) = PostgreSQL::Test::Utils::slurp_file("$dir/checkpoint") =~ /^(\d+)/;
	my $n = $number + 1;
	my $state = $node->safe_psql('postgres', q(
		SELECT (SELECT count(DISTINCT checkpoint) FROM xa_data), (SELECT count(*) FROM xa_data),
			(SELECT count(*) FROM tw.ledger), (SELECT count(*) FROM pg_prepared_xacts)));

	return $state eq join('|', $n, 3 * $n, $n, 0) ? '' : "after $n checkpoints: $state";
}

start_client(2, 0)->finish;
like(said(), qr/\Acommit 0\nagain 0 already_committed\ncommit 1\ndone\n\z/,
	'it commits, and what the driver does not find the ledger knows');
is(verdict(), '', 'all is there');

# At every step: two of the restart, six of a checkpoint, then those of the next one
foreach my $halt (1 .. 9)
{
	my $client = start_client(2, $halt);

	$client->finish;
	is($client->result, 1, "it dies at step $halt, and the server with it");
	unlike(said(), qr/done|Exception|Error/, '... without another error');
	crash();
	start_client(1, 0)->finish;
	like(said(), qr/done\n\z/, '... the next one comes to its end');
	is(verdict(), '', '... and nothing is lost, doubled or in doubt');
}

# At random
my @wrong;
my %kills;
foreach my $round (1 .. $rounds)
{
	my $client = start_client(1000, 0);
	my $how = (qw(client client server backend))[ int rand 4 ];

	usleep(300_000 + rand 900_000);
	$kills{$how}++;
	if ($how eq 'server')
	{
		crash();
	}
	elsif ($how eq 'backend')
	{
		my ($pid) = split /\n/, $node->safe_psql('postgres',
			q(SELECT pid FROM pg_stat_activity WHERE client_addr IS NOT NULL));
		kill_backend($node, $pid) if $pid;
	}
	kill_client($client);

	# A checkpoint that came too late for the client to commit is the next one's to commit
	start_client(1, 0)->finish;
	push @wrong, said() unless said() =~ /done\n\z/;
	push @wrong, verdict() if verdict();
}
note join ', ', map { "$_: $kills{$_}" } sort keys %kills;
note PostgreSQL::Test::Utils::slurp_file("$dir/checkpoint") . ' (last checkpoint, epoch)';
is(join('', @wrong), '', "killed $rounds times at random: nothing is lost, doubled or in doubt");

$node->stop;
done_testing();
