# The faults of test/t/095_chaos.pl: to a session, to the server, to the machine below it.
#
# Some last for a while: what ends them is kept with its time, and heal() ends them all.  The
# disk that gets full is SmallDisk's; the clock that jumps is a library preloaded into the server,
# which takes a compiler.  What is not possible is left out, and left_out() says why.
package ChaosFaults;

use strict;
use warnings;

use IPC::Run;
use List::Util 'shuffle';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SmallDisk;
use Time::HiRes qw(time sleep);
use TransactionalWriter qw(wait_until_gone wait_until_up);

# How often each is chosen.  Those of the server are not for the time with a standby.
my %weights = (
	cancel => 10, terminate => 8, client => 8, pause => 8, worker => 2, kill => 4, immediate => 2,
	disk => 5, wal => 1, locks => 4, connections => 3, clock => 5);
my %crashes = map { $_ => 1 } qw(kill immediate disk wal);

sub new
{
	my ($class, %with) = @_;
	my $self = bless { count => {}, nodes => [], until => [], left_out => {}, preload => {}, %with }, $class;

	$self->{left_out}{$_} = 'no file system can be mounted in a user namespace here' foreach SmallDisk::possible() ? () : qw(disk wal);
	$self->prepare_clock;
	return $self;
}

sub left_out { return $_[0]{left_out}; }

# ---------- servers ----------

sub prepare_clock
{
	my ($self) = @_;
	my ($library, $file) = ("$self->{dir}/clock.so", "$self->{dir}/clock");

	$self->{clock} = $file;
	$self->set_clock(0);
	if (system('sh', '-c', "cc -O -shared -fPIC -o '$library' '$self->{source}/clock.c' -ldl >'$self->{dir}/clock.log' 2>&1") != 0)
	{
		$self->{left_out}{clock} = 'the library that moves it cannot be compiled here';
		return;
	}
	$self->{preload} = { LD_PRELOAD => $library, CHAOS_CLOCK => $file };
}

sub set_clock
{
	my ($self, $seconds) = @_;

	$self->{seconds} = $seconds;
	open my $file, -e $self->{clock} ? '+<' : '>', $self->{clock} or die $!;
	syswrite $file, pack('q', int $seconds * 1_000_000);
	close $file;
}

sub start
{
	my ($self, $node) = @_;

	local @ENV{ keys %{ $self->{preload} } } = values %{ $self->{preload} };
	$node->start;
}

# Tables and write-ahead log of a server that does not run, each on a disk that can be made full
sub disks
{
	my ($node) = @_;

	return SmallDisk::possible() ? { map { $_ => SmallDisk->new($node, $_) } qw(base pg_wal) } : undef;
}

# The server that faults are about
sub new_server
{
	my ($self, $name, @settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => 1);
	$node->append_conf('postgresql.conf', join("\n", 'restart_after_crash = on', @settings, ''));
	$self->{disks} = disks($node);
	$self->start($node);
	$node->safe_psql('postgres', 'CREATE EXTENSION transactional_writer');
	push @{ $self->{nodes} }, $node;
	return $self->{node} = $node;
}

sub query
{
	my ($self, $sql) = @_;

	return $self->{node}->safe_psql('postgres', $sql);
}

# The answer of a server that may be down, or undef.  What psql reads would be written to one that
# is gone already.
sub ask
{
	my ($self, $sql) = @_;
	my $answer = '';
	my $good = IPC::Run::run([ 'psql', '-XqAt', '-d', $self->{node}->connstr('postgres'), '-c', $sql ],
		'<' => \undef, '>' => \$answer, '2>' => '/dev/null');

	chomp $answer;
	return $good ? $answer : undef;
}

sub wait_for_server
{
	my ($self) = @_;

	wait_until_up($self->{node});
	return;
}

# ---------- sessions ----------

# The process is one of our server's, and of this kind
sub is_ours
{
	my ($self, $pid, $what) = @_;
	my $name = $self->{node}->name;

	open my $file, '<', "/proc/$pid/cmdline" or return 0;
	return (<$file> // '') =~ /^postgres: \Q$name\E: $what/;
}

# Signals the backend of a session that is at something; not one that has ended meanwhile
sub signal_backend
{
	my ($self, $signal, $sessions) = @_;
	my @busy = grep { $_->{backend} } $sessions->busy;
	my $backend = @busy ? $busy[ rand @busy ]{backend} : return 0;

	return 0 unless $self->is_ours($backend, 'writer ') && CORE::kill $signal, $backend;
	return $backend;
}

sub cancel { return $_[0]->signal_backend('INT', $_[1]); }
sub terminate { return $_[0]->signal_backend('TERM', $_[1]); }

# Takes the server with it, which recovers by itself: as long as there is space to do it.  It has
# begun with that when the process is gone.
sub kill
{
	my ($self, $sessions) = @_;

	$self->heal('disk');
	my $pid = $self->signal_backend('KILL', $sessions) or return 0;

	wait_until_gone($pid);
	return 1;
}

# A process that does not run for a while, and then goes on as if nothing had been
sub pause
{
	my ($self, $sessions) = @_;
	my $pid = $self->signal_backend('STOP', $sessions) or return 0;

	$self->for_a_while(0.1 + rand 0.6, 'pause', sub { CORE::kill 'CONT', $pid if $self->is_ours($pid, 'writer '); });
	return 1;
}

sub client
{
	my ($self, $sessions) = @_;
	my @busy = $sessions->busy;

	return @busy && CORE::kill 'KILL', $busy[ rand @busy ]{pid};
}

# The background worker
sub worker
{
	my ($self) = @_;
	my $pid = $self->ask(q(SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'transactional_writer%')) // '';

	return $pid =~ /^\d+$/ && CORE::kill 'TERM', $pid;
}

# ---------- the server ----------

# Stops a server.  One that has stopped itself, because its recovery had no space to write to,
# is no failure.
sub stop
{
	my ($self, $node) = @_;

	return if $node->stop('immediate', fail_ok => 1);
	$node->_update_pid(0);
	my @log = split /\n/, PostgreSQL::Test::Utils::slurp_file($node->logfile);
	my $last = join "\n", @log > 1000 ? @log[ -1000 .. -1 ] : @log;

	die "the server was gone:\n$last" if $last !~ /No space left on device|due to startup process failure/;
}

# The clock may be another when it comes back
sub immediate
{
	my ($self) = @_;

	$self->heal;
	$self->stop($self->{node});
	$self->set_clock(rand() < 0.5 ? 0 : -3600 * rand 100) if !$self->{left_out}{clock} && rand() < 0.5;
	$self->start($self->{node});
	return 1;
}

# A psql that keeps what it has taken until its input is closed; true if it could take all
sub hold
{
	my ($self, $seconds, $name, $user, $sql, $n) = @_;
	my @held;

	foreach my $i (1 .. $n)
	{
		my $pid = open(my $in, '|-', 'psql -XqAt -v ON_ERROR_STOP=1 -d "' . $self->{node}->connstr('postgres') . qq( user=$user" >/dev/null 2>&1)) or die $!;

		$in->autoflush(1);
		print $in $sql, "\n";
		push @held, $in;
	}
	$self->for_a_while($seconds, $name, sub { close $_ foreach @held; });
	return 1;
}

# All of the lock table, and then a little less, so that some get through
sub locks
{
	my ($self) = @_;

	return $self->hold(0.2 + rand 0.8, 'locks', 'postgres', q(BEGIN;
		DO $$
		DECLARE
			i int := 0;
		BEGIN
			LOOP
				BEGIN
					PERFORM pg_advisory_xact_lock(i);
				EXCEPTION WHEN out_of_memory THEN
					EXIT;
				END;
				i := i + 1;
			END LOOP;
			FOR j IN 1 .. random() * 20 LOOP
				PERFORM pg_advisory_unlock(i - j);
			END LOOP;
		END $$;), 1);
}

# All connections that there are for others than superusers; some of those that work lose theirs
sub connections
{
	my ($self, $sessions) = @_;

	$self->hold(0.5 + rand 0.5, 'connections', 'writer', 'SELECT 1;', 26);
	$self->client($sessions) foreach 1 .. 3;
	return 1;
}

# ---------- the machine ----------

sub disk
{
	my ($self) = @_;
	my $disk = $self->{disks}{base};

	# a server whose recovery has no space does not come back
	return 0 if !defined $self->ask('SELECT 1') || !$disk->fill(100);
	$self->for_a_while(0.3 + rand, 'disk', sub { $disk->free; });
	return 1;
}

# Without space for its log a server stops at once, and comes back when there is some
sub wal
{
	my ($self) = @_;
	my $disk = $self->{disks}{pg_wal};
	my $node = $self->{node};

	$self->heal('disk');
	return 0 if !$disk->fill(100);
	for (1 .. 20)
	{
		last if !defined $self->ask('SELECT pg_switch_wal()');
	}
	$disk->free;
	$self->stop($node);
	$self->start($node);
	return 1;
}

# Forward at any distance; back only so far that the server's own timeouts, which go by this
# clock, come before ours.  See immediate for more.
sub clock
{
	my ($self) = @_;

	$self->set_clock($self->{seconds} + (rand() < 0.3 ? -rand 2 : (10, 3600, 100_000)[ rand 3 ] * rand));
	return 1;
}

# ---------- a standby ----------

# A standby that has what is acknowledged, in name
sub new_standby
{
	my ($self, $name) = @_;
	my $primary = $self->{node};
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$self->heal;
	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$self->{next_disks} = disks($standby);
	$self->start($standby);
	$primary->safe_psql('postgres', q(ALTER SYSTEM SET synchronous_standby_names = '*'));
	$primary->reload;
	$primary->poll_query_until('postgres', q(SELECT sync_state = 'sync' FROM pg_stat_replication)) or die 'no synchronous standby';
	$self->{standby} = $standby;
}

# The primary dies, and the standby takes its place
sub promote
{
	my ($self) = @_;

	$self->heal;
	$self->stop($self->{node});
	$self->{standby}->promote;
	$self->{node} = delete $self->{standby};
	$self->{disks} = delete $self->{next_disks};
	push @{ $self->{nodes} }, $self->{node};
	$self->{count}{promotion}++;
	return $self->{node};
}

# ---------- choosing ----------

sub for_a_while
{
	my ($self, $seconds, $name, $end) = @_;

	push @{ $self->{until} }, [ time + $seconds, $name, $end ];
}

# Ends what lasts: what is due, what has this name, or all
sub heal
{
	my ($self, $name, $now) = @_;
	my @until = @{ $self->{until} };

	$self->{until} = [];
	foreach my $u (@until)
	{
		if ($now ? $u->[0] > $now : defined $name && $u->[1] ne $name) { push @{ $self->{until} }, $u; }
		else { $u->[2]->(); }
	}
}

sub possible { return grep { !$_[0]{left_out}{$_} && (!$ENV{TW_CHAOS_FAULTS} || $ENV{TW_CHAOS_FAULTS} =~ /\b$_\b/) } sort keys %weights; }

# Faults are dealt from a pack: first one of each, then by weight.  Crashes wait while there is a standby.
sub strike
{
	my ($self, $sessions) = @_;
	my $pack = $self->{pack} //= [ shuffle $self->possible ];

	$self->heal(undef, time);
	push @$pack, shuffle map { ($_) x $weights{$_} } $self->possible if @$pack < 5;
	my ($i) = grep { !$self->{standby} || !$crashes{ $pack->[$_] } } 0 .. $#$pack;
	return if !defined $i;
	my ($fault) = splice @$pack, $i, 1;

	if ($self->$fault($sessions)) { $self->{count}{$fault}++; }
	else { push @$pack, $fault; }
}

# Those that have not been
sub missing { return grep { !$_[0]{count}{$_} } $_[0]->possible; }

sub total { my ($self) = @_; my $n = 0; $n += $_ foreach values %{ $self->{count} }; return $n; }
sub summary { my ($self) = @_; return join ', ', map { "$_ $self->{count}{$_}" } sort keys %{ $self->{count} }; }

# What the servers' logs have of crashes that are not ours
sub log_findings
{
	my ($self) = @_;

	# a server without space for its log aborts
	return map { grep { /PANIC|TRAP:|was terminated by signal (?![69]\b)/ && !/PANIC: .*No space left on device/ } split /\n/, slurp_file($_->logfile) } @{ $self->{nodes} };
}

1;
