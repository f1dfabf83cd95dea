/*
 * leaf.c
 *		Which partitions of a target a publish can replace as a whole.
 *
 * For overwrite these are the partitions whose bounds prove that all of their rows
 * are in the part to overwrite, when the bounds of all others prove that none of
 * theirs is.  For append they are the empty ones.  The same is asked by
 * tw.open_batch, which then makes staging tables that fit, and by tw.publish,
 * which then swaps them if the answer is still the same.
 *
 * Nothing may be lost by not going through an INSERT: a target with triggers,
 * foreign keys or row security, or columns that number themselves, is out, and so
 * is a partition whose rows cannot be read as another table's: with columns that
 * were dropped, or added with a default that older rows do not have in them, in a
 * tablespace, or not permanent.
 */
#include "stage/stage.h"

#include "access/attmap.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "catalog/index.h"
#include "catalog/partition.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* ---------- what can be swapped at all ---------- */

static bool
is_plain(Relation rel)
{
	return rel->trigdesc == NULL && !rel->rd_rel->relrowsecurity &&
		rel->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT;
}

static bool
index_is_plain(Relation index)
{
	for (int i = 0; i < index->rd_index->indnatts; i++)
	{
		if (get_attoptions(RelationGetRelid(index), i + 1) != (Datum) 0)
			return false;
	}
	return index->rd_rel->reltablespace == InvalidOid && index->rd_index->indisvalid &&
		index->rd_index->indisready && index->rd_index->indislive;
}

static bool
leaf_is_plain(Relation leaf)
{
	ListCell   *lc;

	if (!is_plain(leaf) || leaf->rd_rel->relkind != RELKIND_RELATION ||
		leaf->rd_rel->relam != HEAP_TABLE_AM_OID || leaf->rd_rel->reltablespace != InvalidOid)
		return false;
	for (int i = 0; i < RelationGetNumberOfAttributes(leaf); i++)
	{
		Form_pg_attribute attr = TupleDescAttr(RelationGetDescr(leaf), i);

		if (attr->attisdropped || attr->atthasmissing)
			return false;
	}
	foreach(lc, RelationGetIndexList(leaf))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		bool		plain = index_is_plain(index);

		index_close(index, NoLock);
		if (!plain)
			return false;
	}
	return true;
}

static bool
target_is_plain(const StageTarget *target, Relation rel)
{
	ListCell   *lc;

	/* a subscriber would not hear of it */
	if (!target->swap || XLogLogicalInfoActive() || target->placement != TW_IN_TABLE ||
		target->order_by != NULL || !is_plain(rel) ||
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE ||
		(target->mode != STAGE_APPEND && target->mode != STAGE_OVERWRITE))
		return false;
	foreach(lc, target->columns)
	{
		if (((StageColumn *) lfirst(lc))->numbered)
			return false;
	}
	return true;
}

/* Not one version of a row, so that nobody can miss one */
bool
stage_leaf_is_empty(Relation leaf)
{
	TableScanDesc scan = table_beginscan(leaf, SnapshotAny, 0, NULL);
	TupleTableSlot *slot = table_slot_create(leaf, NULL);
	bool		empty = !table_scan_getnextslot(scan, ForwardScanDirection, slot);

	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	return empty;
}

/* ---------- the part to overwrite ---------- */

typedef enum Coverage
{
	COVERS_ALL,
	COVERS_NONE,
	COVERS_SOME					/* or it cannot be told */
} Coverage;

static List *
canonical(List *clauses)
{
	Expr	   *expr = (Expr *) eval_const_expressions(NULL, (Node *) make_ands_explicit(clauses));

	return make_ands_implicit(canonicalize_qual(expr, false));
}

/* How much of a partition satisfies "where" */
static Coverage
coverage(const StageTarget *target, Relation rel, Relation leaf)
{
	List	   *bounds;
	List	   *where;

	if (target->where == NULL)
		return COVERS_ALL;
	bounds = canonical(RelationGetPartitionQual(leaf));
	where = list_make1(stage_target_where(target, rel));
	where = canonical(map_partition_varattnos(where, 1, leaf, rel));
	if (contain_volatile_functions((Node *) where))
		return COVERS_SOME;
	if (predicate_implied_by(where, bounds, false))
		return COVERS_ALL;
	if (predicate_refuted_by(where, bounds, true))
		return COVERS_NONE;
	return COVERS_SOME;
}

/* ---------- the answer ---------- */

/* 1: the leaf can be replaced; 0: it stays; -1: none of the target can be replaced */
static int
judge_leaf(const StageTarget *target, Relation rel, Relation leaf)
{
	if (target->mode == STAGE_APPEND)
		return leaf_is_plain(leaf) && stage_leaf_is_empty(leaf);
	switch (coverage(target, rel, leaf))
	{
		case COVERS_ALL:
			return leaf_is_plain(leaf) ? 1 : -1;
		case COVERS_NONE:
			return 0;
		case COVERS_SOME:
			break;
	}
	return -1;
}

List *
stage_swap_leaves(const StageTarget *target)
{
	Relation	rel = table_open(target->target, AccessShareLock);
	PartitionDesc partitions;
	List	   *leaves = NIL;
	int			verdict = 0;

	if (!target_is_plain(target, rel))
	{
		table_close(rel, NoLock);
		return NIL;
	}
	partitions = RelationGetPartitionDesc(rel, false);
	/* what is not in another partition is in the default one: its bounds move with theirs */
	if (partitions->nparts == 0 || partition_bound_has_default(partitions->boundinfo) ||
		partitions->detached_exist)
		verdict = -1;
	for (int i = 0; verdict >= 0 && i < partitions->nparts; i++)
	{
		Relation	leaf;

		if (!partitions->is_leaf[i])
		{
			verdict = -1;
			break;
		}
		leaf = relation_open(partitions->oids[i], AccessShareLock);
		verdict = judge_leaf(target, rel, leaf);
		if (verdict > 0)
			leaves = lappend_oid(leaves, RelationGetRelid(leaf));
		relation_close(leaf, NoLock);
	}
	table_close(rel, NoLock);
	return verdict < 0 ? NIL : leaves;
}

/* ---------- do two tables fit? ---------- */

static bool
same_columns(TupleDesc a, TupleDesc b)
{
	if (a->natts != b->natts)
		return false;
	for (int i = 0; i < a->natts; i++)
	{
		Form_pg_attribute x = TupleDescAttr(a, i);
		Form_pg_attribute y = TupleDescAttr(b, i);

		if (x->attisdropped || y->attisdropped || y->atthasmissing || x->atttypid != y->atttypid ||
			x->atttypmod != y->atttypmod || x->attcollation != y->attcollation ||
			x->attgenerated != y->attgenerated || (x->attnotnull && !TW_NO_NULLS(b, i)) ||
			strcmp(NameStr(x->attname), NameStr(y->attname)) != 0)
			return false;
	}
	return true;
}

static bool
same_expression(const char *a, const char *b)
{
	return strcmp(a, b) == 0 || equal(stringToNode(a), stringToNode(b));
}

/* Do all staged rows satisfy this check? */
static bool
is_checked(const ConstrCheck *check, TupleDesc staging)
{
	if (staging->constr == NULL)
		return false;
	for (int i = 0; i < staging->constr->num_check; i++)
	{
		if (staging->constr->check[i].ccvalid &&
			same_expression(check->ccbin, staging->constr->check[i].ccbin))
			return true;
	}
	return false;
}

/* Every check of the leaf is one of the staged rows; expressions that generate are the same */
static bool
same_checks(TupleDesc a, TupleDesc b)
{
	int			nchecks = a->constr == NULL ? 0 : a->constr->num_check;

	for (int i = 0; i < nchecks; i++)
	{
		if (TW_CHECK_IS_ENFORCED(&a->constr->check[i]) && !is_checked(&a->constr->check[i], b))
			return false;
	}
	for (int i = 0; i < a->natts; i++)
	{
		const char *x = NULL;
		const char *y = NULL;

		if (TupleDescAttr(a, i)->attgenerated == '\0')
			continue;
		for (int j = 0; j < a->constr->num_defval; j++)
		{
			if (a->constr->defval[j].adnum == i + 1)
				x = a->constr->defval[j].adbin;
		}
		for (int j = 0; j < b->constr->num_defval; j++)
		{
			if (b->constr->defval[j].adnum == i + 1)
				y = b->constr->defval[j].adbin;
		}
		if (x == NULL || y == NULL || !same_expression(x, y))
			return false;
	}
	return true;
}

static bool
same_index(Relation a, Relation b)
{
	int			natts = IndexRelationGetNumberOfKeyAttributes(a);
	AttrMap    *map;
	bool		same;

	if (IndexRelationGetNumberOfKeyAttributes(b) != natts ||
		memcmp(a->rd_indoption, b->rd_indoption, natts * sizeof(int16)) != 0 ||
		memcmp(a->rd_opcintype, b->rd_opcintype, natts * sizeof(Oid)) != 0 ||
		a->rd_index->indisprimary != b->rd_index->indisprimary ||
		a->rd_index->indimmediate != b->rd_index->indimmediate)
		return false;
	map = make_attrmap(MaxHeapAttributeNumber);
	for (int i = 0; i < map->maplen; i++)
		map->attnums[i] = i + 1;
	same = CompareIndexInfo(BuildIndexInfo(a), BuildIndexInfo(b), a->rd_indcollation,
							b->rd_indcollation, a->rd_opfamily, b->rd_opfamily, map);
	free_attrmap(map);
	return same;
}

/* Storage made in this transaction is not in the log yet, in some settings of wal_level */
static bool
has_settled(Relation rel)
{
	return rel->rd_createSubid == InvalidSubTransactionId && stage_storage_is_old(rel);
}

/* The indexes of one table and their counterparts of the other; false: they do not fit */
static bool
pair_indexes(Relation leaf, Relation staging, List **ours, List **theirs)
{
	List	   *left = list_copy(RelationGetIndexList(staging));
	ListCell   *lc;
	ListCell   *lc2;

	*ours = *theirs = NIL;
	foreach(lc, RelationGetIndexList(leaf))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Oid			found = InvalidOid;

		foreach(lc2, left)
		{
			Relation	other = index_open(lfirst_oid(lc2), AccessShareLock);

			if (index_is_plain(other) && !other->rd_index->indcheckxmin &&
				has_settled(index) && has_settled(other) && same_index(index, other))
				found = lfirst_oid(lc2);
			index_close(other, NoLock);
			if (OidIsValid(found))
				break;
		}
		index_close(index, NoLock);
		if (!OidIsValid(found))
			return false;
		*ours = lappend_oid(*ours, lfirst_oid(lc));
		*theirs = lappend_oid(*theirs, found);
		left = list_delete_oid(left, found);
	}
	return left == NIL;
}

bool
stage_leaf_fits(Relation leaf, Relation staging, List **ours, List **theirs)
{
	return leaf_is_plain(leaf) &&
		staging->rd_rel->relkind == RELKIND_RELATION &&
		staging->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT &&
		staging->rd_rel->relam == HEAP_TABLE_AM_OID &&
		staging->rd_rel->reltablespace == InvalidOid &&
		has_settled(leaf) && has_settled(staging) &&
		same_columns(RelationGetDescr(leaf), RelationGetDescr(staging)) &&
		same_checks(RelationGetDescr(leaf), RelationGetDescr(staging)) &&
		equal(RelationGetPartitionQual(leaf), RelationGetPartitionQual(staging)) &&
		pair_indexes(leaf, staging, ours, theirs);
}
