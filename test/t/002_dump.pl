# After pg_dump and a restore into another server ledger, offsets, failures and audit log
# agree with the data: a replay is a no-op there too, and who may use a job is as before.  Only
# the role that was dropped is nobody there, because its number may be another role's.
# In the custom format at once, and as plain schema first and data after.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = new_server('main');
my $dir = PostgreSQL::Test::Utils::tempdir();

my $insert = 'BEGIN ATOMIC INSERT INTO t VALUES (:v); RETURN :v + 1; END';
my $first = qq(SELECT status, result, rows FROM tw.atomic('$insert', '{"v": 1}', 'load', 'first'));

# All there is in our tables, by name, so that what a later version adds is compared as well
my $everything = q(
	SELECT string_agg(format('SELECT %L AS "table", to_jsonb(x)::text AS row FROM tw.%I x', relname, relname), ' UNION ALL '
		ORDER BY relname) || ' ORDER BY 1, 2'
	FROM pg_class WHERE relnamespace = 'tw'::regnamespace AND relkind = 'r');

sub everything
{
	my ($server) = @_;

	return $server->safe_psql('postgres', $server->safe_psql('postgres', $everything));
}

# Many transactions, so that the old server's xids are in the new one's future
$node->safe_psql('postgres', q(
	CREATE TABLE t (v int);
	CREATE ROLE loader;
	CREATE ROLE "team ""A""";
	CREATE ROLE stranger;
	CREATE ROLE leaver;
	GRANT USAGE ON SCHEMA tw TO loader, stranger;
	GRANT ALL ON t TO loader, stranger;
	DO $$BEGIN FOR i IN 1 .. 2000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END$$));
is($node->safe_psql('postgres', "SET ROLE loader; $first"), 'applied|2|1', 'a batch commits');
is($node->safe_psql('postgres', q(SET ROLE loader; SELECT status FROM tw.begin_batch('load', 'second', 'digest'))),
	'started', 'and one without a block');
$node->safe_psql('postgres', q(
	SET ROLE loader;
	SELECT tw.commit_offset('load', 'orders', '0', NULL, '10');
	SELECT tw.commit_offset('load', 'orders', '0', '10', '20');
	SELECT tw.init_producer('load', 'host a');
	SELECT tw.begin_batch('load', 'v1', version => 1);
	SELECT tw.begin_batch('load', 'v2', version => 2);
	SELECT tw.forget_batch('load', 'v1', 'half a file; "quoted", ''twice''');
	SELECT tw.begin_batch('pruned', 'v7', version => 7);
	SELECT tw.prune_ledger('pruned', '0');
	SET ROLE "team ""A""";
	SELECT tw.create_job(E'odd\t"name" ''N', '30 days')));
is(sqlstate($node, q(SET ROLE loader; CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75000''; END', '{}', 'load', 'failed'))),
	'75000', 'and one fails');
is(sqlstate($node, q(SET ROLE leaver; CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''75000''; END', '{}', 'left', 'failed'))),
	'75000', 'another of a role');
my $gone = $node->safe_psql('postgres', q(
	SET ROLE leaver;
	SELECT tw.create_job('left');
	RESET ROLE;
	SELECT owner::oid FROM tw.jobs WHERE job = 'left';
	DROP ROLE leaver));
$gone =~ s/\s//g;
my $before = everything($node);
is($before =~ s/(?<=: ")$gone(?=")/-/g, 2, 'that is gone now');

like($before, qr/\Q$_\E/, "there is a row of $_ to dump")
  foreach qw(audit batch batch_outcome failure job source_offset);

# The restored server is as the first one was
sub check
{
	my ($other, $how) = @_;

	is(everything($other), $before, "$how: all of our rows are the same");
	is($other->safe_psql('postgres', "SET ROLE loader; $first"),
		'already_committed|2|1', "$how: a replay is told what the first server did");
	is($other->safe_psql('postgres', 'TABLE t'), '1', "$how: and does nothing");
	is($other->safe_psql('postgres', q(SET ROLE loader; SELECT status FROM tw.begin_batch('load', 'second', 'digest'))),
		'already_committed', "$how: a batch without a block as well");
	is(sqlstate($other, q(SET ROLE loader; SELECT tw.begin_batch('load', 'second', 'another digest'))),
		'TW002', "$how: fingerprints are kept");
	is(sqlstate($other, "SET ROLE stranger; $first"), '42501', "$how: the job still has its owner");
	is($other->safe_psql('postgres', qq(SET ROLE loader; SELECT status FROM tw.atomic('$insert', '{"v": 2}', 'load', 'third'))),
		'applied', "$how: new batches run");
	is($other->safe_psql('postgres', q(SET ROLE loader; SELECT tw.offset('load', 'orders', '0'))), '20',
		"$how: sources are read on from where they were");
	is(sqlstate($other, q(SET ROLE loader; SELECT tw.commit_offset('load', 'orders', '0', '10', '20'))),
		'TW005', "$how: and not again");
	is($other->safe_psql('postgres', q(SET ROLE loader; SELECT tw.init_producer('load', 'host a'))), '1',
		"$how: the writer has its epoch");
	is(sqlstate($other, q(SELECT tw.begin_batch('pruned', 'v7', version => 7))), 'TW008',
		"$how: what was pruned is out of order");
	is($other->safe_psql('postgres', q(SET ROLE loader; SELECT status FROM tw.begin_batch('load', 'v1', version => 1))),
		'started', "$how: what was forgotten may run again");
	is(sqlstate($other, q(SET ROLE loader; SELECT tw.prune_ledger('load', '0'); SELECT tw.begin_batch('load', 'v1', version => 1))),
		'TW008', "$how: once");
	is($other->safe_psql('postgres', q(SELECT tw.reassign_job('left', 'stranger'); SET ROLE stranger;
		SELECT owner FROM tw.jobs)), "\nstranger", "$how: a superuser gives a job of nobody to somebody");
	is($other->safe_psql('postgres', q(SELECT owner, retention FROM tw.jobs WHERE job = E'odd\t"name" ''N')),
		q("team ""A"""|30 days), "$how: names and roles that need quotes");
	$other->stop;
	return;
}

sub restored
{
	my ($name) = @_;
	my $other = PostgreSQL::Test::Cluster->new($name);

	$other->init;
	$other->start;
	$other->safe_psql('postgres', 'CREATE ROLE loader; CREATE ROLE "team ""A"""; CREATE ROLE stranger');
	return $other;
}

my $custom = restored('custom');
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/custom", $node->connstr('postgres') ], 'pg_dump in the custom format');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $custom->connstr('postgres'), "$dir/custom" ], 'pg_restore');
check($custom, 'custom format');

my $parts = restored('parts');
command_ok([ 'pg_dump', '--schema-only', '-f', "$dir/schema.sql", $node->connstr('postgres') ], 'pg_dump of the schema');
command_ok([ 'pg_dump', '--data-only', '-f', "$dir/data.sql", $node->connstr('postgres') ], 'pg_dump of the data');
foreach my $part ('schema', 'data')
{
	command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $parts->connstr('postgres'), '-f', "$dir/$part.sql" ],
		"the $part is restored");
}
check($parts, 'schema and data');

# A dump that is older than the last batches: what came after counts as new, data and offsets alike

$node->safe_psql('postgres', q(
	SET ROLE loader;
	BEGIN;
	SELECT tw.begin_batch('load', 'after the dump');
	INSERT INTO t VALUES (30);
	SELECT tw.commit_offset('load', 'orders', '0', '20', '30');
	COMMIT;));
my $older = restored('older');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $older->connstr('postgres'), "$dir/custom" ], 'the older dump is restored');
is($older->safe_psql('postgres', q(
	SET ROLE loader;
	BEGIN;
	SELECT status FROM tw.begin_batch('load', 'after the dump');
	INSERT INTO t SELECT 30 WHERE tw.offset('load', 'orders', '0') = '20';
	SELECT tw.commit_offset('load', 'orders', '0', '20', '30');
	COMMIT;
	SELECT count(*) FROM t WHERE v = 30)),
	"started\n\n1", 'what the dump did not have runs again, from where the dump was');

done_testing();
