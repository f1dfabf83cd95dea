/*
 * atomic.c
 *		tw.atomic: a block in the caller's transaction, with or without a batch.
 *
 * The order of things: claim the batch, run the block, check deferred
 * constraints, write the outcome.  An error anywhere is an ordinary error, so
 * that the caller's transaction or savepoint takes claim and data with it.
 */
#include "psm/psm.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "engine/citus.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(tw_atomic);
PG_FUNCTION_INFO_V1(tw_atomic_support);

/* ---------- RETURN ---------- */

/*
 * The same row without the name of its type.  to_jsonb() keeps pointing to the names of the
 * columns when it has given up its hold on a named type, which goes away should an
 * invalidation come while values are converted: the keys would be garbage.  The descriptions of
 * anonymous types stay.
 */
static Datum
anonymous_row(Datum value)
{
	HeapTupleHeader row = DatumGetHeapTupleHeader(value);
	TupleDesc	named;
	TupleDesc	anonymous;
	HeapTupleData tuple;
	Datum	   *values;
	bool	   *nulls;

	if (HeapTupleHeaderGetTypeId(row) == RECORDOID)
		return value;
	named = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(row), HeapTupleHeaderGetTypMod(row));
	tuple.t_len = HeapTupleHeaderGetDatumLength(row);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = row;
	values = palloc(named->natts * sizeof(Datum));
	nulls = palloc(named->natts * sizeof(bool));
	heap_deform_tuple(&tuple, named, values, nulls);
	anonymous = CreateTupleDescCopy(named);
	ReleaseTupleDesc(named);
	anonymous->tdtypeid = RECORDOID;
	anonymous->tdtypmod = -1;
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(anonymous), values, nulls));
}

/* to_jsonb() of a value of a type known only now */
static Jsonb *
value_to_jsonb(Datum value, Oid type)
{
	FmgrInfo	flinfo;
	List	   *args;

	if (type != RECORDOID && type_is_rowtype(type))
	{
		value = anonymous_row(value);
		type = RECORDOID;
	}
	args = list_make1(makeNullConst(type, -1, InvalidOid));
	fmgr_info(F_TO_JSONB, &flinfo);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, args, InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL), &flinfo);
	return DatumGetJsonbP(FunctionCall1(&flinfo, value));
}

/* The rows of a query as a JSON array of objects */
static Jsonb *
rows_to_jsonb(SPITupleTable *tuples, uint64 n)
{
	JsonbParseState *state = NULL;
	TupleDesc	tupdesc = BlessTupleDesc(tuples->tupdesc);
	JsonbValue *array;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (uint64 i = 0; i < n; i++)
	{
		Jsonb	   *row = value_to_jsonb(heap_copy_tuple_as_datum(tuples->vals[i], tupdesc),
										 RECORDOID);
		JsonbValue	v;

		v.type = jbvBinary;
		v.val.binary.data = &row->root;
		v.val.binary.len = VARSIZE(row) - VARHDRSZ;
		pushJsonbValue(&state, WJB_ELEM, &v);
	}
	array = pushJsonbValue(&state, WJB_END_ARRAY, NULL);
	return JsonbValueToJsonb(array);
}

/* RETURN in a block: its value becomes the result of the outcome, as JSON */
static void
return_json(PsmExec *ex, PsmReturn *stmt)
{
	Jsonb	   *result = NULL;
	MemoryContext oldcontext;

	if (stmt->query != NULL)
	{
		SPITupleTable *tuples;
		uint64		n;
		int			rc;

		rc = psm_execute(ex, stmt->query, true, 0);
		tuples = SPI_tuptable;
		n = SPI_processed;
		if (psm_writes_rows(rc))
			psm_count_written(ex, &stmt->stmt, stmt->query, n);
		oldcontext = MemoryContextSwitchTo(ex->mcxt);
		result = rows_to_jsonb(tuples, n);
		MemoryContextSwitchTo(oldcontext);
		SPI_freetuptable(tuples);
	}
	else if (stmt->value != NULL)
	{
		bool		isnull;
		Oid			type;
		int32		typmod;
		Datum		value = psm_eval(ex, stmt->value, &isnull, &type, &typmod);

		if (!isnull)
		{
			oldcontext = MemoryContextSwitchTo(ex->mcxt);
			result = value_to_jsonb(value, type);
			MemoryContextSwitchTo(oldcontext);
		}
	}
	psm_eval_cleanup(ex);
	ex->result = result;
}

/* ---------- running a block ---------- */

static Jsonb *
copy_jsonb(const Jsonb *jsonb)
{
	Jsonb	   *copy;

	if (jsonb == NULL)
		return NULL;
	copy = palloc(VARSIZE(jsonb));
	memcpy(copy, jsonb, VARSIZE(jsonb));
	return copy;
}

/* A parameter that is missing is reported as an error of the text, at its place */
static void
bind_parameters(PsmExec *ex, Jsonb *params)
{
	PsmSource	place = {ex->script->source, NULL};
	ErrorContextCallback context;

	context.callback = psm_compile_error_callback;
	context.arg = &place;
	context.previous = error_context_stack;
	error_context_stack = &context;
	psm_hosts_bind(ex, params, false);
	error_context_stack = context.previous;
}

/*
 * No trigger has had an event in this transaction, so none is deferred: PostgreSQL makes a memory
 * context for them with the first.
 */
static bool
nothing_deferred(void)
{
	for (MemoryContext child = TopTransactionContext->firstchild; child != NULL;
		 child = child->nextchild)
		if (strcmp(child->name, "AfterTriggerEvents") == 0)
			return false;
	return true;
}

/*
 * Checks all deferred constraints now, so that no success is reported that the
 * commit would take back.  The check is made in a subtransaction, which is rolled
 * back so that the caller's transaction goes on as deferred as it was, unless
 * they are to stay immediate.
 */
static void
check_constraints(PsmExec *ex, bool make_immediate)
{
	ConstraintsSetStmt *stmt = makeNode(ConstraintsSetStmt);
	MemoryContext oldcontext = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	if (nothing_deferred())
		return;
	stmt->constraints = NIL;
	stmt->deferred = false;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(oldcontext);
	PG_TRY();
	{
		AfterTriggerSetState(stmt);
		if (make_immediate)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(oldcontext);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(oldcontext);
	CurrentResourceOwner = oldowner;
	if (error != NULL)
	{
		psm_error_blame_writer(ex, error);
		ReThrowError(error);
	}
}

/* Over several nodes a savepoint costs each of them more than the block; COMMIT checks as well */
static void
run_and_check(PsmExec *ex, PsmConstraints constraints)
{
	psm_exec_run(ex);
	if (constraints != PSM_LEAVE_DEFERRED && !tw_citus_is_distributed())
		check_constraints(ex, constraints == PSM_MAKE_IMMEDIATE);
}

/* The same within transactional_writer.block_timeout */
static void
run_in_time(PsmExec *ex, PsmConstraints constraints)
{
	ErrorContextCallback context;

	if (!psm_timeout_begin())
	{
		run_and_check(ex, constraints);
		return;
	}
	context.callback = psm_timeout_error_callback;
	context.arg = NULL;
	context.previous = error_context_stack;
	error_context_stack = &context;
	PG_TRY();
	{
		run_and_check(ex, constraints);
		psm_timeout_check();
		psm_timeout_end();
	}
	PG_CATCH();
	{
		/* before the rollback, which may take long */
		psm_timeout_end();
		PG_RE_THROW();
	}
	PG_END_TRY();
	error_context_stack = context.previous;
}

/*
 * Compiles (or finds) a block, runs it and checks deferred constraints; sets
 * result, rows and operations of outcome, in the caller's memory.
 */
void
psm_block_run(const char *source, int length, Jsonb *params, PsmConstraints constraints,
			  TwOutcome *outcome)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext mcxt;
	PsmScript  *script;
	PsmExec    *ex;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	script = psm_cache_get(source, length, params);
	mcxt = AllocSetContextCreate(CurrentMemoryContext, "psm execution", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(mcxt);
	ex = psm_exec_create(script);
	ex->do_return = return_json;
	bind_parameters(ex, params);

	run_in_time(ex, constraints);

	MemoryContextSwitchTo(caller);
	outcome->operations = copy_jsonb(psm_exec_operations(ex, &outcome->rows));
	outcome->has_rows = true;
	outcome->result = copy_jsonb(ex->result);
	MemoryContextDelete(mcxt);
	SPI_finish();
}

/* For stage/publish.c: a block that looks at data, and leaves constraints alone */
void
psm_block_look(const char *source, int length, Jsonb *params, TwOutcome *outcome)
{
	psm_block_run(source, length, params, PSM_LEAVE_DEFERRED, outcome);
}

/* ---------- tw.atomic ---------- */

/* Runs a block, for a batch when job is given; false when that was committed before */
static bool
run_atomic(const char *source, int length, Jsonb *params, const TwClaim *claim, TwOutcome *outcome)
{
	if (claim->job != NULL && !tw_batch_claim(claim, outcome))
		return false;
	if (claim->job == NULL)
		outcome->started_at = GetCurrentTimestamp();
	psm_block_run(source, length, params, PSM_CHECK_DEFERRED, outcome);
	outcome->attempts = 1;
	outcome->status = TW_APPLIED;
	if (claim->job != NULL)
		tw_batch_finish(outcome);
	else
	{
		outcome->finished_at = GetCurrentTimestamp();
		outcome->xid = GetTopFullTransactionIdIfAny();
	}
	return true;
}

/* The same in a subtransaction that is rolled back */
static void
run_dry(const char *source, int length, Jsonb *params, const TwClaim *claim, TwOutcome *outcome)
{
	MemoryContext oldcontext = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(oldcontext);
	PG_TRY();
	{
		if (run_atomic(source, length, params, claim, outcome))
			outcome->status = TW_DRY_RUN;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(oldcontext);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(oldcontext);
		CurrentResourceOwner = oldowner;
		ReThrowError(error);
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(oldcontext);
	CurrentResourceOwner = oldowner;
}

/* Reads a block and its parameters, the first two arguments */
char *
psm_block_text(FunctionCallInfo fcinfo, Jsonb **params)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("block must not be null")));
	*params = PG_ARGISNULL(1) ? NULL : PG_GETARG_JSONB_P(1);
	if (*params == NULL || !JB_ROOT_IS_OBJECT(*params))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("params must be a JSON object"),
				 errhint("Write them as {\"name\": value, ...}.")));
	return text_to_cstring(PG_GETARG_TEXT_PP(0));
}

/*
 * Reads the arguments that tw.atomic and tw.run share: block, params, job,
 * batch_id, epoch, version, in this order.
 */
char *
psm_block_arguments(FunctionCallInfo fcinfo, int *length, Jsonb **params, TwClaim *claim)
{
	char	   *source = psm_block_text(fcinfo, params);

	*length = strlen(source);
	memset(claim, 0, sizeof(TwClaim));
	if (PG_ARGISNULL(2) != PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job and batch_id must be given together"),
				 errdetail("%s is null.", PG_ARGISNULL(2) ? "job" : "batch_id")));
	if (!PG_ARGISNULL(2))
	{
		claim->job = text_to_cstring(PG_GETARG_TEXT_PP(2));
		claim->batch_id = text_to_cstring(PG_GETARG_TEXT_PP(3));
	}
	claim->has_epoch = !PG_ARGISNULL(4);
	claim->epoch = claim->has_epoch ? PG_GETARG_INT64(4) : 0;
	claim->has_version = !PG_ARGISNULL(5);
	claim->version = claim->has_version ? PG_GETARG_INT64(5) : 0;
	if (claim->job == NULL && (claim->has_epoch || claim->has_version))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s needs job and batch_id", claim->has_epoch ? "epoch" : "version")));
	return source;
}

/*
 * tw.atomic(block, params, job, batch_id, epoch, version, dry_run) RETURNS tw.outcome
 */
Datum
tw_atomic(PG_FUNCTION_ARGS)
{
	TwOutcome	outcome = {0};
	TwClaim		claim;
	Jsonb	   *params;
	int			length;
	char	   *source = psm_block_arguments(fcinfo, &length, &params, &claim);
	bool		dry_run = !PG_ARGISNULL(6) && PG_GETARG_BOOL(6);

	if (claim.job != NULL)
		claim.fingerprint = tw_history_fingerprint(source, params);
	if (dry_run)
		run_dry(source, length, params, &claim, &outcome);
	else
		run_atomic(source, length, params, &claim, &outcome);
	PG_RETURN_DATUM(tw_history_outcome_datum(&outcome));
}

/* ---------- (tw.atomic(...)).* ---------- */

/* The calls of a function in a query */
typedef struct Calls
{
	Oid			function;
	List	   *found;			/* FuncExpr */
} Calls;

/* True: two calls were written as one.  In a view, and nowhere else, their places are lost. */
static bool
is_copied(Node *node, void *arg)
{
	Calls	   *calls = arg;

	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr) && ((FuncExpr *) node)->funcid == calls->function)
	{
		ListCell   *lc;

		foreach(lc, calls->found)
		{
			if (((FuncExpr *) lfirst(lc))->location == ((FuncExpr *) node)->location &&
				equal(lfirst(lc), node))
				return true;
		}
		calls->found = lappend(calls->found, node);
	}
	return expression_tree_walker(node, is_copied, arg);
}

static bool
has_copies(Query *query, Oid function)
{
	Calls		calls = {function, NIL};
	ListCell   *lc;

	foreach(lc, query->rtable)
	{
		if (is_copied((Node *) lfirst_node(RangeTblEntry, lc)->values_lists, &calls))
			return true;
	}
	return is_copied((Node *) query->targetList, &calls) ||
		is_copied((Node *) query->returningList, &calls) ||
		is_copied((Node *) query->jointree, &calls);
}

/*
 * The planner asks what there is to know of a call of tw.atomic.  The answer is an error when
 * the query has it more than once: PostgreSQL has made a copy for each column of the result,
 * and each would run the block.
 */
Datum
tw_atomic_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);

	if (IsA(request, SupportRequestSimplify))
	{
		SupportRequestSimplify *simplify = (SupportRequestSimplify *) request;

		if (simplify->root != NULL && has_copies(simplify->root->parse, simplify->fcall->funcid))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("tw.atomic cannot be expanded to its columns"),
					 errdetail("It would run the block once for each of them."),
					 errhint("Write SELECT * FROM tw.atomic(...).")));
	}
	PG_RETURN_POINTER(NULL);
}
