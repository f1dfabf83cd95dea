# What a conflict's hint says, and that it is true; and what is refused because of the server or of a table's access
# method.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = new_server('words');

$node->safe_psql('postgres', <<'END');
CREATE TABLE t (id int PRIMARY KEY, day int, v int);
CREATE INDEX ON t (day);
CREATE TABLE childless (id int);
CREATE FUNCTION reset() RETURNS void LANGUAGE sql AS
	'TRUNCATE t; INSERT INTO t SELECT n, n % 10, 0 FROM generate_series(1, 100) n';
END

# A transaction that reads, while another session writes: the hint of its commit, '' if it commits
sub hint
{
	my ($track, $read, $write) = @_;
	my ($stdout, $stderr);

	$node->safe_psql('postgres', 'SELECT reset()');
	$node->psql(
		'postgres', <<END, stdout => \$stdout, stderr => \$stderr);
SET enable_seqscan = off;
BEGIN ISOLATION LEVEL REPEATABLE READ;
$track;
$read;
\\! psql -Xqc "$write"
COMMIT;
END
	return '' if $stderr eq '';
	return $stderr =~ /could not serialize access due to a conflict.*^HINT:  (.*?)$/ms ? $1 : $stderr;
}

my $row = q(SELECT tw.track_reads('row'));
my $predicate = q(SELECT tw.track_reads('predicate'));
my $one = 'SELECT v FROM t WHERE id = 1';
my $count = 'SELECT count(*) FROM t WHERE day = 5';
my $all = 'SELECT count(*) FROM t';
my $update = 'UPDATE t SET v = 1 WHERE id = 1';
my $retry = 'Retry the transaction.';
my $lock = "$retry If it often fails on the same row, lock that where it is read: SELECT ... FOR SHARE.";
my $mode = "$retry If rows that it has not read need not count, track with mode 'row'.";
my $index = "$retry It has read all of the relation; where only a part is needed, an index for that part makes fewer changes count.";
my $more = "$retry It has read more than is remembered one by one: a larger transactional_writer.max_tracked_rows makes fewer changes count.";
my $few = 'SET LOCAL transactional_writer.max_tracked_rows = 10';

is(hint($row, $one, $update), $lock, 'row: the row that was read has changed');
is(hint($predicate, $one, $update), $lock, 'predicate: the row that was read has changed');
is(hint($row, $count, 'DELETE FROM t WHERE id = 5'), $lock, 'row: a row that was counted is gone');
is(hint($predicate, $count, 'DELETE FROM t WHERE id = 5'), $lock, 'predicate: a row that was counted is gone');
is(hint($predicate, $count, 'INSERT INTO t VALUES (101, 5, 0)'), $mode, 'predicate: a new row');
is(hint($row, $count, 'INSERT INTO t VALUES (101, 5, 0)'), '', '... and mode row lets it pass');
is(hint($predicate, $count, 'UPDATE t SET day = 5 WHERE id = 1'), $mode, 'predicate: a row that has come');
is(hint($row, $count, 'UPDATE t SET day = 5 WHERE id = 1'), '', '... and mode row lets it pass');
is(hint($predicate, $all, $update), $index, 'predicate: all was read');
is(hint($predicate, $count, $update), '', '... and an index lets it pass');
is(hint("$row; $few", $count, $update), '', 'row: few rows are remembered');
is(hint("$row; $few", "$all WHERE day < 9", 'INSERT INTO t VALUES (101, 5, 0)'), $more, '... and many are not');
is(hint($row, "$all WHERE day < 9", 'INSERT INTO t VALUES (101, 5, 0)'), '', '... unless that is allowed');
is(hint("$predicate; $few", "$one; SELECT v FROM t WHERE id = 2", 'INSERT INTO t VALUES (101, 5, 0)'), $more,
	'predicate: more keys than are remembered');
is(hint(q(SELECT tw.watch('t', 'day = 5')), 'SELECT 1', 'INSERT INTO t VALUES (101, 5, 0)'), $retry, 'tw.watch');
is(hint($predicate, 'SELECT count(*) FROM childless', 'CREATE TABLE child () INHERITS (childless)'), $retry, 'a new child');

# What a conflict was on is told of that error, and of no later one
my (undef, undef, $errors) = $node->psql('postgres', <<END, on_error_stop => 0);
BEGIN;
$predicate;
$one;
\\! psql -Xqc "$update"
COMMIT;
CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (1, 1, 1); END');
END
like($errors, qr/conflict on relation "t".*duplicate key/s, 'a conflict, and another error after it');
is($node->safe_psql('postgres', 'SELECT sqlstate, relation, kind FROM tw.failures'), '23505||', 'the kind of a conflict is not that of the next error');

# ---------- access methods ----------

# Heap under another name is heap
$node->safe_psql('postgres', 'CREATE ACCESS METHOD heap_too TYPE TABLE HANDLER heap_tableam_handler; '
	  . 'CREATE TABLE too (id int PRIMARY KEY, v int) USING heap_too; INSERT INTO too VALUES (1, 0)');
is(hint($predicate, 'SELECT v FROM too', 'UPDATE too SET v = 1'), $index, 'a table of heap by another name is tracked');

# Another method, which happens to do the same
my $build = PostgreSQL::Test::Utils::tempdir();

append_to_file("$build/other_am.c", <<'END');
#include "postgres.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "fmgr.h"
PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(other_am_handler);
Datum
other_am_handler(PG_FUNCTION_ARGS)
{
	static TableAmRoutine routine;

	routine = *GetHeapamTableAmRoutine();
	PG_RETURN_POINTER(&routine);
}
END
append_to_file("$build/Makefile", <<'END');
MODULES = other_am
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
END
system_or_bail('make', '-s', '-C', $build, 'with_llvm=no',
	'PG_CONFIG=' . $node->config_data('--bindir') . '/pg_config', 'all');
$node->safe_psql('postgres', "CREATE FUNCTION other_am_handler(internal) RETURNS table_am_handler LANGUAGE C AS '$build/other_am'; "
	  . 'CREATE ACCESS METHOD other TYPE TABLE HANDLER other_am_handler; CREATE TABLE other (id int) USING other; '
	  . 'INSERT INTO other VALUES (1)');
is(sqlstate($node, "BEGIN; $_; SELECT * FROM other"), '0A000', "a table of another method is refused: $_") foreach $row, $predicate;
is(sqlstate($node, q(SELECT tw.watch('other'))), '0A000', 'and not watched');
is(sqlstate($node, "BEGIN; $predicate; COPY other TO stdout"), '0A000', 'nor copied');
is(sqlstate($node, "BEGIN; $predicate; INSERT INTO t SELECT id + 200, 0, 0 FROM other"), '0A000', 'nor taken from');
is(sqlstate($node, 'SELECT * FROM other'), '', 'without tracking it is read');

# ---------- a server that forgets ----------

# The setting is gone in 17
if ($node->safe_psql('postgres', 'SHOW server_version_num') < 170000)
{
	$node->append_conf('postgresql.conf', "old_snapshot_threshold = '1h'");
	$node->restart;
	my ($status, $stdout, $stderr) = $node->psql('postgres', $row);

	like($stderr, qr/cannot track reads while "old_snapshot_threshold" is set.*HINT:  Set old_snapshot_threshold = -1/s,
		'old_snapshot_threshold is told of');
	is(sqlstate($node, $row), '55000', 'and refused');
	is(sqlstate($node, q(CALL tw.run('BEGIN ATOMIC RETURN 1; END'))), '55000', 'by tw.run as well');
}

$node->stop;
done_testing();
