-- The tables that the demo's job keeps up to date
CREATE TABLE package (
	package      text PRIMARY KEY,
	version      varchar(48) NOT NULL,
	section      text NOT NULL,
	installed_kb bigint NOT NULL CHECK (installed_kb >= 0),
	changed_on   date NOT NULL
);

CREATE TABLE dependency (
	package      text NOT NULL REFERENCES package,
	depends_on   text NOT NULL,
	version_rule varchar(48),
	PRIMARY KEY (package, depends_on)
);

CREATE TABLE section (
	section      text PRIMARY KEY,
	packages     bigint NOT NULL,
	installed_kb bigint NOT NULL
);

-- And those of the money transfer
CREATE TABLE account (
	id      text PRIMARY KEY,
	balance numeric NOT NULL CONSTRAINT balance_not_negative CHECK (balance >= 0)
);

CREATE TABLE transfer (
	source text NOT NULL,
	target text NOT NULL,
	amount numeric NOT NULL
);

INSERT INTO account VALUES ('savings', 500), ('household', 125);
