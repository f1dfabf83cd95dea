# The extension comes and goes: it is not made in a schema that somebody has prepared, is
# dropped and made again under open sessions, and an update from every released version
# ends in what a fresh install makes, with all rows.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use TransactionalWriter;

my $node = new_server('main');
my $share = `pg_config --sharedir`;
chomp $share;
my $name = 'transactional_writer';
my $scripts = "$share/extension";
my $version = $node->safe_psql('postgres', "SELECT default_version FROM pg_available_extensions WHERE name = '$name'");

# ---------- settings ----------

# One that is for preloading servers alone is nothing to complain of elsewhere
$node->append_conf('postgresql.conf', q(transactional_writer.worker_databases = 'a, b'));
$node->reload;
$node->safe_psql('postgres', 'CREATE DATABASE settings');
$node->safe_psql('settings', "CREATE EXTENSION $name");
my ($status, $stdout, $stderr) = $node->psql('settings',
	q(SELECT count(*) FROM tw.in_doubt; SHOW transactional_writer.worker_databases));
is($stderr, '', 'a setting of the worker does no harm where there is none');
is($stdout, "0\na, b", 'and is shown');

# ---------- a prepared schema ----------

$node->safe_psql('postgres', 'CREATE DATABASE prepared; CREATE ROLE mallory LOGIN');
$node->safe_psql('prepared', q(
	GRANT CREATE ON DATABASE prepared TO mallory;
	SET ROLE mallory;
	CREATE SCHEMA tw;
	CREATE FUNCTION tw.pg_has_role(oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
	CREATE TABLE tw.job (job text);));
($status, $stdout, $stderr) = $node->psql('prepared', "CREATE EXTENSION $name");
like($stderr, qr/schema "tw" already exists/, 'a prepared schema is refused');
($status, $stdout, $stderr) = $node->psql('prepared', "CREATE EXTENSION $name SCHEMA public");
like($stderr, qr/schema "tw" already exists/, 'whatever schema is named');
$node->safe_psql('prepared', "DROP SCHEMA tw CASCADE; CREATE EXTENSION $name");
is($node->safe_psql('prepared', q(SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'tw')),
	$node->safe_psql('prepared', 'SELECT current_user'), 'the schema is the extension owner\'s');
is(sqlstate($node, "SET ROLE mallory; ALTER EXTENSION $name SET SCHEMA public", dbname => 'prepared'), '42501', 'and stays where it is');
is(sqlstate($node, 'SET ROLE mallory; DROP SCHEMA tw CASCADE', dbname => 'prepared'), '42501', 'whoever asks');
($status, $stdout, $stderr) = $node->psql('prepared', "ALTER EXTENSION $name SET SCHEMA pg_catalog");
like($stderr, qr/does not support SET SCHEMA/, 'also for its owner');

# ---------- default privileges ----------

$node->safe_psql('postgres', 'CREATE DATABASE given; CREATE ROLE app; CREATE ROLE "An app"');
$node->safe_psql('given', qq(
	ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app, "An app", PUBLIC;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO app;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO app;
	CREATE EXTENSION $name;
	SELECT tw.create_job('given')));
is($node->safe_psql('given', q(
	SELECT count(*) FROM pg_class, aclexplode(relacl)
	WHERE relnamespace = 'tw'::regnamespace AND grantee <> relowner
		AND (grantee <> 0 OR relkind <> 'v' OR privilege_type <> 'SELECT'))), 0,
	'default privileges give nobody rights on the ledger');
is(sqlstate($node, $_->[0], dbname => 'given'), $_->[1], $_->[0]) foreach
	['SET ROLE app; DELETE FROM tw.job', '42501'],
	['SET ROLE app; UPDATE tw.jobs SET epoch = 5', '42501'],
	['SET ROLE app; CREATE TABLE tw.mine ()', '42501'];
is($node->safe_psql('given', 'SET ROLE "An app"; SELECT count(*) FROM tw.jobs'), 0, 'and the views are for all');

# ---------- drop and make again, in one session ----------

is($node->safe_psql('postgres', qq(
	CREATE TABLE t (v int);
	SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (1); END', '{}', 'load', 'first');
	SELECT tw.commit_offset('load', 's', '0', NULL, '1');
	SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (1); END', '{}', 'load', 'first');
	DROP EXTENSION $name;
	SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'tw';
	SELECT count(*) FROM pg_namespace WHERE nspname = 'tw';
	SELECT count(*) FROM pg_language WHERE lanname = 'psm';
	CREATE EXTENSION $name;
	SELECT count(*) FROM tw.jobs;
	SELECT tw.create_job('in the place of the other');
	SELECT tw.offset('load', 's', '0') IS NULL;
	SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (1); END', '{}', 'load', 'first');
	SELECT tw.commit_offset('load', 's', '0', NULL, '1');
	SELECT count(*) FROM t;
	SELECT status FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (1); END', '{}', 'load', 'first');
	SELECT job FROM tw.jobs ORDER BY job)),
	"applied\n\nalready_committed\n0\n0\n0\n0\n\nt\napplied\n\n2\nalready_committed\nin the place of the other\nload",
	'dropped with all its rows, and made again under a session that had used it');
($status, $stdout, $stderr) = $node->psql('postgres', qq(
	CREATE FUNCTION one() RETURNS int LANGUAGE psm AS 'BEGIN RETURN 1; END';
	DROP EXTENSION $name));
like($stderr, qr/other objects depend on it/, 'not while functions of LANGUAGE psm need it');
$node->safe_psql('postgres', "DROP EXTENSION $name CASCADE; CREATE EXTENSION $name");

# ---------- updates ----------

# All that an extension has made, in words
my $description = q(
	WITH member AS (SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
		WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'transactional_writer')
	SELECT pg_describe_object(classid, objid, 0) || ': ' || coalesce(obj_description(objid, classid::regclass::name), 'no comment')
	FROM member
	UNION ALL
	SELECT format('relation %s %s: %s %s %s identity %s as %s', c.oid::regclass, c.relkind, a.amname, c.reloptions, c.relacl,
		c.relreplident, CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END)
	FROM member JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid LEFT JOIN pg_am a ON a.oid = c.relam
	UNION ALL
	SELECT format('column %s %s %s: %s %s %s %s %s', c.oid::regclass, att.attnum, att.attname, format_type(atttypid, atttypmod),
		attnotnull, attcollation::regcollation, attstorage, pg_get_expr(adbin, adrelid))
	FROM member JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid
		JOIN pg_attribute att ON att.attrelid = c.oid AND attnum > 0 LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum
	UNION ALL
	SELECT 'index ' || pg_get_indexdef(indexrelid)
	FROM member JOIN pg_index ON classid = 'pg_class'::regclass AND indrelid = objid
	UNION ALL
	SELECT format('constraint %s on %s: %s', conname, conrelid::regclass, pg_get_constraintdef(k.oid))
	FROM member JOIN pg_constraint k ON classid = 'pg_class'::regclass AND conrelid = objid
	UNION ALL
	SELECT format('%s%s', pg_get_functiondef(p.oid), p.proacl)
	FROM member JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
	UNION ALL
	SELECT format('type column %s %s %s %s', t.oid::regtype, attnum, attname, format_type(atttypid, atttypmod))
	FROM member JOIN pg_type t ON classid = 'pg_type'::regclass AND t.oid = objid
		JOIN pg_attribute ON attrelid = typrelid AND attnum > 0
	UNION ALL
	SELECT format('schema %s %s', nspname, nspacl) FROM pg_namespace WHERE nspname = 'tw'
	UNION ALL
	SELECT format('language %s %s %s', lanname, lanpltrusted, lanacl) FROM pg_language WHERE lanname = 'psm'
	UNION ALL
	SELECT format('dumped %s %s', c::regclass, w) FROM pg_extension, unnest(extconfig, extcondition) AS _ (c, w)
	WHERE extname = 'transactional_writer'
	ORDER BY 1);

my $databases = 0;

# A database with a version of the extension, updated to another if there is one
sub database
{
	my ($from, $to, $in_between) = @_;
	my $db = 'db' . ++$databases;

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, "CREATE EXTENSION $name VERSION '$from'");
	$node->safe_psql($db, $in_between) if $in_between;
	$node->safe_psql($db, "ALTER EXTENSION $name UPDATE TO '$to'") if defined $to;
	return $db;
}

sub described { return $node->safe_psql($_[0], $description); }

# What every release can do, and what it must still know after an update
my $history = q(
	CREATE TABLE t (v int);
	SELECT tw.create_job('load', '1 day');
	SELECT tw.init_producer('load', 'host a');
	SELECT tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (:v); RETURN :v; END', '{"v": 1}', 'load', 'first', 1);
	SELECT tw.begin_batch('load', 'v5', 'digest', 1, 5);
	SELECT tw.commit_offset('load', 's', '0', NULL, '1');
	SELECT tw.begin_batch('load', 'forgotten');
	SELECT tw.forget_batch('load', 'forgotten', 'why'););
my $ask = q(
	SELECT status, result, rows, epoch FROM tw.atomic('BEGIN ATOMIC INSERT INTO t VALUES (:v); RETURN :v; END', '{"v": 1}',
		'load', 'first', 1);
	SELECT status FROM tw.begin_batch('load', 'v5', 'digest', 1, 5);
	SELECT tw.offset('load', 's', '0');
	SELECT tw.init_producer('load', 'host a');
	SELECT job, retention FROM tw.jobs;
	SELECT action, batch_id, reason FROM tw.audit_log;
	SELECT count(*) FROM t);

sub check_update
{
	my ($from, $to) = @_;
	my $updated = database($from, $to, $history);

	is(described($updated), described(database($to)), "$from updated to $to is what a fresh $to is");
	is($node->safe_psql($updated, $ask), "already_committed|1|1|1\nalready_committed\n1\n1\nload|1 day\nforget_batch|forgotten|why\n1",
		"$from updated to $to knows what was done before");
	is(sqlstate($node, q(SELECT tw.begin_batch('load', 'v4', version => 4)), dbname => $updated), 'TW008',
		"$from updated to $to knows the versions");
	is($node->safe_psql($updated, q(SELECT status FROM tw.begin_batch('load', 'new', epoch => 1))), 'started',
		"$from updated to $to runs new batches");
	return;
}

# From every version that has an install script
my @released = sort map { /--([^-]+)\.sql$/ ? $1 : () } grep { !/--.*--/ } glob("$scripts/$name--*.sql");
ok((grep { $_ eq $version } @released), "there is an install script of $version");
check_update($_, $version) foreach grep { $_ ne $version } @released;

# So that this is a test before there is a second version: a next one, right and wrong

SKIP:
{
	skip 'the extension directory cannot be written to', 7 unless -w $scripts;

	my $delta = qq(ALTER TABLE tw.audit ADD COLUMN next_column int;
		CREATE VIEW tw.next_view WITH (security_barrier) AS SELECT 1 AS one;
		COMMENT ON VIEW tw.next_view IS 'a view';\n);
	my $install = slurp_file("$scripts/$name--$version.sql");
	my %made = (
		"$name--${version}next.sql" => $install . $delta,
		"$name--$version--${version}next.sql" => $delta,
		"$name--${version}forgetful.sql" => $install . $delta,
		"$name--$version--${version}forgetful.sql" => $delta =~ s/COMMENT.*//r);

	append_to_file("$scripts/$_", $made{$_}) foreach sort keys %made;

	# Another number of columns is what a library refuses that does not know them
	my $updated = database($version, "${version}next", $history);
	is(described($updated), described(database("${version}next")), 'an update that does all is the same as an install');
	isnt(described(database($version, "${version}forgetful")), described(database("${version}forgetful")),
		'one that forgets a comment is not');
	isnt(described(database($version)), described(database("${version}next")), 'nor are two versions');
	is($node->safe_psql($updated, $ask), "already_committed|1|1|1\nalready_committed\n1\n1\nload|1 day\nforget_batch|forgotten|why\n1",
		'and all is known after it');
	is(sqlstate($node, q(SELECT tw.forget_batch('load', 'first', 'why')), dbname => $updated), '55000',
		'a table with other columns than the library knows is refused, not misread');
	is($node->safe_psql($updated, q(SELECT count(*) FROM tw.ledger)), '2', 'and nothing was done');
	($status, $stdout, $stderr) = $node->psql('prepared', "ALTER EXTENSION $name UPDATE TO '0.0.1'");
	like($stderr, qr/has no update path/, 'there is no way back');
	unlink map { "$scripts/$_" } keys %made;
}

done_testing();
