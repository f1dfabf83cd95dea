/*
 * argument.c
 *		Reading the arguments of our SQL functions, those that may be null and those
 *		that must be there; what an error says of one that is long; and whether a
 *		procedure of ours may commit where it is called.
 */
#include "tw.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"

/* As much of a text as an error repeats, in bytes: no identifier or gid is longer */
#define EXCERPT_BYTES 200

/* Error 22023 for an argument that must be there */
static void
require(FunctionCallInfo fcinfo, int number, const char *name)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be null", name)));
}

char *
tw_argument_text(FunctionCallInfo fcinfo, int number, const char *name)
{
	require(fcinfo, number, name);
	return text_to_cstring(PG_GETARG_TEXT_PP(number));
}

char *
tw_argument_text_or_null(FunctionCallInfo fcinfo, int number)
{
	return PG_ARGISNULL(number) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(number));
}

/* One that must say something */
char *
tw_argument_words(FunctionCallInfo fcinfo, int number, const char *name)
{
	char	   *text = tw_argument_text_or_null(fcinfo, number);

	if (text == NULL || text[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be null or empty", name)));
	return text;
}

int64
tw_argument_int64(FunctionCallInfo fcinfo, int number, const char *name)
{
	require(fcinfo, number, name);
	return PG_GETARG_INT64(number);
}

const char *
tw_excerpt(const char *text)
{
	size_t		length = strnlen(text, EXCERPT_BYTES + 1);

	if (length <= EXCERPT_BYTES)
		return text;
	return psprintf("%.*s...", pg_mbcliplen(text, length, EXCERPT_BYTES), text);
}

/*
 * May a procedure end the transaction that it is called in?  Not behind other statements of
 * a pipeline, which belong to that transaction as in a block; before 18 PostgreSQL itself
 * would let it.
 */
bool
tw_call_may_commit(FunctionCallInfo fcinfo)
{
	CallContext *call = (CallContext *) fcinfo->context;

	return call != NULL && IsA(call, CallContext) && !call->atomic &&
		(MyXactFlags & XACT_FLAGS_PIPELINING) == 0;
}
