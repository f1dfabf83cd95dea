# Behind a pooler in transaction mode every transaction may get another session, and
# every session serves many clients: nothing of a batch may stay in the session.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter qw(:DEFAULT pgbouncer start_pooler);

plan skip_all => 'pgbouncer is not installed' if !pgbouncer();

my $node = new_server('main');
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $user = $node->safe_psql('postgres', 'SELECT current_user');

# Statements of one client, through the pooler; answers and errors
sub client
{
	my ($sql) = @_;
	my ($out, $err);

	IPC::Run::run([ 'psql', '-XqAt', '-v', 'VERBOSITY=sqlstate', '-d', "host=$dir port=6432 dbname=postgres user=$user" ],
		'<' => \$sql, '>' => \$out, '2>' => \$err);
	chomp($out, $err);
	return $err eq '' ? $out : "$out$err";
}

$node->safe_psql('postgres', 'CREATE TABLE t (client text, batch text)');

# One session for all

my $pooler = start_pooler($node, $dir, default_pool_size => 1);

is(client(q(
	BEGIN;
	SELECT status FROM tw.begin_batch('one', 'first');
	INSERT INTO t VALUES ('a', 'first');
	COMMIT;)), 'started', 'a batch of plain SQL in one transaction');
is(client('SELECT tw.finish_batch()'), 'ERROR:  55000', 'the next client of that session has no open batch');
is(client(q(SELECT status FROM tw.begin_batch('one', 'first'))), 'already_committed', 'and meets the committed one');
is(client(q(
	BEGIN;
	SELECT status FROM tw.begin_batch('one', 'second');
	INSERT INTO t VALUES ('a', 'second');
	ROLLBACK;
	SELECT count(*) FROM t WHERE batch = 'second';)), "started\n0", 'a batch rolled back');
is(client(q(SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (''b'', ''second''); END', '{}', 'one', 'second'))),
	'applied', 'is free for the next client');
is(client(q(CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (''b'', ''third''); END', '{}', 'one', 'third'))),
	'committed||1|1', 'CALL tw.run commits by itself');
is(client('SHOW transaction_isolation'), 'read committed', 'and leaves the isolation level as it was');
kill_client($pooler);

# Many clients, few sessions, each batch asked for by several clients

$pooler = start_pooler($node, $dir, default_pool_size => 3);
my $script = "$dir/script.sql";
append_to_file($script, join("\n",
	'\set batch random(1, 100)',
	q(SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (''many'', params.batch::text); END',
		jsonb_build_object('batch', :batch), 'many', :batch::text);)));
command_ok([ 'pgbench', '-n', '-c', '8', '-t', '50', '-f', $script, '-h', $dir, '-p', '6432', '-U', $user, 'postgres' ],
	'eight clients over three sessions');
is($node->safe_psql('postgres', q(
	SELECT (SELECT count(*) FROM tw.ledger WHERE job = 'many') - (SELECT count(DISTINCT batch) FROM t WHERE client = 'many'),
		(SELECT count(*) FROM t WHERE client = 'many') - (SELECT count(DISTINCT batch) FROM t WHERE client = 'many'))),
	'0|0', 'each batch ran once');
kill_client($pooler);

done_testing();
