/*
 * evalstate.c
 *		What the evaluation of expressions keeps for the length of a transaction.
 *
 * Expressions that need no query are evaluated without SPI, as plpgsql does:
 * one EState a transaction holds their compiled states, one resource owner
 * holds the references to their plans, and each execution has an ExprContext
 * of its own.  An ExprContext belongs to the subtransaction it was made in and
 * is freed with it, whichever way that ends.
 *
 * Lifetimes: all of it hangs on TopTransactionContext and
 * TopTransactionResourceOwner.  After an abort PostgreSQL has freed everything
 * already and only the pointers are dropped; xact.c calls in.
 */
#include "psm/psm.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/resowner.h"

/* An ExprContext and the subtransaction that it dies with */
typedef struct EvalContext
{
	ExprContext *econtext;
	SubTransactionId subid;
	struct EvalContext *next;
} EvalContext;

static EState *eval_estate = NULL;
static ResourceOwner eval_owner = NULL;
static EvalContext *eval_contexts = NULL;

EState *
psm_eval_estate(void)
{
	if (eval_estate == NULL)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(TopTransactionContext);

		eval_estate = CreateExecutorState();
		MemoryContextSwitchTo(oldcontext);
	}
	return eval_estate;
}

ResourceOwner
psm_eval_owner(void)
{
	if (eval_owner == NULL)
		eval_owner = ResourceOwnerCreate(TopTransactionResourceOwner, "psm expressions");
	return eval_owner;
}

ExprContext *
psm_econtext_push(void)
{
	EvalContext *entry = MemoryContextAlloc(TopTransactionContext, sizeof(EvalContext));

	entry->econtext = CreateExprContext(psm_eval_estate());
	entry->subid = GetCurrentSubTransactionId();
	entry->next = eval_contexts;
	eval_contexts = entry;
	return entry->econtext;
}

void
psm_econtext_pop(ExprContext *econtext)
{
	EvalContext *entry = eval_contexts;

	if (entry == NULL || entry->econtext != econtext)
		return;					/* went with its subtransaction already */
	eval_contexts = entry->next;
	pfree(entry);
	FreeExprContext(econtext, true);
}

void
psm_subxact_end(SubTransactionId subid, bool committed)
{
	while (eval_contexts != NULL && eval_contexts->subid == subid)
	{
		EvalContext *entry = eval_contexts;

		eval_contexts = entry->next;
		FreeExprContext(entry->econtext, committed);
		pfree(entry);
	}
}

void
psm_xact_end(bool committed)
{
	if (committed)
	{
		if (eval_estate != NULL)
			FreeExecutorState(eval_estate);
		if (eval_owner != NULL)
			tw_release_plan_refs(eval_owner);
	}
	eval_estate = NULL;
	eval_owner = NULL;
	eval_contexts = NULL;
}
