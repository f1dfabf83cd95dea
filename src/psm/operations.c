/*
 * operations.c
 *		What the statements of an execution did, counted and written down for the
 *		ledger: one element a statement, with its line, table and rows.
 *
 * Counts belong to the execution.  What is undone is not counted: exec.c puts
 * the counts back when it undoes a block.  They also tell which statement wrote
 * the table of a deferred constraint that fails.
 */
#include "psm/psm.h"

#include "catalog/namespace.h"
#include "tcop/cmdtag.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* ---------- counting ---------- */

/* Does a statement of this SPI code write rows? */
bool
psm_writes_rows(int spi_code)
{
	switch (spi_code)
	{
		case SPI_OK_INSERT:
		case SPI_OK_UPDATE:
		case SPI_OK_DELETE:
		case SPI_OK_MERGE:
		case SPI_OK_INSERT_RETURNING:
		case SPI_OK_UPDATE_RETURNING:
		case SPI_OK_DELETE_RETURNING:
#ifdef SPI_OK_MERGE_RETURNING
		case SPI_OK_MERGE_RETURNING:
#endif
			return true;
		default:
			return false;
	}
}

/* Counts rows that the query of a statement other than plain SQL has written */
void
psm_count_written(PsmExec *ex, PsmStmt *stmt, PsmExpr *query, uint64 rows)
{
	PsmCount   *count = &ex->counts[stmt->number];

	count->executions++;
	count->rows += rows;
	count->writes = true;
	count->command = GetCommandTagName(query->plan->source->commandTag);
	count->relation = psm_expr_relation(query);
}

/* ---------- as JSON ---------- */

/*
 * The operations as JSON.  A job does much the same in each of its batches, so
 * the last one is kept with the script.
 */
static Jsonb *
operations_json(PsmScript *script, const TwOperation *ops, int n)
{
	uint64		generation = tw_names_generation();
	Jsonb	   *json;

	if (script->last_json != NULL && script->last_nops == n &&
		script->last_generation == generation &&
		memcmp(script->last_ops, ops, n * sizeof(TwOperation)) == 0)
		return script->last_json;

	/* looking names up may tell of changes, which count as later ones */
	json = tw_history_operations(ops, n);
	if (script->last_json != NULL)
		pfree(script->last_json);
	script->last_json = NULL;
	if (script->last_ops == NULL)
		script->last_ops = MemoryContextAlloc(script->mcxt,
											  Max(script->nstmts, 1) * sizeof(TwOperation));
	memcpy(script->last_ops, ops, n * sizeof(TwOperation));
	script->last_nops = n;
	script->last_generation = generation;
	script->last_json = MemoryContextAlloc(script->mcxt, VARSIZE(json));
	memcpy(script->last_json, json, VARSIZE(json));
	return json;
}

/* The table that a statement wrote or was about, or InvalidOid */
static Oid
counted_relation(const PsmStmt *stmt, const PsmCount *count)
{
	if (!OidIsValid(count->relation) && stmt->kind == PSM_SQL)
		return psm_expr_relation(((const PsmSqlStmt *) stmt)->sql);
	return count->relation;
}

/* The last statement of the script that wrote rows of a table, or NULL */
static PsmStmt *
last_writer(PsmExec *ex, Oid relation)
{
	for (int i = ex->script->nstmts - 1; i >= 0 && OidIsValid(relation); i--)
	{
		PsmStmt    *stmt = ex->script->stmts[i];
		PsmCount   *count = &ex->counts[i];

		if (count->writes && count->rows > 0 && counted_relation(stmt, count) == relation)
			return stmt;
	}
	return NULL;
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
			stmt = last_writer(ex, get_relname_relid(error->table_name, schema));
	}
	appendStringInfoString(&context, "deferred constraint, checked at the end of the block");
	if (stmt != NULL)
	{
		appendStringInfo(&context, "; \"%s\" was last written by\n"
						 "atomic block line %d, column %d, at %s",
						 error->table_name, stmt->pos.line, stmt->pos.column, psm_stmt_name(stmt));
		psm_error_line_set(stmt->pos.line);
	}
	error->context = context.data;
	MemoryContextSwitchTo(oldcontext);
}

/*
 * What each SQL statement that ran did, for the ledger, valid until the script
 * runs again; *rows: how many rows were written.
 */
Jsonb *
psm_exec_operations(PsmExec *ex, int64 *rows)
{
	PsmScript  *script = ex->script;
	TwOperation *ops = palloc0(Max(script->nstmts, 1) * sizeof(TwOperation));
	int			n = 0;

	*rows = 0;
	for (int i = 0; i < script->nstmts; i++)
	{
		PsmStmt    *stmt = script->stmts[i];
		PsmCount   *count = &ex->counts[i];

		if (count->writes)
			*rows += count->rows;
		if (count->executions == 0)
			continue;
		ops[n].line = stmt->pos.line;
		ops[n].command = count->command ? count->command : psm_stmt_name(stmt);
		ops[n].relation = counted_relation(stmt, count);
		ops[n].rows = count->rows;
		ops[n].executions = count->executions;
		n++;
	}
	return tw_history ? operations_json(script, ops, n) : NULL;
}
