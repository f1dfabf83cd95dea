# What the page doc/exactly-once.md walks through, with real deaths at each point: the
# answer of a commit is lost, the server is restarted, a writer is stopped and wakes up as
# a zombie, a source is rewound, a backup is restored.  Each time the work is there once.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use TransactionalWriter qw(:DEFAULT background_until);

my $node = new_server('main', 'max_prepared_transactions = 10', 'idle_in_transaction_session_timeout = 0');
my $dir = PostgreSQL::Test::Utils::tempdir();

sub query { return $node->safe_psql('postgres', $_[0]); }

# A source of numbered lines, read by tens.  A step claims its batch, writes the lines,
# moves the position, and takes long enough to die in.
my $lines = 400;
my $objects = q(
	CREATE TABLE source (line int);
	CREATE TABLE sink (job text, line int);
	CREATE FUNCTION step(the_job text, start int) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		o tw.outcome;
	BEGIN
		IF start >= 400 THEN
			RETURN 'the end';
		END IF;
		o := tw.begin_batch(the_job, 'from ' || start);
		IF o.status = 'started' THEN
			INSERT INTO sink SELECT the_job, line FROM source WHERE line >= start AND line < start + 10;
			PERFORM tw.commit_offset(the_job, 'source', '0', nullif(start, 0)::text, (start + 10)::text);
			PERFORM pg_sleep(random() * coalesce(current_setting('test.pause', true), '0.02')::float);
		END IF;
		RETURN o.status;
	END $$;
	INSERT INTO source SELECT generate_series(0, 399););
query($objects);

# The writer of a job: asks where it is, and goes on from there
sub writer
{
	my ($server, $job) = @_;
	my $file = "$dir/$job.writer.sql";

	append_to_file($file, qq(SELECT step('$job', coalesce(tw.offset('$job', 'source', '0'), '0')::int);\n) x ($lines / 10))
	  unless -e $file;
	return IPC::Run::start([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $server->connstr('postgres'), '-f', $file ],
		'<' => \undef, '>' => '/dev/null', '2>' => "$dir/$job.err");
}

# How many lines a job has written, how many of them twice, and its position
sub sink
{
	my ($server, $job) = @_;

	return $server->safe_psql('postgres',
		qq(SELECT count(*), count(*) - count(DISTINCT line), coalesce(tw.offset('$job', 'source', '0'), '0') FROM sink WHERE job = '$job'));
}

# ---------- the answer is lost: sessions die at any point, and all are asked again ----------

# By turns at a random time, surely before the commit (all of it is one transaction), and behind it
my ($deaths, @answers, @wrong) = (0);
foreach my $batch (0 .. 20)
{
	my $when = (qw(somewhen before behind))[ $batch % 3 ];
	my $sql = "SELECT step('lost', " . $batch * 10 . ')';
	my $session = background_until($node, "SET application_name = 'lost'; SET test.pause = 0.15; $sql", $when, 50_000);

	$deaths += query(q(SELECT count(*) FROM pg_stat_activity, pg_terminate_backend(pid) WHERE application_name = 'lost'));
	$session->finish;
	push @answers, query($sql);
	push @wrong, "$batch, $when the commit: $answers[-1]"
	  if $when eq 'before' && $answers[-1] ne 'started' || $when eq 'behind' && $answers[-1] ne 'already_committed';
}
cmp_ok($deaths, '>=', 7, 'lost answers: sessions were alive when they were ended');
is_deeply(\@wrong, [], 'lost answers: what was committed is known, what was not runs');
is_deeply([ grep { !/^(started|already_committed)$/ } @answers ], [], 'lost answers: asked again, all are answered');
is(sink($node, 'lost'), '210|0|210', 'lost answers: each line is there once, and the position at the end');

# ---------- restarts: the server dies under a writer, which then goes on ----------

my $restarts = 0;
while ($restarts < 30 && sink($node, 'restart') !~ /\|$lines$/)
{
	my $writer = writer($node, 'restart');

	usleep(60_000 + rand 80_000);
	$node->stop($restarts++ % 2 ? 'fast' : 'immediate');
	$writer->finish;
	$node->start;
}
# what is left when a slow machine has hardly come to anything between them
writer($node, 'restart')->finish;
note "$restarts restarts";
cmp_ok($restarts, '>', 1, 'restarts: the server died more than once');
is(sink($node, 'restart'), "$lines|0|$lines", 'restarts: each line is there once');
is(query(q(SELECT count(*) FROM tw.ledger WHERE job = 'restart')), $lines / 10, 'restarts: and each batch');

# ---------- a zombie: stopped in the middle of its batch, replaced, and woken up ----------

is(query(q(SELECT tw.init_producer('zombie', 'first'))), '1', 'zombie: the first writer has an epoch');
append_to_file("$dir/zombie.sql", q(
	\set VERBOSITY sqlstate
	BEGIN;
	SELECT status FROM tw.begin_batch('zombie', 'b', epoch => 1);
	INSERT INTO sink VALUES ('zombie', 1);
	SELECT tw.commit_offset('zombie', 'source', '0', NULL, '1');
	SELECT pg_sleep(5);
	COMMIT;
	SELECT status FROM tw.begin_batch('zombie', 'next', epoch => 1);));
my $answer = '';
my $zombie = IPC::Run::start([ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-f', "$dir/zombie.sql" ],
	'<' => \undef, '>' => \$answer, '2>' => \$answer);
my $pid = in_sleep($node);
kill 'STOP', $pid;
is(query(q(SELECT tw.init_producer('zombie', 'second'))), '2', 'zombie: the second gets the next epoch');
is(query(q(SELECT status FROM tw.begin_batch('zombie', 'other', epoch => 2))), 'started', 'zombie: and works');
is(query("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), '1', 'zombie: without waiting for the first');

# What the first has begun the second gets when that has ended
my $second = '';
my $waiting = IPC::Run::start([ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-c', q(
	BEGIN;
	SELECT status FROM tw.begin_batch('zombie', 'b', epoch => 2);
	INSERT INTO sink VALUES ('zombie', 1);
	SELECT tw.commit_offset('zombie', 'source', '0', NULL, '1');
	COMMIT;) ], '<' => \undef, '>' => \$second, '2>' => \$second);
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE pg_blocking_pids(pid) = '{$pid}'")
  or die 'nobody waits for the zombie';
kill 'CONT', $pid;
$zombie->finish;
$waiting->finish;
is($answer =~ s/psql\S* //gr =~ s/^\s*\n//gmr, "started\nERROR:  TW001\nERROR:  TW001\n", 'zombie: awake, it can neither commit nor claim');
like($second, qr/^started$/m, 'zombie: and its batch is the second\'s');
is(sink($node, 'zombie'), '1|0|1', 'zombie: which has done it once');

# One that is killed while it is stopped leaves its batch to the next
$zombie = background($node, q(
	BEGIN;
	SELECT status FROM tw.begin_batch('zombie', 'c', epoch => 2);
	INSERT INTO sink VALUES ('zombie', 2);
	SELECT pg_sleep(60);
	COMMIT));
$pid = in_sleep($node);
kill 'STOP', $pid;
query(q(SELECT tw.init_producer('zombie', 'third')));
kill_backend($node, $pid);
$zombie->finish;
is(query(q(SELECT status FROM tw.begin_batch('zombie', 'c', epoch => 3))), 'started', 'zombie: killed, its batch is free');
is(query(q(SELECT count(*) FROM sink WHERE job = 'zombie' AND line = 2)), '0', 'zombie: and its rows are gone');

# ---------- a source is rewound: a writer dies, and starts from an older place ----------

my $writer = writer($node, 'rewound');
$node->poll_query_until('postgres', q(SELECT count(*) >= 100 FROM sink WHERE job = 'rewound')) or die 'the writer does not write';
query(q(SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE query LIKE 'SELECT step%rewound%'));
$writer->finish;
my $reached = (split /\|/, sink($node, 'rewound'))[2];

# Its own checkpoint is older: other batches of the same lines, so that no batch_id helps
my $overlapping = sub
{
	my ($from, $to) = @_;

	return qq(BEGIN;
		SELECT status FROM tw.begin_batch('rewound', 'lines $from to $to');
		INSERT INTO sink SELECT 'rewound', line FROM source WHERE line >= $from AND line < $to;
		SELECT tw.commit_offset('rewound', 'source', '0', '$from', '$to');
		COMMIT;);
};
is(sqlstate($node, $overlapping->($reached - 15, $reached + 15)), 'TW005', 'rewound: what was read already cannot be written again');
is(sqlstate($node, $overlapping->($reached + 10, $reached + 20)), 'TW005', 'rewound: nor can lines be left out');
is(sink($node, 'rewound'), "$reached|0|$reached", 'rewound: neither has left anything');
($writer, my $other) = (writer($node, 'rewound'), writer($node, 'rewound'));
$_->finish foreach $writer, $other;
query(qq(SELECT step('rewound', $_))) foreach map { $_ * 10 } (split /\|/, sink($node, 'rewound'))[2] / 10 .. $lines / 10 - 1;
is(sink($node, 'rewound'), "$lines|0|$lines", 'rewound: from where the database says, and by two at once, each line is there once');

# ---------- a backup is restored: taken while a writer runs, the server is lost ----------

my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init;
$restored->start;
query('ALTER DATABASE postgres SET test.pause = 0.08');
$writer = writer($node, 'backup');
$node->poll_query_until('postgres', q(SELECT count(*) >= 50 FROM sink WHERE job = 'backup')) or die 'the writer does not write';
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/dump", $node->connstr('postgres') ], 'backup: pg_dump of a running writer');
$node->backup('physical');
$node->stop('immediate');
$writer->finish;

command_ok([ 'pg_restore', '--exit-on-error', '-d', $restored->connstr('postgres'), "$dir/dump" ], 'backup: restored');
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($node, 'physical');
$copy->start;
foreach my $server ($restored, $copy)
{
	my $what = 'backup, ' . $server->name;
	my ($count, $twice, $position) = split /\|/, sink($server, 'backup');

	note "$what: at $position";
	is("$count|$twice|$position", "$position|0|$position", "$what: data and position agree");
	is($server->safe_psql('postgres', q(SELECT count(*) * 10 FROM tw.ledger WHERE job = 'backup')), $position,
		"$what: and so does the ledger");

	# The client sends everything again from the start, as it does not know
	my %statuses;
	$statuses{ $server->safe_psql('postgres', "SELECT step('backup', $_)") }++ foreach map { $_ * 10 } 0 .. $lines / 10 - 1;
	is($statuses{already_committed}, $position / 10, "$what: what is in the backup is known");
	is(sink($server, 'backup'), "$lines|0|$lines", "$what: and each line is there once in the end");
	$server->stop;
}

done_testing();
