/*
 * parser.c
 *		The scanner and the parser of blocks under libFuzzer, without a server; see
 *		test/fuzz/parser, which builds and runs it.
 *
 * An input is the text of a block.  A first line that is one of these comments
 * says otherwise:
 *
 *		--function		the body of a function with arguments, as LANGUAGE psm has it
 *		--dynamic		the text of EXECUTE IMMEDIATE, with two values
 *		--escapes		a block, under standard_conforming_strings = off
 *
 * Whatever is refused must be refused by an error that a user may get: no
 * internal one, and with a position that is in the text.  Of what is accepted,
 * the places must be those of the text, and parsing it again must give the same.
 */
#include "psm/psm.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

typedef enum TextKind
{
	BLOCK, FUNCTION, DYNAMIC, ESCAPES
} TextKind;

static const char *const mode_lines[] = {"", "--function\n", "--dynamic\n", "--escapes\n"};

#define REQUIRE(condition) \
	((condition) ? (void) 0 : (fprintf(stderr, "line %d of %s: not so: %s\n", __LINE__, __FILE__, \
									   #condition), abort()))

/* the server's main program has it */
const char *progname = "fuzzer";

extern int	LLVMFuzzerInitialize(int *argc, char ***argv);
extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---------- what was made of a text that was accepted ---------- */

/*
 * To find a place anew takes as long as the text is, so not for each of a long one.
 */
static void
require_place(const char *source, PsmPos pos)
{
	int			length = strlen(source);
	PsmPos		place;

	REQUIRE(pos.offset >= 0 && pos.offset <= length);
	if (length > 8192)
		return;
	place = psm_pos(source, pos.offset);
	REQUIRE(place.line == pos.line && place.column == pos.column);
}

/*
 * Of a piece's text the script's part is the script's, but for what was blanked
 * out in it.
 */
static void
require_piece(const char *source, const PsmExpr *expr)
{
	int			length = strlen(expr->text);
	int			end = 0;

	require_place(source, expr->pos);
	REQUIRE(expr->prefix >= 0 && expr->prefix < length);
	for (int i = expr->prefix; i < length; i++)
	{
		char		here = expr->text[i];
		char		there = source[expr->pos.offset + i - expr->prefix];

		REQUIRE(here == there || here == ' ' || here == '$' || here == '1' || here == ')');
		if (there == '\0')
			break;
	}
	for (int i = 0; i < expr->nhosts; i++)
	{
		const PsmHostRef *ref = &expr->hosts[i];

		REQUIRE(ref->offset >= end && ref->length >= 2);
		REQUIRE(ref->host >= 0 && ref->host < expr->script->nhosts);
		end = ref->offset + ref->length;
		REQUIRE(end <= length);
		REQUIRE(strncmp(expr->text + ref->offset, ref->dotted ? "p" : "$1", ref->dotted ? 0 : 2) == 0);
	}
	REQUIRE(expr->nvisible >= 0 && expr->nvisible <= expr->script->nvars);
}

static void
require_script(const char *source, const PsmScript *script)
{
	ListCell   *lc;

	REQUIRE(strcmp(source, script->source) == 0);
	foreach(lc, script->exprs)
		require_piece(source, lfirst(lc));
	for (int i = 0; i < script->nstmts; i++)
	{
		REQUIRE(script->stmts[i]->number == i);
		require_place(source, script->stmts[i]->pos);
		REQUIRE(psm_stmt_name(script->stmts[i]) != NULL);
	}
	for (int i = 0; i < script->nvars; i++)
		REQUIRE(script->vars[i]->number == i);
	for (int i = 0; i < script->nhosts; i++)
	{
		REQUIRE(script->hosts[i].written != NULL && script->hosts[i].folded != NULL);
		require_place(source, script->hosts[i].pos);
	}
}

/* ---------- running ---------- */

static PsmScript *
compile(const char *source, bool function)
{
	static const PsmArgument args[] = {
		{"a", INT4OID, -1, false}, {NULL, TEXTOID, -1, true}, {"params", TEXTOID, -1, false}
	};
	PsmScript  *script = psm_parse(source, CurrentMemoryContext, function ? "f" : NULL, args,
								   function ? lengthof(args) : 0);

	psm_check(script);
	return script;
}

static void
accept_text(const char *source, TextKind mode)
{
	PsmScript  *script;
	PsmScript  *again;

	if (mode == DYNAMIC)
	{
		char	   *text = pstrdup(source);

		(void) psm_dynamic_parse(&text, 2);
		return;
	}
	script = compile(source, mode == FUNCTION);
	require_script(source, script);
	again = compile(source, mode == FUNCTION);
	REQUIRE(again->nstmts == script->nstmts && again->nvars == script->nvars &&
			again->nhosts == script->nhosts &&
			list_length(again->exprs) == list_length(script->exprs));
}

static void
refuse_text(const char *source, TextKind mode)
{
	ErrorData  *error = CopyErrorData();

	FlushErrorState();
	if (error->sqlerrcode == ERRCODE_INTERNAL_ERROR || error->message == NULL)
	{
		fprintf(stderr, "internal error: %s\n", error->message);
		abort();
	}
	REQUIRE(error->cursorpos >= 0);
	if (mode != DYNAMIC)
		REQUIRE(error->cursorpos <= pg_mbstrlen_with_len(source, strlen(source)) + 1);
}

static void
run(const char *source, TextKind mode)
{
	ErrorContextCallback context;
	PsmSource	place = {source, mode == FUNCTION ? "f(integer)" : NULL};

	context.callback = psm_compile_error_callback;
	context.arg = &place;
	context.previous = NULL;
	PG_TRY();
	{
		error_context_stack = mode == DYNAMIC ? NULL : &context;
		accept_text(source, mode);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(MessageContext);
		refuse_text(source, mode);
	}
	PG_END_TRY();
	error_context_stack = NULL;
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	MyProcPid = getpid();
	MemoryContextInit();
	MessageContext = AllocSetContextCreate(TopMemoryContext, "message", ALLOCSET_DEFAULT_SIZES);
	CacheMemoryContext = AllocSetContextCreate(TopMemoryContext, "cache", ALLOCSET_DEFAULT_SIZES);
	(void) set_stack_base();
	max_stack_depth = 4096;
	assign_max_stack_depth(max_stack_depth, NULL);
	log_min_messages = PANIC;
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	TextKind		mode = BLOCK;
	char	   *source;

	/* a text of PostgreSQL has no NUL */
	if (memchr(data, '\0', size) != NULL)
		return -1;
	MemoryContextSwitchTo(MessageContext);
	for (int i = FUNCTION; i <= ESCAPES; i++)
	{
		size_t		length = strlen(mode_lines[i]);

		if (size >= length && memcmp(data, mode_lines[i], length) == 0)
		{
			mode = i;
			data += length;
			size -= length;
		}
	}
	source = palloc(size + 1);
	memcpy(source, data, size);
	source[size] = '\0';

	/* what is not valid can still be the text of a database without an encoding */
	SetDatabaseEncoding(pg_encoding_verifymbstr(PG_UTF8, source, size) == size ? PG_UTF8 : PG_SQL_ASCII);
	standard_conforming_strings = mode != ESCAPES;
	run(source, mode);

	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextReset(MessageContext);
	MemoryContextReset(ErrorContext);
	return 0;
}
