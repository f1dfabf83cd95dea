# Runs pgTAP scripts or TAP programs as prove does and ends with one line more:
#
#	counts: PASSED FAILED SUMMARY
#
# so that test/run can add up every tier's tests honestly.  A file that breaks off, exits
# with an error or runs no test counts as a failed test.  TAP programs, each with servers
# of its own and most of its time asleep, run TW_JOBS (2) at a time.
use strict;
use warnings;
use TAP::Harness;

my $kind = shift;
my %with = (verbosity => 0, timer => 1, merge => 0);

if ($kind eq 'pgtap')
{
	require TAP::Parser::SourceHandler::pgTAP;
	$with{timer} = 0;
	$with{sources} = { pgTAP => { psql => $ENV{TW_PSQL}, suffix => '.sql' } };
}
else
{
	$with{jobs} = $ENV{TW_JOBS} || 2;
}
$with{show_count} = 0;

my $aggregate = TAP::Harness->new(\%with)->runtests(@ARGV);
my ($passed, $failed) = (scalar $aggregate->passed, scalar $aggregate->failed);

foreach my $file (@ARGV)
{
	my ($parser) = $aggregate->parsers($file);

	next if !$parser || $parser->skip_all || $parser->failed;
	next if !$parser->has_problems && $parser->tests_run;
	$failed++;
	# PostgreSQL's modules send what a program dies of to its log
	my ($name) = $file =~ m{([^/]+)\.pl$} or next;
	open my $log, '<', ($ENV{TESTLOGDIR} // '') . "/regress_log_$name" or next;
	my @lines = <$log>;
	print "== the end of the log of $file\n", @lines > 25 ? @lines[-25 .. -1] : @lines;
}
my $skipped = scalar $aggregate->skipped + grep { $_->skip_all } $aggregate->parsers(@ARGV);
printf "counts: %d %d Files=%d, Tests=%d%s, Result: %s\n", $passed, $failed, scalar @ARGV,
  $aggregate->total, $skipped ? ", Skipped=$skipped" : '', $failed ? 'FAIL' : 'PASS';
exit($failed ? 1 : 0);
