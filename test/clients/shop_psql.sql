-- Sells exactly once, with psql: psql -XqAt -f shop_psql.sql
\set sell `cat sell.psm`

-- 1. A block; 2. the same again
CALL tw.run(:'sell', '{"receipt": "R-1", "product": "tea", "units": 3}', job => 'sell', batch_id => 'R-1') \gset
\echo R-1: :status, :rows rows
CALL tw.run(:'sell', '{"receipt": "R-1", "product": "tea", "units": 3}', job => 'sell', batch_id => 'R-1') \gset
\echo R-1: :status, :rows rows

-- 3. The block refuses.  psql prints all fields of the error; two of them are variables, and the
-- line is in tw.failures
CALL tw.run(:'sell', '{"receipt": "R-2", "product": "tea", "units": 99}', job => 'sell', batch_id => 'R-2');
\if :ERROR
  \echo error :LAST_ERROR_SQLSTATE
  \echo '  message:' :LAST_ERROR_MESSAGE
  SELECT '  line: ' || line FROM tw.failures WHERE job = 'sell' AND batch_id = 'R-2' ORDER BY at DESC LIMIT 1;
\endif

-- 4. Statements instead of a block; after a conflict all of them once more
\set attempt 0
\ir sell_a_mug.sql
\echo R-3: :status, attempt :attempt

-- 5. A staged batch: two tasks load, the driver publishes
SELECT tw.init_producer('import') AS epoch \gset
SELECT status = 'already_committed' AS published
FROM tw.open_batch('import', 'day 1', '[{"table": "sale", "mode": "append"}]', expected_tasks => 2, epoch => :epoch) \gset
\if :published
\else
  BEGIN;
  SELECT staging, status = 'attached' AS attached FROM tw.attach_task('import', 'day 1', 'till 1', :epoch) \gset
  \if :attached
    INSERT INTO :staging VALUES ('A-1', 'tea', 1, 4.50), ('A-2', 'tea', 1, 4.50);
    SELECT tw.commit_task() \g /dev/null
  \endif
  COMMIT;
  BEGIN;
  SELECT staging, status = 'attached' AS attached FROM tw.attach_task('import', 'day 1', 'till 2', :epoch) \gset
  \if :attached
    INSERT INTO :staging VALUES ('B-1', 'tea', 1, 4.50);
    SELECT tw.commit_task() \g /dev/null
  \endif
  COMMIT;
\endif
SELECT status, rows FROM tw.publish('import', 'day 1', :epoch) \gset
\echo day 1: :status, :rows rows
