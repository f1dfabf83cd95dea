# The two-phase sink under crashes: a coordinator with a checkpoint file, as stream
# processors have it, killed with its sessions and servers at every step and at random.
# Every batch is there exactly once at the end, and nothing is in doubt.
#
# TW_KILL_ROUNDS is how often the coordinator of the random part is killed.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use TransactionalWriter qw(:DEFAULT is_running);

my $rounds = $ENV{TW_KILL_ROUNDS} || 40;
my $node = new_server('main', 'max_prepared_transactions = 300', 'max_connections = 60', 'fsync = off',
	'log_min_messages = log');
my $dir = PostgreSQL::Test::Utils::tempdir();

sub query { return $node->safe_psql('postgres', $_[0]); }

# Starts psql on a script of many lines; its errors go to a file.  It has come to its end when nobody
# holds its output any more, that is, when a shell has ended, too, that it has started.
sub start_script
{
	my ($sql) = @_;
	my $out;

	open my $file, '>', "$dir/script.sql" or die $!;
	print $file $sql;
	close $file;
	return IPC::Run::start(
		[ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-f', "$dir/script.sql" ],
		'<' => \undef, '>' => \$out, '2>' => "$dir/errors");
}

sub errors { return PostgreSQL::Test::Utils::slurp_file("$dir/errors"); }

sub crash
{
	$node->stop('immediate');
	$node->start;
}

query(q(
	CREATE TABLE data (batch text);
	SELECT tw.init_producer('steps')));

# ---------- at every step ----------

my $doubt = q(SELECT count(*) FROM tw.in_doubt);
my @steps = (
	[ 'claimed', q(BEGIN; SELECT status FROM tw.begin_batch('steps', 'BATCH', epoch => EPOCH);) ],
	[ 'written', q(INSERT INTO data VALUES ('BATCH');) ],
	[ 'marked', q(SELECT tw.prepare_batch('steps', 'BATCH') AS gid \gset) ],
	[ 'prepared', q(PREPARE TRANSACTION :'gid';) ],
	[ 'committed', q(CALL tw.commit_prepared(:'gid');) ],
	[ 'committed again', q(CALL tw.commit_prepared(:'gid');) ]);

foreach my $how ('kill -9', 'immediate shutdown')
{
	foreach my $last (0 .. $#steps)
	{
		my $batch = "$how, $steps[$last][0]";
		my $epoch = query(q(SELECT epoch FROM tw.jobs WHERE job = 'steps'));
		my $sql = join "\n", "SET application_name = 'step';",
			(map { $_->[1] } @steps[ 0 .. $last ]), 'SELECT pg_sleep(600);';

		$sql =~ s/BATCH/$batch/g;
		$sql =~ s/EPOCH/$epoch/g;
		my $session = start_script($sql);
		my $pid = in_sleep($node);

		if ($how eq 'kill -9')
		{
			kill_backend($node, $pid);
			$session->finish;
		}
		else
		{
			crash();
			$session->finish;
		}

		my $prepared = $last == 3;
		my $expected = $last >= 4 ? 1 : 0;

		is(query($doubt), $prepared ? 1 : 0, "$batch: in doubt or not");
		is(query(qq(SELECT count(*) FROM data WHERE batch = '$batch')), $expected, "$batch: the rows are there or not");
		$epoch = query(q(SELECT tw.init_producer('steps')));
		if ($prepared)
		{
			# once the checkpoint knows it, once it does not
			my $names = $how eq 'kill -9' ? "ARRAY['$batch']" : q('{}');

			is(query("CALL tw.recover('steps', $epoch, $names)"), $how eq 'kill -9' ? '1|0' : '0|1', "$batch: recovered");
			crash();
			is(query($doubt), 0, "$batch: nothing is in doubt, also after another crash");
			$expected = 1 if $how eq 'kill -9';
		}
		is(query(qq(SELECT status FROM tw.begin_batch('steps', '$batch', epoch => $epoch))),
			$expected ? 'already_committed' : 'started', "$batch: and its replay knows");
		is(query(qq(SELECT count(*) FROM data WHERE batch = '$batch')), $expected, "$batch: rows and ledger agree");
	}
}

# ---------- not prepared yet, and claims that wait ----------

query(q(SELECT tw.create_job('waits')));
my $session = background($node, q(
	BEGIN;
	SELECT tw.begin_batch('waits', 'running');
	SELECT set_config('application_name', tw.prepare_batch('waits', 'running'), false);
	SELECT pg_sleep(600);)
	=~ s/\n\t/ /gr);
in_sleep($node);
my $gid = query(q(SELECT application_name FROM pg_stat_activity WHERE wait_event = 'PgSleep'));
is(sqlstate($node, "CALL tw.commit_prepared('$gid')"), 'TW003', 'a gid that is not prepared yet is in progress');
is(sqlstate($node, "CALL tw.abort_prepared('$gid', 'why')"), 'TW003', 'for an abort as well');
query(q(SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE wait_event = 'PgSleep'));
$session->finish;
is(sqlstate($node, "CALL tw.commit_prepared('$gid')"), 'TW010', 'and unknown when its transaction is gone');

foreach my $end ([ q(CALL tw.commit_prepared('waits already_committed')), 'already_committed' ],
	[ q(CALL tw.abort_prepared('waits started', 'why')), 'started' ])
{
	my ($sql, $answer) = @$end;
	my ($out, $err) = ('', '');

	query(qq(BEGIN; SELECT tw.begin_batch('waits', '$answer'); PREPARE TRANSACTION 'waits $answer'));
	my $claim = IPC::Run::start([ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-c',
		"SELECT status FROM tw.begin_batch('waits', '$answer')" ], '<' => \undef, '>' => \$out, '2>' => \$err);
	$node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_locks WHERE NOT granted))
	  or die 'the claim does not wait';
	query($sql);
	$claim->finish;
	is($out, "$answer\n", "a claim of a batch in doubt waits for its end: $answer");
}

# ---------- many at once ----------

my $n = 200;
query(qq(SELECT tw.create_job('many')));
query(join '', map { "BEGIN; SELECT tw.begin_batch('many', '$_'); INSERT INTO data VALUES ('many $_'); PREPARE TRANSACTION 'many $_';\n" } 1 .. $n);
my @clients;
foreach my $client (1 .. 6)
{
	my $bare = $client > 5;
	my $file = "$dir/many$client.sql";
	my %order = map { $_ => rand } 1 .. $n;

	PostgreSQL::Test::Utils::append_to_file($file, join '',
		map { $bare ? "COMMIT PREPARED 'many $_';\n" : "CALL tw.commit_prepared('many $_');\n" }
		sort { $bare ? $a <=> $b : int($a / 20) <=> int($b / 20) || $order{$a} <=> $order{$b} } 1 .. $n);
	my %client = (bare => $bare, out => '', err => '');
	$client{run} = IPC::Run::start([ 'psql', '-XAt', '-d', $node->connstr('postgres'), '-f', $file ],
		'<' => \undef, '>' => \$client{out}, '2>' => \$client{err});
	push @clients, \%client;
}
$_->{run}->finish foreach @clients;
my $all = join '', map { $_->{out} } @clients;
my $committed = () = $all =~ /^(committed|COMMIT PREPARED)$/mg;
my $again = () = $all =~ /^already_committed$/mg;
is($committed, $n, 'of many that commit a gid at once one does');
is($again, 5 * $n - ($n - (() = $all =~ /^COMMIT PREPARED$/mg)), 'the others are told that it is committed');
is(join('', map { $_->{bare} ? '' : $_->{err} } @clients), '', 'and none meets an error');
is(query(q(SELECT count(*), count(DISTINCT batch) FROM data WHERE batch LIKE 'many%')), "$n|$n", 'all are there once');

# ---------- at random ----------

# The coordinator: recovers with its checkpoint, then batch after batch: prepare, write the
# checkpoint, commit twice.  What is not in the checkpoint must not be committed.
my $checkpoint = "$dir/checkpoint";
my $wrong = "$dir/wrong";
PostgreSQL::Test::Utils::append_to_file($_, '') foreach $checkpoint, $wrong;
query(q(SELECT tw.create_job('random')));

sub coordinator
{
	my ($batches) = @_;
	my @known = split /\n/, PostgreSQL::Test::Utils::slurp_file($checkpoint);
	my $next = @known;
	my @names = map { (split / /)[1] } @known[ ($next > 3 ? $next - 3 : 0) .. $next - 1 ];
	my $sql = join "\n", '\set ON_ERROR_STOP 1', q(SET application_name = 'coordinator';),
		q(SELECT tw.init_producer('random') AS epoch \gset),
		sprintf(q(CALL tw.recover('random', :epoch, '{%s}');), join ',', @names), '';

	foreach my $batch ($next .. $next + $batches - 1)
	{
		$sql .= <<"SQL";
BEGIN;
SELECT status <> 'started' AS wrong FROM tw.begin_batch('random', '$batch', epoch => :epoch) \\gset
\\if :wrong
\\! echo 'batch $batch is committed, and the checkpoint does not know' >>$wrong
\\q
\\endif
INSERT INTO data VALUES ('random $batch');
SELECT tw.prepare_batch('random', '$batch') AS gid \\gset
PREPARE TRANSACTION :'gid';
\\setenv GID :gid
\\! echo "$batch \$GID" >>$checkpoint
CALL tw.commit_prepared(:'gid') \\gset
CALL tw.commit_prepared(:'gid') \\gset
SELECT :'status' <> 'already_committed' AS wrong \\gset
\\if :wrong
\\! echo 'batch $batch: the second commit says something else' >>$wrong
\\endif
SQL
	}
	return $sql;
}

my %kills;
foreach my $round (1 .. $rounds)
{
	my $client = start_script(coordinator(200));
	my $how = (qw(client client client terminate terminate backend server))[ int rand 7 ];

	# Every other one dies when it has surely brought a batch through, or is at the next
	if ($round % 2)
	{
		my $size = -s $checkpoint;

		for (1 .. 18_000)
		{
			last if -s $checkpoint > $size || !is_running($client);
			usleep 10_000;
		}
	}
	usleep(10_000 + rand 60_000);
	$kills{$how}++;
	if ($how eq 'client')
	{
		kill_client($client);
	}
	elsif ($how eq 'terminate')
	{
		query(q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'coordinator'));
		kill_client($client);
	}
	elsif ($how eq 'backend')
	{
		my ($pid) = split /\n/, query(q(SELECT pid FROM pg_stat_activity WHERE application_name = 'coordinator'));

		kill_backend($node, $pid) if $pid;
		kill_client($client);
	}
	else
	{
		crash();
		kill_client($client);
	}
	# A session that ends, or is ended by us, says so; everything else is an error of ours
	foreach my $line (grep { /ERROR/ } split /\n/, errors())
	{
		PostgreSQL::Test::Utils::append_to_file($wrong, "$line\n") unless $line =~ /terminat|shutting down/;
	}
}
note join ', ', map { "$_: $kills{$_}" } sort keys %kills;

# The last one comes to its end
start_script(coordinator(3))->finish;
is(errors(), '', 'the last coordinator comes to its end');
my @known = split /\n/, PostgreSQL::Test::Utils::slurp_file($checkpoint);
note scalar(@known), " batches, $rounds kills";
cmp_ok(scalar(@known), '>=', $rounds / 2, 'batches came through');
is(PostgreSQL::Test::Utils::slurp_file($wrong), '', 'no coordinator met anything but its own end');
is(join(' ', map { (split / /)[0] } @known), join(' ', 0 .. $#known), 'each batch is in the checkpoint once');
is(query(q(SELECT count(*), count(DISTINCT batch) FROM data WHERE batch LIKE 'random%')),
	scalar(@known) . '|' . scalar(@known), 'nothing is lost or doubled');
is(query(q(SELECT count(*) FROM data d FULL JOIN tw.ledger l ON d.batch = 'random ' || l.batch_id
		WHERE (d.batch LIKE 'random%' OR l.job = 'random') AND (d.batch IS NULL OR l.job IS NULL))), 0,
	'data and ledger say the same');
is(query('SELECT count(*) FROM pg_prepared_xacts'), 0, 'nothing is in doubt');

# ---------- a copy knows what was committed ----------

my $copy = PostgreSQL::Test::Cluster->new('copy');
my ($batch, $known) = split / /, $known[-1];
$copy->init;
$copy->start;
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/dump", $node->connstr('postgres') ], 'pg_dump');
command_ok([ 'pg_restore', '-d', $copy->connstr('postgres'), "$dir/dump" ], 'pg_restore');
is($copy->safe_psql('postgres', "CALL tw.commit_prepared('$known')"), 'already_committed',
	'a restored copy answers for a gid, also where prepared transactions are off');
is(sqlstate($copy, q(CALL tw.commit_prepared('many 0'))), 'TW010', 'and knows what it does not know');

$node->stop;
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/TRAP:|PANIC:/, 'the server met nothing but our kills');
done_testing();
