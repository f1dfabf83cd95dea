SELECT status, rows FROM tw.publish('import', :'day', :epoch) \gset
\echo :status, :rows rows
