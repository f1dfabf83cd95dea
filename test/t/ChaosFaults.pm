# The faults of test/t/095_chaos.pl: to a session, to the server, to the machine below it.
package ChaosFaults;

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time sleep);
use TransactionalWriter ();

my %weights = (cancel => 6, terminate => 5, client => 5, kill => 2, immediate => 1);

sub new
{
	my ($class, %with) = @_;

	return bless { count => {}, nodes => [], %with }, $class;
}

# The server that faults are about
sub new_server
{
	my ($self, $name, @settings) = @_;

	$self->{node} = TransactionalWriter::new_server($name, @settings);
	push @{ $self->{nodes} }, $self->{node};
	return $self->{node};
}

sub query
{
	my ($self, $sql) = @_;

	return $self->{node}->safe_psql('postgres', $sql);
}

sub wait_for_server
{
	my ($self) = @_;

	for (1 .. 600)
	{
		my ($status) = $self->{node}->psql('postgres', 'SELECT 1');

		return if $status == 0;
		sleep 0.05;
	}
	die 'the server did not come back';
}

# ---------- sessions ----------

# Signals the backend of a session that is at something; not one that has ended meanwhile
sub signal_backend
{
	my ($self, $signal, $sessions) = @_;
	my @busy = grep { $_->{backend} } $sessions->busy;
	my $backend = @busy ? $busy[ rand @busy ]{backend} : return 0;
	my $name = $self->{node}->name;

	open my $file, '<', "/proc/$backend/cmdline" or return 0;
	my $what = <$file> // '';
	return 0 if $what !~ /^postgres: \Q$name\E: writer /;
	return kill $signal, $backend;
}

sub cancel { return $_[0]->signal_backend('INT', $_[1]); }
sub terminate { return $_[0]->signal_backend('TERM', $_[1]); }
sub kill { return $_[0]->signal_backend('KILL', $_[1]); }

sub client
{
	my ($self, $sessions) = @_;
	my @busy = $sessions->busy;

	return 0 unless @busy;
	return CORE::kill 'KILL', $busy[ rand @busy ]{pid};
}

# ---------- the server ----------

sub immediate
{
	my ($self) = @_;

	$self->{node}->stop('immediate');
	$self->{node}->start;
	return 1;
}

# ---------- choosing ----------

sub strike
{
	my ($self, $sessions) = @_;
	my @weighted = map { ($_) x $weights{$_} } grep { !$ENV{TW_CHAOS_FAULTS} || $ENV{TW_CHAOS_FAULTS} =~ /\b$_\b/ } sort keys %weights;
	my $fault = $weighted[ rand @weighted ];

	$self->{count}{$fault}++ if $self->$fault($sessions);
}

sub heal { }

sub total { my ($self) = @_; my $n = 0; $n += $_ foreach values %{ $self->{count} }; return $n; }
sub summary { my ($self) = @_; return join ', ', map { "$_ $self->{count}{$_}" } sort keys %{ $self->{count} }; }

sub log_findings
{
	my ($self) = @_;
	my @found;

	foreach my $node (@{ $self->{nodes} })
	{
		push @found, grep { /PANIC|TRAP:|was terminated by signal (?!9)/ } split /\n/, slurp_file($node->logfile);
	}
	return @found;
}

1;
