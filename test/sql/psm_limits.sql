-- Input that is bad, huge or deep: a clear error, and the session goes on
CREATE TABLE t (n int);
\set VERBOSITY terse

-- nothing
SELECT tw.atomic('');
\echo :SQLSTATE
SELECT tw.atomic('  ; ');
\echo :SQLSTATE
SELECT tw.atomic('-- only a comment');
\echo :SQLSTATE
SELECT tw.atomic(NULL);
\echo :SQLSTATE
SELECT tw.atomic('SELECT 1');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN SELECT ''never ends; END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN END; BEGIN END');
\echo :SQLSTATE

-- a script of megabytes
SELECT status, rows FROM tw.atomic('BEGIN ' || repeat(E'INSERT INTO t VALUES (1);\n', 20000) || ' END');
SELECT count(*) FROM t;
SELECT status, length(result::text) FROM tw.atomic('BEGIN RETURN ''' || repeat('x', 10000000) || '''; END');
SELECT status, result FROM tw.atomic('BEGIN /*' || repeat('x', 20000000) || '*/ RETURN 1; END');
SELECT status, result FROM tw.atomic('BEGIN RETURN 1' || repeat(' + 1', 2000) || '; END');
SELECT tw.atomic('BEGIN ' || repeat(E'\n', 1000000) || ' SELEC; END');
\echo :SQLSTATE
SELECT status FROM tw.atomic('BEGIN ' || (SELECT string_agg(format('DECLARE v%s int DEFAULT %s;', g, g), ' ') FROM generate_series(1, 3000) g) || ' INSERT INTO t VALUES (v3000 + v1); END');
SELECT result FROM tw.atomic('BEGIN RETURN ' || (SELECT string_agg(format(':p%s::int', g), ' + ') FROM generate_series(1, 1000) g) || '; END',
	(SELECT jsonb_object_agg('p' || g, g) FROM generate_series(1, 1000) g));

-- too deep: an error, not a crash; a hundred is nothing
SELECT result FROM tw.atomic('BEGIN RETURN ' || repeat('(', 100) || '1' || repeat(')', 100) || '; END');
SELECT result FROM tw.atomic(repeat('BEGIN ATOMIC ', 100) || 'RETURN 1; ' || repeat('END; ', 99) || 'END');
SELECT tw.atomic('BEGIN RETURN ' || repeat('(', 100000) || '1' || repeat(')', 100000) || '; END');
\echo :SQLSTATE
SELECT tw.atomic(repeat('BEGIN ', 100000) || repeat('END; ', 99999) || 'END');
\echo :SQLSTATE
SELECT tw.atomic(repeat('BEGIN ATOMIC DECLARE CONTINUE HANDLER FOR SQLEXCEPTION RETURN 1; ', 100000) || repeat('END; ', 99999) || 'END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN ' || repeat('IF true THEN ', 100000) || repeat('END IF; ', 100000) || 'END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN ' || repeat('CASE 1 WHEN 1 THEN ', 100000) || repeat('END CASE; ', 100000) || 'END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN ' || repeat('WHILE true DO ', 100000) || repeat('END WHILE; ', 100000) || 'END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN RETURN ' || repeat('CASE WHEN true THEN ', 100000) || '1 ' || repeat('END ', 100000) || '; END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION ' || repeat('BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION ', 100000) || 'RETURN 1; ' || repeat('END; ', 100000) || 'END');
\echo :SQLSTATE
-- ... 10,000 branches of one IF are not deep
SELECT result FROM tw.atomic('BEGIN IF false THEN RETURN 0; ' || (SELECT string_agg(format('ELSEIF :n = %s THEN RETURN %s;', g, g), ' ') FROM generate_series(1, 10000) g) || ' END IF; END', '{"n": 9999}');
-- ... a block that runs inside itself without end
CREATE FUNCTION again() RETURNS int LANGUAGE plpgsql AS $$BEGIN PERFORM tw.atomic('BEGIN SELECT again(); END'); RETURN 1; END$$;
SELECT again();
\echo :SQLSTATE
CREATE FUNCTION handled() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RETURN (tw.atomic('BEGIN
		DECLARE EXIT HANDLER FOR SQLSTATE ''54001'' RETURN 1;
		RETURN handled() + 1;
	END')).result::int;
END$$;
SELECT handled() > 1;
DROP FUNCTION again, handled;
-- ... in parameters (the text differs between versions)
\set VERBOSITY sqlstate
SELECT tw.atomic('BEGIN RETURN :x::int[]; END', ('{"x": ' || repeat('[', 1000) || repeat(']', 1000) || '}')::jsonb);
\set VERBOSITY terse
\echo :SQLSTATE
SELECT length(result::text) FROM tw.atomic('BEGIN RETURN :x; END', ('{"x": ' || repeat('[', 1000) || repeat(']', 1000) || '}')::jsonb);

-- names and keys
SELECT tw.atomic('BEGIN END', '{}', 'limits', '');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN END', '{}', '', '1');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN END', '{}', 'limits', repeat('x', 1000000));
\echo :SQLSTATE
SELECT tw.atomic('BEGIN END', '{}', repeat('x', 1000000), '1');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN END', '{}', 'limits');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN END', epoch => 1);
\echo :SQLSTATE
SELECT tw.atomic('BEGIN END', version => 1);
\echo :SQLSTATE

-- strings that are too long for PostgreSQL
SELECT tw.atomic($$BEGIN
	DECLARE s text;
	SET s = repeat('x', 1200000000);
END$$);
\echo :SQLSTATE
SELECT result FROM tw.atomic($$BEGIN
	DECLARE s text DEFAULT 'as before';
	DECLARE EXIT HANDLER FOR SQLSTATE '54000' RETURN s;
	SET s = repeat('x', 1200000000);
END$$);

-- bytes that are no text
SELECT tw.atomic(convert_from('\x424547494e20ff20454e44', 'UTF8'));
\echo :SQLSTATE
SELECT tw.atomic(E'BEGIN RETURN ''a\x00b''; END');
\echo :SQLSTATE
SELECT tw.atomic(E'BEGIN RETURN U&''\\d800''; END');
\echo :SQLSTATE
SELECT tw.atomic('BEGIN RETURN 1; END', '{"x": "\u0000"}');
\echo :SQLSTATE

SELECT status, result FROM tw.atomic('BEGIN RETURN ''still here''; END');
DROP TABLE t;
