-- Random transactions on lists, each of which says itself what it has read and appended: its row in
-- h.log is committed with the rest or not at all.
--
-- A list is a row of h.list; absent means empty.  Lists come in windows of a few, which
-- all sessions use at about the same time and then leave for the next, so that
-- absent rows and short lists keep coming.

CREATE SCHEMA h;

CREATE SEQUENCE h.id;

CREATE TABLE h.list (
	k int PRIMARY KEY,
	grp int NOT NULL,
	v bigint[] NOT NULL
) WITH (fillfactor = 60);
CREATE INDEX ON h.list (grp);

CREATE TABLE h.log (
	id bigint NOT NULL,
	session int NOT NULL,
	plain boolean NOT NULL,
	started double precision NOT NULL,
	ops text NOT NULL
);

-- Lists in a window, and transactions in it
CREATE FUNCTION h.lists() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 12';
CREATE FUNCTION h.turns() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 60';

CREATE FUNCTION h.begin() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	id bigint := nextval('h.id');
BEGIN
	PERFORM set_config('h.started', extract(epoch FROM clock_timestamp())::text, true);
	PERFORM set_config('h.id', id::text, true);
	PERFORM set_config('h.n', '0', true);
	PERFORM set_config('h.ops', '', true);
END $$;

CREATE FUNCTION h.base() RETURNS int LANGUAGE sql AS
$$ SELECT (current_setting('h.id')::bigint / h.turns() * h.lists())::int $$;

CREATE FUNCTION h.note(op text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('h.ops', current_setting('h.ops') || op || ';', true);
END $$;

-- r KEY = LENGTH . LAST . DIGEST: what a list was
CREATE FUNCTION h.saw(k int, v bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF coalesce(cardinality(v), 0) = 0 THEN
		PERFORM h.note('r' || k || '=0');
	ELSE
		PERFORM h.note('r' || k || '=' || cardinality(v) || '.' || v[cardinality(v)] || '.' ||
			left(md5(array_to_string(v, ',')), 8));
	END IF;
END $$;

CREATE FUNCTION h.read(key int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	list bigint[];
BEGIN
	SELECT v INTO list FROM h.list WHERE k = key;
	PERFORM h.saw(key, list);
END $$;

CREATE FUNCTION h.range(low int, high int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	next int := low;
	row record;
BEGIN
	FOR row IN SELECT k, v FROM h.list WHERE k BETWEEN low AND high ORDER BY k LOOP
		WHILE next < row.k LOOP
			PERFORM h.saw(next, NULL);
			next := next + 1;
		END LOOP;
		PERFORM h.saw(row.k, row.v);
		next := row.k + 1;
	END LOOP;
	WHILE next <= high LOOP
		PERFORM h.saw(next, NULL);
		next := next + 1;
	END LOOP;
END $$;

-- The lists of one window that are in a group, by a join and an aggregate
CREATE FUNCTION h.group(wanted int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	found jsonb;
	base int := h.base();
BEGIN
	SELECT jsonb_object_agg(l.k, to_jsonb(l.v)) INTO found
		FROM (VALUES (base + wanted)) AS want (g) JOIN h.list l ON l.grp = want.g;
	FOR key IN base .. base + h.lists() - 1 LOOP
		CONTINUE WHEN key % 2 <> wanted;
		PERFORM h.saw(key, ARRAY(SELECT jsonb_array_elements_text(found -> key::text)::bigint));
	END LOOP;
END $$;

CREATE FUNCTION h.append(key int, upsert boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	n int := current_setting('h.n')::int + 1;
	element bigint := current_setting('h.id')::bigint * 100 + n;
BEGIN
	PERFORM set_config('h.n', n::text, true);
	IF NOT upsert THEN
		UPDATE h.list SET v = v || element WHERE k = key;
	END IF;
	IF upsert OR NOT FOUND THEN
		INSERT INTO h.list AS l VALUES (key, h.base() + key % 2, ARRAY[element])
			ON CONFLICT (k) DO UPDATE SET v = l.v || EXCLUDED.v;
	END IF;
	PERFORM h.note('a' || key || '=' || element);
END $$;

CREATE FUNCTION h.step() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	base int := h.base();
	key int := base + floor(random() * h.lists());
	what double precision := random();
	other int;
	list bigint[];
BEGIN
	CASE
		WHEN what < 0.30 THEN PERFORM h.append(key, what < 0.15);
		WHEN what < 0.60 THEN PERFORM h.read(key);
		WHEN what < 0.75 THEN PERFORM h.range(key, key + 1);
		WHEN what < 0.85 THEN PERFORM h.group(key % 2);
		ELSE
			-- in a savepoint that is rolled back: the read counts, the append does not
			other := base + (key - base + 1) % h.lists();
			BEGIN
				IF what < 0.93 THEN
					PERFORM h.append(key, what < 0.89);
				END IF;
				SELECT v INTO list FROM h.list WHERE k = other;
				RAISE EXCEPTION USING errcode = 'HH000';
			EXCEPTION WHEN SQLSTATE 'HH000' THEN
				PERFORM h.saw(other, list);
			END;
	END CASE;
END $$;

CREATE FUNCTION h.done(session int, plain boolean) RETURNS void LANGUAGE sql AS $$
	INSERT INTO h.log VALUES (current_setting('h.id')::bigint, session, plain,
		current_setting('h.started')::double precision, current_setting('h.ops'));
$$;
