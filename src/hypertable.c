/*
 * hypertable.c
 *		What must be known of TimescaleDB's hypertables.
 *
 * A hypertable is an ordinary table to PostgreSQL's catalogs, with chunks as its
 * children, but no row may ever be in the table itself, ONLY it is empty, and chunks come
 * and go with the rows.  Rows of a compressed chunk are not in it at all.
 *
 * TimescaleDB's own catalog says what is what.  It is read by the names of its columns,
 * which are the same in all its versions from 2.19 on, and only where the extension
 * is installed in this database.
 */
#include "tw.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#define TIMESCALE "_timescaledb_catalog"
#define CHUNK_IS_COMPRESSED 1	/* in the status of a chunk */

/* A table of TimescaleDB's catalog; InvalidOid: it is not installed here */
static Oid
catalog_table(const char *name, TwName *found)
{
	Oid			relid = tw_name_lookup(TIMESCALE, name, found);

	return OidIsValid(relid) && OidIsValid(get_extension_oid("timescaledb", true)) ?
		relid : InvalidOid;
}

static Oid
hypertables(void)
{
	static TwName found;

	return catalog_table("hypertable", &found);
}

static Oid
chunks(void)
{
	static TwName found;

	return catalog_table("chunk", &found);
}

static AttrNumber
column(Relation rel, const char *name)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), name);

	if (attnum == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("this version of TimescaleDB is not supported"),
				 errdetail("Table %s.%s has no column \"%s\".", TIMESCALE,
						   RelationGetRelationName(rel), name)));
	return attnum;
}

/* The number that TimescaleDB has given a hypertable; 0: the table is none */
int32
tw_hypertable_id(Relation table)
{
	Oid			relid = hypertables();
	Relation	rel;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *schema;
	bool		isnull;
	int32		id = 0;

	if (!OidIsValid(relid) || table->rd_rel->relkind != RELKIND_RELATION)
		return 0;
	rel = table_open(relid, AccessShareLock);
	schema = get_namespace_name(RelationGetNamespace(table));
	ScanKeyInit(&keys[0], column(rel, "schema_name"), BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(schema));
	ScanKeyInit(&keys[1], column(rel, "table_name"), BTEqualStrategyNumber, F_NAMEEQ,
				NameGetDatum(&table->rd_rel->relname));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		id = DatumGetInt32(heap_getattr(tuple, column(rel, "id"), RelationGetDescr(rel), &isnull));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return id;
}

/* Without a chunk a plan has nothing that would tell a hypertable from a table */
bool
tw_hypertable_is_empty(Oid relid)
{
	Relation	rel;
	bool		empty;

	/* asked of every table that is read: the length of its file is a system call */
	if (!OidIsValid(hypertables()))
		return false;
	rel = table_open(relid, AccessShareLock);
	empty = rel->rd_rel->relkind == RELKIND_RELATION && RelationGetNumberOfBlocks(rel) == 0 &&
		tw_hypertable_id(rel) != 0;
	table_close(rel, NoLock);
	return empty;
}

/* The hypertable that a table is a chunk of; InvalidOid: of none */
Oid
tw_hypertable_of_chunk(Relation table)
{
	Relation	inherits;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			result = InvalidOid;

	if (!OidIsValid(hypertables()))
		return InvalidOid;
	inherits = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationGetRelid(table)));
	scan = systable_beginscan(inherits, InheritsRelidSeqnoIndexId, true, NULL, 1, &key);
	while (!OidIsValid(result) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Oid			parent = ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent;
		Relation	rel = table_open(parent, AccessShareLock);

		if (tw_hypertable_id(rel) != 0)
			result = parent;
		table_close(rel, NoLock);
	}
	systable_endscan(scan);
	table_close(inherits, AccessShareLock);
	return result;
}

/* Are any of its chunks compressed? */
bool
tw_hypertable_has_compressed(int32 id)
{
	Relation	rel = table_open(chunks(), AccessShareLock);
	Oid			index = get_relname_relid("chunk_hypertable_id_idx", RelationGetNamespace(rel));
	AttrNumber	status = column(rel, "status");
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		compressed = false;

	ScanKeyInit(&key, column(rel, "hypertable_id"), BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(id));
	scan = systable_beginscan(rel, index, OidIsValid(index), NULL, 1, &key);
	while (!compressed && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;

		compressed = (DatumGetInt32(heap_getattr(tuple, status, RelationGetDescr(rel), &isnull)) &
					  CHUNK_IS_COMPRESSED) != 0;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return compressed;
}
