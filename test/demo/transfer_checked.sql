-- The same, but the block looks first and says itself what is wrong.
BEGIN ATOMIC
	DECLARE available numeric;

	SELECT balance INTO available FROM account WHERE id = :source;
	IF available < :amount THEN
		SIGNAL SQLSTATE '75001' SET
			MESSAGE_TEXT = 'not enough money in ' || :source,
			DETAIL = 'The balance is ' || available || '.';
	END IF;

	INSERT INTO transfer VALUES (:source, :target, :amount);
	UPDATE account SET balance = balance - :amount WHERE id = :source;
	UPDATE account SET balance = balance + :amount WHERE id = :target;
END
