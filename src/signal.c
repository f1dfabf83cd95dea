/*
 * signal.c
 *		SIGNAL for plain SQL and PL/pgSQL: tw.signal and tw.signal_if, and the
 *		one judgement of what a SQLSTATE is.
 *
 * The idea is the standard's SIGNAL statement (SQL/PSM): the caller chooses the
 * SQLSTATE, and classes 01 and 02 are a warning that execution survives.
 */
#include "tw.h"

#include "utils/builtins.h"

/* Which of tw.signal's arguments is which, from the first of them */
#define ARG_SQLSTATE	0
#define ARG_MESSAGE		1
#define ARG_DETAIL		2
#define ARG_HINT		3

static int	sqlstate_argument(FunctionCallInfo fcinfo, int number);
static void raise_signal(FunctionCallInfo fcinfo, int first);

/*
 * Five characters of [0-9A-Z], not of class 00, which says "no error".
 */
bool
tw_sqlstate_parse(const char *s, int *sqlstate)
{
	if (strlen(s) != 5 ||
		strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 5 ||
		(s[0] == '0' && s[1] == '0'))
		return false;
	*sqlstate = MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4]);
	return true;
}

static int
sqlstate_argument(FunctionCallInfo fcinfo, int number)
{
	char	   *given = tw_argument_text_or_null(fcinfo, number);
	int			sqlstate;

	if (given == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("SQLSTATE to signal must not be null")));
	if (!tw_sqlstate_parse(given, &sqlstate))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid SQLSTATE \"%s\"", tw_excerpt(given)),
				 errdetail("An SQLSTATE is five characters of 0 to 9 and A to Z, and does not "
						   "begin with 00, which means success.")));
	return sqlstate;
}

/* Raises what the arguments from number first on say */
static void
raise_signal(FunctionCallInfo fcinfo, int first)
{
	int			sqlstate = sqlstate_argument(fcinfo, first + ARG_SQLSTATE);
	char	   *message = tw_argument_text_or_null(fcinfo, first + ARG_MESSAGE);
	char	   *detail = tw_argument_text_or_null(fcinfo, first + ARG_DETAIL);
	char	   *hint = tw_argument_text_or_null(fcinfo, first + ARG_HINT);
	int			category = ERRCODE_TO_CATEGORY(sqlstate);
	bool		warning = category == ERRCODE_WARNING || category == ERRCODE_NO_DATA;

	if (message == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("message to signal must not be null")));

	ereport(warning ? WARNING : ERROR,
			(errcode(sqlstate),
			 errmsg_internal("%s", message),
			 detail != NULL ? errdetail_internal("%s", detail) : 0,
			 hint != NULL ? errhint("%s", hint) : 0));
}

/* tw.signal(sqlstate, message, detail, hint) */
PG_FUNCTION_INFO_V1(tw_signal);
Datum
tw_signal(PG_FUNCTION_ARGS)
{
	raise_signal(fcinfo, 0);
	PG_RETURN_VOID();
}

/*
 * tw.signal_if(condition, sqlstate, message, detail, hint)
 *
 * A malformed SQLSTATE is an error even while the condition is false: a typing
 * error must not wait for the day the condition holds.
 */
PG_FUNCTION_INFO_V1(tw_signal_if);
Datum
tw_signal_if(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0) && PG_GETARG_BOOL(0))
		raise_signal(fcinfo, 1);
	else if (!PG_ARGISNULL(1))
		(void) sqlstate_argument(fcinfo, 1);
	PG_RETURN_VOID();
}
