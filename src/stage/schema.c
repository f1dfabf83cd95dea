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
 * Where publish may replace whole partitions of the target (leaf.c), the staging
 * table is partitioned like it, and each part has the checks and indexes of the
 * partition whose place it takes: what publish saves is done while loading.
 *
 * The staging table of a distributed target is distributed with it, so that loading goes
 * to all nodes and publishing stays on each.  Citus wants no triggers there: what a task
 * stages is counted by task.c, and what came without a task is missed at the publish.
 * Its statements are SQL, since Citus follows nothing else.
 *
 * Everything belongs to the owner of the job and is made with that role's rights:
 * a default or type of somebody's must not run with ours.
 *
 * Locks: dropping needs the staging tables for itself.  Somebody whose task came
 * too late may still hold one; then the schema is left to stage_sweep().
 */
#include "stage/stage.h"

#include "access/relation.h"
#include "access/attmap.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/schemacmds.h"
#include "commands/sequence.h"
#include "commands/tablecmds.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_utilcmd.h"
#include "partitioning/partdesc.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* Kinds of relations, as pg_class has them */
#define TABLES "rp"
#define WHAT_IS_LOCKED "rpvmfS"	/* by who uses it */

static void append_column(StringInfo buf, Relation rel, const StageColumn *column,
						  bool triggers);
static List *relations_of(Oid schema, const char *kinds);
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
	(void) set_config_option("client_min_messages", "warning", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	/* a table is local unless we say otherwise */
	if (tw_citus_present())
		(void) set_config_option("citus.use_citus_managed_tables", "off", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
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
		List	   *context = deparse_context_for(RelationGetRelationName(rel),
												  RelationGetRelid(rel));
		char	   *text = deparse_expression(expr, context, false, false);
		bool		stored = attr->attgenerated == ATTRIBUTE_GENERATED_STORED;

		if (column->generated)
			appendStringInfo(buf, " GENERATED ALWAYS AS (%s) %s", text,
							 stored ? "STORED" : "VIRTUAL");
		else
			appendStringInfo(buf, " DEFAULT %s", text);
	}
	/* a trigger of the target may fill it in */
	if (attr->attnotnull && !triggers)
		appendStringInfoString(buf, " NOT NULL");
}

static void
append_columns(StringInfo buf, Relation rel, const List *columns, bool triggers)
{
	ListCell   *lc;

	foreach(lc, columns)
	{
		if (foreach_current_index(lc) > 0)
			appendStringInfoString(buf, ", ");
		append_column(buf, rel, (StageColumn *) lfirst(lc), triggers);
	}
}

/* Staged rows that take the place of a partition must satisfy its checks */
static void
append_checks(StringInfo buf, Relation rel)
{
	TupleConstr *constr = RelationGetDescr(rel)->constr;
	List	   *context = deparse_context_for(RelationGetRelationName(rel), RelationGetRelid(rel));

	for (int i = 0; constr != NULL && i < constr->num_check; i++)
	{
		if (TW_CHECK_IS_ENFORCED(&constr->check[i]))
			appendStringInfo(buf, ", CHECK (%s)",
							 deparse_expression(stringToNode(constr->check[i].ccbin), context,
												false, false));
	}
}

/* Where everything is published, what has no key could not be changed */
static void
append_identity(StringInfo buf, const char *table)
{
	appendStringInfo(buf, "ALTER TABLE %s REPLICA IDENTITY FULL;\n", table);
}

static void
append_triggers(StringInfo buf, const char *table, bool rows)
{
	appendStringInfo(buf, "CREATE TRIGGER tw_insert BEFORE INSERT OR TRUNCATE ON %s"
					 " FOR EACH STATEMENT EXECUTE FUNCTION tw.guard_staging();\n", table);
	if (rows)
		appendStringInfo(buf, "CREATE TRIGGER tw_change BEFORE UPDATE OR DELETE ON %s"
						 " FOR EACH ROW EXECUTE FUNCTION tw.guard_staging();\n", table);
}

bool
stage_is_distributed(const StageTarget *target)
{
	return target->placement == TW_DISTRIBUTED || target->placement == TW_ON_ONE_NODE;
}

/*
 * As the current user, who can log in on the other nodes.  The replica identity lets Citus
 * move shards without stopping writers as well.
 */
static void
distribute(const StageTarget *target)
{
	stage_execute_as(GetUserId(),
					 psprintf("SELECT pg_catalog.create_distributed_table(%s, %s, colocate_with => %s);\n",
							  quote_literal_cstr(target->staging_quoted),
							  target->distributed_by == NULL ? "NULL" :
							  quote_literal_cstr(target->distributed_by),
							  quote_literal_cstr(target->quoted)));
}

/* A name that is not taken in the batch's schema: of two tables the second gets a number */
static char *
free_name(Oid schema, char *name, int number)
{
	char	   *found = name;

	for (int i = number; OidIsValid(get_relname_relid(found, schema)); i++)
		found = makeObjectName(name, NULL, psprintf("%d", i));
	return found;
}

/* The indexes of a partition on the table that will take its place */
static void
copy_indexes(Relation leaf, Oid owner, int64 number, const char *name, Oid table)
{
	RangeVar   *range = makeRangeVar(stage_schema_name(number), pstrdup(name), -1);
	AttrMap    *map = make_attrmap(RelationGetNumberOfAttributes(leaf));
	ListCell   *lc;
	Oid			save_user;
	int			save_context;

	for (int i = 0; i < map->maplen; i++)
		map->attnums[i] = i + 1;
	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(owner, save_context | SECURITY_LOCAL_USERID_CHANGE);
	foreach(lc, RelationGetIndexList(leaf))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		IndexStmt  *stmt = generateClonedIndexStmt(range, index, map, NULL);

		index_close(index, NoLock);
		(void) tw_define_index(table, stmt);
		CommandCounterIncrement();
	}
	SetUserIdAndSecContext(save_user, save_context);
	free_attrmap(map);
}

/* The staging table of one partition; whole: it may take the partition's place */
static void
create_part(int64 number, Oid owner, const StageTarget *target, Oid leaf_oid, bool whole)
{
	Relation	leaf = table_open(leaf_oid, AccessShareLock);
	Oid			schema = get_namespace_oid(stage_schema_name(number), false);
	char	   *name = free_name(schema, pstrdup(RelationGetRelationName(leaf)), target->number);
	char	   *quoted = quote_qualified_identifier(stage_schema_name(number), name);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(leaf_oid));
	bool		isnull;
	Datum		bound = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relpartbound, &isnull);
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE TABLE %s (", quoted);
	append_columns(&buf, leaf, stage_columns(leaf), target->has_row_triggers);
	if (whole)
		append_checks(&buf, leaf);
	appendStringInfoString(&buf, ") USING heap;\n");
	append_identity(&buf, quoted);
	append_triggers(&buf, quoted, false);
	stage_execute_as(owner, buf.data);
	CommandCounterIncrement();
	if (whole)
		copy_indexes(leaf, owner, number, name, get_relname_relid(name, schema));

	resetStringInfo(&buf);
	appendStringInfo(&buf, "ALTER TABLE %s ATTACH PARTITION %s %s", target->staging_quoted, quoted,
					 TextDatumGetCString(DirectFunctionCall2(pg_get_expr, bound,
															 ObjectIdGetDatum(leaf_oid))));
	ReleaseSysCache(tuple);
	stage_execute_as(owner, buf.data);
	table_close(leaf, NoLock);
}

/* A part for each partition that is overwritten, or, for append, for each there is */
static void
create_parts(int64 number, Oid owner, const StageTarget *target, Relation rel, const List *leaves)
{
	PartitionDesc partitions = RelationGetPartitionDesc(rel, false);
	int			n = partitions->nparts;
	Oid		   *oids = palloc(sizeof(Oid) * n);

	memcpy(oids, partitions->oids, sizeof(Oid) * n);
	for (int i = 0; i < n; i++)
	{
		bool		whole = list_member_oid(leaves, oids[i]);

		if (whole || target->mode == STAGE_APPEND)
			create_part(number, owner, target, oids[i], whole);
	}
}

void
stage_table_create(int64 number, Oid owner, StageTarget *target, List *leaves, bool logged)
{
	Relation	rel = table_open(target->target, AccessShareLock);
	Oid			schema = get_namespace_oid(stage_schema_name(number), false);
	StringInfoData buf;
	int			nestlevel;

	target->staging_name = free_name(schema, target->staging_name, target->number);
	target->staging_quoted = quote_qualified_identifier(stage_schema_name(number),
														target->staging_name);

	/* what is not in pg_catalog must be written with its schema, values so that they stay the same */
	nestlevel = tw_write_portably();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("xmloption", "content", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE %sTABLE %s (", logged ? "" : "UNLOGGED ",
					 target->staging_quoted);
	append_columns(&buf, rel, target->columns, target->has_row_triggers);
	if (leaves == NIL)
		appendStringInfoString(&buf, ") USING heap;\n");
	else
		appendStringInfo(&buf, ") PARTITION BY %s;\n",
						 TextDatumGetCString(DirectFunctionCall1(pg_get_partkeydef,
																 ObjectIdGetDatum(target->target))));
	if (logged && leaves == NIL)
		append_identity(&buf, target->staging_quoted);
	if (!stage_is_distributed(target))
		append_triggers(&buf, target->staging_quoted, true);
	stage_execute_as(owner, buf.data);
	if (stage_is_distributed(target))
		distribute(target);
	CommandCounterIncrement();
	if (leaves != NIL)
		create_parts(number, owner, target, rel, leaves);
	AtEOXact_GUC(true, nestlevel);
	table_close(rel, NoLock);

	CommandCounterIncrement();
	target->staging = get_relname_relid(target->staging_name, schema);
}

List *
stage_table_parts(Oid staging)
{
	return get_rel_relkind(staging) == RELKIND_PARTITIONED_TABLE ?
		find_inheritance_children(staging, AccessShareLock) : list_make1_oid(staging);
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

/* The rows staged must be where the target's are */
static void
check_distribution(const StageTarget *target)
{
	bool		fits = stage_is_distributed(target) ?
		tw_citus_colocated(target->target, target->staging) : !tw_citus_manages(target->staging);

	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("target %s was distributed in another way since the batch was opened",
						target->quoted),
				 errdetail("What is staged for it is not on the same nodes."),
				 errhint("Abort the batch with tw.abort_batch, and run it again.")));
}

void
stage_table_dropped(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_TW_STAGING_LOST),
			 errmsg("the staging table of target %s has been dropped", name),
			 errhint("Abort the batch with tw.abort_batch and run it again.")));
}

void
stage_table_check(const StageTarget *target)
{
	Relation	rel = table_open(target->target, NoLock);
	Relation	staging = try_relation_open(target->staging, AccessShareLock);
	const char *difference = NULL;
	int			live = 0;

	if (staging == NULL)
		stage_table_dropped(target->quoted);
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
	check_distribution(target);
}

void
stage_lock_everywhere(const StageTarget *target)
{
	Relation	rel = table_open(target->target, NoLock);
	Oid			owner = rel->rd_rel->relowner;

	table_close(rel, NoLock);
	/* whoever may publish into it may do this, as it may lock the table here */
	stage_execute_as(owner, psprintf("LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", target->quoted));
}

/* ---------- another owner ---------- */

static void
give(Oid schema, Oid owner)
{
	Oid			save_user;
	int			save_context;
	ListCell   *lc;

	/* who may give the job away may give its staging, whatever rights that takes */
	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, save_context | SECURITY_LOCAL_USERID_CHANGE);
	AlterSchemaOwner_oid(schema, owner);
	foreach(lc, relations_of(schema, TABLES))
	{
		if (tw_citus_manages(lfirst_oid(lc)))
			stage_execute_as(BOOTSTRAP_SUPERUSERID,
							 psprintf("ALTER TABLE %s.%s OWNER TO %s", get_namespace_name(schema),
									  quote_identifier(get_rel_name(lfirst_oid(lc))),
									  quote_identifier(GetUserNameFromId(owner, false))));
		else
			ATExecChangeOwner(lfirst_oid(lc), owner, true, AccessExclusiveLock);
		CommandCounterIncrement();
	}
	SetUserIdAndSecContext(save_user, save_context);
}

/* The staging of a job's open batches goes with the job; waits for tasks that are loading */
void
tw_stage_reassign(const char *job, Oid owner)
{
	Datum		key = CStringGetTextDatum(job);
	TwScan	   *scan = tw_table_scan_begin(TW_INDEX_STAGE, SnapshotSelf, 1, &key);
	TwRow		row;

	while (tw_table_scan_next(scan, ForwardScanDirection, &row))
	{
		int64		number = DatumGetInt64(row.values[TW_STAGE_BATCH]);
		Oid			schema = get_namespace_oid(stage_schema_name(number), true);

		if (OidIsValid(schema))
			give(schema, owner);
	}
	tw_table_scan_end(scan);
}

/* ---------- removing ---------- */

/* All relations of some kinds in a schema, those that users have made as well */
static List *
relations_of(Oid schema, const char *kinds)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *relations = NIL;

	ScanKeyInit(&key, Anum_pg_class_relnamespace, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(schema));
	scan = systable_beginscan(pg_class, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if (strchr(kinds, form->relkind) != NULL)
			relations = lappend_oid(relations, form->oid);
	}
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return relations;
}

static bool
has_distributed(Oid schema)
{
	ListCell   *lc;

	foreach(lc, relations_of(schema, TABLES))
	{
		if (tw_citus_manages(lfirst_oid(lc)))
			return true;
	}
	return false;
}

/*
 * A schema that is on other nodes as well.  After a publish Citus drops the tables, but
 * not the schema, which is left for another transaction.
 */
static void
drop_distributed_tables(Oid schema)
{
	ListCell   *lc;

	foreach(lc, relations_of(schema, TABLES))
		stage_execute_as(GetUserId(),
						 psprintf("DROP TABLE %s CASCADE",
								  quote_qualified_identifier(get_namespace_name(schema),
															 get_rel_name(lfirst_oid(lc)))));
}

/* Drops a schema everywhere; false: the transaction has done what forbids it, or the user may not */
static bool
try_drop(int64 number)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool done = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		stage_execute_as(GetUserId(), psprintf("DROP SCHEMA IF EXISTS %s CASCADE",
											   stage_schema_name(number)));
		ReleaseCurrentSubTransaction();
		done = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return done;
}

/* Locks all tables of a schema, and what else one can read, if nobody else uses them */
static bool
lock_tables(Oid schema)
{
	ListCell   *lc;

	foreach(lc, relations_of(schema, WHAT_IS_LOCKED))
	{
		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessExclusiveLock))
			return false;
	}
	return true;
}

void
stage_table_drop(Oid staging)
{
	ObjectAddress table;

	ObjectAddressSet(table, RelationRelationId, staging);
	performDeletion(&table, DROP_CASCADE, PERFORM_DELETION_INTERNAL | PERFORM_DELETION_QUIETLY);
	CommandCounterIncrement();
}

static bool
drop_if_free(int64 number)
{
	ObjectAddress schema;
	LOCKTAG		tag;
	Oid			oid = get_namespace_oid(stage_schema_name(number), true);

	if (!OidIsValid(oid))
		return true;
	if (!lock_tables(oid))
		return false;
	/* who makes something in it has a lock on it */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, NamespaceRelationId, oid, 0);
	if (LockAcquire(&tag, AccessExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	/* somebody else who sweeps, or a user, may have dropped it meanwhile */
	AcceptInvalidationMessages();
	if (!SearchSysCacheExists1(NAMESPACEOID, ObjectIdGetDatum(oid)))
		return true;
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

	Oid			schema = get_namespace_oid(stage_schema_name(number), true);

	if (OidIsValid(schema) && has_distributed(schema))
	{
		if (lock_tables(schema))
			drop_distributed_tables(schema);
	}
	else if (drop_if_free(number))
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
		int64		number = *(int64 *) lfirst(lc);
		Oid			schema = get_namespace_oid(stage_schema_name(number), true);
		bool		dropped;

		if (tw_citus_present() && OidIsValid(schema))
			dropped = lock_tables(schema) && try_drop(number);
		else
			dropped = drop_if_free(number);
		/* of two that sweep, one gets the tables */
		if (dropped &&
			tw_table_delete(TW_TABLE_STAGE_LEFTOVER, &((HeapTuple) lfirst(lc2))->t_self, false))
			count++;
	}
	return count;
}
