# Runs the examples of a page of documentation and compares what comes out with what the
# page shows.  The tests (080_doc.pl) and test/doc share it.
#
# A page is run from top to bottom in a database of its own, "example", and a directory of
# its own.  What a fenced block is for is said by its first line:
#
#	```sql                   statements and backslash commands for psql.  One psql runs all
#	                         blocks of a page; it is connected as superuser "postgres".
#	```sql session=b         the same in another session, which begins when it is first named
#	```sql session=b waits   ... and it must have to wait for a lock; the page goes on meanwhile
#	```sh                    commands for bash; PGHOST and the like lead to the page's database
#	```csv file=day.csv      any language with file= is written to that file instead of run
#	```js source=test/x.js   ... with source= it lists that file of the repository, word for word
#	```sh needs=psycopg      run only where all of these are installed (see %needs)
#	```output                what the block before it printed, output and errors together
#	```output session=b      what the waiting statements of that session printed in the end
#	```output varies         the same, but all numbers are taken for equal
#
# Blocks of other languages (console, crontab, ...) are for the reader only.  A block that
# no ```output follows must run without error, whatever it prints.  A page that does not
# create the extension gets it before its first block.  In the page's directory are copies of
# the programs of test/clients, and python3 there is one that has psycopg, if there is one.
#
# The map of the source at the end of doc/how-it-works.md is made of the first words of the
# files: with_source_map().
#
# Two outputs are equal when they are after normal(): times, durations, transaction and
# process numbers are placeholders, and columns may be wider.
package Documentation;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename;
use File::Copy;
use File::Temp;
use IPC::Run;

our @EXPORT_OK = qw(run_page normal missing client_path with_source_map);

use constant {
	END_MARK => '-- end of example --',
	PATIENCE => 180,			# seconds
	FAILED => qr/^(?:psql:.*?: )?(?:ERROR|FATAL|PANIC|WARNING|error):/m,
};

my $top = abs_path(dirname(__FILE__) . '/../..');

# What a program may need, in words for who has to install it, and how to see that it is there
my %needs = (
	psycopg => [ 'psycopg 3 of Python', 'python3', '-c', 'import psycopg' ],
	psycopg2 => [ 'psycopg2 of Python', 'python3', '-c', 'import psycopg2' ],
	sqlalchemy => [ 'SQLAlchemy of Python', 'python3', '-c', 'import sqlalchemy' ],
	kafka => [ 'confluent_kafka of Python', 'python3', '-c', 'import confluent_kafka' ],
	'node-pg' => [ 'pg of Node.js', 'node', '-e', 'require("pg")' ],
	timescaledb => [ 'TimescaleDB, preloaded,', 'psql', '-XqAt', '-d', 'postgres', '-v', 'ON_ERROR_STOP=1', '-c',
		q(SELECT 1 / (current_setting('shared_preload_libraries') ~ 'timescaledb')::int) ],
	java => [ 'a JDK', 'javac', '-version' ],
	jdbc => [ "PostgreSQL's JDBC driver", 'test', '-f', '/usr/share/java/postgresql.jar' ],
	pgbouncer => [ 'pgbouncer', 'pgbouncer', '--version' ]);

# ---------- equality ----------

# varies: 'exact' leaves all as it is
sub normal
{
	my ($text, $varies) = @_;

	return $text if defined $varies && $varies eq 'exact';
	my @lines;
	my @masked;					# numbers of the columns of a table that hold xids or pids

	foreach my $line (split(/\n/, $text))
	{
		my @cells = split(/ *\| */, $line, -1);

		if ($line =~ /^-[-+]*$/)
		{
			$line =~ s/-+/-/g;
		}
		elsif (@masked && $line =~ /^ /)
		{
			foreach my $column (@masked)
			{
				$cells[$column] =~ s/\d+/<number>/ if defined $cells[$column];
			}
			$line = join('|', @cells);
		}
		else
		{
			@masked = grep { $cells[$_] =~ /^\s*(?:xid|pid)\s*$/ } 0 .. $#cells;
			$line =~ s/^((?:xid|pid) *\|) *\d+/$1<number>/;
		}
		$line =~ s/ *\| */|/g;
		$line =~ s/\s+/ /g;
		$line =~ s/^ //;
		$line =~ s/ $//;
		push @lines, $line;
	}
	$text = join("\n", @lines);
	$text =~ s/\n+$//;
	$text =~ s/\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d(?::\d\d)?)?/<time>/g;
	$text =~ s/\b\d\d:\d\d:\d\d(?:\.\d+)?/<duration>/g;
	$text =~ s/\b\d+(?:\.\d+)? ms\b/<duration>/g;
	$text =~ s/\b(transaction|process|pid) \d+/$1 <number>/gi;
	$text =~ s/("?xid"?: ?"?)\d+/$1<number>/g;
	$text =~ s/\d+(?:[.,]\d+)*/<number>/g if $varies;
	return $text;
}

# ---------- pages ----------

# The fenced blocks of a page: language, attributes, text, and the numbers of the lines of
# their fences
sub blocks
{
	my ($name, @lines) = @_;
	my (@blocks, $open);

	foreach my $i (0 .. $#lines)
	{
		if ($open)
		{
			if ($lines[$i] =~ /^```\s*$/)
			{
				$open->{last} = $i;
				push @blocks, $open;
				$open = undef;
				next;
			}
			$open->{text} .= "$lines[$i]\n";
		}
		elsif ($lines[$i] =~ /^```\s*(.*)$/)
		{
			my ($language, @attributes) = split(' ', $1);

			$open = { page => $name, first => $i, text => '', language => $language // '' };
			foreach (@attributes)
			{
				my ($key, $value) = split(/=/, $_, 2);

				die "$name, line " . ($i + 1) . ": unknown attribute $key\n"
				  if $key !~ /^(?:session|waits|file|source|needs|varies)$/;
				$open->{$key} = $value // 1;
			}
		}
	}
	die "$name, line " . ($open->{first} + 1) . ": block is never closed\n" if $open;
	return @blocks;
}

sub slurp
{
	my ($path) = @_;

	open my $file, '<', $path or die "$path: $!\n";
	local $/;
	return scalar <$file>;
}

# Statements of our own, outside of the page's sessions
sub admin
{
	my ($database, @sql) = @_;
	my ($out, $err);

	IPC::Run::run([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $database, map { ('-c', $_) } @sql ],
		'<' => \undef, '>' => \$out, '2>' => \$err)
	  or die "@sql: $err";
	return split(/\n/, $out);
}

sub session
{
	my ($page, $name) = @_;
	my $session = $page->{sessions}{$name};

	return $session if $session && !$session->{dead};
	$session = { in => '', out => '', name => $name };
	$session->{psql} = IPC::Run::start(
		[ 'psql', '-X', '--no-readline' ], '<' => \$session->{in}, '>&' => \$session->{out},
		init => sub { chdir $page->{directory} or die $! }, IPC::Run::timer(PATIENCE));
	$page->{sessions}{$name} = $session;
	send_to($session, "\\pset pager off\nSELECT pg_backend_pid() AS pid;\n");
	($session->{pid}) = answer($session) =~ /^\s*(\d+)$/m or die "session $name did not start";
	return $session;
}

sub send_to
{
	my ($session, $text) = @_;

	$session->{pending} = 1;
	$session->{in} .= $text . "\\echo '" . END_MARK . "'\n";
	eval { $session->{psql}->pump_nb; 1 } or $session->{dead} = 1;
}

# All that a session has printed since it was sent something
sub answer
{
	my ($session) = @_;
	my $mark = END_MARK;
	my $until = time() + PATIENCE;

	while ($session->{pending} && $session->{out} !~ /^\Q$mark\E$/m && !$session->{dead})
	{
		die "session $session->{name} does not end: $session->{out}" if time() > $until;
		$session->{psql}->pumpable && eval { $session->{psql}->pump; 1 } or $session->{dead} = 1;
	}
	$session->{pending} = 0;
	my $out = $session->{out};
	$session->{out} = '';
	$out =~ s/^\Q$mark\E\n//m;
	return $out;
}

sub wait_for_lock
{
	my ($session) = @_;

	foreach (1 .. PATIENCE * 20)
	{
		my ($waits) = admin('postgres', "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $session->{pid}");

		return if defined $waits && $waits eq 't';
		select undef, undef, undef, 0.05;
	}
	die "session $session->{name} does not wait";
}

# ---------- programs ----------

# PATH with the programs that tests may need: Debian keeps pgbouncer beside it, and the first
# python3 may be another than the one that has Debian's modules.  The links go to directory.
sub client_path
{
	my ($directory) = @_;
	my ($python) = grep { -x && quiet($_, '-c', 'import psycopg') } map { "$_/python3" } split(/:/, $ENV{PATH}), '/usr/bin';

	symlink $python, "$directory/python3" if defined $python && ! -e "$directory/python3";
	return "$directory:$ENV{PATH}:/usr/sbin";
}

sub quiet
{
	return eval { IPC::Run::run([@_], '<' => \undef, '>' => '/dev/null', '2>' => '/dev/null') };
}

# What of a list such as "psycopg,kafka" is not installed, in words; undef if all is there
sub missing
{
	foreach my $what (split(/,/, $_[0]))
	{
		my ($words, @command) = @{ $needs{$what} or die "needs=$what is not known\n" };

		return $words if !quiet(@command);
	}
	return;
}

# Runs one block; returns what it printed and whether it failed
sub run_block
{
	my ($page, $block) = @_;

	if (defined $block->{file})
	{
		open my $file, '>', "$page->{directory}/$block->{file}" or die "$block->{file}: $!";
		print $file $block->{text};
		close $file;
		return ('', 0);
	}
	if ($block->{language} eq 'sh')
	{
		my $out = '';
		my $good = IPC::Run::run([ 'bash', '-c', $block->{text} ], '<' => \undef, '>&' => \$out,
			init => sub { chdir $page->{directory} or die $! }, IPC::Run::timeout(PATIENCE));

		return ($out, !$good);
	}

	my $session = session($page, $block->{session} // '');
	my $left = $session->{pending} ? answer($session) : '';

	send_to($session, $block->{text});
	if ($block->{waits})
	{
		wait_for_lock($session);
		return ('', 0);
	}
	my $out = answer($session);
	return ($out, $left . $out =~ FAILED);
}

# run_page(name, text, report): runs a page; calls report->(line, shown, printed, varies) for each
# output or file that the page shows, with shown undefined where it shows none and there was an
# error; and report->(line, undef, undef, undef, what) for a block that was not run because
# something is not installed.  Returns the page with all that differs replaced by what was
# printed, or by the file.
sub run_page
{
	my ($name, $text, $report) = @_;
	my @lines = split(/\n/, $text, -1);
	my @blocks = blocks($name, @lines);
	my $directory = File::Temp->newdir('tw-doc-XXXXXX', TMPDIR => 1);
	my $page = { directory => abs_path("$directory"), sessions => {} };
	my %outputs;
	my ($printed, $failed, $ran);
	my $databases = 'SELECT datname FROM pg_database';
	my $roles = 'SELECT rolname FROM pg_roles';

	local $ENV{PGDATABASE} = 'example';
	local $ENV{PGUSER} = $ENV{PGUSER};
	local $ENV{PGTZ} = 'UTC';
	local $ENV{LC_ALL} = 'C.UTF-8';
	admin('postgres', q(DO $$BEGIN
		IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'postgres') THEN
			CREATE ROLE postgres SUPERUSER LOGIN;
		END IF; END$$));
	my $user_before = $ENV{PGUSER};
	my %databases = map { $_ => 1 } admin('postgres', $databases);
	my %roles = map { $_ => 1 } admin('postgres', $roles);

	chmod 0755, $page->{directory};
	copy($_, $page->{directory}) or die "$_: $!" foreach glob("$top/test/clients/*");
	mkdir "$page->{directory}/bin";
	local $ENV{PATH} = client_path("$page->{directory}/bin");
	admin('postgres', 'CREATE DATABASE example OWNER postgres TEMPLATE template0 ENCODING UTF8 LOCALE "C"');
	admin('example', 'SET client_min_messages = error; CREATE EXTENSION transactional_writer')
	  if $text !~ /CREATE EXTENSION.* transactional_writer/;
	$ENV{PGUSER} = 'postgres';

	my $settle = sub {
		$report->($ran->{first} + 1, undef, $printed, 0) if $failed && $ran;
		$ran = undef;
	};
	my $ended = eval {
		foreach my $block (@blocks)
		{
			if ($block->{language} eq 'output')
			{
				my $output = $printed;

				if (defined $block->{session})
				{
					$settle->();
					$output = answer(session($page, $block->{session}));
				}
				next if defined $ran && $ran->{skipped};
				die "$name, line " . ($block->{first} + 1) . ": output of nothing\n"
				  if !defined $block->{session} && !$ran;
				$failed = 0;
				$ran = undef;
				$output =~ s/[ \t]+$//mg;
				$output =~ s/\n*$/\n/;
				$output = '' if $output eq "\n";
				$report->($block->{first} + 1, $block->{text}, $output, $block->{varies});
				$outputs{ $block->{first} } = { %$block, output => $output }
				  if normal($output, $block->{varies}) ne normal($block->{text}, $block->{varies});
			}
			elsif (defined $block->{source})
			{
				my $source = slurp("$top/$block->{source}");

				$settle->();
				$report->($block->{first} + 1, $block->{text}, $source, 'exact');
				$outputs{ $block->{first} } = { %$block, output => $source } if $source ne $block->{text};
			}
			elsif ($block->{language} =~ /^(?:sql|sh)$/ || defined $block->{file})
			{
				my $missing = defined $block->{needs} ? missing($block->{needs}) : undef;

				$settle->();
				$ran = $block;
				if (defined $missing)
				{
					$report->($block->{first} + 1, undef, undef, undef, $missing);
					$block->{skipped} = 1;
					($printed, $failed) = ('', 0);
					next;
				}
				($printed, $failed) = run_block($page, $block);
			}
		}
		$settle->();
		1;
	};
	my $error = $@;

	foreach my $session (values %{ $page->{sessions} })
	{
		eval { $session->{psql}->kill_kill(grace => 1) };
	}
	$ENV{PGUSER} = $user_before;
	delete $ENV{PGUSER} if !defined $user_before;
	admin('example', map { "ROLLBACK PREPARED '$_'" } admin('example',
		'SELECT gid FROM pg_prepared_xacts WHERE database = current_database()'));
	admin('postgres', map { qq(DROP DATABASE "$_" WITH (FORCE)) } grep { !$databases{$_} } admin('postgres', $databases));
	admin('postgres', map { qq(DROP ROLE "$_") } $_) foreach grep { !$roles{$_} } admin('postgres', $roles);

	die $error if !$ended;

	# From the end, so that the numbers of the lines before stay right
	foreach my $first (sort { $b <=> $a } keys %outputs)
	{
		my $block = $outputs{$first};

		splice @lines, $first + 1, $block->{last} - $first - 1, split(/\n/, $block->{output});
	}
	return join("\n", @lines);
}

# ---------- the map of the source ----------

my @parts = (
	[ 'The module', 'src' ], [ 'The ledger', 'src/ledger' ], [ 'The language', 'src/psm' ],
	[ 'Conflict checks', 'src/conflict' ], [ 'Staged batches', 'src/stage' ], [ 'Two-phase commit', 'src/sink' ],
	[ 'Other engines', 'src/engine' ]);

# What the head of a file says it is for, in one line
sub purpose
{
	my ($path) = @_;

	open my $file, '<', $path or die "$path: $!";
	my $text = do { local $/; <$file> };
	close $file;
	my ($head) = $text =~ /\A\/\*\n \* \S+\n((?: \*\t\t.*\n)+)/ or die "$path does not begin with its name and what it is for\n";

	$head =~ s/^ \*\t\t//mg;
	$head =~ s/\s+/ /g;
	$head =~ s/\.? $//;
	$head =~ s/((?:CALL )?\btw\.\w+|\btransactional_writer\.\S*?[\w*](?=[,:.]|$)|\btw_batch_<n>)/`$1`/g;
	return $head;
}

# The text of a page with the map as the files have it now; a page without one as it is
sub with_source_map
{
	my ($text, $top) = @_;
	my $map = '';

	return $text if $text !~ /^### \Q$parts[0][0]\E: `src\/`$/m;
	foreach (@parts)
	{
		my ($title, $directory) = @$_;

		$map .= "### $title: `$directory/`\n\n| file | what |\n|---|---|\n";
		foreach my $path (sort glob("$top/$directory/*.[ch]"))
		{
			my ($name) = $path =~ /([^\/]+)$/;

			$map .= "| `$name` | " . purpose($path) . " |\n";
		}
		$map .= "\n";
	}
	$map =~ s/\n+$/\n/;
	return $text =~ s/^### \Q$parts[0][0]\E: .*\z/$map/msr;
}

1;
