-- COPY of the server's files: two files, two temporary tables, one target
\getenv abs_srcdir PG_ABS_SRCDIR
CREATE TABLE devices (id text PRIMARY KEY, name varchar(20));
SELECT $block$BEGIN
	CREATE TEMP TABLE first_file (LIKE devices) ON COMMIT DROP;
	CREATE TEMP TABLE second_file (LIKE devices) ON COMMIT DROP;

	COPY first_file FROM :first WITH (FORMAT csv, HEADER, DELIMITER ';');
	MERGE INTO devices d USING first_file f ON f.id = d.id
		WHEN MATCHED THEN UPDATE SET name = f.name
		WHEN NOT MATCHED THEN INSERT VALUES (f.id, f.name);

	COPY second_file FROM :second WITH (FORMAT csv, HEADER, DELIMITER ';');
	MERGE INTO devices d USING second_file f ON f.id = d.id
		WHEN MATCHED THEN UPDATE SET name = f.name
		WHEN NOT MATCHED THEN INSERT VALUES (f.id, f.name);
END$block$ AS block \gset

\set params '{"first": "' :abs_srcdir '/data/devices_1.csv", "second": "' :abs_srcdir '/data/devices_2.csv"}'
-- a value of the second is too long: the file's line and the script's, nothing of the first
SET psm_copy.block TO :'block';
SET psm_copy.params TO :'params';
DO $$
DECLARE context text;
BEGIN
	PERFORM tw.atomic(current_setting('psm_copy.block'), current_setting('psm_copy.params')::jsonb, 'copy', 'day 1');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT;
	RAISE NOTICE E'% %\n%', SQLSTATE, SQLERRM,
		regexp_replace(split_part(context, E'\nSQL statement "SELECT tw', 1), '''[^'']*/data/', '''.../data/');
END$$;
SELECT * FROM devices;
SELECT * FROM tw.ledger WHERE job = 'copy';

-- the file mended, the same batch: all of it
\set params '{"first": "' :abs_srcdir '/data/devices_1.csv", "second": "' :abs_srcdir '/data/devices_2_mended.csv"}'
SELECT status, rows, jsonb_path_query_array(operations, '$[*].command') AS commands, jsonb_path_query_array(operations, '$[*].rows') AS counts
FROM tw.atomic(:'block', :'params', 'copy', 'day 1');
SELECT * FROM devices ORDER BY id;
-- ... again: nothing
SELECT status, rows FROM tw.atomic(:'block', :'params', 'copy', 'day 1');
SELECT * FROM devices ORDER BY id;

-- a program's output, a file that is not there, one handled
SELECT result FROM tw.atomic($$BEGIN
	CREATE TEMP TABLE lines (line text) ON COMMIT DROP;
	COPY lines FROM PROGRAM 'echo one; echo two';
	RETURN TABLE SELECT * FROM lines;
END$$);
SELECT result FROM tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLSTATE '58P01' RETURN 'no such file';
	COPY devices FROM :file;
END$$, '{"file": "/nowhere/at all.csv"}');

DROP TABLE devices;
