-- Deferred constraints are checked before a block reports success
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE uniq (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);

-- violated in the block: its error, no ledger row
SELECT tw.atomic($$BEGIN
	INSERT INTO child VALUES (1);
	INSERT INTO parent VALUES (2);
END$$, job => 'deferred', batch_id => '1');
\echo :SQLSTATE
SELECT * FROM child;
SELECT * FROM tw.ledger WHERE job = 'deferred';
SELECT tw.atomic($$BEGIN
	INSERT INTO uniq VALUES (1), (1);
END$$, job => 'deferred', batch_id => '1');
\echo :SQLSTATE
-- ... for the duration only: that is what they are deferred for
SELECT status, rows FROM tw.atomic($$BEGIN
	INSERT INTO child VALUES (1);
	INSERT INTO parent VALUES (1);
	INSERT INTO uniq VALUES (1), (2);
	UPDATE uniq SET n = 3 - n;
END$$, job => 'deferred', batch_id => '1');
SELECT count(*) FROM tw.ledger WHERE job = 'deferred';
-- handlers do not see it: it is at the end of the block
SELECT tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN 'never';
	INSERT INTO child VALUES (7);
END$$);
\echo :SQLSTATE
-- ... unless the block checks by itself
SELECT result FROM tw.atomic($$BEGIN
	DECLARE EXIT HANDLER FOR SQLSTATE '23503' RETURN 'handled';
	BEGIN ATOMIC
		INSERT INTO child VALUES (7);
		SET CONSTRAINTS ALL IMMEDIATE;
	END;
END$$);
SELECT * FROM child;

-- the caller's own deferral goes on afterwards: what the caller left open may wait for its commit
BEGIN;
SELECT status FROM tw.atomic($$BEGIN
	INSERT INTO parent VALUES (10);
	INSERT INTO child VALUES (10);
END$$);
INSERT INTO child VALUES (20);
INSERT INTO uniq VALUES (5), (5);
DELETE FROM uniq WHERE n = 5;
INSERT INTO parent VALUES (20);
SELECT status FROM tw.atomic($$BEGIN
	INSERT INTO child VALUES (30);
	INSERT INTO parent VALUES (30);
END$$);
INSERT INTO child VALUES (40);
INSERT INTO parent VALUES (40);
COMMIT;
SELECT count(*) FROM child;
-- ... what the caller has violated itself before is reported at the first block: success could not be promised
BEGIN;
INSERT INTO child VALUES (50);
SELECT tw.atomic('BEGIN END');
\echo :SQLSTATE
ROLLBACK;
-- ... and a violation after the block is found at the commit, as ever
BEGIN;
SELECT status FROM tw.atomic('BEGIN INSERT INTO parent VALUES (60); INSERT INTO child VALUES (60); END');
DELETE FROM parent WHERE id = 60;
COMMIT;
\echo :SQLSTATE
SELECT count(*) FROM parent WHERE id = 60;

-- a constraint trigger of the user's: what it writes is written once
CREATE TABLE seen (n int);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO seen VALUES (NEW.id);
	RETURN NULL;
END$$;
CREATE CONSTRAINT TRIGGER see AFTER INSERT ON parent DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION see();
SELECT status FROM tw.atomic('BEGIN INSERT INTO parent VALUES (70), (71); END');
SELECT * FROM seen ORDER BY n;
TRUNCATE seen;
CALL tw.run('BEGIN INSERT INTO parent VALUES (72), (73); END');
SELECT * FROM seen ORDER BY n;
-- CALL tw.run finds a violation as well
CALL tw.run($$BEGIN
	INSERT INTO child VALUES (99);
END$$, job => 'deferred', batch_id => '2');
\echo :SQLSTATE
SELECT count(*) FROM tw.ledger WHERE job = 'deferred';

DROP TABLE child, parent, uniq, seen;
DROP FUNCTION see;
