-- Opens the batch of a day, or takes it over from a run that has died
SELECT tw.init_producer('import') AS epoch \gset
SELECT status <> 'already_committed' AS open FROM tw.open_batch('import', :'day',
  '[{"table": "sale", "mode": "append"}]', expected_tasks => :tasks, epoch => :epoch) \gset
\if :open
  \echo :epoch
\endif
