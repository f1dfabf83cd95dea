/*
 * statement.c
 *		Statements that hold no others: SET, SQL, cursors, declarations.
 *
 * exec.c walks the tree and calls these; none of them calls back.
 */
#include "psm/psm.h"

#include "catalog/pg_type.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/tuplestore.h"

/* ---------- assignments ---------- */

/* The type that an assignment needs, InvalidOid when it has to be seen */
static Oid
target_type(const PsmTarget *target)
{
	int			field;

	if (target->field == NULL)
		return target->var->type;
	field = psm_row_field(target->var, target->field);
	return field < 0 ? InvalidOid : TupleDescAttr(target->var->tupdesc, field)->atttypid;
}

void
psm_exec_set(PsmExec *ex, PsmSet *stmt)
{
	bool		isnull;
	Oid			type;
	int32		typmod;
	PsmVar	   *var = stmt->target.var;
	Datum		value;

	if (likely(!stmt->value->lone_host))
		value = psm_eval(ex, stmt->value, &isnull, &type, &typmod);
	else
		value = psm_eval_for(ex, stmt->value, target_type(&stmt->target), &isnull, &type, &typmod);

	/* the common case: nothing to cast, nothing to copy, nothing to free */
	if (likely(type == var->type && var->typbyval && var->typmod == -1 &&
			   var->kind == PSM_VAR_SCALAR && type < FirstNormalObjectId))
	{
		PsmValue   *v = &ex->values[var->number];

		v->value = value;
		v->isnull = isnull;
	}
	else
		psm_assign(ex, &stmt->target, value, isnull, type, typmod);
	psm_eval_cleanup(ex);
}

static void
set_targets_null(PsmExec *ex, List *targets)
{
	ListCell   *lc;

	foreach(lc, targets)
		psm_assign(ex, lfirst(lc), (Datum) 0, true, UNKNOWNOID, -1);
}

/* SET (a, b) = (query): no row sets all to null, more than one is an error */
void
psm_exec_set_row(PsmExec *ex, PsmSetRow *stmt)
{
	int			n = list_length(stmt->targets);

	if (stmt->query != NULL)
	{
		SPITupleTable *tuples;

		if (psm_writes_rows(psm_execute(ex, stmt->query, true, 2)))
			psm_count_written(ex, &stmt->stmt, stmt->query, SPI_processed);
		tuples = SPI_tuptable;
		if (SPI_processed > 1)
			ereport(ERROR,
					(errcode(ERRCODE_CARDINALITY_VIOLATION),
					 errmsg("more than one row returned to be assigned")));
		if (SPI_processed == 1)
			psm_assign_tuple(ex, stmt->targets, tuples->vals[0], tuples->tupdesc);
		else
			set_targets_null(ex, stmt->targets);
		SPI_freetuptable(tuples);
	}
	else
	{
		Datum	   *values = palloc(n * sizeof(Datum));
		bool	   *nulls = palloc(n * sizeof(bool));
		Oid		   *types = palloc(n * sizeof(Oid));
		int32	   *typmods = palloc(n * sizeof(int32));

		for (int i = 0; i < n; i++)
			values[i] = psm_eval_for(ex, list_nth(stmt->values, i),
									 target_type(list_nth(stmt->targets, i)),
									 &nulls[i], &types[i], &typmods[i]);

		/* an assignment may free what a variable held, and a later value may be just that */
		for (int i = 0; i < n; i++)
		{
			int16		typlen;
			bool		typbyval;

			get_typlenbyval(types[i], &typlen, &typbyval);
			if (!nulls[i] && !typbyval)
			{
				MemoryContext oldcontext =
					MemoryContextSwitchTo(psm_econtext(ex)->ecxt_per_tuple_memory);

				values[i] = datumCopy(values[i], typbyval, typlen);
				MemoryContextSwitchTo(oldcontext);
			}
		}
		for (int i = 0; i < n; i++)
			psm_assign(ex, list_nth(stmt->targets, i), values[i], nulls[i], types[i], typmods[i]);
		pfree(values);
		pfree(nulls);
		pfree(types);
		pfree(typmods);
	}
	psm_eval_cleanup(ex);
}

/* The operand's type is known when it was evaluated; the WHENs are planned for it */
void
psm_set_case_operand(PsmExec *ex, PsmCase *stmt)
{
	PsmVar	   *var = stmt->operand_var;
	PsmTarget	target = {var, NULL, stmt->stmt.pos};
	bool		isnull;
	Oid			type;
	int32		typmod;
	Datum		value = psm_eval(ex, stmt->operand, &isnull, &type, &typmod);

	psm_operand_describe(ex, var, type);
	psm_assign(ex, &target, value, isnull, type, typmod);
	psm_eval_cleanup(ex);
}

/* Declarations are evaluated at each entry, outside the block's own handlers */
void
psm_enter_scope(PsmExec *ex, PsmCompound *block)
{
	ListCell   *lc;

	foreach(lc, block->vars)
	{
		PsmVar	   *var = lfirst(lc);

		ex->declaring = var;
		if (var->init == NULL)
			psm_set_null(ex, var);
		else
		{
			PsmTarget	target = {var, NULL, var->pos};
			bool		isnull;
			Oid			type;
			int32		typmod;
			Datum		value = psm_eval_for(ex, var->init, var->type, &isnull, &type, &typmod);

			psm_assign(ex, &target, value, isnull, type, typmod);
		}
		psm_eval_cleanup(ex);
	}
	ex->declaring = NULL;
}

/* ---------- SQL and cursors ---------- */

/* Frees the result of a statement's query */
static void
end_query(PsmExec *ex, SPITupleTable *tuples)
{
	if (tuples != NULL)
		SPI_freetuptable(tuples);
	psm_eval_cleanup(ex);
}

/* True: it missed all rows that it was for */
bool
psm_exec_sql(PsmExec *ex, PsmSqlStmt *stmt)
{
	PsmCount   *count = &ex->counts[stmt->stmt.number];
	int			rc;
	uint64		n;
	SPITupleTable *tuples;

	if (stmt->call)
	{
		/* what cannot take an output is refused before the procedure runs */
		psm_prepare(ex, stmt->sql, CURSOR_OPT_PARALLEL_OK);
		psm_call_check(ex, stmt->sql);
	}

	/* one row more than INTO wants, so that too many are noticed */
	rc = psm_execute(ex, stmt->sql, stmt->into != NIL,
					 stmt->into != NIL && !stmt->utility && strcmp(stmt->command, "SELECT") == 0
					 ? 2 : 0);
	n = stmt->call ? 0 : SPI_processed;
	tuples = SPI_tuptable;

	if (stmt->into != NIL)
		psm_assign_into(ex, stmt->into, tuples, n);
	else if (stmt->call)
		psm_call_outputs(ex, stmt->sql, tuples);
	count->executions++;
	count->rows += n;
	count->writes |= psm_writes_rows(rc) || (stmt->utility && strcmp(stmt->command, "COPY") == 0);
	ex->row_count = n;
	if (stmt->utility)
	{
		ex->savepoint.used = true;
		count->relation = stmt->sql->spliced ? ex->run_relation : psm_expr_relation(stmt->sql);
	}

	end_query(ex, tuples);
	return n == 0 && (psm_writes_rows(rc) || stmt->into != NIL);
}

/*
 * Fetches from a portal.  INSERT ... RETURNING and the like have done all of
 * their work after the first fetch, and count as what they are.
 */
void
psm_fetch(PsmExec *ex, PsmStmt *stmt, PsmExpr *query, Portal portal, long n)
{
	bool		writes = portal->strategy == PORTAL_ONE_RETURNING && portal->holdStore == NULL;

	SPI_cursor_fetch(portal, true, n);
	if (writes && portal->holdStore != NULL)
		psm_count_written(ex, stmt, query, tuplestore_tuple_count(portal->holdStore));
}

/*
 * Opens a portal for a query; of a cursor by its own name if that is free, so
 * that SQL outside the block can find it.
 */
Portal
psm_open_cursor(PsmExec *ex, PsmExpr *query, PsmCursor *cursor)
{
	const char *name = NULL;
	Portal		portal;

	if (cursor != NULL && SPI_cursor_find(cursor->name) == NULL)
		name = cursor->name;
	portal = psm_open(ex, query, name);
	if (ex->script->has_handlers)
		psm_portal_detach(portal);
	if (cursor != NULL)
		psm_cursor_set_portal(ex, cursor, portal);
	return portal;
}

void
psm_exec_open(PsmExec *ex, PsmCursorStmt *stmt)
{
	PsmCursor  *cursor = stmt->cursor;
	const char *name = ex->cursors[cursor->number];

	if (name != NULL && SPI_cursor_find(name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_CURSOR_STATE),
				 errmsg("cursor \"%s\" is already open", cursor->name)));

	(void) psm_open_cursor(ex, cursor->query, cursor);
	ex->savepoint.used = true;
	psm_eval_cleanup(ex);
}

/* True: there was no row any more */
bool
psm_exec_fetch(PsmExec *ex, PsmCursorStmt *stmt)
{
	Portal		portal = psm_cursor_portal(ex, stmt->cursor);
	SPITupleTable *tuples;
	uint64		n;

	psm_fetch(ex, &stmt->stmt, stmt->cursor->query, portal, 1);
	tuples = SPI_tuptable;
	n = SPI_processed;
	ex->row_count = n;
	ex->savepoint.used = true;
	if (n > 0)
		psm_assign_into(ex, stmt->into, tuples, n);
	end_query(ex, tuples);
	return n == 0;
}

void
psm_exec_close(PsmExec *ex, PsmCursorStmt *stmt)
{
	SPI_cursor_close(psm_cursor_portal(ex, stmt->cursor));
	psm_cursor_set_portal(ex, stmt->cursor, NULL);
}
