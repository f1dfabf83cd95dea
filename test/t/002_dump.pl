# After pg_dump and a restore into another server the ledger agrees with the data: a
# replay is a no-op there too, and who may use a job is as before.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = new_server('main');
my $other = PostgreSQL::Test::Cluster->new('other');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';

my $insert = 'BEGIN ATOMIC INSERT INTO t VALUES (:v); RETURN :v + 1; END';
my $first = qq(SELECT status, result, rows FROM tw.atomic('$insert', '{"v": 1}', 'load', 'first'));
my $ledger = 'SELECT job, batch_id, result, rows, operations, attempts, xid, started_at, finished_at FROM tw.ledger ORDER BY 1, 2';

# Many transactions, so that the old server's xids are in the new one's future
$node->safe_psql('postgres', q(
	CREATE TABLE t (v int);
	CREATE ROLE loader;
	CREATE ROLE stranger;
	GRANT USAGE ON SCHEMA tw TO loader, stranger;
	GRANT ALL ON t TO loader, stranger;
	DO $$BEGIN FOR i IN 1 .. 2000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END$$));
is($node->safe_psql('postgres', "SET ROLE loader; $first"), 'applied|2|1', 'a batch commits');
is($node->safe_psql('postgres', q(SET ROLE loader; SELECT status FROM tw.begin_batch('load', 'second', 'digest'))),
	'started', 'and one without a block');

command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
$other->init;
$other->start;
$other->safe_psql('postgres', 'CREATE ROLE loader; CREATE ROLE stranger');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $other->connstr('postgres'), $dump ], 'pg_restore');

is($other->safe_psql('postgres', $ledger), $node->safe_psql('postgres', $ledger), 'the ledger is the same');
is($other->safe_psql('postgres', 'TABLE tw.jobs'), $node->safe_psql('postgres', 'TABLE tw.jobs'), 'the jobs too');
is($other->safe_psql('postgres', "SET ROLE loader; $first"),
	'already_committed|2|1', 'a replay is told what the first server did');
is($other->safe_psql('postgres', 'TABLE t'), '1', 'and does nothing');
is($other->safe_psql('postgres', q(SET ROLE loader; SELECT status FROM tw.begin_batch('load', 'second', 'digest'))),
	'already_committed', 'a batch without a block as well');
is(sqlstate($other, q(SET ROLE loader; SELECT tw.begin_batch('load', 'second', 'another digest'))),
	'TW002', 'fingerprints are kept');
is(sqlstate($other, "SET ROLE stranger; $first"), '42501', 'the job still has its owner');
is($other->safe_psql('postgres', qq(SET ROLE loader; SELECT status FROM tw.atomic('$insert', '{"v": 2}', 'load', 'third'))),
	'applied', 'new batches run');

done_testing();
