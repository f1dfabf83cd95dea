-- Functions of test/bench/blocks, each in LANGUAGE psm and as one would write it in PL/pgSQL
CREATE EXTENSION transactional_writer;

CREATE TABLE item (id int PRIMARY KEY, price int NOT NULL);
INSERT INTO item SELECT i, i % 1000 FROM generate_series(1, 1000000) AS i;

-- A loop with arithmetic and a branch

CREATE FUNCTION psm_arithmetic(n int) RETURNS bigint LANGUAGE psm AS $$
BEGIN
	DECLARE i int DEFAULT 0;
	DECLARE odd, total bigint DEFAULT 0;

	WHILE i < n DO
		SET i = i + 1;
		IF i % 2 = 1 THEN
			SET odd = odd + 1;
		ELSE
			SET total = (total * 3 + i) % 1000003;
		END IF;
	END WHILE;
	RETURN total + odd;
END $$;
CREATE FUNCTION plpgsql_arithmetic(n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	i     int := 0;
	odd   bigint := 0;
	total bigint := 0;
BEGIN
	WHILE i < n LOOP
		i := i + 1;
		IF i % 2 = 1 THEN
			odd := odd + 1;
		ELSE
			total := (total * 3 + i) % 1000003;
		END IF;
	END LOOP;
	RETURN total + odd;
END $$;

-- FOR over the rows of a query

CREATE FUNCTION psm_rows(n int) RETURNS bigint LANGUAGE psm AS $$
BEGIN
	DECLARE total bigint DEFAULT 0;

	FOR r AS SELECT id, price FROM item WHERE id <= n DO
		SET total = total + r.price;
	END FOR;
	RETURN total;
END $$;
CREATE FUNCTION plpgsql_rows(n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	total bigint := 0;
	r     record;
BEGIN
	FOR r IN SELECT id, price FROM item WHERE id <= n LOOP
		total := total + r.price;
	END LOOP;
	RETURN total;
END $$;

-- A small function, called from a query

CREATE FUNCTION psm_discount(price int, percent int) RETURNS int LANGUAGE psm AS $$
BEGIN
	IF price > 500 THEN
		RETURN price * (100 - percent) / 100;
	END IF;
	RETURN price;
END $$;
CREATE FUNCTION plpgsql_discount(price int, percent int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF price > 500 THEN
		RETURN price * (100 - percent) / 100;
	END IF;
	RETURN price;
END $$;

-- A handler that never fires

CREATE FUNCTION psm_handler(n int) RETURNS bigint LANGUAGE psm AS $$
BEGIN
	DECLARE i int DEFAULT 0;
	DECLARE total bigint DEFAULT 0;

	WHILE i < n DO
		BEGIN
			DECLARE EXIT HANDLER FOR SQLEXCEPTION SET total = -1;

			SET total = total + i;
		END;
		SET i = i + 1;
	END WHILE;
	RETURN total;
END $$;
CREATE FUNCTION plpgsql_handler(n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	i     int := 0;
	total bigint := 0;
BEGIN
	WHILE i < n LOOP
		BEGIN
			total := total + i;
		EXCEPTION WHEN OTHERS THEN
			total := -1;
		END;
		i := i + 1;
	END LOOP;
	RETURN total;
END $$;

-- What a session holds at the end of loops, kilobytes, while the function still runs

CREATE FUNCTION psm_memory(n int) RETURNS bigint LANGUAGE psm AS $$
BEGIN
	DECLARE i int DEFAULT 0;
	DECLARE note text;
	DECLARE total, kilobytes bigint DEFAULT 0;

	WHILE i < n DO
		SET i = i + 1;
		SET note = 'iteration ' || i;
		SET total = total + (SELECT price FROM item WHERE id = i);
	END WHILE;
	FOR r AS SELECT id, price FROM item WHERE id <= n DO
		SET note = note || '';
		IF r.id = n THEN
			SELECT sum(total_bytes) / 1024 INTO kilobytes FROM pg_backend_memory_contexts;
		END IF;
	END FOR;
	RETURN kilobytes;
END $$;
