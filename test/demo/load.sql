-- Brings package, dependency and section to the state of one delivery.
-- Parameters: day, and packages and dependencies, names of CSV files on the server.
BEGIN ATOMIC
	CREATE TEMPORARY TABLE new_package ON COMMIT DROP AS
		SELECT package, version, section, installed_kb FROM package WITH NO DATA;
	COPY new_package FROM :packages WITH (FORMAT csv, HEADER, DELIMITER ';');

	IF NOT EXISTS (SELECT FROM new_package) THEN
		SIGNAL SQLSTATE '75000' SET MESSAGE_TEXT = 'the delivery is empty';
	END IF;

	MERGE INTO package AS p
	USING new_package AS n ON n.package = p.package
	WHEN MATCHED AND (p.version, p.section, p.installed_kb)
			IS DISTINCT FROM (n.version, n.section, n.installed_kb) THEN
		UPDATE SET version = n.version, section = n.section,
			installed_kb = n.installed_kb, changed_on = :day
	WHEN NOT MATCHED THEN
		INSERT VALUES (n.package, n.version, n.section, n.installed_kb, :day);

	CREATE TEMPORARY TABLE new_dependency ON COMMIT DROP AS
		SELECT package, depends_on, version_rule FROM dependency WITH NO DATA;
	COPY new_dependency FROM :dependencies WITH (FORMAT csv, HEADER, DELIMITER ';');

	MERGE INTO dependency AS d
	USING new_dependency AS n ON n.package = d.package AND n.depends_on = d.depends_on
	WHEN MATCHED AND d.version_rule IS DISTINCT FROM n.version_rule THEN
		UPDATE SET version_rule = n.version_rule
	WHEN NOT MATCHED THEN
		INSERT VALUES (n.package, n.depends_on, n.version_rule);

	-- What the delivery no longer has
	DELETE FROM dependency AS d WHERE NOT EXISTS (
		SELECT FROM new_dependency AS n WHERE n.package = d.package AND n.depends_on = d.depends_on);
	DELETE FROM package AS p WHERE NOT EXISTS (
		SELECT FROM new_package AS n WHERE n.package = p.package);

	MERGE INTO section AS s
	USING (SELECT section, count(*) AS packages, sum(installed_kb) AS installed_kb
		FROM package GROUP BY section) AS n ON n.section = s.section
	WHEN MATCHED THEN
		UPDATE SET packages = n.packages, installed_kb = n.installed_kb
	WHEN NOT MATCHED THEN
		INSERT VALUES (n.section, n.packages, n.installed_kb);

	RETURN jsonb_build_object(
		'packages', (SELECT count(*) FROM package),
		'new or changed', (SELECT count(*) FROM package WHERE changed_on = :day));
END
