/*
 * watch.c
 *		tw.watch: a condition by hand.
 *
 * The condition is planned as the WHERE clause of a query and remembered as that query's
 * scans would be, without running it.  So it uses indexes, reaches all partitions, and is
 * subject to the caller's privileges and row security as a query of his is.
 *
 * Parameters, :name or params.name, become literals of unknown type in the parse tree, which
 * take the type of their place; their values are never spliced into the text.
 */
#include "conflict/conflict.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_node.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(tw_watch);

/* A :name in the text; '$1' and blanks stand in its place */
typedef struct NamedParam
{
	int			offset;			/* in the text of the query */
	char	   *name;
} NamedParam;

typedef struct Watch
{
	Jsonb	   *params;
	List	   *named;			/* NamedParam */
} Watch;

/* ---------- parameters ---------- */

/* A value as a literal: of no type yet, or jsonb */
static Node *
param_literal(Watch *watch, const char *name, int location, ParseState *pstate)
{
	JsonbValue *value = getKeyJsonValueFromContainer(&watch->params->root, name, strlen(name),
													 NULL);
	Const	   *literal;
	Datum		datum = (Datum) 0;
	Oid			type = UNKNOWNOID;

	if (value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("parameter \"%s\" is not given", name),
				 errhint("Add the key \"%s\" to params.", name)));
	switch (value->type)
	{
		case jbvNull:
			break;
		case jbvString:
			datum = CStringGetDatum(pnstrdup(value->val.string.val, value->val.string.len));
			break;
		case jbvNumeric:
			datum = DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric));
			break;
		case jbvBool:
			datum = CStringGetDatum(value->val.boolean ? "true" : "false");
			break;
		default:
			type = JSONBOID;
			datum = JsonbPGetDatum(JsonbValueToJsonb(value));
			break;
	}
	literal = makeConst(type, -1, InvalidOid, type == JSONBOID ? -1 : -2, datum,
						value->type == jbvNull, false);
	literal->location = location;
	return (Node *) literal;
}

/* A number that the caller has written himself: there is nothing that it could mean */
static Node *
param_ref(ParseState *pstate, ParamRef *ref)
{
	Watch	   *watch = pstate->p_ref_hook_state;
	ListCell   *lc;

	foreach(lc, watch->named)
	{
		NamedParam *param = lfirst(lc);

		if (param->offset == ref->location)
			return param_literal(watch, param->name, ref->location, pstate);
	}
	return NULL;
}

/* params.name, unless there is such a column */
static Node *
column_ref(ParseState *pstate, ColumnRef *ref, Node *column)
{
	if (column != NULL || list_length(ref->fields) != 2 || !IsA(lsecond(ref->fields), String) ||
		strcmp(strVal(linitial(ref->fields)), "params") != 0)
		return NULL;
	return param_literal(pstate->p_ref_hook_state, strVal(lsecond(ref->fields)), ref->location,
						 pstate);
}

static void
set_hooks(ParseState *pstate, void *arg)
{
	pstate->p_paramref_hook = param_ref;
	pstate->p_post_columnref_hook = column_ref;
	pstate->p_ref_hook_state = arg;
}

/* Puts '$1' and blanks in the place of each :name; byte n of the text stays byte n */
static void
cut_params(Watch *watch, char *text)
{
	core_yy_extra_type extra;
	core_yyscan_t scanner = tw_scanner_begin(text, &extra);
	int			colon = -1;

	for (;;)
	{
		core_YYSTYPE value;
		YYLTYPE		location;
		int			token;

		value.str = NULL;
		token = core_yylex(&value, &location, scanner);
		if (token == 0)
			break;
		if (token == PSM_TOK_IDENT && colon >= 0 && location == colon + 1)
		{
			NamedParam *param = palloc(sizeof(NamedParam));
			int			end = tw_scanner_token_end(&extra, location);

			param->offset = colon;
			param->name = pstrdup(value.str);
			watch->named = lappend(watch->named, param);
			memset(text + colon, ' ', end - colon);
			memcpy(text + colon, "$1", 2);
		}
		colon = token == ':' ? location : -1;
	}
	scanner_finish(scanner);
}

/* ---------- the query ---------- */

/* An error's position is one in the predicate, not in the statement that calls us */
static void
predicate_error(void *arg)
{
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(arg);
	}
}

/* The text must be one expression: nothing that ends the parenthesis it is put in */
static void
check_expression(char *text)
{
	ErrorContextCallback context;
	List	   *parsed;
	SelectStmt *stmt;

	context.callback = predicate_error;
	context.arg = text;
	context.previous = error_context_stack;
	error_context_stack = &context;
	parsed = raw_parser(text, RAW_PARSE_PLPGSQL_EXPR);
	error_context_stack = context.previous;

	stmt = (SelectStmt *) linitial_node(RawStmt, parsed)->stmt;
	if (!IsA(stmt, SelectStmt) || stmt->op != SETOP_NONE || list_length(stmt->targetList) != 1 ||
		linitial_node(ResTarget, stmt->targetList)->name != NULL ||
		stmt->fromClause != NIL || stmt->whereClause != NULL || stmt->groupClause != NIL ||
		stmt->havingClause != NULL || stmt->windowClause != NIL || stmt->valuesLists != NIL ||
		stmt->sortClause != NIL || stmt->limitCount != NULL || stmt->limitOffset != NULL ||
		stmt->lockingClause != NIL || stmt->withClause != NULL || stmt->distinctClause != NIL ||
		stmt->intoClause != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("predicate is not a single expression")));
}

static char *
query_text(Oid relid, Watch *watch, const char *predicate)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	char	   *relation;
	char		relkind;
	char	   *text;
	char	   *alone;

	/* a regclass can be any number, or the table was dropped since it was looked up */
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("there is no relation with OID %u", relid)));
	relation = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
										  RelationGetRelationName(rel));
	relkind = rel->rd_rel->relkind;
	text = psprintf("SELECT FROM %s WHERE (%s\n)", relation, predicate);
	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE &&
		relkind != RELKIND_MATVIEW && relkind != RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot watch \"%s\"", RelationGetRelationName(rel)),
				 errdetail_relkind_not_supported(relkind),
				 errhint("Watch the tables it is made of, or use tw.track_reads and a query.")));
	relation_close(rel, NoLock);
	cut_params(watch, text);
	alone = pstrdup(text + strlen(text) - strlen(predicate) - strlen("\n)"));
	alone[strlen(predicate)] = '\0';
	check_expression(alone);
	return text;
}

/* What only running it could track, and what need not be the same twice */
static void
check_plan(CachedPlanSource *source)
{
	Query	   *query = linitial_node(Query, source->query_list);

	if (query->hasSubLinks)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot watch a condition with a subquery"),
				 errdetail("Row security policies with subqueries count as well."),
				 errhint("Use tw.track_reads('predicate') and a query.")));
	if (contain_volatile_functions(query->jointree->quals))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot watch a condition with a volatile function")));
}

static void
remember_query(const char *text, Watch *watch)
{
	SPIPrepareOptions options = {0};
	SPIPlanPtr	plan;
	CachedPlan *cached;
	QueryDesc  *query;
	TwTrackMode mode = tw_track->mode;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	options.parserSetup = set_hooks;
	options.parserSetupArg = watch;
	plan = SPI_prepare_extended(text, &options);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare_extended failed: %s", SPI_result_code_string(SPI_result));
	check_plan(linitial(SPI_plan_get_plan_sources(plan)));

	tw_track->mode = TW_TRACK_PREDICATE;
	PG_TRY();
	{
		/* a plan that is not saved counts its references without an owner */
		cached = SPI_plan_get_cached_plan(plan);
		if (cached == NULL)
			elog(ERROR, "predicate has no plan");
		query = CreateQueryDesc(linitial_node(PlannedStmt, cached->stmt_list), text,
								GetActiveSnapshot(), InvalidSnapshot, None_Receiver, NULL, NULL, 0);
		ExecutorStart(query, 0);
		tw_attach_conditions(query);
		ExecutorFinish(query);
		ExecutorEnd(query);
		FreeQueryDesc(query);
		ReleaseCachedPlan(cached, NULL);
	}
	PG_FINALLY();
	{
		tw_track->mode = mode;
	}
	PG_END_TRY();
	SPI_finish();
}

/* tw.watch(relation regclass, predicate text, params jsonb) RETURNS void */
Datum
tw_watch(PG_FUNCTION_ARGS)
{
	Watch		watch = {0};
	const char *missing = PG_ARGISNULL(0) ? "relation" : PG_ARGISNULL(1) ? "predicate" :
		PG_ARGISNULL(2) ? "params" : NULL;

	if (missing != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", missing)));
	watch.params = PG_GETARG_JSONB_P(2);
	if (!JB_ROOT_IS_OBJECT(watch.params))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("params must be a JSON object"),
				 errhint("Write them as {\"name\": value, ...}.")));
	tw_track_begin(TW_TRACK_NONE);
	remember_query(query_text(PG_GETARG_OID(0), &watch, text_to_cstring(PG_GETARG_TEXT_PP(1))),
				   &watch);
	PG_RETURN_VOID();
}
