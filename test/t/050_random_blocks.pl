# Random blocks against a model of the language: see test/fuzz/handlers.py.  TW_RANDOM_SEED
# repeats a run, TW_RANDOM_BLOCKS makes it longer.
use strict;
use warnings;

use File::Basename qw(dirname);
use IPC::Run;
use Test::More;
use TransactionalWriter;

plan skip_all => 'there is no python3' if system('python3 -c 1 >/dev/null 2>&1') != 0;

my $node = new_server('main', 'fsync = off');
my $program = dirname(__FILE__) . '/../fuzz/handlers.py';
my $seed = $ENV{TW_RANDOM_SEED} || int(rand(1_000_000_000));
my $blocks = $ENV{TW_RANDOM_BLOCKS} || 500;

local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{PGDATABASE} = 'postgres';
foreach my $how ([], ['wrap'])
{
	my $output;
	my $ok = IPC::Run::run([ 'python3', $program, 'psql', $seed, $blocks, @$how ],
		'<' => \undef, '>' => \$output, '2>&1');

	ok($ok, "$blocks blocks from seed $seed on do what the model does" . (@$how ? ', in a function' : ''))
	  or diag($output);
}

done_testing();
