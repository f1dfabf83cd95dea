/*
 * failure.c
 *		Writes what a retrying caller gave up on, or had to try again, into
 *		tw.failure.
 *
 * The failed transaction is gone by then, and often the job's row with it, so a
 * failure stands for itself: it keeps the role that had it, and has no key.
 * Names that are too long for a job or a batch are the error that is recorded,
 * and are themselves left out; so are those of a job that is not the role's, whose
 * owner would see them among his own.
 */
#include "tw.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

static bool is_foreign(const char *job);

/* Is it the job of a role that the current one is no member of? */
static bool
is_foreign(const char *job)
{
	TwJob		row;

	return tw_job_find(job, &row) && !has_privs_of_role(GetUserId(), row.owner);
}

void
tw_failure_record(const char *job, const char *batch_id, int attempt,
				  const ErrorData *error, int line)
{
	Datum		values[TW_FAILURE_NATTS] = {0};
	bool		nulls[TW_FAILURE_NATTS] = {false};
	const char *kind = tw_conflict_last_kind();

	if (job != NULL && strlen(job) > TW_JOB_MAX_BYTES)
		job = NULL;
	if (batch_id != NULL && strlen(batch_id) > TW_BATCH_ID_MAX_BYTES)
		batch_id = NULL;
	if (job != NULL && is_foreign(job))
		job = batch_id = NULL;

	nulls[TW_FAILURE_JOB] = job == NULL;
	if (job != NULL)
		values[TW_FAILURE_JOB] = CStringGetTextDatum(job);
	nulls[TW_FAILURE_BATCH_ID] = batch_id == NULL;
	if (batch_id != NULL)
		values[TW_FAILURE_BATCH_ID] = CStringGetTextDatum(batch_id);
	values[TW_FAILURE_ATTEMPT] = Int32GetDatum(attempt);
	values[TW_FAILURE_SQLSTATE] = CStringGetTextDatum(unpack_sql_state(error->sqlerrcode));
	nulls[TW_FAILURE_MESSAGE] = error->message == NULL;
	if (error->message != NULL)
		values[TW_FAILURE_MESSAGE] = CStringGetTextDatum(error->message);
	nulls[TW_FAILURE_LINE] = line <= 0;
	values[TW_FAILURE_LINE] = Int32GetDatum(line);
	values[TW_FAILURE_AT] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[TW_FAILURE_ROLE] = ObjectIdGetDatum(GetUserId());

	/* what a conflict was on, when it was found by the conflict checks */
	if (error->sqlerrcode != ERRCODE_T_R_SERIALIZATION_FAILURE || error->schema_name == NULL ||
		error->table_name == NULL)
		kind = NULL;
	nulls[TW_FAILURE_RELATION] = nulls[TW_FAILURE_KIND] = kind == NULL;
	if (kind != NULL)
	{
		values[TW_FAILURE_RELATION] = CStringGetTextDatum(psprintf("%s.%s", error->schema_name,
																   error->table_name));
		values[TW_FAILURE_KIND] = CStringGetTextDatum(kind);
	}

	tw_table_insert(TW_TABLE_FAILURE, values, nulls);
}
