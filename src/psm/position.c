/*
 * position.c
 *		Where in the script an error comes from.
 *
 * Every error that passes an execution gets a line of CONTEXT with line,
 * column and kind of the statement.  An error with a position in a piece of
 * SQL gets that position in the script, and when the script stands as a literal
 * in the client's query, in that query, so that psql points at the place.
 */
#include "psm/psm.h"

#include "catalog/pg_proc.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"

static int	last_error_line = 0;

/* Line in the script of the last error that passed its compilation or execution; 0: none did */
int
psm_error_line(void)
{
	return last_error_line;
}

/* What comes next is not to be blamed on an error before */
void
psm_error_line_clear(void)
{
	last_error_line = 0;
}

/* An error that no statement was running for is blamed on the one of this line */
void
psm_error_line_set(int line)
{
	last_error_line = line;
}

const char *
psm_stmt_name(const PsmStmt *stmt)
{
	static const char *const names[] = {
		[PSM_COMPOUND] = "BEGIN",
		[PSM_SET] = "SET",
		[PSM_SET_ROW] = "SET",
		[PSM_SQL] = "SQL statement",
		[PSM_IF] = "IF",
		[PSM_CASE] = "CASE",
		[PSM_LOOP] = "LOOP",
		[PSM_WHILE] = "WHILE",
		[PSM_REPEAT] = "REPEAT",
		[PSM_FOR] = "FOR",
		[PSM_LEAVE] = "LEAVE",
		[PSM_ITERATE] = "ITERATE",
		[PSM_OPEN] = "OPEN",
		[PSM_FETCH] = "FETCH",
		[PSM_CLOSE] = "CLOSE",
		[PSM_SIGNAL] = "SIGNAL",
		[PSM_RESIGNAL] = "RESIGNAL",
		[PSM_GET_DIAGNOSTICS] = "GET DIAGNOSTICS",
		[PSM_EXECUTE] = "EXECUTE IMMEDIATE",
		[PSM_RETURN] = "RETURN",
	};

	if (stmt->kind == PSM_SQL && ((PsmSqlStmt *) stmt)->command != NULL)
		return ((PsmSqlStmt *) stmt)->command;
	return names[stmt->kind];
}

/* Byte offset of the character at position pos (from 1) of text */
int
psm_char_offset(const char *text, int pos)
{
	const char *p = text;

	while (--pos > 0 && *p)
		p += pg_mblen(p);
	return p - text;
}

static void
report_place(const char *function, PsmPos pos, const char *what)
{
	if (function != NULL)
		errcontext("psm function %s line %d, column %d, at %s",
				   function, pos.line, pos.column, what);
	else
		errcontext("atomic block line %d, column %d, at %s", pos.line, pos.column, what);
}

/*
 * Error context while a script is scanned, parsed and checked; arg is a
 * PsmSource.  Positions are in the script already.
 */
void
psm_compile_error_callback(void *arg)
{
	const PsmSource *source = arg;
	int			pos = geterrposition();

	if (pos > 0)
	{
		PsmPos		place = psm_pos(source->text, psm_char_offset(source->text, pos));

		report_place(source->function, place, "compilation");
		last_error_line = place.line;
		function_parse_error_transpose(source->text);
	}
	else if (source->function != NULL)
		errcontext("compilation of psm function %s", source->function);
}

/* A name that could be a variable's; not a column to be written, nor a table in FROM */
static bool
is_unknown_name(const ErrorData *error)
{
	static const char *const messages[] = {
		"column \"%s\" does not exist",
		"column %s.%s does not exist",
		"missing FROM-clause entry for table \"%s\"",
		PSM_NO_SUCH_FIELD
	};

	if (error->message_id == NULL)
		return false;
	for (int i = 0; i < lengthof(messages); i++)
		if (strcmp(error->message_id, messages[i]) == 0)
			return true;
	return false;
}

/*
 * Is query what was planned or run for a piece of SQL?  Takes what we put before
 * an expression off *pos.
 */
static bool
is_text_of(const char *query, const char *text, const PsmExpr *expr, int *pos)
{
	const PsmPlan *plan = expr->plan;

	if (plan != NULL && plan->plan != NULL && strcmp(query, plan->source->query_string) == 0)
	{
		*pos -= psm_lead_length(expr);
		return true;
	}
	if (psm_lead_length(expr) > 0 && strncmp(query, PSM_LEAD, PSM_LEAD_LENGTH) == 0)
	{
		query += PSM_LEAD_LENGTH;
		*pos -= PSM_LEAD_LENGTH;
	}
	return strcmp(query, text) == 0;
}

/*
 * Offset in the script of the error in the piece of SQL at hand, or -1.  For
 * error context callbacks.  An unknown name gets a hint if it has none.
 */
int
psm_error_offset(PsmExec *ex)
{
	PsmExpr    *expr = ex->expr;
	const char *text;
	int			pos = getinternalerrposition();
	int			offset;
	bool		ours;
	bool		in_script;
	bool		unknown;
	MemoryContext oldcontext;
	MemoryContext copy;			/* FreeErrorData() does not free all of it */
	ErrorData  *error;

	if (pos <= 0)
		return -1;

	/* a query further in may have failed: only its text tells */
	text = expr == NULL ? NULL : ex->run_text ? ex->run_text : expr->text;
	copy = AllocSetContextCreate(ex->mcxt, "psm error position", ALLOCSET_SMALL_SIZES);
	oldcontext = MemoryContextSwitchTo(copy);
	error = CopyErrorData();
	ours = text != NULL && error->internalquery != NULL &&
		is_text_of(error->internalquery, text, expr, &pos);
	in_script = error->internalquery != NULL &&
		strcmp(error->internalquery, ex->script->source) == 0;
	unknown = error->hint == NULL && is_unknown_name(error);
	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(copy);
	if (in_script)
		return psm_char_offset(ex->script->source, pos);
	if (!ours)
		return -1;

	offset = psm_char_offset(text, pos);
	if (ex->run_text)
	{
		for (int i = expr->nhosts - 1; i >= 0; i--)
		{
			if (offset >= ex->splices[i].at)
				offset -= Min(ex->splices[i].grown, offset - ex->splices[i].at);
		}
	}
	offset = Max(offset - expr->prefix, 0) + expr->pos.offset;
	if (unknown)
	{
		const char *hint = psm_guess_column(ex, expr, offset);

		if (hint != NULL)
			errhint("%s", hint);
	}
	return offset;
}

/* ereport's part for an error of ours while a script runs, at a byte offset of it */
int
psm_run_errposition(PsmExec *ex, int offset)
{
	internalerrquery(ex->script->source);
	internalerrposition(pg_mbstrlen_with_len(ex->script->source, offset) + 1);
	return 0;
}

/* Where an execution is: at a statement, or at a declaration of a block that begins */
PsmPos
psm_exec_pos(const PsmExec *ex)
{
	return ex->declaring ? ex->declaring->pos : ex->stmt->pos;
}

/* Error context of an execution; arg is the PsmExec */
void
psm_exec_error_callback(void *arg)
{
	PsmExec    *ex = arg;
	PsmPos		pos;
	int			offset;

	psm_timeout_error();
	if (ex->stmt == NULL)
		return;
	pos = psm_exec_pos(ex);
	offset = psm_error_offset(ex);
	if (offset >= 0)
	{
		const char *source = ex->script->source;

		pos = psm_pos(source, offset);
		internalerrposition(pg_mbstrlen_with_len(source, offset) + 1);
		internalerrquery(source);
		function_parse_error_transpose(source);
	}
	report_place(ex->script->function, pos,
				 ex->declaring ? "DECLARE" : psm_stmt_name(ex->stmt));
	last_error_line = pos.line;
}
