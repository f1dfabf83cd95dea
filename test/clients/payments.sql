-- What comes from the stream: payments into accounts, and messages that are none
CREATE TABLE account (name text PRIMARY KEY, balance numeric NOT NULL);
CREATE TABLE payment (id int NOT NULL, account text NOT NULL REFERENCES account, amount numeric NOT NULL);
CREATE TABLE rejected (topic text, partition int, "offset" bigint, message text, sqlstate text, reason text, detail text);
INSERT INTO account SELECT 'account ' || n, 0 FROM generate_series(1, 10) AS n;
