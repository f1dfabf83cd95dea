# Rows that a block writes on another server, behind postgres_fdw, need no transaction id
# here.  A handler undoes what failed, and nothing that came before it.
use strict;
use warnings;

use Test::More;
use TransactionalWriter;

my $node = new_server('main');
my $there = $node->host;
my $port = $node->port;

$node->safe_psql('postgres', qq(
CREATE EXTENSION postgres_fdw;
CREATE TABLE near (a int);
CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$there', port '$port', dbname 'postgres');
CREATE USER MAPPING FOR CURRENT_USER SERVER far;
CREATE FOREIGN TABLE far (a int) SERVER far OPTIONS (table_name 'near');));

# what a block does before a handler takes an error, how many rows stay, and what is there before
my @cases = (
	[ 'INSERT in the block of the handler', 'BEGIN HANDLER INSERT INTO far VALUES (1); SET n = 1 / 0; END;', 1 ],
	[ '... of which the last fails', 'BEGIN HANDLER INSERT INTO far VALUES (1); INSERT INTO far VALUES (2 / (n - 1)); INSERT INTO far VALUES (1 / n); END;', 2 ],
	[ 'INSERT between two blocks', 'BEGIN HANDLER SET n = 2; END; INSERT INTO far VALUES (1); BEGIN HANDLER SET n = 1 / 0; END;', 1 ],
	[ 'SET from an INSERT between two blocks', 'BEGIN HANDLER SET n = 2; END; SET (n) = (INSERT INTO far VALUES (1) RETURNING a); BEGIN HANDLER SET n = 1 / 0; END;', 1 ],
	[ 'a query with an INSERT in it', 'BEGIN HANDLER SET (n) = (WITH w AS (INSERT INTO far VALUES (1) RETURNING a) SELECT a FROM w); SET n = 1 / 0; END;', 1 ],
	[ 'a cursor over an INSERT', 'BEGIN HANDLER FOR r AS INSERT INTO far VALUES (1), (2) RETURNING a DO SET n = n / 0; END FOR; SET n = 1 / 0; END;', 2 ],
	[ 'EXECUTE IMMEDIATE', q(BEGIN HANDLER EXECUTE IMMEDIATE 'INSERT INTO far VALUES (1)'; SET n = 1 / 0; END;), 1 ],
	[ 'an atomic block that is undone', 'BEGIN HANDLER INSERT INTO far VALUES (1); BEGIN ATOMIC INSERT INTO far VALUES (2); SET n = 1 / 0; END; END;', 1 ],
	[ 'an UPDATE and a DELETE', 'BEGIN HANDLER UPDATE far SET a = 3 WHERE a = 1; DELETE FROM far WHERE a = 2; SET n = 1 / 0; END;', 1,
		'INSERT INTO near VALUES (1), (2)' ],
	[ 'a loop', 'WHILE n < 4 DO BEGIN HANDLER INSERT INTO far VALUES (n); SET n = n / (n % 2); END; SET n = n + 1; END WHILE;', 4 ]);

foreach my $case (@cases)
{
	my ($name, $statements, $rows, $before) = @$case;
	my $block = 'BEGIN ATOMIC DECLARE n int DEFAULT 0; DECLARE caught int DEFAULT 0; ' .
		$statements =~ s/HANDLER/DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET caught = caught + 1;/gr . ' RETURN caught; END';

	$block = $block =~ s/'/''/gr;
	$node->safe_psql('postgres', $before) if $before;
	isnt($node->safe_psql('postgres', "SELECT result FROM tw.atomic('$block')"), '0', "$name: an error was caught");
	is($node->safe_psql('postgres', 'WITH d AS (DELETE FROM near RETURNING a) SELECT count(*) FROM d'), $rows, '... and nothing else undone');
}

$node->stop;
done_testing();
