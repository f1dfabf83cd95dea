/*
 * citus.c
 *		All that knows of Citus: what its catalogs say of a table, and how a
 *		transaction that spans nodes commits as one.
 *
 * Citus is an extension that spreads tables over nodes.  It is found at run time,
 * through its catalogs; nothing of it is needed to build.  Without it each question
 * here costs one look into a cache.
 *
 * Order at the commit.  Citus insists on being preloaded, and before any library
 * that has hooks, as ours has.  Callbacks run last registered first, so ours has
 * checked everything before Citus prepares the first worker, and an error of ours
 * leaves nothing prepared.
 *
 * The commit record of the coordinator decides: with it commit the ledger's row and
 * Citus's list of what is prepared.  That holds when Citus commits in two phases.
 * When one node alone was changed it does not: it commits there first and on the
 * coordinator after that, and a crash in between leaves data without a ledger.
 * There is no setting for it.  But Citus goes over to two phases with the first
 * COPY into a table of its own, and an INSERT ... SELECT that it carries out through
 * the coordinator is a COPY, one without rows as well.  So before the commit of a
 * batch one is made into a table that the transaction has written, as its owner.
 * It sends nothing to any node, and asks for no lock that the transaction has not
 * got, except on the metadata of the table's shards, so that none moves.  Where Citus
 * has already settled on two phases, which its library can tell, nothing is made.
 */
#include "engine/citus.h"

#include <ctype.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_namespace.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "parser/parse_func.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

/* A row of pg_dist_partition */
typedef struct CitusTable
{
	Oid			relid;
	char		method;			/* 'h', 'r', 'a': by a column; 'n': not */
	char		replication;	/* 't': a copy on every node */
	int32		colocation;		/* 0: with nothing */
	AttrNumber	column;			/* InvalidAttrNumber: none */
} CitusTable;

static bool protected = false;	/* tw_citus_protect() was called in this transaction */

/* ---------- the catalogs ---------- */

static Oid
catalog(const char *name)
{
	return get_relname_relid(name, PG_CATALOG_NAMESPACE);
}

bool
tw_citus_present(void)
{
	static TwName found;

	/* asked at every statement that reads */
	return OidIsValid(tw_name_lookup("pg_catalog", "pg_dist_partition", &found));
}

/* A row of one of Citus's catalogs, and what must be closed after it */
typedef struct Lookup
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
} Lookup;

static void
lookup_end(Lookup *lookup)
{
	systable_endscan(lookup->scan);
	table_close(lookup->rel, AccessShareLock);
}

/*
 * The first row of a catalog that has a value in a column, by an index; without a column the
 * first of all.  False: there is none, and nothing to end.
 */
static bool
lookup_begin(Lookup *lookup, const char *name, const char *column, const char *index,
			 RegProcedure equal, Datum value)
{
	Oid			oid = catalog(name);
	ScanKeyData key;

	if (!OidIsValid(oid))
		return false;
	lookup->rel = table_open(oid, AccessShareLock);
	if (column != NULL)
		ScanKeyInit(&key, get_attnum(oid, column), BTEqualStrategyNumber, equal, value);
	lookup->scan = systable_beginscan(lookup->rel, index != NULL ? catalog(index) : InvalidOid,
									  index != NULL, NULL, column != NULL ? 1 : 0, &key);
	lookup->tuple = systable_getnext(lookup->scan);
	if (HeapTupleIsValid(lookup->tuple))
		return true;
	lookup_end(lookup);
	return false;
}

static bool
lookup_by_table(Lookup *lookup, const char *name, const char *index, Oid relid)
{
	return OidIsValid(relid) &&
		lookup_begin(lookup, name, "logicalrelid", index, F_OIDEQ, ObjectIdGetDatum(relid));
}

/* A column of a row of one of Citus's catalogs, whose order depends on its version */
static Datum
field(HeapTuple tuple, Relation rel, const char *name, bool *isnull)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), name);

	if (attnum == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("this version of Citus is not supported"),
				 errdetail("Its catalog \"%s\" has no column \"%s\".",
						   RelationGetRelationName(rel), name)));
	return heap_getattr(tuple, attnum, RelationGetDescr(rel), isnull);
}

static Datum
lookup_field(const Lookup *lookup, const char *name)
{
	bool		isnull;

	return field(lookup->tuple, lookup->rel, name, &isnull);
}

static void
read_table(HeapTuple tuple, Relation rel, CitusTable *table)
{
	bool		isnull;
	Datum		key;

	table->relid = DatumGetObjectId(field(tuple, rel, "logicalrelid", &isnull));
	table->method = DatumGetChar(field(tuple, rel, "partmethod", &isnull));
	table->replication = DatumGetChar(field(tuple, rel, "repmodel", &isnull));
	table->colocation = DatumGetInt32(field(tuple, rel, "colocationid", &isnull));
	key = field(tuple, rel, "partkey", &isnull);
	table->column = isnull ? InvalidAttrNumber :
		castNode(Var, stringToNode(TextDatumGetCString(key)))->varattno;
}

/* What Citus knows of a table; false: nothing */
static bool
find_table(Oid relid, CitusTable *table)
{
	Lookup		lookup;

	if (!lookup_by_table(&lookup, "pg_dist_partition", "pg_dist_partition_logical_relid_index",
						 relid))
		return false;
	read_table(lookup.tuple, lookup.rel, table);
	lookup_end(&lookup);
	return true;
}

TwPlacement
tw_citus_placement(Oid relid)
{
	CitusTable	table;

	if (!find_table(relid, &table))
		return TW_IN_TABLE;
	if (table.method != 'n')
		return TW_DISTRIBUTED;
	if (table.replication == 't')
		return TW_ON_EVERY_NODE;
	return table.colocation == 0 ? TW_IN_LOCAL_SHARD : TW_ON_ONE_NODE;
}

bool
tw_citus_colocated(Oid a, Oid b)
{
	CitusTable	one;
	CitusTable	other;

	return find_table(a, &one) && find_table(b, &other) &&
		one.replication != 't' && other.replication != 't' &&
		one.colocation != 0 && one.colocation == other.colocation;
}

char *
tw_citus_column(Oid relid)
{
	CitusTable	table;

	if (!find_table(relid, &table) || table.column == InvalidAttrNumber)
		return NULL;
	return get_attname(relid, table.column, false);
}

/* A shard has its table's name and its own number; NULL: a name that Citus has cut */
static char *
shard_name(Oid table, int64 shard)
{
	char	   *suffix = psprintf("_" INT64_FORMAT, shard);
	char	   *name = get_rel_name(table);

	if (name == NULL || strlen(name) + strlen(suffix) > NAMEDATALEN - 1)
		return NULL;
	return psprintf("%s%s", name, suffix);
}

Oid
tw_citus_local_copy(Oid relid)
{
	Lookup		lookup;
	char	   *name;

	if (!lookup_by_table(&lookup, "pg_dist_shard", "pg_dist_shard_logical_relid_index", relid))
		return InvalidOid;
	name = shard_name(relid, DatumGetInt64(lookup_field(&lookup, "shardid")));
	lookup_end(&lookup);
	return name == NULL ? InvalidOid : get_relname_relid(name, get_rel_namespace(relid));
}

Oid
tw_citus_table_of(Oid relid)
{
	char	   *name = tw_citus_present() ? get_rel_name(relid) : NULL;
	char	   *number = name == NULL ? NULL : strrchr(name, '_');
	Lookup		lookup;
	int64		shard;
	Oid			table;

	if (number == NULL || !isdigit((unsigned char) number[1]))
		return relid;
	shard = strtoi64(number + 1, NULL, 10);
	if (!lookup_begin(&lookup, "pg_dist_shard", "shardid", "pg_dist_shard_shardid_index",
					  F_INT8EQ, Int64GetDatum(shard)))
		return relid;
	table = DatumGetObjectId(lookup_field(&lookup, "logicalrelid"));
	lookup_end(&lookup);
	/* a table of another name, or in another schema, is just called so */
	number = shard_name(table, shard);
	return number != NULL && strcmp(number, name) == 0 &&
		get_rel_namespace(table) == get_rel_namespace(relid) ? table : relid;
}

/* ---------- plans ---------- */

bool
tw_citus_is_scan(const char *name)
{
	return strcmp(name, "AdaptiveExecutorScan") == 0 || tw_citus_scan_in_parts(name);
}

bool
tw_citus_scan_in_parts(const char *name)
{
	return strcmp(name, "NonPushableInsertSelectScan") == 0;
}

/* ---------- nodes ---------- */

/* Number of this node: 0 is the coordinator */
static int32
local_group(void)
{
	Lookup		lookup;
	int32		group;

	if (!lookup_begin(&lookup, "pg_dist_local_group", NULL, NULL, InvalidOid, (Datum) 0))
		return 0;
	group = DatumGetInt32(lookup_field(&lookup, "groupid"));
	lookup_end(&lookup);
	return group;
}

void
tw_citus_check_node(const char *command)
{
	if (local_group() != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s cannot be used on a worker of a Citus cluster", command),
				 errdetail("The ledger is a table of the coordinator."),
				 errhint("Connect to the coordinator.")));
}

/* ---------- the commit ---------- */

/* Is a library of this name, with or without a directory and the suffix, in a list as settings have it? */
static bool
list_has_library(const char *list, const char *name)
{
	List	   *paths;
	ListCell   *lc;
	bool		found = false;

	if (list == NULL || !SplitDirectoriesString(pstrdup(list), ',', &paths))
		return false;
	foreach(lc, paths)
	{
		const char *path = lfirst(lc);
		const char *slash = last_dir_separator(path);
		const char *file = slash != NULL ? slash + 1 : path;
		size_t		length = strlen(name);

		found |= strncmp(file, name, length) == 0 &&
			(file[length] == '\0' || strcmp(file + length, DLSUFFIX) == 0);
	}
	list_free_deep(paths);
	return found;
}

/*
 * Without the library, which can only be preloaded, its tables are empty shells, and no
 * transaction spans nodes.  That of its column store alone does not make them more.
 */
static bool
is_loaded(void)
{
	return list_has_library(shared_preload_libraries_string, "citus");
}

/*
 * What a function writes is one transaction on every node, unless this setting says
 * that each of its statements is one.
 */
#define FUNCTION_IS_TRANSACTION "citus.function_opens_transaction_block"

void
tw_citus_protect(void)
{
	const char *setting;

	if (protected)
		return;
	protected = true;
	if (!tw_citus_present())
		return;
	setting = GetConfigOption(FUNCTION_IS_TRANSACTION, true, false);
	if (setting != NULL && strcmp(setting, "off") == 0)
		(void) set_config_option(FUNCTION_IS_TRANSACTION, "on", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
}

void
tw_citus_clear(void)
{
	protected = false;
}

/* The node that began the transaction over nodes that this session is in; -1: it is in none */
static int32
initiator(void)
{
	List	   *name;
	Oid			function;
	HeapTupleHeader row;
	bool		isnull;

	if (!tw_citus_present() || !is_loaded())
		return -1;
	name = list_make2(makeString("pg_catalog"), makeString("get_current_transaction_id"));
	function = LookupFuncName(name, 0, NULL, true);
	if (!OidIsValid(function))
		return local_group();
	row = DatumGetHeapTupleHeader(OidFunctionCall0(function));
	if (DatumGetInt64(GetAttributeByName(row, "transaction_number", &isnull)) == 0 && !isnull)
		return -1;
	return DatumGetInt32(GetAttributeByName(row, "initiator_node_identifier", &isnull));
}

bool
tw_citus_is_distributed(void)
{
	return initiator() >= 0;
}

/*
 * Is it settled that Citus commits in two phases, as for a statement on several shards?  A
 * function of its library says so, which SQL does not know; a version that has none is
 * never asked.
 */
static bool
two_phases_settled(void)
{
	static bool looked = false;
	static PGFunction function = NULL;

	if (!looked)
	{
		function = (PGFunction) load_external_function("citus",
													   "coordinated_transaction_should_use_2PC",
													   false, NULL);
		looked = true;
	}
	return function != NULL && DatumGetBool(DirectFunctionCall1(function, (Datum) 0));
}

/* A table of Citus's that this transaction has written: it has kept the lock */
static bool
find_written(CitusTable *found)
{
	Relation	rel = table_open(catalog("pg_dist_partition"), AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	bool		any = false;
	LOCKTAG		tag;

	while (!any && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Oid			relid = DatumGetObjectId(field(tuple, rel, "logicalrelid", &isnull));

		SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
		if (tw_lock_held(&tag, RowExclusiveLock))
		{
			read_table(tuple, rel, found);
			any = true;
		}
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return any;
}

/* The column to give a value: what it is distributed by, or else the first that takes one */
static Form_pg_attribute
some_column(const CitusTable *table, Relation rel)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);

	if (table->column != InvalidAttrNumber)
		return TupleDescAttr(tupdesc, table->column - 1);
	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(tupdesc, i);

		if (!attr->attisdropped && attr->attgenerated == '\0')
			return attr;
	}
	return NULL;
}

/* INSERT of no row, in a way that Citus cannot know beforehand; NULL: there is no column */
static char *
empty_insert(const CitusTable *table)
{
	Relation	rel = table_open(table->relid, NoLock);
	Form_pg_attribute column = some_column(table, rel);
	char	   *sql = NULL;

	if (column != NULL)
		sql = psprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT n.k FROM"
					   " (SELECT NULL::%s AS k OFFSET 0) AS n"
					   " WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.<) 0",
					   quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												  RelationGetRelationName(rel)),
					   quote_identifier(NameStr(column->attname)),
					   format_type_extended(column->atttypid, column->atttypmod,
											FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	table_close(rel, NoLock);
	return sql;
}

/* The plan is kept: a session's batches write the same tables again and again */
static SPIPlanPtr
plan_of(const char *sql)
{
	static char *last_sql = NULL;
	static SPIPlanPtr last_plan = NULL;
	SPIPlanPtr	plan;

	if (last_sql != NULL && strcmp(last_sql, sql) == 0)
		return last_plan;
	plan = SPI_prepare(sql, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\"", sql);
	if (last_sql != NULL)
	{
		pfree(last_sql);
		last_sql = NULL;
		SPI_freeplan(last_plan);
	}
	SPI_keepplan(plan);
	last_plan = plan;
	last_sql = MemoryContextStrdup(TopMemoryContext, sql);
	return plan;
}

static void
run_as_superuser(const char *sql)
{
	Oid			save_user;
	int			save_context;

	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, save_context | SECURITY_LOCAL_USERID_CHANGE);
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute_plan(plan_of(sql), NULL, NULL, false, 0) < 0)
		elog(ERROR, "could not run \"%s\"", sql);
	SPI_finish();
	PopActiveSnapshot();
	SetUserIdAndSecContext(save_user, save_context);
}

/* What went into the shell of a table would be missed when the library is back */
static void
check_shells(void)
{
	CitusTable	table;

	if (tw_citus_present() && find_written(&table))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot commit changes of table \"%s\" while Citus is not loaded",
						get_rel_name(table.relid)),
				 errdetail("Its rows are in shards, which only Citus finds."),
				 errhint("Put citus into shared_preload_libraries, and restart the server.")));
}

/* Makes Citus commit in two phases; in another node's transaction that is up to that node */
void
tw_citus_before_commit(void)
{
	CitusTable	table;
	int32		node;
	char	   *sql;

	if (protected && !is_loaded())
		check_shells();
	if (!protected || (node = initiator()) < 0 || node != local_group() ||
		two_phases_settled() || !find_written(&table))
		return;
	sql = empty_insert(&table);
	if (sql != NULL)
		run_as_superuser(sql);
}
