# The races of the isolation tests again, at random and by many sessions at once: of all
# that claim a batch one gets it, data and ledger say the same, a version runs once and in
# order however it is pruned, an offset moves step by step, and nobody commits after he was
# fenced.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $seconds = $ENV{TW_RACE_SECONDS} || 4;
my $node = new_server('main', 'max_connections = 60', 'track_commit_timestamp = on', 'fsync = off');

# Runs pgbench scripts ({ name => text }, a name may end in @weight) by 16 sessions at once
sub race
{
	my ($what, %scripts) = @_;
	my @files;

	foreach my $name (sort keys %scripts)
	{
		my ($file, $weight) = split /@/, $name;
		my $path = PostgreSQL::Test::Utils::tempdir() . "/$file.sql";

		PostgreSQL::Test::Utils::append_to_file($path, $scripts{$name});
		push @files, '-f', $weight ? "$path\@$weight" : $path;
	}
	$node->command_like(
		[ 'pgbench', '-n', '-c', 16, '-j', 2, '-T', $seconds, @files, 'postgres' ],
		qr/number of failed transactions: 0 /, "$what: no session met a conflict or another error");
}

# Starts sessions that run one statement over and over, whose commits may fail, which would
# end one of pgbench, after another one if given; writers_errors waits for them, and returns the
# kinds of their errors
my @writers;
my $writes = PostgreSQL::Test::Utils::tempdir() . '/write';

sub start_writers
{
	my ($name, $sql, $before) = @_;

	PostgreSQL::Test::Utils::append_to_file("$writes.$name.sql", ($before // '') . $sql x 1000);
	@writers = map {
		IPC::Run::start([ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-f', "$writes.$name.sql" ],
			'<' => \undef, '>' => '/dev/null', '2>' => "$writes.$name.$_.err")
	} 1 .. 8;
	return;
}

sub writers_errors
{
	my ($name) = @_;

	is(scalar(grep { !$_->finish } @writers), 0, "$name: the writers came to their end");
	my $errors = join '', map { PostgreSQL::Test::Utils::slurp_file("$writes.$name.$_.err") } 1 .. 8;
	my %messages = map { s/\d+/N/gr => 1 } $errors =~ /ERROR:\s+(.*)/g;

	return join '|', sort keys %messages;
}

sub query { return $node->safe_psql('postgres', $_[0]); }

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE data (job text, batch int);

-- one batch, with its result; whether it was ours
CREATE FUNCTION claim(job text, batch int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	o tw.outcome := tw.begin_batch(job, batch::text, 'f' || batch);
BEGIN
	IF o.status = 'started' THEN
		INSERT INTO data VALUES (job, batch);
		PERFORM tw.finish_batch(to_jsonb(batch));
	ELSIF o.result IS DISTINCT FROM to_jsonb(batch) THEN
		RAISE 'batch % gave %', batch, o;
	END IF;
	RETURN 1;
END $$;

CREATE FUNCTION forget(the_job text, the_batch int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tw.forget_batch(the_job, the_batch::text, 'race');
	DELETE FROM data WHERE job = the_job AND batch = the_batch;
	RETURN 1;
EXCEPTION WHEN SQLSTATE 'TW010' OR undefined_object THEN
	RETURN 0;
END $$;
SQL

my $same = q(SELECT count(*) FROM (SELECT job, batch::text FROM data) d
	FULL JOIN (SELECT job, batch_id FROM tw.ledger) l ON d.job = l.job AND d.batch = l.batch_id
	WHERE d.job IS NULL OR l.job IS NULL);
my $twice = 'SELECT count(*) FROM (SELECT FROM data GROUP BY job, batch HAVING count(*) > 1) d';

# Many batches, at all isolation levels, one in four rolled back; the job is made by whoever is first

race('claims', claims => <<'SQL');
\set batch random(1, 2000)
\set level random(1, 3)
\set end random(1, 4)
\if :level = 1
BEGIN ISOLATION LEVEL READ COMMITTED;
\elif :level = 2
BEGIN ISOLATION LEVEL REPEATABLE READ;
\else
BEGIN ISOLATION LEVEL SERIALIZABLE;
\endif
SELECT 1;
SELECT claim('claims', :batch);
\if :end = 1
ROLLBACK;
\else
COMMIT;
\endif
SQL
cmp_ok(query('SELECT count(*) FROM data'), '>', 100, 'claims: batches ran');
is(query($twice), 0, 'claims: none ran twice');
is(query($same), 0, 'claims: data and ledger say the same');

# A few batches that are mostly rolled back, and forgotten

race('forgetting', forget => <<'SQL');
\set batch random(1, 4)
\set forget random(1, 5)
\set end random(1, 6)
BEGIN;
\if :forget = 1
SELECT forget('forgetting', :batch);
\else
SELECT claim('forgetting', :batch);
\endif
\if :end = 1
COMMIT;
\else
ROLLBACK;
\endif
SQL
cmp_ok(query(q(SELECT count(*) FROM tw.audit_log WHERE job = 'forgetting')), '>', 20, 'forgetting: batches were forgotten');
is(query($twice), 0, 'forgetting: none is there twice');
is(query($same), 0, 'forgetting: data and ledger say the same');

# Versions, new ones and old ones, while the ledger is pruned all the time

$node->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE version;
CREATE TABLE versions (v bigint);
CREATE FUNCTION claim_version() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	v bigint := CASE WHEN random() < 0.5 THEN nextval('version')
		ELSE greatest((SELECT last_value FROM version) - floor(random() * 6), 1) END;
BEGIN
	IF (tw.begin_batch('versions', 'b' || v, version => v)).status = 'started' THEN
		INSERT INTO versions VALUES (v);
	END IF;
	IF random() < 0.3 THEN
		PERFORM pg_sleep(0.001);
	END IF;
	IF random() < 0.2 THEN
		RAISE SQLSTATE '75000';
	END IF;
	RETURN 1;
EXCEPTION WHEN SQLSTATE 'TW008' OR SQLSTATE '75000' THEN
	RETURN 0;
END $$;
SQL
start_writers('versions', "SELECT claim_version();\n");
race('pruning', prune => <<'SQL');
\sleep 2 ms
SELECT count(tw.prune_ledger(job, '0')) FROM tw.jobs WHERE job = 'versions';
SQL
like(writers_errors('versions'), qr/^(version N of job "versions" is out of order)?$/,
	'pruning: versions were overtaken at most');
cmp_ok(query('SELECT count(*) FROM versions'), '>', 100, 'pruning: versions ran');
is(query('SELECT count(*) - count(DISTINCT v) FROM versions'), 0, 'pruning: none ran twice');
is(query(q(SELECT count(*) FROM (SELECT v, lag(v) OVER (ORDER BY pg_xact_commit_timestamp(xmin), v) AS before FROM versions) AS _
	WHERE v < before)), 0, 'pruning: they were committed in order');

# Many that move one offset, at all isolation levels, one in four rolled back

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE moves (n int);
-- one that was there cannot vanish
CREATE FUNCTION move() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	n int := coalesce(tw.offset('moves', 'source', '0'), '0')::int;
	why text;
BEGIN
	PERFORM tw.commit_offset('moves', 'source', '0', nullif(n, 0)::text, (n + 1)::text);
	INSERT INTO moves VALUES (n + 1);
	RETURN n;
EXCEPTION WHEN SQLSTATE 'TW005' THEN
	GET STACKED DIAGNOSTICS why = PG_EXCEPTION_DETAIL;
	IF why LIKE 'It has no position%' THEN
		RAISE '%', why;
	END IF;
	RETURN NULL;
END $$;
SQL
race('offsets', moves => <<'SQL');
\set level random(1, 3)
\set end random(1, 4)
\if :level = 1
BEGIN ISOLATION LEVEL READ COMMITTED;
\elif :level = 2
BEGIN ISOLATION LEVEL REPEATABLE READ;
\else
BEGIN ISOLATION LEVEL SERIALIZABLE;
\endif
SELECT 1;
SELECT move();
\if :end = 1
ROLLBACK;
\else
COMMIT;
\endif
SQL
cmp_ok(query('SELECT count(*) FROM moves'), '>', 100, 'offsets: there were moves');
is(query(q(SELECT count(*) - count(DISTINCT n), count(*) - max(n), max(n) - tw.offset('moves', 'source', '0')::int FROM moves)),
	'0|0|0', 'offsets: each step was done once, and none left out');

# Writers that replace each other: what an epoch commits, it commits before the next is given out

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE epochs (epoch bigint, given boolean);
SELECT tw.create_job('fencing');
CREATE FUNCTION init() RETURNS int LANGUAGE sql AS
	$$INSERT INTO epochs VALUES (tw.init_producer('fencing'), true) RETURNING 1$$;
CREATE SEQUENCE fenced_batch;
SQL

# A writer is fenced for certain if it begins when the race has
my $when = "DO \$\$BEGIN WHILE NOT EXISTS (SELECT FROM epochs WHERE given) LOOP PERFORM pg_sleep(0.001); END LOOP; END\$\$;\n";
start_writers('fencing', <<'SQL', $when);
INSERT INTO epochs SELECT (o).epoch, false FROM (SELECT tw.begin_batch('fencing',
	nextval('fenced_batch')::text, epoch => epoch) FROM tw.jobs WHERE job = 'fencing') AS _ (o);
SQL
race('fencing', init => <<'SQL');
\set pause random(1, 20)
\sleep :pause ms
SELECT init();
SQL
is(writers_errors('fencing'), 'epoch N of job "fencing" has been replaced by a newer writer',
	'fencing: writers were fenced, and nothing else happened to them');
cmp_ok(query('SELECT count(*) FROM epochs WHERE NOT given'), '>', 100, 'fencing: batches committed');
is(query('SELECT count(*) - count(DISTINCT epoch) FROM epochs WHERE given'), 0,
	'fencing: no epoch was given out twice');
is(query(q(SELECT count(*) FROM epochs b JOIN epochs g ON g.given AND g.epoch = b.epoch + 1
	WHERE NOT b.given AND pg_xact_commit_timestamp(b.xmin) > pg_xact_commit_timestamp(g.xmin))), 0,
	'fencing: nobody committed after he was replaced');

$node->stop;
done_testing();
