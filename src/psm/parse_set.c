/*
 * parse_set.c
 *		The parser of SET: of variables, of parts of a value, and of several
 *		variables from one row.
 *
 * A part of a value, as in SET a[i] = x, is left to PostgreSQL's parser: the whole
 * assignment is one piece of SQL, which it makes an expression for the variable's
 * new value from.  SET of anything that is no variable is a statement of its own.
 */
#include "psm/parse.h"

/*
 * Is this a = 1, a := 1, a.b = 1 or a[1] = 1 without SET?
 */
bool
psm_looks_like_assignment(const PsmParser *p, int n)
{
	while (NEXT(p, n)->type == PSM_TOK_IDENT && psm_is_char(NEXT(p, n + 1), '.'))
		n += 2;
	if (NEXT(p, n)->type != PSM_TOK_IDENT)
		return false;
	return NEXT(p, n + 1)->type == PSM_TOK_COLON_EQUALS ||
		psm_is_char(NEXT(p, n + 1), '=') || psm_is_char(NEXT(p, n + 1), '[');
}

/*
 * The "=" of SET
 */
static void
expect_equals(PsmParser *p)
{
	if (CURRENT(p)->type == PSM_TOK_COLON_EQUALS)
		psm_syntax_error(p, CURRENT(p), NULL, "Write \"=\" instead of \":=\".");
	psm_expect_char(p, '=', "\"=\" was expected here.");
}

/*
 * a[i] = e, r.f.g = e: the whole is a piece, which PostgreSQL makes an expression
 * for the new value of the variable from
 */
static PsmExpr *
parse_part(PsmParser *p, int names)
{
	static const RawParseMode modes[] = {
		RAW_PARSE_PLPGSQL_ASSIGN1, RAW_PARSE_PLPGSQL_ASSIGN2, RAW_PARSE_PLPGSQL_ASSIGN3
	};
	int			start = p->at;
	int			end = psm_find_end(p, STOP_COMMA);
	int			depth = 0;

	for (; p->at < end; p->at++)
	{
		const PsmToken *token = CURRENT(p);

		if (psm_is_char(token, '[') || psm_is_char(token, '('))
			depth++;
		else if (psm_is_char(token, ']') || psm_is_char(token, ')'))
			depth--;
		else if (depth == 0 && token->type != PSM_TOK_IDENT && !psm_is_char(token, '.'))
			break;
	}
	expect_equals(p);
	if (p->at == end)
		psm_syntax_error(p, CURRENT(p), "An expression was expected here.", NULL);
	p->at = end;
	return psm_make_piece(p, start, end, modes[names - 1], "", "");
}

static PsmStmt *
parse_set_one(PsmParser *p, const PsmToken *first)
{
	const PsmToken *name = CURRENT(p);
	PsmSet	   *stmt = psm_new_stmt(p, sizeof(PsmSet), PSM_SET, first);
	int			names;

	if (!psm_parse_set_target(p, &stmt->target, &names))
		psm_undeclared(p, name, "To set a configuration parameter, use SET LOCAL ... TO.");
	if (names > 0)
		stmt->value = parse_part(p, names);
	else
	{
		expect_equals(p);
		stmt->value = psm_parse_expr(p, STOP_COMMA, "An expression");
	}
	if (stmt->target.field == NULL)
		stmt->value->target = stmt->target.var;
	return &stmt->stmt;
}

/*
 * Do the values of SET (a, b) = ( begin with a query?  It may have parentheses
 * of its own, as ((SELECT ...)); ((SELECT ...), x) are two values.
 */
static bool
is_row_query(PsmParser *p, int ntargets)
{
	const PsmToken *token = CURRENT(p);

	if (!psm_is_char(token, '('))
		return psm_is_plannable(token);
	while (psm_is_char(token, '('))
		token++;
	return ntargets > 1 && psm_is_plannable(token) &&
		psm_is_char(&p->tokens[psm_find_end(p, STOP_COMMA | STOP_PAREN)], ')');
}

static PsmStmt *
parse_set_row(PsmParser *p, const PsmToken *first)
{
	PsmSetRow  *stmt = psm_new_stmt(p, sizeof(PsmSetRow), PSM_SET_ROW, first);
	const PsmToken *paren;

	p->at++;					/* ( */
	stmt->targets = psm_parse_targets(p);
	psm_expect_char(p, ')', "\",\" or \")\" was expected here.");
	expect_equals(p);

	paren = CURRENT(p);
	psm_expect_char(p, '(', "The values, in parentheses, were expected here.");
	if (is_row_query(p, list_length(stmt->targets)))
		stmt->query = psm_parse_query(p, STOP_PAREN, "A query");
	else
	{
		do
			stmt->values = lappend(stmt->values,
								   psm_parse_expr(p, STOP_COMMA | STOP_PAREN, "An expression"));
		while (psm_accept_char(p, ','));
		if (list_length(stmt->values) != list_length(stmt->targets))
			ereport(ERROR,
					(errcode(ERRCODE_SYNTAX_ERROR),
					 errmsg("SET assigns to %d variables, but the number of values is %d",
							list_length(stmt->targets), list_length(stmt->values)),
					 token_errposition(p, paren)));
	}
	if (!psm_is_char(CURRENT(p), ')'))
		psm_syntax_error(p, CURRENT(p), psprintf("The \"(\" on line %d, column %d is not closed.",
												 paren->line, paren->column), NULL);
	p->at++;
	return &stmt->stmt;
}

/*
 * SET of variables; SET of anything else is PostgreSQL's own.
 */
void
psm_parse_set(PsmParser *p, List **list)
{
	const PsmToken *first = CURRENT(p);
	const PsmToken *target = NEXT(p, 1);

	if (target->type == PSM_TOK_OP && target->text[0] == '@')
		psm_syntax_error(p, target, "A variable to assign to was expected here.",
						 "Declare the variable with DECLARE and write its name without @.");
	if (psm_is_char(target, ':'))
		psm_syntax_error(p, target, "A variable to assign to was expected here.",
						 "A variable's name has no colon; a parameter cannot be assigned to.");
	if ((psm_is_word(target, "var") || psm_is_word(target, "variable")) &&
		psm_looks_like_assignment(p, 2))
		psm_syntax_error(p, target, NULL, "Variables of a block are set without this word: "
						 "\"SET name = ...\".");
	if (!psm_is_char(target, '(') && !psm_looks_like_assignment(p, 1))
	{
		*list = lappend(*list, psm_parse_sql(p));
		return;
	}

	p->at++;
	for (;;)
	{
		*list = lappend(*list, psm_is_char(CURRENT(p), '(') ?
						parse_set_row(p, first) : parse_set_one(p, first));
		if (!psm_accept_char(p, ','))
			break;
		first = CURRENT(p);
	}
}
