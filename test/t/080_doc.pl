# README.md and doc/ show only what was really printed: their examples are run, and what
# comes out is what they say (see Documentation.pm).  `test/doc --update` puts it right.
# Their links lead somewhere, the README has a link to each page, the reference names all
# there is, and the map of the source all files.
use strict;
use warnings;

use Documentation qw(run_page normal with_source_map);
use File::Basename;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $top = dirname(__FILE__) . '/../..';
my @pages = grep { -e } "$top/README.md", sort glob("$top/doc/*.md");

# The JDBC driver knows no Unix sockets
my $node = new_server('main', 'max_prepared_transactions = 20', "listen_addresses = '127.0.0.1'");

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
foreach my $page (@pages)
{
	my $name = $page =~ s/^\Q$top\E\///r;
	my $text = slurp_file($page);
	my $ended = eval {
		run_page($name, $text,
			sub {
				my ($line, $shown, $printed, $varies, $missing) = @_;

				if (defined $missing)
				{
				  SKIP: { skip "$name, line $line: $missing is not installed", 1; }
				}
				elsif (defined $shown)
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

# Links: a page's headings are anchors as GitHub makes them

sub anchors
{
	my %seen;
	my $text = slurp_file($_[0]) =~ s/^```.*?^```$//msgr;

	return map { my $a = lc; $a =~ s/[^\w\- ]//g; $a =~ tr/ /-/; $seen{$a}++ ? "$a-" . ($seen{$a} - 1) : $a } $text =~ /^#+ +(.*?) *$/mg;
}

foreach my $page (@pages)
{
	my $text = slurp_file($page) =~ s/^```.*?^```$//msgr;

	like($text, qr/\A# \S/, basename($page) . ' begins with its title');
	foreach my $link ($text =~ /\]\(([^)]+)\)/g)
	{
		my ($path, $anchor) = split(/#/, $link, 2);

		next if $link =~ /^\w+:/;
		my $target = $path eq '' ? $page : dirname($page) . "/$path";
		my $good = -e $target && (!defined $anchor || grep { $_ eq $anchor } anchors($target));

		ok($good, basename($page) . " links to $link") or diag('no such page or heading');
	}
}

foreach my $page (map { basename($_) } glob("$top/doc/*.md"))
{
	like(slurp_file("$top/README.md"), qr/\]\(doc\/\Q$page\E\)/, "README.md links to doc/$page");
}

# The reference

my $reference = slurp_file("$top/doc/reference.md");

foreach my $name (split(/\n/, $node->safe_psql('postgres', q{
	LOAD 'transactional_writer';
	SELECT DISTINCT 'tw.' || proname || '(' FROM pg_proc
	WHERE pronamespace = 'tw'::regnamespace AND proname NOT LIKE 'psm\_%' AND prorettype <> 'trigger'::regtype
	UNION SELECT 'tw.' || relname FROM pg_class WHERE relnamespace = 'tw'::regnamespace AND relkind = 'v'
	UNION SELECT '| `' || split_part(name, '.', 2) || '` |' FROM pg_settings WHERE name LIKE 'transactional_writer.%'
	ORDER BY 1})))
{
	ok(index($reference, $name) >= 0, "doc/reference.md has $name");
}

# The map of the source

my $map = slurp_file("$top/doc/how-it-works.md");

is(with_source_map($map, $top), $map, 'doc/how-it-works.md says of each file of the source what its head says');
is_deeply([ sort map { s/^\Q$top\E\///r } glob("$top/src/*/") ], [ sort $map =~ /^### .*: `(src\/\w+\/)`$/mg ], '... in all directories');

# One version everywhere

my ($version) = slurp_file("$top/transactional_writer.control") =~ /^default_version = '(.*)'$/m;
my @elsewhere = slurp_file("$top/META.json") =~ /^\t.*?"version": "([\d.]+)",?$/mg;

is_deeply(\@elsewhere, [ $version, $version ], 'META.json has the version of the control file');
like(slurp_file("$top/CHANGELOG.md"), qr/^## \Q$version\E /m, 'CHANGELOG.md has it too');
like(slurp_file("$top/test/package/debian/changelog"), qr/^transactional-writer \(\Q$version\E-\d+\) /, 'and Debian\'s changelog');

done_testing();
