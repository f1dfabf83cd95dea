# The programs of test/clients, each the same shop in another client: what they print, what is
# in the database when they have run once, twice, through a pooler in transaction mode, and
# after kill -9 at random places.  The pages of doc/ that begin with "clients" show the programs.
#
# TW_KILL_ROUNDS is how often each is killed.
use strict;
use warnings;

use Documentation qw(missing client_path);
use File::Basename;
use File::Copy;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep time);
use TransactionalWriter qw(:DEFAULT is_running start_pooler);

my $rounds = $ENV{TW_KILL_ROUNDS} || 6;
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $jar = '/usr/share/java/postgresql.jar';

mkdir "$dir/bin";
$ENV{PATH} = client_path("$dir/bin");
copy($_, $dir) or die "$_: $!" foreach glob(dirname(__FILE__) . '/../clients/*');

# The JDBC driver knows no Unix sockets
my $node = new_server('main', 'fsync = off', 'max_connections = 60', "listen_addresses = '127.0.0.1'");
my $user = $node->safe_psql('postgres', 'SELECT current_user');
my ($pooler_port, $pooler) = (PostgreSQL::Test::Cluster::get_free_port(), undef);

$ENV{PGUSER} = $user;
$ENV{MEANWHILE} = q(UPDATE stock SET price = 9.50 WHERE product = 'mug');

my @shops = (
	{ name => 'psql', command => [qw(psql -XqAt -f shop_psql.sql)] },
	{ name => 'psycopg', needs => 'psycopg', command => [qw(python3 shop_psycopg.py)] },
	{ name => 'SQLAlchemy', needs => 'sqlalchemy,psycopg2', command => [qw(python3 shop_sqlalchemy.py)] },
	{ name => 'Node.js', needs => 'node-pg', command => [qw(node shop_node.cjs)] },
	{ name => 'JDBC', needs => 'java,jdbc', command => [ 'java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp', "$dir:$jar", 'ShopJdbc' ] });

# What a shop prints.  psql has fewer fields in variables, and the rest of an error elsewhere.
my $refused = "error 75001\n  message: not enough tea\n  detail: There are 7, and 99 were asked for.\n  hint: Order some first.\n  line: 7\n";
my $conflict = qr/error 40001\n  message: could not serialize access due to a conflict on relation "stock"\n  detail: Row \(product\)=\(mug\) of relation "public.stock"[^\n]* was updated by transaction \d+, which has committed\.\n  hint: Retry the transaction\.[^\n]*\n  line: -\n/;
my $first = qr/\AR-1: committed, 2 rows, 7 left\nR-1: already_committed, 2 rows, 7 left\n\Q$refused\E${conflict}R-3: committed, attempt 2\nday 1: applied, 3 rows\n\z/;
my $again = qr/\AR-1: already_committed, 2 rows, 7 left\nR-1: already_committed, 2 rows, 7 left\n\Q$refused\ER-3: already_committed, attempt 1\nday 1: already_committed, 3 rows\n\z/;
my $psql_first = qr/\AR-1: committed, 2 rows\nR-1: already_committed, 2 rows\nerror 75001\n  message: not enough tea\n  line: 7\nR-3: committed, attempt 2\nday 1: applied, 3 rows\n\z/;
my $psql_again = qr/\AR-1: already_committed, 2 rows\nR-1: already_committed, 2 rows\nerror 75001\n  message: not enough tea\n  line: 7\nR-3: already_committed, attempt 1\nday 1: already_committed, 3 rows\n\z/;

# What is in the database when a shop has come to its end, however often it was started
my $end = join('|', 'A-1 tea 1 4.5, A-2 tea 1 4.5, B-1 tea 1 4.5, R-1 tea 3 13.5, R-3 mug 1 9.5', 'mug 5 9.5, tea 7 4.5',
	'import/day 1, sell/R-1, sell/R-3', 0, 0);

sub state
{
	my ($database) = @_;

	return $node->safe_psql($database, q{
		SELECT (SELECT string_agg(concat_ws(' ', receipt, product, units, trim_scale(amount)), ', ' ORDER BY receipt) FROM sale),
			(SELECT string_agg(concat_ws(' ', product, units, trim_scale(price)), ', ' ORDER BY product) FROM stock),
			(SELECT string_agg(job || '/' || batch_id, ', ' ORDER BY job, batch_id) FROM tw.ledger),
			(SELECT count(*) FROM tw.staged_batches),
			(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%')});
}

# A database with the shop's tables, for the programs that are started from now on
sub new_shop
{
	my ($database) = @_;

	$node->safe_psql('postgres', qq(CREATE DATABASE "$database" TEMPLATE shop));
	$ENV{PGDATABASE} = $database;
	direct();
}

sub direct { ($ENV{PGHOST}, $ENV{PGPORT}) = ($node->host, $node->port); }
sub pooled { ($ENV{PGHOST}, $ENV{PGPORT}) = ($dir, $pooler_port); }

# Runs a program in the directory of all; returns what it printed, errors apart, and its status
sub run
{
	my @command = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run(\@command, '<' => \undef, '>' => \$out, '2>' => \$err, init => sub { chdir $dir or die $! }, IPC::Run::timeout(180));
	return ($out, $err, $? >> 8);
}

# Starts one in a process group of its own
sub start
{
	my @command = @_;

	return IPC::Run::start([ 'setsid', @command ], '<' => \undef, '>' => '/dev/null', '2>' => '/dev/null',
		init => sub { chdir $dir or die $! });
}

# Kills it with all that it has started; alone, if it has not come to a group of its own yet
sub kill_group
{
	my $pid = $_[0]{KIDS}[0]{PID};

	kill('KILL', -$pid) or kill('KILL', $pid);
	return;
}

# Starts a program again and again, and kills it at random within the seconds that it takes, which
# are fewer when there is less left to do, until it was alive in all rounds that are wanted.
# Returns in how many it was.
sub kill_at_random
{
	my ($seconds, @command) = @_;
	my $alive = 0;

	for (my $i = 0; $i < $rounds * 20 && $alive < $rounds; $i++)
	{
		my $program = start(@command);

		usleep(rand($seconds) * 1e6);
		if (is_running($program))
		{
			$alive++;
		}
		else
		{
			$seconds *= 0.8;
		}
		kill_group($program);
		$program->finish;
	}
	return $alive;
}

$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', 'CREATE EXTENSION transactional_writer');
$node->safe_psql('shop', slurp_file("$dir/tables.sql"));

$pooler = start_pooler($node, $dir, server_idle_timeout => 2, listen_addr => '127.0.0.1', listen_port => $pooler_port)
  if !missing('pgbouncer');

# ---------- The same shop in each client ----------

foreach my $shop (@shops)
{
	my $name = $shop->{name};
	my @command = @{ $shop->{command} };
	my ($want_first, $want_again) = $name eq 'psql' ? ($psql_first, $psql_again) : ($first, $again);

  SKIP:
	{
		my $missing = $shop->{needs} ? missing($shop->{needs}) : undef;
		my ($out, $err, $status);

		skip "$name: $missing is not installed", 1 if defined $missing;
		command_ok([ 'javac', '-d', $dir, '-cp', $jar, "$dir/ShopJdbc.java" ], 'JDBC: the program compiles') if $name eq 'JDBC';

		new_shop("$name once");
		my $since = time();
		($out, $err, $status) = run(@command);
		my $seconds = time() - $since;
		is($status, 0, "$name: it comes to its end") or diag($err);
		like($out, $want_first, "$name: it says so");
		is(state("$name once"), $end, "$name: all is there");
		if ($name eq 'psql')
		{
			like($err, qr/ERROR:  not enough tea\nDETAIL:  There are 7, and 99 were asked for\.\nHINT:  Order some first\.\nCONTEXT:  atomic block line 7, column 5, at SIGNAL\n/,
				"$name: the rest of the refusal");
			like($err, qr/ERROR:  could not serialize access.*\nDETAIL:  Row .*\nHINT:  Retry/, "$name: the rest of the conflict");
		}
		($out, $err, $status) = run(@command);
		like($out, $want_again, "$name: the second time it has nothing to do") or diag($err);
		is(state("$name once"), $end, "$name: and does nothing");

		new_shop("$name killed");
		is(kill_at_random($seconds, @command), $rounds, "$name: killed at work $rounds times");
		($out, $err, $status) = run(@command);
		is($status, 0, "$name: after kills at random it comes to its end") or diag($err);
		is(state("$name killed"), $end, "$name: and all is there once");

	  SKIP:
		{
			skip "$name: pgbouncer is not installed", 1 if !$pooler;
			new_shop("$name pooled");
			pooled();
			($out, $err, $status) = run(@command);
			like($out, $want_first, "$name: the same through a pooler in transaction mode") or diag($err);
			like((run(@command))[0], $want_again, "$name: and again");
			is(state("$name pooled"), $end, "$name: and all is there");
		}
	}
}
direct();

# ---------- PL/pgSQL ----------

new_shop('plpgsql');
is((run('psql', '-Xq', '-f', 'shop_plpgsql.sql'))[1], '', 'PL/pgSQL: the procedures are made');

sub psql
{
	my ($out, $err) = run('psql', '-XAtq', map { ('-c', $_) } @_);

	chomp($out, $err);
	return "$out$err";
}

is(psql(q(CALL sell('R-1', 'tea', 3))), 'committed|1', 'PL/pgSQL: a block');
is(psql(q(CALL sell('R-1', 'tea', 3))), 'already_committed|1', 'PL/pgSQL: the same again');
is(psql(q(SELECT * FROM try_to_sell('R-2', 'tea', 99))),
	'75001|not enough tea|There are 7, and 99 were asked for.|Order some first.|7', 'PL/pgSQL: the fields of a refusal');

# Another session has changed the row and not committed; a procedure's block meets it
my ($in, $out) = ("BEGIN;\nUPDATE stock SET price = 9.50 WHERE product = 'mug' RETURNING 'changed';\n", '');
my $other = IPC::Run::start([ 'psql', '-XqAt' ], '<' => \$in, '>' => \$out, IPC::Run::timeout(180));
$other->pump until $out =~ /changed/;
my $answer = '';
my $seller = IPC::Run::start([ 'psql', '-XqAt', '-c', q(CALL sell('R-3', 'mug', 1)) ], '<' => \undef, '>' => \$answer, '2>' => \$answer, IPC::Run::timeout(180));
$node->poll_query_until('plpgsql', q(SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = 'plpgsql'))
  or die 'the procedure does not meet the other session';
$in .= "COMMIT;\n";
$other->finish;
$seller->finish;
is($answer, "committed|2\n", 'PL/pgSQL: after a conflict it ran once more');
like(psql(q(CALL import_day('day 1'))), qr/NOTICE:  day 1: applied, 3 rows$/, 'PL/pgSQL: a staged batch');
like(psql(q(CALL import_day('day 1'))), qr/NOTICE:  day 1: already_committed, 3 rows$/, 'PL/pgSQL: the same again');
is(state('plpgsql'), $end =~ s/mug 5/mug 4/r, 'PL/pgSQL: all is there');

# ---------- cron ----------

new_shop('cron');

# As cron does it: an environment with next to nothing in it, /bin/sh, no terminal
my @cron = ('env', '-i', "HOME=$dir", "PATH=$ENV{PATH}", (map { "$_=$ENV{$_}" } qw(PGHOST PGPORT PGUSER PGDATABASE)), 'SHELL=/bin/sh',
	'/bin/sh', '-c');

sub night
{
	my ($out, $err, $status) = run(@cron, "sh $dir/nightly.sh $_[0]");

	return join('|', $status, $out . $err);
}

sub till
{
	my ($day, $till, @lines) = @_;

	mkdir "$dir/$day";
	unlink "$dir/$day/$till";
	append_to_file("$dir/$day/$till", join('', map { "$_\n" } @lines));
}

my $days = q(SELECT string_agg(concat_ws(' ', day, sales, trim_scale(amount)), ', ' ORDER BY day) FROM day);

till('2026-11-01', 'till1.csv', 'A-1,tea,1,4.50', 'A-2,tea,2,9');
till('2026-11-01', 'till2.csv', 'B-1,mug,1,9.50');
is(night('2026-11-01'), '0|', 'cron: a night, of which nobody hears');
is($node->safe_psql('cron', $days), '2026-11-01 3 23', 'cron: the day is closed');
is(night('2026-11-01'), '0|', 'cron: the same night again');
is($node->safe_psql('cron', $days), '2026-11-01 3 23', 'cron: nothing has happened');

till('2026-11-02', 'till1.csv', 'A-1,tea,1,4.50', 'A-2,tea,two,9');
like(night('2026-11-02'), qr/^1\|2026-11-02 load: ERROR:  22P02: invalid input syntax for type integer: "two"\n.*line 2, column units/,
	'cron: somebody has to look');
till('2026-11-02', 'till1.csv');
is(night('2026-11-02'), "1|2026-11-02 close: psql:close_day.sql:2: ERROR:  75002: nothing was sold on 2026-11-02\n"
	. "2026-11-02 close: HINT:  Was the shop closed?\n2026-11-02 close: CONTEXT:  atomic block line 8, column 5, at SIGNAL\n",
	'cron: a refusal, with all its fields');
{
	local $ENV{PGPORT} = 1;
	my @saved = @cron;

	s/^PGPORT=.*/PGPORT=1/ foreach @cron;
	is(night('2026-11-02'), '75|', 'cron: without a server it is left to a later run');
	@cron = @saved;
}
($in, $out) = ("BEGIN;\nSELECT status FROM tw.begin_batch('close-day', '2026-11-03');\n", '');
$other = IPC::Run::start([ 'psql', '-XqAt' ], '<' => \$in, '>' => \$out, IPC::Run::timeout(180));
$other->pump until $out =~ /started/;
till('2026-11-03', 'till1.csv', 'A-1,tea,1,4.50');
is(night('2026-11-03'), '75|', 'cron: so it is while another run closes the day');
$in .= "ROLLBACK;\n";
$other->finish;
is(night('2026-11-03'), '0|', 'cron: which it does when the other has not');

# Four at a time, one of them killed
my %ended;
foreach my $n (4 .. 3 + $rounds)
{
	my $day = sprintf('2026-11-%02d', $n);

	till($day, "till$_.csv", map { "$_-$n,tea,1,4.50" } 1 .. 50) foreach 1 .. 3;
	my @runs = map { start(@cron, "sh $dir/nightly.sh $day") } 1 .. 4;
	usleep(rand(0.3) * 1e6);
	kill_group($runs[0]);
	foreach my $run (@runs)
	{
		$run->finish;
		$ended{ $run->full_result(0) & 127 ? 'killed' : $run->full_result(0) >> 8 }++;
	}
	# A session outlives its client for a moment, and who meets its claim does not wait for it
	$node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'cron' AND backend_type = 'client backend'))
	  or die 'the session of a dead client stays';
	is(night($day), '0|', "cron: after four overlapping runs $day is closed");
}
note 'cron: runs ended ', join(', ', map { "$_: $ended{$_}" } sort keys %ended);
is(join(' ', grep { !/^(0|75|killed)$/ } keys %ended), '', 'cron: no run says that somebody has to look');
is($node->safe_psql('cron', q(SELECT count(*), sum(sales), trim_scale(sum(amount)) FROM day WHERE day >= '2026-11-04')),
	join('|', $rounds, $rounds * 150, $rounds * 150 * 4.5), 'cron: every sale is there once');
is($node->safe_psql('cron', q(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tw\_batch\_%')), '0', 'cron: no staging is left');
like(slurp_file("$dir/nightly.log"), qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d 2026-11-01 publish: applied, 3 rows\n\S+ 2026-11-01 close: committed, 4 rows, attempt 1\n/m,
	'cron: the log has the steps');

kill_client($pooler) if $pooler;
$node->stop;
done_testing();
