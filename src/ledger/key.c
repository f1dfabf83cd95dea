/*
 * key.c
 *		What names a job or a batch: the limits, the keys of our tables, the lock tag; and
 *		where the ledger may be written.
 */
#include "tw.h"

#include "common/hashfn.h"
#include "engine/citus.h"
#include "miscadmin.h"
#include "utils/builtins.h"

/* ---------- what may be asked for ---------- */

/* What writes to the ledger may not do so everywhere; command is for the message */
void
tw_batch_check_writable(const char *command)
{
	PreventCommandIfReadOnly(command);
	PreventCommandIfParallelMode(command);
	PreventCommandDuringRecovery(command);
	tw_citus_check_node(command);
}

void
tw_batch_check_length(const char *what, const char *value, int limit)
{
	size_t		length = strlen(value);

	if (length < 1 || length > limit)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s of %zu bytes is out of range", what, length),
				 errdetail("It must have 1 to %d bytes.", limit)));
}

void
tw_job_check_name(const char *job)
{
	tw_batch_check_length("job", job, TW_JOB_MAX_BYTES);
}

bool
tw_batch_requested(const char *job, const char *batch_id)
{
	if ((job == NULL) != (batch_id == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job and batch_id must be given together"),
				 job == NULL ? errdetail("There is a batch_id but no job.") :
				 errdetail("There is a job but no batch_id.")));
	if (job == NULL)
		return false;
	tw_job_check_name(job);
	tw_batch_check_length("batch_id", batch_id, TW_BATCH_ID_MAX_BYTES);
	return true;
}

/* ---------- keys ---------- */

void
tw_batch_keys(const char *job, const char *batch_id, Datum *keys)
{
	keys[0] = CStringGetTextDatum(job);
	keys[1] = CStringGetTextDatum(batch_id);
}

/* An object lock on a batch: job and batch_id hashed, in the class of one of our tables */
void
tw_batch_tag(LOCKTAG *tag, TwTable table, const char *job, const char *batch_id)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, tw_table_oid(table),
					   hash_combine(hash_bytes((const unsigned char *) job, strlen(job)),
									hash_bytes((const unsigned char *) batch_id, strlen(batch_id))),
					   0);
}
