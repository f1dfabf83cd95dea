/*
 * trigger.c
 *		LANGUAGE psm: row and statement triggers.
 *
 * NEW and OLD are row variables; the values that PL/pgSQL calls TG_OP, TG_NAME
 * and so on are variables of the same names.  Those that the body does not
 * mention are not filled.
 *
 * As in the SQL standard a BEFORE row trigger need not return anything: the row
 * as NEW has it goes on.  RETURN NULL skips the row, RETURN OLD or another row
 * puts that in its place, as in PL/pgSQL.
 */
#include "psm/psm.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

/* The variables of a trigger function, in this order */
typedef enum TriggerVar
{
	VAR_NEW,
	VAR_OLD,
	VAR_NAME,
	VAR_WHEN,
	VAR_LEVEL,
	VAR_OP,
	VAR_RELID,
	VAR_RELNAME,
	VAR_TABLE_NAME,
	VAR_TABLE_SCHEMA,
	VAR_NARGS,
	VAR_ARGV,
	NUM_TRIGGER_VARS
} TriggerVar;

static const struct
{
	const char *name;
	Oid			type;
}			trigger_vars[NUM_TRIGGER_VARS] = {
	[VAR_NEW] = {"new", InvalidOid},	/* the table's row type */
	[VAR_OLD] = {"old", InvalidOid},
	[VAR_NAME] = {"tg_name", NAMEOID},
	[VAR_WHEN] = {"tg_when", TEXTOID},
	[VAR_LEVEL] = {"tg_level", TEXTOID},
	[VAR_OP] = {"tg_op", TEXTOID},
	[VAR_RELID] = {"tg_relid", OIDOID},
	[VAR_RELNAME] = {"tg_relname", NAMEOID},
	[VAR_TABLE_NAME] = {"tg_table_name", NAMEOID},
	[VAR_TABLE_SCHEMA] = {"tg_table_schema", NAMEOID},
	[VAR_NARGS] = {"tg_nargs", INT4OID},
	[VAR_ARGV] = {"tg_argv", TEXTARRAYOID},
};

/* One call of a trigger */
typedef struct TriggerCall
{
	TriggerData *data;
	MemoryContext caller;
	bool		returned;
	HeapTuple	tuple;			/* that was returned; NULL: none */
} TriggerCall;

/*
 * The variables of a trigger function on a table; rel NULL: of any table, when
 * the function is being created, and NEW and OLD have no columns then.
 */
int
psm_trigger_arguments(Relation rel, PsmArgument **args)
{
	*args = palloc0(NUM_TRIGGER_VARS * sizeof(PsmArgument));
	for (int i = 0; i < NUM_TRIGGER_VARS; i++)
	{
		(*args)[i].name = trigger_vars[i].name;
		(*args)[i].type = OidIsValid(trigger_vars[i].type) ? trigger_vars[i].type
			: rel ? rel->rd_rel->reltype : RECORDOID;
		(*args)[i].typmod = -1;
	}
	return NUM_TRIGGER_VARS;
}

static Datum
trigger_value(const TriggerData *data, TriggerVar var)
{
	const Trigger *trigger = data->tg_trigger;
	TriggerEvent event = data->tg_event;
	Relation	rel = data->tg_relation;

	switch (var)
	{
		case VAR_NAME:
			return DirectFunctionCall1(namein, CStringGetDatum(trigger->tgname));
		case VAR_WHEN:
			return CStringGetTextDatum(TRIGGER_FIRED_BEFORE(event) ? "BEFORE" :
									   TRIGGER_FIRED_AFTER(event) ? "AFTER" : "INSTEAD OF");
		case VAR_LEVEL:
			return CStringGetTextDatum(TRIGGER_FIRED_FOR_ROW(event) ? "ROW" : "STATEMENT");
		case VAR_OP:
			return CStringGetTextDatum(TRIGGER_FIRED_BY_INSERT(event) ? "INSERT" :
									   TRIGGER_FIRED_BY_UPDATE(event) ? "UPDATE" :
									   TRIGGER_FIRED_BY_DELETE(event) ? "DELETE" : "TRUNCATE");
		case VAR_RELID:
			return ObjectIdGetDatum(RelationGetRelid(rel));
		case VAR_RELNAME:
		case VAR_TABLE_NAME:
			return DirectFunctionCall1(namein, CStringGetDatum(RelationGetRelationName(rel)));
		case VAR_TABLE_SCHEMA:
			{
				char	   *schema = get_namespace_name(RelationGetNamespace(rel));

				return DirectFunctionCall1(namein, CStringGetDatum(schema));
			}
		case VAR_NARGS:
			return Int32GetDatum(trigger->tgnargs);
		case VAR_ARGV:
			{
				Datum	   *elems = palloc(Max(trigger->tgnargs, 1) * sizeof(Datum));
				int			dims[1] = {trigger->tgnargs};
				int			lower[1] = {0}; /* counted from 0, as in PL/pgSQL */

				for (int i = 0; i < trigger->tgnargs; i++)
					elems[i] = CStringGetTextDatum(trigger->tgargs[i]);
				return PointerGetDatum(construct_md_array(elems, NULL, trigger->tgnargs > 0 ? 1 : 0,
														  dims, lower, TEXTOID, -1, false,
														  TYPALIGN_INT));
			}
		case VAR_NEW:
		case VAR_OLD:
		case NUM_TRIGGER_VARS:
			break;
	}
	return (Datum) 0;
}

static bool
mentions(const char *source, const char *name)
{
	int			length = strlen(name);

	for (; *source; source++)
	{
		if (pg_strncasecmp(source, name, length) == 0)
			return true;
	}
	return false;
}

/* Before the row is written its generated columns are not computed yet */
static void
forget_generated(PsmValue *v, TupleDesc tupdesc)
{
	if (tupdesc->constr == NULL || !tupdesc->constr->has_generated_stored)
		return;
	for (int i = 0; i < tupdesc->natts; i++)
	{
		if (TupleDescAttr(tupdesc, i)->attgenerated)
			v->nulls[i] = true;
	}
}

static void
bind_rows(PsmExec *ex, const TriggerData *data)
{
	TupleDesc	tupdesc = RelationGetDescr(data->tg_relation);
	HeapTuple	new = NULL;
	HeapTuple	old = NULL;

	if (TRIGGER_FIRED_FOR_ROW(data->tg_event))
	{
		if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		{
			new = data->tg_newtuple;
			old = data->tg_trigtuple;
		}
		else if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
			new = data->tg_trigtuple;
		else
			old = data->tg_trigtuple;
	}
	psm_row_set(ex, ex->script->vars[VAR_NEW], new, tupdesc);
	if (new != NULL && TRIGGER_FIRED_BEFORE(data->tg_event))
		forget_generated(&ex->values[VAR_NEW], tupdesc);
	psm_row_set(ex, ex->script->vars[VAR_OLD], old, tupdesc);
}

/* Notes which of the values a new script mentions: the others need not be made */
void
psm_trigger_mentions(PsmScript *script)
{
	script->mentioned = 0;
	for (int i = 0; i < NUM_TRIGGER_VARS; i++)
	{
		if (mentions(script->source, trigger_vars[i].name))
			script->mentioned |= 1 << i;
	}
}

static void
bind_values(PsmExec *ex, const TriggerData *data)
{
	for (int i = VAR_NAME; i < NUM_TRIGGER_VARS; i++)
	{
		if (!(ex->script->mentioned & (1 << i)))
			continue;
		ex->values[i].value = trigger_value(data, i);
		ex->values[i].isnull = false;
	}
}

/* ---------- returning ---------- */

/* NEW or OLD as a tuple of the table, in the caller's memory */
static HeapTuple
row_tuple(PsmExec *ex, TriggerCall *call, TriggerVar which)
{
	PsmValue   *v = &ex->values[which];
	TriggerData *data = call->data;
	MemoryContext oldcontext;
	HeapTuple	tuple;

	if (v->isnull)
		return NULL;
	if (!v->changed)
		return which == VAR_NEW && TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple
			: data->tg_trigtuple;
	oldcontext = MemoryContextSwitchTo(call->caller);
	tuple = heap_form_tuple(RelationGetDescr(data->tg_relation), v->fields, v->nulls);
	MemoryContextSwitchTo(oldcontext);
	return tuple;
}

/* Any row that was returned, as a tuple of the table */
static HeapTuple
datum_tuple(PsmExec *ex, TriggerCall *call, Datum value, Oid type)
{
	HeapTupleData tuple;
	TupleDesc	from;
	HeapTuple	result;

	if (!type_is_rowtype(type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("a trigger must return a row of its table, not a value of type %s",
						format_type_be(type))));
	from = psm_datum_tuple(value, &tuple);
	result = psm_cast_tuple(psm_econtext(ex), &tuple, from,
							RelationGetDescr(call->data->tg_relation), call->caller,
							"the returned row does not match the trigger's table");
	ReleaseTupleDesc(from);
	return result;
}

/* Is it the trigger's row that is returned, and no variable of the body's that has its name? */
static bool
returns_row(const PsmExec *ex, const PsmExpr *value, TriggerVar which)
{
	const char *name = trigger_vars[which].name;
	int			field;

	return pg_strcasecmp(value->text, name) == 0 &&
		psm_lookup_name(value, NULL, name, &field) == ex->script->vars[which];
}

/* PsmExec.do_return of triggers */
static void
do_return(PsmExec *ex, PsmReturn *stmt)
{
	TriggerCall *call = ex->return_arg;
	bool		isnull;
	Oid			type;
	int32		typmod;
	Datum		value;

	if (stmt->value == NULL)
		return;					/* as if the body had ended */
	if (returns_row(ex, stmt->value, VAR_NEW))
		call->tuple = row_tuple(ex, call, VAR_NEW);
	else if (returns_row(ex, stmt->value, VAR_OLD))
		call->tuple = row_tuple(ex, call, VAR_OLD);
	else
	{
		value = psm_eval(ex, stmt->value, &isnull, &type, &typmod);
		call->tuple = isnull || !TRIGGER_FIRED_FOR_ROW(call->data->tg_event) ? NULL
			: datum_tuple(ex, call, value, type);
		psm_eval_cleanup(ex);
	}
	call->returned = true;		/* not before: a handler may go on behind a RETURN that failed */
}

/* Calls a trigger function; SPI is not connected yet */
Datum
psm_trigger_call(FunctionCallInfo fcinfo, PsmScript *script)
{
	TriggerCall call = {(TriggerData *) fcinfo->context, CurrentMemoryContext};
	TriggerEvent event = call.data->tg_event;
	PsmExec    *ex;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_register_trigger_data(call.data) < 0)
		elog(ERROR, "SPI_register_trigger_data failed");
	ex = psm_exec_create(script);
	ex->do_return = do_return;
	ex->return_arg = &call;
	bind_rows(ex, call.data);
	bind_values(ex, call.data);

	psm_exec_run(ex);

	if (!TRIGGER_FIRED_FOR_ROW(event) || TRIGGER_FIRED_AFTER(event))
		call.tuple = NULL;
	else if (!call.returned)
		call.tuple = row_tuple(ex, &call, TRIGGER_FIRED_BY_DELETE(event) ? VAR_OLD : VAR_NEW);
	if (ex->econtext != NULL)
		psm_econtext_pop(ex->econtext);
	SPI_finish();
	fcinfo->isnull = false;
	return PointerGetDatum(call.tuple);
}
