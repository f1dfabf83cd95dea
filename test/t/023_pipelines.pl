# Several statements at once: the batches of JDBC and the pipelines of other drivers, which send
# many and one Sync, and strings of statements with semicolons between them.  Either is one
# transaction that nobody has begun.  What works there works whole or not at all, what cannot is
# refused, and the error of a commit is told.
#
# The protocol is spoken here itself, message by message: what a driver may send is the same with
# all of them.  psql's own pipelines, of 18 and later, are tried as well.
use strict;
use warnings;

use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = new_server('main', 'max_prepared_transactions = 5');
my $user = $node->safe_psql('postgres', 'SELECT current_user');

sub query { return $node->safe_psql('postgres', $_[0]); }

# ---------- the protocol ----------

sub connect_raw
{
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or die "no connection: $!";
	my $startup = pack('N', 196608) . join("\0", user => $user, database => 'postgres', '', '');

	$socket->syswrite(pack('N', 4 + length $startup) . $startup);
	answers($socket);
	return $socket;
}

sub message { my ($type, $body) = @_; return $type . pack('N', 4 + length $body) . $body; }

# Parse, Bind, Describe and Execute of a statement
sub extended
{
	my ($sql) = @_;

	return message('P', "\0$sql\0" . pack('n', 0)) . message('B', "\0\0" . pack('nnn', 0, 0, 0))
	  . message('D', "P\0") . message('E', "\0" . pack('N', 0));
}

my $sync = message('S', '');

# All answers to the next Sync or string: "a|b" for a row, "ERROR 12345" for an error
sub answers
{
	my ($socket) = @_;
	my @answers;

	while (1)
	{
		my $head = read_bytes($socket, 5);
		my ($type, $length) = unpack('aN', $head);
		my $body = read_bytes($socket, $length - 4);

		if ($type eq 'D')
		{
			my ($n, $rest) = unpack('na*', $body);
			my @values;

			for (1 .. $n)
			{
				my $bytes = unpack('N', $rest);

				$rest = substr $rest, 4;
				push @values, $bytes == 0xffffffff ? '' : substr $rest, 0, $bytes, '';
			}
			push @answers, join('|', @values);
		}
		push @answers, "ERROR $1" if $type eq 'E' && $body =~ /\0C(\w{5})\0/;
		return @answers if $type eq 'Z';
	}
}

sub read_bytes
{
	my ($socket, $n) = @_;
	my $bytes = '';

	local $SIG{ALRM} = sub { die 'the server does not answer' };
	alarm $PostgreSQL::Test::Utils::timeout_default;
	while (length $bytes < $n)
	{
		$socket->sysread($bytes, $n - length $bytes, length $bytes) or die 'connection lost';
	}
	alarm 0;
	return $bytes;
}

my $socket = connect_raw();

# Statements in one pipeline, up to one Sync; or, in the other sub, in one string
sub pipeline { $socket->syswrite(join('', map { extended($_) } @_) . $sync); return [ answers($socket) ]; }
sub string { $socket->syswrite(message('Q', join('; ', @_) . "\0")); return [ answers($socket) ]; }

my %ways = (pipeline => \&pipeline, string => \&string);

sub claim { return "SELECT status FROM tw.begin_batch('j', '$_[0]')"; }
sub insert { return "INSERT INTO t VALUES ('$_[0]')"; }
sub rows { return query("SELECT count(*) FROM t WHERE v = '$_[0]'"); }
sub in_ledger { return query("SELECT count(*) FROM tw.ledger WHERE batch_id = '$_[0]'"); }

query(q(
	CREATE TABLE t (v text);
	CREATE TABLE one (n int);
	INSERT INTO one VALUES (1);
	CREATE TABLE target (k int PRIMARY KEY);
	SELECT tw.init_producer('j', 'first');));
my $deferred = q(
	CREATE TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	INSERT INTO late VALUES (1));
query($deferred);

foreach my $way (sort keys %ways)
{
	my $send = $ways{$way};
	my ($run, $block);

	# ---------- statements: one transaction, from the claim to the Sync ----------

	is_deeply($send->(claim("$way whole"), insert("$way whole"), q(SELECT (o).rows FROM tw.finish_batch() AS o)), [ 'started', '' ],
		"$way: a batch of several statements");
	is(rows("$way whole") . in_ledger("$way whole"), '11', "$way: is committed");

	is_deeply($send->(claim("$way cut"), insert("$way cut"), 'SELECT 1 / 0', insert("$way cut")), [ 'started', 'ERROR 22012' ],
		"$way: an error in the middle");
	is(rows("$way cut") . in_ledger("$way cut"), '00', "$way: takes all with it");
	is_deeply($send->(claim("$way cut"), insert("$way cut")), ['started'], "$way: and the batch is free");

	# Nobody looks at the status before the rest is on its way: this must be said by an error
	is_deeply($send->(claim("$way cut"), insert("$way cut")), ['already_committed'], "$way: a replay whose answer nobody awaits");
	is(rows("$way cut"), '2', "$way: does the work twice, as the documentation says");
	my $or_stop = q(SELECT tw.signal_if(status = 'already_committed', '75999', 'done before') FROM tw.begin_batch('j', '%s'));
	is_deeply($send->(sprintf($or_stop, "$way stop"), insert("$way stop")), [''], "$way: a claim that stops what comes behind it");
	is_deeply($send->(sprintf($or_stop, "$way stop"), insert("$way stop")), ['ERROR 75999'], "$way: stops a replay");
	is(rows("$way stop"), '1', "$way: and the work is done once");

	# ---------- blocks ----------

	$block = "SELECT status, rows FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (''$way block''); END', '{}', 'j', '$way block')";
	is_deeply($send->($block, $block, insert("$way beside")), ['applied|1', 'ERROR TW003'], "$way: two of the same batch are not two batches");
	is_deeply($send->($block, insert("$way beside")), ['applied|1'], "$way: a block, and a statement");
	is_deeply($send->($block, $block), [ 'already_committed|1', 'already_committed|1' ], "$way: replays");
	is(rows("$way block") . rows("$way beside"), '11', "$way: each is there once");

	$run = "CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (''%s''); END', job => 'j', batch_id => '%s')";
	is_deeply($send->(insert("$way before"), sprintf($run, ("$way inside") x 2)), ['ERROR 2D000'], "$way: CALL tw.run behind something else is refused");
	is(rows("$way before") . rows("$way inside"), '00', "$way: and nothing is done");
	is_deeply($send->(sprintf($run, ("$way alone") x 2)), ['committed||1|1'], "$way: CALL tw.run alone");
	is_deeply($send->("CALL tw.commit_prepared('nothing')"), ['ERROR TW010'], "$way: CALL tw.commit_prepared alone");
	is_deeply($send->('SELECT 1', "CALL tw.commit_prepared('nothing')"), [ '1', 'ERROR 2D000' ], "$way: and behind something else");

	# ---------- what the commit says ----------

	is_deeply($send->(claim("$way late"), 'INSERT INTO late VALUES (1)'), [ 'started', 'ERROR 23505' ], "$way: an error of the commit itself");
	is(in_ledger("$way late"), '0', "$way: takes all with it");
	my @reads = ("SELECT tw.track_reads('predicate')", claim("$way read"), 'SELECT n FROM one', insert("$way read"),
		"SELECT status FROM pg_sleep(0), tw.atomic('BEGIN SELECT changed(); END')");
	query(q(CREATE EXTENSION IF NOT EXISTS dblink;
		CREATE OR REPLACE FUNCTION changed() RETURNS void LANGUAGE plpgsql AS $$
		BEGIN PERFORM dblink_exec('dbname=' || current_database() || ' port=' || current_setting('port')
			|| ' host=' || current_setting('unix_socket_directories'), 'UPDATE one SET n = n + 1'); END $$));
	is($send->(@reads)->[-1], 'ERROR 40001', "$way: a conflict");
	is(rows("$way read") . in_ledger("$way read"), '00', "$way: and nothing is done");
	pop @reads;
	is($send->(@reads)->[-1] =~ /^\d+$/ ? 1 : 0, 1, "$way: without it");
	is(rows("$way read") . in_ledger("$way read"), '11', "$way: it is done");

	# ---------- staged tasks ----------

	query(qq(SELECT tw.open_batch('j', '$way staged', '[{"table": "target", "mode": "merge", "key": ["k"]}]', expected_tasks => 2)));
	my $staging = query(q(SELECT schema FROM tw.staged_batches)) . '.target';
	my $attach = "SELECT status FROM tw.attach_task('j', '$way staged', '%s')";
	my @task = ("INSERT INTO $staging VALUES (1)", 'SELECT tw.commit_task()');
	is_deeply($send->(sprintf($attach, 1), @task), [ 'attached', '' ], "$way: a task");
	is_deeply($send->(sprintf($attach, 1), @task), [ 'already_committed', 'ERROR 55000' ], "$way: another attempt at it is refused");
	is_deeply($send->(sprintf($attach, 2), $task[0]), [ 'attached', 'ERROR 55000' ], "$way: a task that is not committed is refused");
	is_deeply($send->(sprintf($attach, 2), $task[0], sprintf($attach, 3), $task[0]), [ 'attached', 'ERROR 55000' ], "$way: one task in a transaction");
	is(query("SELECT count(*) FROM $staging"), '1', "$way: only one task's row is staged");
	is_deeply($send->(sprintf($attach, 2), $task[1], "SELECT status, rows FROM tw.publish('j', '$way staged')"), [ 'attached', '', 'applied|1' ],
		"$way: a task and the publish");
	query('DELETE FROM target');

	# ---------- transaction statements in between ----------

	is_deeply($send->('BEGIN', claim("$way two"), insert("$way two"), 'COMMIT', claim("$way three"), 'SELECT 1 / 0'),
		[ 'started', 'started', 'ERROR 22012' ], "$way: COMMIT in between");
	is(in_ledger("$way two") . in_ledger("$way three"), '10', "$way: keeps what is before it");
	is_deeply($send->('BEGIN', "SELECT status FROM tw.begin_batch('j', '$way gid')", "PREPARE TRANSACTION '$way'"), ['started'], "$way: a batch is prepared");
	is_deeply($send->("CALL tw.abort_prepared('$way', 'why')"), ['aborted'], "$way: and settled");
}

# Of several CALLs in one pipeline the first has no transaction around it, the others have
is_deeply(pipeline(map { "CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (''$_''); END', job => 'j', batch_id => '$_')" } qw(c1 c2 c3)),
	[ 'committed||1|1', 'ERROR 2D000' ], 'the second CALL of a pipeline is refused');
is(rows('c1') . rows('c2') . rows('c3'), '100', 'the first is done');
$socket->syswrite(join('', map { extended("CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (''$_''); END', job => 'j', batch_id => '$_')") . $sync } qw(c1 c2 c3)));
is_deeply([ map { answers($socket) } 1 .. 3 ], [ 'already_committed||1|1', 'committed||1|1', 'committed||1|1' ], 'with a Sync behind each they all run');

# ---------- psql's own pipelines ----------

if (query('SHOW server_version_num') >= 180000)
{
	my $call = q(CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (''%s''); END', job => 'j', batch_id => '%s') \bind \sendpipeline);
	my ($status, $out, $err) = $node->psql('postgres', join("\n", '\set VERBOSITY sqlstate', '\startpipeline',
		claim('psql') . ' \bind \sendpipeline', q(INSERT INTO t VALUES ($1) \bind psql \sendpipeline), '\syncpipeline',
		sprintf($call, ('psql call') x 2), '\syncpipeline',
		q(INSERT INTO t VALUES ($1) \bind 'psql before' \sendpipeline), sprintf($call, ('psql call 2') x 2), '\endpipeline'));

	is($out, "started\ncommitted||1|1", 'pipelines of psql: a batch, a CALL');
	like($err, qr/ERROR:\s+2D000/, 'and a CALL behind a statement is refused');
	is(rows('psql') . rows('psql call') . rows('psql before') . rows('psql call 2'), '1100', 'and what is refused is not done');
}

done_testing();
