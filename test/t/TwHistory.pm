# Checks a history of transactions on append-only lists for isolation anomalies.
#
# The order of a list's versions is that of its elements, and every read tells which
# version it saw.  So all dependencies between transactions are known: ww (appended right after),
# wr (read what was appended last), rw (read the version before the append), and what came first in
# real time (rt): a transaction ended before the next of its session began.  The
# history is serializable exactly if these have no cycle; a cycle's edges say which anomaly it is, in the
# classes of Adya's thesis, as the Elle checker (Kingsbury and Alvaro) has made practical with
# lists.
package TwHistory;

use strict;
use warnings;

use Digest::MD5 'md5_hex';

# Given the lines "id|session|plain|started|ops" of the committed transactions and
# "key|e1,e2,..." of the lists as they are at the end, returns a hash: anomalies by
# class, transactions, reads, and an example of each.  Reads of plain transactions prove nothing
# and are left out.
sub check
{
	my ($log, $lists) = @_;
	my $self = {
		txn => [], order => {}, writer => {}, anomaly => {}, example => {}, reads => 0, appends => 0,
		edges => { ww => {}, wr => {}, rw => {} },
	};

	foreach my $line (@$lists)
	{
		my ($key, $elements) = split /\|/, $line;

		$self->{order}{$key} = [ split /,/, $elements ];
	}
	foreach my $line (@$log)
	{
		my ($id, $session, $plain, $started, $ops) = split /\|/, $line;

		push @{ $self->{txn} },
		  { id => $id, session => $session, plain => $plain eq 't', started => $started, ops => $ops };
	}
	@{ $self->{txn} } = sort { $a->{started} <=> $b->{started} } @{ $self->{txn} };
	note_appends($self);
	note_reads($self);
	classify($self);
	return $self;
}

sub anomaly
{
	my ($self, $class, $example) = @_;

	$self->{anomaly}{$class}++;
	$self->{example}{$class} = $example unless exists $self->{example}{$class};
}

sub edge
{
	my ($self, $kind, $from, $to) = @_;

	$self->{edges}{$kind}{$from}{$to} = 1 if $from != $to;
}

# Who appended which element; every committed one must be in its list once, and no other
sub note_appends
{
	my ($self) = @_;
	my $n = 0;

	foreach my $txn (@{ $self->{txn} })
	{
		$txn->{n} = $n++;
		while ($txn->{ops} =~ /a(\d+)=(\d+);/g)
		{
			$self->{writer}{$2} = $txn->{n};
			$self->{appends}++;
			push @{ $txn->{appended}{$1} }, $2;
		}
	}
	foreach my $key (keys %{ $self->{order} })
	{
		my $order = $self->{order}{$key};
		my %seen;

		for my $i (0 .. $#$order)
		{
			my $writer = $self->{writer}{ $order->[$i] };

			anomaly($self, 'duplicate', "element $order->[$i] of list $key") if $seen{ $order->[$i] }++;
			if (!defined $writer)
			{
				anomaly($self, 'G1a', "element $order->[$i] of list $key was never committed");
				next;
			}
			$self->{place}{ $order->[$i] } = $i;
			edge($self, 'ww', $self->{writer}{ $order->[ $i - 1 ] }, $writer)
			  if $i > 0 && defined $self->{writer}{ $order->[ $i - 1 ] };
		}
	}
	foreach my $txn (@{ $self->{txn} })
	{
		foreach my $key (keys %{ $txn->{appended} })
		{
			my @lost = grep { !defined $self->{place}{$_} } @{ $txn->{appended}{$key} };

			anomaly($self, 'lost append', "element $lost[0] of list $key, transaction $txn->{id}") if @lost;
		}
	}
}

# The version that each read saw, and so whom it depends on and who depends on it
sub note_reads
{
	my ($self) = @_;

	foreach my $txn (@{ $self->{txn} })
	{
		my (%own, %first);

		next if $txn->{plain};
		while ($txn->{ops} =~ /([ra])(\d+)=(\d+)(?:\.(\d+)\.(\w+))?;/g)
		{
			my ($what, $key, $length, $last, $digest) = ($1, $2, $3, $4, $5);
			my $order = $self->{order}{$key} || [];

			if ($what eq 'a')
			{
				push @{ $own{$key} }, $length;
				next;
			}
			$self->{reads}++;
			if ($length > @$order ||
				($length > 0 && ($order->[ $length - 1 ] != $last || digest($self, $key, $length) ne $digest)))
			{
				my $class = $length > 0 && !defined $self->{writer}{$last} ? 'G1a' : 'incompatible order';

				anomaly($self, $class, "transaction $txn->{id} read list $key with $length elements");
				next;
			}

			# its own appends must be there, and others' that are not its last must not
			anomaly($self, 'internal', "transaction $txn->{id} does not see its append to list $key")
			  if $own{$key} && grep { !defined $self->{place}{$_} || $self->{place}{$_} >= $length } @{ $own{$key} };
			if ($length > 0)
			{
				my $writer = $self->{writer}{$last};
				my $appended = $self->{txn}[$writer]{appended}{$key};

				anomaly($self, 'G1b', "transaction $txn->{id} read list $key in the middle of $self->{txn}[$writer]{id}")
				  if $writer != $txn->{n} && $appended->[-1] != $last;
				edge($self, 'wr', $writer, $txn->{n});
			}
			edge($self, 'rw', $txn->{n}, $self->{writer}{ $order->[$length] })
			  if $length < @$order && defined $self->{writer}{ $order->[$length] };
			$first{$key} = $length if !$own{$key} && !defined $first{$key};
		}

		# read, then appended to, with another's append in between
		foreach my $key (keys %first)
		{
			my $appended = $txn->{appended}{$key} or next;
			my $place = $self->{place}{ $appended->[0] };

			anomaly($self, 'lost update', "transaction $txn->{id} on list $key")
			  if defined $place && $place > $first{$key};
		}
	}
}

sub digest
{
	my ($self, $key, $length) = @_;

	return $self->{digest}{$key}[$length] //=
	  substr(md5_hex(join ',', @{ $self->{order}{$key} }[ 0 .. $length - 1 ]), 0, 8);
}

# ---------- cycles ----------

# Strongly connected components with more than one node (Tarjan's algorithm, without recursion)
sub components
{
	my ($n, $next) = @_;
	my (@index, @low, @on, @stack, @found);
	my $count = 0;

	for my $root (0 .. $n - 1)
	{
		next if defined $index[$root];
		my @work = ([ $root, undef, 0 ]);

		while (@work)
		{
			my $frame = $work[-1];
			my $v = $frame->[0];

			if (!defined $frame->[1])
			{
				$index[$v] = $low[$v] = $count++;
				push @stack, $v;
				$on[$v] = 1;
				$frame->[1] = $next->($v);
			}
			if ($frame->[2] < @{ $frame->[1] })
			{
				my $w = $frame->[1][ $frame->[2]++ ];

				if (!defined $index[$w])
				{
					push @work, [ $w, undef, 0 ];
				}
				elsif ($on[$w])
				{
					$low[$v] = $index[$w] if $index[$w] < $low[$v];
				}
				next;
			}
			pop @work;
			$low[ $work[-1][0] ] = $low[$v] if @work && $low[$v] < $low[ $work[-1][0] ];
			if ($low[$v] == $index[$v])
			{
				my @component;

				while (1)
				{
					my $w = pop @stack;

					$on[$w] = 0;
					push @component, $w;
					last if $w == $v;
				}
				push @found, \@component if @component > 1;
			}
		}
	}
	return @found;
}

# Can a node be reached from another along these edges, within a component?
sub reaches
{
	my ($self, $from, $to, $within, @kinds) = @_;
	my @queue = ($from);
	my %seen = ($from => 1);

	while (defined(my $v = shift @queue))
	{
		return 1 if $v == $to;
		foreach my $kind (@kinds)
		{
			push @queue, grep { $within->{$_} && !$seen{$_}++ } keys %{ $self->{edges}{$kind}{$v} || {} };
		}
	}
	return 0;
}

# The transactions, and what they did, of a component; a few of them
sub describe
{
	my ($self, $component) = @_;
	my @some = (sort { $a <=> $b } grep { $_ < @{ $self->{txn} } } @$component);

	splice @some, 4 if @some > 4;
	return join "\n", map { "$self->{txn}[$_]{id}: $self->{txn}[$_]{ops}" } @some;
}

sub classify
{
	my ($self) = @_;
	my $n = @{ $self->{txn} };
	my $along = sub {
		my @kinds = @_;

		return sub {
			my ($v) = @_;

			return [ map { keys %{ $self->{edges}{$_}{$v} || {} } } @kinds ];
		};
	};
	my %in_g1;

	foreach my $component (components($n, $along->('ww')))
	{
		anomaly($self, 'G0', describe($self, $component));
	}
	foreach my $component (components($n, $along->('ww', 'wr')))
	{
		anomaly($self, 'G1c', describe($self, $component));
		$in_g1{$_} = 1 foreach @$component;
	}
	foreach my $component (components($n, $along->('ww', 'wr', 'rw')))
	{
		my %within = map { $_ => 1 } @$component;
		my $single = 0;

		foreach my $from (@$component)
		{
			foreach my $to (keys %{ $self->{edges}{rw}{$from} || {} })
			{
				$single = 1 if $within{$to} && reaches($self, $to, $from, \%within, 'ww', 'wr');
			}
			last if $single;
		}
		if ($single)
		{
			anomaly($self, 'G-single', describe($self, $component));
		}
		elsif (!grep { $in_g1{$_} } @$component)
		{
			anomaly($self, 'G2', describe($self, $component));
		}
	}
	real_time($self, $n, $along->('ww', 'wr', 'rw'));
}

# Cycles that take real time to close.  Time is a chain of nodes, one for each beginning: a
# transaction comes after the node of its own, and before that of the next of its session.
sub real_time
{
	my ($self, $n, $next) = @_;
	my (%following, @before);

	return if keys %{ $self->{anomaly} };
	for (my $i = $n - 1; $i >= 0; $i--)
	{
		my $txn = $self->{txn}[$i];

		$before[$i] = $following{ $txn->{session} };
		$following{ $txn->{session} } = $i;
	}
	foreach my $component (
		components(
			2 * $n,
			sub {
				my ($v) = @_;

				return [ $v - $n, $v + 1 < 2 * $n ? $v + 1 : () ] if $v >= $n;
				return [ @{ $next->($v) }, defined $before[$v] ? $n + $before[$v] : () ];
			}))
	{
		anomaly($self, 'real time', describe($self, $component));
	}
}

1;
