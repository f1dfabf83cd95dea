\set a random(1, 100000)
\set b random(1, 100000)
SELECT bare_transfer(:a, :b, 1);
