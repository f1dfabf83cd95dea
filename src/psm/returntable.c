/*
 * returntable.c
 *		RETURN TABLE in a function: the rows of a query as the function's result.
 *
 * Rows go to a tuplestore of the caller's, memory and file.  Each column is cast to the
 * one that the function declares, as in an assignment; when all types are the
 * same already, PostgreSQL's own receiver takes the rows as they come.
 */
#include "psm/psm.h"

#include "executor/tstoreReceiver.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"

#define MISMATCH "the query of RETURN TABLE does not match the function's result type"

/* A receiver that casts; lives in the memory of the call */
typedef struct CastReceiver
{
	DestReceiver pub;
	Tuplestorestate *tuples;
	TupleDesc	to;
	ExprContext *econtext;		/* of its own: the query's parameters may live in the execution's */
	Datum	   *values;			/* by columns of to */
	bool	   *nulls;
} CastReceiver;

/* The query may have been planned anew since it was looked at */
static void
cast_startup(DestReceiver *self, int operation, TupleDesc from)
{
	(void) psm_rows_differ(from, ((CastReceiver *) self)->to, MISMATCH);
}

static bool
cast_receive(TupleTableSlot *slot, DestReceiver *self)
{
	CastReceiver *receiver = (CastReceiver *) self;

	slot_getallattrs(slot);
	psm_cast_row(receiver->econtext, slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull,
				 receiver->to, receiver->values, receiver->nulls);
	tuplestore_putvalues(receiver->tuples, receiver->to, receiver->values, receiver->nulls);
	ResetExprContext(receiver->econtext);
	return true;
}

static void
cast_shutdown(DestReceiver *self)
{
}

static void
cast_destroy(DestReceiver *self)
{
	psm_econtext_pop(((CastReceiver *) self)->econtext);
}

static DestReceiver *
cast_receiver(Tuplestorestate *tuples, TupleDesc to)
{
	CastReceiver *receiver = palloc0(sizeof(CastReceiver));

	receiver->pub.receiveSlot = cast_receive;
	receiver->pub.rStartup = cast_startup;
	receiver->pub.rShutdown = cast_shutdown;
	receiver->pub.rDestroy = cast_destroy;
	receiver->pub.mydest = DestNone;
	receiver->tuples = tuples;
	receiver->to = to;
	receiver->econtext = psm_econtext_push();
	receiver->values = palloc(to->natts * sizeof(Datum));
	receiver->nulls = palloc(to->natts * sizeof(bool));
	return &receiver->pub;
}

/* Runs the query, its rows going to store, which holds rows of rsi->setDesc */
static void
fill_store(PsmExec *ex, PsmExpr *query, ReturnSetInfo *rsi, Tuplestorestate *store,
		   MemoryContext mcxt)
{
	PsmExec    *parsing;
	DestReceiver *dest;

	/* DDL may have changed the query's columns since it was analysed */
	psm_prepare(ex, query, CURSOR_OPT_PARALLEL_OK);
	parsing = psm_params_parsing(ex);
	(void) CachedPlanGetTargetList(query->plan->source, NULL);
	psm_params_parsing(parsing);
	if (rsi->setDesc != NULL &&
		psm_rows_differ(query->plan->source->resultDesc, rsi->setDesc, MISMATCH))
		dest = cast_receiver(store, rsi->setDesc);
	else
	{
		dest = CreateDestReceiver(DestTuplestore);
		SetTuplestoreDestReceiverParams(dest, store, mcxt, false, rsi->setDesc,
										gettext_noop(MISMATCH));
	}
	psm_execute_into(ex, query, dest);
	dest->rDestroy(dest);
}

/*
 * Makes the rows of a query the result of a function, in the memory that rsi
 * names.  A store that has outgrown its memory has a file, which belongs to
 * owner: the statement may run in a savepoint, and the rows have to outlive it.
 * Errors: those of the query and of the casts.
 */
void
psm_return_table(PsmExec *ex, PsmExpr *query, ReturnSetInfo *rsi, ResourceOwner owner,
				 Tuplestorestate **tuples)
{
	MemoryContext mcxt = rsi->econtext->ecxt_per_query_memory;
	MemoryContext oldcontext = MemoryContextSwitchTo(mcxt);
	ResourceOwner oldowner = CurrentResourceOwner;
	Tuplestorestate *store;

	CurrentResourceOwner = owner;
	store = tuplestore_begin_heap((rsi->allowedModes & SFRM_Materialize_Random) != 0, false,
								  work_mem);
	CurrentResourceOwner = oldowner;
	rsi->setDesc = rsi->expectedDesc ? CreateTupleDescCopy(rsi->expectedDesc) : NULL;
	MemoryContextSwitchTo(oldcontext);

	PG_TRY();
	{
		fill_store(ex, query, rsi, store, mcxt);
	}
	PG_CATCH();
	{
		/* what a query gave that failed half-way is no result */
		tuplestore_end(store);
		PG_RE_THROW();
	}
	PG_END_TRY();
	*tuples = store;
}
