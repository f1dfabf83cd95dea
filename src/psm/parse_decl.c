/*
 * parse_decl.c
 *		The parser of what a block declares.
 *
 * Declarations come in the standard's order: variables and conditions, then
 * cursors, then handlers.  A name is visible from behind its own declaration
 * on, which PsmExpr.nvisible keeps for the pieces of SQL.
 */
#include "psm/parse.h"

/*
 * What may be declared next can only go forward.
 */
static void
enter_stage(PsmParser *p, const PsmToken *declare, PsmDeclStage *stage, PsmDeclStage wanted)
{
	static const char *const names[] = {"a variable or condition", "a cursor", "a handler"};

	if (*stage > wanted)
		psm_syntax_error(p, declare, psprintf("%s cannot be declared after %s.",
											  wanted == PSM_DECL_NAMES ? "A variable or condition" :
											  "A cursor", names[*stage]),
						 "The order is: variables and conditions, cursors, handlers.");
	*stage = wanted;
}

static void
duplicate(PsmParser *p, const PsmToken *token, const char *what, int code)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg("%s \"%s\" is declared twice in the same block", what, token->text),
			 token_errposition(p, token)));
}

/* ---------- variables ---------- */

/*
 * Index of the token behind a type, with a word on what other languages allow
 * here.
 */
static int
find_type_end(PsmParser *p)
{
	int			depth = 0;

	for (int i = p->at;; i++)
	{
		const PsmToken *token = &p->tokens[i];

		if (token->type == 0 || (depth <= 0 && token->type == ';'))
			return i;
		if (token->type == '(' || token->type == '[')
			depth++;
		else if (token->type == ')' || token->type == ']')
			depth--;
		else if (token->type == PSM_TOK_COLON_EQUALS || token->type == '=')
			psm_syntax_error(p, token, NULL, "An initial value is given with DEFAULT.");
		else if (token->type == '%')
			psm_syntax_error(p, token, "A type cannot be taken from a column.",
							 "A table's name is itself the type of its rows.");
		else if (depth == 0 && psm_is_word(token, "default") &&
				 !psm_is_char(token - 1, '.'))
			return i;
	}
}

/*
 * Declarations that other systems have, which would mislead or get a poor message
 */
static void
refuse_declaration(PsmParser *p)
{
	const PsmToken *token = CURRENT(p);

	if (token->type == ':')
		psm_syntax_error(p, token, "The name of a variable was expected here.",
						 "A variable's name has no colon.");
	if ((psm_is_word(token, "variable") && NEXT(p, 1)->type == PSM_TOK_IDENT &&
		 NEXT(p, 2)->type == PSM_TOK_IDENT) ||
		(psm_is_word(token, "or") && psm_is_word(NEXT(p, 1), "replace")))
		psm_syntax_error(p, token, NULL, "A variable of a block is declared by DECLARE name type.");

	/* elsewhere every statement sets them: a loop that waits for it would never end */
	if (psm_is_word(token, "sqlcode") || psm_is_word(token, "sqlstate"))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" cannot be declared as a variable", token->text),
				 errdetail("No statement would set it."),
				 errhint("Use a handler, or GET DIAGNOSTICS with another variable."),
				 token_errposition(p, token)));
}

static void
parse_variables(PsmParser *p, PsmCompound *block)
{
	List	   *names = NIL;
	ListCell   *lc;
	int			end;
	const char *typename;
	PsmExpr    *init = NULL;

	refuse_declaration(p);
	do
		names = lappend(names,
						unconstify(PsmToken *, psm_expect_name(p, "The name of a variable")));
	while (psm_accept_char(p, ','));

	end = find_type_end(p);
	if (end == p->at)
		psm_syntax_error(p, CURRENT(p), "The type of the variable was expected here.", NULL);
	typename = pnstrdup(p->source + CURRENT(p)->start,
						p->tokens[end - 1].end - CURRENT(p)->start);
	psm_check_type(p->source, typename, CURRENT(p)->start);
	p->at = end;

	if (psm_accept_word(p, "default"))
		init = psm_parse_expr(p, 0, "The initial value");

	foreach(lc, names)
	{
		const PsmToken *name = lfirst(lc);
		PsmVar	   *var;

		if (psm_find_in_scope(block->scope, name->text) != NULL)
			duplicate(p, name, "variable", ERRCODE_DUPLICATE_OBJECT);
		var = psm_add_var(p, block->scope, name->text, psm_token_pos(name));
		var->typename = unconstify(char *, typename);
		var->init = init;
		block->vars = lappend(block->vars, var);
	}
	list_free(names);
}

/* ---------- conditions ---------- */

static void
parse_condition(PsmParser *p, PsmCompound *block)
{
	const PsmToken *name = psm_expect_name(p, "The name of a condition");
	PsmCondition *condition = palloc0(sizeof(PsmCondition));
	ListCell   *lc;

	foreach(lc, block->scope->conditions)
		if (strcmp(((PsmCondition *) lfirst(lc))->name, name->text) == 0)
			duplicate(p, name, "condition", ERRCODE_DUPLICATE_OBJECT);

	p->at++;					/* CONDITION */
	condition->name = pstrdup(name->text);
	condition->scope = block->scope;
	condition->sqlstate = MAKE_SQLSTATE('4', '5', '0', '0', '0');
	if (psm_accept_word(p, "for"))
		condition->sqlstate = psm_parse_sqlstate(p);
	block->scope->conditions = lappend(block->scope->conditions, condition);
}

/* ---------- cursors ---------- */

/*
 * Is this name [ASENSITIVE|INSENSITIVE|SENSITIVE] [[NO] SCROLL] CURSOR?
 */
static bool
declares_cursor(const PsmParser *p)
{
	static const char *const words[] = {
		"asensitive", "insensitive", "sensitive", "no", "scroll", "binary"
	};

	for (int n = 1;; n++)
	{
		const PsmToken *token = NEXT(p, n);
		bool		known = false;

		if (psm_is_word(token, "cursor"))
			return true;
		for (int i = 0; i < lengthof(words); i++)
			known |= psm_is_word(token, words[i]);
		if (!known)
			return false;
	}
}

static void
refuse_cursor_option(PsmParser *p, const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("a cursor of a block cannot be declared %s", what),
			 errhint("%s", hint),
			 token_errposition(p, CURRENT(p))));
}

static void
parse_cursor(PsmParser *p, PsmCompound *block)
{
	const PsmToken *name = psm_expect_name(p, "The name of a cursor");
	PsmCursor  *cursor = palloc0(sizeof(PsmCursor));
	ListCell   *lc;

	foreach(lc, block->scope->cursors)
		if (strcmp(((PsmCursor *) lfirst(lc))->name, name->text) == 0)
			duplicate(p, name, "cursor", ERRCODE_DUPLICATE_CURSOR);

	while (!psm_is_word(CURRENT(p), "cursor"))
	{
		if (psm_is_word(CURRENT(p), "scroll") && !psm_is_word(CURRENT(p) - 1, "no"))
			refuse_cursor_option(p, "SCROLL", "FETCH only goes forward.");
		if (psm_is_word(CURRENT(p), "binary"))
			refuse_cursor_option(p, "BINARY", "FETCH puts values into variables.");
		p->at++;
	}
	p->at++;
	while (!psm_is_word(CURRENT(p), "for"))
	{
		if (psm_accept_word(p, "without"))
		{
			if (!psm_accept_word(p, "hold") && !psm_accept_word(p, "return"))
				psm_syntax_error(p, CURRENT(p), "HOLD or RETURN was expected here.", NULL);
		}
		else if (psm_is_word(CURRENT(p), "with") && psm_is_word(NEXT(p, 1), "return"))
			refuse_cursor_option(p, "WITH RETURN", "Use RETURN TABLE query.");
		else if (psm_is_word(CURRENT(p), "with") && psm_is_word(NEXT(p, 1), "hold"))
			p->at += 2;
		else
			psm_syntax_error(p, CURRENT(p), "FOR and the query of the cursor were expected here.",
							 NULL);
	}
	p->at++;

	cursor->name = pstrdup(name->text);
	cursor->number = p->script->ncursors++;
	cursor->scope = block->scope;
	cursor->pos = psm_token_pos(name);
	cursor->query = psm_parse_query(p, 0, "The query of the cursor");
	block->scope->cursors = lappend(block->scope->cursors, cursor);
}

/* ---------- handlers ---------- */

/* Class 00 to 02: completion, warning, no data */
static bool
is_error_state(int sqlstate)
{
	int			class = ERRCODE_TO_CATEGORY(sqlstate);

	return class != MAKE_SQLSTATE('0', '0', '0', '0', '0') &&
		class != MAKE_SQLSTATE('0', '1', '0', '0', '0') &&
		class != MAKE_SQLSTATE('0', '2', '0', '0', '0');
}

static PsmHandledState *
parse_handled_state(PsmParser *p)
{
	PsmHandledState *state = palloc0(sizeof(PsmHandledState));
	const PsmToken *token = CURRENT(p);

	if (psm_accept_word(p, "sqlexception"))
		state->kind = PSM_ON_SQLEXCEPTION;
	else if (psm_accept_word(p, "sqlwarning"))
		state->kind = PSM_ON_SQLWARNING;
	else if (psm_is_word(token, "not") && psm_is_word(token + 1, "found"))
	{
		p->at += 2;
		state->kind = PSM_ON_NOT_FOUND;
	}
	else if (psm_is_word(token, "sqlstate"))
	{
		state->kind = PSM_ON_SQLSTATE;
		state->sqlstate = psm_parse_sqlstate(p);
	}
	else if (token->type == PSM_TOK_IDENT)
	{
		state->kind = PSM_ON_SQLSTATE;
		state->sqlstate = psm_find_condition(p, token)->sqlstate;
		p->at++;
	}
	else
		psm_syntax_error(p, token, token->type == PSM_TOK_ICONST ?
						 "Error numbers of other systems mean nothing here." :
						 "A condition was expected here.",
						 "A condition is SQLSTATE 'sssss', a declared name, SQLEXCEPTION, "
						 "SQLWARNING or NOT FOUND.");
	return state;
}

static bool
same_state(const PsmHandledState *a, const PsmHandledState *b)
{
	return a->kind == b->kind && a->sqlstate == b->sqlstate;
}

/*
 * A condition stands once in a block, and a handler is for single states or for
 * whole kinds, not both.
 */
static void
check_handled_state(PsmParser *p, const PsmCompound *block, const PsmHandler *handler,
					const PsmHandledState *state, const PsmToken *token)
{
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, handler->states)
	{
		const PsmHandledState *other = lfirst(lc);

		if (same_state(other, state))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("the handler names the same condition twice"),
					 token_errposition(p, token)));
		if ((other->kind == PSM_ON_SQLSTATE) != (state->kind == PSM_ON_SQLSTATE))
			psm_syntax_error(p, token, "A handler is either for states or for SQLEXCEPTION, "
							 "SQLWARNING and NOT FOUND, not for both.",
							 "Declare two handlers.");
	}
	foreach(lc, block->handlers)
	{
		const PsmHandler *other = lfirst(lc);

		foreach(lc2, other->states)
			if (same_state(lfirst(lc2), state))
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_OBJECT),
						 errmsg("the block already has a handler for this condition"),
						 errdetail("It is declared on line %d.", other->pos.line),
						 token_errposition(p, token)));
	}
}

/*
 * A handler up to its statement, which is the caller's to parse
 */
static PsmHandler *
parse_handler(PsmParser *p, PsmCompound *block, const PsmToken *declare)
{
	PsmHandler *handler = palloc0(sizeof(PsmHandler));
	const PsmToken *kind = CURRENT(p);

	handler->pos = psm_token_pos(declare);
	if (psm_is_word(kind, "continue"))
		handler->kind = PSM_CONTINUE;
	else if (psm_is_word(kind, "exit"))
		handler->kind = PSM_EXIT;
	else
	{
		handler->kind = PSM_UNDO;
		if (!block->atomic)
			psm_syntax_error(p, kind, "Only a block that begins with BEGIN ATOMIC can be undone.",
							 NULL);
	}
	p->at += 2;
	psm_expect_word(p, "for", "FOR and the conditions to handle were expected here.");
	do
	{
		const PsmToken *token = CURRENT(p);
		PsmHandledState *state = parse_handled_state(p);

		check_handled_state(p, block, handler, state, token);
		handler->states = lappend(handler->states, state);
		if (state->kind == PSM_ON_SQLEXCEPTION ||
			(state->kind == PSM_ON_SQLSTATE && is_error_state(state->sqlstate)))
			block->catches_errors = true;
	} while (psm_accept_char(p, ','));

	p->script->has_handlers = true;
	block->handlers = lappend(block->handlers, handler);
	return handler;
}

/* ---------- declarations ---------- */

static bool
declares_handler(const PsmParser *p)
{
	const PsmToken *kind = CURRENT(p);

	return psm_is_word(NEXT(p, 1), "handler") &&
		(psm_is_word(kind, "continue") || psm_is_word(kind, "exit") || psm_is_word(kind, "undo"));
}

/*
 * A declaration, from DECLARE on, without its semicolon.  Returns a handler,
 * behind whose conditions the parser is left: its statement comes next.
 */
PsmHandler *
psm_parse_declaration(PsmParser *p, PsmCompound *block, PsmDeclStage *stage)
{
	const PsmToken *declare = CURRENT(p);

	p->at++;
	if (declares_handler(p))
	{
		*stage = PSM_DECL_HANDLERS;	/* the last: never too late */
		return parse_handler(p, block, declare);
	}
	if (declares_cursor(p))
	{
		enter_stage(p, declare, stage, PSM_DECL_CURSORS);
		parse_cursor(p, block);
		return NULL;
	}
	enter_stage(p, declare, stage, PSM_DECL_NAMES);
	if (psm_is_word(NEXT(p, 1), "condition"))
		parse_condition(p, block);
	else
		parse_variables(p, block);
	return NULL;
}
