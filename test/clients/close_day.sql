\set block `cat close_day.psm`
CALL tw.run(:'block', jsonb_build_object('day', :'day'), job => 'close-day', batch_id => :'day') \gset
\echo :status, :rows rows, attempt :attempts
