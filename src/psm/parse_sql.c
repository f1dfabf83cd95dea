/*
 * parse_sql.c
 *		The parser's pieces of SQL: where one ends, the parameters in it, INTO.
 *
 * A piece is never rewritten but in place and to the same length, so that an
 * offset in its text is an offset in the script (see PsmExpr).  What is looked
 * for is looked for among tokens, never in the text: strings and comments are
 * out of the way already.
 *
 * The words that end a piece (THEN, DO, END, ...) count only where they are
 * words: without double quotes, not behind a dot or AS, outside brackets, and
 * outside CASE ... END.
 */
#include "psm/parse.h"

#include "common/hashfn.h"
#include "common/keywords.h"
#include "parser/scansup.h"

/*
 * Brackets nested deeper than this are refused: PostgreSQL's parser gives up a
 * little later, with an error that does not say where.
 */
#define MAX_BRACKETS 9000

typedef struct HostEntry
{
	const char *key;			/* the name as it stands in the script, quotes and all */
	int			index;			/* in PsmScript.hosts */
	char		status;
} HostEntry;

#define SH_PREFIX hosttab
#define SH_ELEMENT_TYPE HostEntry
#define SH_KEY_TYPE const char *
#define SH_KEY key
#define SH_HASH_KEY(tb, key) hash_bytes((const unsigned char *) (key), strlen(key))
#define SH_EQUAL(tb, a, b) (strcmp(a, b) == 0)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

void
psm_init_pieces(PsmParser *p)
{
	p->hosts = hosttab_create(CurrentMemoryContext, 16, NULL);
	initStringInfo(&p->brackets);
}

/* ---------- where a piece ends ---------- */

/*
 * True when a token is a word that may have a meaning for us: not a quoted
 * name, nor one that follows a dot or AS, nor the name of a parameter.
 */
static bool
is_free_word(const PsmParser *p, int i, int first)
{
	const PsmToken *token = &p->tokens[i];

	if (token->type != PSM_TOK_IDENT || token->quoted)
		return false;
	if (i == first)
		return true;
	return !psm_is_char(token - 1, '.') && !psm_is_word(token - 1, "as") &&
		!(psm_is_char(token - 1, ':') && token[-1].end == token->start);
}

static int
stop_of_word(const char *word)
{
	static const struct
	{
		const char *word;
		int			stop;
	}			words[] = {
		{"then", STOP_THEN}, {"do", STOP_DO}, {"when", STOP_WHEN},
		{"into", STOP_INTO}, {"using", STOP_USING}
	};

	for (int i = 0; i < lengthof(words); i++)
		if (strcmp(words[i].word, word) == 0)
			return words[i].stop;
	return 0;
}

/*
 * DO of ON CONFLICT ... DO or of MERGE's THEN DO NOTHING, which ends nothing.
 */
static bool
is_inner_do(const PsmParser *p, int i, bool *conflict)
{
	bool		inner = *conflict || psm_is_word(&p->tokens[i - 1], "then");

	*conflict = false;
	return inner;
}

/*
 * CREATE [OR REPLACE] FUNCTION or PROCEDURE, which may have a body of statements
 */
static bool
creates_routine(const PsmParser *p)
{
	int			n = 1;

	if (!psm_is_word(CURRENT(p), "create"))
		return false;
	if (psm_is_word(NEXT(p, 1), "or") && psm_is_word(NEXT(p, 2), "replace"))
		n = 3;
	return psm_is_word(NEXT(p, n), "function") || psm_is_word(NEXT(p, n), "procedure");
}

static void
open_bracket(PsmParser *p, const PsmToken *token)
{
	if (p->brackets.len >= MAX_BRACKETS)
		ereport(ERROR,
				(errcode(ERRCODE_STATEMENT_TOO_COMPLEX),
				 errmsg("brackets are nested too deeply"),
				 errdetail("At most %d may be open at a time.", MAX_BRACKETS),
				 token_errposition(p, token)));
	appendStringInfoCharMacro(&p->brackets, token->type);
}

static void
close_bracket(PsmParser *p, const PsmToken *token)
{
	StringInfo	open = &p->brackets;
	char		opening = token->type == ')' ? '(' : '[';

	if (open->len == 0 || open->data[open->len - 1] != opening)
		psm_syntax_error(p, token, psprintf("No \"%c\" is open here.", opening), NULL);
	open->data[--open->len] = '\0';
}

/*
 * Error for brackets left open, at the outermost of them.
 */
static void
unclosed_bracket(PsmParser *p, const PsmToken *bracket, const PsmToken *at)
{
	psm_syntax_error(p, at, psprintf("The \"%c\" on line %d, column %d is not closed.",
									 bracket->type, bracket->line, bracket->column), NULL);
}

/* Where a search for the end of a piece is, outside brackets */
typedef struct EndSearch
{
	int			first;
	int			stops;
	int			case_depth;
	bool		routine;		/* CREATE FUNCTION or PROCEDURE */
	bool		in_body;		/* of it: BEGIN ATOMIC ... END */
	bool		conflict;		/* between ON CONFLICT and its DO */
} EndSearch;

/*
 * True when the word at i, outside brackets, ends the piece.
 */
static bool
word_ends_piece(const PsmParser *p, EndSearch *search, int i)
{
	const PsmToken *token = &p->tokens[i];
	const char *word = token->text;

	if (strcmp(word, "case") == 0)
		search->case_depth++;
	else if (strcmp(word, "end") == 0)
	{
		if (search->case_depth > 0)
			search->case_depth--;
		else if (search->in_body)
			search->in_body = false;
		else
			return true;
	}
	else if (search->case_depth > 0 || search->in_body)
		return false;
	else if (search->routine && strcmp(word, "begin") == 0 && psm_is_word(token + 1, "atomic"))
		search->in_body = true;
	else if (i > search->first && strcmp(word, "conflict") == 0 && psm_is_word(token - 1, "on"))
		search->conflict = true;
	else if (i > search->first && strcmp(word, "do") == 0 &&
			 is_inner_do(p, i, &search->conflict))
		return false;
	else
		return strcmp(word, "else") == 0 || (stop_of_word(word) & search->stops) != 0;
	return false;
}

/*
 * Index of the token that ends the piece which begins at the next token: a
 * semicolon, the end of the script, END or ELSE, or one of the stops.
 */
int
psm_find_end(PsmParser *p, int stops)
{
	EndSearch	search = {.first = p->at, .stops = stops, .routine = creates_routine(p)};
	bool		rule = psm_is_word(CURRENT(p), "create");
	const PsmToken *outermost = NULL;

	resetStringInfo(&p->brackets);
	for (int i = p->at;; i++)
	{
		const PsmToken *token = &p->tokens[i];

		if (token->type == 0)
		{
			if (p->brackets.len > 0)
				unclosed_bracket(p, outermost, token);
			return i;
		}
		if (token->type == '(' || token->type == '[')
		{
			if (p->brackets.len == 0)
				outermost = token;
			open_bracket(p, token);
		}
		else if (token->type == ')' || token->type == ']')
		{
			if (token->type == ')' && p->brackets.len == 0 && (stops & STOP_PAREN))
				return i;
			close_bracket(p, token);
		}
		else if (p->brackets.len > 0)
		{
			/* only CREATE RULE has statements in brackets */
			if (token->type == ';' && !rule)
				unclosed_bracket(p, outermost, token);
		}
		else if (token->type == ';' && !search.in_body)
			return i;
		else if (token->type == ',' && (stops & STOP_COMMA) && search.case_depth == 0)
			return i;
		else if (is_free_word(p, i, search.first) && word_ends_piece(p, &search, i))
			return i;
	}
}

/* ---------- parameters ---------- */

/*
 * A statement whose plan can have parameters; others are utility statements.
 */
bool
psm_is_plannable(const PsmToken *token)
{
	static const char *const words[] = {
		"select", "with", "insert", "update", "delete", "merge", "values", "table", "call"
	};

	if (token->type == '(')
		return true;
	for (int i = 0; i < lengthof(words); i++)
		if (psm_is_word(token, words[i]))
			return true;
	return false;
}

/*
 * Index of the parameter that a name token means, in PsmScript.hosts.
 */
static int
find_host(PsmParser *p, const PsmToken *name, const PsmToken *first, bool optional)
{
	PsmScript  *script = p->script;
	char	   *key = psm_token_text(p, name);
	int			length = name->end - name->start;
	HostEntry  *entry;
	PsmHost    *host;
	bool		found;

	entry = hosttab_insert(p->hosts, key, &found);
	if (found)
	{
		pfree(key);
		script->hosts[entry->index].optional &= optional;
		return entry->index;
	}

	if (script->nhosts >= p->max_hosts)
	{
		p->max_hosts *= 2;
		script->hosts = repalloc_huge(script->hosts, p->max_hosts * sizeof(PsmHost));
	}
	host = &script->hosts[script->nhosts];
	memset(host, 0, sizeof(PsmHost));
	host->optional = optional;
	host->pos = psm_token_pos(first);
	if (name->quoted)
	{
		/* the scanner's text may have been cut to the length of a name */
		char	   *to = palloc(length);

		host->written = to;
		for (const char *from = key + 1; from < key + length - 1; from++)
		{
			*to++ = *from;
			if (*from == '"')
				from++;
		}
		*to = '\0';
		host->folded = host->written;
	}
	else
	{
		host->written = key;
		host->folded = downcase_identifier(key, length, false, false);
	}
	entry->index = script->nhosts;
	return script->nhosts++;
}

/*
 * True when a token ends an operand, so that a colon behind it cannot begin a
 * parameter.  A word does, if it is no keyword that goes on.
 */
static bool
ends_operand(const PsmToken *token)
{
	static const char *const values[] = {"end", "true", "false", "null"};
	int			keyword;

	switch (token->type)
	{
		case ')':
		case ']':
		case PSM_TOK_SCONST:
		case PSM_TOK_USCONST:
		case PSM_TOK_BCONST:
		case PSM_TOK_XCONST:
		case PSM_TOK_ICONST:
		case PSM_TOK_FCONST:
		case PSM_TOK_PARAM:
		case PSM_TOK_UIDENT:
			return true;
		case PSM_TOK_IDENT:
			if (token->quoted)
				return true;
			for (int i = 0; i < lengthof(values); i++)
				if (strcmp(token->text, values[i]) == 0)
					return true;
			keyword = ScanKeywordLookup(token->text, &ScanKeywords);
			return keyword < 0 || ScanKeywordCategories[keyword] != RESERVED_KEYWORD;
		default:
			return false;
	}
}

/*
 * Kind of the bracket at i: '(' plain, 's' a subscript, 'a' an array
 * constructor's, 'j' the parenthesis of JSON_OBJECT(key : value).
 */
static char
bracket_kind(const PsmParser *p, int i, int first)
{
	const PsmToken *token = &p->tokens[i];
	const PsmToken *before = i > first ? token - 1 : NULL;

	if (token->type == '[')
	{
		if (before == NULL || psm_is_word(before, "array") || !ends_operand(before))
			return 'a';
		return 's';
	}
	if (before != NULL &&
		(psm_is_word(before, "json_object") || psm_is_word(before, "json_objectagg")))
		return 'j';
	return '(';
}

/*
 * True when the colon at i begins a parameter: a name follows at once, and
 * PostgreSQL has no use for a colon here (a[1:n], JSON_OBJECT('k':v)).
 */
static bool
begins_host(const PsmParser *p, int i, int first)
{
	const PsmToken *colon = &p->tokens[i];
	const StringInfoData *open = &p->brackets;
	char		kind = open->len > 0 ? open->data[open->len - 1] : 0;

	if (colon[1].type != PSM_TOK_IDENT || colon[1].start != colon->end)
		return false;
	if (i == first)
		return true;
	if (kind == 's' || kind == 'j')
		return !ends_operand(colon - 1);
	return !(ends_operand(colon - 1) && colon[-1].type != PSM_TOK_IDENT);
}

/*
 * params.name, and not the middle or the beginning of a longer name
 */
static bool
begins_dotted(const PsmParser *p, int i, int first)
{
	const PsmToken *token = &p->tokens[i];

	return psm_is_word(token, "params") &&
		(i == first || !psm_is_char(token - 1, '.')) &&
		psm_is_char(token + 1, '.') && token[2].type == PSM_TOK_IDENT &&
		!psm_is_char(token + 3, '.') && !psm_is_char(token + 3, '(');
}

/*
 * Would an object or array keep its type here?  See PsmHostRef.
 */
static bool
is_cast_context(const PsmParser *p, int i, int after, int first)
{
	static const char *const words[] = {"cast", "any", "all", "some"};

	if (p->tokens[after].type == PSM_TOK_TYPECAST)
		return true;
	if (i - first < 2 || !psm_is_char(&p->tokens[i - 1], '('))
		return false;
	for (int w = 0; w < lengthof(words); w++)
		if (psm_is_word(&p->tokens[i - 2], words[w]))
			return true;
	return false;
}

static PsmHostRef *
add_host_ref(PsmExpr *expr, const PsmToken *from, const PsmToken *to)
{
	PsmHostRef *ref;

	if (expr->nhosts == 0)
		expr->hosts = palloc(2 * sizeof(PsmHostRef));
	else if (expr->nhosts >= 2 && (expr->nhosts & (expr->nhosts - 1)) == 0)
		expr->hosts = repalloc_huge(expr->hosts, 2 * expr->nhosts * sizeof(PsmHostRef));
	ref = &expr->hosts[expr->nhosts++];
	ref->offset = expr->prefix + from->start - expr->pos.offset;
	ref->length = to->end - from->start;
	return ref;
}

/*
 * :name.  Writes $1 over it.
 */
static void
take_host(PsmParser *p, PsmExpr *expr, int i, int first)
{
	const PsmToken *colon = &p->tokens[i];
	PsmHostRef *ref;

	if (p->function)
		psm_syntax_error(p, colon, "A function has no parameters of this kind.",
						 "Use the function's argument by its name, without a colon.");

	ref = add_host_ref(expr, colon, colon + 1);
	ref->dotted = false;
	ref->cast_context = is_cast_context(p, i, i + 2, first);
	ref->host = find_host(p, colon + 1, colon, false);

	memset(expr->text + ref->offset, ' ', ref->length);
	if (i > first && colon[-1].end == colon->start && colon[-1].type == PSM_TOK_IDENT)
	{
		/* LIMIT:n: the blank keeps $1 from becoming part of the word */
		if (ref->length < 3)
			psm_syntax_error(p, colon, NULL, "Write a space before the parameter.");
		ref->offset++;
		ref->length--;
	}
	memcpy(expr->text + ref->offset, "$1", 2);
}

/*
 * params.name, which stays as it is: a column of that name comes first.
 */
static void
take_dotted(PsmParser *p, PsmExpr *expr, int i, int first, bool table)
{
	const PsmToken *token = &p->tokens[i];
	PsmHostRef *ref = add_host_ref(expr, token, token + 2);

	ref->dotted = true;
	ref->cast_context = is_cast_context(p, i, i + 3, first);
	ref->host = find_host(p, token + 2, token, table);
}

/*
 * True when something in the piece, most likely a table or an alias, is called
 * params.
 */
static bool
mentions_params(const PsmParser *p, int first, int end)
{
	for (int i = first; i < end; i++)
	{
		const PsmToken *token = &p->tokens[i];

		if (token->type == PSM_TOK_IDENT && strcmp(token->text, "params") == 0 &&
			(i + 1 >= end || !psm_is_char(token + 1, '.')) &&
			(i == first || !psm_is_char(token - 1, ':')))
			return true;
	}
	return false;
}

/*
 * Finds the parameters of a piece.  Tokens from skip to skip_end are not in it.
 */
static void
take_hosts(PsmParser *p, PsmExpr *expr, int first, int end, int skip, int skip_end)
{
	const PsmToken *begin = &p->tokens[first];
	bool		numbered = p->function;
	bool		take_params = !p->function;
	int			table = -1;		/* not looked yet */

	/* statements that have numbered parameters of their own */
	if (expr->mode == RAW_PARSE_DEFAULT &&
		(psm_is_word(begin, "prepare") || psm_is_word(begin, "create")))
		numbered = true;

	resetStringInfo(&p->brackets);
	for (int i = first; i < end; i++)
	{
		const PsmToken *token = &p->tokens[i];

		if (i == skip)
			i = skip_end;
		else if (token->type == '(' || token->type == '[')
			appendStringInfoCharMacro(&p->brackets, bracket_kind(p, i, first));
		else if (token->type == ')' || token->type == ']')
			p->brackets.len--;
		else if (token->type == ':' && i + 1 < end && begins_host(p, i, first))
			take_host(p, expr, i++, first);
		else if (take_params && begins_dotted(p, i, first))
		{
			if (table < 0)
				table = mentions_params(p, first, end);

			/* a utility statement is run from text: there a column cannot win later */
			if (table && expr->mode == RAW_PARSE_DEFAULT && !psm_is_plannable(begin))
				take_params = false;
			else
				take_dotted(p, expr, i, first, table);
		}
		else if (token->type == PSM_TOK_PARAM && !numbered)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_PARAMETER),
					 errmsg("there is no parameter %s", psm_token_text(p, token)),
					 errdetail("A block has no numbered parameters."),
					 errhint("Use :name for a parameter given by name."),
					 token_errposition(p, token)));
	}
}

/* ---------- pieces ---------- */

static PsmExpr *
make_piece(PsmParser *p, int first, int end, RawParseMode mode, const char *prefix,
		   const char *suffix, int skip, int skip_end)
{
	const PsmToken *begin = &p->tokens[first];
	int			length = p->tokens[end - 1].end - begin->start;
	int			suffix_length = strlen(suffix);
	PsmExpr    *expr = palloc0(sizeof(PsmExpr));
	char	   *text;

	expr->script = p->script;
	expr->pos = psm_token_pos(begin);
	expr->prefix = strlen(prefix);
	expr->mode = mode;
	expr->scope = p->scope;
	expr->nvisible = p->script->nvars;

	text = palloc(expr->prefix + length + suffix_length + 1);
	memcpy(text, prefix, expr->prefix);
	memcpy(text + expr->prefix, p->source + begin->start, length);
	memcpy(text + expr->prefix + length, suffix, suffix_length + 1);
	expr->text = text;

	take_hosts(p, expr, first, end, skip, skip_end);
	expr->spliced = expr->nhosts > 0 && mode == RAW_PARSE_DEFAULT && !psm_is_plannable(begin);
	expr->lone_host = expr->nhosts == 1 && !expr->hosts[0].dotted && end - first == 2;

	p->script->exprs = lappend(p->script->exprs, expr);
	return expr;
}

/*
 * The tokens from first to end, as a piece of SQL between prefix and suffix
 */
PsmExpr *
psm_make_piece(PsmParser *p, int first, int end, RawParseMode mode, const char *prefix,
			   const char *suffix)
{
	return make_piece(p, first, end, mode, prefix, suffix, -1, -1);
}

static PsmExpr *
parse_piece(PsmParser *p, int stops, RawParseMode mode, const char *what)
{
	int			first = p->at;
	int			end = psm_find_end(p, stops);
	PsmExpr    *expr;

	if (end == first)
		psm_syntax_error(p, CURRENT(p), psprintf("%s was expected here.", what), NULL);
	expr = psm_make_piece(p, first, end, mode, "", "");
	p->at = end;
	return expr;
}

/*
 * An expression up to a stop.  Whether it is the right one is the caller's to
 * see.
 */
PsmExpr *
psm_parse_expr(PsmParser *p, int stops, const char *what)
{
	if (psm_is_word(CURRENT(p), "select") || psm_is_word(CURRENT(p), "with"))
		psm_syntax_error(p, CURRENT(p), NULL, "A query in an expression stands in parentheses.");
	return parse_piece(p, stops, RAW_PARSE_PLPGSQL_EXPR, what);
}

/*
 * A query up to a stop
 */
PsmExpr *
psm_parse_query(PsmParser *p, int stops, const char *what)
{
	return parse_piece(p, stops, RAW_PARSE_DEFAULT, what);
}

/* ---------- statements with INTO ---------- */

/*
 * SELECT ... INTO TEMP t makes a table, unless there is a variable called temp.
 */
static bool
makes_table(const PsmParser *p, const PsmToken *word)
{
	static const char *const words[] = {
		"temp", "temporary", "unlogged", "table", "local", "global"
	};

	for (int i = 0; i < lengthof(words); i++)
		if (psm_is_word(word, words[i]))
			return word[1].type == PSM_TOK_IDENT && psm_find_var(p, word->text) == NULL;
	return false;
}

/*
 * Index of the INTO of a query that puts its row into variables, or -1.
 */
static int
find_into(PsmParser *p, int first, int end)
{
	int			depth = 0;
	int			found = -1;

	if (!psm_is_plannable(&p->tokens[first]) || psm_is_word(&p->tokens[first], "call"))
		return -1;
	for (int i = first + 1; i < end; i++)
	{
		const PsmToken *token = &p->tokens[i];

		if (token->type == '(' || token->type == '[')
			depth++;
		else if (token->type == ')' || token->type == ']')
			depth--;
		else if (depth == 0 && is_free_word(p, i, first) && strcmp(token->text, "into") == 0 &&
				 !psm_is_word(token - 1, "insert") && !psm_is_word(token - 1, "merge"))
		{
			if (makes_table(p, token + 1))
				return -1;
			if (found >= 0)
				psm_syntax_error(p, token, "The statement has an INTO already.", NULL);
			found = i;
		}
	}
	return found;
}

/*
 * The targets behind an INTO, with help for what other systems allow there.
 */
List *
psm_parse_into(PsmParser *p)
{
	const PsmToken *token = CURRENT(p);
	PsmTarget	target;

	if (token->type == PSM_TOK_OP && token->text[0] == '@')
		psm_syntax_error(p, token, "A variable to assign to was expected here.",
						 "Declare the variable with DECLARE and write its name without @.");
	if (psm_is_char(token, ':'))
		psm_syntax_error(p, token, "A variable to assign to was expected here.",
						 "A variable's name has no colon; a parameter cannot be assigned to.");
	if (token->type == PSM_TOK_IDENT)
	{
		int			start = p->at;

		if (!psm_parse_target(p, &target, true))
		{
			if (psm_is_word(token, "strict"))
				psm_syntax_error(p, token, NULL, "Leave out STRICT: no row raises 02000, more than "
								 "one row is an error.");
			psm_undeclared(p, token, "SELECT ... INTO puts values into variables; CREATE TABLE "
						   "... AS makes a table.");
		}
		p->at = start;
	}
	return psm_parse_targets(p);
}

/*
 * Any SQL statement
 */
PsmStmt *
psm_parse_sql(PsmParser *p)
{
	int			first = p->at;
	PsmSqlStmt *stmt;
	int			end;
	int			into;
	int			last = -1;

	stmt = psm_new_stmt(p, sizeof(PsmSqlStmt), PSM_SQL, CURRENT(p));
	end = psm_find_end(p, 0);
	into = find_into(p, first, end);
	if (into >= 0)
	{
		p->at = into + 1;
		stmt->into = psm_parse_into(p);
		last = p->at - 1;
	}
	stmt->sql = make_piece(p, first, end, RAW_PARSE_DEFAULT, "", "", into, last);
	if (into >= 0)
	{
		int			offset = p->tokens[into].start - stmt->sql->pos.offset;

		memset(stmt->sql->text + offset, ' ', p->tokens[last].end - p->tokens[into].start);
	}
	p->at = end;
	return &stmt->stmt;
}
