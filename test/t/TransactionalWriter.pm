# What the TAP tests share: a server with the extension, sessions in the background.
package TransactionalWriter;

use strict;
use warnings;

use Exporter 'import';
use IO::Socket::UNIX;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(new_server background kill_backend kill_client wait_until_up in_sleep sqlstate);
our @EXPORT_OK = qw(session answer background_until is_running wait_until_gone pgbouncer start_pooler);

# A started server whose database postgres has the extension.  Settings are lines of
# postgresql.conf; a server that crashes comes back by itself.
sub new_server
{
	my ($name, @settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => 1);
	$node->append_conf('postgresql.conf', join("\n", 'restart_after_crash = on', @settings, ''));
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION transactional_writer');
	return $node;
}

# Starts psql on statements and returns at once; end it with ->finish or kill_client.
# Its output is thrown away: who uses this wants the session, not its answer.
sub background
{
	my ($node, $sql) = @_;

	return IPC::Run::start(
		[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', $sql ],
		'<' => \undef, '>' => '/dev/null', '2>' => '/dev/null');
}

# The same, and returns when it surely is 'before' its commit (the statements are one transaction),
# surely 'behind' it, or else at a random time of so many microseconds at most
sub background_until
{
	my ($node, $sql, $when, $most) = @_;
	my $session = background($node, $sql . ($when eq 'before' ? '; SELECT pg_sleep(60)' : ''));

	if ($when eq 'before')
	{
		in_sleep($node);
	}
	elsif ($when eq 'behind')
	{
		$session->finish;
	}
	else
	{
		usleep(rand $most);
	}
	return $session;
}

# Starts psql on a statement, on a server that may crash or be down; ask for its answer later
sub session
{
	my ($node, $sql) = @_;
	my $session = { out => '', err => '' };

	$session->{run} = IPC::Run::start(
		[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=sqlstate',
			'-d', $node->connstr('postgres') . ' connect_timeout=10', '-c', $sql ],
		'<' => \undef, '>' => \$session->{out}, '2>' => \$session->{err});
	return $session;
}

# Waits for the end of a session: the first line that it printed and that is one word, or the
# SQLSTATE of its error, or "lost" when it was thrown out
sub answer
{
	my ($session) = @_;

	eval { $session->{run}->finish };
	return $session->{out} =~ /^(\w+)$/m ? $1 : $session->{err} =~ /ERROR:\s+(\w{5})$/m ? $1 : 'lost';
}

# Where pgbouncer is, or undef; Debian keeps it beside PATH
sub pgbouncer
{
	my ($found) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';

	return $found;
}

# Starts pgbouncer in transaction mode before all databases of a server, on a socket in dir that
# is named by its port, 6432; settings are more of pgbouncer.ini.  End it by kill_client.
sub start_pooler
{
	my ($node, $dir, %settings) = @_;
	my $user = $node->safe_psql('postgres', 'SELECT current_user');
	my $run;

	%settings = (pool_mode => 'transaction', default_pool_size => 4, unix_socket_dir => $dir, listen_addr => '',
		listen_port => 6432, auth_type => 'trust', auth_file => "$dir/users",
		ignore_startup_parameters => 'extra_float_digits,options', %settings);
	unlink "$dir/users", "$dir/pgbouncer.ini", "$dir/.s.PGSQL.$settings{listen_port}";
	append_to_file("$dir/users", qq("$user" ""\n));
	append_to_file("$dir/pgbouncer.ini", join("\n", '[databases]',
		'* = host=' . $node->host . ' port=' . $node->port . " user=$user",
		'[pgbouncer]', (map { "$_ = $settings{$_}" } sort keys %settings), ''));
	$run = IPC::Run::start([ pgbouncer(), "$dir/pgbouncer.ini" ],
		'<' => \undef, '>' => "$dir/pgbouncer.log", '2>&1');
	# its socket is there before it is listened to
	for (1 .. 1800)
	{
		return $run if IO::Socket::UNIX->new(Peer => "$dir/.s.PGSQL.$settings{listen_port}");
		usleep 100_000;
	}
	die "pgbouncer has not come up:\n" . slurp_file("$dir/pgbouncer.log");
}

# Whether what IPC::Run has started still runs.  Its pumpable alone says yes as long as a pipe has
# not been looked at, also the one of an empty standard input: for ever, if nobody pumps.
sub is_running
{
	my ($run) = @_;

	eval { $run->pump_nb if $run->pumpable };
	return $run->pumpable ? 1 : 0;
}

# Kills at once what IPC::Run has started.  Not by its kill_kill, which begins with SIGTERM:
# a program that is forked but not executed yet still is this test, and stops its servers.
sub kill_client
{
	my ($run) = @_;

	eval { $run->signal('KILL') };
	eval { $run->finish };
	return;
}

# Waits until the postmaster has seen the end of a session's process that was killed.  Until then
# the old server still answers: only what comes behind waitpid, which makes the process
# disappear, is the new one.
sub wait_until_gone
{
	my ($pid) = @_;

	for (1 .. 18_000)
	{
		last unless kill 0, $pid;
		usleep 10_000;
	}
	return;
}

# Kills a session's process in the server, and returns when the server is back from the crash that
# it takes that for
sub kill_backend
{
	my ($node, $pid) = @_;

	kill 'KILL', $pid;
	wait_until_gone($pid);
	wait_until_up($node);
	return;
}

# Waits until the server is back after the crash of a session.  poll_query_until would write
# to a psql that has found no server and is gone.
sub wait_until_up
{
	my ($node) = @_;

	for (1 .. 1800)
	{
		return if IPC::Run::run([ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-c', 'SELECT 1' ],
			'<' => \undef, '>' => '/dev/null', '2>' => '/dev/null');
		usleep 100_000;
	}
	die 'the server did not come back';
}

# Waits until a session runs pg_sleep, and returns its pid
sub in_sleep
{
	my ($node) = @_;

	$node->poll_query_until('postgres',
		q(SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'))
	  or die 'no session came to its pg_sleep';
	return $node->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'));
}

# Runs statements and returns the SQLSTATE of the error that they end with, '' if none; in
# database dbname if that is given
sub sqlstate
{
	my ($node, $sql, %params) = @_;
	my $dbname = delete $params{dbname} // 'postgres';
	my ($status, $stdout, $stderr) =
	  $node->psql($dbname, "\\set VERBOSITY sqlstate\n$sql", on_error_stop => 1, %params);

	return '' if $status == 0;
	return $stderr =~ /ERROR:\s+(\w{5})$/m ? $1 : "no SQLSTATE: $stderr";
}

1;
