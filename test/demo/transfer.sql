-- Moves an amount between two accounts; the accounts' CHECK refuses what is not there.
-- Parameters: source, target, amount.
BEGIN ATOMIC
	INSERT INTO transfer VALUES (:source, :target, :amount);
	UPDATE account SET balance = balance + :amount WHERE id = :target;
	UPDATE account SET balance = balance - :amount WHERE id = :source;
END
