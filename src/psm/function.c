/*
 * function.c
 *		LANGUAGE psm: functions and procedures, compiled once and called.
 *
 * Compiled functions are kept for the session by function, trigger, collation
 * and the actual types of polymorphic arguments.  An entry is never removed, so
 * FmgrInfo.fn_extra may point at it; what it holds is replaced when pg_proc has
 * another version of the function, or DDL another one of a type it uses.
 * Replaced while it runs, a script goes when its last execution ends.
 *
 * Arguments and results follow CREATE FUNCTION: IN, OUT, INOUT, VARIADIC and
 * defaults, scalar, composite, record and polymorphic results, and sets, which
 * RETURN TABLE fills.
 */
#include "psm/psm.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/itemptr.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

typedef struct FunctionKey
{
	Oid			function;
	Oid			trigger;		/* InvalidOid: not called as a trigger */
	Oid			collation;
	Oid			argtypes[FUNC_MAX_ARGS];	/* of a polymorphic function; otherwise zeros */
} FunctionKey;

struct PsmFunction
{
	FunctionKey key;
	PsmScript  *script;			/* NULL: to be compiled */

	/* the version of pg_proc's row that was compiled */
	TransactionId xmin;
	ItemPointerData tid;

	/* the rest is valid with script */
	bool		trigger;
	bool		read_only;
	bool		procedure;
	Oid			rettype;		/* polymorphic ones resolved */
	int16		retlen;
	bool		retbyval;
	bool		rettuple;		/* composite or record */
	bool		retset;
	int			nin;
	int		   *in;				/* variable of each input argument */
	int			nout;
	int		   *out;			/* variable of each output argument */
};

/* One call of a function that is no trigger */
typedef struct FunctionCall
{
	PsmFunction function;		/* as it was called: the entry may be compiled anew meanwhile,
								 * but what this points to lives as long as the script that
								 * is running */
	FunctionCallInfo fcinfo;
	MemoryContext caller;		/* where the result goes */
	ResourceOwner owner;		/* and whose its file is */
	bool		returned;
	Datum		value;
	bool		isnull;
	Tuplestorestate *tuples;	/* sets: what RETURN TABLE gave */
} FunctionCall;

static HTAB *functions = NULL;

/* ---------- compiling ---------- */

/* What pg_proc says of a function's arguments, types resolved */
typedef struct Signature
{
	int			nargs;
	Oid		   *types;
	char	  **names;			/* NULL: none has one */
	char	   *modes;			/* NULL: all IN */
} Signature;

static bool
is_input(const Signature *sig, int i)
{
	return sig->modes == NULL || sig->modes[i] == PROARGMODE_IN ||
		sig->modes[i] == PROARGMODE_INOUT || sig->modes[i] == PROARGMODE_VARIADIC;
}

static bool
is_output(const Signature *sig, int i)
{
	return sig->modes != NULL &&
		(sig->modes[i] == PROARGMODE_OUT || sig->modes[i] == PROARGMODE_INOUT ||
		 sig->modes[i] == PROARGMODE_TABLE);
}

/* What the validator takes for a polymorphic type: any that does */
static Oid
sample_type(Oid type)
{
	switch (type)
	{
		case ANYELEMENTOID:
		case ANYNONARRAYOID:
		case ANYENUMOID:		/* not quite, but good enough to look at the text */
		case ANYCOMPATIBLEOID:
		case ANYCOMPATIBLENONARRAYOID:
			return INT4OID;
		case ANYARRAYOID:
		case ANYCOMPATIBLEARRAYOID:
			return INT4ARRAYOID;
		case ANYRANGEOID:
		case ANYCOMPATIBLERANGEOID:
			return INT4RANGEOID;
		case ANYMULTIRANGEOID:
		case ANYCOMPATIBLEMULTIRANGEOID:
			return INT4MULTIRANGEOID;
		default:
			return type;
	}
}

/* fn_expr: the call, which tells the actual types; validating: sample types do */
static void
read_signature(HeapTuple proc, Node *fn_expr, bool validating, Signature *sig)
{
	sig->nargs = get_func_arg_info(proc, &sig->types, &sig->names, &sig->modes);
	if (validating)
	{
		for (int i = 0; i < sig->nargs; i++)
			sig->types[i] = sample_type(sig->types[i]);
	}
	else if (!resolve_polymorphic_argtypes(sig->nargs, sig->types, sig->modes, fn_expr))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("could not determine actual argument types for polymorphic function \"%s\"",
						NameStr(((Form_pg_proc) GETSTRUCT(proc))->proname))));
}

/* RETURN must suit the result that the function declares */
static void
check_returns(const PsmFunction *function, const PsmScript *script)
{
	for (int i = 0; i < script->nstmts; i++)
	{
		PsmReturn  *stmt = (PsmReturn *) script->stmts[i];
		const char *problem = NULL;
		const char *hint = NULL;

		if (stmt->stmt.kind != PSM_RETURN)
			continue;
		if (function->trigger)
		{
			if (stmt->query != NULL)
				problem = "a trigger function cannot RETURN TABLE";
		}
		else if (function->retset)
		{
			if (stmt->value != NULL)
			{
				problem = "a function that returns a set returns it by RETURN TABLE";
				hint = "Write RETURN TABLE and a query.";
			}
		}
		else if (stmt->query != NULL)
		{
			problem = "RETURN TABLE needs a function that returns a set";
			hint = "Declare it RETURNS SETOF or RETURNS TABLE.";
		}
		else if (stmt->value != NULL && function->nout > 0)
		{
			problem = "RETURN cannot have a value in a routine with output arguments";
			hint = "Set the output arguments.";
		}
		else if (stmt->value != NULL && (function->procedure || function->rettype == VOIDOID))
			problem = "RETURN cannot have a value in a procedure or a function that returns void";
		else if (stmt->value == NULL && function->nout == 0 && !function->procedure &&
				 function->rettype != VOIDOID)
			problem = "RETURN needs a value in a function that returns one";
		if (problem != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("%s", problem),
					 hint ? errhint("%s", hint) : 0,
					 psm_errposition(script->source, stmt->stmt.pos.offset)));
	}
}

/* Parses and checks the body; the script is a child of the current context */
static PsmScript *
compile_body(const PsmFunction *function, HeapTuple proc, const PsmArgument *args, int nargs)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(proc);
	PsmSource	place;
	ErrorContextCallback context;
	PsmScript  *script;
	bool		isnull;
	Datum		source = SysCacheGetAttr(PROCOID, proc, Anum_pg_proc_prosrc, &isnull);

	if (isnull)
		elog(ERROR, "function %u has no source text", form->oid);
	place.text = TextDatumGetCString(source);
	place.function = format_procedure(form->oid);
	context.callback = psm_compile_error_callback;
	context.arg = &place;
	context.previous = error_context_stack;
	error_context_stack = &context;

	script = psm_parse(place.text, CurrentMemoryContext, NameStr(form->proname), args, nargs);
	script->function = MemoryContextStrdup(script->mcxt, place.function);
	script->nargs = function->trigger ? 0 : nargs;
	psm_types_resolve(script);
	psm_check(script);
	check_returns(function, script);

	error_context_stack = context.previous;
	return script;
}

/* The arguments as variables of the body, by position also $1, $2, ... */
static void
compile_arguments(PsmFunction *function, const Signature *sig, PsmArgument *args, int *in, int *out)
{
	for (int i = 0; i < sig->nargs; i++)
	{
		const char *name = sig->names ? sig->names[i] : NULL;

		args[i].name = name != NULL && name[0] != '\0' ? name : NULL;
		args[i].type = sig->types[i];
		args[i].typmod = -1;
		args[i].constant = false;
		if (is_input(sig, i))
			in[function->nin++] = i;
		if (is_output(sig, i))
			out[function->nout++] = i;
	}
}

static void
compile_result(PsmFunction *function, HeapTuple proc, FunctionCallInfo fcinfo, bool validating)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(proc);

	function->procedure = form->prokind == PROKIND_PROCEDURE;
	function->retset = form->proretset;
	function->rettype = form->prorettype;
	if (IsPolymorphicType(function->rettype))
	{
		function->rettype = validating ? sample_type(function->rettype)
			: get_fn_expr_rettype(fcinfo->flinfo);
		if (!OidIsValid(function->rettype))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("could not determine actual return type for polymorphic function \"%s\"",
							NameStr(form->proname))));
	}
	function->rettuple = type_is_rowtype(function->rettype);
	get_typlenbyval(function->rettype, &function->retlen, &function->retbyval);
}

/* Arguments and variables have the call's collation, so that comparisons in the body follow it */
static void
use_collation(PsmScript *script, Oid collation)
{
	for (int i = 0; i < script->nvars && OidIsValid(collation); i++)
	{
		if (OidIsValid(script->vars[i]->collation))
			script->vars[i]->collation = collation;
	}
}

static int *
copy_numbers(PsmScript *script, const int *numbers, int n)
{
	int		   *copy = MemoryContextAlloc(script->mcxt, Max(n, 1) * sizeof(int));

	memcpy(copy, numbers, n * sizeof(int));
	return copy;
}

/* Compiles a function into its entry.  rel: the table of a trigger, or NULL */
static void
compile(PsmFunction *function, HeapTuple proc, FunctionCallInfo fcinfo, Relation rel,
		bool validating)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(proc);
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "psm function",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcontext = MemoryContextSwitchTo(scratch);
	PsmScript  *script;
	PsmArgument *args;
	int			in[FUNC_MAX_ARGS];
	int			out[FUNC_MAX_ARGS];
	int			nargs;

	function->trigger = form->prorettype == TRIGGEROID;
	function->read_only = form->provolatile != PROVOLATILE_VOLATILE;
	function->nin = function->nout = 0;
	compile_result(function, proc, fcinfo, validating);
	if (function->trigger)
		nargs = psm_trigger_arguments(rel, &args);
	else
	{
		Signature	sig;

		read_signature(proc, fcinfo ? fcinfo->flinfo->fn_expr : NULL, validating, &sig);
		nargs = sig.nargs;
		args = palloc0(Max(nargs, 1) * sizeof(PsmArgument));
		compile_arguments(function, &sig, args, in, out);
	}
	script = compile_body(function, proc, args, nargs);
	if (function->trigger)
		psm_trigger_mentions(script);
	else
		use_collation(script, function->key.collation);
	function->in = copy_numbers(script, in, function->nin);
	function->out = copy_numbers(script, out, function->nout);

	MemoryContextSwitchTo(oldcontext);
	MemoryContextSetParent(script->mcxt, validating ? oldcontext : CacheMemoryContext);
	function->script = script;
	function->xmin = HeapTupleHeaderGetRawXmin(proc->t_data);
	function->tid = proc->t_self;
	MemoryContextDelete(scratch);
}

static void
drop_script(PsmFunction *function)
{
	PsmScript  *script = function->script;

	function->script = NULL;
	script->stale = true;
	if (script->in_use == 0)
		psm_script_free(script);
}

static PsmFunction *
find_entry(FunctionCallInfo fcinfo, HeapTuple proc)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(proc);
	FunctionKey key;
	PsmFunction *function;
	bool		found;

	memset(&key, 0, sizeof(key));
	key.function = form->oid;
	key.collation = fcinfo->fncollation;
	if (CALLED_AS_TRIGGER(fcinfo))
		key.trigger = ((TriggerData *) fcinfo->context)->tg_trigger->tgoid;
	else
	{
		for (int i = 0; i < form->pronargs; i++)
		{
			if (IsPolymorphicType(form->proargtypes.values[i]))
				key.argtypes[i] = get_fn_expr_argtype(fcinfo->flinfo, i);
		}
	}
	if (functions == NULL)
	{
		HASHCTL		ctl = {0};

		ctl.keysize = sizeof(FunctionKey);
		ctl.entrysize = sizeof(PsmFunction);
		functions = hash_create("psm functions", 64, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	function = hash_search(functions, &key, HASH_ENTER, &found);
	if (!found)
		function->script = NULL;
	return function;
}

/* The compiled function that is being called */
PsmFunction *
psm_function_get(FunctionCallInfo fcinfo)
{
	PsmFunction *function = fcinfo->flinfo->fn_extra;
	HeapTuple	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));

	if (!HeapTupleIsValid(proc))
		elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
	if (function == NULL)
		function = fcinfo->flinfo->fn_extra = find_entry(fcinfo, proc);

	if (function->script != NULL &&
		(function->xmin != HeapTupleHeaderGetRawXmin(proc->t_data) ||
		 !ItemPointerEquals(&function->tid, &proc->t_self) ||
		 !psm_types_current(function->script)))
		drop_script(function);
	if (function->script == NULL)
		compile(function, proc, fcinfo,
				CALLED_AS_TRIGGER(fcinfo) ? ((TriggerData *) fcinfo->context)->tg_relation : NULL,
				false);
	ReleaseSysCache(proc);
	return function;
}

/* ---------- validating ---------- */

static void
refuse_pseudo_types(HeapTuple proc)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(proc);
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			nargs = get_func_arg_info(proc, &types, &names, &modes);

	if (form->prorettype == EVENT_TRIGGEROID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("event triggers cannot be written in psm")));
	if (get_typtype(form->prorettype) == TYPTYPE_PSEUDO && form->prorettype != TRIGGEROID &&
		form->prorettype != RECORDOID && form->prorettype != VOIDOID &&
		!IsPolymorphicType(form->prorettype))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("psm functions cannot return type %s", format_type_be(form->prorettype))));
	for (int i = 0; i < nargs; i++)
	{
		if (get_typtype(types[i]) == TYPTYPE_PSEUDO && types[i] != RECORDOID &&
			!IsPolymorphicType(types[i]))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("psm functions cannot have arguments of type %s",
							format_type_be(types[i]))));
	}
	if (form->prorettype == TRIGGEROID && form->pronargs != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("trigger functions cannot have declared arguments"),
				 errhint("The arguments of the trigger are in TG_ARGV.")));
}

/*
 * Checks a function that is being created: its types always, its body unless
 * check_function_bodies is off.
 */
void
psm_function_validate(Oid funcid)
{
	HeapTuple	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));

	if (!HeapTupleIsValid(proc))
		elog(ERROR, "cache lookup failed for function %u", funcid);
	refuse_pseudo_types(proc);
	if (check_function_bodies)
	{
		PsmFunction function = {0};

		compile(&function, proc, NULL, NULL, true);
		psm_script_free(function.script);
	}
	ReleaseSysCache(proc);
}

/* ---------- returning ---------- */

/* A row of the type that the caller expects, made of one of another */
static Datum
convert_row(PsmExec *ex, FunctionCall *call, HeapTuple tuple, TupleDesc from)
{
	Oid			type;
	TupleDesc	to;
	TypeFuncClass class = get_call_result_type(call->fcinfo, &type, &to);
	MemoryContext oldcontext;
	Datum		result;

	if (class == TYPEFUNC_COMPOSITE || class == TYPEFUNC_COMPOSITE_DOMAIN)
		tuple = psm_cast_tuple(psm_econtext(ex), tuple, from, to, call->caller,
							   "the returned row does not match the function's result type");
	oldcontext = MemoryContextSwitchTo(call->caller);
	if (class == TYPEFUNC_COMPOSITE || class == TYPEFUNC_COMPOSITE_DOMAIN)
	{
		result = heap_copy_tuple_as_datum(tuple, to);
		if (class == TYPEFUNC_COMPOSITE_DOMAIN)
			domain_check(result, false, type, NULL, NULL);
	}
	else
		result = heap_copy_tuple_as_datum(tuple, BlessTupleDesc(CreateTupleDescCopy(from)));
	MemoryContextSwitchTo(oldcontext);
	return result;
}

static void
return_row(PsmExec *ex, FunctionCall *call, Datum value, Oid type)
{
	HeapTupleData tuple;
	TupleDesc	tupdesc;

	if (!type_is_rowtype(type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("cannot return a value of type %s from a function that returns a row",
						format_type_be(type))));
	tupdesc = psm_datum_tuple(value, &tuple);
	call->value = convert_row(ex, call, &tuple, tupdesc);
	ReleaseTupleDesc(tupdesc);
}

static void
return_scalar(PsmExec *ex, FunctionCall *call, Datum value, bool isnull, Oid type, int32 typmod)
{
	const PsmFunction *function = &call->function;

	if (type != function->rettype)
		value = psm_cast(psm_econtext(ex), value, &isnull, type, typmod, function->rettype, -1);
	call->isnull = isnull;
	if (isnull)
		value = (Datum) 0;
	else if (!function->retbyval)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(call->caller);

		value = datumCopy(value, false, function->retlen);
		MemoryContextSwitchTo(oldcontext);
	}
	call->value = value;
}

/* PsmExec.do_return of functions */
static void
do_return(PsmExec *ex, PsmReturn *stmt)
{
	FunctionCall *call = ex->return_arg;

	if (stmt->query != NULL)
		psm_return_table(ex, stmt->query, (ReturnSetInfo *) call->fcinfo->resultinfo,
						 call->owner, &call->tuples);
	else if (stmt->value != NULL)
	{
		bool		isnull;
		Oid			type;
		int32		typmod;
		Datum		value = psm_eval(ex, stmt->value, &isnull, &type, &typmod);

		if (!call->function.rettuple)
			return_scalar(ex, call, value, isnull, type, typmod);
		else if (!isnull)
			return_row(ex, call, value, type);
		else
			call->isnull = true;
	}
	psm_eval_cleanup(ex);
	call->returned = true;		/* not before: a handler may go on behind a RETURN that failed */
}

/* The output arguments are the result */
static void
return_outputs(PsmExec *ex, FunctionCall *call)
{
	const PsmFunction *function = &call->function;
	PsmScript  *script = ex->script;
	TupleDesc	tupdesc;
	Datum	   *values;
	bool	   *nulls;

	if (!function->rettuple)
	{
		PsmVar	   *var = script->vars[function->out[0]];
		PsmValue   *v = &ex->values[var->number];

		return_scalar(ex, call, v->value, v->isnull, var->type, var->typmod);
		return;
	}
	if (function->nout == 1 && script->vars[function->out[0]]->kind == PSM_VAR_ROW &&
		!function->procedure)
	{
		PsmVar	   *var = script->vars[function->out[0]];
		Datum		value = psm_row_datum(ex, var, &call->isnull);

		if (!call->isnull)
			return_row(ex, call, value, var->type);
		return;
	}
	tupdesc = CreateTemplateTupleDesc(function->nout);
	values = palloc(function->nout * sizeof(Datum));
	nulls = palloc(function->nout * sizeof(bool));
	for (int i = 0; i < function->nout; i++)
	{
		PsmVar	   *var = script->vars[function->out[i]];
		PsmValue   *v = &ex->values[var->number];

		TupleDescInitEntry(tupdesc, i + 1, var->name ? var->name : "", var->type, var->typmod, 0);
		if (var->kind == PSM_VAR_ROW)
			values[i] = psm_row_datum(ex, var, &nulls[i]);
		else
		{
			values[i] = v->value;
			nulls[i] = v->isnull;
		}
	}
	call->value = convert_row(ex, call, heap_form_tuple(tupdesc, values, nulls), tupdesc);
}

/* ---------- calling ---------- */

static void
bind_arguments(PsmExec *ex, PsmFunction *function, FunctionCallInfo fcinfo)
{
	for (int i = 0; i < function->nin; i++)
	{
		PsmVar	   *var = ex->script->vars[function->in[i]];
		NullableDatum *arg = &fcinfo->args[i];

		if (var->kind == PSM_VAR_ROW)
		{
			PsmTarget	target = {var, NULL, var->pos};

			psm_assign(ex, &target, arg->value, arg->isnull, var->type, -1);
			psm_eval_cleanup(ex);
		}
		else
			psm_argument_set(ex, var, arg->value, arg->isnull);
	}
}

static void
check_set_context(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsi = (ReturnSetInfo *) fcinfo->resultinfo;

	if (rsi == NULL || !IsA(rsi, ReturnSetInfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	if (!(rsi->allowedModes & SFRM_Materialize))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("materialize mode required, but it is not allowed in this context")));
}

/* What the call gives back, once the body has ended */
static Datum
call_result(PsmExec *ex, FunctionCall *call)
{
	const PsmFunction *function = &call->function;
	FunctionCallInfo fcinfo = call->fcinfo;

	if (function->retset)
	{
		ReturnSetInfo *rsi = (ReturnSetInfo *) fcinfo->resultinfo;

		rsi->returnMode = SFRM_Materialize;
		rsi->setResult = call->tuples;	/* NULL: no rows */
		call->isnull = true;
	}
	else if (function->nout > 0)
		return_outputs(ex, call);
	else if (function->procedure || function->rettype == VOIDOID)
		call->isnull = function->procedure;
	else if (!call->returned)
		ereport(ERROR,
				(errcode(ERRCODE_S_R_E_FUNCTION_EXECUTED_NO_RETURN_STATEMENT),
				 errmsg("psm function %s ended without RETURN", ex->script->function)));
	fcinfo->isnull = call->isnull;
	return call->value;
}

/* Calls a function or procedure; SPI is not connected yet */
Datum
psm_function_call(FunctionCallInfo fcinfo, PsmFunction *function)
{
	FunctionCall call = {*function, fcinfo, CurrentMemoryContext, CurrentResourceOwner};
	PsmScript  *script = function->script;
	PsmExec    *ex;
	Datum		result;

	if (function->trigger)
	{
		if (!CALLED_AS_TRIGGER(fcinfo))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("trigger functions can only be called as triggers")));
		return psm_trigger_call(fcinfo, script);
	}
	if (function->retset)
		check_set_context(fcinfo);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	ex = psm_exec_create(script);	/* in SPI's memory, which goes with SPI_finish() */
	ex->do_return = do_return;
	ex->return_arg = &call;
	ex->read_only = function->read_only;
	bind_arguments(ex, function, fcinfo);

	psm_exec_run(ex);

	result = call_result(ex, &call);
	if (ex->econtext != NULL)
		psm_econtext_pop(ex->econtext);
	SPI_finish();
	return result;
}
