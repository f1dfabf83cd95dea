-- What test/fuzz has found, each where nothing else would notice it again.

-- A regclass is any number: this was an internal error
SELECT tw.watch('0');
SELECT tw.watch(4294967295::oid, 'true');

-- A condition that is declared is found without comparing its name, for a hint, with those
-- before it, which took hundreds of megabytes here; likewise a cursor
CREATE FUNCTION most_memory() RETURNS bigint LANGUAGE sql AS
	$$SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\s+(\d+)')::bigint$$;
SELECT most_memory() AS before \gset
SELECT problem.*
FROM (SELECT string_agg(format('DECLARE c%s CONDITION; ', g), '' ORDER BY g) AS declarations,
		string_agg(format('SIGNAL c%s; ', g), '' ORDER BY g) AS statements
	FROM generate_series(1, 3000) AS g) AS text,
	tw.check_block('BEGIN ' || declarations || statements || 'END') AS problem;
SELECT most_memory() - :before < 100000 AS moderate;
SELECT problem.*
FROM (SELECT string_agg(format('DECLARE c%s CURSOR FOR SELECT 1; ', g), '' ORDER BY g) AS declarations,
		string_agg(format('OPEN c%s; ', g), '' ORDER BY g) AS statements
	FROM generate_series(1, 3000) AS g) AS text,
	tw.check_block('BEGIN ' || declarations || statements || 'END') AS problem;
SELECT most_memory() - :before < 100000 AS moderate;
DROP FUNCTION most_memory();

-- The keys of a row that is returned are its columns' names, also when its table is changed
-- while it is made JSON: they were read from freed memory
CREATE TYPE mood AS ENUM ('good');
CREATE TABLE moods (first int, feeling mood, last text);
INSERT INTO moods VALUES (1, 'good', 'x');
CREATE FUNCTION mood_json(mood) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
	ALTER TABLE moods ALTER last SET STATISTICS 7;
	PERFORM 1 FROM moods;
	RETURN '"fine"';
END$$;
CREATE CAST (mood AS json) WITH FUNCTION mood_json(mood);
SELECT result FROM tw.atomic('BEGIN DECLARE m moods; SELECT * INTO m FROM moods; RETURN m; END');
DROP CAST (mood AS json);
DROP FUNCTION mood_json;
DROP TABLE moods;
DROP TYPE mood;
