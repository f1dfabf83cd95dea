/*
 * target.c
 *		A target of a batch: what its options ask for, and what the catalogs say.
 *
 * Options are kept as they were given.  All that follows from the catalogs, the
 * columns and the key's index, is looked up again whenever it is needed: tables
 * are altered while a batch is open for hours.
 *
 * A key is a unique index of the target: named by its columns or expressions, in
 * any order, or the primary key.  Equality is the index's own.  It may be
 * deferrable, because publish does not rely on the index to find conflicts.
 */
#include "stage/stage.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "rewrite/rewriteHandler.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

static const char *const mode_names[] = {
	[STAGE_APPEND] = "append",
	[STAGE_INSERT_NEW] = "insert_new",
	[STAGE_MERGE] = "merge",
	[STAGE_OVERWRITE] = "overwrite",
};

/* ---------- options ---------- */

static char *
option_text(const JsonbValue *value, const char *name, int number)
{
	if (value->type != jbvString || value->val.string.len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" of target %d must be a string that is not empty", name, number)));
	return pnstrdup(value->val.string.val, value->val.string.len);
}

static List *
option_list(const JsonbValue *value, const char *name, int number)
{
	List	   *list = NIL;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	element;

	if (value->type == jbvString)
		return list_make1(option_text(value, name, number));
	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data) ||
		JsonContainerSize(value->val.binary.data) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" of target %d must be an array of strings that is not empty",
						name, number)));
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &element, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM)
			list = lappend(list, option_text(&element, name, number));
	}
	return list;
}

/* A piece of SQL in the options, for the error context */
typedef struct Fragment
{
	const char *text;
	const char *name;
	int			target;
	int			offset;			/* of the text in what the parser sees */
} Fragment;

/* Errors are at a place in the fragment, not in the statement that passed it */
static void
fragment_callback(void *arg)
{
	Fragment   *fragment = (Fragment *) arg;
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(Max(position - fragment->offset, 1));
		internalerrquery(fragment->text);
	}
	errcontext("\"%s\" of target %d", fragment->name, fragment->target);
}

/* Where a text stands in a statement, when the place of the error is in it; otherwise 0 */
static int
place_in(const char *statement, const char *text, int place)
{
	for (const char *at = strstr(statement, text); at != NULL; at = strstr(at + 1, text))
	{
		int			before = pg_mbstrlen_with_len(statement, at - statement);

		if (place > before && place <= before + pg_mbstrlen(text))
			return place - before;
	}
	return 0;
}

void
stage_statement_callback(void *arg)
{
	const StageTry *attempt = (StageTry *) arg;
	const StageTarget *target = attempt->target;
	const char *texts[] = {target->order_by, target->delete_when, target->where};
	const char *names[] = {"order_by", "delete_when", "where"};

	for (int i = 0; i < lengthof(texts); i++)
	{
		int			place = texts[i] == NULL || getinternalerrposition() <= 0 ? 0 :
			place_in(attempt->statement, texts[i], getinternalerrposition());

		if (place == 0)
			continue;
		internalerrposition(place);
		internalerrquery(texts[i]);
		errcontext("\"%s\" of target %d", names[i], target->number);
		break;
	}
}

/* The text alone must be what we make a part of our own statement */
static void
check_fragment(const char *text, const char *name, int number, bool order)
{
	const char *prefix = order ? "SELECT ORDER BY " : "";
	Fragment	fragment = {text, name, number, strlen(prefix)};
	ErrorContextCallback callback = {error_context_stack, fragment_callback, &fragment};
	List	   *parsed;
	SelectStmt *select = NULL;

	error_context_stack = &callback;
	parsed = raw_parser(psprintf("%s%s\n", prefix, text),
						order ? RAW_PARSE_DEFAULT : RAW_PARSE_PLPGSQL_EXPR);
	error_context_stack = callback.previous;

	if (list_length(parsed) == 1 && IsA(linitial_node(RawStmt, parsed)->stmt, SelectStmt))
		select = (SelectStmt *) linitial_node(RawStmt, parsed)->stmt;
	if (select == NULL || select->op != SETOP_NONE || select->fromClause != NIL ||
		select->whereClause != NULL || select->groupClause != NIL ||
		select->havingClause != NULL || select->windowClause != NIL ||
		select->limitCount != NULL || select->limitOffset != NULL ||
		select->lockingClause != NIL || select->distinctClause != NIL ||
		list_length(select->targetList) != (order ? 0 : 1) ||
		(!order && linitial_node(ResTarget, select->targetList)->name != NULL) ||
		(select->sortClause != NIL) != order)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("\"%s\" of target %d is not %s", name, number,
						order ? "what can follow ORDER BY" : "an expression"),
				 errdetail("It is \"%s\".", tw_excerpt(text))));
}

static StageMode
parse_mode(const char *name, int number)
{
	for (int i = 0; i < lengthof(mode_names); i++)
	{
		if (strcmp(name, mode_names[i]) == 0)
			return (StageMode) i;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("\"mode\" of target %d is invalid: \"%s\"", number, tw_excerpt(name)),
			 errhint("Modes are append, insert_new, merge and overwrite.")));
	return STAGE_APPEND;
}

/* Which options a mode has no use for */
static void
check_combination(const StageTarget *target)
{
	const char *bad = NULL;

	if (target->mode == STAGE_APPEND && target->key != NIL)
		bad = "key";
	else if (target->mode == STAGE_APPEND && target->order_by != NULL)
		bad = "order_by";
	else if (target->mode != STAGE_MERGE && target->delete_when != NULL)
		bad = "delete_when";
	else if (target->mode != STAGE_OVERWRITE && target->where != NULL)
		bad = "where";
	if (bad != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" of target %d does not go with mode \"%s\"", bad, target->number,
						mode_names[target->mode])));
}

StageTarget *
stage_target_parse(Jsonb *options, int number)
{
	StageTarget *target = palloc0(sizeof(StageTarget));
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	value;
	char	   *mode = NULL;

	target->number = number;
	target->options = options;
	target->swap = true;
	if (!JB_ROOT_IS_OBJECT(options))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("target %d must be a JSON object", number),
				 errhint("Write it as {\"table\": \"schema.name\", \"mode\": \"append\"}.")));
	it = JsonbIteratorInit(&options->root);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		char	   *name;

		if (token != WJB_KEY)
			continue;
		name = pnstrdup(value.val.string.val, value.val.string.len);
		(void) JsonbIteratorNext(&it, &value, true);
		if (value.type == jbvNull && strcmp(name, "table") != 0 && strcmp(name, "mode") != 0)
			continue;
		if (strcmp(name, "table") == 0)
			target->name = option_text(&value, name, number);
		else if (strcmp(name, "mode") == 0)
			mode = option_text(&value, name, number);
		else if (strcmp(name, "key") == 0)
			target->key = option_list(&value, name, number);
		else if (strcmp(name, "order_by") == 0)
			target->order_by = option_text(&value, name, number);
		else if (strcmp(name, "delete_when") == 0)
			target->delete_when = option_text(&value, name, number);
		else if (strcmp(name, "where") == 0)
			target->where = option_text(&value, name, number);
		else if (strcmp(name, "swap") == 0 && value.type == jbvBool)
			target->swap = value.val.boolean;
		else
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("target %d has an unknown or unsound option \"%s\"", number,
							tw_excerpt(name)),
					 errhint("Options are table, mode, key, order_by, delete_when, where and swap (true or false).")));
	}
	if (target->name == NULL || mode == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("target %d has no \"%s\"", number,
						target->name == NULL ? "table" : "mode")));
	target->mode = parse_mode(mode, number);
	check_combination(target);
	if (target->order_by != NULL)
		check_fragment(target->order_by, "order_by", number, true);
	if (target->delete_when != NULL)
		check_fragment(target->delete_when, "delete_when", number, false);
	if (target->where != NULL)
		check_fragment(target->where, "where", number, false);
	return target;
}

Oid
stage_target_lookup(StageTarget *target)
{
	List	   *names = textToQualifiedNameList(cstring_to_text(target->name));

	target->target = RangeVarGetRelid(makeRangeVarFromNameList(names), AccessShareLock, false);
	return target->target;
}

/* ---------- the table ---------- */

static void
refuse(const Relation rel, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("relation \"%s.%s\" cannot be the target of a staged batch",
					get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel)),
			 errdetail("%s", detail)));
}

static void
check_kind(const Relation rel)
{
	char	   *schema = get_namespace_name(RelationGetNamespace(rel));

	if (rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		refuse(rel, "It is not a table or partitioned table.");
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		refuse(rel, "It is a temporary table, which other sessions do not see.");
	if (IsCatalogRelation(rel))
		refuse(rel, "It is a system catalog.");
	if (strcmp(schema, "tw") == 0 || strncmp(schema, "tw_batch_", 9) == 0)
		refuse(rel, "It belongs to the extension.");
	if (rel->rd_rules != NULL)
		refuse(rel, "It has rules.");
}

/* TimescaleDB's tables: the rows of a compressed chunk are stored in another way */
static void
check_hypertable(StageTarget *target, Relation rel)
{
	int32		id = tw_hypertable_id(rel);
	Oid			whole = id != 0 ? InvalidOid : tw_hypertable_of_chunk(rel);

	target->hypertable = id != 0;
	if (OidIsValid(whole))
		refuse(rel, psprintf("It is a chunk of hypertable \"%s.%s\", which can be the target.",
							 get_namespace_name(get_rel_namespace(whole)), get_rel_name(whole)));
	if (target->hypertable && target->mode != STAGE_APPEND && tw_hypertable_has_compressed(id))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("target %s has compressed chunks", target->quoted),
				 errdetail("Mode \"%s\" has to find rows that are there already.",
						   mode_names[target->mode]),
				 errhint("Decompress its chunks first, or use mode \"append\".")));
}

/* Citus's tables: a shard is written through its table only, on all nodes that have it */
static void
check_shard(Relation rel)
{
	Oid			whole = tw_citus_table_of(RelationGetRelid(rel));

	if (whole != RelationGetRelid(rel))
		refuse(rel, psprintf("It is a shard of table \"%s.%s\", which can be the target.",
							 get_namespace_name(get_rel_namespace(whole)), get_rel_name(whole)));
}

/* A trigger may fill in what is null, and drop rows; that of a hypertable never runs */
static bool
has_insert_trigger(const StageTarget *target, Relation rel)
{
	if (rel->trigdesc == NULL)
		return false;
	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
	{
		Trigger    *trigger = &rel->trigdesc->triggers[i];

		if (TRIGGER_FOR_BEFORE(trigger->tgtype) && TRIGGER_FOR_ROW(trigger->tgtype) &&
			TRIGGER_FOR_INSERT(trigger->tgtype) &&
			!(target->hypertable && strcmp(trigger->tgname, "ts_insert_blocker") == 0))
			return true;
	}
	return false;
}

/* Must the current user be able to do this to the table?  The executor checks it again. */
static void
check_rights(const StageTarget *target, Relation rel)
{
	AclMode		needed = ACL_INSERT;
	AclResult	result;

	if (target->mode != STAGE_APPEND)
		needed |= ACL_SELECT;
	if (target->mode == STAGE_MERGE || (target->mode == STAGE_OVERWRITE && target->keys != NIL))
		needed |= ACL_UPDATE;
	if (target->mode == STAGE_OVERWRITE || target->delete_when != NULL)
		needed |= ACL_DELETE;
	for (AclMode one = 1; one <= needed; one <<= 1)
	{
		if ((needed & one) == 0)
			continue;
		result = pg_class_aclcheck(RelationGetRelid(rel), GetUserId(), one);
		if (result != ACLCHECK_OK)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied for table %s", RelationGetRelationName(rel)),
					 errdetail("Mode \"%s\" needs the %s privilege on it.",
							   mode_names[target->mode],
							   one == ACL_INSERT ? "INSERT" : one == ACL_SELECT ? "SELECT" :
							   one == ACL_UPDATE ? "UPDATE" : "DELETE")));
	}
}

static bool
calls_nextval(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr) && ((FuncExpr *) node)->funcid == F_NEXTVAL)
		return true;
	if (IsA(node, NextValueExpr))
		return true;
	return expression_tree_walker(node, calls_nextval, context);
}

List *
stage_columns(Relation rel)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	List	   *columns = NIL;

	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(tupdesc, i);
		StageColumn *column;

		if (attr->attisdropped)
			continue;
		column = palloc0(sizeof(StageColumn));
		column->name = pstrdup(NameStr(attr->attname));
		column->quoted = quote_identifier(column->name);
		column->attnum = attr->attnum;
		column->generated = attr->attgenerated != '\0';
		column->always = attr->attidentity == ATTRIBUTE_IDENTITY_ALWAYS;
		column->not_null = attr->attnotnull;
		column->numbered = attr->attidentity != '\0' ||
			(attr->attnotnull && attr->atthasdef && !column->generated &&
			 calls_nextval(build_column_default(rel, attr->attnum), NULL));
		columns = lappend(columns, column);
	}
	return columns;
}

/* ---------- the key ---------- */

/* An expression over the target's columns */
static Node *
parse_expression(const StageTarget *target, Relation rel, const char *text, const char *name,
				 ParseExprKind kind)
{
	ParseState *pstate = make_parsestate(NULL);
	Fragment	fragment = {text, name, target->number, 0};
	ErrorContextCallback callback = {error_context_stack, fragment_callback, &fragment};
	ParseNamespaceItem *item;
	SelectStmt *select;
	Node	   *expr;

	check_fragment(text, name, target->number, false);
	error_context_stack = &callback;
	select = (SelectStmt *) linitial_node(RawStmt, raw_parser(text, RAW_PARSE_PLPGSQL_EXPR))->stmt;
	pstate->p_sourcetext = text;
	item = addRangeTableEntryForRelation(pstate, rel, AccessShareLock, NULL, false, true);
	addNSItemToQuery(pstate, item, true, true, true);
	expr = transformExpr(pstate, linitial_node(ResTarget, select->targetList)->val, kind);
	if (kind == EXPR_KIND_WHERE)
		expr = coerce_to_boolean(pstate, expr, "WHERE");
	assign_expr_collations(pstate, expr);
	free_parsestate(pstate);
	error_context_stack = callback.previous;
	return eval_const_expressions(NULL, expr);
}

Node *
stage_target_where(const StageTarget *target, Relation rel)
{
	return parse_expression(target, rel, target->where, "where", EXPR_KIND_WHERE);
}

/* What the key's parts are: a Var for a column's name, otherwise an expression */
static List *
key_expressions(const StageTarget *target, Relation rel)
{
	List	   *exprs = NIL;
	ListCell   *lc;

	foreach(lc, target->key)
	{
		char	   *text = (char *) lfirst(lc);
		AttrNumber	attnum = get_attnum(RelationGetRelid(rel), text);

		if (attnum > 0)
		{
			Form_pg_attribute attr = TupleDescAttr(RelationGetDescr(rel), attnum - 1);

			exprs = lappend(exprs, makeVar(1, attnum, attr->atttypid, attr->atttypmod,
										   attr->attcollation, 0));
		}
		else
			exprs = lappend(exprs, parse_expression(target, rel, text, "key",
													EXPR_KIND_INDEX_EXPRESSION));
	}
	return exprs;
}

/* The expressions that an index is over, key columns only */
static List *
index_expressions(Relation rel, Relation index)
{
	List	   *exprs = NIL;
	List	   *all = RelationGetIndexExpressions(index);
	ListCell   *next = list_head(all);

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		AttrNumber	attnum = index->rd_index->indkey.values[i];

		if (attnum > 0)
		{
			Form_pg_attribute attr = TupleDescAttr(RelationGetDescr(rel), attnum - 1);

			exprs = lappend(exprs, makeVar(1, attnum, attr->atttypid, attr->atttypmod,
										   attr->attcollation, 0));
		}
		else
		{
			exprs = lappend(exprs, copyObject(lfirst(next)));
			next = lnext(all, next);
		}
	}
	return exprs;
}

/* Are these the same, in any order? */
static bool
same_expressions(List *a, List *b)
{
	ListCell   *lc;

	if (list_length(a) != list_length(b))
		return false;
	foreach(lc, a)
	{
		if (!list_member(b, lfirst(lc)))
			return false;
	}
	foreach(lc, b)
	{
		if (!list_member(a, lfirst(lc)))
			return false;
	}
	return true;
}

/* OPERATOR(schema.name) */
static char *
operator_name(Oid operator)
{
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *name;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", operator);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	name = psprintf("OPERATOR(%s.%s)", quote_identifier(get_namespace_name(form->oprnamespace)),
					NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return name;
}

/* What numbers itself may be left out of what is staged */
static bool
is_staged_not_null(const StageTarget *target, AttrNumber attnum)
{
	ListCell   *lc;

	foreach(lc, target->columns)
	{
		StageColumn *column = (StageColumn *) lfirst(lc);

		if (column->attnum == attnum)
			return column->not_null && !column->numbered;
	}
	return false;
}

/* The key's parts with the equality that the index has */
static List *
keys_of_index(const StageTarget *target, Relation index, List *exprs)
{
	List	   *keys = NIL;
	int			i = 0;
	ListCell   *lc;

	foreach(lc, exprs)
	{
		StageKey   *key = palloc0(sizeof(StageKey));
		Oid			type = index->rd_opcintype[i];
		Oid			operator = get_opfamily_member(index->rd_opfamily[i], type, type,
												   BTEqualStrategyNumber);
		Oid			collation = index->rd_indcollation[i];

		if (!OidIsValid(operator))
			elog(ERROR, "index \"%s\" has no equality operator", RelationGetRelationName(index));
		key->expr = (Node *) lfirst(lc);
		key->operator = operator_name(operator);
		key->collate = "";
		if (OidIsValid(collation) && collation != exprCollation(key->expr))
			key->collate = psprintf(" COLLATE %s", generate_collation_name(collation));
		if (IsA(key->expr, Var))
			key->not_null = is_staged_not_null(target, ((Var *) key->expr)->varattno);
		keys = lappend(keys, key);
		i++;
	}
	return keys;
}

/*
 * Finds the unique index that the key means: one over all rows before a partial
 * one.  False: there is none.
 */
static bool
find_key(StageTarget *target, Relation rel, List *wanted)
{
	ListCell   *lc;
	bool		found = false;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Form_pg_index form = index->rd_index;
		List	   *predicate = RelationGetIndexPredicate(index);

		if (form->indisunique && form->indisvalid && index->rd_rel->relam == BTREE_AM_OID &&
			(wanted == NIL ? form->indisprimary :
			 same_expressions(wanted, index_expressions(rel, index))) &&
			(!found || predicate == NIL))
		{
			target->keys = keys_of_index(target, index, index_expressions(rel, index));
			target->key_where = predicate == NIL ? NULL :
				(Node *) make_ands_explicit(copyObject(predicate));
			found = true;
		}
		index_close(index, NoLock);
	}
	return found;
}

/* A primary key WITHOUT OVERLAPS (18): no two of its rows are at the same time, equal or not */
static bool
key_is_temporal(Relation rel)
{
	Oid			primary = TW_PRIMARY_KEY(rel);
	Relation	index;
	bool		temporal;

	if (!OidIsValid(primary))
		return false;
	index = index_open(primary, AccessShareLock);
	temporal = index->rd_index->indisexclusion;
	index_close(index, NoLock);
	return temporal;
}

static void
load_key(StageTarget *target, Relation rel)
{
	List	   *wanted = NIL;

	target->keys = NIL;
	target->key_where = NULL;
	if (target->mode == STAGE_APPEND)
		return;
	/* Citus does not look for rows of a table here while it deletes on every node */
	if (target->mode == STAGE_OVERWRITE && target->placement == TW_ON_EVERY_NODE)
		return;
	if (target->key != NIL)
		wanted = key_expressions(target, rel);
	if (!find_key(target, rel, wanted))
	{
		/* an overwrite without a key deletes and inserts */
		if (target->mode == STAGE_OVERWRITE && wanted == NIL)
			return;
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 wanted == NIL && key_is_temporal(rel) ?
				 errmsg("the primary key of table %s is WITHOUT OVERLAPS", target->quoted) :
				 wanted == NIL ?
				 errmsg("table %s has no primary key", target->quoted) :
				 errmsg("table %s has no unique index over the key of target %d",
						target->quoted, target->number),
				 errdetail("Mode \"%s\" needs a key that is unique.", mode_names[target->mode]),
				 wanted == NIL ?
				 errhint("Name the columns of a unique index as \"key\".") : 0));
	}
	if (target->mode == STAGE_OVERWRITE && target->key_where != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("the key of target %d is that of a partial index", target->number),
				 errdetail("Mode \"overwrite\" needs a key that covers all rows of table %s.",
						   target->quoted),
				 errhint("Leave \"key\" out.")));
}

static bool
is_referenced(Relation rel)
{
	if (rel->trigdesc == NULL)
		return false;
	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
	{
		if (RI_FKey_trigger_type(rel->trigdesc->triggers[i].tgfoid) == RI_TRIGGER_PK)
			return true;
	}
	return false;
}

void
stage_target_load(StageTarget *target, LOCKMODE lockmode)
{
	Relation	rel = try_relation_open(target->target, lockmode);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("target %d of the batch, \"%s\", does not exist any more",
						target->number, target->name),
				 errhint("Abort the batch with tw.abort_batch, or copy what is staged for it.")));
	check_kind(rel);
	target->relkind = rel->rd_rel->relkind;
	target->placement = tw_citus_placement(target->target);
	target->distributed_by = tw_citus_column(target->target);
	target->name = psprintf("%s.%s", get_namespace_name(RelationGetNamespace(rel)),
							RelationGetRelationName(rel));
	target->quoted = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												RelationGetRelationName(rel));
	if (target->staging_name == NULL)
		target->staging_name = pstrdup(RelationGetRelationName(rel));
	check_hypertable(target, rel);
	check_shard(rel);
	target->has_row_triggers = has_insert_trigger(target, rel);
	target->referenced = is_referenced(rel);
	target->columns = stage_columns(rel);
	if (target->columns == NIL)
		refuse(rel, "It has no columns.");
	load_key(target, rel);
	check_rights(target, rel);
	relation_close(rel, NoLock);
}
