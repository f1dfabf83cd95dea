/*
 * call.c
 *		The output arguments of CALL.
 *
 * A variable in the place of an OUT or INOUT argument receives its value when
 * the procedure has ended.  Which arguments those are only the analysed CALL
 * says, with defaults and named arguments put in order; a variable there is a
 * parameter of the plan, perhaps under a cast to the argument's type, which
 * PostgreSQL has added or the user has written to find the procedure.
 */
#include "psm/psm.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"

static CallStmt *
call_of(PsmExpr *expr)
{
	Query	   *query;

	if (expr->plan == NULL || expr->plan->plan == NULL || expr->plan->source->query_list == NIL)
		return NULL;
	query = linitial_node(Query, expr->plan->source->query_list);
	return query->commandType == CMD_UTILITY && IsA(query->utilityStmt, CallStmt) ?
		(CallStmt *) query->utilityStmt : NULL;
}

static bool
contains_param(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return IsA(node, Param) || expression_tree_walker(node, contains_param, context);
}

/* What is under the casts of an argument */
static Node *
strip_casts(Node *node)
{
	for (;;)
	{
		Node	   *stripped = strip_implicit_coercions(node);

		if (IsA(stripped, FuncExpr) &&
			((FuncExpr *) stripped)->funcformat == COERCE_EXPLICIT_CAST)
			stripped = linitial(((FuncExpr *) stripped)->args);
		else if (IsA(stripped, RelabelType))
			stripped = (Node *) ((RelabelType *) stripped)->arg;
		else if (IsA(stripped, CoerceViaIO))
			stripped = (Node *) ((CoerceViaIO *) stripped)->arg;
		if (stripped == node)
			return node;
		node = stripped;
	}
}

static int
argument_position(PsmExec *ex, PsmExpr *expr, Node *argument)
{
	int			location = exprLocation(argument);

	return location >= 0 ? psm_run_errposition(ex, expr->pos.offset + location - expr->prefix) : 0;
}

/*
 * What an argument stands for.  True: a variable, or a column of one.  False: a
 * constant, a parameter of the block or a default, which receives nothing.
 * Errors: 42601 for anything that is computed from a variable.
 */
static bool
find_target(PsmExec *ex, PsmExpr *expr, Node *argument, PsmTarget *target)
{
	Node	   *node = strip_casts(argument);
	const PsmSlot *slot;

	if (!IsA(node, Param))
	{
		if (!contains_param(node, NULL))
			return false;
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("an output argument must be a variable"),
				 errdetail("The argument is an expression, which cannot be assigned to."),
				 argument_position(ex, expr, argument)));
	}
	slot = &expr->plan->slots[((Param *) node)->paramid - 1];
	if (slot->kind == PSM_SLOT_HOST)
		return false;
	if (slot->var->constant)
		ereport(ERROR,
				(errcode(ERRCODE_ERROR_IN_ASSIGNMENT),
				 errmsg("\"%s\" cannot be assigned to", slot->var->name ? slot->var->name : "row"),
				 errdetail("It is in the place of an output argument."),
				 argument_position(ex, expr, argument)));
	target->var = slot->var;
	target->field = slot->kind == PSM_SLOT_FIELD ?
		NameStr(TupleDescAttr(slot->var->tupdesc, slot->field)->attname) : NULL;
	target->pos = expr->pos;
	return true;
}

/* Refuses output arguments that cannot receive a value; expr is prepared */
void
psm_call_check(PsmExec *ex, PsmExpr *expr)
{
	CallStmt   *call = call_of(expr);
	ListCell   *lc;
	PsmTarget	target;

	if (call == NULL)
		return;
	foreach(lc, call->outargs)
		(void) find_target(ex, expr, lfirst(lc), &target);
}

/* Assigns what the procedure gave back; tuples NULL: it has no output arguments */
void
psm_call_outputs(PsmExec *ex, PsmExpr *expr, SPITupleTable *tuples)
{
	CallStmt   *call = call_of(expr);
	ListCell   *lc;
	int			i = 0;

	if (tuples == NULL || call == NULL || tuples->numvals != 1)
		return;
	if (list_length(call->outargs) != tuples->tupdesc->natts)
		elog(ERROR, "CALL gave %d values for %d output arguments", tuples->tupdesc->natts,
			 list_length(call->outargs));
	foreach(lc, call->outargs)
	{
		PsmTarget	target;
		Form_pg_attribute att = TupleDescAttr(tuples->tupdesc, i);
		bool		isnull;
		Datum		value = SPI_getbinval(tuples->vals[0], tuples->tupdesc, ++i, &isnull);

		if (find_target(ex, expr, lfirst(lc), &target))
			psm_assign(ex, &target, value, isnull, att->atttypid, att->atttypmod);
	}
}
