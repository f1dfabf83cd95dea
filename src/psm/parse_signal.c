/*
 * parse_signal.c
 *		The parser of conditions: SQLSTATEs, SIGNAL, RESIGNAL, GET DIAGNOSTICS.
 */
#include "psm/parse.h"

/* The standard's "resignal when handler not active"; PostgreSQL has no name for it */
#define ERRCODE_RESIGNAL_NO_HANDLER MAKE_SQLSTATE('0', 'K', '0', '0', '0')

/* Items by number */
static const char *const item_names[] = {
	[PSM_ITEM_MESSAGE_TEXT] = "message_text",
	[PSM_ITEM_DETAIL] = "detail",
	[PSM_ITEM_HINT] = "hint",
	[PSM_ITEM_TABLE_NAME] = "table_name",
	[PSM_ITEM_SCHEMA_NAME] = "schema_name",
	[PSM_ITEM_COLUMN_NAME] = "column_name",
	[PSM_ITEM_CONSTRAINT_NAME] = "constraint_name",
	[PSM_ITEM_RETURNED_SQLSTATE] = "returned_sqlstate",
	[PSM_ITEM_ROW_COUNT] = "row_count",
	[PSM_ITEM_LINE_NUMBER] = "line_number",
	[PSM_ITEM_NUMBER] = "number"
};

/*
 * SQLSTATE [VALUE] 'sssss'
 */
int
psm_parse_sqlstate(PsmParser *p)
{
	const PsmToken *token;
	int			sqlstate;

	psm_expect_word(p, "sqlstate", "SQLSTATE 'sssss' was expected here.");
	(void) psm_accept_word(p, "value");
	token = CURRENT(p);
	if (token->type != PSM_TOK_SCONST)
		psm_syntax_error(p, token, "An SQLSTATE in quotes was expected here.", NULL);
	if (!tw_sqlstate_parse(token->text, &sqlstate))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid SQLSTATE \"%s\"", tw_excerpt(token->text)),
				 errdetail("An SQLSTATE is five characters of 0 to 9 and A to Z, and does not "
						   "begin with 00, which means success."),
				 token_errposition(p, token)));
	p->at++;
	return sqlstate;
}

/*
 * An item of the first n by name
 */
static PsmItem
parse_item(PsmParser *p, int n, const char *statement)
{
	const PsmToken *token = psm_expect_name(p, "The name of an item");
	StringInfoData list;

	for (int i = 0; i < n; i++)
		if (psm_is_word(token, item_names[i]))
			return i;

	initStringInfo(&list);
	for (int i = 0; i < n; i++)
	{
		char	   *name = pstrdup(item_names[i]);

		for (char *c = name; *c != '\0'; c++)
			*c = pg_toupper((unsigned char) *c);
		appendStringInfo(&list, "%s%s", i == 0 ? "" : i == n - 1 ? " and " : ", ", name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR),
			 errmsg("%s has no item \"%s\"", statement, token->text),
			 errdetail("The items are %s.", list.data),
			 token_errposition(p, token)));
}

/*
 * SET item = expression, ...
 */
static void
parse_signal_items(PsmParser *p, PsmSignal *stmt, const char *statement)
{
	do
	{
		const PsmToken *token = CURRENT(p);
		PsmItem		item = parse_item(p, PSM_NUM_SIGNAL_ITEMS, statement);

		if (stmt->items[item] != NULL)
			psm_syntax_error(p, token, "The item is set twice.", NULL);
		psm_expect_char(p, '=', "\"=\" was expected here.");
		stmt->items[item] = psm_parse_expr(p, STOP_COMMA, "The value of the item");
	} while (psm_accept_char(p, ','));
}

/*
 * SIGNAL condition [SET ...], RESIGNAL [condition] [SET ...]
 */
PsmStmt *
psm_parse_signal(PsmParser *p)
{
	const PsmToken *first = CURRENT(p);
	bool		again = psm_is_word(first, "resignal");
	const PsmToken *token;
	PsmSignal  *stmt;

	if (again && p->handlers == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESIGNAL_NO_HANDLER),
				 errmsg("RESIGNAL when handler not active"),
				 errdetail("It can only stand in the statement of a handler."),
				 errhint("Use SIGNAL to raise a new condition."),
				 token_errposition(p, first)));

	stmt = psm_new_stmt(p, sizeof(PsmSignal), again ? PSM_RESIGNAL : PSM_SIGNAL, first);
	p->at++;
	token = CURRENT(p);
	if (psm_is_word(token, "sqlstate"))
		stmt->sqlstate = psm_parse_sqlstate(p);
	else if (token->type == PSM_TOK_IDENT && !psm_is_word(token, "set"))
	{
		PsmCondition *condition = psm_find_condition(p, token);

		stmt->sqlstate = condition->sqlstate;
		stmt->condition_name = condition->name;
		p->at++;
	}
	else if (!again || token->type == PSM_TOK_SCONST)
		psm_syntax_error(p, token, "A condition was expected here: SQLSTATE 'sssss' or a declared "
						 "name.", NULL);

	token = CURRENT(p);
	if (psm_accept_word(p, "set"))
		parse_signal_items(p, stmt, again ? "RESIGNAL" : "SIGNAL");
	else if (token->type == '(')
		psm_syntax_error(p, token, NULL, "Use SET MESSAGE_TEXT = ... for the message.");
	return &stmt->stmt;
}

/*
 * CONDITION n, in which n is an expression up to the first target: a name that
 * is followed by = (after an operand, so a = b cannot be meant).
 */
static PsmExpr *
parse_condition_number(PsmParser *p)
{
	const PsmToken *token = CURRENT(p);
	PsmExpr    *number;
	int			length = 1;

	if (token->type == ':')
		length = 2;
	else if (token->type != PSM_TOK_ICONST && token->type != PSM_TOK_IDENT)
		psm_syntax_error(p, token, "The number of a condition was expected here.", NULL);
	else if (token->type == PSM_TOK_IDENT && psm_is_char(NEXT(p, 1), '.'))
		length = 3;
	for (int i = 0; i < length; i++)
		if (NEXT(p, i)->type == 0)
			psm_syntax_error(p, NEXT(p, i), "The number of a condition was expected here.", NULL);
	number = psm_make_piece(p, p->at, p->at + length, RAW_PARSE_PLPGSQL_EXPR, "", "");
	p->at += length;
	return number;
}

/*
 * GET [CURRENT|STACKED] DIAGNOSTICS [CONDITION n] target = item, ...
 */
PsmStmt *
psm_parse_get_diagnostics(PsmParser *p)
{
	const PsmToken *first = CURRENT(p);
	PsmGetDiagnostics *stmt;

	stmt = psm_new_stmt(p, sizeof(PsmGetDiagnostics), PSM_GET_DIAGNOSTICS, first);
	p->at++;
	if (psm_is_word(CURRENT(p), "stacked"))
	{
		if (p->handlers == 0)
			ereport(ERROR,
					(errcode(ERRCODE_STACKED_DIAGNOSTICS_ACCESSED_WITHOUT_ACTIVE_HANDLER),
					 errmsg("GET STACKED DIAGNOSTICS when handler not active"),
					 errdetail("It can only stand in the statement of a handler."),
					 token_errposition(p, first)));
		stmt->stacked = true;
		p->at++;
	}
	else
		(void) psm_accept_word(p, "current");
	psm_expect_word(p, "diagnostics", "DIAGNOSTICS was expected here.");
	if ((psm_is_word(CURRENT(p), "condition") || psm_is_word(CURRENT(p), "exception")) &&
		!psm_is_char(NEXT(p, 1), '=') && !psm_is_char(NEXT(p, 1), '.'))
	{
		p->at++;
		stmt->condition = parse_condition_number(p);
	}

	do
	{
		PsmDiagItem *item = palloc0(sizeof(PsmDiagItem));
		const PsmToken *token;

		(void) psm_parse_target(p, &item->target, false);
		if (CURRENT(p)->type == PSM_TOK_COLON_EQUALS)
			psm_syntax_error(p, CURRENT(p), NULL, "Write \"=\" instead of \":=\".");
		psm_expect_char(p, '=', "\"=\" was expected here.");
		token = CURRENT(p);
		item->item = parse_item(p, lengthof(item_names), "GET DIAGNOSTICS");
		if (stmt->condition != NULL &&
			(item->item == PSM_ITEM_ROW_COUNT || item->item == PSM_ITEM_NUMBER))
			psm_syntax_error(p, token, "The item belongs to the statement, not to a condition.",
							 "Use GET DIAGNOSTICS without CONDITION.");
		stmt->items = lappend(stmt->items, item);
	} while (psm_accept_char(p, ','));
	return &stmt->stmt;
}
