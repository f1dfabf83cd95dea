/*
 * report.c
 *		Conflicts in words.
 */
#include "conflict/conflict.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/index.h"
#include "engine/citus.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

const char *
tw_conflict_kind(const TwConflict *conflict)
{
	switch (conflict->change.kind)
	{
		case TW_INSERTED:
			return "inserted";
		case TW_UPDATED:
		case TW_UPDATED_INTO:
			return "updated";
		case TW_DELETED:
			return "deleted";
		case TW_MOVED:
			return "moved";
		case TW_GONE:
			return "gone";
		case TW_ATTACHED:
			return "children";
		case TW_UNCHANGED:
			break;
	}
	return "unchanged";
}

/* "public.t", not a shard of it; the OID of one that we have dropped ourselves */
static char *
relation_name(Oid relid)
{
	char	   *name;

	relid = tw_citus_table_of(relid);
	name = get_rel_name(relid);

	if (name == NULL)
		return psprintf("%u", relid);
	return psprintf("%s.%s", get_namespace_name(get_rel_namespace(relid)), name);
}

/* "(id)=(1)" when the user may see it, else "(ctid)=((0,1))" */
static char *
row_name(const TwConflict *conflict)
{
	Relation	rel = NULL;
	char	   *result = NULL;

	if (conflict->tuple != NULL)
		rel = try_relation_open(conflict->relid, AccessShareLock);
	if (rel != NULL && OidIsValid(TW_PRIMARY_KEY(rel)))
	{
		Relation	index = index_open(TW_PRIMARY_KEY(rel), AccessShareLock);
		IndexInfo  *info = BuildIndexInfo(index);
		TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
		Datum		values[INDEX_MAX_KEYS];
		bool		nulls[INDEX_MAX_KEYS];

		ExecStoreHeapTuple(conflict->tuple, slot, false);
		FormIndexDatum(info, slot, NULL, values, nulls);
		result = BuildIndexValueDescription(index, values, nulls);
		ExecDropSingleTupleTableSlot(slot);
		index_close(index, AccessShareLock);
	}
	if (rel != NULL)
		relation_close(rel, AccessShareLock);
	if (result == NULL)
		result = psprintf("(ctid)=((%u,%u))", ItemPointerGetBlockNumberNoCheck(&conflict->tid),
						  ItemPointerGetOffsetNumberNoCheck(&conflict->tid));
	return result;
}

static const char *
what_happened(const TwConflict *conflict)
{
	switch (conflict->change.kind)
	{
		case TW_INSERTED:
			return "was inserted";
		case TW_UPDATED:
		case TW_UPDATED_INTO:
			return "was updated";
		case TW_DELETED:
			return "was deleted";
		case TW_MOVED:
			return "was moved to another partition";
		default:
			return "is gone";
	}
}

/* Who did it, as a person would say it */
static char *
by_whom(const TwChange *change)
{
	if (!TransactionIdIsValid(change->xid))
		return pstrdup("by another transaction");
	return psprintf("by transaction %u, which %s", change->xid,
					change->in_progress ? "is in progress" : "has committed");
}

char *
tw_conflict_detail(const TwConflict *conflict)
{
	char	   *relation = relation_name(conflict->relid);
	char	   *who = by_whom(&conflict->change);

	if (conflict->change.kind == TW_ATTACHED)
		return psprintf("The children of relation \"%s\", which this transaction has read, were changed %s.",
						relation, who);
	if (conflict->condition == NULL)
		return psprintf("Row %s of relation \"%s\", which this transaction has read, %s %s.",
						row_name(conflict), relation, what_happened(conflict), who);
	if (conflict->failure != NULL)
		return psprintf("Row %s of relation \"%s\" %s %s, and whether this transaction would have read it cannot be said: %s.",
						row_name(conflict), relation, what_happened(conflict), who,
						conflict->failure);
	return psprintf("Row %s of relation \"%s\", which satisfies a condition that this transaction has read by, %s %s.",
					row_name(conflict), relation, what_happened(conflict), who);
}

/*
 * What helps besides trying again, as far as the conflict tells.  An old version that
 * satisfied a condition, or was read, is protected by a lock; a new one is no concern of
 * mode "row".
 */
static const char *
what_helps(const TwConflict *conflict)
{
	const TwCondition *condition = conflict->condition;

	switch (conflict->change.kind)
	{
		case TW_INSERTED:
		case TW_UPDATED_INTO:
		case TW_UPDATED:
		case TW_DELETED:
		case TW_MOVED:
			break;
		default:
			return "Retry the transaction.";
	}
	if (condition == NULL)
		return "Retry the transaction. If it often fails on the same row, lock that where it is read: SELECT ... FOR SHARE.";
	if (condition->escalated)
		return "Retry the transaction. It has read more than is remembered one by one: a larger transactional_writer.max_tracked_rows makes fewer changes count.";
	if (tw_track->mode != TW_TRACK_PREDICATE || condition->counts != TW_ALL_CHANGES ||
		conflict->failure != NULL)
		return "Retry the transaction.";
	if (conflict->change.kind == TW_INSERTED || conflict->change.kind == TW_UPDATED_INTO)
		return "Retry the transaction. If rows that it has not read need not count, track with mode 'row'.";
	if (!OidIsValid(condition->index) && condition->qual == NIL)
		return "Retry the transaction. It has read all of the relation; where only a part is needed, an index for that part makes fewer changes count.";
	return "Retry the transaction. If it often fails on the same row, lock that where it is read: SELECT ... FOR SHARE.";
}

void
tw_conflict_report(const TwConflict *conflict)
{
	Oid			relid = tw_citus_table_of(conflict->relid);
	char	   *name = get_rel_name(relid);
	char	   *detail = tw_conflict_detail(conflict);

	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to a conflict on relation \"%s\"",
					name != NULL ? name : "(dropped)"),
			 errdetail("%s", detail),
			 errhint("%s", what_helps(conflict)),
			 name == NULL ? 0 :
			 (err_generic_string(PG_DIAG_SCHEMA_NAME,
								 get_namespace_name(get_rel_namespace(relid))),
			  err_generic_string(PG_DIAG_TABLE_NAME, name))));
	pg_unreachable();
}

/* A plan reads what nobody could check */
void
tw_conflict_refuse(const char *what, const char *name, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot track reads of %s \"%s\"", what, name),
			 errdetail("%s", detail),
			 errhint("Run with conflicts => 'write' and lock what must not change.")));
}
