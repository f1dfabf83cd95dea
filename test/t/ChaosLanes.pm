# Staged batches of test/t/095_chaos.pl, in lanes: each publishes batch after batch into tables that
# all lanes share, in every mode, and moves its position in the same transaction.
#
# A lane's round: open the batch, load its tasks in several sessions at once, some of them
# twice, publish.  Whatever fails, the next round begins at the start; what is there already says
# so.  Some batches are given up and opened again, expire, are taken over by a new writer, or
# are published by two at once.
package ChaosLanes;

use strict;
use warnings;

our @lanes = (1 .. 3);

my $tasks = 4;
my $audit = q($audit$BEGIN
	IF (SELECT count(DISTINCT task) FROM event) <> 4 THEN SIGNAL SQLSTATE '45002' SET MESSAGE_TEXT = 'tasks are missing'; END IF;
	IF EXISTS (SELECT FROM event WHERE batch <> %d) THEN SIGNAL SQLSTATE '45002' SET MESSAGE_TEXT = 'another batch'; END IF;
END$audit$);

sub new
{
	my ($class, %with) = @_;
	my $self = bless { queue => [], tries => 0, %with }, $class;

	$self->{lane}{$_} = { n => $_, batch => 1, busy => 0 } foreach @lanes;
	return $self;
}

sub job { return "lane$_[0]{n}"; }

# The same number for a batch at each try
sub size { return $_[0]{batch} % 5 ? 10 : 800; }

sub targets
{
	my ($lane) = @_;
	my $n = $lane->{n};

	return '[{"table": "event", "mode": "append"}, {"table": "state", "mode": "merge", "delete_when": "gone"},
		{"table": "kept", "mode": "insert_new"}, {"table": "part", "mode": "overwrite", "where": "lane = ' . $n . '"}'
	  . ($n == 1 ? ', {"table": "snap", "mode": "overwrite"}' : '') . ']';
}

# An operation of a lane, which goes on when all of its operations have ended
sub add
{
	my ($self, $lane, $name, $expected, %op) = @_;
	my $note = delete $op{note};

	$lane->{busy}++;
	push @{ $self->{queue} }, {
		name => $name,
		done => sub {
			my ($op) = @_;

			push @{ $lane->{story} }, ChaosWork::story($op);
			shift @{ $lane->{story} } while @{ $lane->{story} } > 30;
			$note->($op) if $note;
			$self->{work}->count($op, @$expected);
			if (!--$lane->{busy})
			{
				$self->next_phase($lane) unless @{ $lane->{phases} //= [] };
				(shift @{ $lane->{phases} })->() if @{ $lane->{phases} };
			}
		},
		%op
	};
}

sub status_line { return "\\echo #x status :status\n"; }

sub open_batch
{
	my ($self, $lane) = @_;
	my $epoch = $lane->{epoch} ? ", epoch => $lane->{epoch}" : '';
	my $timeout = rand() < 0.06 ? ", timeout => '50 ms'" : '';
	my $logged = $lane->{n} == 2 ? ', logged => true' : '';

	$self->add($lane, 'open_batch', ['TW001'],
		steps => [ "\\set s none\n\\echo #commit\nSELECT status, coalesce(schema, 'none') AS s FROM tw.open_batch('" . job($lane)
			  . "', 'b$lane->{batch}', '" . targets($lane) =~ s/'lane/lane/r . "', $tasks$epoch$timeout$logged) \\gset\n" . status_line() . "\\echo #x schema :s\n" ],
		note => sub {
			my ($op) = @_;

			$lane->{schema} = $op->{outcome} eq 'acknowledged' && $op->{found}{schema} ne 'none' ? $op->{found}{schema} : undef
			  if $op->{outcome} ne 'refused';
		});
}

# A new writer of the lane, which takes over what is open
sub take_over
{
	my ($self, $lane) = @_;

	$self->add($lane, 'init_producer (lane)', [],
		steps => [ "\\echo #commit\nSELECT tw.init_producer('" . job($lane) . "') AS epoch \\gset\n\\echo #x epoch :epoch\n" ],
		note => sub {
			my ($op) = @_;

			$lane->{epoch} = $op->{found}{epoch} if $op->{outcome} eq 'acknowledged';
		});
}

# A file for COPY, as a client has it; the others are by INSERT
sub events_file
{
	my ($self, $lane, $task) = @_;
	my $file = "$self->{dir}/events$lane->{n}.$task";
	my $size = size($lane);

	open my $out, '>', $file or die $!;
	print $out join '', map { join("\t", $lane->{n}, $lane->{batch}, $task, $_, $size * $tasks) . "\n" } 1 .. $size;
	close $out;
	return $file;
}

sub load_task
{
	my ($self, $lane, $task) = @_;
	my ($n, $b, $size) = ($lane->{n}, $lane->{batch}, size($lane));
	my $total = $size * $tasks;
	my $events = defined $lane->{schema} && $task % 2 ? "\\copy $lane->{schema}.event FROM '" . $self->events_file($lane, $task) . "'"
	  : "INSERT INTO :s.event SELECT $n, $b, $task, g, $total FROM generate_series(1, $size) g;";
	my ($last, $gone) = (100 + $b % 2, 101 - $b % 2);

	$self->add($lane, 'task', [qw(TW001 TW006 TW010 42P01 3F000)],
		steps => [ "BEGIN;\n\\set go false\n\\set s none\nSELECT status, status = 'attached' AS go FROM tw.attach_task('lane$n', 'b$b', '$task') LIMIT 1 \\gset\n"
			  . "SELECT coalesce(max(schema), 'none') AS s FROM tw.staged_batches WHERE job = 'lane$n' AND batch_id = 'b$b' \\gset\n"
			  . "\\if :go\n$events\n\\endif\n",
			"\\if :go\n"
			  . "INSERT INTO :s.state SELECT $n, $task * 10 + g, $b, false FROM generate_series(0, 9) g;\n"
			  . ($task == 0 ? "INSERT INTO :s.state VALUES ($n, $last, $b, false), ($n, $gone, $b, true);\n" : '')
			  . "INSERT INTO :s.kept SELECT $n, $b * 10 + $task * 3 + g, $b FROM generate_series(0, 2) g;\n"
			  . "INSERT INTO :s.part SELECT $n, $b, $task * 5 + g FROM generate_series(0, 4) g;\n"
			  . ($n == 1 ? "INSERT INTO :s.snap SELECT $b, $task * 10 + g FROM generate_series(0, 9) g;\n" : '')
			  . "SELECT tw.commit_task('{\"rows\": $size}') AS ignored \\gset\n\\endif\n" . status_line() . "\\echo #commit\nCOMMIT;" ]);
}

sub publish
{
	my ($self, $lane) = @_;
	my ($n, $b) = ($lane->{n}, $lane->{batch});
	my $epoch = $lane->{epoch} && rand() < 0.7 ? ", epoch => $lane->{epoch}" : '';

	# a new writer may not have come to open it
	$self->add($lane, 'publish', [qw(22023 TW001 TW007 TW009 TW010)],
		steps => [ "BEGIN;\n\\set go false\nSELECT status, status = 'applied' AS go FROM tw.publish('lane$n', 'b$b', audit => " . sprintf($audit, $b) . "$epoch) \\gset\n"
			  . "\\if :go\nSELECT tw.commit_offset('lane$n', 'batches', '0', nullif(" . ($b - 1) . ", 0)::text, '$b') AS ignored \\gset\n\\endif\n" . status_line()
			  . "\\echo #commit\nCOMMIT;" ],
		note => sub {
			my ($op) = @_;

			return if $op->{outcome} ne 'acknowledged';
			$self->{work}->wrong("lane $n: batch $b was published twice " . join ' ', @{ $lane->{story} })
			  if $op->{found}{status} eq 'applied' && $lane->{applied}{$b}++;
			$lane->{batch} = $b + 1 if $lane->{batch} == $b;
			$lane->{tries} = 0;
		});
}

sub abort_batch
{
	my ($self, $lane) = @_;

	$self->add($lane, 'abort_batch', [qw(TW001 TW006 TW010)],
		steps => [ "\\echo #commit\nSELECT tw.abort_batch('" . job($lane) . "', 'b$lane->{batch}', reason => 'no') AS ignored \\gset\n" ]);
}

# The next round
sub next_phase
{
	my ($self, $lane) = @_;

	if ($self->{ending} && $lane->{batch} > ($lane->{from} //= $lane->{batch}))
	{
		$lane->{ended} = 1;
		return;
	}
	$self->{work}->wrong("lane $lane->{n}: batch $lane->{batch} was not published in 60 tries " . join ' ', @{ $lane->{story} // [] })
	  if ++$lane->{tries} == 60;
	my @phases = (
		sub { $self->open_batch($lane); },
		sub { $self->load_task($lane, $_) foreach sort { rand() <=> 0.5 } (0 .. $tasks - 1), grep { rand() < 0.15 } 0 .. $tasks - 1; },
		sub { $self->publish($lane) foreach 0 .. rand() < 0.2; });

	unshift @phases, sub { $self->take_over($lane); } if rand() < 0.1;
	splice @phases, 2, 0, sub { $self->abort_batch($lane); } if rand() < 0.05 && !$self->{ending};
	$lane->{phases} = \@phases;
}

sub next_op
{
	my ($self) = @_;

	if (!@{ $self->{queue} } && (!$self->{work}{resting} || $self->{ending}))
	{
		foreach my $lane (grep { !$_->{busy} && !$_->{ended} } values %{ $self->{lane} })
		{
			$self->next_phase($lane) unless @{ $lane->{phases} // [] };
			(shift @{ $lane->{phases} })->() if @{ $lane->{phases} };
		}
	}
	return undef if $self->{work}{resting} && !$self->{ending};
	return @{ $self->{queue} } && ($self->{ending} || rand() < 0.5) ? shift @{ $self->{queue} } : undef;
}

sub at_end { return !grep { !$_->{ended} } values %{ $_[0]{lane} }; }

# What is published of each lane is what was acknowledged, or one more
sub check
{
	my ($self, $query) = @_;
	my %position = map { split /\|/ } split /\n/, $query->(q(SELECT job, "position" FROM tw.offsets WHERE source = 'batches'));

	foreach my $lane (values %{ $self->{lane} })
	{
		my $position = $position{ job($lane) } // 0;

		$self->{work}->wrong("lane $lane->{n}: at $position, batch $lane->{batch} is next " . join ' ', @{ $lane->{story} // [] })
		  if $position != $lane->{batch} - 1 && $position != $lane->{batch};
	}
}

sub summary
{
	my ($self) = @_;

	return 'staged batches published: ' . join ', ', map { $self->{lane}{$_}{batch} - 1 } @lanes;
}

1;
