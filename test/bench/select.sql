\set i random(1, 1000)
SELECT xid FROM hand_ledger WHERE job = 'replay' AND batch_id = :i;
