# A prepared batch that nobody resolves: the worker says so in the server's log, when it
# becomes overdue and again each time prepared_timeout has passed, and leaves it as it is.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = new_server('main', 'max_prepared_transactions = 5', 'fsync = off',
	q(shared_preload_libraries = 'transactional_writer'),
	q(transactional_writer.worker_databases = 'postgres'),
	'transactional_writer.worker_interval = 1', 'transactional_writer.prepared_timeout = 3');

# How often the log has a report, once it has n
sub reports
{
	my ($batch, $n) = @_;
	my $found;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$found = () = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~
		  /LOG:\s+batch "$batch" of job "alarm" has been in doubt for \d+ s\n.*DETAIL:\s+Transaction \d+ was prepared as "alarm $batch" and holds back vacuum\./g;
		last if $found >= $n;
		select undef, undef, undef, 0.1;
	}
	return $found;
}

$node->safe_psql('postgres', q(SELECT tw.create_job('alarm')));
# the second is resolved at once: in time on a slow machine, too
$node->safe_psql('postgres', qq(BEGIN; SELECT tw.begin_batch('alarm', '$_'); PREPARE TRANSACTION 'alarm $_';)
	  . ($_ eq 'resolved' ? q(CALL tw.commit_prepared('alarm resolved')) : '')) foreach qw(forgotten resolved);

cmp_ok(reports('forgotten', 1), '>=', 1, 'an overdue batch is reported');
is($node->safe_psql('postgres', 'SELECT batch_id, overdue FROM tw.in_doubt'), 'forgotten|t', 'and is overdue in the view');
cmp_ok(reports('forgotten', 2), '>=', 2, 'and is reported again');
my %times;
$times{ int $_ / 3 }++ foreach PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /"forgotten" of job "alarm" has been in doubt for (\d+) s/g;
is_deeply([ grep { $_ < 1 || $times{$_} > 1 } keys %times ], [], 'not before it is, and once each time that the timeout passes');
is(reports('resolved', 0), 0, 'one that was resolved in time is not');
is($node->safe_psql('postgres', q(CALL tw.commit_prepared('alarm forgotten'))), 'committed', 'it was left as it is');

$node->stop;
done_testing();
