# On a physical standby the ledger can be read, and a batch gets the server's own
# read-only error; after promotion a replay is known.  A primary that dies in the middle
# of batches loses none that was acknowledged, and the others run on the new one, once.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $primary = new_server('primary', 'max_prepared_transactions = 10');
my $standby = PostgreSQL::Test::Cluster->new('standby');
my $batch = q(SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (1); END', '{}', 'load', 'first'));

$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', "CREATE TABLE t (v int); $batch; SELECT tw.commit_offset('load', 's', '0', NULL, '1')");
$primary->wait_for_catchup($standby);

is($standby->safe_psql('postgres', 'SELECT job, batch_id, rows FROM tw.ledger'),
	'load|first|1', 'a standby shows the ledger');
is($standby->safe_psql('postgres', 'SELECT job FROM tw.jobs'), 'load', 'and the jobs');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM tw.failures'), '0', 'and the failures');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM tw.in_doubt'), '0', 'and that nothing is in doubt');
is(sqlstate($standby, q(CALL tw.commit_prepared('gid'))), '25006', 'nothing prepared can be committed there');
is($standby->safe_psql('postgres', 'SELECT job, source, partition, "position" FROM tw.offsets'), 'load|s|0|1', 'and the offsets');
is($standby->safe_psql('postgres', q(SELECT tw.offset('load', 's', '0'))), '1', 'by function as well');
is($standby->safe_psql('postgres', q(SELECT tw.offset('nope', 's', '0') IS NULL)), 't', 'also where there is none');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM tw.audit_log'), '0', 'and the audit log');
is(sqlstate($standby, "SELECT $_"), '25006', "$_ gets the read-only error")
  foreach q(tw.commit_offset('load', 's', '0', '1', '2')), q(tw.init_producer('load')), q(tw.create_job('j')),
  q(tw.forget_batch('load', 'first', 'why')), q(tw.prune_ledger('load', '0')), q(tw.reassign_job('load', 'postgres')),
  q(tw.finish_batch());
is(sqlstate($standby, q(SELECT tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (1); END'))),
	'25006', 'a block that writes gets the read-only error');
is(sqlstate($standby, q(SELECT tw.atomic('BEGIN ATOMIC RETURN 1; END', '{}', 'load', 'second'))),
	'25006', 'a new batch too');
is(sqlstate($standby, q(SELECT tw.begin_batch('load', 'second'))), '25006', 'without a block too');
is(sqlstate($standby, q(SELECT tw.begin_batch('load', 'first'))), '25006', 'and one that is committed');
is(sqlstate($standby, q(CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (1); END', '{}', 'load', 'second'))),
	'25006', 'and by CALL');
is($standby->safe_psql('postgres', q(SELECT result FROM tw.atomic('BEGIN ATOMIC RETURN (SELECT sum(v) FROM t); END'))),
	'1', 'a block that only reads runs');

# The primary dies in the middle of a batch.  One is open, one is prepared, and several
# sessions run one batch after another; the standby is synchronous, so that what was
# acknowledged is there.
$primary->safe_psql('postgres', q(
	CREATE TABLE acked (batch text);
	SELECT tw.init_producer('open', 'old primary');
	SELECT tw.create_job('prepared');
	ALTER SYSTEM SET synchronous_standby_names = '*';
	SELECT pg_reload_conf();));
$primary->poll_query_until('postgres', q(SELECT sync_state = 'sync' FROM pg_stat_replication)) or die 'no synchronous standby';
my $prepared = q(
	BEGIN;
	SELECT tw.begin_batch('prepared', 'p');
	INSERT INTO t VALUES (2);
	SELECT tw.finish_batch('"prepared"');
	SELECT tw.commit_offset('prepared', 's', '0', NULL, '10');
	PREPARE TRANSACTION 'in doubt';);
$primary->safe_psql('postgres', $prepared);

my $open = q(
	BEGIN;
	SELECT status FROM tw.begin_batch('open', 'o', epoch => 1);
	INSERT INTO t VALUES (3);
	SELECT tw.commit_offset('open', 's', '0', NULL, '10'););
my $session = background($primary, "$open SELECT pg_sleep(60); COMMIT");
in_sleep($primary);

# One batch a statement, as a client does that waits for each answer
my @writers;
my $dir = PostgreSQL::Test::Utils::tempdir();
foreach my $writer (1 .. 4)
{
	append_to_file("$dir/$writer.sql", join '', map {
		qq(SELECT '$writer/$_', status FROM tw.atomic('BEGIN ATOMIC INSERT INTO acked VALUES (:b); END', '{"b": "$writer/$_"}', 'acked', '$writer/$_');\n)
	} 1 .. 20000);
	push @writers, IPC::Run::start(
		[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $primary->connstr('postgres'), '-f', "$dir/$writer.sql" ],
		'<' => \undef, '>' => "$dir/$writer.out", '2>' => '/dev/null');
}
$primary->poll_query_until('postgres', 'SELECT count(*) > 300 FROM acked') or die 'the writers do not write';
$primary->stop('immediate');
$session->finish;
$_->finish foreach @writers;

$standby->promote;
is($standby->safe_psql('postgres', $batch), 'already_committed', 'after promotion a replay is known');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t WHERE v = 1'), '1', 'and does nothing');

# Acknowledged ones are known, of the others each runs once
my (%answers, $lost, $last, $acked);
foreach my $writer (1 .. 4)
{
	my @acked = map { /^(.*)\|applied$/ ? $1 : () } split /\n/, slurp_file("$dir/$writer.out");
	my $next = scalar @acked;

	$acked += $next;
	# What was acknowledged, and three after it, of which one was under way
	append_to_file("$dir/$writer.again.sql", join '', (split /^/m, slurp_file("$dir/$writer.sql"))[ 0 .. $next + 2 ]);
	my $again = $standby->safe_psql('postgres', slurp_file("$dir/$writer.again.sql"));
	my @again = map { (split /\|/)[1] } split /\n/, $again;

	$lost += grep { $_ ne 'already_committed' } @again[ 0 .. $next - 1 ];
	$last .= " $again[$next] $again[$next + 1] $again[$next + 2]";
	$answers{$_}++ foreach @again;
}
note join(', ', map { "$_: $answers{$_}" } sort keys %answers), "; the last ones:$last";
cmp_ok($acked, '>', 200, 'batches were acknowledged');
is($lost, 0, 'and none of them is lost');
is_deeply([ grep { !/^(applied|already_committed)$/ } keys %answers ], [], 'and every batch is answered');
is($standby->safe_psql('postgres', q(
	SELECT count(*) - count(DISTINCT batch), count(*) - (SELECT count(*) FROM tw.ledger WHERE job = 'acked') FROM acked)),
	'0|0', 'each is there once, in data and ledger');

is($standby->safe_psql('postgres', q(SELECT count(*) FROM t WHERE v = 3)), '0', 'the open batch has left nothing');
is($standby->safe_psql('postgres', q(SELECT count(*) FROM tw.ledger WHERE job = 'open')), '0', 'nor in the ledger');
is($standby->safe_psql('postgres', q(SELECT tw.offset('open', 's', '0') IS NULL)), 't', 'nor its offset');
is($standby->safe_psql('postgres', q(SELECT tw.init_producer('open', 'new primary'))), '2', 'a new writer takes over');
is(sqlstate($standby, $open), 'TW001', 'the old one is fenced there too');
is($standby->safe_psql('postgres', $open =~ s/epoch => 1/epoch => 2/r . 'COMMIT; SELECT count(*) FROM t WHERE v = 3'),
	"started\n\n1", 'and the batch runs once');

# The prepared one is still in doubt, and decided on the new primary
is(sqlstate($standby, q(SET transactional_writer.claim_wait = off; SELECT tw.begin_batch('prepared', 'p'))), 'TW003',
	'a prepared batch is in doubt after promotion');
$standby->safe_psql('postgres', q(COMMIT PREPARED 'in doubt'));
is($standby->safe_psql('postgres', q(SELECT status, result FROM tw.begin_batch('prepared', 'p'))), 'already_committed|"prepared"',
	'and known when it is committed');
is($standby->safe_psql('postgres', q(SELECT tw.offset('prepared', 's', '0'), count(*) FROM t WHERE v = 2)), '10|1', 'with its data');

done_testing();
