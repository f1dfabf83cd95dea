# README.md and doc/ show only what was really printed: their examples are run, and what
# comes out is what they say (see Documentation.pm).  `test/doc --update` puts it right.
use strict;
use warnings;

use Documentation qw(run_page normal);
use File::Basename;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $top = dirname(__FILE__) . '/../..';
my @pages = grep { -e } "$top/README.md", sort glob("$top/doc/*.md");
my $node = new_server('main', 'max_prepared_transactions = 20');

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
foreach my $page (@pages)
{
	my $name = $page =~ s/^\Q$top\E\///r;
	my $text = slurp_file($page);
	my $ended = eval {
		run_page($name, $text,
			sub {
				my ($line, $shown, $printed, $varies) = @_;

				if (defined $shown)
				{
					is(normal($printed, $varies), normal($shown, $varies), "$name, line $line");
				}
				else
				{
					fail("$name, line $line, runs");
					diag($printed);
				}
			});
		1;
	};

	ok($ended, "$name ends") or diag($@);
}

done_testing();
