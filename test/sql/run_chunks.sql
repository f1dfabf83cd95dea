-- CALL tw.run_chunks: a block over a range, resumable
CREATE SCHEMA chunks;
SET search_path = chunks;
\set SHOW_CONTEXT never
CREATE TABLE src AS SELECT i AS id FROM generate_series(1, 25) i;
CREATE TABLE dst (id int, chunk text);
\set block '\'BEGIN ATOMIC INSERT INTO chunks.dst SELECT id, :chunk_from || \'\'-\'\' || :chunk_to FROM chunks.src WHERE id BETWEEN :chunk_from AND :chunk_to AND id <> :not; END\''
-- messages carry times
SET client_min_messages = warning;
CALL tw.run_chunks('chunks', 'b1', :block, 1, 25, 10, '{"not": 13}');
SELECT chunk, count(*), min(id), max(id) FROM dst GROUP BY chunk ORDER BY 2;
CALL tw.run_chunks('chunks', 'b1', :block, 1, 25, 10, '{"not": 13}');
SELECT batch_id, rows, attempts FROM tw.ledger WHERE job = 'chunks' ORDER BY started_at;
SELECT count(*) FROM dst;
-- each chunk is known by what it did
SELECT count(DISTINCT fingerprint) FROM tw.ledger WHERE job = 'chunks';
-- another range, size, block: those that ran would run again in part
CALL tw.run_chunks('chunks', 'b1', :block, 1, 25, 5, '{"not": 13}');
\echo :SQLSTATE
CALL tw.run_chunks('chunks', 'b1', :block, 1, 30, 10, '{"not": 13}');
CALL tw.run_chunks('chunks', 'b1', :block, 1, 25, 10, '{"not": 14}');

-- one number more than whole chunks
CALL tw.run_chunks('chunks', 'edge', 'BEGIN END', 1, 21, 10);
SELECT batch_id FROM tw.ledger WHERE job = 'chunks' AND batch_id LIKE 'edge%' ORDER BY started_at;

-- A chunk that fails stops it; the same call resumes
TRUNCATE dst;
ALTER TABLE dst ADD CHECK (id <> 12);
CALL tw.run_chunks('chunks', 'b2', :block, 1, 25, 5, '{"not": 0}');
SELECT count(*) FROM dst;
SELECT batch_id, attempt, sqlstate FROM tw.failures WHERE job = 'chunks';
ALTER TABLE dst DROP CONSTRAINT dst_id_check;
CALL tw.run_chunks('chunks', 'b2', :block, 1, 25, 5, '{"not": 0}');
SELECT count(*), count(DISTINCT id) FROM dst;

-- An error says which chunk it is of
\set SHOW_CONTEXT errors
CALL tw.run_chunks('chunks', 'b3', 'BEGIN SELECT 1 / (6 - :chunk_from::int); END', 1, 25, 5);
\set SHOW_CONTEXT never

-- Ends of ranges
TRUNCATE dst;
CALL tw.run_chunks('chunks', 'none', :block, 2, 1, 5, '{"not": 0}');
CALL tw.run_chunks('chunks', 'one', :block, 7, 7, 5, '{"not": 0}');
CALL tw.run_chunks('chunks', 'exact', :block, 1, 10, 5, '{"not": 0}');
CALL tw.run_chunks('chunks', 'big', 'BEGIN END', 9223372036854775800, 9223372036854775807, 4);
CALL tw.run_chunks('chunks', 'all', 'BEGIN END', -9223372036854775808, 9223372036854775807, 9223372036854775807);
SELECT batch_id FROM tw.ledger WHERE job = 'chunks' AND batch_id ~ '^(none|one|exact|big|all)'
ORDER BY started_at;
TABLE dst ORDER BY id;

-- Errors
CALL tw.run_chunks('chunks', 'e', :block, 1, 10, 0);
CALL tw.run_chunks('chunks', 'e', :block, 1, 10, NULL);
CALL tw.run_chunks(NULL, 'e', :block, 1, 10, 1);
CALL tw.run_chunks('chunks', 'e', :block, 1, 10, 1, '[]');
CALL tw.run_chunks('chunks', 'e', :block, 1, 10, 1, conflicts => 'some');
CALL tw.run_chunks('chunks', 'e', :block, 1, 10, 1, max_attempts => 0);
BEGIN;
CALL tw.run_chunks('chunks', 'e', :block, 1, 10, 1);
ROLLBACK;
DROP SCHEMA chunks CASCADE;
