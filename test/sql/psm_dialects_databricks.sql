-- Blocks as people write them for Databricks SQL scripting and Spark: unchanged in
-- grammar, on tables of our own.
CREATE TABLE dbx_orders (id int PRIMARY KEY, customer text, region text, amount numeric(10, 2), day date);
INSERT INTO dbx_orders
  SELECT i, 'customer ' || i % 5, CASE WHEN i % 3 = 0 THEN 'north' ELSE 'south' END, i * 1.5,
    date '2026-01-01' + i
  FROM generate_series(1, 30) AS i;
CREATE TABLE dbx_summary (region text PRIMARY KEY, total numeric(12, 2), n int);
CREATE TABLE dbx_log (id int GENERATED ALWAYS AS IDENTITY, msg text);

-- A loop with ITERATE and LEAVE by label, END LOOP with the label; names in any case
SELECT result FROM tw.atomic($$
BEGIN
  DECLARE total INT DEFAULT 0;
  DECLARE num INT DEFAULT 0;
  addUp: LOOP
    SET num = num + 1;
    IF num > 20 THEN
      LEAVE addUp;
    END IF;
    IF num % 3 <> 0 THEN
      ITERATE addUp;
    END IF;
    SET total = total + num;
  END LOOP addUp;
  RETURN total;
END;
$$);

-- WHILE, REPEAT, both kinds of CASE, ELSEIF
-- (their STRING is a domain here)
CREATE DOMAIN string AS text;
SELECT result FROM tw.atomic($$
BEGIN
  DECLARE n, steps, half INT DEFAULT 0;
  DECLARE size, parity STRING;
  SET n = 27;
  WHILE n <> 1 DO
    SET n = CASE WHEN n % 2 = 0 THEN n / 2 ELSE 3 * n + 1 END, steps = steps + 1;
  END WHILE;
  SET half = steps;
  REPEAT
    SET half = half / 2;
  UNTIL half < 10 END REPEAT;
  CASE
    WHEN steps < 10 THEN SET size = 'short';
    WHEN steps < 100 THEN SET size = 'middle';
    ELSE SET size = 'long';
  END CASE;
  CASE steps % 2
    WHEN 0 THEN SET parity = 'even';
    WHEN 1 THEN SET parity = 'odd';
  END CASE;
  IF half = 0 THEN
    RETURN NULL;
  ELSEIF half < 5 THEN
    RETURN concat_ws(' ', size, parity, steps, half);
  ELSE
    RETURN concat_ws(' ', 'big', size, parity, steps, half);
  END IF;
END;
$$);

-- FOR over a query, its columns with and without the row's name; FOR without a row
SELECT result FROM tw.atomic($$
BEGIN
  DECLARE answer NUMERIC DEFAULT 0;
  byRegion: FOR r AS SELECT region, sum(amount) AS total, count(*) AS n
                       FROM dbx_orders GROUP BY region ORDER BY region DO
    IF region = 'nowhere' THEN
      ITERATE byRegion;
    END IF;
    MERGE INTO dbx_summary AS t USING (SELECT r.region, r.total, r.n) AS s ON t.region = s.region
      WHEN MATCHED THEN UPDATE SET total = s.total, n = s.n
      WHEN NOT MATCHED THEN INSERT (region, total, n) VALUES (s.region, s.total, s.n);
    SET answer = answer + byRegion.total;
  END FOR byRegion;
  FOR SELECT max(amount) AS biggest FROM dbx_orders DO
    SET answer = answer + biggest;
  END FOR;
  RETURN answer;
END;
$$);
SELECT * FROM dbx_summary ORDER BY region;

-- Scopes: the innermost name, and an outer one by its label
SELECT result FROM tw.atomic($$
BEGIN
  DECLARE a INT DEFAULT 1;
  outerScope: BEGIN
    DECLARE a INT DEFAULT 2;
    innerScope: BEGIN
      DECLARE a INT DEFAULT 3;
      RETURN ARRAY[a, innerScope.a, outerScope.a];
    END innerScope;
  END outerScope;
END;
$$);

-- Conditions and an EXIT handler that reads diagnostics
SELECT result FROM tw.atomic($$
BEGIN
  DECLARE too_much CONDITION FOR SQLSTATE '45123';
  DECLARE EXIT HANDLER FOR too_much
    BEGIN
      DECLARE sqlst, msg STRING;
      GET DIAGNOSTICS CONDITION 1 sqlst = RETURNED_SQLSTATE, msg = MESSAGE_TEXT;
      INSERT INTO dbx_log (msg) VALUES (sqlst || ': ' || msg);
    END;
  FOR o AS SELECT * FROM dbx_orders ORDER BY id DO
    IF o.amount > 40 THEN
      SIGNAL too_much SET MESSAGE_TEXT = 'order ' || o.id || ' is too big';
    END IF;
    UPDATE dbx_orders SET day = day + 1 WHERE id = o.id;
  END FOR;
  INSERT INTO dbx_log (msg) VALUES ('not reached');
END;
$$);
SELECT result FROM tw.atomic($$
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      INSERT INTO dbx_log (msg) VALUES ('division failed');
    END;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLSTATE '22012'
      INSERT INTO dbx_log (msg) VALUES ('divided by zero');
    INSERT INTO dbx_log (msg) SELECT 1 / (id - 1) FROM dbx_orders;
  END;
  INSERT INTO dbx_log (msg) VALUES ('went on');
END;
$$);
SELECT msg FROM dbx_log ORDER BY id;

-- A cursor with a CONTINUE handler; SET of several variables from a query
SELECT result FROM tw.atomic($$
BEGIN
  DECLARE done BOOLEAN DEFAULT FALSE;
  DECLARE who, names STRING;
  DECLARE first_day, last_day DATE;
  DECLARE c CURSOR FOR SELECT DISTINCT customer FROM dbx_orders ORDER BY customer FOR READ ONLY;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;
  SET (first_day, last_day) = (SELECT min(day), max(day) FROM dbx_orders WHERE id > 26);
  OPEN c;
  REPEAT
    FETCH c INTO who;
    IF NOT done THEN
      SET names = concat_ws(', ', names, who);
    END IF;
  UNTIL done END REPEAT;
  CLOSE c;
  RETURN concat_ws(' ', names, first_day, last_day);
END;
$$);

-- Dynamic SQL with markers, into variables
SELECT result FROM tw.atomic($$
BEGIN
  DECLARE tab STRING DEFAULT 'dbx_orders';
  DECLARE n BIGINT;
  DECLARE total NUMERIC;
  EXECUTE IMMEDIATE 'CREATE TABLE dbx_made (a INT, b INT)';
  EXECUTE IMMEDIATE 'INSERT INTO dbx_made VALUES (?, ?), (2, 20)' USING 1, 10;
  EXECUTE IMMEDIATE 'SELECT count(*), sum(amount) FROM ' || tab || ' WHERE region = ?'
    INTO n, total USING 'north';
  INSERT INTO dbx_made VALUES (n, total);
  RETURN TABLE SELECT * FROM dbx_made ORDER BY a;
END;
$$);

-- Parameters by name
SELECT result FROM tw.atomic($$
BEGIN
  IF :region IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a region is needed';
  END IF;
  DELETE FROM dbx_orders WHERE region = :region AND day >= :since AND id = ANY(:ids);
  RETURN (SELECT count(*) FROM dbx_orders);
END;
$$, '{"region": "north", "since": "2026-01-10", "ids": [3, 9, 12, 13]}');

DROP TABLE dbx_orders, dbx_summary, dbx_log, dbx_made;
DROP DOMAIN string;
