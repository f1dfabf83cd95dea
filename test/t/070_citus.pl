# Citus: blocks, batches, staging and tracking on distributed, reference and local tables, a
# coordinator and two workers.  What a crash between Citus's two phases leaves, faults of
# workers at every step, and rounds in which nodes and sessions are killed at random:
# TW_CITUS_ROUNDS says how many.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use TransactionalWriter qw(:DEFAULT answer session);
use TwCitus;

plan skip_all => 'Citus is not installed: nothing of what the documentation says of it was tested'
  if !citus_is_installed();

my ($c, @workers) = new_cluster();
my @nodes = ($c, @workers);

sub sql { return $c->safe_psql('postgres', $_[0]); }

# Statements that end with an error: SQLSTATE, message and all
sub fails
{
	my ($sql, $node) = @_;
	my ($status, $out, $err) = ($node // $c)->psql('postgres', "\\set VERBOSITY verbose\n$sql",
		on_error_stop => 1, timeout => 120);

	return $status == 0 ? 'no error' : $err;
}

# What Citus sends to the workers for some statements
sub sent
{
	my ($sql) = @_;
	my ($status, $out, $err) = $c->psql('postgres', "SET citus.log_remote_commands = on;\n$sql", timeout => 120);

	is($status, 0, 'runs') or diag $err;
	return join "\n", $err =~ /NOTICE:  issuing (.*)/g;
}

sub prepared
{
	return join ' ', map { $_->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts') } @workers;
}

# ---------- the extension ----------

like(fails('CREATE EXTENSION transactional_writer'), qr/extension "transactional_writer" is not available/,
	'Citus takes CREATE EXTENSION to the workers, which need not have it');
sql('SET citus.enable_ddl_propagation = off; CREATE EXTENSION transactional_writer');
pass('so on the coordinator alone it goes without');

my $misplaced = 'BEGIN ATOMIC END';
$workers[0]->safe_psql('postgres', 'SET citus.enable_ddl_propagation = off; CREATE EXTENSION transactional_writer');
like(fails("SELECT tw.atomic('$misplaced', job => 'j', batch_id => '1')", $workers[0]),
	qr/0A000: batch claim cannot be used on a worker of a Citus cluster.*The ledger is a table of the coordinator.*Connect to the coordinator/s,
	'a worker keeps no ledger');
is($workers[0]->safe_psql('postgres', "SELECT (tw.atomic('$misplaced')).status"), 'applied', 'blocks without a batch run there');

sql(<<'SQL');
SET citus.shard_count = 4;
CREATE TABLE d (k int PRIMARY KEY, v int);
SELECT create_distributed_table('d', 'k');
CREATE TABLE r (k int PRIMARY KEY, v int);
SELECT create_reference_table('r');
CREATE TABLE l (k int PRIMARY KEY, v int);
SQL

# Keys of d in two shards of each worker
my @keys = split /\n/, sql(<<'SQL');
SELECT min(k) FROM generate_series(1, 1000) k
	JOIN pg_dist_shard s ON shardid = get_shard_id_for_distribution_column('d', k)
	JOIN pg_dist_placement USING (shardid) GROUP BY groupid, shardid ORDER BY groupid
SQL
is(scalar @keys, 4, 'keys of four shards');

# ---------- one commit ----------

my $mixed = <<'PSM';
BEGIN ATOMIC
	INSERT INTO d SELECT k, 1 FROM generate_series(:first::int, :first::int + 9) k;
	INSERT INTO r VALUES (:first, 1);
	INSERT INTO l VALUES (:first, 1);
END
PSM

sub mixed { return sprintf q(SELECT (tw.atomic('%s', '{"first": %d}', 'mixed', '%d')).status), $mixed, $_[0], $_[0]; }

# rows of d, r, l, batches in the ledger
sub found
{
	return sql("SELECT (SELECT count(*) FROM d WHERE k BETWEEN $_[0] AND $_[0] + 9), (SELECT count(*) FROM r WHERE k = $_[0]),
		(SELECT count(*) FROM l WHERE k = $_[0]), (SELECT count(*) FROM tw.ledger WHERE job = 'mixed' AND batch_id = '$_[0]')");
}

is(sql(mixed(100)), 'applied', 'a batch on distributed, reference and local tables');
is(sql(mixed(100)), 'already_committed', 'and again');
is(found(100), '10|1|1|1', 'is there once');
like(fails(mixed(105)), qr/duplicate key/, 'an error on a worker');
is(found(110), '0|0|0|0', 'leaves nothing');

# One shard, one node: Citus by itself commits there first and here after that
my $one = "INSERT INTO d VALUES ($keys[0] + 0, %d) ON CONFLICT (k) DO UPDATE SET v = excluded.v";
my $bare = sent(sprintf "BEGIN; $one; COMMIT", 1);
like($bare, qr/^COMMIT$/m, 'Citus alone commits a single node in one phase');
unlike($bare, qr/PREPARE/, 'without preparing it');
foreach my $case (
	[ 'a block with a batch', sprintf("SELECT tw.atomic('BEGIN ATOMIC $one; END', job => 'one', batch_id => '1')", 2) ],
	[ 'a block without', sprintf("SELECT tw.atomic('BEGIN ATOMIC $one; END')", 3) ],
	[ 'tw.run', sprintf("CALL tw.run('BEGIN ATOMIC $one; END', job => 'one', batch_id => '2')", 4) ],
	[ 'tw.begin_batch', sprintf("BEGIN; SELECT tw.begin_batch('one', '3'); $one; COMMIT", 5) ],
	[ 'a prepared statement', sprintf("PREPARE p AS $one; BEGIN; SELECT tw.begin_batch('one', '4'); EXECUTE p; COMMIT", 6) ],
	[ 'a function, each statement of which Citus would commit',
		sprintf("SET citus.function_opens_transaction_block = off; SELECT tw.atomic('BEGIN ATOMIC $one; END', job => 'one', batch_id => '5')", 7) ])
{
	my ($name, $statements) = @$case;
	my $sent = sent($statements);

	like($sent, qr/^PREPARE TRANSACTION/m, "$name: a single node is prepared");
	unlike($sent, qr/^COMMIT$/m, 'and nothing committed before the coordinator');
}
is(sql("SELECT v FROM d WHERE k = $keys[0]"), 7, 'and all of it is there');

# An INSERT of no row through the coordinator makes it so, which Citus tells of; not where it does so by itself
sub made_to
{
	my ($sql) = @_;
	my ($status, $out, $err) = $c->psql('postgres', "SET client_min_messages = debug1;\n$sql", timeout => 120);

	is($status, 0, 'runs') or diag $err;
	return scalar(() = $err =~ /Collecting INSERT ... SELECT results on coordinator/g);
}
my $several = sprintf 'UPDATE d SET v = 8 WHERE k IN (%s)', join ', ', @keys;
is(made_to(sprintf "SELECT tw.atomic('BEGIN ATOMIC $one; END', job => 'one', batch_id => '6')", 8), 1, 'for one node it is made to');
is(made_to("SELECT tw.atomic('BEGIN ATOMIC $several; END', job => 'one', batch_id => '7')"), 0, 'for several it is not, ');
like(sent("SELECT tw.atomic('BEGIN ATOMIC $several; END', job => 'one', batch_id => '8')"), qr/^PREPARE TRANSACTION.*^PREPARE TRANSACTION/ms, 'and prepares them');
is(sql("SELECT count(*) FROM tw.ledger WHERE job = 'one'"), 8, 'all of them are in the ledger');
unlike(sent("SELECT tw.atomic('BEGIN ATOMIC DECLARE n int; SET n = (SELECT count(*) FROM d); END')"), qr/PREPARE|INSERT/,
	'a block that only reads prepares nothing');

# Parameters and retries
is(sql("SELECT (tw.atomic('BEGIN ATOMIC DECLARE n int DEFAULT 5; UPDATE d SET v = v + n + :more::int WHERE k = :k; END',
	'{\"k\": $keys[0], \"more\": 2}')).rows"), 1, 'variables and parameters reach the shards');
my $holder = $c->background_psql('postgres', on_error_stop => 1);
$holder->query_safe("BEGIN; UPDATE d SET v = 20 WHERE k = $keys[0]");
my $waiting = $c->background_psql('postgres', on_error_stop => 0);
$waiting->query_until(qr/going/, "\\echo going\nCALL tw.run('BEGIN ATOMIC UPDATE d SET v = v + 1 WHERE k = $keys[0]; END', job => 'retry', batch_id => '1');\n");
ok($workers[0]->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 'tw.run waits on a worker');
$holder->query_safe('COMMIT');
$holder->quit;
$waiting->quit;
is(sql("SELECT attempts, (SELECT v FROM d WHERE k = $keys[0]) FROM tw.ledger WHERE job = 'retry'"), '2|21',
	'fails there with 40001, and runs again on fresh data');

# ---------- what fails before the commit leaves nothing prepared ----------

my $epoch = sql("SELECT tw.init_producer('fenced', 'a')");
my $fenced = fails(<<"SQL");
SET citus.log_remote_commands = on;
BEGIN;
SELECT tw.begin_batch('fenced', '1', epoch => $epoch);
INSERT INTO d SELECT k, 1 FROM generate_series(500, 509) k;
SELECT tw.commit_offset('fenced', 's', 'p', NULL, '1');
\\! psql -XqAt -d "@{[ $c->connstr('postgres') ]}" -c "SELECT tw.init_producer('fenced', 'b')"
COMMIT;
SQL
like($fenced, qr/TW001/, 'a writer that was replaced meanwhile cannot commit');
unlike($fenced, qr/issuing PREPARE/, 'and prepares nothing');
is(sql('SELECT count(*) FROM d WHERE k BETWEEN 500 AND 509'), 0, 'no row stays');
is(sql("SELECT count(*) FROM tw.offsets WHERE job = 'fenced'"), 0, 'the offset neither');
my $conflict = fails(<<"SQL");
SET citus.log_remote_commands = on;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT tw.track_reads();
SELECT sum(v) FROM r;
SELECT tw.track_reads('row');
INSERT INTO d VALUES (501, 1);
\\! psql -XqAt -d "@{[ $workers[1]->connstr('postgres') ]}" -c "UPDATE r SET v = v + 1 WHERE k = 100"
DO \$\$BEGIN RAISE NOTICE 'seen %', (SELECT format('%s: %s', relation, detail) FROM tw.check_conflicts()); END\$\$;
COMMIT;
SQL
like($conflict, qr/40001: could not serialize access due to a conflict on relation "r"\n/, 'a tracked reference table that was changed through a worker');
like($conflict, qr/DETAIL:  Row \(k\)=\(100\) of relation "public.r", which.*TABLE NAME:  r\n/s, 'by the name of the table, not of its shard');
like($conflict, qr/seen r: Row \(k\)=\(100\) of relation "public.r"/, 'which tw.check_conflicts says as well');
unlike($conflict, qr/issuing PREPARE/, 'nothing is prepared for that either');
is(sql('SELECT count(*) FROM d WHERE k = 501'), 0, 'and no row stays');
is(prepared(), '0 0', 'the workers have nothing prepared');

# ---------- tracking ----------

my $elsewhere = qr/0A000: cannot track reads of distributed table "public.d".*Its rows are on other nodes.*conflicts => 'write'/s;
foreach my $case (
	[ "CALL tw.run('BEGIN ATOMIC DECLARE n int; SET n = (SELECT sum(v) FROM d); END')", 'row' ],
	[ "CALL tw.run('BEGIN ATOMIC UPDATE d SET v = 1 WHERE k = 1; END', conflicts => 'predicate')", 'predicate' ],
	[ "CALL tw.run('BEGIN ATOMIC UPDATE d SET v = r.v FROM r WHERE d.k = r.k AND d.k = 1; END')", 'a join' ],
	[ "CALL tw.run('BEGIN ATOMIC INSERT INTO l SELECT k, v FROM d; END')", 'INSERT of its rows elsewhere' ],
	[ 'BEGIN; SELECT tw.track_reads(); COPY d TO STDOUT', 'COPY TO' ],
	[ "SELECT tw.watch('d', 'k = 1')", 'tw.watch' ])
{
	like(fails($case->[0]), $elsewhere, "rows on other nodes are refused: $case->[1]");
}
like(fails('BEGIN; SET LOCAL citus.enable_local_execution = off; SELECT tw.track_reads(); SELECT sum(v) FROM r'),
	qr/0A000: cannot track reads of table "r" on another node/, 'a reference table that is read elsewhere as well');
is(sql("CALL tw.run('BEGIN ATOMIC DECLARE n int; SET n = (SELECT sum(r.v) FROM r JOIN l USING (k)); INSERT INTO d VALUES (502, n);
	UPDATE d SET v = v + 1 WHERE k = 502; INSERT INTO l SELECT 502, v FROM l WHERE k = 100; END')") =~ /^committed/, 1,
	'copies on the coordinator are tracked, and a statement may write a distributed target that is all it reads');

# ---------- staging ----------

sql(<<'SQL');
CREATE TABLE s_append (k int, v int, t text);
SELECT create_distributed_table('s_append', 'k', colocate_with => 'd');
CREATE TABLE s_new (k int PRIMARY KEY, v int, t text);
SELECT create_distributed_table('s_new', 'k', colocate_with => 'd');
CREATE TABLE s_merge (LIKE s_new INCLUDING ALL);
SELECT create_distributed_table('s_merge', 'k', colocate_with => 'd');
CREATE TABLE s_over (LIKE s_new INCLUDING ALL);
SELECT create_distributed_table('s_over', 'k', colocate_with => 'd');
CREATE TABLE s_all (LIKE s_append INCLUDING ALL);
SELECT create_distributed_table('s_all', 'k', colocate_with => 'd');
CREATE TABLE s_single (LIKE s_new INCLUDING ALL);
SELECT create_distributed_table('s_single', NULL);
CREATE TABLE s_managed (LIKE s_new INCLUDING ALL);
SELECT citus_add_local_table_to_metadata('s_managed');
CREATE TABLE s_ref (LIKE s_new INCLUDING ALL);
SELECT create_reference_table('s_ref');
CREATE TABLE s_ref_over (LIKE s_new INCLUDING ALL);
SELECT create_reference_table('s_ref_over');
CREATE TABLE s_local (LIKE s_new INCLUDING ALL);
SQL
my @targets = (
	[ s_append => '"mode": "append"' ],
	[ s_new => '"mode": "insert_new", "order_by": "v DESC"' ],
	[ s_over => '"mode": "overwrite", "where": "k > 5"' ],
	[ s_all => '"mode": "overwrite"' ],
	[ s_ref_over => '"mode": "overwrite", "where": "k > 5"' ],
	map { [ $_ => '"mode": "merge", "order_by": "v DESC", "delete_when": "v = 7"' ] } qw(s_merge s_single s_managed s_ref s_local));
my $targets = '[' . join(', ', map { qq({"table": "$_->[0]", $_->[1]}) } @targets) . ']';

sql("INSERT INTO $_->[0] SELECT k, k, 'old' FROM generate_series(1, 10) k") foreach @targets;
my $schema = sql("SELECT schema FROM tw.open_batch('stage', '1', '$targets')");
my $old_and_new = "SELECT k, v, t FROM generate_series(6, 12) k, (VALUES (0, 'not'), (1, 'new')) n(f, t), LATERAL (SELECT k * f) s(v)";
my $load = join ";\n", map { "INSERT INTO $schema.$_->[0] " . ($_->[1] =~ /order_by/ ? $old_and_new : "SELECT k, k, 'new' FROM generate_series(9, 12) k") } @targets;
is(sql("SELECT count(*) FROM pg_dist_partition p JOIN pg_dist_partition t ON t.logicalrelid = 'd'::regclass
	AND t.colocationid = p.colocationid WHERE p.logicalrelid::text LIKE '$schema.%'"), 5, 'staging of distributed targets is distributed and colocated');
like(fails("BEGIN; SELECT tw.attach_task('stage', '1', 'forgotten'); INSERT INTO $schema.s_append VALUES (1, 1, 'x'); COMMIT"),
	qr/55000: task "forgotten" of batch "1" has staged rows but was not committed/, 'a task that does not say so cannot commit');
sql("BEGIN; SELECT tw.attach_task('stage', '1', 'a'); SAVEPOINT s; INSERT INTO $schema.s_append VALUES (77, 77, 'x'); ROLLBACK TO s;
	$load; SELECT tw.commit_task(); COMMIT");
is(sql("SELECT rows FROM tw.staged_tasks WHERE job = 'stage'"), '{4,14,4,4,4,14,14,14,14,14}', 'rows are counted, without those of a savepoint');
like(fails("BEGIN; SELECT tw.attach_task('stage', '1', 'b'); COPY $schema.s_append FROM STDIN;\nx\t1\t2\n\\.\n"), qr/22P02/, 'a bad row in COPY is an error');
my $published = sent(<<SQL);
BEGIN;
SELECT tw.attach_task('stage', '1', 'b');
COPY $schema.s_append FROM STDIN;
50	50	new
51	51	new
\\.
SELECT tw.commit_task();
COMMIT;
SELECT status FROM tw.publish('stage', '1', audit => 'BEGIN IF (SELECT count(*) FROM s_append) <> 6 THEN SIGNAL SQLSTATE ''45000''; END IF; END')
SQL
foreach my $name (qw(s_append s_new s_merge s_over s_all))
{
	my @pushed = $published =~ /((?:INSERT INTO|MERGE INTO ONLY) public\.${name}_\d+ .*FROM \w+\.${name}_\d+)/g;
	is(scalar @pushed, 4, "what is staged for $name goes from shard to shard");
}
unlike($published, qr/COPY public\.s_(append|new|merge|over|all)_\d+/, 'and no row through the coordinator');
my $merged = join ' ', (map { "$_:$_:old" } 1 .. 5), map { "$_:$_:new" } 6, 8 .. 12;
my $replaced = join ' ', (map { "$_:$_:old" } 1 .. 5), map { "$_:$_:new" } 9 .. 12;
my %expected = (
	s_append => join(' ', (map { "$_:$_:old" } 1 .. 8), (map { ("$_:$_:new", "$_:$_:old") } 9, 10), map { "$_:$_:new" } 11, 12, 50, 51),
	s_new => join(' ', (map { "$_:$_:old" } 1 .. 10), map { "$_:$_:new" } 11, 12),
	s_over => $replaced, s_ref_over => $replaced,
	s_all => join(' ', map { "$_:$_:new" } 9 .. 12),
	map { $_ => $merged } qw(s_merge s_single s_managed s_ref s_local));
foreach my $name (sort keys %expected)
{
	is(sql("SELECT string_agg(k || ':' || v || ':' || t, ' ' ORDER BY k, t) FROM $name"), $expected{$name}, "$name is published");
}
is($workers[1]->safe_psql('postgres', "SELECT string_agg(k || ':' || v || ':' || t, ' ' ORDER BY k, t) FROM s_ref"), $merged, 'a reference table on every node');
is(sql("SELECT status FROM tw.publish('stage', '1')"), 'already_committed', 'again: nothing');

sub leftovers { return join ' ', map { $_->safe_psql('postgres', "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\\_batch\\_%'") } @nodes; }
sql('SELECT tw.expire_batches()');
is(leftovers(), '0 0 0', 'no schema is left on any node');

# ---------- bad input ----------

sub open_one { return sql("SELECT schema FROM tw.open_batch('bad', '$_[0]', '[{\"table\": \"$_[1]\", \"mode\": \"merge\"}]')"); }
sub load_one { return "BEGIN; SELECT tw.attach_task('bad', '$_[0]', 't'); INSERT INTO $_[1] SELECT k, k FROM generate_series(1000, 1019) k; SELECT tw.commit_task(); COMMIT"; }

# A shard moves between open and publish
$schema = open_one('moved', 'd');
sql(load_one('moved', "$schema.d"));
my ($shard, $from, $to) = split /\|/, sql(sprintf <<'SQL', $keys[0]);
SELECT shardid, a.nodename || ':' || a.nodeport, b.nodename || ':' || b.nodeport
FROM pg_dist_placement JOIN pg_dist_node a USING (groupid), pg_dist_node b
WHERE shardid = get_shard_id_for_distribution_column('d', %d) AND b.groupid > 0 AND b.groupid <> a.groupid
SQL
sql(sprintf "SELECT citus_move_shard_placement(%d, '%s', %d, '%s', %d, 'force_logical')", $shard, map { /(.*):(\d+)/ } $from, $to);
is(sql("SELECT (tw.publish('bad', 'moved')).rows"), 20, 'a shard moved without stopping writers, and staging with it');
is(sql('SELECT count(*) FROM d WHERE k BETWEEN 1000 AND 1019'), 20, 'all rows are there');
sql('DELETE FROM d WHERE k BETWEEN 1000 AND 1019');

# A shard is split between them
sql("SET citus.shard_count = 2; CREATE TABLE halved (k int PRIMARY KEY, v int); SELECT create_distributed_table('halved', 'k', colocate_with => 'none')");
$schema = open_one('halved', 'halved');
sql(load_one('halved', "$schema.halved"));
sql(<<'SQL');
SELECT citus_split_shard_by_split_points(min(shardid), ARRAY['-1000000000'], (SELECT array_agg(nodeid) FROM pg_dist_node WHERE groupid > 0), 'block_writes')
FROM pg_dist_shard WHERE logicalrelid = 'halved'::regclass
SQL
is(sql("SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = '$schema.halved'::regclass"), 3, 'a shard was split, and staging with it');
is(sql("SELECT (tw.publish('bad', 'halved')).rows"), 20, 'and the batch is published');
is(sql('SELECT count(*) FROM halved'), 20, 'all rows of it');

# A shard is no target
my $piece = sql("SELECT 'r_' || shardid FROM pg_dist_shard WHERE logicalrelid = 'r'::regclass");
like(fails("SELECT tw.open_batch('bad', 'shard', '[{\"table\": \"$piece\", \"mode\": \"append\"}]')"),
	qr/42809: relation "public.r_\d+" cannot be the target of a staged batch.*It is a shard of table "public.r", which can be the target/s, 'a shard is no target');

# Another table takes the place of the target: Citus makes it anew
foreach my $case ([ 'undistributed', "undistribute_table('%s')" ], [ 'reshaped', "alter_distributed_table('%s', shard_count => 3, cascade_to_colocated => false)" ])
{
	my ($name, $change) = @$case;

	sql("CREATE TABLE $name (k int PRIMARY KEY, v int); SELECT create_distributed_table('$name', 'k', colocate_with => 'none')");
	$schema = open_one($name, $name);
	sql(load_one($name, "$schema.$name"));
	sql("SET client_min_messages = warning; SELECT " . sprintf $change, $name);
	like(fails("SELECT tw.publish('bad', '$name')"), qr/42P01: target 1 of the batch, "$name", does not exist any more.*Abort the batch/s, "a target that was $name meanwhile");
	sql("SELECT tw.abort_batch('bad', '$name', NULL, 'test')");
	is(sql("SELECT count(*) FROM $name"), 0, 'has nothing of it');
}

# What becomes a reference table is written on all nodes
sql('CREATE TABLE referred (k int PRIMARY KEY, v int)');
$schema = open_one('referred', 'referred');
sql(load_one('referred', "$schema.referred"));
sql("SELECT create_reference_table('referred')");
is(sql("SELECT (tw.publish('bad', 'referred')).rows"), 20, 'a target that becomes a reference table');
is($workers[1]->safe_psql('postgres', 'SELECT count(*) FROM referred'), 20, 'has the rows on every node');

# A table is distributed between open and publish
sql('CREATE TABLE late (k int PRIMARY KEY, v int)');
$schema = open_one('late', 'late');
sql(load_one('late', "$schema.late"));
sql("SELECT create_distributed_table('late', 'k', colocate_with => 'd')");
like(fails("SELECT tw.publish('bad', 'late')"),
	qr/55000: target public.late was distributed in another way since the batch was opened.*Abort the batch/s, 'a target that was distributed meanwhile');
sql("SELECT tw.abort_batch('bad', 'late', NULL, 'test')");
is(sql('SELECT count(*) FROM late'), 0, 'nothing of it is published');

# Rows that no task has staged
$schema = open_one('strange', 'd');
sql(load_one('strange', "$schema.d"));
sql("INSERT INTO $schema.d VALUES (2000, 1)");
like(fails("SELECT tw.publish('bad', 'strange')"), qr/TW009.*have committed 20 rows, and there are 21/s, 'rows that came without a task stop the publish');
sql("SELECT tw.abort_batch('bad', 'strange', NULL, 'test')");

# A worker is down
sub down
{
	my ($what) = @_;

	$workers[1]->stop('immediate');
	my $error = fails($what);
	$workers[1]->start;
	return $error;
}
my $lost = sprintf '(?:connection to the remote node \S+:%1$d failed|server closed the connection.*while executing command on \S+:%1$d)', $workers[1]->port;
my $connection = qr/$lost/s;
like(down("SELECT tw.open_batch('bad', 'down', '[{\"table\": \"d\", \"mode\": \"merge\"}]')"), qr/$lost.*colocate_with => 'public.d'/s,
	'a worker is down at open: the error says which one, and its context which table');
is(sql("SELECT count(*) FROM tw.staged_batches WHERE batch_id = 'down'"), 0, 'no batch is open');
$schema = open_one('down', 'd');
like(down(load_one('down', "$schema.d")), $connection, 'at stage: which worker');
is(sql("SELECT count(*) FROM $schema.d"), 0, 'nothing is staged');
sql(load_one('down', "$schema.d"));
like(down("SELECT tw.publish('bad', 'down')"), qr/$lost.*LOCK TABLE public\.d /s, 'at publish: which worker, and which table');
is(sql('SELECT count(*) FROM d WHERE k BETWEEN 1000 AND 1019'), 0, 'nothing is published');
is(sql("SELECT count(*) FROM tw.ledger WHERE batch_id = 'down'"), 0, 'nor in the ledger');
like(down(mixed(800)), qr/$lost.*INSERT INTO d .*atomic block line 2/s, 'in a block: which worker, and which statement');
is(found(800), '0|0|0|0', 'which leaves nothing');
my $session = $c->background_psql('postgres', on_error_stop => 0);
$session->query_safe("BEGIN; SELECT status FROM tw.publish('bad', 'down')");
$workers[1]->stop('immediate');
$session->query('COMMIT');
like($session->{stderr}, $connection, 'at commit: which worker');
$session->quit;
$workers[1]->start;
sql('SELECT recover_prepared_transactions()');
is(prepared(), '0 0', 'what the other worker had prepared is rolled back');
is(sql("SELECT (SELECT count(*) FROM d WHERE k BETWEEN 1000 AND 1019), (SELECT count(*) FROM tw.ledger WHERE batch_id = 'down')"), '0|0', 'nothing is published');
is(sql("SELECT (tw.publish('bad', 'down')).rows"), 20, 'and with the worker back it is');
sql('DELETE FROM d WHERE k BETWEEN 1000 AND 1019');

# ---------- a crash between the two phases ----------

# Prepared on both workers, not committed on the coordinator: one worker is stopped, so that the
# coordinator waits for its answer
$session = $c->background_psql('postgres', on_error_stop => 0);
$session->query_safe('BEGIN; ' . mixed(600));
my @backends = split /\n/, $workers[1]->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name LIKE 'citus%' AND xact_start IS NOT NULL");
die 'no session on the worker' if !@backends;
kill 'STOP', @backends;
$session->query_until(qr/going/, "\\echo going\nCOMMIT;\n");
$workers[0]->poll_query_until('postgres', 'SELECT count(*) >= 1 FROM pg_prepared_xacts') or die 'nothing was prepared';
$c->stop('immediate');
kill 'CONT', @backends;
eval { $session->quit };
$c->start;
$workers[1]->poll_query_until('postgres', 'SELECT count(*) >= 1 FROM pg_prepared_xacts') or die 'the other worker has prepared nothing';
isnt(prepared(), '0 0', 'the coordinator has crashed after both workers have prepared, before it has committed: ' . prepared());
sql('SELECT recover_prepared_transactions()');
is(prepared(), '0 0', 'Citus settles what is prepared');
is(found(600), '0|0|0|0', 'neither data nor ledger is there');
is(sql(mixed(600)), 'applied', 'and the batch runs again');
is(found(600), '10|1|1|1', 'once');

# Committed on the coordinator, not on the workers: it waits for a standby that does not exist
$session = $c->background_psql('postgres', on_error_stop => 0);
$session->query_safe('BEGIN; ' . mixed(700));
sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'; ");
sql('SELECT pg_reload_conf()');
$session->query_until(qr/going/, "\\echo going\nCOMMIT;\n");
$c->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'") or die 'no commit waits';
$c->stop('immediate');
eval { $session->quit };
$c->append_conf('postgresql.auto.conf', "synchronous_standby_names = ''");
$c->start;
isnt(prepared(), '0 0', 'the coordinator has crashed after its commit, before the workers had theirs: ' . prepared());
sql('SELECT recover_prepared_transactions()');
is(prepared(), '0 0', 'Citus settles that as well');
is(found(700), '10|1|1|1', 'data and ledger are there');
is(sql(mixed(700)), 'already_committed', 'and the batch does not run again');

# ---------- without Citus's library ----------

my $preload = sql('SHOW shared_preload_libraries');
# its column store has a library of its own, which does not count
my $columnar = -e TwCitus::config('pkglibdir') . '/citus_columnar.so' ? 'citus_columnar' : '';
$c->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'$columnar'");
$c->restart;
is(sql("CREATE TABLE beside (v int); SELECT (tw.atomic('BEGIN ATOMIC INSERT INTO beside VALUES (1); END', job => 'shell', batch_id => '1')).status"),
	'applied', 'a server that has lost it commits a batch on other tables');
like(fails("SELECT tw.atomic('BEGIN ATOMIC INSERT INTO d VALUES (1); END', job => 'shell', batch_id => '2')"),
	qr/55000: cannot commit changes of table "d" while Citus is not loaded.*Put citus into shared_preload_libraries/s,
	'but none on a table whose shards nobody finds');
is(sql("SELECT string_agg(batch_id, ' ') FROM tw.ledger WHERE job = 'shell'"), '1', 'which leaves nothing');
$c->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'$preload'");
$c->restart;
sql('DROP TABLE beside');

# ---------- killed at random ----------

my $rounds = $ENV{TW_CITUS_ROUNDS} || 10;
my $seed = $ENV{TW_CITUS_SEED} || time;
my (%faults, %answers, @wrong);

srand($seed);
note "seed $seed: set TW_CITUS_SEED to run the same again";
sql(<<'SQL');
CREATE TABLE e (batch int, k int);
SELECT create_distributed_table('e', 'k', colocate_with => 'd');
CREATE TABLE state (k int PRIMARY KEY, batch int);
SELECT create_distributed_table('state', 'k', colocate_with => 'd');
CREATE TABLE e_ref (batch int PRIMARY KEY);
SELECT create_reference_table('e_ref');
CREATE TABLE e_local (batch int PRIMARY KEY);
CREATE FUNCTION stage(b int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	a record;
BEGIN
	FOR a IN SELECT * FROM tw.attach_task('kill', 's' || b, 't') LOOP
		IF a.status = 'already_committed' THEN
			RETURN a.status;
		END IF;
		EXECUTE format('INSERT INTO %s ', a.staging) || CASE a.target
			WHEN 'e'::regclass THEN format('SELECT %s, k FROM generate_series(1, 20) k', b)
			WHEN 'state'::regclass THEN format('SELECT k, %s FROM generate_series(1, 20) k', b)
			ELSE format('VALUES (%s)', b) END;
	END LOOP;
	PERFORM tw.commit_task();
	RETURN 'committed';
END $$;
SQL
my %steps = (
	direct => [ q(SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO e SELECT :b::int, k FROM generate_series(1, 20) k; INSERT INTO e_ref VALUES (:b);
		INSERT INTO e_local VALUES (:b); DELETE FROM state; INSERT INTO state SELECT k, :b::int FROM generate_series(1, 20) k; END', '{"b": %1$d}', 'kill', '%1$d')) ],
	single => [ qq(SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO e SELECT :b::int, $keys[0] FROM generate_series(1, 20); INSERT INTO e_local VALUES (:b);
		INSERT INTO e_ref VALUES (:b); END', '{"b": %1\$d}', 'kill', '%1\$d')) ],
	staged => [ q(SELECT status FROM tw.open_batch('kill', 's%1$d', '[{"table": "e", "mode": "append"}, {"table": "state", "mode": "merge"},
			{"table": "e_ref", "mode": "append"}, {"table": "e_local", "mode": "append"}]', 1)),
		'SELECT stage(%1$d)', q(SELECT status FROM tw.publish('kill', 's%1$d')) ]);

# The answer of a node that may be down
sub ask
{
	my ($node, $statement) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'psql', '-XqAt', '-d', $node->connstr('postgres') . ' connect_timeout=10', '-c', $statement ],
		'<' => \undef, '>' => \$out, '2>' => \$err);
	chomp $out;
	return $out;
}

sub wait_for
{
	my ($node, $statement) = @_;

	for (1 .. 1200)
	{
		return if ask($node, $statement) eq 't';
		usleep 50_000;
	}
	die $node->name . " did not come to: $statement";
}

sub up { wait_for($_[0], 'SELECT true'); }

# Something happens, after a random time, to a node or to a session on it
sub fault
{
	my ($s) = @_;
	my $dice = rand;
	my $node = $nodes[ rand() < 0.5 ? 0 : 1 + int rand 2 ];
	my $kind = $node == $c ? 'the coordinator' : 'a worker';

	usleep 5_000 + rand 60_000;
	if ($dice < 0.35)
	{
		$faults{"immediate shutdown of $kind"}++;
		$node->stop('immediate');
		$node->start;
	}
	elsif ($dice < 0.7)
	{
		my $signal = $dice < 0.5 ? 'KILL' : 'TERM';
		my $pid = ask($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'
			AND state <> 'idle' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1");

		return if $pid !~ /^\d+$/;
		$faults{"$signal to a session of $kind"}++;
		if ($signal eq 'KILL')
		{
			kill_backend($node, $pid);
		}
		else
		{
			kill $signal, $pid;
		}
		up($node);
	}
	else
	{
		$faults{'kill of the client'}++;
		kill_client($s->{run});
	}
}

# With nothing prepared: a batch is there as a whole, ledger and all, or not at all
sub anomaly
{
	my ($b) = @_;

	return sql(<<"SQL");
SELECT (SELECT count(*) FROM e WHERE batch = $b), (SELECT count(*) FROM e_ref WHERE batch = $b),
	(SELECT count(*) FROM e_local WHERE batch = $b), (SELECT count(*) FROM tw.ledger WHERE job = 'kill' AND ltrim(batch_id, 's') = '$b')
SQL
}

my $newest = 0;
foreach my $b (1 .. $rounds)
{
	my $path = (qw(staged direct staged single))[ $b % 4 ];
	my $done = 0;

	for (my $try = 1; !$done; $try++)
	{
		my $last;

		die "batch $b: no end after $try tries" if $try > 20;
		foreach my $step (@{ $steps{$path} })
		{
			my $s = session($c, sprintf $step, $b);

			fault($s) if $try < 4 && rand() < ($path eq 'staged' ? 0.5 : 0.8);
			$last = answer($s);
			$answers{"$path: $last"}++;
		}
		up($_) foreach @nodes;
		# whoever was killed may still be rolling back
		wait_for($c, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()");
		for (1 .. 100)
		{
			ask($c, 'SELECT recover_prepared_transactions()');
			last if join(' ', map { ask($_, 'SELECT count(*) FROM pg_prepared_xacts') } @workers) eq '0 0';
			usleep 100_000;
		}
		my $found = anomaly($b);

		push @wrong, "batch $b ($path), try $try: $found after $last"
		  if $found ne '0|0|0|0' && $found ne '20|1|1|1' or $found eq '0|0|0|0' && $last =~ /^(applied|already_committed)$/;
		$done = $last =~ /^(applied|already_committed)$/;
	}
	$newest = $b if $path ne 'single';
	push @wrong, "batch $b: not there once" if anomaly($b) ne '20|1|1|1';
	my $state = sql('SELECT min(batch), max(batch), count(*) FROM state');
	push @wrong, "state after batch $b: $state" if $newest > 0 && $state ne "$newest|$newest|20";
}
note join ', ', map { "$_: $faults{$_}" } sort keys %faults;
note join ', ', map { "$_: $answers{$_}" } sort keys %answers;
diag $_ foreach @wrong;
is_deeply(\@wrong, [], "$rounds batches, killed at random: each is there once, with its ledger row, and never in part");
is(sql(q(SELECT count(*) FROM (SELECT batch FROM e GROUP BY batch HAVING count(*) <> 20) b)), 0, 'no batch has another number of rows');
sql('SELECT tw.expire_batches()');
is(sql('SELECT count(*) FROM tw.staged_batches'), 0, 'no batch is open');
like(leftovers(), qr/^0 /, 'no staging is left on the coordinator');
# Citus makes a schema on the workers before, and outside of, the transaction that fills it
is(join(' ', map { $_->safe_psql('postgres', "SELECT count(*) FROM pg_class WHERE relnamespace::regnamespace::text LIKE 'tw\\_batch\\_%'") } @workers),
	'0 0', 'and nothing but empty schemas on the workers');
is(prepared(), '0 0', 'nor anything prepared');

done_testing();
