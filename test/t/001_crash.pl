# A batch that dies with its session or its server leaves nothing, one that was
# acknowledged leaves everything, and a client that does not know which asks again: the
# batch is then there exactly once.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use TransactionalWriter qw(:DEFAULT background_until);

# A commit takes 20 ms, so that there is a time between its start and its end to die in
my $node = new_server('main', 'commit_delay = 20000', 'commit_siblings = 0');

$node->safe_psql('postgres', 'CREATE TABLE a (batch text); CREATE TABLE b (batch text)');

my $block = 'BEGIN ATOMIC INSERT INTO a VALUES (:batch); INSERT INTO b VALUES (:batch); END';
my $slow = 'BEGIN ATOMIC INSERT INTO a VALUES (:batch); SELECT pg_sleep(60); INSERT INTO b VALUES (:batch); END';

# The statement that runs a batch, the same at every try
sub atomic
{
	my ($batch, $text) = @_;

	$text //= $block;
	return qq(SELECT status FROM tw.atomic('$text', '{"batch": "$batch"}', 'crash', '$batch'));
}

# How often a batch is in both tables and in the ledger
sub found
{
	my ($batch) = @_;

	return $node->safe_psql('postgres', qq(
		SELECT (SELECT count(*) FROM a WHERE batch = '$batch'), (SELECT count(*) FROM b WHERE batch = '$batch'),
			(SELECT count(*) FROM tw.ledger WHERE batch_id = '$batch')));
}

# Killed in the middle

foreach my $how ([ 'tw.atomic', atomic('killed 1', $slow), 'killed 1' ],
	[ 'tw.run', qq(CALL tw.run('$slow', '{"batch": "killed 2"}', 'crash', 'killed 2')), 'killed 2' ])
{
	my ($what, $sql, $batch) = @$how;
	my $session = background($node, $sql);

	kill_backend($node, in_sleep($node));
	$session->finish;
	is(found($batch), '0|0|0', "$what: a killed session leaves neither rows nor ledger");
	is($node->safe_psql('postgres', atomic($batch)), 'applied', "$what: the batch can run afterwards");
	is(found($batch), '1|1|1', "$what: and is there once");
}

my $session = background($node, atomic('immediate', $slow));
in_sleep($node);
$node->stop('immediate');
$session->finish;
$node->start;
is(found('immediate'), '0|0|0', 'an immediate shutdown leaves neither rows nor ledger');

# Acknowledged

is($node->safe_psql('postgres', atomic('acknowledged')), 'applied', 'a batch commits');
$node->stop('immediate');
$node->start;
is(found('acknowledged'), '1|1|1', 'an acknowledged batch survives a crash, rows and ledger');
is($node->safe_psql('postgres', atomic('acknowledged')), 'already_committed', 'and its replay knows it');
is(found('acknowledged'), '1|1|1', 'and changes nothing');

# The answer is lost

# By turns the client dies at a random time, the session is ended by the server at a random time,
# surely before its commit (all of it is one transaction), and surely behind it
my %answers;
my @wrong;

foreach my $i (1 .. 40)
{
	my $batch = "lost $i";
	my $when = (qw(client server before behind))[ $i % 4 ];

	$session = background_until($node, "SET application_name = 'lost'; " . atomic($batch), $when, 30_000);
	if ($when eq 'client')
	{
		kill_client($session);
	}
	elsif ($when ne 'behind')
	{
		$node->safe_psql('postgres',
			q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lost'));
		$session->finish;
	}
	my $answer = $node->safe_psql('postgres', atomic($batch));

	$answers{$answer}++;
	push @wrong, "$batch: $answer, " . found($batch) if found($batch) ne '1|1|1';
	push @wrong, "$batch, $when the commit: $answer" if $when eq 'before' && $answer ne 'applied' || $when eq 'behind' && $answer ne 'already_committed';
}
note join ', ', map { "$_: $answers{$_}" } sort keys %answers;
is_deeply([ grep { !/^(applied|already_committed)$/ } keys %answers ],
	[], 'asking again after a lost answer is answered');
is_deeply(\@wrong, [], 'and the batch is there exactly once');

# The server crashes at the commit

@wrong = ();
foreach my $i (1 .. 5)
{
	my $batch = "crashed $i";

	$session = background($node, atomic($batch));
	usleep(20_000 + rand 40_000);
	$node->stop('immediate');
	$session->finish;
	$node->start;

	my $before = found($batch);
	my $answer = $node->safe_psql('postgres', atomic($batch));
	my $expected = $before eq '1|1|1' ? 'already_committed' : $before eq '0|0|0' ? 'applied' : 'never';

	push @wrong, "$batch: $before, $answer" if $answer ne $expected || found($batch) ne '1|1|1';
}
is_deeply(\@wrong, [], 'a crash at the commit: all or nothing, and asking again makes it once');

done_testing();
