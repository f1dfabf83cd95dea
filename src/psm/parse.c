/*
 * parse.c
 *		The parser's entry, and the statements of the language.
 *
 * Recursive descent over the array of tokens; tree.h has the tree, the design of
 * the files is in parse.h.  All that holds statements is here, blocks and the
 * handlers they declare included, so none of the parser's other files has to call
 * this one.  The script's tree is made in a context of its own; the tokens live
 * in another that goes away at the end.  Errors leave both to the caller's context.
 */
#include "psm/parse.h"

#include "miscadmin.h"
#include "utils/memutils.h"

typedef PsmStmt *(*StatementParser) (PsmParser *p, const PsmToken *label);

static void parse_statement(PsmParser *p, List **list);
static PsmStmt *parse_if(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_case(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_loop(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_while(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_repeat(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_for(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_jump(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_cursor_stmt(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_fetch(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_execute(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_return(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_signal(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_get(PsmParser *p, const PsmToken *label);
static PsmStmt *parse_block(PsmParser *p, const PsmToken *label);

static const struct
{
	const char *word;
	StatementParser parse;
	bool		labelled;		/* may have a label */
}			statements[] = {
	{"begin", parse_block, true},
	{"if", parse_if, false},
	{"case", parse_case, false},
	{"loop", parse_loop, true},
	{"while", parse_while, true},
	{"repeat", parse_repeat, true},
	{"for", parse_for, true},
	{"leave", parse_jump, false},
	{"iterate", parse_jump, false},
	{"open", parse_cursor_stmt, false},
	{"close", parse_cursor_stmt, false},
	{"fetch", parse_fetch, false},
	{"execute", parse_execute, false},
	{"return", parse_return, false},
	{"signal", parse_signal, false},
	{"resignal", parse_signal, false},
	{"get", parse_get, false}
};

/* What other languages call it */
static const struct
{
	const char *word;
	const char *hint;
}			foreign_words[] = {
	{"raise", "Use SIGNAL SQLSTATE 'sssss' SET MESSAGE_TEXT = ... to raise an error."},
	{"perform", "Use SELECT, whose rows are dropped."},
	{"exit", "Use LEAVE with a label."},
	{"break", "Use LEAVE with a label."},
	{"continue", "Use ITERATE with a label."},
	{"elsif", "The keyword is ELSEIF."},
	{"exception", "Declare a handler at the beginning of the block: DECLARE EXIT HANDLER FOR "
	"SQLEXCEPTION ..."},
	{"null", "A list of statements may be empty: leave the statement out."},
	{"assert", "Use IF and SIGNAL."},
	{"foreach", "Use FOR ... AS SELECT ... FROM unnest(array) DO ... END FOR."},
	{"print", "Use RETURN to give a result."},
	{"go", "Statements end with a semicolon."},
	{"goto", "Use LEAVE or ITERATE with a label."},
	{"let", "Declare the variable at the beginning of the block: DECLARE name type DEFAULT value."},
	{"use", "Use SET LOCAL search_path TO schema."},
	{"delimiter", "The block arrives as one text: no delimiter is needed."}
};

/* ---------- statements in general ---------- */

/*
 * Words that end a list of statements
 */
static bool
ends_list(const PsmToken *token)
{
	static const char *const words[] = {"end", "else", "elseif", "when", "until"};

	if (token->type == 0)
		return true;
	for (int i = 0; i < lengthof(words); i++)
		if (psm_is_word(token, words[i]))
			return true;
	return false;
}

/*
 * Statements, each with its semicolon, up to what ends a list
 */
static void
parse_statements(PsmParser *p, List **list)
{
	while (!ends_list(CURRENT(p)))
	{
		const PsmToken *first = CURRENT(p);

		CHECK_FOR_INTERRUPTS();
		parse_statement(p, list);
		psm_expect_char(p, ';', psprintf("The statement that begins on line %d, column %d is not "
										 "ended by a semicolon.", first->line, first->column));
	}
}

/*
 * Errors for what is no statement here and would only get a poor message from
 * PostgreSQL.
 */
static void
refuse_foreign(PsmParser *p)
{
	const PsmToken *token = CURRENT(p);

	if (token->type == PSM_TOK_OP && strcmp(token->text, "<<") == 0)
		psm_syntax_error(p, token, NULL, "A label is written with a colon: \"name: LOOP\".");
	if (psm_looks_like_assignment(p, 0))
		psm_syntax_error(p, NEXT(p, 1), NULL, psprintf("An assignment begins with SET: \"SET %s = "
													   "...\".", psm_token_text(p, token)));
	if (token->type == ';')
		psm_syntax_error(p, token, "A statement was expected here.", NULL);
	if (token->type != PSM_TOK_IDENT || token->quoted)
	{
		if (token->type != '(')
			psm_syntax_error(p, token, "A statement was expected here.",
							 p->source[token->start] == '\\' ?
							 "Commands of psql cannot stand in a block." : NULL);
		return;
	}
	if (psm_is_word(token, "declare"))
		psm_syntax_error(p, token, "Declarations stand at the beginning of a block, before its "
						 "statements.", NULL);
	if (ends_list(token))
		psm_syntax_error(p, token, "A statement was expected here.", NULL);
	for (int i = 0; i < lengthof(foreign_words); i++)
		if (psm_is_word(token, foreign_words[i].word))
			psm_syntax_error(p, token, NULL, foreign_words[i].hint);
}

/*
 * Index in statements of the statement a token begins, or -1
 */
static int
find_statement(const PsmToken *token)
{
	for (int i = 0; i < lengthof(statements); i++)
		if (psm_is_word(token, statements[i].word))
			return i;
	return -1;
}

/*
 * The label at the next token, or NULL; leaves the parser behind the colon.
 */
static const PsmToken *
accept_label(PsmParser *p)
{
	const PsmToken *token = CURRENT(p);
	const PsmToken *colon = NEXT(p, 1);
	int			statement;

	if (token->type != PSM_TOK_IDENT || !psm_is_char(colon, ':'))
		return NULL;

	/* RETURN :for is a parameter, not a label called return */
	if (find_statement(token) >= 0 && token->end < colon->start && colon->end == colon[1].start)
		return NULL;

	statement = find_statement(colon + 1);
	if (statement < 0 || !statements[statement].labelled)
	{
		if (find_statement(token) >= 0 || token->end < colon->start)
			return NULL;
		psm_syntax_error(p, colon + 1, "A label stands before BEGIN, LOOP, WHILE, REPEAT or FOR.",
						 NULL);
	}
	p->at += 2;
	return token;
}

/*
 * One statement, without its semicolon; SET may make several.
 */
static void
parse_statement(PsmParser *p, List **list)
{
	const PsmToken *label;
	int			statement;

	check_stack_depth();
	label = accept_label(p);
	statement = find_statement(CURRENT(p));

	/* a := 1 may be written for a variable of such a name */
	if (statement >= 0 && NEXT(p, 1)->type != PSM_TOK_COLON_EQUALS)
		*list = lappend(*list, statements[statement].parse(p, label));
	else if (psm_is_word(CURRENT(p), "set") && NEXT(p, 1)->type != PSM_TOK_COLON_EQUALS)
		psm_parse_set(p, list);
	else
	{
		refuse_foreign(p);
		*list = lappend(*list, psm_parse_sql(p));
	}
}

static PsmStmt *
parse_signal(PsmParser *p, const PsmToken *label)
{
	return psm_parse_signal(p);
}

static PsmStmt *
parse_get(PsmParser *p, const PsmToken *label)
{
	return psm_parse_get_diagnostics(p);
}

/*
 * END and the word of the statement that began with the token first; where the
 * statement can have a label, it may follow.
 */
static void
parse_end(PsmParser *p, const char *word, const PsmToken *first)
{
	char	   *upper = pstrdup(word);
	char	   *detail;

	for (char *c = upper; *c != '\0'; c++)
		*c = pg_toupper((unsigned char) *c);
	detail = psprintf("The %s on line %d, column %d needs an END %s first.", upper, first->line,
					  first->column, upper);
	if (!psm_is_word(CURRENT(p), "end"))
		psm_syntax_error(p, CURRENT(p), detail, NULL);
	if (!psm_is_word(NEXT(p, 1), word))
		psm_syntax_error(p, NEXT(p, 1), detail,
						 strcmp(word, "if") == 0 && p->at > 0 && (NEXT(p, 1)->type == ';' || NEXT(p, 1)->type == 0) ?
						 "ELSE IF opens an IF of its own; ELSEIF goes on with the same one." : NULL);
	p->at += 2;
	pfree(upper);
	pfree(detail);
}

/* ---------- blocks ---------- */

/*
 * The statement of a handler.  SET a = 1, b = 2 is two: they get a block.
 */
static PsmStmt *
parse_action(PsmParser *p)
{
	const PsmToken *first = CURRENT(p);
	List	   *list = NIL;
	PsmCompound *block;

	p->handlers++;
	parse_statement(p, &list);
	p->handlers--;
	if (list_length(list) == 1)
		return linitial(list);

	block = psm_new_stmt(p, sizeof(PsmCompound), PSM_COMPOUND, first);
	block->scope = psm_push_scope(p, NULL);
	psm_pop_scope(p);
	block->body = list;
	return &block->stmt;
}

static void
parse_declarations(PsmParser *p, PsmCompound *block)
{
	PsmDeclStage stage = PSM_DECL_NAMES;

	while (psm_is_word(CURRENT(p), "declare"))
	{
		int			line = CURRENT(p)->line;
		PsmHandler *handler = psm_parse_declaration(p, block, &stage);

		if (handler != NULL)
			handler->action = parse_action(p);
		psm_expect_char(p, ';', psprintf("The declaration on line %d is not ended by a semicolon.",
										 line));
	}
}

/*
 * BEGIN of a transaction, which people write out of habit
 */
static void
refuse_begin_transaction(PsmParser *p)
{
	static const char *const words[] = {"transaction", "work", "isolation"};
	const PsmToken *token = CURRENT(p);

	if (token->type == ';')
		psm_syntax_error(p, token, "BEGIN opens a block here, and no semicolon follows it.", NULL);
	for (int i = 0; i < lengthof(words); i++)
		if (psm_is_word(token, words[i]) && token[1].type != '=')
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
					 errmsg("BEGIN %s cannot run in a block", psm_token_text(p, token)),
					 errdetail("A block is part of one transaction and cannot begin another."),
					 token_errposition(p, token - 1)));
}

/*
 * END of a block, reached by the list of its statements
 */
static void
parse_block_end(PsmParser *p, const PsmToken *label, const PsmToken *begin, bool outermost)
{
	static const char *const others[] = {"if", "case", "loop", "while", "repeat", "for"};

	if (!psm_accept_word(p, "end"))
		psm_syntax_error(p, CURRENT(p), psprintf("The BEGIN on line %d, column %d needs an END "
												 "first.", begin->line, begin->column), NULL);
	for (int i = 0; i < lengthof(others); i++)
		if (psm_is_word(CURRENT(p), others[i]) &&
			(label == NULL || strcmp(label->text, others[i]) != 0))
			psm_syntax_error(p, CURRENT(p), psprintf("What END would end here is the BEGIN on line "
													 "%d, column %d.", begin->line, begin->column),
							 NULL);

	/* text behind the script's END gets an error of its own */
	if (outermost && label == NULL && NEXT(p, 1)->type != 0 && NEXT(p, 1)->type != ';')
		return;
	psm_parse_end_label(p, label, "block");
}

/*
 * [label:] BEGIN [[NOT] ATOMIC] ... END [label], from BEGIN on
 */
static PsmCompound *
parse_compound(PsmParser *p, const PsmToken *label, bool outermost)
{
	const PsmToken *begin = CURRENT(p);
	PsmLabel   *outer = p->labels;
	PsmLabel	here;
	PsmCompound *block;

	check_stack_depth();
	block = psm_new_stmt(p, sizeof(PsmCompound), PSM_COMPOUND, label ? label : begin);
	p->at++;
	block->atomic = outermost;
	if (psm_accept_word(p, "atomic"))
		block->atomic = true;
	else if (psm_is_word(CURRENT(p), "not") && psm_is_word(NEXT(p, 1), "atomic"))
	{
		if (outermost)
			psm_syntax_error(p, CURRENT(p), "The outermost block is always atomic.",
							 "Write BEGIN ATOMIC, or BEGIN alone.");
		p->at += 2;
	}
	else
		refuse_begin_transaction(p);

	block->scope = psm_push_scope(p, label ? label->text : NULL);
	psm_push_label(p, &here, label, block->scope, false);
	parse_declarations(p, block);
	parse_statements(p, &block->body);
	parse_block_end(p, label, begin, outermost);
	p->labels = outer;
	psm_pop_scope(p);
	return block;
}

static PsmStmt *
parse_block(PsmParser *p, const PsmToken *label)
{
	return &parse_compound(p, label, false)->stmt;
}

/* ---------- IF and CASE ---------- */

/*
 * A condition behind IF, ELSEIF or WHEN, up to THEN, and the statements behind it
 */
static PsmBranch *
parse_branch(PsmParser *p, PsmScope *scope, bool simple)
{
	PsmBranch  *branch = palloc0(sizeof(PsmBranch));
	const PsmToken *word = CURRENT(p) - 1;
	PsmScope   *outer = p->scope;

	branch->pos = psm_token_pos(CURRENT(p));
	p->scope = scope;
	if (simple)
	{
		int			end = psm_find_end(p, STOP_THEN);

		if (end == p->at)
			psm_syntax_error(p, CURRENT(p), "A value was expected here.", NULL);
		branch->when = psm_make_piece(p, p->at, end, RAW_PARSE_PLPGSQL_EXPR,
									  "\"case operand\" IN (", ")");
		p->at = end;
	}
	else
		branch->when = psm_parse_expr(p, STOP_THEN, "A condition");
	p->scope = outer;

	psm_expect_word(p, "then", psprintf("THEN was expected to end the condition on line %d, "
										"column %d.", word->line, word->column));
	parse_statements(p, &branch->body);
	return branch;
}

static PsmStmt *
parse_if(PsmParser *p, const PsmToken *label)
{
	const PsmToken *first = CURRENT(p);
	PsmIf	   *stmt = psm_new_stmt(p, sizeof(PsmIf), PSM_IF, first);

	do
	{
		p->at++;				/* IF, ELSEIF */
		stmt->branches = lappend(stmt->branches, parse_branch(p, p->scope, false));
	} while (psm_is_word(CURRENT(p), "elseif"));
	if (psm_accept_word(p, "else"))
	{
		stmt->has_else = true;
		parse_statements(p, &stmt->otherwise);
	}
	parse_end(p, "if", first);
	return &stmt->stmt;
}

static PsmStmt *
parse_case(PsmParser *p, const PsmToken *label)
{
	const PsmToken *first = CURRENT(p);
	PsmCase    *stmt = psm_new_stmt(p, sizeof(PsmCase), PSM_CASE, first);
	PsmScope   *scope = p->scope;

	p->at++;
	if (!psm_is_word(CURRENT(p), "when"))
	{
		PsmPos		pos = psm_token_pos(CURRENT(p));

		stmt->operand = psm_parse_expr(p, STOP_WHEN, "The operand of CASE");

		/* the WHENs alone see the operand, not the statements behind THEN */
		scope = psm_push_scope(p, NULL);
		psm_pop_scope(p);
		stmt->operand_var = psm_add_var(p, scope, "case operand", pos);
		stmt->operand_var->constant = true;

		/* a parameter alone takes the type that each WHEN needs, as anywhere else */
		if (stmt->operand->lone_host)
			stmt->operand_var->host = stmt->operand->hosts;
	}
	if (!psm_is_word(CURRENT(p), "when"))
		psm_syntax_error(p, CURRENT(p), psprintf("WHEN was expected after the CASE on line %d, "
												 "column %d.", first->line, first->column), NULL);
	while (psm_accept_word(p, "when"))
		stmt->branches = lappend(stmt->branches,
								 parse_branch(p, scope, stmt->operand != NULL));
	if (psm_accept_word(p, "else"))
	{
		stmt->has_else = true;
		parse_statements(p, &stmt->otherwise);
	}
	parse_end(p, "case", first);
	return &stmt->stmt;
}

/* ---------- loops ---------- */

/*
 * DO behind the condition or query of a loop, which began with the token first
 */
static void
expect_do(PsmParser *p, const char *part, const PsmToken *first)
{
	bool		loop = false;

	if (psm_accept_word(p, "do"))
		return;
	for (const PsmToken *token = first; token < CURRENT(p); token++)
		loop |= psm_is_word(token, "loop");
	psm_syntax_error(p, CURRENT(p),
					 psprintf("DO was expected to end the %s of the %s on line %d, column %d.", part,
							  psm_is_word(first, "while") ? "WHILE" : "FOR", first->line,
							  first->column),
					 loop ? "The body begins with DO, not with LOOP." : NULL);
}

static PsmLoop *
new_loop(PsmParser *p, PsmStmtKind kind, const PsmToken *label, PsmLabel *here)
{
	PsmLoop    *stmt = psm_new_stmt(p, sizeof(PsmLoop), kind, label ? label : CURRENT(p));

	stmt->scope = psm_push_scope(p, label ? label->text : NULL);
	psm_push_label(p, here, label, stmt->scope, true);
	p->at++;
	return stmt;
}

/*
 * Leaves what new_loop() or parse_for() entered.
 */
static void
end_loop(PsmParser *p, const char *word, const PsmToken *first, const PsmToken *label,
		 PsmLabel *outer)
{
	parse_end(p, word, first);
	psm_parse_end_label(p, label, "loop");
	p->labels = outer;
	psm_pop_scope(p);
}

static PsmStmt *
parse_loop(PsmParser *p, const PsmToken *label)
{
	const PsmToken *first = CURRENT(p);
	PsmLabel   *outer = p->labels;
	PsmLabel	here;
	PsmLoop    *stmt = new_loop(p, PSM_LOOP, label, &here);

	parse_statements(p, &stmt->body);
	end_loop(p, "loop", first, label, outer);
	return &stmt->stmt;
}

static PsmStmt *
parse_while(PsmParser *p, const PsmToken *label)
{
	const PsmToken *first = CURRENT(p);
	PsmLabel   *outer = p->labels;
	PsmLabel	here;
	PsmLoop    *stmt = new_loop(p, PSM_WHILE, label, &here);

	stmt->condition = psm_parse_expr(p, STOP_DO, "A condition");
	expect_do(p, "condition", first);
	parse_statements(p, &stmt->body);
	end_loop(p, "while", first, label, outer);
	return &stmt->stmt;
}

static PsmStmt *
parse_repeat(PsmParser *p, const PsmToken *label)
{
	const PsmToken *first = CURRENT(p);
	PsmLabel   *outer = p->labels;
	PsmLabel	here;
	PsmLoop    *stmt = new_loop(p, PSM_REPEAT, label, &here);

	parse_statements(p, &stmt->body);
	psm_expect_word(p, "until", psprintf("The REPEAT on line %d, column %d needs an UNTIL first.",
										 first->line, first->column));
	stmt->condition = psm_parse_expr(p, STOP_END, "A condition");
	end_loop(p, "repeat", first, label, outer);
	return &stmt->stmt;
}

/*
 * name [ASENSITIVE|INSENSITIVE|SENSITIVE] CURSOR [WITH HOLD|WITHOUT HOLD] FOR,
 * when it is there
 */
static char *
parse_for_cursor(PsmParser *p)
{
	const PsmToken *name = CURRENT(p);
	int			n = 1;

	if (psm_is_word(NEXT(p, 1), "asensitive") || psm_is_word(NEXT(p, 1), "insensitive") ||
		psm_is_word(NEXT(p, 1), "sensitive"))
		n = 2;
	if (name->type != PSM_TOK_IDENT || !psm_is_word(NEXT(p, n), "cursor"))
		return NULL;
	n++;
	if ((psm_is_word(NEXT(p, n), "with") || psm_is_word(NEXT(p, n), "without")) &&
		psm_is_word(NEXT(p, n + 1), "hold"))
		n += 2;
	if (!psm_is_word(NEXT(p, n), "for"))
		psm_syntax_error(p, NEXT(p, n), "FOR and the query of the cursor were expected here.",
						 NULL);
	p->at += n + 1;
	return pstrdup(name->text);
}

/*
 * FOR [row AS] [cursor CURSOR FOR] query DO
 */
static PsmStmt *
parse_for(PsmParser *p, const PsmToken *label)
{
	const PsmToken *first = CURRENT(p);
	PsmLabel   *outer = p->labels;
	PsmLabel	here;
	PsmFor	   *stmt = psm_new_stmt(p, sizeof(PsmFor), PSM_FOR, label ? label : first);
	const PsmToken *row;
	char	   *cursor_name;

	p->at++;
	row = CURRENT(p);
	if (row->type == PSM_TOK_IDENT && psm_is_word(NEXT(p, 1), "in"))
		psm_syntax_error(p, NEXT(p, 1), NULL, "Use FOR row AS query DO ... END FOR; "
						 "generate_series() gives a range of numbers.");
	if (row->type == PSM_TOK_IDENT && psm_is_word(NEXT(p, 1), "as"))
		p->at += 2;
	else
		row = NULL;
	cursor_name = parse_for_cursor(p);

	/* the query does not see the row it makes */
	stmt->query = psm_parse_query(p, STOP_DO, "A query");
	expect_do(p, "query", first);

	stmt->scope = psm_push_scope(p, label ? label->text : NULL);
	psm_push_label(p, &here, label, stmt->scope, true);
	stmt->row = psm_add_var(p, stmt->scope, row ? row->text : NULL,
							psm_token_pos(row ? row : first));
	stmt->row->kind = PSM_VAR_ROW;
	stmt->row->for_row = true;
	stmt->row->constant = true;
	if (cursor_name != NULL)
	{
		stmt->cursor = palloc0(sizeof(PsmCursor));
		stmt->cursor->name = cursor_name;
		stmt->cursor->number = p->script->ncursors++;
		stmt->cursor->scope = stmt->scope;
		stmt->cursor->pos = stmt->stmt.pos;
		stmt->scope->cursors = lappend(stmt->scope->cursors, stmt->cursor);
	}
	parse_statements(p, &stmt->body);
	end_loop(p, "for", first, label, outer);
	return &stmt->stmt;
}

static PsmStmt *
parse_jump(PsmParser *p, const PsmToken *label)
{
	bool		iterate = psm_is_word(CURRENT(p), "iterate");
	PsmJump    *stmt = psm_new_stmt(p, sizeof(PsmJump), iterate ? PSM_ITERATE : PSM_LEAVE,
									CURRENT(p));
	const PsmToken *name;
	PsmLabel   *target;

	p->at++;
	name = psm_expect_name(p, iterate ? "The label of a loop" : "The label of a block or loop");
	target = psm_find_label(p, name);
	if (iterate && !target->loop)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("ITERATE cannot go to \"%s\", the label of a block", name->text),
				 errdetail("Only a loop has a next iteration."),
				 errhint("LEAVE goes to the end of a block."),
				 token_errposition(p, name)));
	if (psm_is_word(CURRENT(p), "when"))
		psm_syntax_error(p, CURRENT(p), NULL, "Use IF ... THEN ... END IF around it.");
	stmt->target = target->scope;
	return &stmt->stmt;
}

/* ---------- cursors ---------- */

static PsmStmt *
parse_cursor_stmt(PsmParser *p, const PsmToken *label)
{
	bool		open = psm_is_word(CURRENT(p), "open");
	PsmCursorStmt *stmt = psm_new_stmt(p, sizeof(PsmCursorStmt), open ? PSM_OPEN : PSM_CLOSE,
									   CURRENT(p));

	p->at++;
	stmt->cursor = psm_find_cursor(p, psm_expect_name(p, "The name of a cursor"));
	return &stmt->stmt;
}

/*
 * FETCH [[NEXT] FROM] cursor INTO targets
 */
static PsmStmt *
parse_fetch(PsmParser *p, const PsmToken *label)
{
	PsmCursorStmt *stmt = psm_new_stmt(p, sizeof(PsmCursorStmt), PSM_FETCH, CURRENT(p));

	p->at++;
	if (psm_is_word(CURRENT(p), "next") && psm_is_word(NEXT(p, 1), "from"))
		p->at += 2;
	else if (!psm_accept_word(p, "from") && psm_is_word(NEXT(p, 1), "from"))
		psm_syntax_error(p, CURRENT(p), NULL,
						 "FETCH only goes forward, a row at a time: FETCH cursor INTO ...");
	stmt->cursor = psm_find_cursor(p, psm_expect_name(p, "The name of a cursor"));
	psm_expect_word(p, "into", "INTO and the variables to fetch into were expected here.");
	stmt->into = psm_parse_into(p);
	return &stmt->stmt;
}

/* ---------- EXECUTE IMMEDIATE and RETURN ---------- */

/*
 * EXECUTE IMMEDIATE text [INTO targets] [USING expressions]; another EXECUTE
 * runs a prepared statement and is PostgreSQL's.
 */
static PsmStmt *
parse_execute(PsmParser *p, const PsmToken *label)
{
	PsmExecute *stmt;

	if (!psm_is_word(NEXT(p, 1), "immediate"))
	{
		if (NEXT(p, 1)->type == PSM_TOK_SCONST)
			psm_syntax_error(p, NEXT(p, 1), NULL,
							 "The text of a statement is run by EXECUTE IMMEDIATE.");
		return psm_parse_sql(p);
	}

	stmt = psm_new_stmt(p, sizeof(PsmExecute), PSM_EXECUTE, CURRENT(p));
	p->at += 2;
	stmt->text = psm_parse_expr(p, STOP_INTO | STOP_USING, "The text of a statement");
	if (psm_accept_word(p, "into"))
		stmt->into = psm_parse_into(p);
	if (psm_accept_word(p, "using"))
	{
		do
			stmt->using = lappend(stmt->using,
								  psm_parse_expr(p, STOP_COMMA | STOP_INTO, "An expression"));
		while (psm_accept_char(p, ','));
		if (psm_is_word(CURRENT(p), "into"))
			psm_syntax_error(p, CURRENT(p), "INTO stands before USING.", NULL);
	}
	return &stmt->stmt;
}

static PsmStmt *
parse_return(PsmParser *p, const PsmToken *label)
{
	PsmReturn  *stmt = psm_new_stmt(p, sizeof(PsmReturn), PSM_RETURN, CURRENT(p));

	p->at++;
	if (psm_accept_word(p, "table"))
	{
		if (CURRENT(p)->type == PSM_TOK_IDENT && psm_is_char(NEXT(p, 1), ';'))
			psm_syntax_error(p, CURRENT(p), "A query was expected here.",
							 psprintf("Write RETURN TABLE SELECT * FROM %s.",
									  psm_token_text(p, CURRENT(p))));
		stmt->query = psm_parse_query(p, 0, "A query");
	}
	else if ((psm_is_word(CURRENT(p), "query") || psm_is_word(CURRENT(p), "next")) &&
			 NEXT(p, 1)->type == PSM_TOK_IDENT)
		psm_syntax_error(p, CURRENT(p), NULL, "Use RETURN TABLE query.");
	else if (!psm_is_char(CURRENT(p), ';'))
		stmt->value = psm_parse_expr(p, 0, "An expression");
	return &stmt->stmt;
}

/* ---------- scripts ---------- */

/*
 * The outermost scope of a function: its arguments under its name
 */
static void
add_arguments(PsmParser *p, const char *label, const PsmArgument *args, int nargs)
{
	PsmScope   *scope = psm_push_scope(p, label);
	PsmPos		pos = {0, 1, 1};

	for (int i = 0; i < nargs; i++)
	{
		PsmVar	   *var = psm_add_var(p, scope, args[i].name, pos);

		var->type = args[i].type;
		var->typmod = args[i].typmod;
		var->constant = args[i].constant;
	}
	p->script->nargs = nargs;
}

/*
 * Errors for a script that does not begin with a block, or goes on behind it
 */
static void
refuse_start(PsmParser *p)
{
	const PsmToken *token = CURRENT(p);

	if (token->type == 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the block is empty"),
				 errhint("A block is BEGIN ATOMIC ... END.")));
	if (psm_is_word(token, "declare"))
		psm_syntax_error(p, token, "A block begins with BEGIN, or a label and BEGIN.",
						 "Declarations stand behind BEGIN.");
	if (strncmp(p->source + token->start, "\xEF\xBB\xBF", 3) == 0)
		psm_syntax_error(p, token, "The text begins with a byte order mark.",
						 "Save the file as UTF-8 without one.");
	psm_syntax_error(p, token, "A block begins with BEGIN, or a label and BEGIN.",
					 "Write BEGIN ATOMIC before the statements, each with a semicolon, and END "
					 "behind them.");
}

static void
parse_script(PsmParser *p)
{
	const PsmToken *label = NULL;

	if (CURRENT(p)->type == PSM_TOK_IDENT && psm_is_char(NEXT(p, 1), ':') &&
		psm_is_word(NEXT(p, 2), "begin"))
	{
		label = CURRENT(p);
		p->at += 2;
	}
	if (!psm_is_word(CURRENT(p), "begin"))
		refuse_start(p);
	p->script->body = parse_compound(p, label, true);
	(void) psm_accept_char(p, ';');
	if (CURRENT(p)->type != 0)
		psm_syntax_error(p, CURRENT(p), psprintf("A script is one block, which ends before line "
												 "%d, column %d.", CURRENT(p)->line,
												 CURRENT(p)->column),
						 "Put all statements between BEGIN and END.");
}

static void
init_script(PsmParser *p)
{
	PsmScript  *script = p->script;

	p->max_vars = p->max_stmts = 16;
	p->max_hosts = 8;
	script->vars = palloc(p->max_vars * sizeof(PsmVar *));
	script->stmts = palloc(p->max_stmts * sizeof(PsmStmt *));
	script->hosts = palloc(p->max_hosts * sizeof(PsmHost));
	script->source = pstrdup(p->source);
}

PsmScript *
psm_parse(const char *source, MemoryContext parent, const char *label,
		  const PsmArgument *args, int nargs)
{
	PsmParser	parser = {0};
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext mcxt;
	MemoryContext scratch;
	int			ntokens;

	/* both go with the caller's context when there is an error */
	mcxt = AllocSetContextCreate(caller, "psm script", ALLOCSET_DEFAULT_SIZES);
	scratch = AllocSetContextCreate(caller, "psm parser", ALLOCSET_DEFAULT_SIZES);

	MemoryContextSwitchTo(scratch);
	parser.source = source;
	parser.function = label != NULL;
	parser.tokens = psm_scan(source, &ntokens);
	psm_init_pieces(&parser);

	MemoryContextSwitchTo(mcxt);
	parser.script = palloc0(sizeof(PsmScript));
	parser.script->mcxt = mcxt;
	init_script(&parser);
	if (label != NULL)
		add_arguments(&parser, label, args, nargs);
	parse_script(&parser);

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	MemoryContextSetParent(mcxt, parent);
	return parser.script;
}
