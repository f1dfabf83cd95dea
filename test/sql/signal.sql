-- tw.signal and tw.signal_if: SIGNAL for plain SQL and PL/pgSQL
SELECT tw.signal('45000', 'stock is negative');
\echo :SQLSTATE
SELECT tw.signal('75001', 'stock is negative', 'Item 7 has -3.', 'Count again.');
\echo :SQLSTATE
SELECT tw.signal('75001', 'stock is negative', hint => 'Count again.');
-- a message is taken as it is, with what looks like a format
SELECT tw.signal('ZZZZZ', '100 % of %s, %d', '%n', '%m');
\echo :SQLSTATE
-- class 40 works as if the server had raised it
SELECT tw.signal('40001', 'stale');
\echo :SQLSTATE

-- classes 01 and 02 warn and go on
SELECT tw.signal('01000', 'careful', 'It is late.', 'Go home.');
\echo :SQLSTATE
SELECT tw.signal('02000', 'nothing there') IS NOT NULL AS went_on;
\set VERBOSITY sqlstate
SELECT tw.signal('01ABC', 'ours');
SELECT tw.signal('02000', 'nothing there');
\set VERBOSITY default
DO $$
BEGIN
	PERFORM tw.signal('02001', 'from PL/pgSQL');
	RAISE NOTICE 'still here';
END $$;

-- not a SQLSTATE to signal
SELECT tw.signal('00000', 'fine');
\echo :SQLSTATE
SELECT tw.signal('00ABC', 'fine');
SELECT tw.signal('4500', 'short');
SELECT tw.signal('450000', 'long');
SELECT tw.signal('4500a', 'lower case');
SELECT tw.signal('45 00', 'blank');
SELECT tw.signal('4500é', 'not ASCII');
SELECT tw.signal('', 'empty');
\echo :SQLSTATE
SELECT tw.signal(NULL, 'no state');
\echo :SQLSTATE
SELECT tw.signal('45000', NULL);
\echo :SQLSTATE

-- signal_if: only a true condition signals
SELECT tw.signal_if(true, '45000', 'yes', 'a detail', 'a hint');
\echo :SQLSTATE
SELECT tw.signal_if(false, '45000', 'no') IS NOT NULL AS went_on;
SELECT tw.signal_if(NULL, '45000', 'unknown') IS NOT NULL AS went_on;
SELECT tw.signal_if(true, '01000', 'warned') IS NOT NULL AS went_on;
SELECT tw.signal_if(sum(v) < 0, '45000', format('sum is %s', sum(v)))
	FROM (VALUES (1), (-5)) AS t (v);
-- a malformed state does not wait for its day
SELECT tw.signal_if(false, '4500', 'no');
SELECT tw.signal_if(NULL, 'abcde', 'no');
-- what an unused message would be does not matter
SELECT tw.signal_if(false, NULL, NULL) IS NOT NULL AS went_on;
SELECT tw.signal_if(true, '45000', NULL);
SELECT tw.signal_if(true, NULL, 'no state');

-- an error undoes the statement, a handler can catch it by its state
CREATE TEMP TABLE stock (item int, n int);
WITH new AS (INSERT INTO stock VALUES (1, -1) RETURNING n)
SELECT tw.signal_if(n < 0, '75001', 'negative') FROM new;
SELECT count(*) FROM stock;
DO $$
BEGIN
	PERFORM tw.signal('75001', 'negative', 'Item 7.');
EXCEPTION WHEN SQLSTATE '75001' THEN
	RAISE NOTICE 'caught %: %', SQLSTATE, SQLERRM;
END $$;
DROP TABLE stock;
