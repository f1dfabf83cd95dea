/*
 * condition.c
 *		Raising and reporting conditions: SIGNAL, RESIGNAL, GET DIAGNOSTICS, and
 *		where in the script an error comes from.
 *
 * Every error that passes an execution gets a line of CONTEXT with line,
 * column and kind of the statement.  An error with a position in a piece of
 * SQL gets that position in the script, and when the script stands as a literal
 * in the client's query, in that query, so that psql points at the place.
 */
#include "psm/psm.h"

#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
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

/* ---------- where an error comes from ---------- */

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

/*
 * Adds to the error of a deferred constraint which statement wrote its table
 * last, as near as can be known.
 */
void
psm_error_blame_writer(PsmExec *ex, ErrorData *error)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(ex->mcxt);
	PsmStmt    *stmt = NULL;
	StringInfoData context;

	initStringInfo(&context);
	if (error->context != NULL)
		appendStringInfo(&context, "%s\n", error->context);
	if (error->schema_name != NULL && error->table_name != NULL)
	{
		Oid			schema = get_namespace_oid(error->schema_name, true);

		if (OidIsValid(schema))
			stmt = psm_exec_last_writer(ex, get_relname_relid(error->table_name, schema));
	}
	appendStringInfoString(&context, "deferred constraint, checked at the end of the block");
	if (stmt != NULL)
	{
		appendStringInfo(&context, "; \"%s\" was last written by\n"
						 "atomic block line %d, column %d, at %s",
						 error->table_name, stmt->pos.line, stmt->pos.column, psm_stmt_name(stmt));
		last_error_line = stmt->pos.line;
	}
	error->context = context.data;
	MemoryContextSwitchTo(oldcontext);
}

/* ---------- SIGNAL ---------- */

static void
set_field(char **field, const char *text)
{
	if (*field)
		pfree(*field);
	*field = text ? pstrdup(text) : NULL;
}

static char **
item_field(ErrorData *error, PsmItem item)
{
	switch (item)
	{
		case PSM_ITEM_MESSAGE_TEXT:
			return &error->message;
		case PSM_ITEM_DETAIL:
			return &error->detail;
		case PSM_ITEM_HINT:
			return &error->hint;
		case PSM_ITEM_TABLE_NAME:
			return &error->table_name;
		case PSM_ITEM_SCHEMA_NAME:
			return &error->schema_name;
		case PSM_ITEM_COLUMN_NAME:
			return &error->column_name;
		case PSM_ITEM_CONSTRAINT_NAME:
			return &error->constraint_name;
		default:
			return NULL;
	}
}

/* Class 01 or 02? */
static bool
is_completion(int sqlstate)
{
	int			category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_WARNING || category == ERRCODE_NO_DATA;
}

/* Raises a condition as an ordinary error, or as a WARNING for classes 01 and 02 */
static void
raise_condition(const ErrorData *error)
{
	ereport(is_completion(error->sqlerrcode) ? WARNING : ERROR,
			(errcode(error->sqlerrcode),
			 errmsg_internal("%s", error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0,
			 error->table_name ?
			 err_generic_string(PG_DIAG_TABLE_NAME, error->table_name) : 0,
			 error->schema_name ?
			 err_generic_string(PG_DIAG_SCHEMA_NAME, error->schema_name) : 0,
			 error->column_name ?
			 err_generic_string(PG_DIAG_COLUMN_NAME, error->column_name) : 0,
			 error->constraint_name ?
			 err_generic_string(PG_DIAG_CONSTRAINT_NAME, error->constraint_name) : 0));
}

/* A copy of the condition that RESIGNAL passes on, in ex->mcxt */
static ErrorData *
copy_condition(const ErrorData *from)
{
	ErrorData  *error = palloc(sizeof(ErrorData));

	*error = *from;
	error->assoc_context = NULL;
#define COPY(field) if (error->field) error->field = pstrdup(error->field)
	COPY(message);
	COPY(detail);
	COPY(detail_log);
	COPY(hint);
	COPY(context);
	COPY(backtrace);
	COPY(schema_name);
	COPY(table_name);
	COPY(column_name);
	COPY(datatype_name);
	COPY(constraint_name);
	COPY(internalquery);
#undef COPY
	return error;
}

/* The condition that SIGNAL or RESIGNAL raises, in mcxt */
static ErrorData *
signalled_condition(PsmExec *ex, PsmSignal *stmt, MemoryContext mcxt)
{
	ErrorData  *error;
	MemoryContext oldcontext = MemoryContextSwitchTo(mcxt);

	if (stmt->stmt.kind == PSM_RESIGNAL)
		error = copy_condition(ex->diagnostics->error);
	else
		error = palloc0(sizeof(ErrorData));
	if (stmt->sqlstate != 0)
	{
		error->sqlerrcode = stmt->sqlstate;
		error->elevel = is_completion(stmt->sqlstate) ? WARNING : ERROR;
		set_field(&error->message,
				  stmt->condition_name ? psprintf("condition \"%s\" was signalled",
												  stmt->condition_name)
				  : psprintf("SQLSTATE %s was signalled", unpack_sql_state(stmt->sqlstate)));
	}
	MemoryContextSwitchTo(oldcontext);

	for (int i = 0; i < PSM_NUM_SIGNAL_ITEMS; i++)
	{
		char	   *text;

		if (stmt->items[i] == NULL)
			continue;
		text = psm_eval_text(ex, stmt->items[i]);
		if (text == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("a condition's items cannot be null")));
		oldcontext = MemoryContextSwitchTo(mcxt);
		set_field(item_field(error, i), text);
		MemoryContextSwitchTo(oldcontext);
	}
	psm_eval_cleanup(ex);
	return error;
}

/*
 * SIGNAL and RESIGNAL.  Classes 01 and 02 go to their handler or become a
 * WARNING, all others are errors.
 */
PsmResult
psm_signal(PsmExec *ex, PsmSignal *stmt)
{
	ErrorData  *error;
	int			sqlstate;

	if (stmt->stmt.kind == PSM_RESIGNAL && ex->diagnostics == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_RESIGNAL_WHEN_HANDLER_NOT_ACTIVE),
				 errmsg("RESIGNAL can only be used in a handler")));
	sqlstate = stmt->sqlstate != 0 ? stmt->sqlstate : ex->diagnostics->error->sqlerrcode;
	if (is_completion(sqlstate) && psm_completion_handled(ex, sqlstate))
		return psm_completion(ex, signalled_condition(ex, stmt, ex->mcxt));
	error = signalled_condition(ex, stmt, psm_passing_context(ex));
	if (stmt->stmt.kind == PSM_RESIGNAL && stmt->sqlstate == 0 && error->elevel >= ERROR)
		ReThrowError(error);	/* with the context that it had */
	raise_condition(error);
	return PSM_NEXT;			/* it was a warning */
}

/* ---------- GET DIAGNOSTICS ---------- */

static void
assign_text(PsmExec *ex, const PsmTarget *target, const char *text)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(psm_econtext(ex)->ecxt_per_tuple_memory);
	Datum		value = text ? CStringGetTextDatum(text) : (Datum) 0;

	MemoryContextSwitchTo(oldcontext);
	psm_assign(ex, target, value, text == NULL, TEXTOID, -1);
}

static void
assign_number(PsmExec *ex, const PsmTarget *target, int64 number)
{
	psm_assign(ex, target, Int64GetDatum(number), false, INT8OID, -1);
}

/*
 * GET [CURRENT | STACKED] DIAGNOSTICS.  The condition is the one that the
 * innermost running handler handles; it stays the same while that runs.
 * Errors: 0Z002 for STACKED outside a handler, 35000 for a condition that is
 * not there.
 */
void
psm_get_diagnostics(PsmExec *ex, PsmGetDiagnostics *stmt)
{
	PsmDiagnostics *diagnostics = ex->diagnostics;
	ListCell   *lc;

	if (stmt->stacked && diagnostics == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_STACKED_DIAGNOSTICS_ACCESSED_WITHOUT_ACTIVE_HANDLER),
				 errmsg("GET STACKED DIAGNOSTICS can only be used in a handler")));
	if (stmt->condition != NULL)
	{
		char	   *number = psm_eval_text(ex, stmt->condition);

		if (number == NULL || strcmp(number, "1") != 0 || diagnostics == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_CONDITION_NUMBER),
					 errmsg("there is no condition number %s",
							number ? tw_excerpt(number) : "NULL")));
		psm_eval_cleanup(ex);
	}

	foreach(lc, stmt->items)
	{
		PsmDiagItem *item = lfirst(lc);
		ErrorData  *error = diagnostics ? diagnostics->error : NULL;

		switch (item->item)
		{
			case PSM_ITEM_ROW_COUNT:
				assign_number(ex, &item->target, ex->row_count);
				break;
			case PSM_ITEM_NUMBER:
				assign_number(ex, &item->target, diagnostics ? 1 : 0);
				break;
			case PSM_ITEM_LINE_NUMBER:
				if (diagnostics)
					assign_number(ex, &item->target, diagnostics->line);
				else
					assign_text(ex, &item->target, NULL);
				break;
			case PSM_ITEM_RETURNED_SQLSTATE:
				assign_text(ex, &item->target,
							error ? unpack_sql_state(error->sqlerrcode) : "00000");
				break;
			default:
				assign_text(ex, &item->target, error ? *item_field(error, item->item) : NULL);
				break;
		}
	}
	psm_eval_cleanup(ex);
}
