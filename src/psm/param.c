/*
 * param.c
 *		Names and parameters in the SQL of a block, as PostgreSQL's parser and
 *		executor see them.
 *
 * Parser hooks turn what is not a column into a Param node:
 *	- a variable, or a column of a row variable.  A column wins over a variable
 *	  (the standard's rule), label.variable wins over a column;
 *	- :name and params.name.  Each occurrence starts out with the type unknown
 *	  and takes the type its place coerces it to, as a client's $1 does; an
 *	  object or array is jsonb from the start unless a cast or ANY() follows.
 *
 * Every Param made in one analysis of a PsmExpr has a slot of its own in
 * PsmPlan.slots, and paramid is the slot's number.  PostgreSQL analyses a kept
 * plan again after DDL; the slots are then filled anew, types and all.  Values
 * are fetched at execution through the ParamListInfo's hooks, so a plan never
 * holds a value.
 */
#include "psm/psm.h"

#include "catalog/pg_type.h"
#include "executor/execExpr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/varlena.h"

/* The execution whose parameter list the parser hooks have to keep in step */
static PsmExec *parsing_exec = NULL;

/* ---------- parser hooks ---------- */

static PsmSlot *
slot_new(PsmExpr *expr, PsmSlotKind kind, Oid type)
{
	PsmPlan    *plan = expr->plan;
	PsmSlot    *slot;

	if (plan->nslots >= plan->maxslots)
	{
		int			n = plan->maxslots == 0 ? 8 : plan->maxslots * 2;
		PsmSlot    *slots = MemoryContextAllocZero(expr->script->mcxt, n * sizeof(PsmSlot));

		/* the old array is not freed: an outer evaluation may be reading it */
		if (plan->nslots > 0)
			memcpy(slots, plan->slots, plan->nslots * sizeof(PsmSlot));
		plan->slots = slots;
		plan->maxslots = n;
	}
	slot = &plan->slots[plan->nslots++];
	memset(slot, 0, sizeof(PsmSlot));
	slot->kind = kind;
	slot->type = type;
	if (parsing_exec != NULL && parsing_exec->params->numParams < plan->nslots)
		parsing_exec->params->numParams = plan->nslots;
	return slot;
}

static Node *
slot_param(PsmExpr *expr, PsmSlot *slot, int32 typmod, Oid collation, int location)
{
	Param	   *param = makeNode(Param);

	param->paramkind = PARAM_EXTERN;
	param->paramid = slot - expr->plan->slots + 1;
	param->paramtype = slot->type;
	param->paramtypmod = typmod;
	param->paramcollid = collation;
	param->location = location;
	return (Node *) param;
}

static Node *
host_param(PsmExpr *expr, const PsmHostRef *ref, int location)
{
	bool		jsonb = expr->lone_host ||
		(expr->script->hosts[ref->host].container && !ref->cast_context);
	PsmSlot    *slot = slot_new(expr, PSM_SLOT_HOST, jsonb ? JSONBOID : UNKNOWNOID);

	slot->host = ref->host;
	return slot_param(expr, slot, -1, InvalidOid, location);
}

static Node *
variable_param(PsmExpr *expr, PsmVar *var, int location)
{
	PsmSlot    *slot;

	if (var->host != NULL)
		return host_param(expr, var->host, location);
	slot = slot_new(expr, PSM_SLOT_VAR, var->type);
	slot->var = var;
	return slot_param(expr, slot, var->typmod, var->collation, location);
}

static Node *
field_param(PsmExpr *expr, PsmVar *var, int field, int location)
{
	Form_pg_attribute att = TupleDescAttr(var->tupdesc, field);
	PsmSlot    *slot = slot_new(expr, PSM_SLOT_FIELD, att->atttypid);

	slot->var = var;
	slot->field = field;
	return slot_param(expr, slot, att->atttypmod, att->attcollation, location);
}

static const PsmHostRef *
host_ref_at(const PsmExpr *expr, int location)
{
	for (int i = 0; i < expr->nhosts; i++)
	{
		if (expr->hosts[i].offset == location - psm_lead_length(expr))
			return &expr->hosts[i];
	}
	return NULL;
}

/* Finds a variable by its name, or the column of a FOR row (*field >= 0) */
PsmVar *
psm_lookup_name(const PsmExpr *expr, PsmScope *only, const char *name, int *field)
{
	for (PsmScope *scope = only ? only : expr->scope; scope != NULL; scope = scope->parent)
	{
		ListCell   *lc;

		foreach(lc, scope->vars)
		{
			PsmVar	   *var = lfirst(lc);

			*field = -1;
			if (var->number >= expr->nvisible)
				continue;
			if (var->name != NULL && strcmp(var->name, name) == 0)
				return var;
			if (var->for_row && (*field = psm_row_field(var, name)) >= 0)
				return var;
		}
		if (only)
			break;
	}
	return NULL;
}

static PsmScope *
lookup_label(const PsmExpr *expr, const char *name)
{
	for (PsmScope *scope = expr->scope; scope != NULL; scope = scope->parent)
	{
		if (scope->label != NULL && strcmp(scope->label, name) == 0)
			return scope;
	}
	return NULL;
}

static Node *
name_param(PsmExpr *expr, PsmVar *var, int field, int location)
{
	return field >= 0 ? field_param(expr, var, field, location)
		: variable_param(expr, var, location);
}

/* The column called name of a row variable; an error when it has none */
static Node *
row_column(ParseState *pstate, PsmExpr *expr, PsmVar *var, const char *name, int location)
{
	int			field = psm_row_field(var, name);

	if (field < 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg(PSM_NO_SUCH_FIELD, var->name, name),
				 parser_errposition(pstate, location)));
	return field_param(expr, var, field, location);
}

/* row.* and label.row.*: the columns of a row variable */
static Node *
row_star(PsmExpr *expr, ColumnRef *cref)
{
	const char *name = strVal(linitial(cref->fields));
	PsmScope   *scope = NULL;
	PsmVar	   *var;
	int			field;
	RowExpr    *row;

	if (list_length(cref->fields) == 3)
	{
		scope = lookup_label(expr, name);
		if (scope == NULL)
			return NULL;
		name = strVal(lsecond(cref->fields));
	}
	else if (list_length(cref->fields) != 2)
		return NULL;
	var = psm_lookup_name(expr, scope, name, &field);
	if (var == NULL || field >= 0 || var->kind != PSM_VAR_ROW || var->tupdesc == NULL)
		return NULL;

	row = makeNode(RowExpr);
	row->row_typeid = RECORDOID;
	row->row_format = COERCE_EXPLICIT_CALL;
	row->location = cref->location;
	for (int i = 0; i < var->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(var->tupdesc, i);

		if (att->attisdropped)
			continue;
		row->args = lappend(row->args, field_param(expr, var, i, cref->location));
		row->colnames = lappend(row->colnames, makeString(pstrdup(NameStr(att->attname))));
	}
	return (Node *) row;
}

/* Splits a.b.c; false when there is a star or anything but names in it */
static bool
column_names(ColumnRef *cref, char **names, int *n)
{
	ListCell   *lc;

	*n = 0;
	foreach(lc, cref->fields)
	{
		if (!IsA(lfirst(lc), String) || *n == 3)
			return false;
		names[(*n)++] = strVal(lfirst(lc));
	}
	return true;
}

/* label.variable and label.row.column win over columns */
static Node *
pre_columnref(ParseState *pstate, ColumnRef *cref)
{
	PsmExpr    *expr = pstate->p_ref_hook_state;
	char	   *names[3];
	int			n;
	int			field;
	PsmScope   *scope;
	PsmVar	   *var;

	if (list_length(cref->fields) < 2 || !column_names(cref, names, &n))
		return NULL;
	scope = lookup_label(expr, names[0]);
	if (scope == NULL)
		return NULL;
	var = psm_lookup_name(expr, scope, names[1], &field);
	if (var == NULL)
		return NULL;
	if (n == 2)
		return name_param(expr, var, field, cref->location);
	if (var->kind == PSM_VAR_ROW && field < 0)
		return row_column(pstate, expr, var, names[2], cref->location);
	return NULL;
}

/*
 * PostgreSQL asks for the name behind WHERE CURRENT OF like this, with no
 * location.  A cursor of the block may be open under another name.
 */
static Node *
cursor_param(PsmExpr *expr, const char *name)
{
	for (PsmScope *scope = expr->scope; scope != NULL; scope = scope->parent)
	{
		ListCell   *lc;

		foreach(lc, scope->cursors)
		{
			PsmCursor  *cursor = lfirst(lc);

			if (strcmp(cursor->name, name) == 0)
			{
				PsmSlot    *slot = slot_new(expr, PSM_SLOT_CURSOR, REFCURSOROID);

				slot->cursor = cursor;
				return slot_param(expr, slot, -1, InvalidOid, -1);
			}
		}
	}
	return NULL;
}

/* Everything else is a variable only when it is no column */
static Node *
post_columnref(ParseState *pstate, ColumnRef *cref, Node *column)
{
	PsmExpr    *expr = pstate->p_ref_hook_state;
	char	   *names[3];
	int			n;
	int			field;
	PsmVar	   *var;
	const PsmHostRef *ref;

	if (column == NULL && IsA(llast(cref->fields), A_Star))
		return row_star(expr, cref);
	if (column != NULL || !column_names(cref, names, &n))
		return NULL;
	if (n == 1 && cref->location < 0)
		return cursor_param(expr, names[0]);
	ref = host_ref_at(expr, cref->location);
	if (ref != NULL && n == 2)
		return host_param(expr, ref, cref->location);

	var = psm_lookup_name(expr, NULL, names[0], &field);
	if (var == NULL)
		return NULL;
	if (n == 1)
		return name_param(expr, var, field, cref->location);
	if (n == 2 && var->kind == PSM_VAR_ROW && field < 0)
		return row_column(pstate, expr, var, names[1], cref->location);
	return NULL;
}

/* '$1' at the place of a :name; in functions also an argument by number */
static Node *
paramref(ParseState *pstate, ParamRef *pref)
{
	PsmExpr    *expr = pstate->p_ref_hook_state;
	const PsmHostRef *ref = host_ref_at(expr, pref->location);

	if (ref != NULL)
		return host_param(expr, ref, pref->location);
	if (expr->script->function != NULL && pref->number >= 1 &&
		pref->number <= expr->script->nargs)
		return variable_param(expr, expr->script->vars[pref->number - 1], pref->location);
	return NULL;				/* PostgreSQL's own error: there is no parameter */
}

/* A parameter of the script takes the type of its place */
static Node *
coerce_param(ParseState *pstate, Param *param, Oid type, int32 typmod, int location)
{
	PsmExpr    *expr = pstate->p_ref_hook_state;
	PsmSlot    *slot;

	if (param->paramkind != PARAM_EXTERN || param->paramtype != UNKNOWNOID)
		return NULL;
	slot = &expr->plan->slots[param->paramid - 1];
	if (slot->kind != PSM_SLOT_HOST || slot->type != UNKNOWNOID)
		return NULL;
	slot->type = type;
	param->paramtype = type;
	param->paramtypmod = -1;
	param->paramcollid = get_typcollation(type);
	return (Node *) param;
}

/* ParserSetupHook; arg is the PsmExpr */
void
psm_parser_setup(ParseState *pstate, void *arg)
{
	PsmExpr    *expr = arg;

	pstate->p_pre_columnref_hook = pre_columnref;
	pstate->p_post_columnref_hook = post_columnref;
	pstate->p_paramref_hook = paramref;
	pstate->p_coerce_param_hook = coerce_param;
	pstate->p_ref_hook_state = expr;
	expr->plan->nslots = 0;
	expr->plan->effects_known = false;
}

/* An execution is over: the parser hooks must not follow a pointer to it */
void
psm_params_forget(const PsmExec *ex)
{
	if (parsing_exec == ex)
		parsing_exec = NULL;
}

/* Tells the parser hooks who is executing; returns who was */
PsmExec *
psm_params_parsing(PsmExec *ex)
{
	PsmExec    *before = parsing_exec;

	parsing_exec = ex;
	return before;
}

/* ---------- values ---------- */

static void
slot_value(PsmExec *ex, const PsmSlot *slot, Datum *value, bool *isnull)
{
	PsmValue   *v;

	switch (slot->kind)
	{
		case PSM_SLOT_VAR:
			v = &ex->values[slot->var->number];
			if (slot->var->kind == PSM_VAR_ROW)
				*value = psm_row_datum(ex, slot->var, isnull);
			else
			{
				*value = MakeExpandedObjectReadOnly(v->value, v->isnull, slot->var->typlen);
				*isnull = v->isnull;
			}
			break;
		case PSM_SLOT_FIELD:
			v = &ex->values[slot->var->number];
			if (slot->field < v->nfields)
			{
				*value = v->fields[slot->field];
				*isnull = v->nulls[slot->field];
			}
			else
			{
				*value = (Datum) 0;
				*isnull = true;
			}
			break;
		case PSM_SLOT_HOST:
			*value = psm_host_datum(ex, slot->host, slot->type, isnull);
			break;
		case PSM_SLOT_CURSOR:
			*value = CStringGetTextDatum(psm_cursor_portal(ex, slot->cursor)->name);
			*isnull = false;
			break;
	}
}

/* paramFetch: for the planner, portals, and plans that are not simple expressions */
static ParamExternData *
param_fetch(ParamListInfo params, int paramid, bool speculative, ParamExternData *prm)
{
	PsmExec    *ex = params->paramFetchArg;
	PsmExpr    *expr = params->parserSetupArg;

	if (paramid < 1 || paramid > expr->plan->nslots)
	{
		prm->value = (Datum) 0;
		prm->isnull = true;
		prm->pflags = 0;
		prm->ptype = InvalidOid;
		return prm;
	}
	prm->ptype = expr->plan->slots[paramid - 1].type;
	prm->pflags = PARAM_FLAG_CONST;
	slot_value(ex, &expr->plan->slots[paramid - 1], &prm->value, &prm->isnull);
	return prm;
}

/* Evaluation steps: the expression's slots were checked when the step was made */
static void
eval_scalar(ExprState *state, ExprEvalStep *op, ExprContext *econtext)
{
	PsmExec    *ex = econtext->ecxt_param_list_info->paramFetchArg;
	PsmValue   *v = &ex->values[op->d.cparam.paramid];

	*op->resvalue = v->value;
	*op->resnull = v->isnull;
}

/* An array, which nobody may change */
static void
eval_array(ExprState *state, ExprEvalStep *op, ExprContext *econtext)
{
	PsmExec    *ex = econtext->ecxt_param_list_info->paramFetchArg;
	PsmValue   *v = &ex->values[op->d.cparam.paramid];

	*op->resvalue = MakeExpandedObjectReadOnly(v->value, v->isnull, -1);
	*op->resnull = v->isnull;
}

static void
eval_slot(ExprState *state, ExprEvalStep *op, ExprContext *econtext)
{
	ParamListInfo params = econtext->ecxt_param_list_info;
	PsmExec    *ex = params->paramFetchArg;
	PsmExpr    *expr = params->parserSetupArg;
	const PsmSlot *slot = &expr->plan->slots[op->d.cparam.paramid - 1];

	if (op->d.cparam.paramid > expr->plan->nslots || slot->type != op->d.cparam.paramtype)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("the statement was planned anew for other types while it was running")));
	slot_value(ex, slot, op->resvalue, op->resnull);
}

typedef struct VariableUse
{
	const PsmPlan *plan;
	const PsmVar *var;
} VariableUse;

static bool
uses_variable(Node *node, void *arg)
{
	VariableUse *use = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXTERN)
		return use->plan->slots[((Param *) node)->paramid - 1].var == use->var;
	return expression_tree_walker(node, uses_variable, arg);
}

/*
 * May an expression that computes the new value of an array change the old one
 * in place, and is param where it takes the old one from?  As PL/pgSQL we trust
 * PostgreSQL's own a[i] = x, array_append() and array_prepend(), since they fail
 * before they change anything.
 */
static bool
is_overwritten(const PsmExpr *expr, const Param *param, const PsmVar *var)
{
	Node	   *top = (Node *) expr->plan->simple;
	VariableUse use = {expr->plan, var};
	Oid			function = InvalidOid;
	List	   *args = NIL;

	if (expr->target != var || top == NULL)
		return false;
	if (IsA(top, SubscriptingRef))
	{
		SubscriptingRef *ref = (SubscriptingRef *) top;

		return ref->refassgnexpr != NULL && (Node *) ref->refexpr == (Node *) param &&
			get_typsubscript(ref->refcontainertype, NULL) == F_ARRAY_SUBSCRIPT_HANDLER;
	}
	if (IsA(top, FuncExpr))
	{
		function = ((FuncExpr *) top)->funcid;
		args = ((FuncExpr *) top)->args;
	}
	else if (IsA(top, OpExpr))
	{
		function = ((OpExpr *) top)->opfuncid;
		args = ((OpExpr *) top)->args;
	}
	if (function == F_ARRAY_APPEND)
		return linitial(args) == (void *) param && !uses_variable(lsecond(args), &use);
	if (function == F_ARRAY_PREPEND)
		return lsecond(args) == (void *) param && !uses_variable(linitial(args), &use);
	return false;
}

/* paramCompile: a scalar variable is one load */
static void
param_compile(ParamListInfo params, Param *param, ExprState *state, Datum *resv, bool *resnull)
{
	PsmExpr    *expr = params->parserSetupArg;
	const PsmSlot *slot = &expr->plan->slots[param->paramid - 1];
	ExprEvalStep scratch = {0};

	scratch.opcode = EEOP_PARAM_CALLBACK;
	scratch.resvalue = resv;
	scratch.resnull = resnull;
	scratch.d.cparam.paramarg = NULL;
	scratch.d.cparam.paramtype = param->paramtype;
	if (slot->kind == PSM_SLOT_VAR && slot->var->kind == PSM_VAR_SCALAR &&
		slot->type == param->paramtype)
	{
		scratch.d.cparam.paramfunc = eval_scalar;
		if (slot->var->expanded && !is_overwritten(expr, param, slot->var))
			scratch.d.cparam.paramfunc = eval_array;
		scratch.d.cparam.paramid = slot->var->number;
	}
	else
	{
		scratch.d.cparam.paramfunc = eval_slot;
		scratch.d.cparam.paramid = param->paramid;
	}
	ExprEvalPushStep(state, &scratch);
}

/* Sets up the parameter list of an execution */
void
psm_params_init(PsmExec *ex, ParamListInfo params)
{
	params->paramFetch = param_fetch;
	params->paramFetchArg = ex;
	params->paramCompile = param_compile;
	params->parserSetup = psm_parser_setup;
	ex->params = params;
}

/* ---------- parameters of the script ---------- */

static JsonbValue *
host_find(const PsmHost *host, Jsonb *params)
{
	JsonbValue *value;

	value = getKeyJsonValueFromContainer(&params->root, host->written, strlen(host->written), NULL);
	if (value == NULL && strcmp(host->written, host->folded) != 0)
		value = getKeyJsonValueFromContainer(&params->root, host->folded, strlen(host->folded),
											 NULL);
	return value;
}

/* Are all parameters objects or arrays that the script was compiled for as such? */
bool
psm_hosts_match(PsmScript *script, Jsonb *params)
{
	for (int i = 0; i < script->nhosts; i++)
	{
		JsonbValue *value = host_find(&script->hosts[i], params);

		if (script->hosts[i].container != (value != NULL && value->type == jbvBinary))
			return false;
	}
	return true;
}

/* Compiles a script for these parameters: says which are objects or arrays */
void
psm_hosts_describe(PsmScript *script, Jsonb *params)
{
	for (int i = 0; i < script->nhosts; i++)
	{
		JsonbValue *value = host_find(&script->hosts[i], params);

		script->hosts[i].container = value != NULL && value->type == jbvBinary;
	}
}

/* The name in params that is nearest to the one that is missing, or NULL */
static char *
nearest_key(Jsonb *params, const char *name)
{
	JsonbIterator *it = JsonbIteratorInit(&params->root);
	JsonbValue	v;
	JsonbIteratorToken tok;
	char	   *best = NULL;
	int			best_distance = 1 + (int) strlen(name) / 3;

	while ((tok = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		int			distance;

		if (tok != WJB_KEY || v.val.string.len > NAMEDATALEN)
			continue;
		distance = varstr_levenshtein_less_equal(v.val.string.val, v.val.string.len,
												 name, strlen(name), 1, 1, 1,
												 best_distance, true);
		if (distance <= best_distance)
		{
			best_distance = distance - 1;
			best = pnstrdup(v.val.string.val, v.val.string.len);
		}
	}
	return best;
}

/* Error for a parameter that is not given, at the place of its first use */
void
psm_host_missing(PsmScript *script, int host, Jsonb *params)
{
	PsmHost    *h = &script->hosts[host];
	char	   *nearest = strlen(h->folded) <= NAMEDATALEN ? nearest_key(params, h->folded) : NULL;

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_PARAMETER),
			 errmsg("parameter \"%s\" is not given", tw_excerpt(h->written)),
			 nearest ? errhint("Perhaps you meant \"%s\".", nearest) :
			 errhint("Add the key \"%s\" to params.", tw_excerpt(h->written)),
			 psm_errposition(script->source, h->pos.offset)));
}

/*
 * Binds params to an execution.  Errors, unless missing_ok: 42P02 with the
 * place in the script for one that is missing, before anything has run.
 */
void
psm_hosts_bind(PsmExec *ex, Jsonb *params, bool missing_ok)
{
	PsmScript  *script = ex->script;

	ex->given = params;
	if (script->nhosts == 0)
		return;
	ex->host_values = palloc0(script->nhosts * sizeof(JsonbValue *));
	ex->host_datums = palloc0(script->nhosts * sizeof(PsmHostDatum *));
	for (int i = 0; i < script->nhosts; i++)
	{
		ex->host_values[i] = host_find(&script->hosts[i], params);
		if (ex->host_values[i] == NULL && !script->hosts[i].optional && !missing_ok)
			psm_host_missing(script, i, params);
	}
}

/* A JSON scalar as text, NULL for null; objects and arrays as JSON */
char *
psm_json_text(JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return NULL;
		case jbvString:
			return pnstrdup(value->val.string.val, value->val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out,
													   NumericGetDatum(value->val.numeric)));
		case jbvBool:
			return pstrdup(value->val.boolean ? "true" : "false");
		default:
			return JsonbToCString(NULL, value->val.binary.data, value->val.binary.len);
	}
}

/* A JSON object as a composite type, by jsonb_populate_record(NULL::type, value) */
static Datum
json_object_to_row(JsonbValue *value, Oid type)
{
	FmgrInfo	flinfo;
	LOCAL_FCINFO(fcinfo, 2);
	List	   *args = list_make2(makeNullConst(type, -1, InvalidOid),
								  makeNullConst(JSONBOID, -1, InvalidOid));

	fmgr_info(F_JSONB_POPULATE_RECORD, &flinfo);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_JSONB_POPULATE_RECORD, type, args, InvalidOid,
											 InvalidOid, COERCE_EXPLICIT_CALL), &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 2, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = (Datum) 0;
	fcinfo->args[0].isnull = true;
	fcinfo->args[1].value = JsonbPGetDatum(JsonbValueToJsonb(value));
	fcinfo->args[1].isnull = false;
	return FunctionCallInvoke(fcinfo);
}

/* An element of a JSON array as text; an object becomes a row where the array is of rows */
static char *
json_element_text(JsonbValue *value, Oid element)
{
	Oid			output;
	bool		varlena;
	Datum		row;
	int			nestlevel;
	char	   *text;

	if (value->type != jbvBinary || !type_is_rowtype(getBaseType(element)) || element == RECORDOID)
		return psm_json_text(value);
	getTypeOutputInfo(element, &output, &varlena);
	row = json_object_to_row(value, element);
	/* it is read again as a part of the array */
	nestlevel = tw_write_portably();
	text = OidOutputFunctionCall(output, row);
	AtEOXact_GUC(true, nestlevel);
	return text;
}

/* Appends a JSON array in the text form of PostgreSQL's arrays of element */
static void
json_array_literal(StringInfo out, JsonbContainer *array, Oid element)
{
	JsonbIterator *it = JsonbIteratorInit(array);
	JsonbValue	v;
	bool		first = true;
	char		delimiter = psm_array_delimiter(element);

	check_stack_depth();
	(void) JsonbIteratorNext(&it, &v, true);	/* WJB_BEGIN_ARRAY */
	appendStringInfoChar(out, '{');
	while (JsonbIteratorNext(&it, &v, true) == WJB_ELEM)
	{
		if (!first)
			appendStringInfoChar(out, delimiter);
		first = false;
		if (v.type == jbvNull)
			appendStringInfoString(out, "NULL");
		else if (v.type == jbvBinary && JsonContainerIsArray(v.val.binary.data))
			json_array_literal(out, v.val.binary.data, element);
		else
		{
			appendStringInfoChar(out, '"');
			for (const char *s = json_element_text(&v, element); *s; s++)
			{
				if (*s == '"' || *s == '\\')
					appendStringInfoChar(out, '\\');
				appendStringInfoChar(out, *s);
			}
			appendStringInfoChar(out, '"');
		}
	}
	appendStringInfoChar(out, '}');
}

/* The type of a parameter where none is asked for */
Oid
psm_host_type(PsmExec *ex, int host)
{
	JsonbValue *value = ex->host_values[host];

	switch (value->type)
	{
		case jbvNumeric:
			return NUMERICOID;
		case jbvBool:
			return BOOLOID;
		case jbvBinary:
			return JSONBOID;
		default:
			return TEXTOID;
	}
}

static Datum
json_to_type(JsonbValue *value, Oid type, bool *isnull)
{
	Oid			base = getBaseType(type);
	char	   *text;
	Oid			input;
	Oid			ioparam;

	*isnull = value->type == jbvNull;
	if (type == JSONBOID && !*isnull)
		return JsonbPGetDatum(JsonbValueToJsonb(value));
	if (value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data) &&
		type_is_rowtype(base) && type != RECORDOID)
		return json_object_to_row(value, type);
	if (value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data) &&
		type_is_array(base))
	{
		StringInfoData literal;

		initStringInfo(&literal);
		json_array_literal(&literal, value->val.binary.data, get_element_type(base));
		text = literal.data;
	}
	else
		text = psm_json_text(value);
	getTypeInputInfo(type, &input, &ioparam);
	return OidInputFunctionCall(input, text, ioparam, -1);
}

/* Which parameter cannot be converted; a statement may have many */
static void
host_error_context(void *arg)
{
	errcontext("parameter \"%s\"", tw_excerpt(arg));
}

/*
 * A parameter of the script as a value of type; converted once per execution
 * and type.  Errors: those of the type's input function.
 */
Datum
psm_host_datum(PsmExec *ex, int host, Oid type, bool *isnull)
{
	PsmHostDatum *datum;
	MemoryContext oldcontext;
	JsonbValue *value = ex->host_values[host];
	uint64		version = psm_row_version(type);

	for (datum = ex->host_datums[host]; datum != NULL; datum = datum->next)
	{
		if (datum->type == type && datum->version == version)
		{
			*isnull = datum->isnull;
			return datum->value;
		}
	}
	if (value == NULL)			/* params.name that turned out not to be a column */
	{
		const char *name = tw_excerpt(ex->script->hosts[host].written);

		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("parameter \"%s\" is not given", name),
				 errhint("Add the key \"%s\" to params.", name)));
	}

	oldcontext = MemoryContextSwitchTo(ex->mcxt);
	datum = palloc0(sizeof(PsmHostDatum));
	datum->type = type;
	datum->version = version;
	if (type == UNKNOWNOID)
	{
		char	   *text = psm_json_text(value);

		datum->isnull = text == NULL;
		datum->value = CStringGetDatum(text);
	}
	else
	{
		ErrorContextCallback context = {error_context_stack, host_error_context,
		ex->script->hosts[host].written};

		error_context_stack = &context;
		datum->value = json_to_type(value, type, &datum->isnull);
		error_context_stack = context.previous;
	}
	datum->next = ex->host_datums[host];
	ex->host_datums[host] = datum;
	MemoryContextSwitchTo(oldcontext);

	*isnull = datum->isnull;
	return datum->value;
}
