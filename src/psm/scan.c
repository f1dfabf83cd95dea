/*
 * scan.c
 *		Cuts a script into tokens, by PostgreSQL's own scanner.
 *
 * core_yylex gives us comments, every kind of string, dollar quotes and Unicode
 * escapes exactly as the server will see them when it gets the pieces, so no
 * text can be cut in a place where PostgreSQL would not.  Every word arrives as an
 * identifier, folded (see scanner.c of the directory above), and the parser compares words
 * by their text.
 *
 * Two settings of the session have a say in what a string is:
 * standard_conforming_strings and backslash_quote.  Whoever keeps tokens or
 * trees made from them must not use them under other values.
 */
#include "psm/psm.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/scanner.h"
#include "utils/memutils.h"

/* Characters before an offset, found while offsets only grow */
typedef struct LineState
{
	const char *at;
	const char *end;
	int			encoding;
	int			line;
	int			column;
} LineState;

/*
 * Bytes of the character at s, never more than there are.
 */
static inline int
char_length(int encoding, const char *s, const char *end)
{
	int			length;

	if (!IS_HIGHBIT_SET(*s))
		return 1;
	length = pg_encoding_mblen(encoding, s);
	return Min(length, (int) (end - s));
}

/*
 * Moves the state forward to a later place.
 */
static void
advance_lines(LineState *state, const char *to)
{
	while (state->at < to)
	{
		if (*state->at == '\n')
		{
			state->line++;
			state->column = 1;
			state->at++;
		}
		else
		{
			state->at += char_length(state->encoding, state->at, state->end);
			state->column++;
		}
	}
}

static void
init_lines(LineState *state, const char *source)
{
	state->at = source;
	state->end = source + strlen(source);
	state->encoding = GetDatabaseEncoding();
	state->line = 1;
	state->column = 1;
}

PsmPos
psm_pos(const char *source, int offset)
{
	PsmPos		pos;
	LineState	state;

	init_lines(&state, source);
	advance_lines(&state, source + offset);
	pos.offset = offset;
	pos.line = state.line;
	pos.column = state.column;
	return pos;
}

int
psm_errposition(const char *source, int offset)
{
	if (offset < 0)
		return 0;
	return errposition(pg_mbstrlen_with_len(source, offset) + 1);
}

/*
 * One token: type, place and text.
 */
static int
next_token(core_yyscan_t scanner, const core_yy_extra_type *extra, PsmToken *token)
{
	core_YYSTYPE value;
	YYLTYPE		location;

	/* some tokens have no value */
	value.str = NULL;
	token->type = core_yylex(&value, &location, scanner);
	token->start = location;
	token->quoted = false;
	token->text = NULL;

	token->end = token->type == 0 ? location : tw_scanner_token_end(extra, location);

	switch (token->type)
	{
		case PSM_TOK_IDENT:
			token->quoted = extra->scanbuf[location] == '"';
			token->text = value.str;
			break;
		case PSM_TOK_UIDENT:
		case PSM_TOK_FCONST:
		case PSM_TOK_SCONST:
		case PSM_TOK_USCONST:
		case PSM_TOK_BCONST:
		case PSM_TOK_XCONST:
		case PSM_TOK_OP:
			token->text = value.str;
			break;
		default:
			break;
	}
	return token->type;
}

PsmToken *
psm_scan(const char *source, int *ntokens)
{
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	LineState	lines;
	PsmToken   *tokens;
	int			allocated = 256;
	int			n = 0;

	scanner = tw_scanner_begin(source, &extra);
	init_lines(&lines, source);
	tokens = palloc(allocated * sizeof(PsmToken));
	for (;;)
	{
		if (n >= allocated)
		{
			CHECK_FOR_INTERRUPTS();
			allocated *= 2;
			tokens = repalloc_huge(tokens, allocated * sizeof(PsmToken));
		}
		next_token(scanner, &extra, &tokens[n]);
		advance_lines(&lines, source + tokens[n].start);
		tokens[n].line = lines.line;
		tokens[n].column = lines.column;
		if (tokens[n++].type == 0)
			break;
	}

	scanner_finish(scanner);
	*ntokens = n;
	return tokens;
}
