# Logical replication of targets and ledger keeps a batch one transaction: a subscriber
# never sees one without the other.  Pruning and forgetting arrive as well, and when the
# subscriber takes over it knows what was done.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $publisher = new_server('publisher', 'wal_level = logical');
my $subscriber = new_server('subscriber', 'wal_level = logical');

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
