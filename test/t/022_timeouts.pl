# PostgreSQL's timeouts, in every phase of a batch: in a block, between claim and COMMIT, in a
# staged task, in a publish, in PREPARE, in the checks of COMMIT, and while something is waited
# for.  Each time nothing is half done, the error is the timeout's own, no handler has swallowed
# it, it came in that phase and not before, and the same batch run again does its work.
#
# What is waited for is held by a transaction that is prepared, or sleeps for a minute, so a
# timeout always comes; how soon does not matter.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = new_server('main', 'max_prepared_transactions = 10');
my $version = $node->safe_psql('postgres', 'SHOW server_version_num');
my @connection = ('-XqAt', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose', '-d', $node->connstr('postgres'));

sub query { return $node->safe_psql('postgres', $_[0]); }

# Runs statements in a session of their own; returns the SQLSTATE of the error that ends them, and its text
sub failure
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'psql', @connection ], '<' => \$sql, '>' => \$out, '2>' => \$err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $err =~ /(?:ERROR|FATAL):\s+(\w{5}):/ ? ($1, $err) : ('none', $err);
}

# Runs statements, does something else while the session is idle, and goes on; returns the same
sub failure_after
{
	my ($sql, $meanwhile, $rest) = @_;
	my ($in, $out, $err) = ("$sql\n\\echo ready\n", '', '');
	my $session = IPC::Run::start([ 'psql', @connection ], '<' => \$in, '>' => \$out, '2>' => \$err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	$session->pump until $out =~ /^ready$/m;
	$meanwhile->();
	$in .= "$rest\n";
	eval { $session->finish };
	return $err =~ /(?:ERROR|FATAL):\s+(\w{5}):/ ? ($1, $err) : ('none', $err);
}

# Runs statements, and waits until the server has ended the idle session; returns the SQLSTATE
# that its COMMIT is told
sub idle_failure
{
	my ($sql) = @_;
	my ($state) = failure_after("SET application_name = 'idle'; $sql", sub {
		$node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'idle'))
		  or die 'the session was not ended';
	}, 'COMMIT;');

	return $state;
}

# Which timeouts there are, and the SQLSTATE of each.  In a transaction they are set for the rest
# of it, just before the statement that they meet; before a CALL for the session.
my %state = (statement => '57014', lock => '55P03');
$state{transaction} = '25P04' if $version >= 170000;

sub timeout_set
{
	my ($timeout, $local, $times) = @_;

	return sprintf q(SET %s %s_timeout = '%dms';), $local ? 'LOCAL' : '', $timeout, ($local ? 250 : 500) * ($times // 1);
}

# What of a batch there is: rows, entries in the ledger, staged tasks, staging, what is prepared
# beside the holder
my $traces = q(
	SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM tw.ledger), (SELECT count(*) FROM tw.staged_tasks),
		(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%'),
		(SELECT count(*) FROM pg_prepared_xacts WHERE gid <> 'holder'));

# There is what there was before, and no lock of ours; a session that was ended may need a moment
# for that
sub nothing_left
{
	my ($before, $name) = @_;

	is(query($traces), $before, "$name: nothing is left");
	ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'object' AND classid::regclass::text LIKE 'tw.%'
		AND pid IS NOT NULL)), "$name: and no lock");
	return;
}

# Runs the same statements into each of several timeouts
#	holder		a transaction that is prepared meanwhile and holds what is waited for
#	begin, sql	of the session: before the timeout is set, and what it comes in.  sql is a
#				CALL when begin is not given
#	phase		must be in the text of the error
sub cut
{
	my ($name, $timeouts, %case) = @_;
	my $before = query($traces);

	query("BEGIN; $case{holder}; PREPARE TRANSACTION 'holder'") if $case{holder};
	foreach my $timeout (grep { $state{$_} } @$timeouts)
	{
		my ($state, $text);

		# One that came before that phase, on a machine that was slow just then, says nothing of it
		foreach my $times (1, 4, 16, 64)
		{
			($state, $text) = failure(defined $case{begin} ?
				"BEGIN; $case{begin}; " . timeout_set($timeout, 1, $times) . " $case{sql};" : timeout_set($timeout, 0, $times) . " $case{sql};");
			last if $state ne $state{$timeout} || $text =~ $case{phase};
		}
		is($state, $state{$timeout}, "$name: ${timeout}_timeout");
		like($text, $case{phase}, "$name: in that phase");
	}
	query(q(ROLLBACK PREPARED 'holder')) if $case{holder};
	nothing_left($before, $name);
	return;
}

query(q(
	CREATE TABLE t (k int PRIMARY KEY, v text);
	CREATE TABLE switch (slow boolean);
	INSERT INTO switch VALUES (true);
	CREATE FUNCTION slow() RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT slow FROM switch) THEN
			PERFORM pg_sleep(60);
		END IF;
		RETURN true;
	END $$;
	CREATE FUNCTION slow_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
	SELECT tw.init_producer('j', 'one');));
sub fast { query('UPDATE switch SET slow = false'); return; }
sub slow { query('UPDATE switch SET slow = true'); return; }

# ---------- blocks ----------

my $block = q($$BEGIN ATOMIC
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO t VALUES (99, 'swallowed');
	INSERT INTO t VALUES (1, 'block');
	SELECT slow();
END$$);
my $run = qq(CALL tw.run($block, job => 'j', batch_id => 'block', epoch => 1));

cut('a statement of a block', [qw(statement transaction)], begin => 'SELECT 1', phase => qr/atomic block line 4/,
	sql => qq(SELECT status FROM tw.atomic($block, job => 'j', batch_id => 'block', epoch => 1)));
cut('a statement of CALL tw.run', [qw(statement transaction)], sql => $run, phase => qr/atomic block line 4/);
cut('a loop without a query', [qw(statement transaction)], begin => 'SELECT 1', phase => qr/timeout/,
	sql => q(SELECT status FROM tw.atomic($$BEGIN ATOMIC
		DECLARE n int DEFAULT 0;
		DECLARE CONTINUE HANDLER FOR SQLEXCEPTION INSERT INTO t VALUES (99, 'swallowed');
		LOOP SET n = 1 - n; END LOOP;
	END$$, job => 'j', batch_id => 'loop')));
cut('a function in a block that catches all', [qw(statement transaction)], begin => 'SELECT 1', phase => qr/slow_or_not/,
	sql => q(
		CREATE FUNCTION slow_or_not() RETURNS void LANGUAGE plpgsql AS
			'BEGIN PERFORM slow(); EXCEPTION WHEN OTHERS THEN INSERT INTO t VALUES (99, SQLSTATE); END';
		SELECT status FROM tw.atomic('BEGIN ATOMIC SELECT slow_or_not(); END', job => 'j', batch_id => 'function')));

query('CREATE CONSTRAINT TRIGGER late AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow_row()');
cut('deferred triggers at the end of a block', [qw(statement transaction)], begin => 'SELECT 1', phase => qr/slow_row/,
	sql => q(SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (1); END', job => 'j', batch_id => 'block')));
cut('deferred triggers at COMMIT', [qw(transaction)], phase => qr/slow_row/, sql => 'COMMIT',
	begin => q(SELECT tw.begin_batch('j', 'block'); INSERT INTO t VALUES (1)));
query('DROP TRIGGER late ON t');

my $claim = q(SELECT tw.begin_batch('j', 'block'));
my @all = qw(statement lock transaction);
cut('a claim', \@all, holder => $claim, begin => 'SELECT 1', sql => $claim, phase => qr/claim of batch "block" of job "j"/);
cut('the claim of CALL tw.run', \@all, holder => $claim, sql => $run, phase => qr/claim of batch "block" of job "j"/);
my $offset = q(SELECT tw.commit_offset('j', 's', 'p', NULL, '1'));
cut('the move of an offset', \@all, holder => $offset, begin => $claim, sql => $offset, phase => qr/offset of partition "p"/);

fast();
is(query($run), 'committed||1|1', 'the block runs when nothing is in the way');
is(query($run), 'already_committed||1|1', 'and is not run twice');
is(query(q(SELECT v FROM t)), 'block', 'and no handler had ever run');
slow();
is(query(q(SELECT DISTINCT sqlstate FROM tw.failures WHERE job = 'j' ORDER BY 1)), "55P03\n57014",
	'what CALL tw.run gave up on is on record');

# ---------- COMMIT and PREPARE ----------

# The epoch is being moved by a transaction that does not end.  In COMMIT and PREPARE themselves
# PostgreSQL has no statement_timeout; in the commit of a CALL it has.
my $mover = q(SELECT tw.init_producer('j', 'two'));
my $epoch = qr/waiting for the lock on the epoch of job "j"/;
my $batch = q(SELECT tw.begin_batch('j', 'commit', epoch => 1); INSERT INTO t VALUES (2, 'commit'));
cut('the check of COMMIT', [qw(lock transaction)], holder => $mover, begin => $batch, sql => 'COMMIT', phase => $epoch);
cut('the check of PREPARE', [qw(lock transaction)], holder => $mover, begin => $batch, sql => q(PREPARE TRANSACTION 'cut'), phase => $epoch);
cut('the check of the commit of CALL tw.run', \@all, holder => $mover, phase => $epoch,
	sql => q(CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (2, ''commit''); END', job => 'j', batch_id => 'commit', epoch => 1)));
cut('tw.init_producer', \@all, holder => $mover, begin => 'SELECT 1', sql => $mover, phase => $epoch);

query("BEGIN; $batch; PREPARE TRANSACTION 'doubt'");
cut('tw.recover', \@all, holder => $mover, sql => q(CALL tw.recover('j', 1, commit => '{doubt}')), phase => $epoch);
is(query(q(CALL tw.commit_prepared('doubt'))), 'committed', 'what was not resolved can be');
is(query(q(SELECT count(*) FROM t WHERE v = 'commit')), '1', 'and is there once');

# What was read is being changed by a younger transaction that does not end: the wait for it is
# over as soon as conflict_wait or lock_timeout is, with the error of a conflict in both cases
my $reads = q(SELECT tw.track_reads('%s'); SELECT tw.begin_batch('j', 'read'); SELECT * FROM t);
foreach my $mode (qw(row predicate))
{
	foreach my $timeout (grep { $state{$_} } qw(lock transaction))
	{
		my $before = query($traces);
		my ($state, $text) = failure_after("BEGIN; " . sprintf($reads, $mode) . ';',
			sub { query(q(BEGIN; UPDATE t SET v = v; PREPARE TRANSACTION 'holder')) },
			q(SET LOCAL transactional_writer.conflict_wait = '60s'; ) . timeout_set($timeout, 1) . ' COMMIT;');

		is($state, $timeout eq 'lock' ? '40001' : $state{$timeout}, "the wait for a younger writer, mode $mode: ${timeout}_timeout");
		nothing_left($before, 'the same');
		query(q(ROLLBACK PREPARED 'holder'));
		is(query('BEGIN; ' . sprintf($reads, $mode) . '; ROLLBACK') =~ s/\n.*//sr, '', 'and nothing is in the way of the next');
	}
}

# ---------- a session that does nothing ----------

my @idle = ([ idle_in_transaction_session => '25P03' ], $version >= 170000 ? [ transaction => '25P04' ] : ());
foreach my $idle (@idle)
{
	my ($timeout, $state) = @$idle;
	my $before = query($traces);
	my $local = "SET LOCAL ${timeout}_timeout = '100ms';";

	is(idle_failure(qq(BEGIN; SELECT tw.begin_batch('j', 'idle $timeout'); INSERT INTO t VALUES (3, 'idle'); $local)), $state,
		"between claim and COMMIT: ${timeout}_timeout");
	nothing_left($before, 'the same');
	is(query(qq(SELECT status FROM tw.begin_batch('j', 'idle $timeout'))), 'started', 'and the batch is free');
}

# Who waits for the claim of a session that hangs gets it
my ($answer, $waiter) = ('');
my ($state) = failure_after(q(SET application_name = 'idle'; BEGIN; SELECT tw.begin_batch('j', 'hangs');
	SET LOCAL idle_in_transaction_session_timeout = '2s';), sub {
	$waiter = IPC::Run::start([ 'psql', @connection, '-c', q(SELECT status FROM tw.begin_batch('j', 'hangs')) ],
		'<' => \undef, '>' => \$answer, '2>&1', IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	$node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'idle'));
}, 'COMMIT;');
$waiter->finish;
is($state, '25P03', 'a writer that hangs is ended');
like($answer, qr{^started$}m, 'and its batch goes to who asks next');

# ---------- staged batches ----------

my $open = q(SELECT status FROM tw.open_batch('j', 'staged', '[{"table": "t", "mode": "merge", "key": ["k"]}]', guards => '{SELECT slow()}'));
my $attach = q(SELECT count(*) FROM tw.attach_task('j', 'staged', 'one'));
my $publish = q(SELECT status FROM tw.publish('j', 'staged'));

cut('tw.open_batch', \@all, holder => 'LOCK TABLE t', begin => 'SELECT 1', sql => $open, phase => qr/timeout/);
cut('a guard of tw.open_batch', [qw(statement transaction)], begin => 'SELECT 1', sql => $open, phase => qr/slow\(\) line/);
fast();
is(query($open), 'opened', 'a batch is opened when nothing is in the way');
slow();

my $staging = query(q(SELECT schema FROM tw.staged_batches)) . '.t';
my $task = "$attach; INSERT INTO $staging SELECT g, 'staged' FROM generate_series(10, 19) AS g; SELECT tw.commit_task()";
cut('tw.attach_task', \@all, holder => q(SELECT tw.abort_batch('j', 'staged')), begin => 'SELECT 1', sql => $attach,
	phase => qr/lock on staged batch "staged" of job "j"/);
cut('the load of a task', [qw(statement transaction)], begin => $attach, phase => qr/slow\(\) line/,
	sql => "INSERT INTO $staging SELECT g, slow()::text FROM generate_series(10, 19) AS g");
cut('tw.commit_task', \@all, holder => $task, begin => $task =~ s/; SELECT tw.commit_task\(\)//r, sql => 'SELECT tw.commit_task()',
	phase => qr/another attempt at task "one"/);
foreach my $idle (@idle)
{
	my ($timeout, $state) = @$idle;
	my $before = query($traces);

	is(idle_failure("BEGIN; $task; SET LOCAL ${timeout}_timeout = '100ms';"), $state, "between task and COMMIT: ${timeout}_timeout");
	nothing_left($before, 'the same');
	is(query("SELECT count(*) FROM $staging"), '0', 'and nothing is staged');
}
query("BEGIN; $task; COMMIT");
is(query("SELECT count(*) FROM $staging"), '10', 'the task is done when nothing is in the way');

my $other = $attach =~ s/'one'/'two'/r . '; SELECT tw.commit_task()';
cut('a publish, the batch', \@all, holder => $other, begin => 'SELECT 1', sql => $publish, phase => qr/lock on staged batch "staged" of job "j"/);
cut('a publish, the target', \@all, holder => 'LOCK TABLE t IN ROW EXCLUSIVE MODE', begin => 'SELECT 1', sql => $publish,
	phase => qr/lock on target t of batch "staged" of job "j"/);
cut('a publish, its guard', [qw(statement transaction)], begin => 'SELECT 1', sql => $publish, phase => qr/slow\(\) line/);
cut('a publish, its audit', [qw(statement transaction)], begin => 'SELECT 1', phase => qr/slow\(\) line.*atomic block line 1/s,
	sql => q(SELECT tw.publish('j', 'staged', audit => 'BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION SELECT 1; SELECT slow(); END')));
query('CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slow_row()');
fast();
cut('a publish, its rows', [qw(statement transaction)], begin => 'SELECT 1', sql => $publish, phase => qr/slow_row\(\) line/);
query('DROP TRIGGER slow ON t');
foreach my $idle (@idle)
{
	my ($timeout, $state) = @$idle;
	my $before = query($traces);

	is(idle_failure("BEGIN; $publish; SET LOCAL ${timeout}_timeout = '100ms';"), $state, "between publish and COMMIT: ${timeout}_timeout");
	nothing_left($before, 'the same');
}
cut('tw.abort_batch', \@all, holder => $other, begin => 'SELECT 1', sql => q(SELECT tw.abort_batch('j', 'staged')), phase => qr/staged batch "staged"/);
is(query($publish), 'applied', 'the batch is published when nothing is in the way');
is(query($publish), 'already_committed', 'and not twice');
is(query(q(SELECT count(*) FROM t WHERE v = 'staged')), '10', 'and its rows are there once');
is(query(q(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%')), '0', 'and no staging');

# A swap of partitions that cannot get its lock tries for a second; then the rows would be moved
query(q(
	CREATE TABLE p (day int, v int) PARTITION BY LIST (day);
	CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
	INSERT INTO p VALUES (1, 1);
	SELECT tw.open_batch('j', 'swap', '[{"table": "p", "mode": "overwrite", "where": "day = 1"}]', logged => true)));
$staging = query(q(SELECT schema FROM tw.staged_batches)) . '.p';
query("BEGIN; SELECT tw.attach_task('j', 'swap', 'one'); INSERT INTO $staging VALUES (1, 2); SELECT tw.commit_task(); COMMIT");
$publish = q(SELECT status, operations->0->>'command' FROM tw.publish('j', 'swap'));
cut('a swap', [qw(statement transaction)], holder => 'LOCK TABLE p1 IN ACCESS SHARE MODE', begin => 'SELECT 1', sql => $publish, phase => qr/timeout/);
is(query('SELECT v FROM p'), '1', 'the partition is as it was');
is(query($publish), 'applied|SWAP PARTITIONS', 'and is swapped when nothing is in the way');
is(query('SELECT v FROM p'), '2', 'and has the rows that were staged');

# ---------- prepared batches ----------

my $prepare = q(BEGIN; SELECT tw.begin_batch('j', 'session', epoch => 1); INSERT INTO t VALUES (30, 'doubt'); PREPARE TRANSACTION 'session';);
is(idle_failure("$prepare SET idle_session_timeout = '100ms';"), '57P05', 'after PREPARE: idle_session_timeout');
is(query('SELECT gid, prepared_at IS NOT NULL FROM tw.in_doubt'), 'session|t', 'what is prepared stays in doubt');
is(query(q(SELECT tw.init_producer('j', 'three'))), '2', 'and is in nobody\'s way');
is(query(q(CALL tw.recover('j', 2, commit => '{session}'))) =~ s/\n.*//sr, '1|0', 'and is settled by the next writer');
is(query(q(SELECT count(*) FROM t WHERE v = 'doubt')), '1', 'and its row is there once');

# ---------- many chunks ----------

slow();
my $chunks = q(CALL tw.run_chunks('j', 'chunks', 'BEGIN ATOMIC
	INSERT INTO t SELECT g, ''chunk'' FROM generate_series(:chunk_from::int, :chunk_to::int) AS g;
	SELECT pg_sleep(0.5);
	IF :chunk_from = 105 THEN SELECT slow(); END IF;
END', 101, 120, 2););
foreach my $timeout (grep { $state{$_} } qw(statement transaction))
{
	# of all chunks, or of each
	my ($state, $text) = failure("SET ${timeout}_timeout = " . ($timeout eq 'statement' ? q('8s') : q('3s')) . "; $chunks");

	is($state, $state{$timeout}, "a chunk: ${timeout}_timeout");
	is(query(q(SELECT count(*) FROM t WHERE v = 'chunk')), '4', 'the chunks before it are committed, and nothing of it');
}
fast();
# each chunk is a transaction; all of them take longer than one may
query(($version >= 170000 ? q(SET transaction_timeout = '3s'; ) : '') . $chunks);
is(query(q(SELECT count(*) FROM t WHERE v = 'chunk')), '20', 'the same call does the rest');

# ---------- the worker ----------

# It is held up for longer than a transaction may take by the server's settings, by which
# transactions do not write either; those are not for it
if ($version >= 170000)
{
	# nor for what this test does there, which may be slow
	local $ENV{PGOPTIONS} = '-c transaction_timeout=0 -c statement_timeout=0 -c default_transaction_read_only=off';
	my $server = new_server('worker', q(shared_preload_libraries = 'transactional_writer'), 'max_prepared_transactions = 5',
		'transactional_writer.worker_interval = 1', q(transaction_timeout = '300ms'), q(statement_timeout = '300ms'),
		'default_transaction_read_only = on');

	$server->safe_psql('postgres', q(
		SELECT tw.begin_batch('old', '1');
		SELECT tw.create_job('other', '1 day');
		UPDATE tw.job SET retention = '0' WHERE job = 'old';
		BEGIN; LOCK TABLE tw.batch IN EXCLUSIVE MODE; PREPARE TRANSACTION 'holder'));
	ok($server->poll_query_until('postgres', q(
		SELECT count(*) = 1 FROM pg_stat_activity
		WHERE backend_type LIKE 'transactional_writer%' AND wait_event_type = 'Lock' AND xact_start < clock_timestamp() - interval '1 s')),
		'the worker may take longer than a transaction of the server');
	$server->safe_psql('postgres', q(ROLLBACK PREPARED 'holder'));
	ok($server->poll_query_until('postgres', 'SELECT count(*) = 0 FROM tw.ledger'), 'and then does its work');
}

done_testing();
