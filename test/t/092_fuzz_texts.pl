# The server refuses the texts of test/fuzz/texts, each read as its first line says (see
# test/fuzz/parser.c): by an error that a user may get, and nothing of them has run.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = new_server('main', 'fsync = off');
my @files = sort glob("$FindBin::Bin/../fuzz/texts/*");
my $tag = '$the_text$';

# What the parser is given, as statements
my %statements = (
	block => sub { "SELECT tw.atomic($tag$_[0]$tag)" },
	function => sub { "CREATE FUNCTION f(a int, text, OUT params text) LANGUAGE psm AS $tag$_[0]$tag; SELECT f(1, 'x')" },
	dynamic => sub { "SELECT tw.atomic(\$block\$BEGIN EXECUTE IMMEDIATE :text USING 1, 2; END\$block\$, jsonb_build_object('text', $tag$_[0]$tag))" },
	escapes => sub { "SET standard_conforming_strings = off; SELECT tw.atomic($tag$_[0]$tag)" });

cmp_ok(scalar @files, '>', 0, 'there are texts');
foreach my $file (@files)
{
	my $text = slurp_file($file);
	my ($name) = $file =~ m{([^/]+)$};
	my $kind = $text =~ s/^--(function|dynamic|escapes)\n// ? $1 : 'block';
	my $state = sqlstate($node, $statements{$kind}->($text));

	like($state, qr/^(?!XX|57)\w{5}$/, "$name is refused");
}
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_proc WHERE proname = 'f')), '0', 'no function was made');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP/, 'and the server is well');

$node->stop;
done_testing();
