-- Sells exactly once, with procedures and functions in PL/pgSQL.  The block is in a table:
CREATE TABLE block (name text PRIMARY KEY, body text NOT NULL);
\set sell `cat sell.psm`
INSERT INTO block VALUES ('sell', :'sell');

-- 1, 2, 4: a block as a batch, in transactions of its own; the server retries after a conflict.
-- No EXCEPTION around it: there, a procedure cannot commit.
CREATE PROCEDURE sell(receipt text, product text, units int, INOUT status text DEFAULT NULL, INOUT tries int DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
  sell text := (SELECT body FROM block WHERE name = 'sell');
  result jsonb;
  n bigint;
BEGIN
  CALL tw.run(sell,
    jsonb_build_object('receipt', receipt, 'product', product, 'units', units),
    job => 'sell', batch_id => receipt, status => status, result => result, rows => n, attempts => tries);
END
$$;

-- 3: a block in the transaction of the caller, whose error becomes data
CREATE FUNCTION try_to_sell(receipt text, product text, units int, OUT state text, OUT message text, OUT detail text,
  OUT hint text, OUT line int)
LANGUAGE plpgsql AS $$
DECLARE
  place text;
BEGIN
  state := (tw.atomic((SELECT body FROM block WHERE name = 'sell'),
    jsonb_build_object('receipt', receipt, 'product', product, 'units', units), 'sell', receipt)).status;
EXCEPTION WHEN SQLSTATE '75001' THEN
  GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
    hint = PG_EXCEPTION_HINT, place = PG_EXCEPTION_CONTEXT;
  line := substring(place FROM 'atomic block line (\d+)')::int;
END
$$;

-- 5: a staged batch; each task in a transaction of its own
CREATE PROCEDURE import_day(day text)
LANGUAGE plpgsql AS $$
DECLARE
  writer bigint := tw.init_producer('import');
  done tw.outcome;
  task record;
  here record;
BEGIN
  IF (tw.open_batch('import', day, '[{"table": "sale", "mode": "append"}]', expected_tasks => 2, epoch => writer)).status
    <> 'already_committed' THEN
    COMMIT;
    FOR task IN VALUES ('till 1', ARRAY['A-1', 'A-2']), ('till 2', ARRAY['B-1']) LOOP
      SELECT * INTO here FROM tw.attach_task('import', day, task.column1, writer);
      IF here.status = 'attached' THEN
        EXECUTE format('INSERT INTO %s SELECT r, ''tea'', 1, 4.50 FROM unnest($1) AS r', here.staging) USING task.column2;
        PERFORM tw.commit_task();
      END IF;
      COMMIT;
    END LOOP;
  END IF;
  done := tw.publish('import', day, writer);
  RAISE NOTICE '%: %, % rows', day, done.status, done.rows;
END
$$;
