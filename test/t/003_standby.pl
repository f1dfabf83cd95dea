# On a physical standby the ledger can be read, and a batch gets the server's own
# read-only error; after promotion a replay is known.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $primary = new_server('primary');
my $standby = PostgreSQL::Test::Cluster->new('standby');
my $batch = q(SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (1); END', '{}', 'load', 'first'));

$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', "CREATE TABLE t (v int); $batch");
$primary->wait_for_catchup($standby);

is($standby->safe_psql('postgres', 'SELECT job, batch_id, rows FROM tw.ledger'),
	'load|first|1', 'a standby shows the ledger');
is($standby->safe_psql('postgres', 'SELECT job FROM tw.jobs'), 'load', 'and the jobs');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM tw.failures'), '0', 'and the failures');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM tw.in_doubt'), '0', 'and that nothing is in doubt');
is(sqlstate($standby, q(CALL tw.commit_prepared('gid'))), '25006', 'nothing prepared can be committed there');
is(sqlstate($standby, q(SELECT tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (1); END'))),
	'25006', 'a block that writes gets the read-only error');
is(sqlstate($standby, q(SELECT tw.atomic('BEGIN ATOMIC RETURN 1; END', '{}', 'load', 'second'))),
	'25006', 'a new batch too');
is(sqlstate($standby, q(SELECT tw.begin_batch('load', 'second'))), '25006', 'without a block too');
is(sqlstate($standby, q(CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (1); END', '{}', 'load', 'second'))),
	'25006', 'and by CALL');
is($standby->safe_psql('postgres', q(SELECT result FROM tw.atomic('BEGIN ATOMIC RETURN (SELECT sum(v) FROM t); END'))),
	'1', 'a block that only reads runs');

$standby->promote;
is($standby->safe_psql('postgres', $batch), 'already_committed', 'after promotion a replay is known');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t'), '1', 'and does nothing');

done_testing();
