-- Sells a mug as receipt R-3, at the price that was read; runs itself again after a conflict.
\set attempt `expr :attempt + 1`
\set LAST_ERROR_SQLSTATE 00000
BEGIN;
SELECT status, status = 'started' AS mine FROM tw.begin_batch('sell', 'R-3') \gset
\if :mine
  SELECT tw.track_reads() \g /dev/null
  SELECT price FROM stock WHERE product = 'mug' \gset
  -- Here another session may change what was read
  \! [ -z "$MEANWHILE" ] || psql -Xqc "$MEANWHILE"
  INSERT INTO sale VALUES ('R-3', 'mug', 1, :price);
\endif
COMMIT;
SELECT CASE WHEN NOT :'mine' THEN 'already_committed' WHEN e = '00000' THEN 'committed' ELSE 'error ' || e END AS status,
  e IN ('40001', '40P01') AND :attempt < 5 AS again
FROM (SELECT :'LAST_ERROR_SQLSTATE' AS e) AS last \gset
\if :again
  \setenv MEANWHILE
  \ir sell_a_mug.sql
\endif
