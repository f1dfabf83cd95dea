-- Rows that are not in this database cannot be tracked: refused, never skipped.
CREATE EXTENSION file_fdw;
CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
CREATE FOREIGN TABLE remote (line text) SERVER files OPTIONS (filename '/dev/null');
BEGIN;
SELECT tw.track_reads('row');
SELECT * FROM remote;
ROLLBACK;
BEGIN;
SELECT tw.track_reads('predicate');
SELECT count(*) FROM remote;
ROLLBACK;
SELECT tw.watch('remote');
CALL tw.run('BEGIN ATOMIC SELECT * FROM remote; END');
CALL tw.run('BEGIN ATOMIC SELECT * FROM remote; END', conflicts => 'write');
DROP EXTENSION file_fdw CASCADE;
