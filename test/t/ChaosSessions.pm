# Many database sessions at once, in one process: each is a psql that is given one operation after
# another, and all are waited for together.  What became of an operation is known exactly as well
# as a client can know it:
#
#	acknowledged	the commit was answered
#	refused		an error came before the commit, or the session ended before it was sent
#	unknown		the session ended after the commit was sent and before it was answered
#
# An operation is a hash: name, steps (SQL for psql; the next is sent when the one before has
# ended, after a random pause), done (called with the operation when it has ended).  A script
# says where its commit is by "\echo #commit" in the line before, and what it has found out by
# "\echo #x name value".  With call, it ends its transactions itself, so that errors of the kind
# that can come at any time do not prove that nothing was committed.  With savepoint, errors before
# it has found its status have been undone.
package ChaosSessions;

use strict;
use warnings;

use IO::Select;
use POSIX ();
use Time::HiRes qw(time sleep);

$SIG{PIPE} = 'IGNORE';

# Named: connstr, setup (SQL that each session begins with), count, next (gives the operation for
# a session that has nothing to do, or undef)
sub new
{
	my ($class, %with) = @_;
	my $self = bless { pause => 0.01, failed => {}, %with }, $class;

	$self->{sessions} = [ map { { n => $_, state => 'down', again => 0 } } 1 .. $self->{count} ];
	return $self;
}

# ---------- one session ----------

sub connect_session
{
	my ($self, $s) = @_;

	pipe my $from_us, $s->{in} or die $!;
	pipe $s->{out}, my $to_us or die $!;
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		open STDIN, '<&', $from_us;
		open STDOUT, '>&', $to_us;
		open STDERR, '>&', $to_us;
		exec 'psql', '-XqAt', '-d', $self->{connstr} or POSIX::_exit(127);
	}
	$s->{in}->autoflush(1);
	@$s{qw(pid state buffer backend log)} = ($pid, 'connecting', '', undef, []);
	print { $s->{in} } "\\set VERBOSITY verbose\n$self->{setup}\nSELECT pg_backend_pid() AS pid \\gset\n\\echo #up :pid\n";
}

sub disconnected
{
	my ($self, $s) = @_;
	my $op = delete $s->{op};

	close $s->{$_} foreach qw(in out);
	waitpid $s->{pid}, 0;
	if ($s->{state} eq 'connecting')
	{
		my $why = join ' ', @{ $s->{log} };

		$why = $1 if $why =~ /(too many clients|remaining connection slots|starting up|shutting down|recovery mode|No such file|Connection refused|not yet accepting|terminating connection|server closed the connection|out of shared memory)/;
		$self->{failed}{$why}++;
	}
	@$s{qw(state again backend)} = ('down', time + 0.02 + rand 0.1, undef);
	$self->ended($op, 1) if $op;
}

sub send_step
{
	my ($self, $s) = @_;

	$s->{op}{sending}->($s->{op}) if $s->{op}{sending};
	print { $s->{in} } "\\set status none\n" if $s->{op}{step} == 0;
	print { $s->{in} } $s->{op}{steps}[ $s->{op}{step} ], "\n\\echo #end\n";
}

# What became of it
sub ended
{
	my ($self, $op, $lost) = @_;
	my @errors = grep { !$op->{call} || !/^5[37]/ } @{ $op->{errors} };

	$op->{lost} = $lost;
	$op->{outcome} =
	    @errors ? 'refused'
	  : @{ $op->{errors} } ? 'unknown'
	  : $lost ? ($op->{committing} ? 'unknown' : 'refused')
	  : $op->{unsure} ? 'unknown'
	  : 'acknowledged';
	$op->{done}->($op);
}

sub line
{
	my ($self, $s, $line) = @_;
	my $op = $s->{op};

	push @{ $op->{raw} }, $line if $op;

	if (!$op)
	{
		if ($line =~ /^#up (\d+)/)
		{
			@$s{qw(backend state)} = ($1, 'idle');
		}
		push @{ $s->{log} }, $line;
	}
	elsif ($line eq '#commit') { $op->{committing} = 1; }
	elsif ($line eq '#end')
	{
		if (++$op->{step} < @{ $op->{steps} })
		{
			$s->{due} = time + rand $self->{pause};
			return;
		}
		@$s{qw(op state)} = (undef, 'idle');

		# psql notices only at the next statement
		if ($op->{closed})
		{
			$s->{op} = $op;
			kill 'KILL', $s->{pid};
			$self->disconnected($s);
		}
		else
		{
			$self->ended($op, 0);
		}
	}
	elsif ($line =~ /^#x (\w+) (.*)/)
	{
		$op->{found}{$1} = $2;
		$op->{errors} = [] if $op->{savepoint} && $1 eq 'status' && $2 ne 'none';
	}
	elsif ($line =~ /^(?:psql:\S+ )?(ERROR|FATAL|WARNING):  (\w{5}): (.*)/)
	{
		# what fails because something has failed before says nothing
		push @{ $op->{errors} }, "$2: $3" if $1 eq 'ERROR' && $2 ne '25P02';
		push @{ $op->{fatal} }, "$2: $3" if $1 eq 'FATAL';
		$op->{closed} = 1 if $1 eq 'FATAL';
		$op->{unsure} = 1 if $3 =~ /wait for synchronous replication/;
		$op->{message} = 1;
	}
	elsif ($line =~ /^server closed the connection|connection to server was lost|^no connection to the server/)
	{
		$op->{closed} = 1;
		$op->{message} = 0;
	}
	elsif ($line =~ /^LOCATION:/) { $op->{message} = 0; }
	elsif (!$op->{message} && $line !~ /^\t|^$/) { push @{ $op->{lines} }, $line; }
}

sub read_from
{
	my ($self, $s) = @_;
	my $n = sysread $s->{out}, $s->{buffer}, 65536, length $s->{buffer};

	while ($s->{state} ne 'down' && $s->{buffer} =~ s/^([^\n]*)\n//)
	{
		$self->line($s, $1);
	}
	$self->disconnected($s) unless $n;
}

# ---------- all of them ----------

# One turn: gives operations to those that are idle, and takes what comes within the time
sub turn
{
	my ($self, $time) = @_;
	my $now = time;
	my %by;

	foreach my $s (@{ $self->{sessions} })
	{
		$self->connect_session($s) if $s->{state} eq 'down' && $s->{again} <= $now && !$self->{stopped};
		if ($s->{due} && $s->{due} <= $now)
		{
			$s->{due} = undef;
			$self->send_step($s) if $s->{op};
		}
		if ($s->{state} eq 'idle' && (my $op = $self->{next}->()))
		{
			@$op{qw(step errors fatal lines raw committing unsure closed message found started)} = (0, [], [], [], [], 0, 0, 0, 0, {}, $now);
			@$s{qw(op state due)} = ($op, 'busy', undef);
			$op->{begun}->($op) if $op->{begun};
			$self->send_step($s);
		}
		$by{ fileno $s->{out} } = $s if $s->{state} ne 'down';
	}
	my @ready = IO::Select->new(map { $_->{out} } values %by)->can_read($time);
	$self->read_from($by{ fileno $_ }) foreach @ready;
	sleep $time if !%by;
}

sub busy { return grep { $_->{state} eq 'busy' } @{ $_[0]{sessions} }; }

# Ends all; those in an operation lose it
sub stop
{
	my ($self) = @_;

	$self->{stopped} = 1;
	foreach my $s (grep { $_->{state} ne 'down' } @{ $self->{sessions} })
	{
		kill 'KILL', $s->{pid};
		$self->disconnected($s);
	}
}

1;
