/*
 * handler.c
 *		LANGUAGE psm: the functions that PostgreSQL calls: call handler, inline
 *		handler (DO) and validator.
 */
#include "psm/psm.h"

#include "commands/event_trigger.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(psm_call_handler);
PG_FUNCTION_INFO_V1(psm_inline_handler);
PG_FUNCTION_INFO_V1(psm_validator);

Datum
psm_call_handler(PG_FUNCTION_ARGS)
{
	if (CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("event triggers cannot be written in psm")));
	return psm_function_call(fcinfo, psm_function_get(fcinfo));
}

/* DO LANGUAGE psm: a block without parameters, whose result is dropped */
Datum
psm_inline_handler(PG_FUNCTION_ARGS)
{
	InlineCodeBlock *code = (InlineCodeBlock *) PG_GETARG_POINTER(0);
	Jsonb	   *params = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	TwOutcome	outcome = {0};

	psm_block_run(code->source_text, strlen(code->source_text), params, PSM_LEAVE_DEFERRED,
				  &outcome);
	PG_RETURN_VOID();
}

Datum
psm_validator(PG_FUNCTION_ARGS)
{
	Oid			funcid = PG_GETARG_OID(0);

	if (CheckFunctionValidatorAccess(fcinfo->flinfo->fn_oid, funcid))
		psm_function_validate(funcid);
	PG_RETURN_VOID();
}
