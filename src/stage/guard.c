/*
 * guard.c
 *		Guards: what a batch was computed from must still be so when it is published.
 *
 * A guard is a query.  tw.open_batch keeps a digest of its result, tw.publish
 * evaluates it again, as tracked reads.  No lock is held in between, however long
 * the tasks run.
 *
 * The digest is the number of rows and the sum of the rows' SHA-256 (its first
 * two words), so the order of the rows does not matter.  A value counts with the
 * bytes that are stored for it, which no setting of the session changes.
 */
#include "stage/stage.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#define GUARD_FETCH 1000

/* The rows so far; all of it is ours while the digest is computed */
typedef struct Digest
{
	uint64		rows;
	uint64		sum[2];
} Digest;

static void
add_bytes(pg_cryptohash_ctx *ctx, const void *bytes, size_t length)
{
	if (pg_cryptohash_update(ctx, (const uint8 *) bytes, length) < 0)
		elog(ERROR, "could not compute a digest");
}

static void add_value(pg_cryptohash_ctx *ctx, Datum value, bool isnull, Oid type, int16 typlen,
					  bool typbyval);

/*
 * A row without a type of its own is stored with a number that is the session's, so its
 * columns count instead
 */
static void
add_record(pg_cryptohash_ctx *ctx, Datum value)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(value);
	TupleDesc	tupdesc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header),
												 HeapTupleHeaderGetTypMod(header));
	HeapTupleData tuple;

	check_stack_depth();
	tuple.t_len = HeapTupleHeaderGetDatumLength(header);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = header;
	add_bytes(ctx, &tupdesc->natts, sizeof(tupdesc->natts));
	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(tupdesc, i);
		bool		isnull;
		Datum		column = heap_getattr(&tuple, i + 1, tupdesc, &isnull);

		add_value(ctx, column, isnull, attr->atttypid, attr->attlen, attr->attbyval);
	}
	ReleaseTupleDesc(tupdesc);
}

/* The same for each of an array of such rows */
static void
add_records(pg_cryptohash_ctx *ctx, Datum value)
{
	ArrayType  *array = DatumGetArrayTypeP(value);
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	add_bytes(ctx, ARR_DIMS(array), sizeof(int) * ARR_NDIM(array));
	deconstruct_array(array, RECORDOID, -1, false, TYPALIGN_DOUBLE, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
		add_value(ctx, elements[i], nulls[i], RECORDOID, -1, false);
}

static void
add_value(pg_cryptohash_ctx *ctx, Datum value, bool isnull, Oid type, int16 typlen, bool typbyval)
{
	uint64		length;

	add_bytes(ctx, &isnull, sizeof(bool));
	if (isnull)
		return;
	if (type == RECORDOID)
		add_record(ctx, value);
	else if (type == RECORDARRAYOID)
		add_records(ctx, value);
	else if (typbyval)
		add_bytes(ctx, &value, sizeof(Datum));
	else if (typlen == -1)
	{
		struct varlena *bytes = pg_detoast_datum_packed((struct varlena *) DatumGetPointer(value));

		length = VARSIZE_ANY_EXHDR(bytes);
		add_bytes(ctx, &length, sizeof(length));
		add_bytes(ctx, VARDATA_ANY(bytes), length);
		if (bytes != (struct varlena *) DatumGetPointer(value))
			pfree(bytes);
	}
	else
	{
		length = typlen == -2 ? strlen(DatumGetCString(value)) + 1 : typlen;
		add_bytes(ctx, DatumGetPointer(value), length);
	}
}

static void
add_row(Digest *digest, HeapTuple tuple, TupleDesc tupdesc)
{
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);
	uint8		hash[PG_SHA256_DIGEST_LENGTH];
	uint64		words[2];

	if (ctx == NULL || pg_cryptohash_init(ctx) < 0)
		elog(ERROR, "could not compute a digest");
	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(tupdesc, i);
		bool		isnull;
		Datum		value = heap_getattr(tuple, i + 1, tupdesc, &isnull);

		add_value(ctx, value, isnull, attr->atttypid, attr->attlen, attr->attbyval);
	}
	if (pg_cryptohash_final(ctx, hash, sizeof(hash)) < 0)
		elog(ERROR, "could not compute a digest");
	pg_cryptohash_free(ctx);
	memcpy(words, hash, sizeof(words));
	digest->rows++;
	digest->sum[0] += words[0];
	digest->sum[1] += words[1];
}

static void
guard_callback(void *arg)
{
	errcontext("guard %d", *(int *) arg);
}

static void
add_all_rows(Digest *digest, const char *query, int number)
{
	SPIPlanPtr	plan;
	Portal		portal;
	ErrorContextCallback callback = {error_context_stack, guard_callback, &number};

	error_context_stack = &callback;
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	plan = SPI_prepare(query, 0, NULL);
	if (plan == NULL || !SPI_is_cursor_plan(plan))
	{
		error_context_stack = callback.previous;
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("guard %d is not a query", number),
				 errdetail("It is \"%s\".", tw_excerpt(query))));
	}
	portal = SPI_cursor_open(NULL, plan, NULL, NULL, false);
	do
	{
		SPI_cursor_fetch(portal, true, GUARD_FETCH);
		for (uint64 i = 0; i < SPI_processed; i++)
			add_row(digest, SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
		SPI_freetuptable(SPI_tuptable);
	} while (SPI_processed > 0);
	SPI_cursor_close(portal);
	SPI_finish();
	error_context_stack = callback.previous;
}

char *
stage_guard_digest(const char *query, int number)
{
	Digest		digest = {0};
	bool		save_read_only = XactReadOnly;

	/* a guard looks; an error resets this with the transaction */
	XactReadOnly = true;
	PG_TRY();
	{
		add_all_rows(&digest, query, number);
	}
	PG_FINALLY();
	{
		XactReadOnly = save_read_only;
	}
	PG_END_TRY();
	return psprintf("%llu:%016llx%016llx", (unsigned long long) digest.rows,
					(unsigned long long) digest.sum[0], (unsigned long long) digest.sum[1]);
}

static void
check(const StageBatch *batch)
{
	ListCell   *lc;
	ListCell   *lc2;

	forboth(lc, batch->guards, lc2, batch->digests)
	{
		char	   *query = (char *) lfirst(lc);
		int			number = foreach_current_index(lc) + 1;
		char	   *digest = stage_guard_digest(query, number);

		if (strcmp(digest, (char *) lfirst(lc2)) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("data that batch \"%s\" of job \"%s\" was computed from have changed",
							batch->batch_id, batch->job),
					 errdetail("Guard %d gives another result than when the batch was opened: %s",
							   number, tw_excerpt(query)),
					 errhint("Abort the batch with tw.abort_batch, and run it again on the data as they are now.")));
	}
}

/*
 * What the guards read must hold until the commit, which the tracking of reads
 * sees to.  What publish itself reads need not be tracked.
 */
void
stage_guards_check(const StageBatch *batch)
{
	TwTrackMode before;

	if (batch->guards == NIL)
		return;
	before = tw_track_switch(TW_TRACK_PREDICATE);
	PG_TRY();
	{
		check(batch);
	}
	PG_FINALLY();
	{
		(void) tw_track_switch(before);
	}
	PG_END_TRY();
}
