/*
 * parse_name.c
 *		The parser's words and names: looking at tokens, finding what a name stands
 *		for, and saying what was probably meant.
 */
#include "psm/parse.h"

/* ---------- tokens ---------- */

/*
 * The token n behind the next one; the end when there are not so many.
 */
const PsmToken *
psm_peek(const PsmParser *p, int n)
{
	const PsmToken *token = CURRENT(p);

	while (n-- > 0 && token->type != 0)
		token++;
	return token;
}

bool
psm_is_word(const PsmToken *token, const char *word)
{
	return token->type == PSM_TOK_IDENT && !token->quoted && strcmp(token->text, word) == 0;
}

bool
psm_is_char(const PsmToken *token, char c)
{
	return token->type == c;
}

bool
psm_accept_word(PsmParser *p, const char *word)
{
	if (!psm_is_word(CURRENT(p), word))
		return false;
	p->at++;
	return true;
}

bool
psm_accept_char(PsmParser *p, char c)
{
	if (!psm_is_char(CURRENT(p), c))
		return false;
	p->at++;
	return true;
}

void
psm_expect_word(PsmParser *p, const char *word, const char *detail)
{
	if (!psm_accept_word(p, word))
		psm_syntax_error(p, CURRENT(p), detail, NULL);
}

void
psm_expect_char(PsmParser *p, char c, const char *detail)
{
	if (!psm_accept_char(p, c))
		psm_syntax_error(p, CURRENT(p), detail, NULL);
}

const PsmToken *
psm_expect_name(PsmParser *p, const char *what)
{
	const PsmToken *token = CURRENT(p);

	if (token->type != PSM_TOK_IDENT)
		psm_syntax_error(p, token, psprintf("%s was expected here.", what), NULL);
	p->at++;
	return token;
}

/*
 * A token as it is written.
 */
char *
psm_token_text(const PsmParser *p, const PsmToken *token)
{
	return pnstrdup(p->source + token->start, token->end - token->start);
}

/*
 * PostgreSQL's message for a token that cannot stand where it does, with what we
 * can say about it; detail and hint may be NULL.
 */
void
psm_syntax_error(PsmParser *p, const PsmToken *token, const char *detail, const char *hint)
{
	if (token->type == 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("syntax error at end of input"),
				 detail ? errdetail("%s", detail) : 0,
				 hint ? errhint("%s", hint) : 0,
				 token_errposition(p, token)));
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR),
			 errmsg("syntax error at or near \"%s\"", tw_excerpt(psm_token_text(p, token))),
			 detail ? errdetail("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0,
			 token_errposition(p, token)));
}

PsmPos
psm_token_pos(const PsmToken *token)
{
	PsmPos		pos;

	pos.offset = token->start;
	pos.line = token->line;
	pos.column = token->column;
	return pos;
}

/*
 * What was meant.  Comparing names for it takes long and leaves memory behind, so it is done
 * when a name is not found, not while it is looked for.
 */

static void
guess_vars(const PsmParser *p, PsmGuess *guess)
{
	ListCell   *lc;

	for (PsmScope *scope = p->scope; scope != NULL; scope = scope->parent)
		foreach(lc, scope->vars)
			psm_guess_try(guess, ((PsmVar *) lfirst(lc))->name);
}

/* ---------- labels ---------- */

PsmLabel *
psm_find_label(PsmParser *p, const PsmToken *token)
{
	PsmGuess	guess;

	for (PsmLabel *label = p->labels; label != NULL; label = label->outer)
		if (strcmp(label->name, token->text) == 0)
			return label;

	psm_guess_init(&guess, token->text);
	for (PsmLabel *label = p->labels; label != NULL; label = label->outer)
		psm_guess_try(&guess, label->name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("no enclosing block or loop has the label \"%s\"", token->text),
			 guess.best ? errhint("%s", psm_guess_hint(&guess, NULL)) : 0,
			 token_errposition(p, token)));
}

/*
 * The label behind END, if there is one, must be the one in front.
 */
void
psm_parse_end_label(PsmParser *p, const PsmToken *label, const char *what)
{
	const PsmToken *token = CURRENT(p);

	if (token->type != PSM_TOK_IDENT)
		return;
	if (label == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("label \"%s\" at END, but the %s has no label", token->text, what),
				 errhint("A label is written in front as well: \"%s: ...\".", token->text),
				 token_errposition(p, token)));
	if (strcmp(token->text, label->text) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("label \"%s\" at END does not match label \"%s\" of the %s", token->text,
						label->text, what),
				 errdetail("The %s begins on line %d.", what, label->line),
				 token_errposition(p, token)));
	p->at++;
}

/* ---------- variables, conditions, cursors ---------- */

PsmVar *
psm_find_in_scope(const PsmScope *scope, const char *name)
{
	ListCell   *lc;

	foreach(lc, scope->vars)
	{
		PsmVar	   *var = lfirst(lc);

		if (var->name != NULL && strcmp(var->name, name) == 0)
			return var;
	}
	return NULL;
}

PsmVar *
psm_find_var(const PsmParser *p, const char *name)
{
	for (PsmScope *scope = p->scope; scope != NULL; scope = scope->parent)
	{
		PsmVar	   *var = psm_find_in_scope(scope, name);

		if (var != NULL)
			return var;
	}
	return NULL;
}

PsmCondition *
psm_find_condition(PsmParser *p, const PsmToken *token)
{
	PsmGuess	guess;
	ListCell   *lc;

	for (PsmScope *scope = p->scope; scope != NULL; scope = scope->parent)
		foreach(lc, scope->conditions)
			if (strcmp(((PsmCondition *) lfirst(lc))->name, token->text) == 0)
				return lfirst(lc);

	psm_guess_init(&guess, token->text);
	for (PsmScope *scope = p->scope; scope != NULL; scope = scope->parent)
		foreach(lc, scope->conditions)
			psm_guess_try(&guess, ((PsmCondition *) lfirst(lc))->name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("condition \"%s\" is not declared", token->text),
			 errhint("%s", psm_guess_hint(&guess, "A condition is declared with DECLARE name CONDITION "
									  "FOR SQLSTATE 'sssss'.")),
			 token_errposition(p, token)));
}

PsmCursor *
psm_find_cursor(PsmParser *p, const PsmToken *token)
{
	PsmGuess	guess;
	PsmCursor  *cursor;
	ListCell   *lc;

	/* a FOR loop opens and closes its own, which has no query */
	for (PsmScope *scope = p->scope; scope != NULL; scope = scope->parent)
		foreach(lc, scope->cursors)
		{
			cursor = lfirst(lc);
			if (cursor->query != NULL && strcmp(cursor->name, token->text) == 0)
				return cursor;
		}

	psm_guess_init(&guess, token->text);
	for (PsmScope *scope = p->scope; scope != NULL; scope = scope->parent)
		foreach(lc, scope->cursors)
		{
			cursor = lfirst(lc);
			if (cursor->query != NULL)
				psm_guess_try(&guess, cursor->name);
		}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_CURSOR),
			 errmsg("cursor \"%s\" is not declared", token->text),
			 errhint("%s", psm_guess_hint(&guess, "A cursor is declared with DECLARE name CURSOR FOR "
									  "query.")),
			 token_errposition(p, token)));
}

/*
 * Error for a name that is no variable.
 */
void
psm_undeclared(PsmParser *p, const PsmToken *token, const char *hint)
{
	PsmGuess	guess;

	psm_guess_init(&guess, token->text);
	guess_vars(p, &guess);
	hint = psm_guess_hint(&guess, hint);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("variable \"%s\" is not declared", token->text),
			 hint ? errhint("%s", hint) : 0,
			 token_errposition(p, token)));
}

/*
 * Error for label.name where the block has no such variable.
 */
static void
no_such_in_label(PsmParser *p, const PsmScope *scope, const PsmToken *token)
{
	PsmGuess	guess;
	ListCell   *lc;

	psm_guess_init(&guess, token->text);
	foreach(lc, scope->vars)
		psm_guess_try(&guess, ((PsmVar *) lfirst(lc))->name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("no variable \"%s\" is declared under the label \"%s\"", token->text,
					scope->label),
			 guess.best ? errhint("%s", psm_guess_hint(&guess, NULL)) : 0,
			 token_errposition(p, token)));
}

/*
 * Finds what a, a.b or a.b.c assigns to.  The innermost scope that knows the
 * first name decides, variables before the label; nparts tells how many of the
 * parts were used.
 */
static bool
resolve_target(PsmParser *p, const PsmToken **parts, int nparts, PsmTarget *target, int *used)
{
	for (PsmScope *scope = p->scope; scope != NULL; scope = scope->parent)
	{
		target->var = psm_find_in_scope(scope, parts[0]->text);
		if (target->var != NULL)
		{
			*used = Min(nparts, 2);
			target->field = nparts > 1 ? pstrdup(parts[1]->text) : NULL;
			return true;
		}
		if (nparts > 1 && scope->label != NULL && strcmp(scope->label, parts[0]->text) == 0)
		{
			target->var = psm_find_in_scope(scope, parts[1]->text);
			if (target->var == NULL)
				no_such_in_label(p, scope, parts[1]);
			*used = nparts;
			target->field = nparts > 2 ? pstrdup(parts[2]->text) : NULL;
			return true;
		}
	}
	return false;
}

/*
 * Reads what a target begins with: names with dots between them, as many as a
 * target can have.  Nothing of that name: false, with the parser where it was.
 */
static bool
parse_target_names(PsmParser *p, PsmTarget *target, const PsmToken **parts, int *nparts, int *used)
{
	int			start = p->at;
	int			n = 0;

	parts[n++] = psm_expect_name(p, "A variable to assign to");
	while (n < 4 && psm_is_char(CURRENT(p), '.') && NEXT(p, 1)->type == PSM_TOK_IDENT)
	{
		p->at++;
		parts[n++] = CURRENT(p);
		p->at++;
	}

	target->pos = psm_token_pos(parts[0]);
	*nparts = n;
	if (!resolve_target(p, parts, n, target, used))
	{
		p->at = start;
		return false;
	}
	if (target->var->constant)
		ereport(ERROR,
				(errcode(ERRCODE_ERROR_IN_ASSIGNMENT),
				 errmsg("\"%s\" cannot be assigned to", parts[0]->text),
				 target->var->for_row ?
				 errdetail("It is the row of the FOR loop on line %d.", target->var->pos.line) :
				 errdetail("It is a constant."),
				 token_errposition(p, parts[0])));
	return true;
}

/*
 * variable, label.variable, row.field or label.row.field, to be assigned to.
 * Nothing of that name: false, with the parser where it was, if missing_ok.
 */
bool
psm_parse_target(PsmParser *p, PsmTarget *target, bool missing_ok)
{
	const PsmToken *parts[4];
	const PsmToken *first = CURRENT(p);
	int			nparts;
	int			used;

	if (!parse_target_names(p, target, parts, &nparts, &used))
	{
		if (!missing_ok)
			psm_undeclared(p, first, NULL);
		return false;
	}
	if (used < nparts || psm_is_char(CURRENT(p), '['))
		psm_syntax_error(p, used < nparts ? parts[used] : CURRENT(p),
						 "Only SET can assign to a part of a value.", NULL);
	return true;
}

/*
 * A target of SET, of which a part may be meant: elements of an array, fields of
 * a field.  Then *names is how many of the names are the target's own, and the
 * parser is back at its beginning; otherwise it is 0.
 */
bool
psm_parse_set_target(PsmParser *p, PsmTarget *target, int *names)
{
	const PsmToken *parts[4];
	int			start = p->at;
	int			nparts;
	int			used;

	*names = 0;
	if (!parse_target_names(p, target, parts, &nparts, &used))
		return false;
	if (used < nparts || psm_is_char(CURRENT(p), '['))
	{
		*names = used;
		p->at = start;
	}
	return true;
}

/*
 * Targets between commas
 */
List *
psm_parse_targets(PsmParser *p)
{
	List	   *targets = NIL;

	do
	{
		PsmTarget  *target = palloc0(sizeof(PsmTarget));

		(void) psm_parse_target(p, target, false);
		targets = lappend(targets, target);
	} while (psm_accept_char(p, ','));
	return targets;
}
