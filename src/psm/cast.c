/*
 * cast.c
 *		Conversion of a value to the type of the variable it is assigned to.
 *
 * A cast is what an assignment in PL/pgSQL would do: the assignment cast if
 * there is one, otherwise through the types' text form.  Cast expressions are
 * kept for the session (as PostgreSQL's CachedExpressions, which follow DDL),
 * their compiled states for the transaction.
 */
#include "psm/psm.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_coerce.h"
#include "storage/proc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/typcache.h"

typedef struct CastKey
{
	Oid			type;
	Oid			to_type;
	int32		typmod;
	int32		to_typmod;
} CastKey;

typedef struct CastEntry
{
	CastKey		key;
	CachedExpression *cached;	/* NULL: look it up; not valid: again */
	bool		relabel;		/* the value is right as it is */
	ExprState  *state;			/* valid when lxid is this transaction's */
	LocalTransactionId lxid;
	Oid			role;			/* who may execute the functions in state */
	bool		in_use;
} CastEntry;

static HTAB *casts = NULL;

/* The expression that makes to_type of a CaseTestExpr of type */
static Node *
cast_expression(const CastKey *key, CaseTestExpr *placeholder)
{
	Node	   *expr = NULL;

	/* coerce_to_target_type() does not know these two as anything but constants and rows */
	if (key->type != UNKNOWNOID && key->type != RECORDOID)
		expr = coerce_to_target_type(NULL, (Node *) placeholder, key->type,
									 key->to_type, key->to_typmod,
									 COERCION_PLPGSQL, COERCE_IMPLICIT_CAST, -1);
	if (expr == NULL)
	{
		CoerceViaIO *io = makeNode(CoerceViaIO);

		io->arg = (Expr *) placeholder;
		io->resulttype = key->to_type;
		io->resultcollid = InvalidOid;
		io->coerceformat = COERCE_IMPLICIT_CAST;
		io->location = -1;
		expr = (Node *) io;
		if (key->to_typmod != -1)
			expr = coerce_to_target_type(NULL, expr, key->to_type, key->to_type, key->to_typmod,
										 COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
	}
	return expr;
}

static CastEntry *
cast_lookup(ExprContext *econtext, Oid type, int32 typmod, Oid to_type, int32 to_typmod)
{
	CastKey		key = {type, to_type, typmod, to_typmod};
	CastEntry  *entry;
	bool		found;

	if (casts == NULL)
	{
		HASHCTL		ctl = {0};

		ctl.keysize = sizeof(CastKey);
		ctl.entrysize = sizeof(CastEntry);
		casts = hash_create("psm casts", 32, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	entry = hash_search(casts, &key, HASH_ENTER, &found);
	if (!found)
	{
		entry->cached = NULL;
		entry->state = NULL;
		entry->lxid = InvalidLocalTransactionId;
		entry->in_use = false;
	}
	if (entry->cached == NULL || !entry->cached->is_valid)
	{
		MemoryContext oldcontext;
		CaseTestExpr *placeholder;
		CachedExpression *old = entry->cached;

		entry->cached = NULL;
		entry->lxid = InvalidLocalTransactionId;
		if (old != NULL)
		{
			/* not before the transaction's end: a cast further out may be running it */
			dlist_delete(&old->node);
			MemoryContextSetParent(old->context, psm_eval_estate()->es_query_cxt);
		}

		oldcontext = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		placeholder = makeNode(CaseTestExpr);
		placeholder->typeId = type;
		placeholder->typeMod = typmod;
		placeholder->collation = get_typcollation(type);
		entry->cached = GetCachedExpression(cast_expression(&key, placeholder));
		MemoryContextSwitchTo(oldcontext);

		entry->relabel = IsA(entry->cached->expr, CaseTestExpr) ||
			(IsA(entry->cached->expr, RelabelType) &&
			 IsA(((RelabelType *) entry->cached->expr)->arg, CaseTestExpr));
	}
	if (!entry->relabel && entry->lxid != TW_MY_LXID)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(psm_eval_estate()->es_query_cxt);

		entry->state = ExecInitExpr((Expr *) entry->cached->expr, NULL);
		entry->in_use = false;
		entry->lxid = TW_MY_LXID;
		entry->role = GetUserId();
		MemoryContextSwitchTo(oldcontext);
	}
	return entry;
}

/*
 * Converts value from one type to another.  The result may be the value
 * itself; otherwise it lives in econtext's per-tuple memory.  Errors are those
 * of the types' own conversion.
 */
Datum
psm_cast(ExprContext *econtext, Datum value, bool *isnull, Oid type, int32 typmod,
		 Oid to_type, int32 to_typmod)
{
	CastEntry  *entry;
	ExprState  *state;
	bool		in_use;
	bool		once;
	MemoryContext oldcontext;

	if (type == to_type && (to_typmod == -1 || typmod == to_typmod))
		return value;
	if (*isnull && get_typtype(to_type) != TYPTYPE_DOMAIN)
		return (Datum) 0;

	entry = cast_lookup(econtext, type, typmod, to_type, to_typmod);
	if (entry->relabel)
		return value;

	oldcontext = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	econtext->caseValue_datum = value;
	econtext->caseValue_isNull = *isnull;

	/* busy further out, left half-way by an error, another role's: a state for this time only */
	in_use = entry->in_use;
	once = in_use || entry->role != GetUserId();
	state = once ? ExecInitExpr((Expr *) entry->cached->expr, NULL) : entry->state;
	entry->in_use = true;
	value = ExecEvalExpr(state, econtext, isnull);
	entry->in_use = in_use;
	MemoryContextSwitchTo(oldcontext);
	return value;
}

/* ---------- rows ---------- */

static int
live_columns(TupleDesc tupdesc)
{
	int			n = 0;

	for (int i = 0; i < tupdesc->natts; i++)
		n += !TupleDescAttr(tupdesc, i)->attisdropped;
	return n;
}

/*
 * Must rows of one kind be cast to become rows of another, column by column?
 * Errors: 42804 with the message given when the numbers of columns differ.
 */
bool
psm_rows_differ(TupleDesc from, TupleDesc to, const char *mismatch)
{
	int			n = live_columns(from);

	if (n != live_columns(to))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("%s", mismatch),
				 errdetail("It has %d columns where %d are expected.", n, live_columns(to))));
	if (from->natts != to->natts)
		return true;
	for (int i = 0; i < to->natts; i++)
	{
		Form_pg_attribute a = TupleDescAttr(from, i);
		Form_pg_attribute b = TupleDescAttr(to, i);

		if (a->attisdropped != b->attisdropped || a->atttypid != b->atttypid ||
			(b->atttypmod != -1 && a->atttypmod != b->atttypmod))
			return true;
	}
	return false;
}

/*
 * Casts the columns of a row by position, as assignments do.  What is cast lives
 * in econtext's per-tuple memory.
 */
void
psm_cast_row(ExprContext *econtext, TupleDesc from, const Datum *values, const bool *nulls,
			 TupleDesc to, Datum *to_values, bool *to_nulls)
{
	int			n = 0;

	for (int i = 0; i < to->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(to, i);
		Form_pg_attribute source;

		to_values[i] = (Datum) 0;
		to_nulls[i] = true;
		if (att->attisdropped)
			continue;
		while (TupleDescAttr(from, n)->attisdropped)
			n++;
		source = TupleDescAttr(from, n);
		to_nulls[i] = nulls[n];
		to_values[i] = psm_cast(econtext, values[n], &to_nulls[i], source->atttypid,
								source->atttypmod, att->atttypid, att->atttypmod);
		n++;
	}
}

/* A tuple of another descriptor, made in mcxt; errors as psm_rows_differ() */
HeapTuple
psm_cast_tuple(ExprContext *econtext, HeapTuple tuple, TupleDesc from, TupleDesc to,
			   MemoryContext mcxt, const char *mismatch)
{
	MemoryContext oldcontext;
	HeapTuple	result;

	if (!psm_rows_differ(from, to, mismatch))
	{
		oldcontext = MemoryContextSwitchTo(mcxt);
		result = heap_copytuple(tuple);
	}
	else
	{
		Datum	   *values;
		bool	   *nulls;
		Datum	   *to_values;
		bool	   *to_nulls;

		oldcontext = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		values = palloc(from->natts * sizeof(Datum));
		nulls = palloc(from->natts * sizeof(bool));
		to_values = palloc(to->natts * sizeof(Datum));
		to_nulls = palloc(to->natts * sizeof(bool));
		heap_deform_tuple(tuple, from, values, nulls);
		psm_cast_row(econtext, from, values, nulls, to, to_values, to_nulls);
		MemoryContextSwitchTo(mcxt);
		result = heap_form_tuple(to, to_values, to_nulls);
	}
	MemoryContextSwitchTo(oldcontext);
	return result;
}

/*
 * Whether a value of this type can be a condition: booleans, and strings and
 * JSON, which are taken as true or false at run time.  A number is a mistake.
 */
bool
psm_is_condition_type(Oid type)
{
	Oid			boolean = BOOLOID;

	return type == BOOLOID || type == JSONBOID || type == UNKNOWNOID ||
		TypeCategory(type) == TYPCATEGORY_STRING ||
		can_coerce_type(1, &type, &boolean, COERCION_ASSIGNMENT);
}
