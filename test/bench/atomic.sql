\set a random(1, 100000)
\set b random(1, 100000)
\set id random(1, 9223372036854775806)
SELECT status FROM tw.atomic(:transfer, jsonb_build_object('source', :a::int, 'target', :b::int, 'amount', 1), 'bench', :id);
