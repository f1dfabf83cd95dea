/*
 * history.c
 *		What the ledger says of a batch, in the forms that SQL sees: the
 *		operations, the outcome, the fingerprint.
 *
 * Nothing here reads or writes a table.
 */
#include "tw.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "funcapi.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/syscache.h"
#include "utils/typcache.h"
#include "utils/xid8.h"

/* Columns of type tw.outcome, from 0, as the install script has them */
enum
{
	OUT_STATUS, OUT_JOB, OUT_BATCH_ID, OUT_EPOCH, OUT_RESULT, OUT_ROWS, OUT_OPERATIONS,
	OUT_ATTEMPTS, OUT_XID, OUT_STARTED_AT, OUT_FINISHED_AT, OUT_NATTS
};

static void push_string(JsonbParseState **state, JsonbIteratorToken token, const char *s);
static TupleDesc outcome_tupdesc(void);

/* ---------- operations ---------- */

static void
push_string(JsonbParseState **state, JsonbIteratorToken token, const char *s)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = unconstify(char *, s);
	value.val.string.len = strlen(s);
	pushJsonbValue(state, token, &value);
}

void
tw_history_push_number(JsonbParseState **state, const char *key, int64 number)
{
	JsonbValue	value;

	push_string(state, WJB_KEY, key);
	value.type = jbvNumeric;
	value.val.numeric = int64_to_numeric(number);
	pushJsonbValue(state, WJB_VALUE, &value);
}

Jsonb *
tw_history_operations(const TwOperation *ops, int nops)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < nops; i++)
	{
		char	   *name = OidIsValid(ops[i].relation) ? get_rel_name(ops[i].relation) : NULL;

		pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
		tw_history_push_number(&state, "line", ops[i].line);
		push_string(&state, WJB_KEY, "command");
		push_string(&state, WJB_VALUE, ops[i].command);
		if (name != NULL)		/* it may have been dropped since */
		{
			Oid			namespace = get_rel_namespace(ops[i].relation);

			push_string(&state, WJB_KEY, "table");
			push_string(&state, WJB_VALUE,
						quote_qualified_identifier(get_namespace_name_or_temp(namespace), name));
		}
		tw_history_push_number(&state, "rows", ops[i].rows);
		tw_history_push_number(&state, "executions", ops[i].executions);
		pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

/* ---------- the outcome ---------- */

const char *
tw_history_status(TwStatus status)
{
	switch (status)
	{
		case TW_APPLIED:
			return "applied";
		case TW_COMMITTED:
			return "committed";
		case TW_STARTED:
			return "started";
		case TW_ALREADY_COMMITTED:
			return "already_committed";
		case TW_DRY_RUN:
			return "dry_run";
	}
	elog(ERROR, "unknown status %d", (int) status);
	return NULL;
}

/* The type's columns, from the type cache; to be released */
static TupleDesc
outcome_tupdesc(void)
{
	Oid			namespace = get_namespace_oid("tw", true);
	Oid			type = InvalidOid;
	TupleDesc	tupdesc;

	if (OidIsValid(namespace))
		type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("outcome"),
							   ObjectIdGetDatum(namespace));
	if (!OidIsValid(type))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("type \"tw.outcome\" does not exist"),
				 errhint("Run CREATE EXTENSION transactional_writer in this database.")));

	tupdesc = lookup_rowtype_tupdesc(type, -1);
	if (tupdesc->natts != OUT_NATTS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("type \"tw.outcome\" is not what this version of transactional_writer expects"),
				 errhint("Run ALTER EXTENSION transactional_writer UPDATE.")));
	return tupdesc;
}

Datum
tw_history_outcome_datum(const TwOutcome *outcome)
{
	TupleDesc	tupdesc = outcome_tupdesc();
	Datum		values[OUT_NATTS] = {0};
	bool		nulls[OUT_NATTS] = {false};
	HeapTuple	tuple;

	values[OUT_STATUS] = CStringGetTextDatum(tw_history_status(outcome->status));
	nulls[OUT_JOB] = outcome->job == NULL;
	if (outcome->job != NULL)
		values[OUT_JOB] = CStringGetTextDatum(outcome->job);
	nulls[OUT_BATCH_ID] = outcome->batch_id == NULL;
	if (outcome->batch_id != NULL)
		values[OUT_BATCH_ID] = CStringGetTextDatum(outcome->batch_id);
	nulls[OUT_EPOCH] = !outcome->has_epoch;
	values[OUT_EPOCH] = Int64GetDatum(outcome->epoch);
	nulls[OUT_RESULT] = outcome->result == NULL;
	values[OUT_RESULT] = PointerGetDatum(outcome->result);
	nulls[OUT_ROWS] = !outcome->has_rows;
	values[OUT_ROWS] = Int64GetDatum(outcome->rows);
	nulls[OUT_OPERATIONS] = outcome->operations == NULL;
	values[OUT_OPERATIONS] = PointerGetDatum(outcome->operations);
	values[OUT_ATTEMPTS] = Int32GetDatum(outcome->attempts);
	nulls[OUT_XID] = !FullTransactionIdIsValid(outcome->xid);
	values[OUT_XID] = FullTransactionIdGetDatum(outcome->xid);
	nulls[OUT_STARTED_AT] = outcome->started_at == 0;
	values[OUT_STARTED_AT] = TimestampTzGetDatum(outcome->started_at);
	nulls[OUT_FINISHED_AT] = outcome->finished_at == 0;
	values[OUT_FINISHED_AT] = TimestampTzGetDatum(outcome->finished_at);

	tuple = heap_form_tuple(tupdesc, values, nulls);
	ReleaseTupleDesc(tupdesc);
	return HeapTupleGetDatum(tuple);
}

/* ---------- the fingerprint ---------- */

/*
 * SHA-256 over the block's text, a zero byte, and the parameters as jsonb writes
 * them.  A text holds no zero byte, so no block and parameters can be mistaken
 * for others.  White space around the block does not count: shells and psql's
 * backquotes drop a file's last newline, other clients keep it.
 */
char *
tw_history_fingerprint(const char *block, Jsonb *params)
{
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);
	char	   *json = params == NULL ? "{}" :
		JsonbToCString(NULL, &params->root, VARSIZE(params));
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char	   *hex = palloc(PG_SHA256_DIGEST_LENGTH * 2 + 1);
	size_t		length;

	while (scanner_isspace(*block))
		block++;
	length = strlen(block);
	while (length > 0 && scanner_isspace(block[length - 1]))
		length--;

	if (ctx == NULL ||
		pg_cryptohash_init(ctx) < 0 ||
		pg_cryptohash_update(ctx, (const uint8 *) block, length) < 0 ||
		pg_cryptohash_update(ctx, (const uint8 *) "", 1) < 0 ||
		pg_cryptohash_update(ctx, (const uint8 *) json, strlen(json)) < 0 ||
		pg_cryptohash_final(ctx, digest, sizeof(digest)) < 0)
	{
		pg_cryptohash_free(ctx);
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not compute a fingerprint")));
	}
	pg_cryptohash_free(ctx);
	hex[hex_encode((const char *) digest, sizeof(digest), hex)] = '\0';
	return hex;
}
