# Each query of doc/postgres_exporter.yml runs as a member of pg_monitor who owns no job,
# returns just the columns that its metrics name, numbers where it says so, and tells of
# what there is; and the alerts in doc/operations.md ask for metrics that exist.
use strict;
use warnings;

use File::Basename;
use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $top = dirname(__FILE__) . '/../..';
my $yaml = slurp_file("$top/doc/postgres_exporter.yml");
my $node = new_server('main', 'max_prepared_transactions = 5');

# Of every kind something
$node->safe_psql('postgres', q(
	CREATE ROLE loader;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	GRANT CREATE ON SCHEMA public TO loader;
	GRANT CREATE ON DATABASE postgres TO loader;
	SET ROLE loader;
	CREATE TABLE t (v int PRIMARY KEY);
	CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (1), (2); END', job => 'load', batch_id => 'one');
	SELECT tw.commit_offset('load', 'source', '0', NULL, '41');
	SELECT tw.open_batch('load', 'staged', '[{"table": "t", "mode": "append"}]');
	BEGIN;
	SELECT staging AS s FROM tw.attach_task('load', 'staged', 'task') \gset
	INSERT INTO :s VALUES (10), (11);
	SELECT tw.commit_task();
	COMMIT;
	BEGIN;
	SELECT tw.begin_batch('load', 'in doubt');
	PREPARE TRANSACTION 'in doubt';));
$node->psql('postgres', q(SET ROLE loader; CALL tw.run('BEGIN ATOMIC INSERT INTO t VALUES (1); END', job => 'load', batch_id => 'two')));
$node->psql('postgres', q(SET ROLE loader; CALL tw.run('BEGIN ATOMIC SIGNAL SQLSTATE ''40001''; END', job => 'load', batch_id => 'three', max_attempts => 2)));

my %wanted = (
	tw_job => 'load|t|1|2|0|t',
	tw_failures => "load|23505|1|1\nload|40001|2|2",
	tw_conflicts => 'load|||40001|2',
	tw_in_doubt => 'load|1|0|0|t',
	tw_staged => 'load|1|1|2|t|t|0',
	tw_offset => 'load|source|0|t|41',
	tw_waiting => '0|t',
	tw_table => undef);
my %metrics;

foreach my $block (split(/^(?=\w+:$)/m, $yaml))
{
	my ($name) = $block =~ /^(\w+):$/m or next;
	my ($query) = $block =~ /^  query: \|\n((?:    .*\n)+)/m or fail("$name has a query");
	my @metrics = $block =~ /^    - (\w+): \{ usage: "(?:LABEL|GAUGE)", description: ".+" \}$/mg;
	my %label = map { $_ => 1 } $block =~ /^    - (\w+): \{ usage: "LABEL"/mg;
	my @all = $block =~ /^    - /mg;

	next if $name eq '#';
	is(scalar @metrics, scalar @all, "$name: metrics are well-formed");
	is($node->safe_psql('postgres', "SET ROLE watcher; CREATE TEMPORARY VIEW q AS $query;
		SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'q'::regclass AND attnum > 0"),
		"@metrics", "$name: the metrics are the columns");
	is($node->safe_psql('postgres', "SET ROLE watcher; CREATE TEMPORARY VIEW q AS $query;
		SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
		WHERE attrelid = 'q'::regclass AND attnum > 0 AND typcategory = 'N'"),
		join(' ', grep { !$label{$_} } @metrics), "$name: and those that are no labels are numbers");
	$metrics{"${name}_$_"} = 1 foreach grep { !$label{$_} } @metrics;

	# Times and sizes only have to be there
	my $columns = join(', ', map { /(?:seconds|bytes)$/ ? qq((CASE WHEN "$_" > 0 OR "$_" = 0 AND '$name' = 'tw_waiting' THEN 't' END)) : qq("$_") } @metrics);
	my $rows = $node->safe_psql('postgres', "SET ROLE watcher; SELECT $columns FROM ($query) AS q ORDER BY 1, 2");

	ok(exists $wanted{$name}, "$name is known to this test");
	is($rows, $wanted{$name}, "$name tells of what there is") if defined $wanted{$name};
	if ($name eq 'tw_table')
	{
		like($rows, qr/^batch\|t\|/m, 'tw_table has the ledger');
		is(scalar(() = $rows =~ /^/mg), $node->safe_psql('postgres',
			q(SELECT count(*) FROM pg_class WHERE relnamespace = 'tw'::regnamespace AND relkind = 'r')), '... and all other tables');
	}
}
is(join(' ', sort keys %wanted), join(' ', sort map { /^(tw_\w+):/ ? $1 : () } split(/\n/, $yaml)), 'no query is left out');

my ($alerts) = slurp_file("$top/doc/operations.md") =~ /^```yaml\n(groups:\n.*?)^```$/ms;
my @used = ($alerts // '') =~ /\b(tw_\w+)/g;

cmp_ok(scalar @used, '>', 3, 'doc/operations.md has alerts');
ok($metrics{$_}, "an alert's metric $_ exists") foreach @used;

$node->safe_psql('postgres', q(ROLLBACK PREPARED 'in doubt'));
done_testing();
