# Logical replication of targets and ledger keeps a batch one transaction: a subscriber
# never sees one without the other.  Pruning and forgetting arrive as well, and when the
# subscriber takes over it knows what was done.  Staged batches arrive whole through row filters, a
# partition's root and PREPARE, and the applying of them is a writer as any other for conflict checks.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $publisher = new_server('publisher', 'wal_level = logical', 'max_prepared_transactions = 5');
my $subscriber = new_server('subscriber', 'wal_level = logical', 'max_prepared_transactions = 5');

$_->safe_psql('postgres', 'CREATE TABLE t (batch text, v int); CREATE ROLE loader; GRANT ALL ON t TO loader')
  foreach $publisher, $subscriber;
$publisher->safe_psql('postgres', q(
	SET ROLE loader;
	SELECT tw.begin_batch('load', 'before the subscription');
	RESET ROLE;
	CREATE PUBLICATION everything FOR ALL TABLES));
my $connection = $publisher->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION everything");
$subscriber->wait_for_subscription_sync($publisher, 's');
is($subscriber->safe_psql('postgres', 'SELECT job, owner FROM tw.jobs'), 'load|loader', 'jobs are copied, with their owners');
is($subscriber->safe_psql('postgres', 'SELECT batch_id FROM tw.ledger'), 'before the subscription', 'and the ledger');

# Batches of ten rows, an offset and a ledger entry run, one in four is rolled back; the
# subscriber is asked all the while whether the three agree

$publisher->safe_psql('postgres', q(
	CREATE FUNCTION load(n int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM tw.begin_batch('load', n::text);
		INSERT INTO t SELECT n::text, g FROM generate_series(1, 10) AS g;
		PERFORM tw.commit_offset('load', 'numbers', '0', tw.offset('load', 'numbers', '0'), n::text), tw.finish_batch(to_jsonb(n));
		IF n % 4 = 0 THEN
			RAISE SQLSTATE '75000';
		END IF;
		RETURN n;
	EXCEPTION WHEN SQLSTATE '75000' THEN
		RETURN 0;
	END $$;));
my $file = PostgreSQL::Test::Utils::tempdir() . '/load.sql';
append_to_file($file, join '', map { "SET ROLE loader; SELECT load($_); SELECT pg_sleep(0.005);\n" } 1 .. 400);
my $load = IPC::Run::start([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $connection, '-f', $file ],
	'<' => \undef, '>' => '/dev/null', '2>' => '/dev/null');
my (%seen, @torn);
foreach my $look (1 .. 2000)
{
	my $state = $subscriber->safe_psql('postgres', q(
		SELECT (SELECT count(*) FROM t), (SELECT count(*) * 10 FROM tw.ledger WHERE result IS NOT NULL),
			(SELECT max(batch::int) FROM t) = (SELECT "position"::int FROM tw.offsets)));

	$seen{$state}++;
	push @torn, $state unless $state =~ /^(\d+)\|\1\|t?$/;
	last if $state =~ /^3000\|/;
}
$load->finish;
$publisher->wait_for_catchup('s');
note scalar(keys %seen), ' states seen';
cmp_ok(scalar keys %seen, '>', 2, 'the subscriber was seen at several batches');
is_deeply(\@torn, [], 'and always had a batch\'s rows, offset and ledger entry, or none');
is($subscriber->safe_psql('postgres', q(SELECT count(*) FROM tw.ledger WHERE result IS NOT NULL)), '300', 'all are there in the end');

# What changes later

$publisher->safe_psql('postgres', q(
	CALL tw.run('BEGIN ATOMIC END', '{}', 'load', 'one more');
	SELECT tw.forget_batch('load', '1', 'why');
	SELECT tw.init_producer('load', 'host a');
	INSERT INTO tw.failure VALUES ('load', 'f', 1, '40001', 'old', 1, now() - interval '2 days', 'loader'),
		('load', 'f', 1, '40001', 'new', 1, now(), 'loader');
	UPDATE tw.batch SET started_at = started_at - interval '2 days' WHERE batch_id::text ~ '^\d\d?$';
	SELECT tw.prune_ledger('load', '1 day');));
$publisher->wait_for_catchup('s');
my $everything = q(
	SELECT 'batch', md5(string_agg(to_jsonb(x)::text, '' ORDER BY to_jsonb(x)::text)) FROM tw.batch x
	UNION ALL SELECT 'outcome', md5(string_agg(to_jsonb(x)::text, '' ORDER BY to_jsonb(x)::text)) FROM tw.batch_outcome x
	UNION ALL SELECT 'failure', string_agg(to_jsonb(x)::text, '' ORDER BY to_jsonb(x)::text) FROM tw.failure x
	UNION ALL SELECT 'audit', string_agg(to_jsonb(x)::text, '' ORDER BY to_jsonb(x)::text) FROM tw.audit x
	UNION ALL SELECT 'job', string_agg(to_jsonb(x)::text, '' ORDER BY to_jsonb(x)::text) FROM tw.job x
	UNION ALL SELECT 'offset', string_agg(to_jsonb(x)::text, '' ORDER BY to_jsonb(x)::text) FROM tw.source_offset x);
is($subscriber->safe_psql('postgres', $everything), $publisher->safe_psql('postgres', $everything),
	'pruning, forgetting, moving epochs and failures arrive');
is($subscriber->safe_psql('postgres', 'SELECT message FROM tw.failure'), 'new', 'also in the table without a key');

# ---------- staged batches, in a database of their own ----------

# What the publisher has as a partitioned table is a plain one on the subscriber, which also has
# one region's rows only
$_->safe_psql('postgres', 'CREATE DATABASE staged') foreach $publisher, $subscriber;
my $common = q(
	CREATE EXTENSION transactional_writer;
	CREATE TABLE m (k int PRIMARY KEY, region text, v text);
	ALTER TABLE m REPLICA IDENTITY FULL;
	CREATE TABLE bare (k int, v int);
	CREATE UNIQUE INDEX ON bare (k););
$publisher->safe_psql('staged', $common . q(
	CREATE TABLE p (day int, v int, PRIMARY KEY (day, v)) PARTITION BY LIST (day);
	CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
	CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
	CREATE PUBLICATION staged FOR TABLE m WHERE (region = 'eu'), TABLE bare, TABLE p, TABLE tw.job, TABLE tw.batch, TABLE tw.batch_outcome,
		TABLE tw.source_offset, TABLE tw.failure, TABLE tw.audit WITH (publish_via_partition_root = true)));
$subscriber->safe_psql('staged', $common . 'CREATE TABLE p (day int, v int, PRIMARY KEY (day, v))');
my $staged = $publisher->connstr . ' dbname=staged';
$subscriber->safe_psql('staged', "CREATE SUBSCRIPTION staged CONNECTION '$staged' PUBLICATION staged WITH (two_phase = true)");
$subscriber->wait_for_subscription_sync($publisher, 'staged', 'staged');

# Stages rows for targets, given as name => [ options, rows, ... ], as one task
sub stage
{
	my ($batch, %targets) = @_;
	my $options = join ', ', map { qq({"table": "$_", $targets{$_}[0]}) } sort keys %targets;
	my $schema = $publisher->safe_psql('staged', qq(SELECT schema FROM tw.open_batch('s', '$batch', '[$options]')));
	my $load = join ' ', map { my $t = $_; map { "INSERT INTO $schema.$t VALUES ($_);" } @{ $targets{$t} }[ 1 .. $#{ $targets{$t} } ] } sort keys %targets;

	$publisher->safe_psql('staged', "BEGIN; SELECT tw.attach_task('s', '$batch', 'one'); $load SELECT tw.commit_task(); COMMIT");
	return;
}

sub publish { return $publisher->safe_psql('staged', "SELECT string_agg(o ->> 'command', ' ') FROM tw.publish('s', '$_[0]') AS x, jsonb_array_elements(x.operations) AS o"); }

# What the subscriber has: rows of both tables, and batches
sub there
{
	$publisher->wait_for_catchup('staged');
	return $subscriber->safe_psql('staged', q(
		SELECT (SELECT string_agg(k || v, ' ' ORDER BY k) FROM m), (SELECT string_agg(day || ':' || v, ' ' ORDER BY day, v) FROM p),
			(SELECT string_agg(k || ':' || v, ' ' ORDER BY k) FROM bare), (SELECT string_agg(batch_id, ' ' ORDER BY batch_id) FROM tw.ledger)));
}

stage(1, m => [ '"mode": "merge"', "1, 'eu', 'a'", "2, 'us', 'b'", "3, 'eu', 'c'", "4, 'eu', 'd'" ],
	p => [ '"mode": "append"', '1, 10', '2, 20' ], bare => [ '"mode": "append"', '1, 1' ]);
is(publish(1), 'INSERT MERGE INSERT', 'a publish, which swaps nothing where somebody decodes');
is(there(), '1a 3c 4d|1:10 2:20|1:1|1', 'arrives: rows that the filter lets through, and the partitions as one table');

stage(2, m => [ '"mode": "merge", "delete_when": "v = ' . "''" . 'gone' . "''" . '"', "1, 'us', 'a'", "2, 'eu', 'b'", "3, 'eu', 'C'", "4, 'eu', 'gone'" ],
	p => [ '"mode": "overwrite", "where": "day = 1"', '1, 11', '1, 12' ]);
is(publish(2), 'DELETE MERGE MERGE', 'rows that move into and out of the filter, and a part that is overwritten');
is(there(), '2b 3C|1:11 1:12 2:20|1:1|1 2', 'arrive');

# Without a replica identity PostgreSQL refuses the update, here and not on the subscriber
stage(3, m => [ '"mode": "merge"', "5, 'eu', 'e'" ], bare => [ '"mode": "merge", "key": ["k"]', '1, 2', '2, 2' ]);
is(sqlstate($publisher, q(SELECT tw.publish('s', '3')), dbname => 'staged'), '55000', 'a merge into a table without a replica identity is refused');
is(there(), '2b 3C|1:11 1:12 2:20|1:1|1 2', 'and nothing of it arrives');
$publisher->safe_psql('staged', 'ALTER TABLE bare REPLICA IDENTITY FULL');
publish(3);
is(there(), '2b 3C 5e|1:11 1:12 2:20|1:2 2:2|1 2 3', 'with one, all of the same batch does');

# In two phases, which the subscription comes to when all its tables have been copied
$subscriber->poll_query_until('staged', q(SELECT subtwophasestate = 'e' FROM pg_subscription WHERE subname = 'staged')) or die 'two_phase stays pending';
stage(4, m => [ '"mode": "overwrite"', "6, 'eu', 'f'" ], p => [ '"mode": "overwrite"', '2, 21' ]);
$publisher->safe_psql('staged', q(BEGIN; SELECT tw.publish('s', '4'); PREPARE TRANSACTION 'publish'));
is(there(), '2b 3C 5e|1:11 1:12 2:20|1:2 2:2|1 2 3', 'a publish that is prepared does not show');
is($subscriber->safe_psql('staged', 'SELECT count(*) FROM pg_prepared_xacts'), '1', 'though it has arrived');
is($publisher->safe_psql('staged', q(CALL tw.commit_prepared('publish'))), 'committed', 'until it is committed');
is(there(), '6f|2:21|1:2 2:2|1 2 3 4', 'then it is there, ledger and all');
is($subscriber->safe_psql('staged', q(SELECT status FROM tw.publish('s', '4'))), 'already_committed', 'and known');

# Whoever reads on the subscriber meets the applying as any other writer
foreach my $mode (qw(row predicate))
{
	my ($in, $out, $err) = ("BEGIN; SELECT tw.track_reads('$mode'); SELECT v FROM m WHERE k = 6; INSERT INTO reader VALUES ('$mode');\n\\echo ready\n", '', '');
	my $reader;

	$subscriber->safe_psql('staged', 'CREATE TABLE IF NOT EXISTS reader (mode text)');
	$reader = IPC::Run::start([ 'psql', '-XqAt', '-v', 'VERBOSITY=sqlstate', '-d', $subscriber->connstr('staged') ],
		'<' => \$in, '>' => \$out, '2>' => \$err, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	$reader->pump until $out =~ /^ready$/m;
	stage("5 $mode", m => [ '"mode": "merge"', "6, 'eu', '$mode'" ]);
	publish("5 $mode");
	like(there(), qr/^6$mode\|/, "while somebody reads, mode $mode, a publish is applied");
	$in .= "COMMIT;\n";
	$reader->finish;
	like($err, qr/ERROR:\s+40001/, 'and he has read what does not hold any more');
}
is($subscriber->safe_psql('staged', 'SELECT count(*) FROM reader'), '0', 'so he has done nothing');

# The subscriber takes over

$publisher->stop('immediate');
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
is($subscriber->safe_psql('postgres', q(SET ROLE loader; SELECT status, result FROM tw.begin_batch('load', '399', epoch => 1))),
	'already_committed|399', 'a subscriber that takes over knows a replay');
is($subscriber->safe_psql('postgres', q(SET ROLE loader; SELECT tw.offset('load', 'numbers', '0'))), '399', 'and the offsets');
is($subscriber->safe_psql('postgres', q(SET ROLE loader; SELECT status FROM tw.begin_batch('load', '400', epoch => 1))),
	'started', 'and runs what was not done');
is(sqlstate($subscriber, q(SET ROLE loader; SELECT tw.begin_batch('load', '401', epoch => 0))), 'TW001', 'with the epoch of its writer');

done_testing();
