/*
 * condition.c
 *		Conditions: choosing the handler of one, keeping one that was caught, and
 *		SIGNAL, RESIGNAL and GET DIAGNOSTICS.
 *
 * Errors of class 40, cancels (57014) and TW001, TW004 pass through every
 * handler: only the caller can do something about them.
 *
 * Running a handler is not for here: that executes a statement, see exec.c.
 */
#include "psm/psm.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

/* ---------- choosing a handler ---------- */

/* 2: made for this very state, 1: for its kind, 0: not for it */
static int
handler_fits(const PsmHandler *handler, int sqlstate)
{
	int			category = ERRCODE_TO_CATEGORY(sqlstate);
	ListCell   *lc;
	int			best = 0;

	foreach(lc, handler->states)
	{
		PsmHandledState *state = lfirst(lc);

		switch (state->kind)
		{
			case PSM_ON_SQLSTATE:
				if (state->sqlstate == sqlstate)
					return 2;
				break;
			case PSM_ON_NOT_FOUND:
				if (category == ERRCODE_NO_DATA)
					best = 1;
				break;
			case PSM_ON_SQLWARNING:
				if (category == ERRCODE_WARNING)
					best = 1;
				break;
			case PSM_ON_SQLEXCEPTION:
				if (category != ERRCODE_WARNING && category != ERRCODE_NO_DATA &&
					category != ERRCODE_SUCCESSFUL_COMPLETION)
					best = 1;
				break;
		}
	}
	return best;
}

/*
 * The handler for a state: innermost block first, then the most specific.
 * A failed statement looks no further out than its innermost atomic block.
 */
PsmHandler *
psm_handler_find(PsmExec *ex, int sqlstate, bool failed, PsmFrame **found)
{
	for (PsmFrame *frame = ex->frames; frame != NULL; frame = frame->outer)
	{
		PsmHandler *best = NULL;
		int			best_fit = 0;
		ListCell   *lc;

		if (frame->handling)
		{
			if (failed && frame->block->atomic)
				break;
			continue;
		}
		foreach(lc, frame->block->handlers)
		{
			int			fit = handler_fits(lfirst(lc), sqlstate);

			if (fit > best_fit)
			{
				best = lfirst(lc);
				best_fit = fit;
			}
		}
		*found = frame;
		if (best != NULL)
			return best;
		if (failed && frame->block->atomic)
			break;
	}
	return NULL;
}

/*
 * Does the error come out of a handler that belongs to one of the blocks around the
 * statement?  It ran on behalf of a statement in here, but what fails in a
 * handler fails where that is declared.  before is what was handled when the
 * statement began.
 */
static bool
failed_in_handler(const PsmExec *ex, const PsmDiagnostics *before)
{
	for (const PsmDiagnostics *inner = ex->diagnostics; inner != before; inner = inner->outer)
	{
		for (const PsmFrame *frame = ex->frames; frame != NULL; frame = frame->outer)
		{
			if (frame->block == inner->block && !frame->handling)
				return true;
		}
	}
	return false;
}

static bool
passes_every_handler(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK ||
		sqlstate == ERRCODE_QUERY_CANCELED ||
		sqlstate == ERRCODE_TW_PRODUCER_FENCED ||
		sqlstate == ERRCODE_TW_TRANSACTION_TIMED_OUT;
}

/*
 * The handler, if any, for an error of a statement that began while before was what was
 * handled
 */
PsmHandler *
psm_handler_for_error(PsmExec *ex, int sqlstate, const PsmDiagnostics *before, PsmFrame **found)
{
	if (passes_every_handler(sqlstate) || failed_in_handler(ex, before))
		return NULL;
	return psm_handler_find(ex, sqlstate, true, found);
}

/* Is there a handler for a completion condition (class 01 or 02)? */
bool
psm_completion_handled(PsmExec *ex, int sqlstate)
{
	PsmFrame   *frame;

	return psm_handler_find(ex, sqlstate, false, &frame) != NULL;
}

/* A statement found, changed or fetched no row: 02000, if there is a handler that takes notice */
ErrorData *
psm_not_found(PsmExec *ex)
{
	ErrorData  *condition;
	MemoryContext oldcontext;

	if (ex->frames == NULL || !psm_completion_handled(ex, ERRCODE_NO_DATA))
		return NULL;
	oldcontext = MemoryContextSwitchTo(ex->mcxt);
	condition = palloc0(sizeof(ErrorData));
	condition->elevel = WARNING;
	condition->sqlerrcode = ERRCODE_NO_DATA;
	condition->message = pstrdup("no row was found, changed or fetched");
	MemoryContextSwitchTo(oldcontext);
	return condition;
}

/* ---------- keeping an error ---------- */

/*
 * Where an error is kept that only passes through: until the next one but one.
 * ReThrowError() does not copy all of it, so the next may be this one again, to
 * be copied from here.
 */
static MemoryContext
passing_context(PsmExec *ex)
{
	MemoryContext mcxt = ex->passed;

	if (mcxt == NULL)
		mcxt = AllocSetContextCreate(ex->mcxt, "psm error", ALLOCSET_SMALL_SIZES);
	else
		MemoryContextReset(mcxt);
	ex->passed = ex->passing;
	ex->passing = mcxt;
	return mcxt;
}

/*
 * Takes the error that was caught: to throw it again, or to handle it.  Then it
 * has a context of its own, since FreeErrorData() does not free all of it.
 */
ErrorData *
psm_error_take(PsmExec *ex, bool passing)
{
	MemoryContext oldcontext;
	ErrorData  *error;

	if (passing)
		oldcontext = MemoryContextSwitchTo(passing_context(ex));
	else
		oldcontext = MemoryContextSwitchTo(AllocSetContextCreate(ex->mcxt, "psm condition",
																 ALLOCSET_SMALL_SIZES));
	error = CopyErrorData();

	FlushErrorState();
	MemoryContextSwitchTo(oldcontext);
	return error;
}

/* What a handler is told of an error or condition, which it takes over */
PsmDiagnostics *
psm_diagnostics_make(PsmExec *ex, ErrorData *error, int line)
{
	PsmDiagnostics *diagnostics = MemoryContextAlloc(ex->mcxt, sizeof(PsmDiagnostics));

	diagnostics->error = error;
	diagnostics->line = line;
	diagnostics->outer = NULL;
	return diagnostics;
}

void
psm_diagnostics_free(PsmDiagnostics *diagnostics)
{
	if (diagnostics->error->assoc_context != NULL)
		MemoryContextDelete(diagnostics->error->assoc_context);
	else
		FreeErrorData(diagnostics->error);
	pfree(diagnostics);
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
					 errmsg("a condition's items must not be null")));
		oldcontext = MemoryContextSwitchTo(mcxt);
		set_field(item_field(error, i), text);
		MemoryContextSwitchTo(oldcontext);
	}
	psm_eval_cleanup(ex);
	return error;
}

/*
 * SIGNAL and RESIGNAL.  Classes 01 and 02 go to their handler or become a
 * WARNING, all others are errors.  Returns what exec.c has to hand to
 * a handler, or NULL.
 */
ErrorData *
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
		return signalled_condition(ex, stmt, ex->mcxt);
	error = signalled_condition(ex, stmt, passing_context(ex));
	if (stmt->stmt.kind == PSM_RESIGNAL && stmt->sqlstate == 0 && error->elevel >= ERROR)
		ReThrowError(error);	/* with the context that it had */
	raise_condition(error);
	return NULL;				/* it was a warning */
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
