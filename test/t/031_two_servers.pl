# One batch over two servers: prepared on both, then committed on both.  The coordinator is
# killed between any two steps and in the middle of them, recovery as well, and servers
# crash in between.  Recovery always ends with both or neither, and leaves nothing in doubt.
#
# TW_KILL_ROUNDS is how often the coordinator of the random part is killed.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use TransactionalWriter;

my $rounds = $ENV{TW_KILL_ROUNDS} || 30;
my $dir = PostgreSQL::Test::Utils::tempdir();
my @servers = map { new_server($_, 'max_prepared_transactions = 10', 'fsync = off', 'log_min_messages = log') } qw(bank ledger);

$_->safe_psql('postgres', q(CREATE TABLE data (batch text); SELECT tw.create_job('transfer'))) foreach @servers;

# ---------- the coordinator, step by step ----------

# What it knows; a new coordinator knows nothing but the batch that it was asked for
my (@epochs, @gids);

sub work
{
	my ($side, $batch) = @_;

	return qq(
		BEGIN;
		SELECT status FROM tw.begin_batch('transfer', '$batch', epoch => $epochs[$side]) \\gset
		INSERT INTO data VALUES ('$batch');
		SELECT tw.prepare_batch('transfer', '$batch') AS gid \\gset
		PREPARE TRANSACTION :'gid';
		\\echo :gid);
}

sub init { $epochs[ $_[0] ] = $servers[ $_[0] ]->safe_psql('postgres', q(SELECT tw.init_producer('transfer'))) }
sub prepare { $gids[ $_[0] ] = $servers[ $_[0] ]->safe_psql('postgres', work(@_)) }
sub commit { $servers[ $_[0] ]->safe_psql('postgres', "CALL tw.commit_prepared('$gids[$_[0]]')") }

my @steps = (
	sub { init(0) }, sub { init(1) },
	sub { prepare(0, @_) }, sub { prepare(1, @_) },
	sub { commit(0) }, sub { commit(1) });

# ---------- recovery, step by step ----------

# Older coordinators are shut out first: from then on nothing new can be prepared.  Then
# the batch is committed where any server has it in its ledger, or all have it prepared.
sub recovery
{
	my ($batch, $stop) = @_;
	my ($done, $doubt, $ledger) = (0, 0, 0);

	foreach my $side (0 .. $#servers)
	{
		return if $done++ == $stop;
		init($side);
	}
	foreach my $server (@servers)
	{
		return if $done++ == $stop;
		# in this order: what is no longer in doubt is in the ledger, or gone
		$doubt += $server->safe_psql('postgres', "SELECT count(*) FROM tw.in_doubt WHERE job = 'transfer' AND batch_id = '$batch'");
		$ledger += $server->safe_psql('postgres', "SELECT count(*) FROM tw.ledger WHERE job = 'transfer' AND batch_id = '$batch'");
	}
	my $names = $ledger > 0 || $doubt == @servers ? "ARRAY['$batch']" : q('{}');
	foreach my $side (0 .. $#servers)
	{
		return if $done++ == $stop;
		$servers[$side]->safe_psql('postgres', "CALL tw.recover('transfer', $epochs[$side], $names)");
	}
	return $names ne q('{}');
}

# '' when the batch is on both servers or on none, nothing is in doubt and the ledgers agree
sub verdict
{
	my ($batch, $there) = @_;
	my $state = join ' ', map {
		$_->safe_psql('postgres', qq(SELECT (SELECT count(*) FROM data WHERE batch = '$batch'),
			(SELECT count(*) FROM tw.ledger WHERE batch_id = '$batch'), (SELECT count(*) FROM pg_prepared_xacts)))
	} @servers;

	return $state eq ($there ? '1|1|0 1|1|0' : '0|0|0 0|0|0') ? '' : "$batch: $state; ";
}

sub crash
{
	foreach my $server (@_)
	{
		$server->stop('immediate');
		$server->start;
	}
}

my $batch = 0;
foreach my $last (0 .. @steps)
{
	my $wrong = '';

	foreach my $stop (0 .. 6)
	{
		$batch++;
		$steps[$_]->($batch) foreach 0 .. $last - 1;
		crash($servers[ $stop % 2 ]) if $stop < 2;
		recovery($batch, $stop);
		crash($servers[ $stop % 2 ]) if $stop == 5;
		my $there = recovery($batch, -1);

		$wrong .= "commits $there at step $last; " if !!$there ne !!($last >= 4);
		$wrong .= verdict($batch, $there);
		next if $there;

		# the same batch again, to its end
		foreach my $step (@steps) { $step->($batch); }
		$wrong .= verdict($batch, 1);
	}
	is($wrong, '', "killed after $last steps, and recovery after any number of its own: both or neither");
}

# ---------- a coordinator that was thought dead ----------

# It has prepared on one side, and wants to go on after recovery
$batch++;
init($_) foreach 0, 1;
prepare(0, $batch);
my @old = @epochs;
my @old_gids = @gids;
recovery($batch, -1);
@epochs = @old;
is(sqlstate($servers[1], work(1, $batch)), 'TW001', 'a coordinator that was replaced cannot prepare any more');
is(sqlstate($servers[0], "CALL tw.commit_prepared('$old_gids[0]')"), 'TW010', 'nor commit what was rolled back');
is(sqlstate($servers[0], "CALL tw.recover('transfer', $old[0])"), 'TW001', 'nor recover');
is(verdict($batch, 0), '', 'and has changed nothing');

# ---------- at random ----------

my @at = map { "'" . $_->connstr('postgres') . "'" } @servers;
my $wrong = '';
my %ends;
# the last one is left alone
foreach my $round (1 .. $rounds + 1)
{
	$batch++ if !defined $ends{last} || $ends{last} == 1;
	my $psql = 'psql -XqAt -v ON_ERROR_STOP=1 -d';
	my $script = "set -e\n";

	foreach my $side (0, 1)
	{
		PostgreSQL::Test::Utils::append_to_file("$dir/work$side.$round", work($side, $batch) =~ s/ => \d+/ => :epoch/r);
		$script .= qq(epoch$side=\$($psql $at[$side] -c "SELECT tw.init_producer('transfer')")\n);
	}
	$script .= qq(gid$_=\$($psql $at[$_] -v epoch=\$epoch$_ -f $dir/work$_.$round)\n) foreach 0, 1;
	$script .= qq($psql $at[$_] -c "CALL tw.commit_prepared('\$gid$_')"\n) foreach 0, 1;

	# a process group: the shell and the client that it waits for die together
	my $pid = fork // die;
	if ($pid == 0)
	{
		setpgrp;
		open STDOUT, '>', '/dev/null';
		open STDERR, '>', '/dev/null';
		exec 'sh', '-c', $script;
	}
	if ($round <= $rounds)
	{
		usleep(rand 300_000);
		kill 'KILL', -$pid;
	}
	waitpid $pid, 0;
	$wrong .= "the last coordinator ended with $?; " if $round > $rounds && $?;
	crash($servers[ int rand 2 ]) if rand() < 0.15;

	recovery($batch, int rand 7) if rand() < 0.5;
	my $there = recovery($batch, -1) ? 1 : 0;

	$ends{ $there ? 'both' : 'neither' }++;
	$ends{last} = $there;
	$wrong .= verdict($batch, $there);
	$wrong .= 'the last coordinator has not committed; ' if $round > $rounds && !$there;
}
note join ', ', map { "$_: " . ($ends{$_} // 0) } qw(both neither);
is($wrong, '', "killed $rounds times at random: both or neither, nothing in doubt");
is($servers[0]->safe_psql('postgres', 'SELECT batch_id FROM tw.ledger ORDER BY 1'),
	$servers[1]->safe_psql('postgres', 'SELECT batch_id FROM tw.ledger ORDER BY 1'), 'the two ledgers say the same');

$_->stop foreach @servers;
done_testing();
