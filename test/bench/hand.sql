\set a random(1, 100000)
\set b random(1, 100000)
\set id random(1, 9223372036854775806)
SELECT hand_transfer('bench', :id, :a, :b, 1);
