-- What comes from the stream: payments into accounts, less a fee; and messages that are none
CREATE TABLE fee (percent numeric NOT NULL);
CREATE TABLE account (name text PRIMARY KEY, balance numeric NOT NULL);
CREATE TABLE payment (id int NOT NULL, account text NOT NULL REFERENCES account, amount numeric NOT NULL, fee numeric NOT NULL);
CREATE TABLE rejected (topic text, partition int, "offset" bigint, message text, sqlstate text, reason text, detail text);
INSERT INTO fee VALUES (1);
INSERT INTO account SELECT 'account ' || n, 0 FROM generate_series(1, 10) AS n;

-- For staged batches: the messages as they are
CREATE TABLE raw_message (topic text, partition int, "offset" bigint, body text);
