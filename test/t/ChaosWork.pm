# The operations of test/t/095_chaos.pl, chosen at random, and the model that says what must be
# there of them.
#
# An operation that writes a batch has a key: what is known of the batch after all that was asked
# of it.  Its state is "none" (it must not be there), "yes" (it must be there, once) or "maybe" (an
# answer was lost; it may be there, whole).  Several operations may be at one key at the same time.
# check() compares all keys with what the server has, and then knows what it is.
package ChaosWork;

use strict;
use warnings;

# What any operation may meet when sessions and servers die and run out of things
my %fault = map { $_ => 1 } qw(57014 57P01 57P02 57P03 53100 53200 53300 40P01 40001 TW003);

sub new
{
	my ($class, %with) = @_;

	return bless {
		next => 1, since => 1, keys => {}, live => [], old => {}, outcomes => {}, answers => {},
		wrong => [], epoch => {}, prepared => {}, weights => {}, %with
	}, $class;
}

sub pick { return $_[ rand @_ ]; }

sub wrong
{
	my ($self, $what) = @_;

	push @{ $self->{wrong} }, $what;
}

# What an operation has met, for the story of a key that is told when it is wrong
sub story
{
	my ($op) = @_;

	return "[$op->{name} $op->{outcome}: " . join(' / ', @{ $op->{raw} }) . ']';
}

# Counts what became of an operation, and reports an error that nothing explains
sub count
{
	my ($self, $op, @expected) = @_;
	my %expected = (%fault, map { $_ => 1 } @expected);
	my $outcome = $op->{outcome};
	my $error = $op->{errors}[0] // $op->{fatal}[0];

	$self->{outcomes}{ $op->{name} }{$outcome}++;
	if ($outcome eq 'acknowledged')
	{
		$self->{answers}{"$op->{name}: $op->{found}{status}"}++ if defined $op->{found}{status};
	}
	elsif (defined $error)
	{
		my $state = substr $error, 0, 5;

		$self->{answers}{"$op->{name}: $state"}++;
		$self->wrong("$op->{name}: $error") unless $expected{$state};
	}
	$self->wrong("$op->{name}: not understood: $op->{lines}[0] " . story($op)) if @{ $op->{lines} } && !$op->{lost};
}

# ---------- batches with a key ----------

sub batch_id { return sprintf 'op%09d', $_[0]; }

sub new_key
{
	my ($self, $kind, $job) = @_;
	my $n = $self->{next}++;
	my $key = { op => $n, kind => $kind, job => $job, batch => batch_id($n), state => 'none', busy => 0 };

	$self->{keys}{$n} = $key;
	push @{ $self->{live} }, $key;
	return $key;
}

# An operation at a key
sub at_key
{
	my ($self, $key, $name, $expected, %op) = @_;

	return {
		name => $name,
		begun => sub {
			$key->{shared} = 1 if $key->{busy}++;
			@{ $_[0] }{qw(before forgets)} = ($key->{state}, $key->{forgets} // 0);
		},
		# the last is the one that commits
		sending => sub { $_[0]{epochs} = { %{ $self->{epoch} } }; },
		done => sub {
			push @{ $key->{story} }, story($_[0]);
			$self->note_key($key, $_[0]);
			$key->{shared} = 0 if !--$key->{busy};
			$self->count($_[0], @$expected);
		},
		%op
	};
}

sub note_key
{
	my ($self, $key, $op) = @_;
	my $status = $op->{found}{status} // '';
	my $what = "$op->{name} $key->{batch} " . join(' ', @{ $key->{story} });

	if ($op->{outcome} eq 'unknown')
	{
		$key->{unsure} = 1;
		$key->{state} = 'maybe' if $key->{state} eq 'none';
	}
	elsif ($op->{outcome} eq 'acknowledged')
	{
		if ($status =~ /^(applied|started|committed)$/)
		{
			# another's answer, that it is done, may have overtaken this one; so may one that it is forgotten
			$self->wrong("$what: ran twice")
			  if ($key->{ran} || $op->{before} eq 'yes') && $op->{forgets} == ($key->{forgets} // 0) && !$key->{forgetting};
			$key->{ran} = 1;
			$self->wrong("$what: epoch $op->{epoch} could commit although $op->{epochs}{$key->{job}} was current")
			  if defined $op->{epoch} && $op->{epoch} < $op->{epochs}{ $key->{job} };
			$key->{state} = 'yes';
		}
		elsif ($status eq 'already_committed')
		{
			$self->wrong("$what: nobody has committed it") if $key->{state} eq 'none' && !$key->{shared} && !$key->{unsure};
			$key->{state} = 'yes';
		}
		elsif ($status ne 'dry_run')
		{
			$self->wrong("$what: answered \"$status\"");
		}
	}
}

# A new key, or one that was used before; what has gone before the last check is never gone from the ledger
sub key_of
{
	my ($self, $kind, @jobs) = @_;
	my $dice = rand;

	if ($dice < 0.25)
	{
		my @same = grep { $_->{kind} eq $kind } map { @{ $self->{live} } ? pick(@{ $self->{live} }) : () } 1 .. 8;

		return $same[0] if @same;
	}
	elsif ($dice < 0.3 && $self->{old}{$kind})
	{
		return pick(@{ $self->{old}{$kind} });
	}
	return $self->new_key($kind, pick(@jobs));
}

my $insert = 'INSERT INTO a (op, n) SELECT :op, n FROM generate_series(1, 3) n; INSERT INTO b (op, n) SELECT :op, n FROM generate_series(1, 3) n;';
my @blocks = ("BEGIN ATOMIC $insert END", 'BEGIN CALL put(:op); END',
	'BEGIN DECLARE i int; DECLARE CONTINUE HANDLER FOR SQLSTATE \'22012\' INSERT INTO b (op, n) VALUES (:op, 3);
		FOR r AS SELECT g FROM generate_series(1, 3) g DO INSERT INTO a (op, n) VALUES (:op, r.g); END FOR;
		INSERT INTO b (op, n) VALUES (:op, 1), (:op, 2); SET i = 1 / 0; END');

sub status_line { return "\\echo #x status :status\n"; }

sub atomic
{
	my ($self, $dry) = @_;
	my $key = $self->key_of('direct', 'direct1', 'direct2');
	my $block = $blocks[ $key->{op} % @blocks ];

	return $self->at_key($key, $dry ? 'dry run' : 'tw.atomic', [], steps => [
		"\\echo #commit\nSELECT status FROM tw.atomic(\$\$$block\$\$, '{\"op\": $key->{op}}', '$key->{job}', '$key->{batch}'"
		  . ($dry ? ', dry_run => true' : '') . ") \\gset\n" . status_line() ]);
}

sub run
{
	my ($self) = @_;
	my $key = $self->key_of('direct', 'direct1', 'direct2');
	my $block = $blocks[ $key->{op} % @blocks ];
	my $mode = pick(qw(none write row predicate serializable));

	return $self->at_key($key, 'tw.run', [], call => 1, steps => [
		"\\echo #commit\nCALL tw.run(\$\$$block\$\$, '{\"op\": $key->{op}}', '$key->{job}', '$key->{batch}', conflicts => '$mode') \\gset\n" . status_line() ]);
}

# A transaction of any isolation, which may not want to wait for others
sub begin_transaction
{
	return 'BEGIN ISOLATION LEVEL ' . pick('READ COMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE') . ";\n"
	  . (rand() < 0.1 ? "SET LOCAL transactional_writer.claim_wait = off;\n" : '');
}

# Any SQL in a transaction; the block's fingerprint is not this one's, so it has keys of its own
sub begin
{
	my ($self, $key, %with) = @_;
	my ($end, $epoch) = ($with{end} // 'COMMIT;', $with{epoch});

	$key //= $self->key_of('plain', 'plain1', 'plain2');
	my $work = $insert =~ s/:op/$key->{op}/gr;
	my $version = $key->{kind} eq 'version' ? ", version => $key->{op}" : '';
	my $e = defined $epoch ? ", epoch => $epoch" : '';

	$work = "CALL put($key->{op});" if $key->{op} % 2;
	return $self->at_key($key, $with{name} // 'begin_batch', $with{expected} // [], epoch => $epoch, steps => [
		begin_transaction() . "\\set go false\nSELECT status, status = 'started' AS go FROM tw.begin_batch('$key->{job}', '$key->{batch}'$e$version) \\gset\n"
		  . "\\if :go\n$work\nSELECT tw.finish_batch('{\"n\": 6}') AS ignored \\gset\n\\endif\n",
		status_line() . "\\echo #commit\n$end" ]);
}

# Two batches of two jobs in one transaction, the second at the second attempt
sub two
{
	my ($self) = @_;
	my $key = $self->key_of('two', 'two');
	my ($n, $batch) = @$key{qw(op batch)};
	my $claim = sub {
		my ($job, $table) = @_;

		return "SELECT status AS $job, status = 'started' AS go FROM tw.begin_batch('$job', '$batch') \\gset\n"
		  . "\\if :go\nINSERT INTO $table (op, n) SELECT $n, g FROM generate_series(1, 3) g;\n\\endif\n";
	};

	return $self->at_key($key, 'two batches', [], savepoint => 1, steps => [
		begin_transaction() . "\\set go false\n\\set two1 none\n\\set two2 none\n" . $claim->('two1', 'a') . "SAVEPOINT s;\n" . $claim->('two2', 'b') . "ROLLBACK TO s;\n",
		"\\set go false\n" . $claim->('two2', 'b') . "RELEASE s;\nSELECT CASE WHEN :'two1' = :'two2' THEN :'two1' ELSE 'one of two' END AS status \\gset\n" . status_line()
		  . "\\echo #commit\nCOMMIT;" ]);
}

# ---------- fencing ----------

sub fenced
{
	my ($self) = @_;
	my $epoch = $self->{epoch}{fenced} // return $self->init_producer('fenced');

	$epoch-- if $epoch > 1 && rand() < 0.3;
	return $self->begin($self->key_of('fenced', 'fenced'), name => 'with an epoch', epoch => $epoch, expected => ['TW001']);
}

sub init_producer
{
	my ($self, $job) = @_;

	return {
		name => 'init_producer',
		steps => ["\\echo #commit\nSELECT tw.init_producer('$job') AS epoch \\gset\n\\echo #x epoch :epoch\n"],
		done => sub {
			my ($op) = @_;

			if ($op->{outcome} eq 'acknowledged')
			{
				$self->wrong("init_producer: epoch $op->{found}{epoch} was given twice") if $self->{given}{$job}{ $op->{found}{epoch} }++;
				$self->{epoch}{$job} = $op->{found}{epoch} if $op->{found}{epoch} > ($self->{epoch}{$job} // 0);
			}
			$self->count($op);
		}
	};
}

# ---------- the ledger ----------

# A batch whose answer is known and that nobody is at is forgotten with its rows, and may run again
sub forget
{
	my ($self) = @_;
	my ($key) = grep { $_->{kind} eq 'plain' && $_->{state} eq 'yes' && !$_->{busy} && !$_->{unsure} }
	  map { @{ $self->{live} } ? pick(@{ $self->{live} }) : () } 1 .. 8;

	return undef unless $key;
	return $self->at_key($key, 'forget_batch', ['TW010'],
		begun => sub { $key->{shared} = 1 if $key->{busy}++; $key->{forgets}++; $key->{forgetting}++; },
		steps => [ "BEGIN;\nSELECT tw.forget_batch('$key->{job}', '$key->{batch}', 'again') AS ignored \\gset\nDELETE FROM a WHERE op = $key->{op};\n",
			"DELETE FROM b WHERE op = $key->{op};\n\\echo #commit\nCOMMIT;" ],
		done => sub {
			my ($op) = @_;

			push @{ $key->{story} }, story($op);
			$key->{forgets}++;
			$key->{forgetting}--;

			# others at it meanwhile may have come before or behind
			if ($op->{outcome} ne 'refused')
			{
				$key->{state} = $op->{outcome} eq 'unknown' || $key->{shared} ? 'maybe' : 'none';
				$key->{unsure} = 1 if $key->{state} eq 'maybe';
				$key->{ran} = 0;
			}
			$key->{shared} = 0 if !--$key->{busy};
			$self->count($op, 'TW010', '55006');
		});
}

# Versions come in order, and the ledger forgets them
sub version
{
	my ($self) = @_;

	return $self->begin($self->key_of('version', 'versions'), name => 'with a version', expected => ['TW008']);
}

sub prune
{
	my ($self) = @_;

	return { name => 'prune_ledger', steps => ["\\echo #commit\nSELECT tw.prune_ledger('versions', '100 ms') AS ignored \\gset\n"],
		done => sub { $self->count($_[0]) } };
}

# ---------- offsets ----------

# Two and more read from one place
sub consume
{
	my ($self) = @_;
	my $job = 'source' . int 1 + rand 3;

	return {
		name => 'commit_offset',
		steps => [ "BEGIN;\n\\set go false\nSELECT coalesce(tw.offset('$job', 'lines', '0'), '0') AS pos \\gset\n",
			"SELECT status, status = 'started' AS go FROM tw.begin_batch('$job', 'from ' || :'pos') \\gset\n"
			. "\\if :go\nINSERT INTO line SELECT '$job', :'pos'::int + n FROM generate_series(1, 5) n;\n"
			. "SELECT tw.commit_offset('$job', 'lines', '0', nullif(:'pos', '0'), (:'pos'::int + 5)::text) AS ignored \\gset\n\\endif\n" . status_line()
			. "\\echo #commit\nCOMMIT;" ],
		done => sub {
			my ($op) = @_;

			if ($op->{outcome} ne 'refused' && ($op->{found}{status} // '') eq 'started')
			{
				$self->{consumed}{$job}{ $op->{outcome} }++;
			}
			$self->count($op, 'TW005');
		}
	};
}

# ---------- money ----------

sub transfer
{
	my ($self) = @_;
	my $key = $self->key_of('transfer', 'money');
	my ($from, $to) = (int rand 10, int rand 10);
	my $amount = 1 + int rand 20;

	# the same at every try, or the fingerprint is another
	($from, $to, $amount) = @{ $key->{what} //= [ $from, $to, $amount ] };
	my $mode = $key->{mode} //= pick(qw(none write row predicate serializable));
	my $block = $mode =~ /none|write/
	  ? "BEGIN UPDATE account SET balance = balance - :amount WHERE id = :from AND balance >= :amount RETURNING 1; "
	  : "BEGIN IF (SELECT balance FROM account WHERE id = :from) < :amount THEN SIGNAL SQLSTATE '45001'; END IF;
		UPDATE account SET balance = balance - :amount WHERE id = :from; ";

	$block = "BEGIN DECLARE EXIT HANDLER FOR NOT FOUND SIGNAL SQLSTATE '45001'; " . substr($block, 6) if $mode =~ /none|write/;
	$block .= "UPDATE account SET balance = balance + :amount WHERE id = :to; INSERT INTO transfer VALUES (:op, :from, :to, :amount); END";
	return $self->at_key($key, 'transfer', ['45001'], call => 1, steps => [
		"\\echo #commit\nCALL tw.run(\$\$$block\$\$, '{\"op\": $key->{op}, \"from\": $from, \"to\": $to, \"amount\": $amount}', '$key->{job}', '$key->{batch}', conflicts => '$mode') \\gset\n"
		  . status_line() ]);
}

# Two accounts may not be overdrawn together: whoever takes has looked at both
sub withdraw
{
	my ($self) = @_;
	my $key = $self->key_of('withdraw', 'money');
	my ($account, $amount) = @{ $key->{what} //= [ 10 + int rand 4, 20 + int rand 150 ] };
	my $mode = $key->{mode} //= pick(qw(row predicate));

	# a session of its own transaction
	return $self->at_key($key, 'withdraw', ['45001'], steps => [
		"BEGIN;\n\\set go false\nSELECT status, status = 'started' AS go FROM tw.begin_batch('$key->{job}', '$key->{batch}') \\gset\n"
		  . "\\if :go\nSELECT tw.track_reads('$mode') AS ignored \\gset\nCALL withdraw($key->{op}, $account, $amount);\n\\endif\n",
		status_line() . "\\echo #commit\nCOMMIT;" ]) if $key->{op} % 2;
	return $self->at_key($key, 'withdraw', ['45001'], call => 1, steps => [
		"\\echo #commit\nCALL tw.run('BEGIN CALL withdraw(:op, :account, :amount); END', '{\"op\": $key->{op}, \"account\": $account, \"amount\": $amount}', '$key->{job}', '$key->{batch}', conflicts => '$mode') \\gset\n"
		  . status_line() ]);
}

sub deposit
{
	my ($self) = @_;
	my $key = $self->key_of('deposit', 'money');
	my ($account, $amount) = @{ $key->{what} //= [ 10 + int rand 4, 40 + int rand 100 ] };

	return $self->at_key($key, 'deposit', [], steps => [
		"\\echo #commit\nSELECT status FROM tw.atomic('BEGIN UPDATE account SET balance = balance + :amount WHERE id = :account;
			INSERT INTO transfer VALUES (:op, NULL, :account, :amount); END', '{\"op\": $key->{op}, \"account\": $account, \"amount\": $amount}', '$key->{job}', '$key->{batch}') \\gset\n"
		  . status_line() ]);
}

# ---------- chunks ----------

sub chunks
{
	my ($self) = @_;
	my $key = $self->key_of('chunks', 'chunks');

	return $self->at_key($key, 'run_chunks', [], call => 1, steps => [
		"\\echo #commit\nCALL tw.run_chunks('$key->{job}', '$key->{batch}', 'BEGIN INSERT INTO piece SELECT :op, n FROM generate_series(:chunk_from::int, :chunk_to::int) n; END', 1, 20, 5, '{\"op\": $key->{op}}') \\gset\n"
		  . "\\echo #x status :chunks\n" ],
		done => sub {
			my ($op) = @_;

			# what is there of one that was refused is whole chunks
			$key->{state} = $op->{outcome} eq 'acknowledged' ? 'yes' : $key->{state} eq 'yes' ? 'yes' : 'maybe';
			$self->wrong("run_chunks $key->{batch}: $op->{found}{status} chunks") if $op->{outcome} eq 'acknowledged' && $op->{found}{status} ne '4';
			$key->{shared} = 0 if !--$key->{busy};
			$self->count($op);
		});
}

# ---------- two-phase ----------

sub prepare
{
	my ($self) = @_;
	my $epoch = $self->{epoch}{sink} // return $self->init_producer('sink');
	my $key = $self->new_key('sink', 'sink');
	my $op = $self->begin($key, name => 'prepare_batch', epoch => $epoch, expected => ['TW001'],
		end => "\\set gid none\nSELECT tw.prepare_batch('sink', '$key->{batch}') AS gid \\gset\n\\echo #x gid :gid\nPREPARE TRANSACTION :'gid';");

	# what follows is another operation's
	$op->{done} = sub {
		my ($op) = @_;

		push @{ $key->{story} }, story($op);
		$key->{busy}--;
		$key->{unsure} = 1 if $op->{outcome} eq 'unknown';
		if ($op->{outcome} ne 'refused')
		{
			$key->{gid} = $op->{found}{gid};
			$key->{state} = 'maybe';
			$key->{epoch} = $epoch;
			$self->{prepared}{ $key->{op} } = $key if ($key->{gid} // 'none') ne 'none';
		}
		delete $op->{found}{status};
		$self->count($op, 'TW001');
	};
	return $op;
}

sub resolve
{
	my ($self) = @_;
	my ($n) = keys %{ $self->{prepared} };
	my $key = defined $n ? $self->{prepared}{$n} : return undef;
	my $commit = $key->{decided} //= rand() < 0.7 ? 'commit' : 'abort';
	my $sql = $commit eq 'commit' ? "CALL tw.commit_prepared('$key->{gid}')" : "CALL tw.abort_prepared('$key->{gid}', 'no')";

	return {
		name => "${commit}_prepared",
		call => 1,
		begun => sub { $key->{busy}++ },
		steps => ["\\echo #commit\n$sql \\gset\n" . status_line()],
		done => sub {
			my ($op) = @_;
			my $status = $op->{found}{status} // '';

			push @{ $key->{story} }, story($op);
			$key->{busy}--;
			if ($op->{outcome} eq 'acknowledged' && $status =~ /committed$/)
			{
				$self->wrong("$op->{name} $key->{batch}: committed although it was aborted") if $key->{state} eq 'none';
				$key->{state} = 'yes';
				delete $self->{prepared}{$n};
			}
			elsif ($op->{outcome} eq 'acknowledged')
			{
				$self->wrong("$op->{name} $key->{batch}: $status although it was committed") if $key->{state} eq 'yes';
				$key->{state} = 'none' unless $key->{unsure};
				delete $self->{prepared}{$n};
			}
			elsif (($op->{errors}[0] // '') =~ /^TW010/)
			{
				$self->wrong("$op->{name} $key->{batch}: unknown although it was committed") if $key->{state} eq 'yes';
				$self->wrong("$op->{name} $key->{batch}: unknown although it was prepared")
				  if !$key->{unsure} && $key->{state} eq 'maybe' && !$key->{recovering} && $commit eq 'commit';
				delete $self->{prepared}{$n};
			}
			$self->count($op, 'TW010');
		}
	};
}

# A new writer takes over: what was decided is committed, the rest is rolled back
sub recover
{
	my ($self) = @_;
	my $epoch = ($self->{epoch}{sink} // return undef);
	my @known = grep { !$_->{unsure} && $_->{epoch} < $epoch } values %{ $self->{prepared} };
	my @commit = grep { !$_->{busy} && ($_->{decided} //= rand() < 0.7 ? 'commit' : 'abort') eq 'commit' } @known;

	return $self->init_producer('sink') if rand() < 0.3;
	$_->{recovering} = 1 foreach values %{ $self->{prepared} };
	return {
		name => 'recover',
		call => 1,
		steps => ["\\echo #commit\nCALL tw.recover('sink', $epoch, ARRAY[" . join(', ', map { "'$_->{batch}'" } @commit) . "]::text[]) \\gset\n"],
		done => sub {
			my ($op) = @_;

			if ($op->{outcome} eq 'acknowledged')
			{
				foreach my $key (@commit)
				{
					push @{ $key->{story} }, story($op);
					$self->wrong("recover $key->{batch}: committed although it was aborted") if $key->{state} eq 'none';
					$key->{state} = 'yes';
					delete $self->{prepared}{ $key->{op} };
				}
			}
			$self->count($op, 'TW001', 'TW010', '55000');
		}
	};
}

# ---------- what must be there ----------

my %rows = (transfer => 't1', withdraw => 't1', deposit => 't1', chunks => 'p20');

# Compares all keys with what is there, while nothing runs; what is there is known from then on
sub check
{
	my ($self, $query) = @_;
	my ($oldest) = sort { $a <=> $b } $self->{since}, keys %{ $self->{keys} };
	my $set = "SET chaos.since = $oldest;";
	my %in_doubt = map { $_ => 1 } split /\n/, $query->('SELECT gid FROM tw.in_doubt');
	my %found = map { split /\|/, $_, 2 } split /\n/, $query->("$set SELECT op, rows FROM found");
	my %known = map { split /\|/, $_, 2 } split /\n/, $query->("$set SELECT op, batches FROM known");

	$self->wrong("check: $_") foreach split /\n/, $query->("SET chaos.since = $self->{since}; TABLE anomaly; TABLE lane_anomaly");
	foreach my $n (sort { $a <=> $b } keys %{ $self->{keys} })
	{
		my $key = $self->{keys}{$n};
		my $all = $rows{ $key->{kind} } // 'a3 b3';
		my ($rows, $known) = (delete $found{$n} // '', delete $known{$n} // 0);
		my $is = "$key->{kind} $key->{batch} ($key->{state}): found \"$rows\", $known in the ledger " . join(' ', @{ $key->{story} // [] });

		# chunks are batches of their own, and the ledger may have forgotten versions
		my $whole = $rows eq $all && ($known == ($key->{kind} eq 'chunks' ? 4 : 1) || $key->{kind} eq 'version' && $known == 0);
		my $nothing = $rows eq '' && $known == 0;
		my $chunks = $key->{kind} eq 'chunks' && $rows =~ /^p(\d+)$/ && $known * 5 == $1;

		$self->wrong($is) unless $key->{state} eq 'yes' ? $whole : $key->{state} eq 'none' ? $nothing : $whole || $nothing || $chunks;
		$key->{state} = $whole ? 'yes' : $nothing ? 'none' : 'maybe';
		delete @$key{qw(unsure shared)};
		if (defined $key->{gid})
		{
			delete $self->{prepared}{$n} unless $in_doubt{ $key->{gid} };
			$key->{state} = 'maybe' if $in_doubt{ $key->{gid} };
		}
		push @{ $self->{old}{ $key->{kind} } }, $key if $whole && $key->{kind} !~ /sink|version|chunks/;
	}
	$self->wrong("nobody has written operation $_: $found{$_}") foreach keys %found;
	$self->wrong("nobody has claimed operation $_") foreach grep { $_ >= $self->{since} } keys %known;
	@{ $_ } = @{ $_ }[ -50 .. -1 ] foreach grep { @$_ > 50 } values %{ $self->{old} };
	$self->check_sources($query);

	# from here on
	$query->('SET ROLE writer; CALL settle()');
	$self->{keys} = { map { $_ => $self->{prepared}{$_} } keys %{ $self->{prepared} } };
	$self->{live} = [];
	$self->{since} = $self->{next};
}

# Each acknowledged batch has moved its source by five lines, each unknown one perhaps
sub check_sources
{
	my ($self, $query) = @_;
	my %position = map { split /\|/ } split /\n/, $query->(q(SELECT job, "position" FROM tw.offsets WHERE source = 'lines'));

	foreach my $job (sort keys %{ $self->{consumed} })
	{
		my ($acknowledged, $unknown) = map { $_ // 0 } @{ $self->{consumed}{$job} }{qw(acknowledged unknown)};
		my $n = ($position{$job} // 0) / 5;

		$self->wrong("source of $job: $n batches, $acknowledged acknowledged, $unknown unknown")
		  if $n < $acknowledged || $n > $acknowledged + $unknown;
		$self->{consumed}{$job} = { acknowledged => $n };
	}
}

sub total
{
	my ($self, $outcome) = @_;
	my $n = 0;

	$n += $_->{$outcome} // 0 foreach values %{ $self->{outcomes} };
	return $n;
}

sub summary
{
	my ($self) = @_;

	return (join(', ', map { my $o = $_; "$o " . $self->total($o) } qw(acknowledged refused unknown)),
		map { my $name = $_; my $o = $self->{outcomes}{$name};
			"$name: " . join(', ', map { "$_ $o->{$_}" } sort keys %$o) . ' ('
			  . join(', ', map { s/^\Q$name\E: //r . " $self->{answers}{$_}" } grep { /^\Q$name\E: / } sort keys %{ $self->{answers} }) . ')' }
		sort keys %{ $self->{outcomes} });
}

# ---------- choosing ----------

my %weights = (
	atomic => 12, run => 12, begin => 10, two => 6, fenced => 8, epoch => 1, dry => 2, forget => 4, version => 8, prune => 1, consume => 12,
	transfer => 12, withdraw => 16, deposit => 10, chunks => 3, prepare => 5, resolve => 5, recover => 1);
my @weighted = map { ($_) x $weights{$_} } sort keys %weights;

sub next_op
{
	my ($self) = @_;

	return undef if $self->{resting};
	my $kind = pick(@weighted);

	return $kind eq 'dry' ? $self->atomic(1) : $kind eq 'epoch' ? $self->init_producer('fenced') : $self->$kind();
}

1;
