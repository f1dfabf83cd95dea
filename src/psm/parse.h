/*
 * parse.h
 *		What the files of the parser share; nobody else includes it.
 *
 * parse.c has the statements, and none of the others calls it.  parse_set.c has SET,
 * parse_decl.c declarations, parse_name.c names and where they are looked up,
 * parse_node.c what is made and numbered, parse_sql.c the pieces of SQL,
 * parse_signal.c conditions, SIGNAL and diagnostics.
 *
 * Every recursive function calls check_stack_depth().  A parse function is
 * called with the parser at the first token of what it parses and leaves it
 * behind the last; the semicolon behind a statement belongs to the list of
 * statements it stands in.
 */
#ifndef TW_PSM_PARSE_H
#define TW_PSM_PARSE_H

#include "psm/psm.h"

#include "lib/stringinfo.h"

/* ours alone: nothing but what PostgreSQL looks up by name is exported */
#pragma GCC visibility push(hidden)

/* A label around the place being parsed */
typedef struct PsmLabel
{
	const char *name;
	PsmScope   *scope;
	bool		loop;			/* ITERATE may name it */
	int			line;
	struct PsmLabel *outer;
} PsmLabel;

typedef struct PsmParser
{
	PsmScript  *script;
	const char *source;
	PsmToken   *tokens;
	int			at;				/* index of the next token */
	bool		function;		/* arguments instead of parameters */
	PsmScope   *scope;			/* innermost */
	PsmLabel   *labels;			/* innermost first */
	int			handlers;		/* how many handlers' actions we are in */
	struct hosttab_hash *hosts; /* script->hosts by name, as spelled */
	StringInfoData brackets;	/* those open at a place in a piece, outermost first */

	/* room in the arrays of the script */
	int			max_vars;
	int			max_stmts;
	int			max_hosts;
} PsmParser;

/* What ends a piece of SQL, besides a semicolon */
#define STOP_THEN	0x01
#define STOP_DO		0x02
#define STOP_WHEN	0x04
#define STOP_END	0x08
#define STOP_COMMA	0x10
#define STOP_INTO	0x20
#define STOP_USING	0x40
#define STOP_PAREN	0x80		/* a closing parenthesis that was not opened in the piece */

#define CURRENT(p)	(&(p)->tokens[(p)->at])
#define NEXT(p, n)	psm_peek(p, n)

/* ereport's parts for a place given by a token */
#define token_errposition(p, token) psm_errposition((p)->source, (token)->start)

/* ---------- parse_set.c ---------- */

extern bool psm_looks_like_assignment(const PsmParser *p, int n);
extern void psm_parse_set(PsmParser *p, List **list);

/* ---------- parse_decl.c ---------- */

/* What may still be declared in a block */
typedef enum PsmDeclStage
{
	PSM_DECL_NAMES,
	PSM_DECL_CURSORS,
	PSM_DECL_HANDLERS
} PsmDeclStage;

extern PsmHandler *psm_parse_declaration(PsmParser *p, PsmCompound *block, PsmDeclStage *stage);

/* ---------- parse_signal.c ---------- */

extern int	psm_parse_sqlstate(PsmParser *p);
extern PsmStmt *psm_parse_signal(PsmParser *p);
extern PsmStmt *psm_parse_get_diagnostics(PsmParser *p);

/* ---------- parse_name.c ---------- */

extern const PsmToken *psm_peek(const PsmParser *p, int n);
extern bool psm_is_word(const PsmToken *token, const char *word);
extern bool psm_is_char(const PsmToken *token, char c);
extern bool psm_accept_word(PsmParser *p, const char *word);
extern bool psm_accept_char(PsmParser *p, char c);
extern void psm_expect_word(PsmParser *p, const char *word, const char *detail);
extern void psm_expect_char(PsmParser *p, char c, const char *detail);
extern const PsmToken *psm_expect_name(PsmParser *p, const char *what);
extern char *psm_token_text(const PsmParser *p, const PsmToken *token);
pg_noreturn extern void psm_syntax_error(PsmParser *p, const PsmToken *token, const char *detail,
							 const char *hint);
extern PsmPos psm_token_pos(const PsmToken *token);

extern PsmVar *psm_find_in_scope(const PsmScope *scope, const char *name);
extern PsmVar *psm_find_var(const PsmParser *p, const char *name);
extern PsmCondition *psm_find_condition(PsmParser *p, const PsmToken *token);
extern PsmCursor *psm_find_cursor(PsmParser *p, const PsmToken *token);
extern PsmLabel *psm_find_label(PsmParser *p, const PsmToken *token);
extern void psm_parse_end_label(PsmParser *p, const PsmToken *label, const char *what);
extern bool psm_parse_target(PsmParser *p, PsmTarget *target, bool missing_ok);
extern bool psm_parse_set_target(PsmParser *p, PsmTarget *target, int *names);
extern List *psm_parse_targets(PsmParser *p);
pg_noreturn extern void psm_undeclared(PsmParser *p, const PsmToken *token, const char *hint);

/* ---------- parse_node.c ---------- */

extern void *psm_new_stmt(PsmParser *p, Size size, PsmStmtKind kind, const PsmToken *first);
extern PsmVar *psm_add_var(PsmParser *p, PsmScope *scope, const char *name, PsmPos pos);
extern PsmScope *psm_push_scope(PsmParser *p, const char *label);
extern void psm_pop_scope(PsmParser *p);
extern void psm_push_label(PsmParser *p, PsmLabel *label, const PsmToken *token, PsmScope *scope,
						   bool loop);

/* ---------- parse_sql.c ---------- */

extern void psm_init_pieces(PsmParser *p);
extern int	psm_find_end(PsmParser *p, int stops);
extern PsmExpr *psm_make_piece(PsmParser *p, int first, int end, RawParseMode mode,
							   const char *prefix, const char *suffix);
extern PsmExpr *psm_parse_expr(PsmParser *p, int stops, const char *what);
extern PsmExpr *psm_parse_query(PsmParser *p, int stops, const char *what);
extern PsmStmt *psm_parse_sql(PsmParser *p);
extern List *psm_parse_into(PsmParser *p);
extern bool psm_is_plannable(const PsmToken *token);

/* ---------- check.c ---------- */

extern void psm_check_type(const char *source, const char *typename, int offset);

#pragma GCC visibility pop

#endif							/* TW_PSM_PARSE_H */
