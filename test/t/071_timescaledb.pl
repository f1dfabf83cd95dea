# TimescaleDB's hypertables: reads through its custom scans are tracked or refused, a
# chunk that somebody else makes counts, blocks and batches write them, and staged batches
# are published into their chunks in every mode.
use strict;
use warnings;

use Documentation qw(run_page normal);
use File::Basename;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $control = `pg_config --sharedir` =~ s/\n//r . '/extension/timescaledb.control';

plan skip_all => 'TimescaleDB is not installed, hypertables are NOT tested: install the package postgresql-NN-timescaledb'
  unless -f $control;

my $node = new_server('main', "timezone = 'UTC'", "shared_preload_libraries = 'timescaledb'", 'timescaledb.telemetry_level = off', 'fsync = off');
my $dir = PostgreSQL::Test::Utils::tempdir();

sub query { return $node->safe_psql('postgres', $_[0]); }

query('SET client_min_messages = error; CREATE EXTENSION timescaledb');
note 'TimescaleDB ', query(q(SELECT extversion FROM pg_extension WHERE extname = 'timescaledb')),
  ', license ', query('SHOW timescaledb.license');

# A row each six hours of the first five days, for devices 1 and 2
sub fresh
{
	query(<<'SQL');
SET client_min_messages = error;
DROP TABLE IF EXISTS m;
DROP TABLE IF EXISTS empty;
DROP TABLE IF EXISTS src, days, out, other;
CREATE TABLE m (at timestamptz NOT NULL, dev int, v int, PRIMARY KEY (dev, at));
SELECT create_hypertable('m', 'at', chunk_time_interval => interval '1 day');
CREATE TABLE empty (at timestamptz NOT NULL, dev int, v int);
SELECT create_hypertable('empty', 'at', chunk_time_interval => interval '1 day');
INSERT INTO m SELECT t, d, 1 FROM generate_series('2026-01-01'::timestamptz, '2026-01-05 18:00', '6 hours') t, generate_series(1, 2) d;
CREATE TABLE src (dev int PRIMARY KEY, v int);
INSERT INTO src VALUES (1, 10), (2, 20);
CREATE TABLE days (day timestamptz);
INSERT INTO days VALUES ('2026-01-04');
CREATE TABLE out (v bigint);
CREATE TABLE other (done int);
ANALYZE m, src, days;
SQL
}

# ---------- tracking ----------

# One transaction reads, another one writes and commits, the first one commits; returns the
# SQLSTATE that the first one ends with
sub collide
{
	my ($begin, $read, $write) = @_;

	fresh();
	unlink "$dir/other.sql";
	append_to_file("$dir/other.sql", "BEGIN; $write; INSERT INTO other VALUES (1); COMMIT;\n");
	my $state = sqlstate($node, sprintf("%s; %s;\n\\! psql -XqAt -v ON_ERROR_STOP=1 -d '%s' -f %s/other.sql >/dev/null\nINSERT INTO out VALUES (1);\nCOMMIT;",
			$begin, $read, $node->connstr('postgres'), $dir));

	die "the other transaction failed: $write" if query('SELECT count(*) FROM other') ne '1';
	return $state;
}

my $sum = 'SELECT sum(v) FROM m WHERE';
my @predicate = (
	[ 'a row added to a chunk', "$sum at >= '2026-01-04'", q(INSERT INTO m VALUES ('2026-01-04 01:00', 1, 1)), '40001' ],
	[ 'a row that the condition does not cover', "$sum at >= '2026-01-04' AND dev = 1", q(INSERT INTO m VALUES ('2026-01-04 01:00', 2, 1)), '' ],
	[ 'a row in a chunk that was not read', "$sum at >= '2026-01-04'", q(INSERT INTO m VALUES ('2026-01-02 01:00', 1, 1)), '' ],
	[ 'a row in a new chunk', "$sum at >= '2026-01-04'", q(INSERT INTO m VALUES ('2026-01-09', 1, 1)), '40001' ],
	[ 'a row where no chunk was', "$sum at >= '2026-02-01'", q(INSERT INTO m VALUES ('2026-02-09', 1, 1)), '40001' ],
	[ 'the first row of a hypertable', 'SELECT count(*) FROM empty', q(INSERT INTO empty VALUES ('2026-02-09', 1, 1)), '40001' ],
	[ 'the row that an ordered scan found first', 'SELECT v FROM m ORDER BY at DESC LIMIT 1', q(UPDATE m SET v = 2 WHERE at = '2026-01-05 18:00'), '40001' ],
	[ 'a row in a chunk that an ordered scan never came to', 'SELECT v FROM m ORDER BY at DESC LIMIT 1', q(UPDATE m SET v = 2 WHERE at = '2026-01-02'), '' ],
	[ 'a row that a time now() lets in', q($sum at >= '2026-01-04'::timestamptz + (now() - now())) =~ s/\$sum/$sum/r, q(INSERT INTO m VALUES ('2026-01-05 01:00', 1, 1)), '40001' ],
	[ 'a row that a subquery lets in', "$sum at >= (SELECT max(day) FROM days)", q(INSERT INTO m VALUES ('2026-01-05 01:00', 1, 1)), '40001' ],
	[ 'what the subquery read', "$sum at >= (SELECT max(day) FROM days)", q(INSERT INTO days VALUES ('2026-01-01')), '40001' ],
	[ 'a row that a join found', 'SELECT sum(m.v) FROM days, LATERAL (SELECT v FROM m WHERE m.dev = 1 AND m.at >= day ORDER BY at LIMIT 1) m', q(UPDATE m SET v = 2 WHERE dev = 1 AND at = '2026-01-04'), '40001' ],
	[ 'a row of a scan without order that stops', 'SELECT v FROM m LIMIT 1000', 'DELETE FROM m WHERE dev = 1', '40001' ],
	[ 'a new chunk for a scan without order', 'SELECT v FROM m LIMIT 1000', q(INSERT INTO m VALUES ('2026-02-09', 1, 1)), '40001' ],
	[ 'what an INSERT read', q(INSERT INTO m SELECT '2026-01-02 02:00', dev, v FROM src), 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ],
	[ 'what an INSERT read from the hypertable', q(INSERT INTO m SELECT at + interval '1 hour', dev, v FROM m WHERE at >= '2026-01-05'), q(UPDATE m SET v = 3 WHERE at = '2026-01-05 06:00'), '40001' ],
	[ 'what a subquery of an UPDATE read', q(UPDATE m SET v = (SELECT sum(v) FROM src) WHERE at = '2026-01-01'), 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ],
	[ 'what a subquery of an UPDATE read for each row', q(UPDATE m SET v = (SELECT src.v FROM src WHERE src.dev = m.dev) WHERE dev = 1 AND at = '2026-01-01'), 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ],
	[ 'what a subquery of the condition of a DELETE read', 'DELETE FROM m WHERE dev NOT IN (SELECT dev FROM src)', 'DELETE FROM src WHERE dev = 2', '40001' ],
	[ 'what a join of an UPDATE read', q(UPDATE m SET v = src.v FROM src WHERE m.dev = src.dev AND at = '2026-01-01'), 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ],
	[ 'a row that an UPDATE looked for', q(UPDATE m SET v = 3 WHERE dev = 7 AND at >= '2026-01-04'), q(INSERT INTO m VALUES ('2026-01-04 01:00', 7, 1)), '40001' ],
	[ 'a row that a DELETE looked for, in a new chunk', 'DELETE FROM m WHERE dev = 7', q(INSERT INTO m VALUES ('2026-01-09 01:00', 7, 1)), '40001' ],
	[ 'another row', 'DELETE FROM m WHERE dev = 7', q(INSERT INTO m VALUES ('2026-01-04 01:00', 8, 1)), '' ],
	[ 'what a MERGE read', q(MERGE INTO m USING src ON m.dev = src.dev AND at = '2026-01-01' WHEN MATCHED THEN UPDATE SET v = src.v), 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ],
	[ 'a row that ON CONFLICT found', q(INSERT INTO m VALUES ('2026-01-01', 1, 1) ON CONFLICT DO NOTHING), q(DELETE FROM m WHERE dev = 1 AND at = '2026-01-01'), '40001' ],
	[ 'a row that a caught error told of', q(DO $$BEGIN INSERT INTO m VALUES ('2026-01-01', 1, 1); EXCEPTION WHEN unique_violation THEN NULL; END$$), q(DELETE FROM m WHERE dev = 1 AND at = '2026-01-01'), '40001' ],
	[ 'what was watched, in a new chunk', q(SELECT tw.watch('m', 'dev = 7')), q(INSERT INTO m VALUES ('2026-01-09 01:00', 7, 1)), '40001' ],
	[ 'what was watched', q(SELECT tw.watch('m', 'dev = 1')), q(UPDATE m SET v = 4 WHERE dev = 1 AND at = '2026-01-01'), '40001' ],
	[ 'what was not watched', q(SELECT tw.watch('m', 'dev = 7')), q(INSERT INTO m VALUES ('2026-01-01 01:00', 8, 1)), '' ]);

foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	my $begin = "BEGIN ISOLATION LEVEL $level; SELECT tw.track_reads('predicate')";

	is(collide($begin, $_->[1], $_->[2]), $_->[3], "predicate, $level: $_->[0]") foreach @predicate;
}
# A conflict of a test above must come from the tracking
is(collide('BEGIN', "$sum at >= '2026-01-04'", q(INSERT INTO m VALUES ('2026-01-04 01:00', 1, 1))), '', 'nothing conflicts without tracking');

my @row = (
	[ 'a row that was read', "$sum at >= '2026-01-04'", q(UPDATE m SET v = 2 WHERE dev = 1 AND at = '2026-01-05'), '40001' ],
	[ 'a row that was added', "$sum at >= '2026-01-04'", q(INSERT INTO m VALUES ('2026-01-04 01:00', 1, 1)), '' ],
	[ 'a row that was not read', 'SELECT v FROM m ORDER BY at DESC LIMIT 1', q(UPDATE m SET v = 2 WHERE at = '2026-01-05'), '' ],
	[ 'a row of a scan without order', 'SELECT v FROM m LIMIT 1000', 'DELETE FROM m WHERE dev = 1', '40001' ],
	[ 'what an INSERT read', q(INSERT INTO m SELECT '2026-01-02 02:00', dev, v FROM src), 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ],
	[ 'what a MERGE read', q(MERGE INTO m USING src ON m.dev = src.dev AND at = '2026-01-01' WHEN MATCHED THEN UPDATE SET v = src.v), 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ],
	[ 'a row added to what a MERGE read', q(MERGE INTO m USING src ON m.dev = src.dev AND at = '2026-01-01' WHEN MATCHED THEN UPDATE SET v = src.v), 'INSERT INTO src VALUES (3, 3)', '' ],
	[ 'what a subquery of an UPDATE read for each row', q(UPDATE m SET v = (SELECT src.v FROM src WHERE src.dev = m.dev) WHERE dev = 1 AND at = '2026-01-01'), 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ],
	[ 'what a subquery of the condition of a DELETE read', 'DELETE FROM m WHERE dev NOT IN (SELECT dev FROM src)', 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ],
	[ 'what a join of a DELETE read', q(DELETE FROM m USING src WHERE m.dev = src.dev AND src.v = 10), 'UPDATE src SET v = 3 WHERE dev = 1', '40001' ]);

foreach my $level ('READ COMMITTED', 'REPEATABLE READ')
{
	my $begin = "BEGIN ISOLATION LEVEL $level; SELECT tw.track_reads('row')";

	is(collide($begin, $_->[1], $_->[2]), $_->[3], "row, $level: $_->[0]") foreach @row;
}

# The first updater wins in a chunk as in any table
is(collide('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM src', 'SELECT 1',
		q(UPDATE m SET v = 2 WHERE dev = 1 AND at = '2026-01-01')) , '', 'a write to a chunk alone');
fresh();
append_to_file("$dir/first.sql", "UPDATE m SET v = 2 WHERE dev = 1 AND at = '2026-01-01';\n");
is(sqlstate($node, sprintf("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT tw.track_reads('row'); SELECT count(*) FROM src;\n\\! psql -Xq -d '%s' -f %s/first.sql\nUPDATE m SET v = v + 1 WHERE dev = 1 AND at = '2026-01-01';\nCOMMIT;",
			$node->connstr('postgres'), $dir)), '40001', 'row, REPEATABLE READ: the target of an UPDATE has changed');

# ---------- refused ----------

# No row is compressed without the Timescale edition, but the catalog can say so
fresh();
query(q(UPDATE _timescaledb_catalog.chunk SET status = status | 1 WHERE hypertable_id = (SELECT id FROM _timescaledb_catalog.hypertable WHERE table_name = 'm') AND id = (SELECT min(id) FROM _timescaledb_catalog.chunk WHERE hypertable_id = (SELECT id FROM _timescaledb_catalog.hypertable WHERE table_name = 'm'))));
foreach my $statement (q(UPDATE m SET v = 1 WHERE at >= '2026-01-05'), q(DELETE FROM m WHERE at >= '2026-01-05'),
	q(MERGE INTO m USING src ON m.dev = src.dev AND at = '2026-01-05' WHEN NOT MATCHED THEN INSERT VALUES (now(), src.dev, 1)),
	q(INSERT INTO m VALUES ('2026-01-05', 1, 1) ON CONFLICT DO NOTHING))
{
	my ($status, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\nBEGIN; SELECT tw.track_reads('row'); $statement", on_error_stop => 1);

	like($error, qr/ERROR:  0A000: cannot track reads of hypertable "m"\nDETAIL:  It has compressed chunks/, "refused with compressed chunks: $statement");
}
is(sqlstate($node, q(BEGIN; SELECT tw.track_reads('predicate'); DO $$BEGIN INSERT INTO m VALUES ('2026-01-05', 1, 1); EXCEPTION WHEN unique_violation THEN NULL; END$$; INSERT INTO out VALUES (1); COMMIT)),
	'0A000', 'nor is a caught error believed');
is(sqlstate($node, q(BEGIN; SELECT tw.track_reads('row'); INSERT INTO m VALUES ('2026-01-05 01:00', 1, 1); ROLLBACK)), '', 'an INSERT is not');
foreach my $mode ('merge', 'overwrite', 'insert_new')
{
	my ($status, undef, $error) = $node->psql('postgres', qq(\\set VERBOSITY verbose\nSELECT tw.open_batch('m', 'compressed', '[{"table": "m", "mode": "$mode"}]')), on_error_stop => 1);

	like($error, qr/ERROR:  0A000: target public.m has compressed chunks\nDETAIL:  Mode "$mode" has to find rows/, "mode $mode is refused with compressed chunks");
}
fresh();
my $chunk = query(q(SELECT format('%I.%I', chunk_schema, chunk_name) FROM timescaledb_information.chunks WHERE hypertable_name = 'm' LIMIT 1));
my (undef, undef, $error) = $node->psql('postgres', qq(SELECT tw.open_batch('m', 'chunk', '[{"table": "$chunk", "mode": "append"}]')));
like($error, qr/It is a chunk of hypertable "public.m"/, 'a chunk is no target');

# ---------- blocks and batches ----------

fresh();
query(q(CALL tw.run('BEGIN ATOMIC
  INSERT INTO m VALUES (''2026-03-01'', 1, 5);
  UPDATE m SET v = v + 1 WHERE dev = 1 AND at = ''2026-01-01'';
  DELETE FROM m WHERE dev = 2 AND at = ''2026-01-01'';
  MERGE INTO m USING src ON m.dev = src.dev AND at = ''2026-01-02'' WHEN MATCHED THEN UPDATE SET v = src.v;
END', '{}', 'm', 'block', conflicts => 'predicate')));
is(query(q(SELECT string_agg(to_char(at, 'MM-DD') || ' ' || dev || ' ' || v, ', ' ORDER BY at, dev) FROM m WHERE v <> 1 OR at >= '2026-03-01')),
	'01-01 1 2, 01-02 1 10, 01-02 2 20, 03-01 1 5', 'a block writes chunks, old and new');
is(query(q(SELECT string_agg(o->>'command' || ' ' || (o->>'rows'), ', ') FROM tw.ledger, jsonb_array_elements(operations) o WHERE batch_id = 'block')),
	'INSERT 1, UPDATE 1, DELETE 1, MERGE 2', 'and its operations count the rows');
query(q(CALL tw.run('BEGIN ATOMIC
  INSERT INTO m VALUES (''2026-03-01'', 1, 5);
  UPDATE m SET v = v + 1 WHERE dev = 1 AND at = ''2026-01-01'';
  DELETE FROM m WHERE dev = 2 AND at = ''2026-01-01'';
  MERGE INTO m USING src ON m.dev = src.dev AND at = ''2026-01-02'' WHEN MATCHED THEN UPDATE SET v = src.v;
END', '{}', 'm', 'block', conflicts => 'predicate')));
is(query(q(SELECT v FROM m WHERE dev = 1 AND at = '2026-01-01')), '2', 'once');
is(sqlstate($node, q(CALL tw.run('BEGIN ATOMIC INSERT INTO m VALUES (''2026-05-01'', 1, 5); SIGNAL SQLSTATE ''75000''; END', '{}', 'm', 'fails'))), '75000', 'a block fails');
is(query(q(SELECT count(*) FROM timescaledb_information.chunks WHERE hypertable_name = 'm' AND range_start >= '2026-04-01')), '0', 'and leaves no chunk');

# Sessions that move amounts between rows of different chunks, and look at all of them
fresh();
append_to_file("$dir/move.sql", <<'SQL');
\set a random(0, 4)
\set b random(0, 4)
\set n random(1, 3)
CALL tw.run('BEGIN ATOMIC
  DECLARE total int;
  SELECT sum(v) INTO total FROM m WHERE dev = 1 AND at >= ''2026-01-01'' AND extract(hour FROM at) = 0;
  IF total <> 5 THEN SIGNAL SQLSTATE ''75001''; END IF;
  UPDATE m SET v = v - :n WHERE dev = 1 AND at = ''2026-01-01''::timestamptz + :a * interval ''1 day'';
  UPDATE m SET v = v + :n WHERE dev = 1 AND at = ''2026-01-01''::timestamptz + :b * interval ''1 day'';
END', '{"n": :n, "a": :a, "b": :b}', conflicts => 'predicate', max_attempts => 200);
SQL
$node->command_ok([ 'pgbench', '-n', '-c', 6, '-j', 2, '-t', 60, '-f', "$dir/move.sql", 'postgres' ], 'six sessions move amounts between chunks');
is(query(q(SELECT sum(v) FROM m WHERE dev = 1 AND extract(hour FROM at) = 0)), '5', 'and none is lost');

# ---------- staged ----------

my $number = 0;

# Stages rows for m in a mode and publishes; returns what m has then of device 9 and what the publish did
sub stage
{
	my ($options, $rows) = @_;
	my $batch = 'staged ' . ++$number;

	query(qq(SELECT tw.open_batch('m', '$batch', '[{"table": "m", $options}]', 2)));
	foreach my $task (0, 1)
	{
		query(qq(BEGIN; SELECT staging AS s FROM tw.attach_task('m', '$batch', '$task') \\gset
INSERT INTO :s SELECT at::timestamptz, dev, v FROM (VALUES $rows->[$task]) AS r (at, dev, v);
SELECT tw.commit_task(); COMMIT));
	}
	my $publish = query(qq(SELECT rows FROM tw.publish('m', '$batch')));
	is(query('SELECT count(*) FROM ONLY m'), '0', "$options: no row is outside of the chunks");
	return query(q(SELECT string_agg(to_char(at, 'DD') || '=' || v, ' ' ORDER BY at) FROM m WHERE dev = 9)) . " ($publish)";
}

fresh();
is(stage('"mode": "append"', [ q(('2026-01-01', 9, 1), ('2026-01-20', 9, 2)), q(('2026-01-02', 9, 3)) ]),
	'01=1 02=3 20=2 (3)', 'append goes to chunks that are there and makes new ones');
is(stage('"mode": "insert_new"', [ q(('2026-01-01', 9, 7), ('2026-01-21', 9, 4)), q(('2026-01-03', 9, 5)) ]),
	'01=1 02=3 03=5 20=2 21=4 (2)', 'insert_new keeps rows that are there');
is(stage('"mode": "merge", "key": ["at", "dev"]', [ q(('2026-01-01', 9, 11), ('2026-01-22', 9, 6)), q(('2026-01-02', 9, 3)) ]),
	'01=11 02=3 03=5 20=2 21=4 22=6 (2)', 'merge updates, inserts, and leaves what is the same');
is(stage('"mode": "merge", "delete_when": "v < 0", "order_by": "v DESC"', [ q(('2026-01-01', 9, 12), ('2026-01-01', 9, 10)), q(('2026-01-22', 9, -1)) ]),
	'01=12 02=3 03=5 20=2 21=4 (2)', 'merge deletes, and takes the first row of a key');
is(stage(q("mode": "overwrite", "where": "dev = 9 AND at < ''2026-01-20''"), [ q(('2026-01-01', 9, 12), ('2026-01-04', 9, 8)), q(('2026-01-05', 9, 9)) ]),
	'01=12 04=8 05=9 20=2 21=4 (4)', 'overwrite replaces a part');
is(query('SELECT count(*) FROM m WHERE dev IN (1, 2)'), '40', 'and no other');
is(stage('"mode": "overwrite"', [ q(('2026-01-01', 9, 1)), q(('2026-06-01', 9, 2)) ]), '01=1 01=2 (46)', 'overwrite replaces all');
is(query('SELECT count(*) FROM m'), '2', 'of it');

# An error leaves everything staged
query(q(SELECT tw.open_batch('m', 'duplicate', '[{"table": "m", "mode": "append"}]')));
query(q(BEGIN; SELECT staging AS s FROM tw.attach_task('m', 'duplicate', '1') \gset
INSERT INTO :s VALUES ('2026-01-01', 9, 1), ('2026-07-01', 9, 1); SELECT tw.commit_task(); COMMIT));
is(sqlstate($node, q(SELECT tw.publish('m', 'duplicate'))), '23505', 'a duplicate is refused');
is(query(q(SELECT rows FROM tw.staged_batches)), '2', 'and stays staged');
is(query('SELECT count(*) FROM m'), '2', 'and nothing of it is there');

# A table that becomes a hypertable while a batch is open
query(q(CREATE TABLE late (at timestamptz NOT NULL, v int);
SELECT tw.open_batch('m', 'late', '[{"table": "late", "mode": "append"}]');
BEGIN; SELECT staging AS s FROM tw.attach_task('m', 'late', '1') \gset
INSERT INTO :s VALUES ('2026-01-01', 1); SELECT tw.commit_task(); COMMIT;
SELECT create_hypertable('late', 'at');
SELECT tw.publish('m', 'late')));
is(query('SELECT count(*), (SELECT count(*) FROM ONLY late) FROM late'), '1|0', 'a table that becomes a hypertable meanwhile is written in its chunks');

# Publishing is seen as a whole: into chunks that are there, and, because TimescaleDB finds
# the chunks of a query when it is planned, into new ones when the driver locks the table
query(q(CREATE TABLE total (n int); INSERT INTO total VALUES (0); DROP TABLE m;
CREATE TABLE m (at timestamptz NOT NULL, dev int, v int, PRIMARY KEY (dev, at));
SELECT create_hypertable('m', 'at', chunk_time_interval => interval '1 day')));
append_to_file("$dir/reader.sql", q(SELECT 1 / ((SELECT count(*) FROM m) = (SELECT n FROM total))::int;) . "\n");
my $read = '';
my $readers = IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 600, '-f', "$dir/reader.sql", $node->connstr('postgres') . ' application_name=reader' ], '<' => \undef, '>&' => \$read);
$node->poll_query_until('postgres', q(SELECT count(*) = 2 FROM pg_stat_activity WHERE application_name = 'reader')) or die 'no readers';
foreach my $n (1 .. 40)
{
	my $day = 10 * int($n / 2);
	my $lock = $n % 2 ? '' : 'LOCK TABLE m;';

	query(qq(SELECT tw.open_batch('m', 'seen $n', '[{"table": "m", "mode": "append"}]');
BEGIN; SELECT staging AS s FROM tw.attach_task('m', 'seen $n', '1') \\gset
INSERT INTO :s SELECT timestamptz '2026-01-01' + ($day * 24 + i) * interval '1 hour', $n, i FROM generate_series(1, 100) i; SELECT tw.commit_task(); COMMIT));
	query(q(BEGIN; LOCK TABLE m; INSERT INTO m SELECT timestamptz '2026-01-01' + i * interval '1 hour', 0, i FROM generate_series(1, 100) i; UPDATE total SET n = n + 100; COMMIT)) if $n == 1;
	query(qq(BEGIN; $lock SELECT tw.publish('m', 'seen $n'); UPDATE total SET n = n + 100; COMMIT));
}
is(query(q(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'reader' AND backend_type = 'client backend')), '2', 'readers have read to the end');
query(q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reader'));
eval { $readers->finish };
unlike($read, qr/division by zero/, 'and saw each publish as a whole');
is(query('SELECT count(*) FROM m'), '4100', 'forty of them');

# ---------- the page of the documentation ----------

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
run_page('doc/timescaledb.md', slurp_file(dirname(__FILE__) . '/../../doc/timescaledb.md'),
	sub {
		my ($line, $shown, $printed, $varies, $missing) = @_;

		is($missing, undef, "doc/timescaledb.md, line $line, is run");
		is(normal($printed, $varies), normal($shown // '', $varies), "doc/timescaledb.md, line $line");
	});

$node->stop;
done_testing();
