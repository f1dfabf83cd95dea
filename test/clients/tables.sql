-- What the examples work on: a shop's stock, and what was sold
CREATE TABLE stock (product text PRIMARY KEY, units int NOT NULL, price numeric NOT NULL);
CREATE TABLE sale (receipt text NOT NULL, product text NOT NULL, units int NOT NULL, amount numeric NOT NULL);
INSERT INTO stock VALUES ('tea', 10, 4.50), ('mug', 5, 9.00);
CREATE TABLE day (day date PRIMARY KEY, sales int NOT NULL, amount numeric NOT NULL);
