-- Tables of test/bench/conflicts
CREATE EXTENSION transactional_writer;

CREATE TABLE aggregated (id int PRIMARY KEY, v int);
INSERT INTO aggregated SELECT n, n FROM generate_series(1, 100000) n;

CREATE TABLE account (id int PRIMARY KEY, balance int) WITH (fillfactor = 70);
INSERT INTO account SELECT n, 1000 FROM generate_series(1, 100000) n;

-- The transfer as one would write it by hand
CREATE PROCEDURE transfer(a int, b int) LANGUAGE plpgsql AS $$
DECLARE
	x int;
	y int;
BEGIN
	SELECT balance INTO x FROM account WHERE id = least(a, b);
	SELECT balance INTO y FROM account WHERE id = greatest(a, b);
	UPDATE account SET balance = x - 1 WHERE id = least(a, b);
	UPDATE account SET balance = y + 1 WHERE id = greatest(a, b);
END $$;
