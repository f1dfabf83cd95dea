/*
 * dynamic.c
 *		EXECUTE IMMEDIATE: a statement whose text is known only at run time.
 *
 * The text is one statement that sees no variables of the block; values come
 * by USING, for the standard's markers (?) or for PostgreSQL's ($1).
 */
#include "psm/psm.h"

#include "utils/builtins.h"

/*
 * Replaces the ? markers of a text by $1, $2, ...  A text that has $1 already is
 * left alone, and so is one without USING: there ? is an operator.
 */
static char *
number_markers(const char *text, int nargs)
{
	int			ntokens;
	PsmToken   *tokens;
	StringInfoData out;
	int			done = 0;
	int			n = 0;

	if (nargs == 0 || strchr(text, '?') == NULL)
		return pstrdup(text);
	tokens = psm_scan(text, &ntokens);
	for (int i = 0; i < ntokens; i++)
	{
		if (tokens[i].type == PSM_TOK_PARAM)
			return pstrdup(text);
	}
	initStringInfo(&out);
	for (int i = 0; i < ntokens; i++)
	{
		if (tokens[i].type != PSM_TOK_OP || tokens[i].end - tokens[i].start != 1 ||
			text[tokens[i].start] != '?')
			continue;
		appendBinaryStringInfo(&out, text + done, tokens[i].start - done);
		appendStringInfo(&out, "$%d", ++n);
		done = tokens[i].end;
	}
	appendStringInfoString(&out, text + done);
	return out.data;
}

/* Positions are in the text, which is not what the client sent */
static void
text_error_callback(void *arg)
{
	char	  **text = arg;
	int			position = geterrposition();

	if (position <= 0)
		return;
	errposition(0);
	internalerrposition(position);
	internalerrquery(*text);
}

/*
 * Makes *text, with nusing values to come, what PostgreSQL will run, and returns
 * its raw parse tree.  Errors: 42601 unless it is one statement, and those of
 * statements that may not run here.
 */
Node *
psm_dynamic_parse(char **text, int nusing)
{
	ErrorContextCallback context;
	List	   *parsed;
	Node	   *stmt;

	context.callback = text_error_callback;
	context.arg = text;
	context.previous = error_context_stack;
	error_context_stack = &context;
	*text = number_markers(*text, nusing);
	parsed = raw_parser(*text, RAW_PARSE_DEFAULT);
	if (list_length(parsed) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("EXECUTE IMMEDIATE takes one statement, but the text has %d",
						list_length(parsed))));
	stmt = linitial_node(RawStmt, parsed)->stmt;
	psm_check_runnable(stmt, NULL, 0);
	error_context_stack = context.previous;
	return stmt;
}

static ParamListInfo
using_values(PsmExec *ex, List *using)
{
	int			n = list_length(using);
	ParamListInfo params;

	if (n == 0)
		return NULL;
	params = makeParamList(n);
	for (int i = 0; i < n; i++)
	{
		ParamExternData *prm = &params->params[i];
		int32		typmod;

		prm->value = psm_eval_for(ex, list_nth(using, i), InvalidOid, &prm->isnull, &prm->ptype,
								  &typmod);
		prm->pflags = PARAM_FLAG_CONST;
	}
	return params;
}

/* Runs the statement.  True: it is NOT FOUND, since it missed all that it was for. */
bool
psm_exec_immediate(PsmExec *ex, PsmExecute *stmt)
{
	PsmCount   *count = &ex->counts[stmt->stmt.number];
	SPIExecuteOptions options = {0};
	char	   *text = psm_eval_text(ex, stmt->text);
	MemoryContext oldcontext;
	int			rc;
	uint64		n;
	SPITupleTable *tuples;

	if (text == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the statement text of EXECUTE IMMEDIATE is null")));

	/* all of it is needed for this statement only */
	oldcontext = MemoryContextSwitchTo(psm_econtext(ex)->ecxt_per_tuple_memory);
	(void) psm_dynamic_parse(&text, list_length(stmt->using));
	options.params = using_values(ex, stmt->using);
	MemoryContextSwitchTo(oldcontext);
	options.read_only = ex->read_only;
	options.must_return_tuples = stmt->into != NIL;
	rc = SPI_execute_extended(text, &options);
	if (rc < 0)
		elog(ERROR, "SPI failed to execute a statement: %s", SPI_result_code_string(rc));

	n = SPI_processed;
	tuples = SPI_tuptable;
	ex->savepoint.used = true;
	ex->row_count = n;
	count->executions++;
	count->rows += n;
	count->writes |= psm_writes_rows(rc);
	if (stmt->into != NIL)
		psm_assign_into(ex, stmt->into, tuples, n);
	if (tuples != NULL)
		SPI_freetuptable(tuples);
	psm_eval_cleanup(ex);
	return n == 0 && (psm_writes_rows(rc) || stmt->into != NIL);
}
