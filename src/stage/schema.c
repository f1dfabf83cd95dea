/*
 * schema.c
 *		The schema of a batch, tw_batch_<n>, and its staging tables.
 *
 * A target has one staging table, which all tasks load at the same time.  A task
 * is one transaction, so its rows are nobody else's until it commits, and vanish
 * with it; what commits without tw.commit_task is stopped by task.c.  So a
 * thousand tasks cost no more catalog rows, locks and files than one, attaching
 * takes no lock that anyone else waits for, COPY goes straight into the table, and
 * the table shows what the committed tasks have staged, which is what the audit
 * of a publish looks at.  What a table for each attempt would keep apart by
 * itself, triggers do: a task changes no row of another.
 *
 * The staging table has the target's columns, without those dropped, in their
 * order, with their types, defaults, expressions and NOT NULL.  What numbers
 * itself (identity, serial) is nullable and without default: left out by all
 * tasks, publish leaves the numbering to the target.
 *
 * Everything belongs to the owner of the job and is made with that role's rights:
 * a default or type of somebody's must not run with ours.
 *
 * Locks: dropping needs the staging tables for itself.  Somebody whose task came
 * too late may still hold one; then the schema is left to stage_sweep().
 */
#include "stage/stage.h"

#include "access/relation.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/sequence.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

static void append_column(StringInfo buf, Relation rel, const StageColumn *column,
						  bool triggers);
static bool lock_tables(Oid schema);

char *
stage_schema_name(int64 number)
{
	return psprintf("tw_batch_%lld", (long long) number);
}

void
stage_execute_as(Oid role, const char *sql)
{
	Oid			save_user;
	int			save_context;
	int			nestlevel;

	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(role, save_context | SECURITY_LOCAL_USERID_CHANGE);
	nestlevel = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(sql, false, 0) < 0)
		elog(ERROR, "could not run \"%s\"", sql);
	SPI_finish();
	AtEOXact_GUC(true, nestlevel);
	SetUserIdAndSecContext(save_user, save_context);
}

/* ---------- making ---------- */

/* The schema is ours to make, whatever the role may do in this database */
int64
stage_schema_create(Oid owner)
{
	Oid			sequence = get_relname_relid("stage_number", get_namespace_oid("tw", false));
	int64		number;
	ObjectAddress schema;
	ObjectAddress extension;

	/* somebody may have made a schema of that name */
	do
	{
		CHECK_FOR_INTERRUPTS();
		number = nextval_internal(sequence, false);
	} while (OidIsValid(get_namespace_oid(stage_schema_name(number), true)));

	ObjectAddressSet(schema, NamespaceRelationId,
					 NamespaceCreate(stage_schema_name(number), owner, false));
	ObjectAddressSet(extension, ExtensionRelationId,
					 get_extension_oid("transactional_writer", false));
	recordDependencyOn(&schema, &extension, DEPENDENCY_AUTO_EXTENSION);
	CommandCounterIncrement();
	return number;
}

static Node *
default_of(TupleDesc tupdesc, AttrNumber attnum)
{
	for (int i = 0; i < tupdesc->constr->num_defval; i++)
	{
		if (tupdesc->constr->defval[i].adnum == attnum)
			return stringToNode(tupdesc->constr->defval[i].adbin);
	}
	elog(ERROR, "column %d has no default", attnum);
	return NULL;
}

static void
append_column(StringInfo buf, Relation rel, const StageColumn *column, bool triggers)
{
	Form_pg_attribute attr = TupleDescAttr(RelationGetDescr(rel), column->attnum - 1);

	appendStringInfo(buf, "%s %s", column->quoted,
					 format_type_extended(attr->atttypid, attr->atttypmod,
										  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	if (OidIsValid(attr->attcollation) && attr->attcollation != get_typcollation(attr->atttypid))
		appendStringInfo(buf, " COLLATE %s", generate_collation_name(attr->attcollation));
	if (column->numbered)
		return;
	if (attr->atthasdef)
	{
		/* the target's own, not the type's, which comes with the type */
		Node	   *expr = default_of(RelationGetDescr(rel), column->attnum);
		char	   *text = deparse_expression(expr, deparse_context_for(RelationGetRelationName(rel),
																		RelationGetRelid(rel)),
											  false, false);

		if (column->generated)
			appendStringInfo(buf, " GENERATED ALWAYS AS (%s) %s", text,
							 attr->attgenerated == ATTRIBUTE_GENERATED_STORED ? "STORED" : "VIRTUAL");
		else
			appendStringInfo(buf, " DEFAULT %s", text);
	}
	/* a trigger of the target may fill it in */
	if (attr->attnotnull && !triggers)
		appendStringInfoString(buf, " NOT NULL");
}

void
stage_table_create(int64 number, Oid owner, StageTarget *target, bool logged)
{
	Relation	rel = table_open(target->target, AccessShareLock);
	Oid			schema = get_namespace_oid(stage_schema_name(number), false);
	StringInfoData buf;
	ListCell   *lc;
	int			nestlevel;

	/* of two targets of one name in two schemas the second gets a number */
	if (OidIsValid(get_relname_relid(target->staging_name, schema)))
		target->staging_name = makeObjectName(target->staging_name, NULL,
											  psprintf("%d", target->number));
	target->staging_quoted = quote_qualified_identifier(stage_schema_name(number),
														target->staging_name);

	/* what is not in pg_catalog must be written with its schema */
	nestlevel = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE %sTABLE %s (", logged ? "" : "UNLOGGED ",
					 target->staging_quoted);
	foreach(lc, target->columns)
	{
		if (foreach_current_index(lc) > 0)
			appendStringInfoString(&buf, ", ");
		append_column(&buf, rel, (StageColumn *) lfirst(lc), target->has_row_triggers);
	}
	appendStringInfo(&buf, ") USING heap;\n"
					 "CREATE TRIGGER tw_insert BEFORE INSERT OR TRUNCATE ON %s"
					 " FOR EACH STATEMENT EXECUTE FUNCTION tw.guard_staging();\n"
					 "CREATE TRIGGER tw_change BEFORE UPDATE OR DELETE ON %s"
					 " FOR EACH ROW EXECUTE FUNCTION tw.guard_staging()",
					 target->staging_quoted, target->staging_quoted);
	AtEOXact_GUC(true, nestlevel);
	table_close(rel, NoLock);

	stage_execute_as(owner, buf.data);
	CommandCounterIncrement();
	target->staging = get_relname_relid(target->staging_name, schema);
}

/* ---------- checking ---------- */

/* What differs between a column of the target and that of the staging table; NULL: nothing */
static const char *
column_difference(const StageTarget *target, Relation rel, Relation staging, int number)
{
	TupleDesc	tupdesc = RelationGetDescr(staging);
	StageColumn *column = (StageColumn *) list_nth(target->columns, number);
	Form_pg_attribute wanted = TupleDescAttr(RelationGetDescr(rel), column->attnum - 1);

	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(tupdesc, i);

		if (attr->attisdropped || strcmp(NameStr(attr->attname), column->name) != 0)
			continue;
		if (attr->atttypid != wanted->atttypid || attr->atttypmod != wanted->atttypmod)
			return psprintf("Column \"%s\" is of type %s in the target, and %s is staged.",
							column->name,
							format_type_with_typemod(wanted->atttypid, wanted->atttypmod),
							format_type_with_typemod(attr->atttypid, attr->atttypmod));
		if ((attr->attgenerated != '\0') != (wanted->attgenerated != '\0'))
			return psprintf("Column \"%s\" is generated in one of them only.", column->name);
		return NULL;
	}
	return psprintf("Column \"%s\" is not staged.", column->name);
}

void
stage_table_check(const StageTarget *target)
{
	Relation	rel = table_open(target->target, NoLock);
	Relation	staging = try_relation_open(target->staging, AccessShareLock);
	const char *difference = NULL;
	int			live = 0;

	if (staging == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_TW_STAGING_LOST),
				 errmsg("the staging table of target %s has been dropped", target->quoted),
				 errhint("Abort the batch with tw.abort_batch and run it again.")));
	for (int i = 0; difference == NULL && i < list_length(target->columns); i++)
		difference = column_difference(target, rel, staging, i);
	for (int i = 0; i < RelationGetNumberOfAttributes(staging); i++)
		live += !TupleDescAttr(RelationGetDescr(staging), i)->attisdropped;
	if (difference == NULL && live != list_length(target->columns))
		difference = "The target has fewer columns.";
	if (difference != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("target %s was altered since the batch was opened", target->quoted),
				 errdetail("%s", difference),
				 errhint("Alter %s in the same way, or abort the batch and run it again.",
						 target->staging_quoted)));
	relation_close(staging, NoLock);
	table_close(rel, NoLock);
}

/* ---------- removing ---------- */

/* Locks all tables of a schema if nobody else uses them */
static bool
lock_tables(Oid schema)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *tables = NIL;
	ListCell   *lc;

	ScanKeyInit(&key, Anum_pg_class_relnamespace, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(schema));
	scan = systable_beginscan(pg_class, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if (form->relkind == RELKIND_RELATION || form->relkind == RELKIND_PARTITIONED_TABLE)
			tables = lappend_oid(tables, form->oid);
	}
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);

	foreach(lc, tables)
	{
		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessExclusiveLock))
			return false;
	}
	return true;
}

static bool
drop_if_free(int64 number)
{
	ObjectAddress schema;
	Oid			oid = get_namespace_oid(stage_schema_name(number), true);

	if (!OidIsValid(oid))
		return true;
	if (!lock_tables(oid))
		return false;
	ObjectAddressSet(schema, NamespaceRelationId, oid);
	performDeletion(&schema, DROP_CASCADE, PERFORM_DELETION_INTERNAL | PERFORM_DELETION_QUIETLY);
	CommandCounterIncrement();
	return true;
}

void
stage_schema_drop(int64 number)
{
	Datum		values[TW_LEFTOVER_NATTS];
	bool		nulls[TW_LEFTOVER_NATTS] = {false};

	if (drop_if_free(number))
		return;
	values[TW_LEFTOVER_BATCH] = Int64GetDatum(number);
	values[TW_LEFTOVER_SINCE] = TimestampTzGetDatum(GetCurrentTimestamp());
	tw_table_insert(TW_TABLE_STAGE_LEFTOVER, values, nulls);
}

/* Drops what stage_schema_drop() had to leave; the number of schemas dropped */
int64
stage_sweep(void)
{
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_STAGE_LEFTOVER, SnapshotSelf, 0, NULL);
	List	   *numbers = NIL;
	List	   *tuples = NIL;
	ListCell   *lc;
	ListCell   *lc2;
	TwRow		row;
	int64		count = 0;

	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		int64	   *number = palloc(sizeof(int64));

		*number = DatumGetInt64(row.values[TW_LEFTOVER_BATCH]);
		numbers = lappend(numbers, number);
		tuples = lappend(tuples, heap_copytuple(row.tuple));
	}
	tw_table_scan_end(scan);

	forboth(lc, numbers, lc2, tuples)
	{
		/* of two that sweep, one gets the tables */
		if (drop_if_free(*(int64 *) lfirst(lc)) &&
			tw_table_delete(TW_TABLE_STAGE_LEFTOVER, &((HeapTuple) lfirst(lc2))->t_self, false))
			count++;
	}
	return count;
}
