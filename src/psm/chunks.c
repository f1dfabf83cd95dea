/*
 * chunks.c
 *		CALL tw.run_chunks: a block over a range of numbers, a chunk at a time.
 *
 * Each chunk is a batch of its own, "batch_id/from-to", claimed, run, committed
 * and retried as CALL tw.run does.  The same call after a crash finds the chunks
 * that are committed in the ledger and goes on with the others.
 *
 * The batch "batch_id" itself is committed first.  Its fingerprint is that of
 * block, parameters, range and chunk size: chunks of another size would overlap
 * those that have run, so a call that differs is TW002.
 */
#include "psm/psm.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(tw_run_chunks);

/* A call; lives as long as the CALL's portal */
typedef struct Chunks
{
	MemoryContext mcxt;			/* this lives there */
	PsmRun		run;			/* of the current chunk */
	const char *batch_id;
	Jsonb	   *params;			/* as given */
	int64		first;
	int64		last;
	int64		size;
	int64		total;			/* chunks */
	int64		done;			/* chunks that are committed, by whom ever */
	int64		skipped;		/* of these, those that had been before */
	int64		rows;			/* written by this call */
	TimestampTz started_at;
} Chunks;

/* ---------- the parameters of a chunk ---------- */

/* params and two numbers */
static Jsonb *
with_numbers(Jsonb *params, const char *name1, int64 number1, const char *name2, int64 number2)
{
	JsonbParseState *state = NULL;
	JsonbIterator *it = JsonbIteratorInit(&params->root);
	JsonbIteratorToken token;
	JsonbValue	value;

	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_END_OBJECT)
		{
			tw_history_push_number(&state, name1, number1);
			tw_history_push_number(&state, name2, number2);
			return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
		}
		(void) pushJsonbValue(&state, token, token == WJB_BEGIN_OBJECT ? NULL : &value);
	}
	elog(ERROR, "parameters are not an object");
	return NULL;
}

/* ---------- the arguments ---------- */

static void
read_range(FunctionCallInfo fcinfo, Chunks *chunks)
{
	uint64		span;

	chunks->first = tw_argument_int64(fcinfo, 3, "first");
	chunks->last = tw_argument_int64(fcinfo, 4, "last");
	chunks->size = tw_argument_int64(fcinfo, 5, "chunk_size");
	if (chunks->size < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("chunk_size must be at least 1")));
	if (chunks->last < chunks->first)
		return;
	span = (uint64) chunks->last - (uint64) chunks->first;
	/* the whole range of bigint in chunks of 1 is one more than a bigint holds */
	chunks->total = (int64) Min(span / chunks->size, (uint64) PG_INT64_MAX - 1) + 1;
}

static Chunks *
chunks_create(FunctionCallInfo fcinfo)
{
	MemoryContext mcxt = AllocSetContextCreate(PortalContext, "tw.run_chunks",
											   ALLOCSET_SMALL_SIZES);
	MemoryContext oldcontext = MemoryContextSwitchTo(mcxt);
	Chunks	   *chunks = palloc0(sizeof(Chunks));
	PsmRun	   *run = &chunks->run;
	Jsonb	   *params;

	chunks->mcxt = mcxt;
	run->claim.job = tw_argument_text(fcinfo, 0, "job");
	chunks->batch_id = tw_argument_text(fcinfo, 1, "batch_id");
	(void) tw_batch_requested(run->claim.job, chunks->batch_id);
	run->source = tw_argument_text(fcinfo, 2, "block");
	run->length = strlen(run->source);
	read_range(fcinfo, chunks);
	params = PG_ARGISNULL(6) ? NULL : PG_GETARG_JSONB_P(6);
	if (params == NULL || !JB_ROOT_IS_OBJECT(params))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("params must be a JSON object"),
				 errhint("Write them as {\"name\": value, ...}.")));
	chunks->params = palloc(VARSIZE(params));
	memcpy(chunks->params, params, VARSIZE(params));
	run->claim.has_epoch = !PG_ARGISNULL(7);
	run->claim.epoch = run->claim.has_epoch ? PG_GETARG_INT64(7) : 0;
	psm_run_read_conflicts(run, tw_argument_text(fcinfo, 8, "conflicts"));
	run->max_attempts = PG_ARGISNULL(9) ? tw_max_attempts : PG_GETARG_INT32(9);
	if (run->max_attempts < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_attempts must be at least 1")));
	run->mcxt = AllocSetContextCreate(mcxt, "tw.run_chunks chunk", ALLOCSET_SMALL_SIZES);
	chunks->started_at = GetCurrentTimestamp();
	MemoryContextSwitchTo(oldcontext);
	return chunks;
}

/* ---------- the batches ---------- */

/* The batch that stands for the whole: TW002 when it was begun with another range or block */
static void
claim_whole(Chunks *chunks)
{
	PsmRun		whole = chunks->run;
	TwOutcome	outcome;
	Jsonb	   *plan;
	MemoryContext oldcontext = MemoryContextSwitchTo(whole.mcxt);

	plan = with_numbers(with_numbers(chunks->params, "chunk_first", chunks->first,
									 "chunk_last", chunks->last),
						"chunk_size", chunks->size, "chunks", chunks->total);
	whole.claim.batch_id = chunks->batch_id;
	whole.claim.fingerprint = tw_history_fingerprint(whole.source, plan);
	whole.source = "BEGIN END";
	whole.length = strlen(whole.source);
	whole.params = chunks->params;
	MemoryContextSwitchTo(oldcontext);
	psm_run_batch(&whole, &outcome);
}

static void
report(const Chunks *chunks, int64 from, int64 to, const TwOutcome *outcome)
{
	double		seconds = Max((GetCurrentTimestamp() - chunks->started_at) / 1e6, 1e-6);
	int64		run = chunks->done - chunks->skipped;
	double		left = run > 0 ? seconds / run * (chunks->total - chunks->done) : 0;

	if (outcome->status == TW_ALREADY_COMMITTED)
		ereport(NOTICE,
				(errmsg("chunk %lld to %lld was committed before: %lld of %lld chunks done",
						(long long) from, (long long) to, (long long) chunks->done,
						(long long) chunks->total)));
	else
		ereport(NOTICE,
				(errmsg("chunk %lld to %lld committed: %lld of %lld chunks done, %lld rows, %.0f rows/s, %.0f s left",
						(long long) from, (long long) to, (long long) chunks->done,
						(long long) chunks->total, (long long) chunks->rows,
						chunks->rows / seconds, left)));
}

typedef struct ChunkPlace
{
	const Chunks *chunks;
	int64		from;
	int64		to;
} ChunkPlace;

/* Which chunk an error is of: the call does not say it, nor does the block's own place */
static void
chunk_error_context(void *arg)
{
	const ChunkPlace *place = arg;

	errcontext("chunk %lld to %lld of batch \"%s\" of job \"%s\"", (long long) place->from,
			   (long long) place->to, tw_excerpt(place->chunks->batch_id),
			   tw_excerpt(place->chunks->run.claim.job));
}

static void
run_chunk(Chunks *chunks, int64 from, int64 to)
{
	PsmRun	   *run = &chunks->run;
	ChunkPlace	place = {chunks, from, to};
	ErrorContextCallback callback = {error_context_stack, chunk_error_context, &place};
	TwOutcome	outcome;
	MemoryContext oldcontext;

	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(run->mcxt);
	oldcontext = MemoryContextSwitchTo(run->mcxt);
	run->params = with_numbers(chunks->params, "chunk_from", from, "chunk_to", to);
	run->claim.batch_id = psprintf("%s/%lld-%lld", chunks->batch_id, (long long) from,
								   (long long) to);
	run->claim.fingerprint = tw_history_fingerprint(run->source, run->params);
	MemoryContextSwitchTo(oldcontext);

	error_context_stack = &callback;
	psm_run_batch(run, &outcome);
	error_context_stack = callback.previous;
	chunks->done++;
	if (outcome.status == TW_ALREADY_COMMITTED)
		chunks->skipped++;
	else
		chunks->rows += outcome.rows;
	report(chunks, from, to, &outcome);
}

/* ---------- SQL ---------- */

/*
 * CALL tw.run_chunks(job, batch_id, block, first, last, chunk_size, params,
 * epoch, conflicts, max_attempts, INOUT chunks, INOUT skipped, INOUT rows)
 */
Datum
tw_run_chunks(PG_FUNCTION_ARGS)
{
	Chunks	   *chunks;
	TupleDesc	tupdesc;
	Datum		values[3];
	bool		nulls[3] = {false};

	psm_run_require_call(fcinfo, "tw.run_chunks");
	chunks = chunks_create(fcinfo);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");

	claim_whole(chunks);
	for (int64 from = chunks->first; chunks->done < chunks->total; from += chunks->size)
	{
		uint64		left = (uint64) chunks->last - (uint64) from;
		int64		to = left < (uint64) chunks->size ? chunks->last : from + chunks->size - 1;

		run_chunk(chunks, from, to);
		if (to == chunks->last)
			break;
	}

	SPI_finish();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "tw.run_chunks must return a row");
	values[0] = Int64GetDatum(chunks->total);
	values[1] = Int64GetDatum(chunks->skipped);
	values[2] = Int64GetDatum(chunks->rows);
	MemoryContextDelete(chunks->mcxt);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}
