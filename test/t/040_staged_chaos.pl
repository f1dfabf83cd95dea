# Staged batches while clients and backends are killed and the server crashes, at random
# points of every phase.  A reader polls all the time.  However it goes: no partial
# publish is ever visible, no row is lost, none doubled, ledger, offsets and targets
# agree, and no staging is left behind.
use strict;
use warnings;

use IPC::Run;
use List::Util qw(shuffle);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use TransactionalWriter qw(:DEFAULT session answer is_running);

my $batches = $ENV{TW_CHAOS_BATCHES} || 200;
my $seed = $ENV{TW_CHAOS_SEED} || time;
my $node = new_server('main', 'fsync = off', 'max_connections = 50', 'shared_buffers = 32MB',
	'log_min_messages = log', "shared_preload_libraries = 'transactional_writer'",
	'transactional_writer.worker_interval = 1');
my %faults;

srand($seed);
note "seed $seed: set TW_CHAOS_SEED to run the same again";

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE events (batch int, task int, n int);
CREATE TABLE state (k int PRIMARY KEY, batch int, pad text);
CREATE TABLE snap (batch int, k int) PARTITION BY RANGE (k);
CREATE TABLE snap1 PARTITION OF snap FOR VALUES FROM (0) TO (20);
CREATE TABLE snap2 PARTITION OF snap FOR VALUES FROM (20) TO (40);
CREATE TABLE positions (next int);
INSERT INTO positions VALUES (0);
SELECT tw.create_job('chaos');

CREATE FUNCTION open(b int) RETURNS text LANGUAGE sql AS $$
	SELECT status FROM tw.open_batch('chaos', 'b' || b, '[{"table": "events", "mode": "append"},
		{"table": "state", "mode": "merge"}, {"table": "snap", "mode": "overwrite"}]', 4,
		logged => b % 4 = 0)
$$;
-- one task: ten rows for each target
CREATE FUNCTION load(b int, t int, pause float) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	a record;
BEGIN
	FOR a IN SELECT * FROM tw.attach_task('chaos', 'b' || b, t::text) LOOP
		IF a.status = 'already_committed' THEN
			RETURN a.status;
		END IF;
		EXECUTE CASE a.target
			WHEN 'events'::regclass THEN format('INSERT INTO %s SELECT %s, %s, n FROM generate_series(0, 9) n', a.staging, b, t)
			WHEN 'state'::regclass THEN format('INSERT INTO %s SELECT %s * 10 + n, %s FROM generate_series(0, 9) n', a.staging, t, b)
			ELSE format('INSERT INTO %s SELECT %s, %s * 10 + n FROM generate_series(0, 9) n', a.staging, b, t) END;
		PERFORM pg_sleep(pause);
	END LOOP;
	PERFORM tw.commit_task();
	PERFORM pg_sleep(pause);
	RETURN 'committed';
END $$;
CREATE FUNCTION publish(b int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	s text := (tw.publish('chaos', 'b' || b)).status;
BEGIN
	IF s = 'applied' THEN
		UPDATE positions SET next = b WHERE next = b - 1;
		IF NOT FOUND THEN
			RAISE 'position is not %', b - 1;
		END IF;
	END IF;
	RETURN s;
END $$;
-- What must never be seen, in one snapshot.  It is a view and not a function because a query locks
-- its tables before it takes its snapshot, and a function after that: see swap.c.
CREATE VIEW anomalies (anomaly) AS
	SELECT format('batch %s has %s events', batch, count(*)) FROM events GROUP BY batch
		HAVING count(*) <> 40 OR count(DISTINCT (task, n)) <> 40
	UNION ALL
	SELECT format('events of %s, ledger of %s', batch, batch_id) FROM (SELECT DISTINCT batch FROM events) e
		FULL JOIN tw.ledger ON job = 'chaos' AND batch_id = 'b' || batch WHERE batch IS NULL OR batch_id IS NULL
	UNION ALL
	SELECT format('position %s, state %s to %s of %s, snap %s to %s of %s', next, s.min, s.max, s.count, p.min, p.max, p.count)
	FROM positions, (SELECT min(batch), max(batch), count(*) FROM state) s,
		(SELECT min(batch), max(batch), count(*) FROM snap) p
	WHERE next > 0 AND (s.min, s.max, s.count, p.min, p.max, p.count) IS DISTINCT FROM (next, next, 40::bigint, next, next, 40::bigint);
SQL

# ---------- sessions ----------

my @connection = ('-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') . " connect_timeout=10");

sub query { return answer(session($node, $_[0])); }

# The reader: one session that asks for anomalies without a pause, and is started again when the
# server has thrown it out
my $seen = PostgreSQL::Test::Utils::tempdir() . '/seen';
my $reader;
my $readers = 0;

sub read_on
{
	return if $reader && is_running($reader);
	$readers++;
	$reader = IPC::Run::start([ 'bash', '-c', 'yes "TABLE anomalies; SELECT \'polled\';" | head -n 100000 | psql "$@"', '-', @connection ],
		'<' => \undef, '>>' => $seen, '2>>' => "$seen.err");
}

# ---------- faults ----------

# Dealt from a pack: first one of each, then by weight
my %weights = (shutdown => 6, kill => 10, terminate => 14, cancel => 10, client => 10);
my @pack = shuffle(sort keys %weights);

# Something happens to the sessions, or to all of the server, after a random time
sub fault
{
	my ($most, @sessions) = @_;

	return if rand() > 0.5;
	@pack = shuffle(map { ($_) x $weights{$_} } sort keys %weights) if !@pack;
	my $kind = shift @pack;
	usleep rand $most if $kind ne 'kill';
	if ($kind eq 'shutdown')
	{
		$faults{'immediate shutdown'}++;
		$node->stop('immediate');
		$node->start;
	}
	elsif ($kind eq 'kill')
	{
		my $pid = '';

		# whoever is at it by then
		for (1 .. 5)
		{
			last if $pid =~ /^\d+$/;
			$pid = query("SELECT pid FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()
			AND query ~ '^SELECT (open|load|publish)' ORDER BY random() LIMIT 1");
		}
		# nobody: the next time
		if ($pid !~ /^\d+$/)
		{
			unshift @pack, $kind;
			return;
		}
		$faults{'kill -9 of a backend'}++;
		kill_backend($node, $pid);
	}
	elsif ($kind eq 'terminate')
	{
		$faults{'pg_terminate_backend'}++;
		query("SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()
			AND query ~ '^SELECT (open|load|publish)' ORDER BY random() LIMIT 2) p");
	}
	elsif ($kind eq 'cancel')
	{
		$faults{'pg_cancel_backend'}++;
		query("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()
			AND query ~ '^SELECT (open|load|publish)'");
	}
	else
	{
		$faults{'kill of a client'}++;
		kill_client($sessions[rand @sessions]->{run});
	}
}

# ---------- the batches ----------

my %answers;
my @wrong;
my $started = time;

foreach my $b (1 .. $batches)
{
	my $published = 0;

	for (my $try = 1; !$published; $try++)
	{
		die "batch $b was not published in $try tries" if $try > 50;
		read_on();

		# open, unless it is
		my $s = session($node, "SELECT open($b)");
		fault(30_000, $s) if rand() < 0.3;
		$answers{'open: ' . answer($s)}++;

		# all tasks at once, some of them twice
		my @tasks = (0 .. 3, grep { rand() < 0.15 } 0 .. 3);
		my @loaders = map { session($node, sprintf 'SELECT load(%d, %d, %f)', $b, $_, rand 0.005) } @tasks;
		fault(60_000, @loaders) if rand() < 0.6;
		$answers{'load: ' . answer($_)}++ foreach @loaders;

		$s = session($node, "SELECT publish($b)");
		fault(40_000, $s) if rand() < 0.6;
		my $status = answer($s);
		$answers{"publish: $status"}++;
		$published = $status eq 'applied' || $status eq 'already_committed';
	}
	my $found = query('SELECT count(*) FROM anomalies');
	push @wrong, "batch $b: $found" if $found ne '0';
}
note sprintf '%d batches in %.0f s', $batches, time - $started;
note join ', ', map { "$_: $faults{$_}" } sort keys %faults;
note join ', ', map { "$_: $answers{$_}" } sort keys %answers;

# ---------- what must hold ----------

is(scalar keys %faults, 5, 'each fault has struck') if $batches >= 100;
my %expected = (
	open => qr/opened|already_committed|TW003/, load => qr/committed|already_committed|TW006|TW010|42P01|3F000/,
	publish => qr/applied|already_committed|TW007|TW009|TW010/);
is_deeply([ sort grep { my ($what, $answer) = split /: /; $answer !~ /^(?:$expected{$what}|lost|57014)$/ } keys %answers ],
	[], 'and nobody was told anything else than what comes of that');

wait_until_up($node);
kill_client($reader) if $reader;
my @polled = split /\n/, PostgreSQL::Test::Utils::slurp_file($seen);
my %reader_saw = map { $_ => 1 } grep { $_ ne 'polled' } @polled;
note "the reader was started $readers times";
cmp_ok(scalar @polled, '>', $batches, 'the reader polled ' . @polled . ' times')
	or diag PostgreSQL::Test::Utils::slurp_file("$seen.err");
is_deeply([ keys %reader_saw ], [], 'and never saw a part of a batch');
is_deeply(\@wrong, [], 'data, ledger and position agreed after each batch');
is($node->safe_psql('postgres', 'TABLE anomalies'), '', 'and at the end');
is($node->safe_psql('postgres', 'SELECT count(*), sum(batch) FROM events'),
	join('|', 40 * $batches, 40 * $batches * ($batches + 1) / 2), 'every row is there once');
is($node->safe_psql('postgres', 'SELECT next FROM positions'), $batches, 'the position is the last batch');

# Clients that were killed leave sessions that end a moment later
$node->poll_query_until('postgres', 'SELECT tw.expire_batches() = 0 AND count(*) = 0 FROM tw.stage_leftover')
  or diag 'leftovers stay';
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%')),
	'0', 'no staging is left');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM tw.stage) + (SELECT count(*) FROM tw.stage_target)
	+ (SELECT count(*) FROM tw.stage_task) + (SELECT count(*) FROM tw.stage_alive)'),
	'0', 'and nothing that says so');

$node->stop;
done_testing();
