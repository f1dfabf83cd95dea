/*
 * value.c
 *		The variables of an execution: their types, their values, assignment.
 *
 * A scalar is one Datum.  A row (a composite type, the row of a FOR loop, NEW
 * and OLD) is kept as one Datum a column, so that reading or setting a column
 * touches nothing else.  Values by reference are copies in PsmExec.mcxt that
 * we own, except a FOR row's, which point into the fetched batch and are valid
 * until the next row.
 */
#include "psm/psm.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "parser/parse_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

/* ---------- types ---------- */

/*
 * Does a script seem to use parts of a variable: columns of a row, behind a dot,
 * or elements of an array, behind a bracket?
 */
static bool
takes_apart(const char *source, const char *name, char mark)
{
	int			length = name ? strlen(name) : 0;

	for (; name != NULL && *source != '\0'; source++)
	{
		const char *behind = source + length;

		if (pg_strncasecmp(source, name, length) != 0)
			continue;
		behind += strspn(behind, "\" \t\r\n");
		if (*behind == mark)
			return true;
	}
	return false;
}

static void
var_set_type(PsmScript *script, PsmVar *var)
{
	get_typlenbyval(var->type, &var->typlen, &var->typbyval);
	if (!OidIsValid(var->collation))
		var->collation = get_typcollation(var->type);
	if (get_typtype(getBaseType(var->type)) == TYPTYPE_COMPOSITE)
	{
		TupleDesc	tupdesc = lookup_rowtype_tupdesc_domain(var->type, -1, false);
		MemoryContext oldcontext = MemoryContextSwitchTo(script->mcxt);

		var->kind = PSM_VAR_ROW;
		var->domain = get_typtype(var->type) == TYPTYPE_DOMAIN;
		var->tupdesc = CreateTupleDescCopy(tupdesc);
		MemoryContextSwitchTo(oldcontext);
		ReleaseTupleDesc(tupdesc);
		var->tupdesc_id = assign_record_type_identifier(getBaseType(var->type), -1);
	}
	else if (var->type == RECORDOID && takes_apart(script->source, var->name, '.'))
		var->kind = PSM_VAR_ROW;	/* an argument, whose columns each call brings */

	/* reading or setting an element of a flat array costs as much as the array is long */
	var->expanded = var->kind == PSM_VAR_SCALAR && var->typlen == -1 &&
		OidIsValid(get_element_type(var->type)) &&
		(takes_apart(script->source, var->name, '[') || strstr(script->source, "||") ||
		 strstr(script->source, "array_append"));
}

/* A declared type that is being looked up */
typedef struct TypeLookup
{
	const char *source;
	const PsmVar *var;
} TypeLookup;

/* What other systems call a type */
static const struct
{
	const char *theirs;
	const char *ours;
}			foreign_types[] = {
	{"binary", "bytea"},
	{"blob", "bytea"},
	{"clob", "text"},
	{"datetime", "timestamp"},
	{"double", "double precision"},
	{"long", "bigint"},
	{"number", "numeric"},
	{"string", "text"},
	{"tinyint", "smallint"},
	{"varbinary", "bytea"},
	{"varchar2", "varchar"}
};

/* Error context of a type that cannot be had; what PostgreSQL says has no place */
static void
type_error_callback(void *arg)
{
	const TypeLookup *lookup = arg;

	const char *name = lookup->var->typename;

	if (geterrposition() <= 0)
		psm_errposition(lookup->source, lookup->var->pos.offset);
	if (name == NULL || geterrcode() != ERRCODE_UNDEFINED_OBJECT)
		return;
	for (int i = 0; i < lengthof(foreign_types); i++)
	{
		int			length = strlen(foreign_types[i].theirs);

		if (pg_strncasecmp(name, foreign_types[i].theirs, length) == 0 &&
			(name[length] == '\0' || strchr(" ([", name[length])))
			errhint("PostgreSQL's name for it is %s.", foreign_types[i].ours);
	}
}

/*
 * Looks up the declared types of a new script.  Errors: 42704 for an unknown
 * type, 0A000 for one that no variable can have.
 */
void
psm_types_resolve(PsmScript *script)
{
	TypeLookup	lookup = {script->source, NULL};
	ErrorContextCallback context;

	context.callback = type_error_callback;
	context.arg = &lookup;
	context.previous = error_context_stack;
	error_context_stack = &context;
	for (int i = 0; i < script->nvars; i++)
	{
		PsmVar	   *var = script->vars[i];

		lookup.var = var;
		if (var->for_row)
			continue;
		if (var->typename == NULL)
		{
			if (OidIsValid(var->type))	/* a function's argument */
				var_set_type(script, var);
			continue;			/* otherwise a CASE's operand, whose type comes at run time */
		}
		parseTypeString(var->typename, &var->type, &var->typmod, tw_hard_errors);
		if (get_typtype(var->type) == TYPTYPE_PSEUDO)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("variable \"%s\" cannot have pseudo-type %s", var->name,
							format_type_be(var->type))));
		var_set_type(script, var);
	}
	error_context_stack = context.previous;
}

/* False when DDL has since dropped or changed a type that the script declares */
bool
psm_types_current(PsmScript *script)
{
	for (int i = 0; i < script->nvars; i++)
	{
		PsmVar	   *var = script->vars[i];

		if (var->for_row || var->type < FirstNormalObjectId)
			continue;
		if (!SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(var->type)))
			return false;
		if (var->kind == PSM_VAR_ROW &&
			assign_record_type_identifier(getBaseType(var->type), -1) != var->tupdesc_id)
			return false;
	}
	return true;
}

/* Tells versions of a composite type, or of that of an array's elements, apart; others: 0 */
uint64
psm_row_version(Oid type)
{
	Oid			base;
	Oid			element;

	if (type < FirstNormalObjectId)
		return 0;
	base = getBaseType(type);
	element = get_element_type(base);
	if (OidIsValid(element))
		base = getBaseType(element);
	return get_typtype(base) == TYPTYPE_COMPOSITE ? assign_record_type_identifier(base, -1) : 0;
}

/* What stands between the elements of an array's text: mostly a comma, not so with boxes */
char
psm_array_delimiter(Oid element)
{
	int16		length;
	bool		byval;
	char		align;
	char		delimiter;
	Oid			ioparam;
	Oid			input;

	get_type_io_data(element, IOFunc_input, &length, &byval, &align, &delimiter, &ioparam, &input);
	return delimiter;
}

/* ---------- rows ---------- */

/* Number from 0 of a row variable's column, or -1 */
int
psm_row_field(const PsmVar *var, const char *name)
{
	if (var->tupdesc == NULL)
		return -1;
	for (int i = 0; i < var->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(var->tupdesc, i);

		if (!att->attisdropped && strcmp(NameStr(att->attname), name) == 0)
			return i;
	}
	return -1;
}

static void
row_alloc(PsmExec *ex, PsmVar *var)
{
	PsmValue   *v = &ex->values[var->number];
	int			n = var->tupdesc->natts;

	if (v->nfields == n)
		return;
	v->fields = MemoryContextAllocZero(ex->mcxt, n * sizeof(Datum));
	v->nulls = MemoryContextAlloc(ex->mcxt, n * sizeof(bool));
	v->owned_fields = MemoryContextAllocZero(ex->mcxt, n * sizeof(bool));
	memset(v->nulls, true, n * sizeof(bool));
	v->nfields = n;
	v->isnull = true;
}

/*
 * The columns of a FOR row or the type of a CASE's operand are about to change,
 * so plans made for the old ones are made again.  Where they were known before,
 * another execution of the script further out may hold values of the old types:
 * refused then.
 */
void
psm_shape_change(PsmExec *ex, bool known)
{
	if (known && ex->script->in_use > 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("types in the block have changed while it is running"),
				 errdetail("The block runs inside itself, and a query of it now gives other types.")));
	ex->script->shape++;
}

/*
 * Gives a FOR row the columns of its query.  When they are not what they were,
 * every plan that may name them is made again (PsmScript.shape).
 */
void
psm_row_describe(PsmExec *ex, PsmVar *var, TupleDesc tupdesc)
{
	if (var->tupdesc == NULL || !equalTupleDescs(var->tupdesc, tupdesc))
	{
		MemoryContext oldcontext;

		psm_shape_change(ex, var->tupdesc != NULL);
		oldcontext = MemoryContextSwitchTo(ex->script->mcxt);
		if (var->tupdesc != NULL)
			FreeTupleDesc(var->tupdesc);
		var->tupdesc = BlessTupleDesc(CreateTupleDescCopy(tupdesc));
		var->type = RECORDOID;
		var->typmod = var->tupdesc->tdtypmod;
		MemoryContextSwitchTo(oldcontext);
	}
	row_alloc(ex, var);
}

/* Gives the operand of a CASE its type, as its expression has it */
void
psm_operand_describe(PsmExec *ex, PsmVar *var, Oid type)
{
	if (var->type == type)
		return;
	psm_shape_change(ex, OidIsValid(var->type));
	var->type = type;
	var->typmod = -1;
	var->collation = get_typcollation(type);
	get_typlenbyval(type, &var->typlen, &var->typbyval);
}

static void
field_release(PsmValue *v, int i)
{
	if (v->owned_fields[i])
		pfree(DatumGetPointer(v->fields[i]));
	v->owned_fields[i] = false;
}

/* Points a FOR row at a fetched row, which must outlive the loop's body; NULL: none */
void
psm_row_set(PsmExec *ex, PsmVar *var, HeapTuple tuple, TupleDesc tupdesc)
{
	PsmValue   *v = &ex->values[var->number];

	v->isnull = tuple == NULL;
	v->changed = false;
	if (tuple != NULL)
		heap_deform_tuple(tuple, tupdesc, v->fields, v->nulls);
	else
		memset(v->nulls, true, v->nfields * sizeof(bool));
}

/*
 * A row as one Datum has the name of its type, and whoever takes it goes by the columns that
 * this has now.  When the block has altered the table or type since it was compiled, they may
 * not be those of the row.  Errors: 55006 then.
 */
static Datum
row_form(const PsmVar *var, Datum *values, bool *nulls)
{
	Oid			type = var->domain ? getBaseType(var->type) : var->type;
	TupleDesc	tupdesc;
	bool		same;

	if (var->tupdesc_id != 0 && assign_record_type_identifier(type, -1) != var->tupdesc_id)
	{
		tupdesc = lookup_rowtype_tupdesc(type, -1);
		same = tupdesc->natts >= var->tupdesc->natts;
		for (int i = 0; same && i < var->tupdesc->natts; i++)
		{
			Form_pg_attribute ours = TupleDescAttr(var->tupdesc, i);
			Form_pg_attribute theirs = TupleDescAttr(tupdesc, i);

			same = ours->attlen == theirs->attlen && ours->attalign == theirs->attalign &&
				(ours->atttypid == theirs->atttypid || theirs->attisdropped);
		}
		ReleaseTupleDesc(tupdesc);
		if (!same)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("types in the block have changed while it is running"),
					 errdetail("Row variable \"%s\" has the columns of type %s as they were before.",
							   var->name ? var->name : "row", format_type_be(type))));
	}
	return HeapTupleGetDatum(heap_form_tuple(var->tupdesc, values, nulls));
}

/* A row as one Datum, in the current memory context: a query may ask for it once a row */
Datum
psm_row_datum(PsmExec *ex, PsmVar *var, bool *isnull)
{
	PsmValue   *v = &ex->values[var->number];

	*isnull = v->isnull || var->tupdesc == NULL || v->nfields != var->tupdesc->natts;
	if (*isnull)
		return (Datum) 0;
	return row_form(var, v->fields, v->nulls);
}

/* ---------- assignment ---------- */

void
psm_values_init(PsmExec *ex)
{
	PsmScript  *script = ex->script;

	for (int i = 0; i < script->nvars; i++)
	{
		ex->values[i].isnull = true;
		if (script->vars[i]->kind == PSM_VAR_ROW && script->vars[i]->tupdesc != NULL)
			row_alloc(ex, script->vars[i]);
	}
}

/* A copy in the current context; out-of-line values are fetched, expanded ones flattened */
static Datum
copy_value(Datum value, int16 typlen)
{
	if (typlen == -1 && VARATT_IS_EXTERNAL_NON_EXPANDED(DatumGetPointer(value)))
		return PointerGetDatum(detoast_external_attr((struct varlena *) DatumGetPointer(value)));
	return datumCopy(value, false, typlen);
}

static void
value_free(PsmVar *var, Datum value)
{
	if (var->expanded && VARATT_IS_EXTERNAL_EXPANDED_RW(DatumGetPointer(value)))
		DeleteExpandedObject(value);
	else
		pfree(DatumGetPointer(value));
}

static void
scalar_store(PsmExec *ex, PsmVar *var, Datum value, bool isnull)
{
	PsmValue   *v = &ex->values[var->number];
	Datum		old = v->value;
	bool		owned = v->owned;

	if (var->expanded && !isnull)
	{
		if (owned && value == old)
			return;				/* it was changed in place */
		v->value = VARATT_IS_EXTERNAL_EXPANDED_RW(DatumGetPointer(value)) ?
			TransferExpandedObject(value, ex->mcxt) : expand_array(value, ex->mcxt, NULL);
		v->owned = true;
	}
	else if (var->typbyval || isnull)
	{
		v->value = isnull ? (Datum) 0 : value;
		v->owned = false;
	}
	else
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(ex->mcxt);

		/* copied before the old value goes: it may be the same, or a part of it */
		v->value = copy_value(value, var->typlen);
		v->owned = true;
		MemoryContextSwitchTo(oldcontext);
	}
	v->isnull = isnull;
	if (owned)
		value_free(var, old);
}

/* Gives an argument its value, which is not ours to free and outlives the call */
void
psm_argument_set(PsmExec *ex, PsmVar *var, Datum value, bool isnull)
{
	PsmValue   *v = &ex->values[var->number];

	v->isnull = isnull;
	if (isnull)
		v->value = (Datum) 0;
	else if (var->expanded && !VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
	{
		v->value = expand_array(value, ex->mcxt, NULL);
		v->owned = true;
	}
	else
		v->value = MakeExpandedObjectReadOnly(value, false, var->typlen);
}

static void
field_store(PsmExec *ex, PsmVar *var, int field, Datum value, bool isnull)
{
	PsmValue   *v = &ex->values[var->number];
	Form_pg_attribute att = TupleDescAttr(var->tupdesc, field);
	Datum		copy = (Datum) 0;
	bool		owned = false;

	if (!isnull)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(ex->mcxt);

		copy = att->attbyval ? value : copy_value(value, att->attlen);
		owned = !att->attbyval;
		MemoryContextSwitchTo(oldcontext);
	}
	field_release(v, field);
	v->changed = true;
	v->fields[field] = copy;
	v->nulls[field] = isnull;
	v->owned_fields[field] = owned;
}

static void
row_set_null(PsmExec *ex, PsmVar *var)
{
	PsmValue   *v = &ex->values[var->number];

	for (int i = 0; i < v->nfields; i++)
	{
		field_release(v, i);
		v->fields[i] = (Datum) 0;
		v->nulls[i] = true;
	}
	v->isnull = true;
	v->changed = true;
}

/* A domain over a composite type: checks what its variable is about to hold */
static void
row_check_domain(PsmExec *ex, PsmVar *var, Datum *values, bool *nulls, bool isnull)
{
	Datum		row = (Datum) 0;
	MemoryContext oldcontext;

	if (!var->domain)
		return;
	oldcontext = MemoryContextSwitchTo(psm_econtext(ex)->ecxt_per_tuple_memory);
	if (!isnull)
		row = row_form(var, values, nulls);
	domain_check(row, isnull, var->type, NULL, NULL);
	MemoryContextSwitchTo(oldcontext);
}

static void
field_check_domain(PsmExec *ex, PsmVar *var, int field, Datum value, bool isnull)
{
	PsmValue   *v = &ex->values[var->number];
	MemoryContext oldcontext = MemoryContextSwitchTo(psm_econtext(ex)->ecxt_per_tuple_memory);
	Datum	   *values = palloc(v->nfields * sizeof(Datum));
	bool	   *nulls = palloc(v->nfields * sizeof(bool));

	memcpy(values, v->fields, v->nfields * sizeof(Datum));
	memcpy(nulls, v->nulls, v->nfields * sizeof(bool));
	values[field] = value;
	nulls[field] = isnull;
	MemoryContextSwitchTo(oldcontext);
	row_check_domain(ex, var, values, nulls, false);
}

/* Assigns the columns of a tuple to a row, by position, each cast to its column's type */
static void
row_store_tuple(PsmExec *ex, PsmVar *var, HeapTuple tuple, TupleDesc tupdesc)
{
	PsmValue   *v = &ex->values[var->number];
	ExprContext *econtext = psm_econtext(ex);
	int			n;
	Datum	   *values;
	bool	   *nulls;
	int			from = 0;

	if (var->type == RECORDOID)
		psm_row_describe(ex, var, tupdesc);
	n = v->nfields;
	values = MemoryContextAlloc(econtext->ecxt_per_tuple_memory, n * sizeof(Datum));
	nulls = MemoryContextAlloc(econtext->ecxt_per_tuple_memory, n * sizeof(bool));
	for (int i = 0; i < n; i++)
	{
		Form_pg_attribute att = TupleDescAttr(var->tupdesc, i);

		values[i] = (Datum) 0;
		nulls[i] = true;
		if (att->attisdropped)
			continue;
		while (from < tupdesc->natts && TupleDescAttr(tupdesc, from)->attisdropped)
			from++;
		if (from < tupdesc->natts)
		{
			Form_pg_attribute source = TupleDescAttr(tupdesc, from);

			values[i] = heap_getattr(tuple, from + 1, tupdesc, &nulls[i]);
			values[i] = psm_cast(econtext, values[i], &nulls[i], source->atttypid,
								 source->atttypmod, att->atttypid, att->atttypmod);
			from++;
		}
	}
	row_check_domain(ex, var, values, nulls, false);
	for (int i = 0; i < n; i++)
		field_store(ex, var, i, values[i], nulls[i]);
	v->isnull = false;
}

static void
row_store_datum(PsmExec *ex, PsmVar *var, Datum value, bool isnull, Oid type)
{
	HeapTupleData tuple;
	TupleDesc	tupdesc;

	if (isnull)
	{
		row_check_domain(ex, var, NULL, NULL, true);
		row_set_null(ex, var);
		return;
	}
	if (!type_is_rowtype(type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("cannot assign a value of type %s to row variable \"%s\"",
						format_type_be(type), var->name)));
	tupdesc = psm_datum_tuple(value, &tuple);
	row_store_tuple(ex, var, &tuple, tupdesc);
	ReleaseTupleDesc(tupdesc);
}

/* A row value as a tuple, with its descriptor, which the caller releases */
TupleDesc
psm_datum_tuple(Datum value, HeapTuple tuple)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(value);

	tuple->t_len = HeapTupleHeaderGetDatumLength(header);
	ItemPointerSetInvalid(&tuple->t_self);
	tuple->t_tableOid = InvalidOid;
	tuple->t_data = header;
	return lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header),
								  HeapTupleHeaderGetTypMod(header));
}

/* Sets a variable to NULL, as a declaration without DEFAULT does */
void
psm_set_null(PsmExec *ex, PsmVar *var)
{
	if (var->kind == PSM_VAR_ROW)
	{
		row_check_domain(ex, var, NULL, NULL, true);
		row_set_null(ex, var);
	}
	else
	{
		bool		isnull = true;

		if (var->type >= FirstNormalObjectId)	/* a domain may refuse it */
			psm_cast(psm_econtext(ex), (Datum) 0, &isnull, UNKNOWNOID, -1, var->type, var->typmod);
		scalar_store(ex, var, (Datum) 0, true);
	}
}

static void
no_such_field(PsmExec *ex, const PsmTarget *target)
{
	PsmGuess	guess;

	psm_guess_init(&guess, target->field);
	psm_guess_fields(&guess, target->var);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg(PSM_NO_SUCH_FIELD, target->var->name, target->field),
			 guess.best ? errhint("Perhaps you meant the column \"%s.%s\".", target->var->name,
								  guess.best) : 0,
			 psm_run_errposition(ex, target->pos.offset)));
}

/* Assigns a value of any type; it is cast as an assignment in PL/pgSQL would */
void
psm_assign(PsmExec *ex, const PsmTarget *target, Datum value, bool isnull, Oid type, int32 typmod)
{
	PsmVar	   *var = target->var;

	if (target->field != NULL)
	{
		int			field = psm_row_field(var, target->field);
		Form_pg_attribute att;

		if (field < 0)
			no_such_field(ex, target);
		att = TupleDescAttr(var->tupdesc, field);
		value = psm_cast(psm_econtext(ex), value, &isnull, type, typmod,
						 att->atttypid, att->atttypmod);
		if (var->domain)
			field_check_domain(ex, var, field, value, isnull);
		field_store(ex, var, field, value, isnull);
		ex->values[var->number].isnull = false;
	}
	else if (var->kind == PSM_VAR_ROW)
		row_store_datum(ex, var, value, isnull, type);
	else
	{
		if (type != var->type || (var->typmod != -1 && var->typmod != typmod))
			value = psm_cast(psm_econtext(ex), value, &isnull, type, typmod,
							 var->type, var->typmod);
		scalar_store(ex, var, value, isnull);
	}
}

/*
 * Assigns a query's row to the targets of INTO.  One row variable takes all
 * columns; otherwise there must be as many targets as columns (42601).
 */
void
psm_assign_tuple(PsmExec *ex, List *targets, HeapTuple tuple, TupleDesc tupdesc)
{
	PsmTarget  *first = linitial(targets);
	ListCell   *lc;
	int			i = 0;

	if (list_length(targets) == 1 && first->var->kind == PSM_VAR_ROW && first->field == NULL &&
		!(tupdesc->natts == 1 && TupleDescAttr(tupdesc, 0)->atttypid == first->var->type))
	{
		row_store_tuple(ex, first->var, tuple, tupdesc);
		return;
	}
	if (list_length(targets) != tupdesc->natts)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg(PSM_COLUMNS_DIFFER,
						tupdesc->natts, list_length(targets))));
	foreach(lc, targets)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);
		bool		isnull;
		Datum		value = heap_getattr(tuple, ++i, tupdesc, &isnull);

		psm_assign(ex, lfirst(lc), value, isnull, att->atttypid, att->atttypmod);
	}
}

/* Assigns the row of SELECT ... INTO, FETCH and the like; no row leaves the targets as they are */
void
psm_assign_into(PsmExec *ex, List *into, SPITupleTable *tuples, uint64 n)
{
	if (tuples == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("INTO used with a statement that returns no rows")));
	if (n > 1)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("query returned more than one row"),
				 errhint("INTO takes one row: make the condition unique, or use a FOR loop.")));
	if (n == 1)
		psm_assign_tuple(ex, into, tuples->vals[0], tuples->tupdesc);
}
