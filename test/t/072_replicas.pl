# Replicas.  A standby that is read all the time while batches are published never shows a
# part of one; a subscriber gets each as one transaction; and when the standby is promoted in
# the middle of every way to write, clients that ask again find each batch done once or not
# at all.  With a synchronous standby nothing acknowledged is lost; without, what is lost is lost
# whole, and the source's offset says from where to send it again.
#
# (003_standby.pl and 005_logical.pl have what a batch in one transaction does there.)
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $primary = new_server('primary', 'max_prepared_transactions = 10', 'max_connections = 50', 'autovacuum = off');
my $version = $primary->safe_psql('postgres', 'SHOW server_version_num');

# Targets of all kinds.  Batch n leaves: account all of n, log 10 rows more, part of the day
# overwritten by n, all of that in one publish, with the offset and the ledger.
my $tables = <<'SQL';
CREATE TABLE account (id int PRIMARY KEY, batch int);
CREATE TABLE log (batch int, i int);
CREATE TABLE known (id int PRIMARY KEY, batch int);
CREATE TABLE whole (i int, batch int);
CREATE TABLE day (day int, i int, batch int) PARTITION BY RANGE (day);
CREATE TABLE day_1 PARTITION OF day FOR VALUES FROM (1) TO (2);
CREATE TABLE day_2 PARTITION OF day FOR VALUES FROM (2) TO (3);
SQL
my $targets = <<'JSON' =~ s/\n//gr;
[{"table": "account", "mode": "merge"}, {"table": "log", "mode": "append"}, {"table": "known", "mode": "insert_new"},
 {"table": "whole", "mode": "overwrite"}, {"table": "day", "mode": "overwrite", "where": "day >= 2 AND day < 3", "swap": SWAP}]
JSON
my $load = <<'SQL';
CREATE FUNCTION load_task(job text, n int, task text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	s text[];
	state text;
BEGIN
	SELECT array_agg(staging::text), min(status) INTO s, state FROM tw.attach_task(job, n::text, task);
	IF state = 'attached' THEN
		EXECUTE format('INSERT INTO %s SELECT id, %s FROM generate_series(1 + %s, 10, 2) id', s[1], n, task);
		EXECUTE format('INSERT INTO %s SELECT %s, i FROM generate_series(1, 5) i', s[2], n);
		EXECUTE format('INSERT INTO %s SELECT %s * 10 + id, %2$s FROM generate_series(%s * 5, %3$s * 5 + 4) id', s[3], n, task);
		EXECUTE format('INSERT INTO %s SELECT i, %s FROM generate_series(1, 5) i', s[4], n);
		EXECUTE format('INSERT INTO %s SELECT 2, i, %s FROM generate_series(1, 5) i', s[5], n);
		PERFORM tw.commit_task();
	END IF;
	RETURN state;
END $$;
SQL

# The statements that a driver sends for batch n, each a transaction
sub staged
{
	my ($job, $n, $swap, $logged) = @_;

	return (qq(SELECT status FROM tw.open_batch('$job', '$n', '@{[ $targets =~ s/SWAP/$swap/r ]}', 2, logged => $logged)),
		"SELECT load_task('$job', $n, '0')", "SELECT load_task('$job', $n, '1')",
		"BEGIN; SELECT status, rows FROM tw.publish('$job', '$n'); SELECT tw.commit_offset('$job', 's', '0', nullif(@{[ $n - 1 ]}, 0)::text, '$n'); COMMIT");
}

# What is seen at once: one number, or what differs
my $state = <<'SQL' =~ s/\n/ /gr;
SELECT CASE WHEN l = 10 * o AND k = 10 * o AND b = o
		AND (o = 0 OR (amin = o AND amax = o AND a = 10 AND wmin = o AND wmax = o AND w = 10 AND dmin = o AND dmax = o AND d = 10))
	THEN o::text ELSE s::text END
FROM (SELECT (SELECT coalesce(max("position"::int), 0) FROM tw.offsets WHERE job = 'JOB') AS o,
	(SELECT count(*) FROM tw.ledger WHERE job = 'JOB') AS b,
	(SELECT count(*) FROM log) AS l, (SELECT count(*) FROM known) AS k,
	(SELECT min(batch) FROM account) AS amin, (SELECT max(batch) FROM account) AS amax, (SELECT count(*) FROM account) AS a,
	(SELECT min(batch) FROM whole) AS wmin, (SELECT max(batch) FROM whole) AS wmax, (SELECT count(*) FROM whole) AS w,
	(SELECT min(batch) FROM day) AS dmin, (SELECT max(batch) FROM day) AS dmax, (SELECT count(*) FROM day WHERE day = 2) AS d) s;
SQL

# Asks for the state all the time until told to stop
sub poller
{
	my ($node, $name, $setup) = @_;
	my $file = "$dir/$name.sql";

	append_to_file($file, $setup . "\n" . join('', map { $state =~ s/JOB/staged/gr . "\n" } 1 .. 200000));
	return {
		node => $node,
		name => $name,
		psql => IPC::Run::start(
			[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') . " application_name=$name", '-f', $file ],
			'<' => \undef, '>' => "$dir/$name.out", '2>' => "$dir/$name.err") };
}

sub end_poller
{
	my ($poller) = @_;

	is($poller->{node}->safe_psql('postgres', "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '$poller->{name}'"),
		1, "$poller->{name} was read to the end");
	eval { $poller->{psql}->finish };
	my @seen = split /\n/, slurp_file("$dir/$poller->{name}.out");
	my %seen = map { $_ => 1 } @seen;
	my @torn = grep { !/^\d+$/ } keys %seen;
	my $backwards = grep { $seen[ $_ - 1 ] =~ /^\d+$/ && $seen[$_] =~ /^\d+$/ && $seen[ $_ - 1 ] > $seen[$_] } 1 .. $#seen;

	note "$poller->{name}: ", scalar @seen, ' looks, ', scalar keys %seen, ' states';
	cmp_ok(scalar keys %seen, '>', 5, "$poller->{name} was seen at several batches");
	is_deeply(\@torn, [], "$poller->{name} never showed a part of a batch");
	is($backwards, 0, "$poller->{name} never went back");
	like(slurp_file("$dir/$poller->{name}.err"), qr/^(?:(?!ERROR).)*(?:FATAL:  terminating connection due to administrator command|$)/s, "$poller->{name} had no error");
}

$primary->safe_psql('postgres', $tables . $load);
$primary->backup('base');

# ---------- a standby that is read ----------

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = 60s');
$standby->start;

my $poller = poller($standby, 'standby_reader', '');
my $n = 0;
foreach my $round (1 .. 30)
{
	$n++;
	$primary->safe_psql('postgres', $_) foreach staged('staged', $n, $n % 2 ? 'true' : 'false', 'false');
}
$primary->wait_for_catchup($standby, 'replay');
end_poller($poller);
my $swaps = $primary->safe_psql('postgres', q(SELECT count(*) FROM tw.ledger, jsonb_array_elements(operations) o WHERE o->>'command' = 'SWAP PARTITIONS'));
cmp_ok($swaps, '>', 10, "partitions were swapped ($swaps)");
is($standby->safe_psql('postgres', $state =~ s/JOB/staged/gr), $n, 'and the standby has them all');

# A snapshot of the standby that lies between two tasks must not come to a swapped partition
foreach my $case ('in a transaction', 'in a query')
{
	my @statements = staged('staged', ++$n, 'true', 'false');
	my $out = '';
	my $err = '';

	$primary->safe_psql('postgres', $_) foreach @statements[ 0, 1 ];
	$primary->wait_for_catchup($standby, 'replay');
	$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = 100ms');
	$standby->reload;
	my $look = q(SELECT string_agg(DISTINCT batch || '*' || n, ' ') FROM (SELECT batch, count(*) AS n FROM day GROUP BY 1) s;);
	my $sql = $case eq 'in a query' ?
	  q(SELECT pg_sleep(60), (SELECT string_agg(DISTINCT batch::text, ' ') FROM day);) :
	  qq(BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM account; SELECT pg_sleep(60); $look COMMIT;);
	append_to_file("$dir/old $case.sql", $sql . "\n");
	my $reader = IPC::Run::start([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose', '-d', $standby->connstr('postgres'), '-f', "$dir/old $case.sql" ],
		'<' => \undef, '>' => \$out, '2>' => \$err);
	in_sleep($standby);
	$primary->safe_psql('postgres', $_) foreach @statements[ 2, 3 ];
	eval { $reader->finish };
	my $swapped = $primary->safe_psql('postgres', qq(SELECT operations::text LIKE '%SWAP%' FROM tw.ledger WHERE batch_id = '$n'));

	is($swapped, 't', "the partition was swapped while a standby had an old snapshot, $case");
	like($err, qr/(?:ERROR|FATAL):  40001: .*conflict with recovery/, "which ends with 40001, $case");
	unlike($out, qr/\b$n\*5\b/, "and has not shown half of the partition, $case");
}
$primary->wait_for_catchup($standby, 'replay');
is($standby->safe_psql('postgres', $state =~ s/JOB/staged/gr), $n, 'the standby is whole again');

# ---------- fail-over in the middle of everything, synchronous ----------

$primary->safe_psql('postgres', q(ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()));
$primary->poll_query_until('postgres', q(SELECT sync_state = 'sync' FROM pg_stat_replication)) or die 'no synchronous standby';

$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE t (path text, v int);
CREATE TABLE staged_t (path text, v int);
CREATE FUNCTION slow() RETURNS boolean LANGUAGE sql AS
  $$SELECT pg_sleep(CASE WHEN current_setting('application_name') = 'first' THEN 600 ELSE 0 END) IS NOT NULL$$;
CREATE FUNCTION load_t(job text, task text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	s text;
	state text;
BEGIN
	SELECT staging, status INTO s, state FROM tw.attach_task(job, 'b', task);
	IF state = 'attached' THEN
		EXECUTE format('INSERT INTO %s VALUES (%L, %s)', s, job, task);
		PERFORM tw.commit_task();
	END IF;
	RETURN state;
END $$;
SQL

# path => the statements of its client; slow() is where it is when the
# primary dies.  Then the client connects to the new primary and sends them all again.
my $open = q(SELECT status FROM tw.open_batch('%s', 'b', '[{"table": "staged_t", "mode": "append"}]', 2, logged => %s));
my @paths = (
	[ 'atomic', q(SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (''atomic'', 1); SELECT slow(); END', '{}', 'atomic', 'b')) ],
	[ 'run', q(CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (''run'', 1); SELECT slow(); END', '{}', 'run', 'b')) ],
	[ 'chunks', q(CALL tw.run_chunks('chunks', 'b', 'BEGIN ATOMIC INSERT INTO t SELECT ''chunks'', n FROM generate_series(:chunk_from::int, :chunk_to::int) n; IF :chunk_from::int = 7 THEN SELECT slow(); END IF; END', 1, 10, 3)) ],
	[ 'plain', q(BEGIN; SELECT status FROM tw.begin_batch('plain', 'b'); INSERT INTO t VALUES ('plain', 1); SELECT tw.commit_offset('plain', 's', '0', NULL, '7'); SLEEP COMMIT) ],
	[ 'open', sprintf($open, 'open', 'false') =~ s/^/BEGIN; /r . '; SLEEP COMMIT', "SELECT load_t('open', '0')", "SELECT load_t('open', '1')", "SELECT status FROM tw.publish('open', 'b')" ],
	[ 'attach', sprintf($open, 'attach', 'true'), "SELECT load_t('attach', '0')",
		q(BEGIN; SELECT * FROM tw.attach_task('attach', 'b', '1'); SLEEP COMMIT), "SELECT load_t('attach', '1')", "SELECT status FROM tw.publish('attach', 'b')" ],
	[ 'commit_task', sprintf($open, 'commit_task', 'true'), "SELECT load_t('commit_task', '0')",
		"BEGIN; SELECT load_t('commit_task', '1'); SLEEP COMMIT", "SELECT status FROM tw.publish('commit_task', 'b')" ],
	[ 'publish', sprintf($open, 'publish', 'true'), "SELECT load_t('publish', '0')", "SELECT load_t('publish', '1')",
		q(BEGIN; SELECT status FROM tw.publish('publish', 'b'); SELECT tw.commit_offset('publish', 's', '0', NULL, '7'); SLEEP COMMIT) ],
	[ 'unlogged', sprintf($open, 'unlogged', 'false'), "SELECT load_t('unlogged', '0')", "SELECT load_t('unlogged', '1')",
		q(BEGIN; SELECT status FROM tw.publish('unlogged', 'b'); SLEEP COMMIT) ],
	[ 'prepare', q(BEGIN; SELECT status FROM tw.begin_batch('prepared', 'middle', epoch => 1); INSERT INTO t VALUES ('prepared middle', 1);
		SELECT tw.prepare_batch('prepared', 'middle') AS gid \gset) . qq(\nSLEEP PREPARE TRANSACTION :'gid') ]);

# The commit is on the standby, and its client never hears of it: what comes after WAIT waits
# for a standby that has received and does not apply.
my @unheard = (
	[ 'c_atomic', q(WAIT SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (''c_atomic'', 1); END', '{}', 'c_atomic', 'b')) ],
	[ 'c_run', q(WAIT CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (''c_run'', 1); END', '{}', 'c_run', 'b')) ],
	[ 'c_chunks', q(CALL tw.run_chunks('c_chunks', 'b', 'BEGIN ATOMIC INSERT INTO t SELECT ''c_chunks'', n FROM generate_series(:chunk_from::int, :chunk_to::int) n;
		IF :chunk_from::int = 4 THEN SELECT set_config(''synchronous_commit'', ''remote_apply'', true); END IF; END', 1, 10, 3)) ],
	[ 'c_plain', q(WAIT BEGIN; SELECT status FROM tw.begin_batch('c_plain', 'b') \gset) . q(
\if `test :status = started && echo true || echo false`
INSERT INTO t VALUES ('c_plain', 1); SELECT tw.commit_offset('c_plain', 's', '0', NULL, '7');
\endif
COMMIT; SELECT :'status') ],
	[ 'c_open', 'WAIT ' . sprintf($open, 'c_open', 'true'), "SELECT load_t('c_open', '0')", "SELECT load_t('c_open', '1')", "SELECT status FROM tw.publish('c_open', 'b')" ],
	[ 'c_task', sprintf($open, 'c_task', 'true'), "SELECT load_t('c_task', '0')", "WAIT SELECT load_t('c_task', '1')", "SELECT status FROM tw.publish('c_task', 'b')" ],
	[ 'c_publish', sprintf($open, 'c_publish', 'true'), "SELECT load_t('c_publish', '0')", "SELECT load_t('c_publish', '1')", "WAIT SELECT status FROM tw.publish('c_publish', 'b')" ],
	[ 'c_decide', q(WAIT CALL tw.commit_prepared(:'gid')) ]);
my @clients;

# A client that runs the statements of a path up to where it is when its server dies
sub first_client
{
	my ($name, $sql) = @_;

	append_to_file("$dir/$name.first.sql", $sql);
	push @clients, IPC::Run::start([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $primary->connstr('postgres') . ' application_name=first', '-f', "$dir/$name.first.sql" ],
		'<' => \undef, '>' => "$dir/$name.first.out", '2>' => "$dir/$name.first.err");
}

sub all_in
{
	my ($event, @of) = @_;

	$primary->poll_query_until('postgres', "SELECT count(*) = @{[ scalar @of ]} FROM pg_stat_activity WHERE wait_event = '$event'")
	  or die 'not every client came to its middle: ' . join(' ', map { slurp_file("$dir/$_->[0].first.err") } @of);
}

# Two-phase: prepared, one is to be committed and one not; one is committed on the primary, and
# of one its coordinator does not hear that it is
$primary->safe_psql('postgres', q(SELECT tw.init_producer('prepared', 'coordinator')));
$primary->safe_psql('postgres', <<"SQL") foreach 'yes', 'no', 'done', 'unheard';
BEGIN;
SELECT tw.begin_batch('prepared', '$_', epoch => 1);
INSERT INTO t VALUES ('prepared $_', 1);
SELECT tw.commit_offset('prepared', '$_', '0', NULL, '7');
SELECT tw.prepare_batch('prepared', '$_') AS gid \\gset
PREPARE TRANSACTION :'gid';
SQL
my %gid = map { split /\|/ } split /\n/, $primary->safe_psql('postgres', 'SELECT batch_id, gid FROM tw.in_doubt');
$primary->safe_psql('postgres', "CALL tw.commit_prepared('$gid{done}')");

first_client($_->[0], join('', map { s/SLEEP/SELECT slow();/r . ";\n" } @$_[ 1 .. $#$_ ])) foreach @paths;
all_in('PgSleep', @paths);
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
foreach my $path (@unheard)
{
	first_client($path->[0], join('', map { s/WAIT/SET synchronous_commit = remote_apply;/r =~ s/:'gid'/'$gid{unheard}'/r . ";\n" } @$path[ 1 .. $#$path ]));
}
all_in('SyncRep', @unheard);
$primary->stop('immediate');
eval { $_->finish } foreach @clients;

is($standby->safe_psql('postgres', 'SELECT pg_promote()'), 't', 'the standby is promoted');
is($standby->safe_psql('postgres', q(SELECT string_agg(path || ' ' || n, ', ' ORDER BY path) FROM (SELECT path, count(*) AS n FROM t WHERE path <> 'chunks' GROUP BY 1) s)),
	'c_atomic 1, c_chunks 6, c_plain 1, c_run 1, prepared done 1, prepared unheard 1', 'of what was under way nothing is there but what was committed');
is($standby->safe_psql('postgres', q(SELECT string_agg(v::text, ' ' ORDER BY v) FROM t WHERE path = 'chunks')), '1 2 3 4 5 6', 'and the chunks that were done');

my %expected = (
	atomic => 'applied', run => 'committed||1|1', chunks => '4|2|4', plain => 'started', open => "opened attached attached applied",
	attach => 'TW003 already_committed attached applied', commit_task => 'TW003 already_committed attached applied',
	publish => 'TW003 already_committed already_committed applied', unlogged => 'TW003 attached attached applied',
	prepare => 'started', c_atomic => 'already_committed', c_run => 'already_committed||1|1', c_chunks => '4|2|4', c_plain => 'already_committed',
	c_open => 'TW003 attached attached applied', c_task => 'TW003 already_committed already_committed applied',
	c_publish => 'already_committed TW006 TW006 already_committed', c_decide => 'already_committed');

# A client that does not know what became of its batch sends all of it again
sub again
{
	my ($path) = @_;
	my ($name, @statements) = @$path;
	my @answers;

	foreach my $statement (@statements)
	{
		my $sql = $statement =~ s/SLEEP|WAIT//r =~ s/:'gid'/$name eq 'c_decide' ? "'$gid{unheard}'" : ":'gid'"/er;

		next if $sql =~ /SELECT \* FROM tw.attach_task/;
		my ($status, $out, $err) = $standby->psql('postgres', "SET client_min_messages = warning;\n\\set VERBOSITY sqlstate\n$sql", on_error_stop => 1);
		push @answers, $status == 0 ? (grep { $_ ne '' } split /\n/, $out) : $err =~ /ERROR:  (\w{5})/;
	}
	return join(' ', @answers);
}

foreach my $path (@paths, @unheard)
{
	is(again($path), $expected{ $path->[0] }, "$path->[0]: what its client is told when it sends everything again");
}
is($standby->safe_psql('postgres', q(SELECT string_agg(path || ' ' || n, ', ' ORDER BY path) FROM (SELECT path, count(*) AS n FROM t WHERE path NOT LIKE 'prepared%' GROUP BY 1) s)),
	'atomic 1, c_atomic 1, c_chunks 10, c_plain 1, c_run 1, chunks 10, plain 1, run 1', 'each block and batch has run once');
is($standby->safe_psql('postgres', q(SELECT string_agg(path || ' ' || n, ', ' ORDER BY path) FROM (SELECT path, count(*) AS n FROM staged_t GROUP BY 1) s)),
	'attach 2, c_open 2, c_publish 2, c_task 2, commit_task 2, open 2, publish 2, unlogged 2', 'each staged batch is published once, every task of it');
is($standby->safe_psql('postgres', q(SELECT string_agg(job || ' ' || "position", ', ' ORDER BY job) FROM tw.offsets WHERE job IN ('plain', 'c_plain', 'publish'))),
	'c_plain 7, plain 7, publish 7', 'and the offsets are where they should be');
is(again($_) =~ s/.*?(\S+)$/$1/r, $_->[0] =~ /run$/ ? 'already_committed||1|1' : $_->[0] =~ /chunks/ ? '4|4|0' : 'already_committed', "$_->[0]: a third time is told that it is done")
  foreach grep { $_->[0] !~ /^(?:plain|publish|prepare)$/ } @paths, @unheard;
is($standby->safe_psql('postgres', q(SELECT count(*) FROM staged_t)), '16', 'and does nothing');

# In doubt on the old primary, decided on the new one
is($standby->safe_psql('postgres', q(SELECT string_agg(batch_id, ' ' ORDER BY batch_id) FROM tw.in_doubt)), 'middle no yes', 'what was prepared is in doubt there');
is($standby->safe_psql('postgres', "CALL tw.commit_prepared('$gid{done}')") =~ s/^(\w+).*/$1/r, 'already_committed', 'what was committed is known');
my $epoch = $standby->safe_psql('postgres', q(SELECT tw.init_producer('prepared', 'new coordinator')));
$standby->safe_psql('postgres', "CALL tw.recover('prepared', $epoch, ARRAY['$gid{yes}'])");
is($standby->safe_psql('postgres', q(SELECT string_agg(path, ', ' ORDER BY path) FROM t WHERE path LIKE 'prepared%')), 'prepared done, prepared unheard, prepared yes',
	'recovery after the promotion commits what is named and aborts the rest');
is($standby->safe_psql('postgres', q(SELECT string_agg(source, ' ' ORDER BY source) FROM tw.offsets WHERE job = 'prepared')), 'done unheard yes', 'with their offsets');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'), '0', 'and nothing is left prepared');

# ---------- fail-over, asynchronous: what is lost is lost whole ----------

$standby->safe_psql('postgres', q(ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf()));
$standby->backup('second');
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($standby, 'second', has_streaming => 1);
$second->start;

sub publish_one
{
	my ($node, $n, $mode) = @_;

	$node->safe_psql('postgres', $_) foreach staged('staged', $n, $mode, 'true');
}

publish_one($standby, ++$n, 'true');
$standby->wait_for_catchup($second, 'replay');
my $kept = $n;

# The standby loses its connection; the primary acknowledges three more
$second->safe_psql('postgres', q(ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()));
$standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_replication') or die 'still connected';
publish_one($standby, ++$n, 'true') foreach 1 .. 3;
is($standby->safe_psql('postgres', $state =~ s/JOB/staged/gr), $n, 'three batches are acknowledged without a standby');
$standby->stop('immediate');
is($second->safe_psql('postgres', 'SELECT pg_promote()'), 't', 'a standby that lags is promoted');
is($second->safe_psql('postgres', $state =~ s/JOB/staged/gr), $kept, 'what is lost is lost whole: rows, ledger and offset');
is($second->safe_psql('postgres', q(SELECT count(*) FROM tw.staged_batches)), '0', 'and nothing is half open');

# The source sends again what comes after the offset, and once more what came before
my $from = $second->safe_psql('postgres', q(SELECT tw.offset('staged', 's', '0')));
is($from, $kept, 'the offset says from where');
is($second->safe_psql('postgres', qq(SELECT status FROM tw.publish('staged', '$from'))), 'already_committed', 'what is there is known');
publish_one($second, $_, 'false') foreach $from + 1 .. $n;
is($second->safe_psql('postgres', $state =~ s/JOB/staged/gr), $n, 'and the rest is there once');
is(sqlstate($second, q(BEGIN; SELECT tw.commit_offset('staged', 's', '0', '1', '2'))), 'TW005', 'a source that begins too early is refused');
$second->stop;

# ---------- logical replication ----------

foreach my $streaming ('off', 'on', $version >= 160000 ? 'parallel' : ())
{
	my $publisher = new_server("publisher_$streaming", 'wal_level = logical', 'logical_decoding_work_mem = 64kB', 'autovacuum = off');
	my $subscriber = new_server("subscriber_$streaming", 'wal_level = logical');

	$_->safe_psql('postgres', $tables . $load . 'CREATE TABLE filler (batch int, f text)') foreach $publisher, $subscriber;
	$publisher->safe_psql('postgres', <<'SQL');
ALTER TABLE log REPLICA IDENTITY FULL;
ALTER TABLE whole REPLICA IDENTITY FULL;
ALTER TABLE day REPLICA IDENTITY FULL;
ALTER TABLE day_1 REPLICA IDENTITY FULL;
ALTER TABLE day_2 REPLICA IDENTITY FULL;
CREATE PUBLICATION everything FOR TABLES IN SCHEMA public,
  TABLE tw.job, tw.batch, tw.batch_outcome, tw.source_offset, tw.failure, tw.audit;
SQL
	$subscriber->safe_psql('postgres', sprintf q(CREATE SUBSCRIPTION s CONNECTION '%s dbname=postgres' PUBLICATION everything WITH (streaming = %s)), $publisher->connstr, $streaming);
	$subscriber->wait_for_subscription_sync($publisher, 's');

	my $poller = poller($subscriber, "subscriber_$streaming", '');
	foreach my $n (1 .. 12)
	{
		my @statements = staged('staged', $n, 'true', 'false');

		# enough that the publisher streams the transaction before its commit
		$statements[3] =~ s/BEGIN;/BEGIN; INSERT INTO filler SELECT $n, repeat('x', 100) FROM generate_series(1, 2000);/;
		$publisher->safe_psql('postgres', $_) foreach @statements;
	}
	$publisher->wait_for_catchup('s');
	end_poller($poller);
	is($subscriber->safe_psql('postgres', $state =~ s/JOB/staged/gr), '12', "streaming = $streaming: all batches are there");
	my $streamed = $publisher->safe_psql('postgres', 'SELECT sum(stream_txns) FROM pg_stat_replication_slots');
	if ($streaming eq 'off')
	{
		is($streamed, '0', 'nothing was streamed');
	}
	else
	{
		cmp_ok($streamed, '>', 0, "streaming = $streaming: transactions were streamed before their commit");
	}

	# The subscriber takes over in the middle of a staged batch, which is not replicated
	if ($streaming eq 'off')
	{
		my @statements = staged('staged', 13, 'true', 'false');

		$publisher->safe_psql('postgres', $_) foreach @statements[ 0, 1 ];
		$publisher->wait_for_catchup('s');
		$publisher->stop('immediate');
		$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
		is(sqlstate($subscriber, q(SELECT tw.publish('staged', '13'))), 'TW010', 'a subscriber that takes over does not have an open batch');
		publish_one($subscriber, 13, 'true');
		is($subscriber->safe_psql('postgres', $state =~ s/JOB/staged/gr), '13', 'and runs it from its beginning');
		is($subscriber->safe_psql('postgres', q(SELECT status FROM tw.publish('staged', '12'))), 'already_committed', 'what came before is known');
		$subscriber->stop;
	}
	else
	{
		$_->stop foreach $subscriber, $publisher;
	}
}

done_testing();
