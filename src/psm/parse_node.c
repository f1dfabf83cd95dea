/*
 * parse_node.c
 *		What the parser makes: statements and variables, which get their numbers,
 *		and the scopes and labels around the place it is at.
 */
#include "psm/parse.h"

/* ---------- statements and variables ---------- */

/*
 * Makes the node of a statement and numbers it.
 */
void *
psm_new_stmt(PsmParser *p, Size size, PsmStmtKind kind, const PsmToken *first)
{
	PsmScript  *script = p->script;
	PsmStmt    *stmt;

	if (script->nstmts >= p->max_stmts)
	{
		p->max_stmts *= 2;
		script->stmts = repalloc_huge(script->stmts, p->max_stmts * sizeof(PsmStmt *));
	}
	stmt = palloc0(size);
	stmt->kind = kind;
	stmt->number = script->nstmts;
	stmt->pos = psm_token_pos(first);
	script->stmts[script->nstmts++] = stmt;
	return stmt;
}

/*
 * Declares a variable.  A name stands once in a scope.
 */
PsmVar *
psm_add_var(PsmParser *p, PsmScope *scope, const char *name, PsmPos pos)
{
	PsmScript  *script = p->script;
	PsmVar	   *var;

	if (script->nvars >= p->max_vars)
	{
		p->max_vars *= 2;
		script->vars = repalloc_huge(script->vars, p->max_vars * sizeof(PsmVar *));
	}

	var = palloc0(sizeof(PsmVar));
	var->kind = PSM_VAR_SCALAR;
	var->number = script->nvars;
	var->name = name ? pstrdup(name) : NULL;
	var->scope = scope;
	var->pos = pos;
	var->typmod = -1;
	script->vars[script->nvars++] = var;
	scope->vars = lappend(scope->vars, var);
	return var;
}

/* ---------- scopes and labels ---------- */

PsmScope *
psm_push_scope(PsmParser *p, const char *label)
{
	PsmScope   *scope = palloc0(sizeof(PsmScope));

	scope->parent = p->scope;
	if (label != NULL)
		scope->label = pstrdup(label);
	p->scope = scope;
	return scope;
}

void
psm_pop_scope(PsmParser *p)
{
	p->scope = p->scope->parent;
}

/*
 * Enters a labelled block or loop; token NULL when it has no label.  The caller
 * keeps the label and takes it off the chain again.
 */
void
psm_push_label(PsmParser *p, PsmLabel *label, const PsmToken *token, PsmScope *scope, bool loop)
{
	if (token == NULL)
		return;
	for (PsmLabel *outer = p->labels; outer != NULL; outer = outer->outer)
	{
		if (strcmp(outer->name, token->text) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("label \"%s\" is already the label of an enclosing %s", token->text,
							outer->loop ? "loop" : "block"),
					 errdetail("The enclosing one is on line %d.", outer->line),
					 token_errposition(p, token)));
	}
	label->name = scope->label;
	label->scope = scope;
	label->loop = loop;
	label->line = token->line;
	label->outer = p->labels;
	p->labels = label;
}
