-- Everything that the extension has made says what it is: \dx+, \df+, \d+ and \dT+ read well.
BEGIN;
SELECT no_plan();

CREATE TEMPORARY VIEW member AS
	SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
	FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
	WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'transactional_writer'
		-- Newer servers count as members also the types that come with a table, a view or another type
		AND NOT EXISTS (SELECT FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
			WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid
				AND (c.relkind <> 'c' OR t.typsubscript = 'array_subscript_handler'::regproc));

SELECT ok(count(*) > 60, 'there are objects') FROM member;
SELECT isnt(obj_description(objid, classid::regclass::name), NULL, 'a comment on ' || name) FROM member ORDER BY name;

-- Columns of what users look at: views, composite types
SELECT isnt(col_description(a.attrelid, a.attnum), NULL, format('a comment on column %s of %s', a.attname, name))
FROM member
	JOIN pg_class AS c ON (classid = 'pg_class'::regclass AND c.oid = objid AND c.relkind = 'v')
		OR (classid = 'pg_type'::regclass AND c.reltype = objid AND c.relkind = 'c')
	JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY name, attnum;

-- Arguments have names, which \df shows; those of the language's own functions are the server's
SELECT ok(p.proargnames IS NOT NULL AND NOT '' = ANY (p.proargnames), 'names of the arguments of ' || name)
FROM member JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND p.oid = objid
WHERE (p.pronargs > 0 OR p.proargnames IS NOT NULL) AND p.proname NOT LIKE 'psm\_%'
ORDER BY name;

-- A comment of a function that can fail names its SQLSTATEs, and they exist
SELECT is(s.state, coalesce((regexp_match(s.state, '^(?:TW0(?:0[1-9]|10)|[0-9][0-9A-Z]{4})$'))[1], 'a SQLSTATE'), name || ' names ' || s.state)
FROM member, regexp_split_to_table(substring(obj_description(objid, classid::regclass::name) FROM 'Errors: ((?:[0-9A-Z]{5}, )*[0-9A-Z]{5})'), ', ') AS s(state)
WHERE classid = 'pg_proc'::regclass AND s.state <> ''
ORDER BY name;

-- No comment is so long that a terminal shows nothing else, or ends as a sentence does not
SELECT cmp_ok(length(obj_description(objid, classid::regclass::name)), '<=', 500, 'the comment on ' || name || ' is short') FROM member ORDER BY name;

SELECT * FROM finish();
ROLLBACK;
