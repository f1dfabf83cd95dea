/*
 * qual.c
 *		The part of a scan's filter that can be evaluated for any row, at any time.
 *
 * At the check a filter is evaluated for rows that others have changed, after the
 * statement has ended.  So parameters and whatever depends on settings, the
 * time or the user is replaced by its value now, and a condition is left out
 * when it depends on more than the row even then: on a subquery, on a value that the
 * plan computes, on functions that are not immutable.  Leaving a condition out can only
 * make more rows count.
 *
 * PostgreSQL puts what row security and security barriers demand first, so that no function
 * of the user's gets to see other rows.  Where one of these is left out, what may leak (by
 * what it does, or by its error) has to go as well.
 */
#include "conflict/conflict.h"

#include "catalog/pg_proc.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

typedef struct ValueContext
{
	ParamListInfo params;
	List	   *index_tlist;	/* of an index-only scan; NIL: none */
	bool		failed;			/* something has no value */
} ValueContext;

/* Replaces parameters by their values, and columns of an index by those of its table */
static Node *
insert_values(Node *node, ValueContext *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == INDEX_VAR)
	{
		Var		   *var = (Var *) node;

		if (var->varattno > 0 && var->varattno <= list_length(context->index_tlist))
			return copyObject((Node *) list_nth_node(TargetEntry, context->index_tlist,
													 var->varattno - 1)->expr);
		context->failed = true;
		return copyObject(node);
	}
	if (IsA(node, Param))
	{
		Param	   *param = (Param *) node;
		ParamListInfo params = context->params;

		if (param->paramkind == PARAM_EXTERN && params != NULL &&
			param->paramid > 0 && param->paramid <= params->numParams)
		{
			ParamExternData work;
			ParamExternData *value;

			value = params->paramFetch != NULL ?
				params->paramFetch(params, param->paramid, false, &work) :
				&params->params[param->paramid - 1];
			if (value->ptype == param->paramtype)
			{
				int16		typlen;
				bool		typbyval;

				get_typlenbyval(param->paramtype, &typlen, &typbyval);
				return (Node *) makeConst(param->paramtype, param->paramtypmod, param->paramcollid,
										  typlen, value->isnull ? (Datum) 0 :
										  datumCopy(value->value, typbyval, typlen),
										  value->isnull, typbyval);
			}
		}
		context->failed = true;
		return copyObject(node);
	}
	if (IsA(node, SubPlan) || IsA(node, AlternativeSubPlan) || IsA(node, CurrentOfExpr))
	{
		context->failed = true;
		return copyObject(node);
	}
	return expression_tree_mutator(node, insert_values, context);
}

static bool
needs_values(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param) || IsA(node, SubPlan) || IsA(node, AlternativeSubPlan) ||
		IsA(node, CurrentOfExpr) || (IsA(node, Var) && ((Var *) node)->varno == INDEX_VAR))
		return true;
	return expression_tree_walker(node, needs_values, context);
}

/*
 * These read tables, or what else they like, although they are declared stable; a
 * constant call of them must not be folded.  So must no function of a user.
 */
static bool
may_read_tables(Oid function, void *context)
{
	switch (function)
	{
		case F_TABLE_TO_XML:
		case F_TABLE_TO_XMLSCHEMA:
		case F_TABLE_TO_XML_AND_XMLSCHEMA:
		case F_SCHEMA_TO_XML:
		case F_SCHEMA_TO_XMLSCHEMA:
		case F_SCHEMA_TO_XML_AND_XMLSCHEMA:
		case F_DATABASE_TO_XML:
		case F_DATABASE_TO_XMLSCHEMA:
		case F_DATABASE_TO_XML_AND_XMLSCHEMA:
			return true;
	}
	return function >= FirstNormalObjectId && func_volatile(function) != PROVOLATILE_IMMUTABLE;
}

static bool
unsafe_to_fold(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, may_read_tables, NULL))
		return true;
	return expression_tree_walker(node, unsafe_to_fold, context);
}

/* One condition with its values, ready to be kept; NULL: a row alone does not decide it */
static Node *
decided_by_row(Node *clause, List *index_tlist, ParamListInfo params)
{
	if (needs_values(clause, NULL))
	{
		ValueContext context = {params, index_tlist, false};

		clause = insert_values(clause, &context);
		if (context.failed)
			return NULL;
	}
	if (contain_mutable_functions(clause))
	{
		PlannerGlobal glob = {.type = T_PlannerGlobal};
		PlannerInfo root = {.type = T_PlannerInfo};

		if (contain_volatile_functions(clause) || unsafe_to_fold(clause, NULL))
			return NULL;
		root.glob = &glob;
		clause = estimate_expression_value(&root, clause);
		fix_opfuncids(clause);
		if (contain_mutable_functions(clause))
			return NULL;
	}
	return clause;
}

/*
 * The conditions of a list that a row alone decides, ready to be kept: new trees in
 * the current memory context, or the old ones where they need no change.  Runs
 * inside a statement, under its snapshot.
 */
List *
tw_qual_of_row(List *clauses, List *index_tlist, ParamListInfo params)
{
	List	   *result = NIL;
	bool		left_out = false;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		Node	   *clause = decided_by_row(lfirst(lc), index_tlist, params);

		if (clause == NULL)
			left_out = true;
		else if (!left_out || !contain_leaked_vars(clause))
			result = lappend(result, clause);
	}
	return result;
}

/* Those of kept conditions that may see any row, whatever has been left out before them */
List *
tw_qual_of_any_row(List *clauses)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		if (!contain_leaked_vars(lfirst(lc)))
			result = lappend(result, lfirst(lc));
	}
	return result;
}

/* The conditions on a row that a scan returns */
List *
tw_qual_clauses(Plan *plan, bool index, List **index_tlist)
{
	List	   *more = NIL;

	*index_tlist = NIL;
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			if (index)
				more = ((IndexScan *) plan)->indexqualorig;
			break;
		case T_IndexOnlyScan:
			*index_tlist = ((IndexOnlyScan *) plan)->indextlist;
			if (index)
				more = ((IndexOnlyScan *) plan)->recheckqual;
			break;
		case T_BitmapHeapScan:
			more = ((BitmapHeapScan *) plan)->bitmapqualorig;
			break;
		case T_TidScan:
			more = ((TidScan *) plan)->tidquals;
			if (list_length(more) > 1)
				more = list_make1(makeBoolExpr(OR_EXPR, more, -1));
			break;
		case T_TidRangeScan:
			more = ((TidRangeScan *) plan)->tidrangequals;
			break;
		default:
			break;
	}
	return more == NIL ? plan->qual : list_concat_copy(more, plan->qual);
}
