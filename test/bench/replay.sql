\set i random(1, 1000)
SELECT status FROM tw.atomic(:transfer, '{"source": 1, "target": 2, "amount": 1}', 'replay', :i);
