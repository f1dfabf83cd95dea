# Random calls of all functions and procedures are done or refused as they should be, and leave
# nothing behind; see test/fuzz/calls, which runs longer on demand.  TW_FUZZ_SEED repeats a run,
# TW_FUZZ_CALLS makes it longer.
use strict;
use warnings;

use FindBin;
use Test::More;
use TransactionalWriter;

my $seed = $ENV{TW_FUZZ_SEED} || 1 + int rand 1_000_000_000;
my $calls = $ENV{TW_FUZZ_CALLS} || 600;
my $node = new_server('main', 'fsync = off', 'log_min_messages = warning', 'max_prepared_transactions = 20');
my @fuzz = ("$FindBin::Bin/../fuzz/calls", '--seed', $seed, '--log', $node->logfile);

$ENV{PGDATABASE} = 'postgres';
$node->command_like([ @fuzz, '--calls', $calls ], qr/all refused or done as they should/,
	"$calls calls from seed $seed");

# bytes that are no characters
$node->safe_psql('postgres', q(CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0));
$node->safe_psql('bytes', 'CREATE EXTENSION transactional_writer');
$ENV{PGDATABASE} = 'bytes';
$node->command_like([ @fuzz, '--calls', int $calls / 2 ], qr/all refused or done as they should/,
	"calls from seed $seed in a database without an encoding");

# It sees what it is there to see
local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
my %faults = (
	'an internal error' => [ q(RAISE EXCEPTION USING errcode = 'XX000'), qr/internal error XX000/ ],
	'a lock that is left' => [ q(PERFORM pg_advisory_lock(1)), qr/the session is not as it was/ ],
	'a setting that is left' => [ q(PERFORM set_config('work_mem', '1MB', false)), qr/the session is not as it was/ ],
	'the loss of a session' => [ q(PERFORM pg_terminate_backend(pg_backend_pid())), qr/the session was lost/ ]);
for my $fault (sort keys %faults)
{
	my ($statement, $expected) = @{ $faults{$fault} };
	$node->safe_psql('bytes', "DROP FUNCTION IF EXISTS tw.fault(); CREATE FUNCTION tw.fault() RETURNS void LANGUAGE plpgsql AS \$\$BEGIN $statement; END\$\$");
	my ($stdout, $stderr);
	my $ok = IPC::Run::run([ @fuzz, '--calls', 60, '--only', 'fault' ], '>' => \$stdout, '2>' => \$stderr);
	ok(!$ok && $stdout =~ $expected, "notices $fault") or diag($stdout, $stderr);
}

$node->stop;
done_testing();
