# The server's table of locks is full in the middle of a block: a clear error, everything
# undone, and the session goes on; a handler may go on in the block.
use strict;
use warnings;

use Test::More;
use TransactionalWriter;

my $node = new_server('main', 'fsync = off', 'max_connections = 5', 'max_locks_per_transaction = 10',
	'max_worker_processes = 0', 'max_wal_senders = 0', 'max_prepared_transactions = 0');

my $many = <<'SQL';
	DECLARE n int DEFAULT 0;
	WHILE n < 20000 DO
		SET n = n + 1;
		EXECUTE IMMEDIATE 'CREATE TABLE many' || n || ' (a int)';
	END WHILE;
SQL

# everything in one session
my ($status, $stdout, $stderr) = $node->psql('postgres', <<"SQL", on_error_stop => 0);
\\set VERBOSITY verbose
CREATE TABLE kept (what text);
SELECT tw.atomic(\$\$BEGIN
	INSERT INTO kept VALUES ('never');
	BEGIN
$many
	END;
END\$\$, job => 'locks', batch_id => '1');
SELECT 'tables: ' || count(*) FROM pg_class WHERE relname LIKE 'many%';
SELECT 'batches: ' || count(*) FROM tw.ledger;
SELECT 'handled: ' || (result #>> '{}') FROM tw.atomic(\$\$BEGIN
	INSERT INTO kept VALUES ('before');
	BEGIN ATOMIC
		DECLARE UNDO HANDLER FOR SQLSTATE '53200' INSERT INTO kept VALUES ('undone');
		INSERT INTO kept VALUES ('never');
		BEGIN
$many
		END;
	END;
	INSERT INTO kept VALUES ('behind');
	RETURN (SELECT string_agg(what, ', ') FROM kept);
END\$\$, job => 'locks', batch_id => '2');
SELECT 'tables: ' || count(*) FROM pg_class WHERE relname LIKE 'many%';
CALL tw.run(\$\$BEGIN
$many
END\$\$, job => 'locks', batch_id => '3');
SELECT 'batches: ' || string_agg(batch_id, ', ') FROM tw.ledger;
SELECT 'failures: ' || string_agg(batch_id || ' ' || sqlstate, ', ') FROM tw.failures;
SQL

like($stderr, qr/ERROR:  53200: out of shared memory/, 'the error is the server\'s own');
like($stderr, qr/HINT:  You might need to increase "?max_locks_per_transaction/, '... with its hint');
like($stderr, qr/atomic block line 7, column 3, at EXECUTE IMMEDIATE/, '... and the place in the script');
like($stdout, qr/^tables: 0\nbatches: 0$/m, 'nothing of the block is left');
like($stdout, qr/^handled: before, undone, behind\ntables: 0$/m, 'a handler goes on in the block');
like($stdout, qr/^batches: 2\nfailures: 3 53200$/m, 'CALL tw.run records the failure');

done_testing();
