/*
 * sql.c
 *		The statements that publish a target, written from its catalogs.
 *
 * They run as the current user, with that user's search_path, so that what the
 * user wrote (order_by, delete_when, where) means what it says.  Therefore all
 * that is ours is written with its schema, operators as well, and no name of ours
 * can be taken for a column: the staged columns are called "tw.1", "tw.2" and so
 * on where both tables are in sight.  What the user wrote ends with a newline,
 * and stands in parentheses, so that a comment in it ends there.
 *
 * Values in them, those of a key's expressions, are written as every session reads them:
 * a time in the style SQL has an abbreviation for its zone, which may mean another one.
 *
 * Whether a row is changed is asked with record_image_ne(), the comparison of the
 * stored values: it needs no operator of a type, and sees also a change that equality
 * does not.  As an operator, *<>, it would lose its types on the way to a Citus worker.
 *
 * The rows of a key are joined as a whole rather than probed one by one as ON
 * CONFLICT does.  That is right because publish.c locks the target against other
 * writers, and several times faster.
 */
#include "stage/stage.h"

#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

static bool
is_written(const StageColumn *column)
{
	return !column->generated && !column->left_out;
}

/* Citus lets nobody update it; the key that has matched contains it */
static bool
is_distributed_by(const StageTarget *target, const StageColumn *column)
{
	return target->distributed_by != NULL && strcmp(column->name, target->distributed_by) == 0;
}

/* "ONLY " for a plain table: its heirs are other tables.  What is partitioned is all its parts. */
static const char *
only(const StageTarget *target)
{
	return target->relkind == RELKIND_PARTITIONED_TABLE || target->hypertable ? "" : "ONLY ";
}

/* An expression over the target's columns, for the table of this alias */
static char *
over(const StageTarget *target, Node *expr, const char *alias)
{
	return deparse_expression(expr, deparse_context_for(alias, target->target), true, false);
}

/* "a", "b", each with a prefix; numbered ones as "tw.1" */
static void
append_columns(StringInfo buf, const StageTarget *target, const char *prefix, bool numbered)
{
	ListCell   *lc;
	bool		first = true;

	foreach(lc, target->columns)
	{
		StageColumn *column = (StageColumn *) lfirst(lc);

		if (!is_written(column))
			continue;
		if (!first)
			appendStringInfoString(buf, ", ");
		first = false;
		if (numbered)
			appendStringInfo(buf, "%s\"tw.%d\"", prefix, column->attnum);
		else
			appendStringInfo(buf, "%s%s", prefix, column->quoted);
	}
}

static bool
writes_column(const StageTarget *target, bool (*test) (const StageColumn *column))
{
	ListCell   *lc;

	foreach(lc, target->columns)
	{
		if (is_written((StageColumn *) lfirst(lc)) &&
			(test == NULL || test((StageColumn *) lfirst(lc))))
			return true;
	}
	return false;
}

static bool
is_always(const StageColumn *column)
{
	return column->always;
}

/* (columns) OVERRIDING SYSTEM VALUE, as INSERT has it */
static void
append_insert(StringInfo buf, const StageTarget *target)
{
	appendStringInfoString(buf, " (");
	append_columns(buf, target, "", false);
	appendStringInfoString(buf, writes_column(target, is_always) ?
						   ") OVERRIDING SYSTEM VALUE" : ")");
}

/* t's key equal to s's; s's expressions are its columns "tw.k1" or made from its rows */
static void
append_equal(StringInfo buf, const StageTarget *target, bool computed)
{
	ListCell   *lc;

	foreach(lc, target->keys)
	{
		StageKey   *key = (StageKey *) lfirst(lc);
		int			i = foreach_current_index(lc);

		appendStringInfo(buf, "%s(%s)%s %s ", i > 0 ? " AND " : "",
						 over(target, key->expr, "t"), key->collate, key->operator);
		if (computed)
			appendStringInfo(buf, "(%s)%s", over(target, key->expr, "s"), key->collate);
		else
			appendStringInfo(buf, "s.\"tw.k%d\"%s", i + 1, key->collate);
	}
	if (target->key_where != NULL)
		appendStringInfo(buf, " AND (%s)", over(target, target->key_where, "t"));
}

/* The keys of s, separated by commas */
static void
append_keys(StringInfo buf, const StageTarget *target)
{
	ListCell   *lc;

	foreach(lc, target->keys)
	{
		StageKey   *key = (StageKey *) lfirst(lc);

		appendStringInfo(buf, "%s(%s)%s", foreach_current_index(lc) > 0 ? ", " : "",
						 over(target, key->expr, "s"), key->collate);
	}
}

/* The staged rows, one for each key, as a subquery s */
static void
append_source(StringInfo buf, const StageTarget *target)
{
	ListCell   *lc;

	appendStringInfoString(buf, "(SELECT ");
	if (target->order_by != NULL && target->keys != NIL)
	{
		appendStringInfoString(buf, "DISTINCT ON (");
		append_keys(buf, target);
		appendStringInfoString(buf, ") ");
	}
	foreach(lc, target->columns)
	{
		StageColumn *column = (StageColumn *) lfirst(lc);

		if (is_written(column))
			appendStringInfo(buf, "s.%s AS \"tw.%d\", ", column->quoted, column->attnum);
	}
	foreach(lc, target->keys)
		appendStringInfo(buf, "(%s) AS \"tw.k%d\", ",
						 over(target, ((StageKey *) lfirst(lc))->expr, "s"),
						 foreach_current_index(lc) + 1);
	if (target->delete_when != NULL)
		appendStringInfo(buf, "((%s\n) IS TRUE) AS \"tw.d\"", target->delete_when);
	else
		appendStringInfoString(buf, "false AS \"tw.d\"");
	appendStringInfo(buf, " FROM %s AS s", target->staging_quoted);
	if (target->key_where != NULL)
		appendStringInfo(buf, " WHERE %s", over(target, target->key_where, "s"));
	if (target->order_by != NULL && target->keys != NIL)
	{
		appendStringInfoString(buf, " ORDER BY ");
		append_keys(buf, target);
		appendStringInfo(buf, ", %s\n", target->order_by);
	}
	appendStringInfoString(buf, ") AS s");
}

/* ---------- what is wrong with the staged rows ---------- */

static char *
misplaced_sql(const StageTarget *target)
{
	return psprintf("SELECT s.*::pg_catalog.text FROM %s AS s WHERE (%s\n) IS NOT TRUE LIMIT 1",
					target->staging_quoted, target->where);
}

/* The key of a staged row as text, a column each */
static void
append_keys_as_text(StringInfo buf, const StageTarget *target)
{
	ListCell   *lc;

	foreach(lc, target->keys)
		appendStringInfo(buf, "%s(%s)::pg_catalog.text", foreach_current_index(lc) > 0 ? ", " : "",
						 over(target, ((StageKey *) lfirst(lc))->expr, "s"));
}

/* NULL when no key can be null, or none needs to be looked for */
static char *
null_key_sql(const StageTarget *target)
{
	StringInfoData buf;
	ListCell   *lc;
	bool		any = false;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT ");
	append_keys_as_text(&buf, target);
	appendStringInfo(&buf, " FROM %s AS s WHERE ", target->staging_quoted);
	if (target->key_where != NULL)
		appendStringInfo(&buf, "(%s) AND ", over(target, target->key_where, "s"));
	appendStringInfoString(&buf, "(false");
	foreach(lc, target->keys)
	{
		StageKey   *key = (StageKey *) lfirst(lc);

		/* what the staging table does not take need not be looked for */
		if (key->not_null && !target->has_row_triggers)
			continue;
		appendStringInfo(&buf, " OR (%s) IS NULL", over(target, key->expr, "s"));
		any = true;
	}
	appendStringInfoString(&buf, ") LIMIT 1");
	return any ? buf.data : NULL;
}

static char *
duplicate_sql(const StageTarget *target)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT ");
	append_keys_as_text(&buf, target);
	appendStringInfo(&buf, ", pg_catalog.count(*) FROM %s AS s", target->staging_quoted);
	if (target->key_where != NULL)
		appendStringInfo(&buf, " WHERE %s", over(target, target->key_where, "s"));
	appendStringInfoString(&buf, " GROUP BY ");
	append_keys(&buf, target);
	appendStringInfoString(&buf, " HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 1 LIMIT 1");
	return buf.data;
}

/* ---------- the modes ---------- */

static char *
append_sql(const StageTarget *target, const char *condition)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "INSERT INTO %s", target->quoted);
	append_insert(&buf, target);
	appendStringInfoString(&buf, " SELECT ");
	append_columns(&buf, target, "s.", false);
	appendStringInfo(&buf, " FROM %s AS s", target->staging_quoted);
	if (condition != NULL)
		appendStringInfo(&buf, " WHERE %s", condition);
	return buf.data;
}

/* The same from a part of the staging table */
char *
stage_sql_append_from(const StageTarget *target, Oid part)
{
	StageTarget copy = *target;

	copy.staging_quoted = quote_qualified_identifier(target->schema, get_rel_name(part));
	return append_sql(&copy, NULL);
}

static char *
insert_new_sql(const StageTarget *target)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "INSERT INTO %s", target->quoted);
	append_insert(&buf, target);
	appendStringInfoString(&buf, " SELECT ");
	append_columns(&buf, target, "s.", true);
	appendStringInfoString(&buf, " FROM ");
	append_source(&buf, target);
	appendStringInfo(&buf, " WHERE NOT EXISTS (SELECT FROM %s%s AS t WHERE ", only(target),
					 target->quoted);
	append_equal(&buf, target, false);
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* What an update compares and sets; false: there is nothing to set */
static bool
changed_columns(const StageTarget *target, char **changed, char **assignments)
{
	StringInfoData old;
	StringInfoData new;
	StringInfoData set;
	ListCell   *lc;

	initStringInfo(&old);
	initStringInfo(&new);
	initStringInfo(&set);
	foreach(lc, target->columns)
	{
		StageColumn *column = (StageColumn *) lfirst(lc);
		const char *comma = set.len > 0 ? ", " : "";

		/* PostgreSQL lets nobody update an identity that is always generated */
		if (!is_written(column) || column->always || is_distributed_by(target, column))
			continue;
		appendStringInfo(&old, "%st.%s", comma, column->quoted);
		appendStringInfo(&new, "%ss.\"tw.%d\"", comma, column->attnum);
		appendStringInfo(&set, "%s%s = s.\"tw.%d\"", comma, column->quoted, column->attnum);
	}
	*changed = psprintf("pg_catalog.record_image_ne(ROW(%s), ROW(%s))", old.data, new.data);
	*assignments = set.data;
	return set.len > 0;
}

static char *
merge_sql(const StageTarget *target)
{
	StringInfoData buf;
	char	   *changed;
	char	   *assignments;

	initStringInfo(&buf);
	appendStringInfo(&buf, "MERGE INTO %s%s AS t USING ", only(target), target->quoted);
	append_source(&buf, target);
	appendStringInfoString(&buf, " ON ");
	append_equal(&buf, target, false);
	if (target->where != NULL)
		appendStringInfo(&buf, " AND (%s\n)", target->where);
	if (target->delete_when != NULL)
		appendStringInfoString(&buf, " WHEN MATCHED AND s.\"tw.d\" THEN DELETE");
	if (changed_columns(target, &changed, &assignments))
		appendStringInfo(&buf, " WHEN MATCHED AND %s THEN UPDATE SET %s", changed, assignments);
	appendStringInfoString(&buf, " WHEN NOT MATCHED AND NOT s.\"tw.d\" THEN INSERT");
	append_insert(&buf, target);
	appendStringInfoString(&buf, " VALUES (");
	append_columns(&buf, target, "s.", true);
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/*
 * The same in three statements, for a reference table, which MERGE cannot write.  Citus
 * runs each on every node, so what it takes its rows from is made once, as a table of the
 * batch's schema: rows of equal order could come in another one elsewhere.
 */
static void
apart_sql(const StageTarget *target, StageSql *sql)
{
	char	   *source = quote_qualified_identifier(target->schema,
													psprintf("tw.%d", target->number));
	StringInfoData buf;
	StringInfoData match;
	char	   *changed;
	char	   *assignments;

	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE TABLE %s AS SELECT * FROM ", source);
	append_source(&buf, target);
	sql->source = buf.data;

	initStringInfo(&match);
	append_equal(&match, target, false);
	if (target->delete_when != NULL)
		sql->remove = psprintf("DELETE FROM %s AS t USING (SELECT * FROM %s) AS s"
							   " WHERE %s AND s.\"tw.d\"", target->quoted, source, match.data);
	if (changed_columns(target, &changed, &assignments))
		sql->update = psprintf("UPDATE %s AS t SET %s FROM (SELECT * FROM %s) AS s"
							   " WHERE %s AND NOT s.\"tw.d\" AND %s",
							   target->quoted, assignments, source, match.data, changed);

	initStringInfo(&buf);
	appendStringInfo(&buf, "INSERT INTO %s", target->quoted);
	append_insert(&buf, target);
	appendStringInfoString(&buf, " SELECT ");
	append_columns(&buf, target, "s.", true);
	appendStringInfo(&buf, " FROM (SELECT * FROM %s) AS s WHERE NOT s.\"tw.d\""
					 " AND NOT EXISTS (SELECT FROM %s AS t WHERE %s)",
					 source, target->quoted, match.data);
	sql->write = buf.data;
}

/* What overwrite removes: its part of the target, but not what is staged again */
static char *
delete_sql(const StageTarget *target)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "DELETE FROM %s%s AS t", only(target), target->quoted);
	if (target->where != NULL)
		appendStringInfo(&buf, " WHERE (%s\n)", target->where);
	if (target->keys != NIL)
	{
		appendStringInfo(&buf, " %s NOT EXISTS (SELECT FROM %s AS s WHERE ",
						 target->where != NULL ? "AND" : "WHERE", target->staging_quoted);
		append_equal(&buf, target, true);
		appendStringInfoChar(&buf, ')');
	}
	return buf.data;
}

static void
build(const StageTarget *target, StageSql *sql)
{
	memset(sql, 0, sizeof(*sql));
	sql->command = "INSERT";
	if (!writes_column(target, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("no column of target %s can be written", target->quoted)));
	if (target->where != NULL)
		sql->misplaced = misplaced_sql(target);
	if (target->keys != NIL)
	{
		sql->null_key = null_key_sql(target);
		if (target->order_by == NULL)
			sql->duplicate = duplicate_sql(target);
	}
	if (target->mode == STAGE_OVERWRITE)
	{
		sql->delete = delete_sql(target);

		/*
		 * Rows that others refer to can go when those have been written anew.
		 * Otherwise what goes first makes room for what comes, in every unique
		 * index.
		 */
		sql->delete_last = target->referenced && target->keys != NIL;
	}

	if (target->mode == STAGE_MERGE || (target->mode == STAGE_OVERWRITE && target->keys != NIL))
	{
		if (target->placement == TW_ON_EVERY_NODE && target->mode == STAGE_MERGE)
			apart_sql(target, sql);
		else
			sql->write = merge_sql(target);
		sql->command = "MERGE";
	}
	else if (target->mode == STAGE_INSERT_NEW)
		sql->write = insert_new_sql(target);
	else
		sql->write = append_sql(target, NULL);

	if (target->key_where != NULL)
	{
		char	   *rest = psprintf("((%s) IS NOT TRUE)", over(target, target->key_where, "s"));

		if (target->delete_when != NULL)
			rest = psprintf("%s AND ((%s\n) IS NOT TRUE)", rest, target->delete_when);
		sql->write_rest = append_sql(target, rest);
	}
}

void
stage_sql_build(const StageTarget *target, StageSql *sql)
{
	int			nestlevel = tw_write_portably();

	build(target, sql);
	AtEOXact_GUC(true, nestlevel);
}

/* As a message has it */
char *
stage_key_as_text(const StageTarget *target, const StageKey *key)
{
	return deparse_expression(key->expr, deparse_context_for("s", target->target), false, false);
}

/* Is any value of the column staged? */
char *
stage_sql_any_value(const StageTarget *target, const StageColumn *column)
{
	return psprintf("SELECT FROM %s AS s WHERE s.%s IS NOT NULL LIMIT 1", target->staging_quoted,
					column->quoted);
}

void
stage_sql_try(const StageTarget *target, const StageSql *sql)
{
	const char *all[] = {sql->misplaced, sql->null_key, sql->duplicate, sql->delete, sql->write,
	sql->write_rest};

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	for (int i = 0; i < lengthof(all); i++)
	{
		StageTry	attempt = {target, all[i]};
		ErrorContextCallback callback = {error_context_stack, stage_statement_callback, &attempt};
		SPIPlanPtr	plan;

		/* what it takes its rows from is made by the publish */
		if (all[i] == NULL || (all[i] == sql->write && sql->source != NULL))
			continue;
		error_context_stack = &callback;
		plan = SPI_prepare(all[i], 0, NULL);
		error_context_stack = callback.previous;
		if (plan == NULL)
			elog(ERROR, "could not prepare \"%s\"", all[i]);
		SPI_freeplan(plan);
	}
	SPI_finish();
}
