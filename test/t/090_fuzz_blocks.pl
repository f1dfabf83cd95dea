# Random programs in the block language do what a model of it says, also when they are
# cancelled, terminated and run out of time.  test/fuzz/blocks runs longer on demand.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $seconds = $ENV{TW_FUZZ_SECONDS} || 8;
my $node = new_server('main', 'fsync = off', 'log_min_messages = warning');
my @fuzz = ("$FindBin::Bin/../fuzz/blocks", '--ddl', '--seconds', $seconds, '--log', $node->logfile);

$ENV{PGDATABASE} = 'postgres';
$node->command_like(\@fuzz, qr/all as expected/, 'programs do what the model says');
$node->command_like([ @fuzz, '--chaos' ], qr/all as expected/,
	'interrupted ones leave all or nothing, and the server is well');

# an error that has passed through several blocks still knows where it was raised
my ($status, $stdout, $stderr) = $node->psql('postgres', <<'SQL');
\set VERBOSITY verbose
SELECT tw.atomic($$BEGIN
  DECLARE EXIT HANDLER FOR SQLSTATE 'Z0001' BEGIN END;
  BEGIN ATOMIC BEGIN ATOMIC BEGIN ATOMIC SIGNAL SQLSTATE 'Z0002'; END; END; END;
END$$);
SQL
like($stderr, qr/^.*LOCATION:  \w+, condition\.c:\d+$/m, 'an error keeps its place in the source');

$node->stop;
done_testing();
