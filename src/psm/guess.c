/*
 * guess.c
 *		What was probably meant: the nearest known name to one that is unknown.
 *
 * The parser asks for names it looks up itself.  Names in SQL are looked up by
 * PostgreSQL, which reports an unknown one as a column that does not exist;
 * psm_guess_column() then looks among variables, columns of rows and
 * parameters.  It runs while the error is being reported, so it must not fail.
 */
#include "psm/psm.h"

#include "mb/pg_wchar.h"
#include "parser/scansup.h"
#include "utils/varlena.h"

/* How far a name may be from what is written to be proposed */
#define MAX_NAME_DISTANCE 3

void
psm_guess_init(PsmGuess *guess, const char *wanted)
{
	guess->wanted = wanted;
	guess->best = NULL;
	guess->form = NULL;
	guess->qualifier = NULL;

	/* half of a short name is another name */
	guess->distance = Min(MAX_NAME_DISTANCE, (int) strlen(wanted) / 2) + 1;
}

/* True when this name is nearer than those tried before */
bool
psm_guess_try(PsmGuess *guess, const char *name)
{
	int			distance;

	if (name == NULL || strlen(guess->wanted) > NAMEDATALEN || strlen(name) > NAMEDATALEN)
		return false;
	distance = varstr_levenshtein_less_equal(guess->wanted, strlen(guess->wanted),
											 name, strlen(name), 1, 1, 1,
											 guess->distance, true);
	if (distance >= guess->distance)
		return false;
	guess->distance = distance;
	guess->best = name;
	return true;
}

/* The hint for the best guess, or what to say without one (may be NULL) */
const char *
psm_guess_hint(const PsmGuess *guess, const char *otherwise)
{
	if (guess->best == NULL)
		return otherwise;
	if (otherwise == NULL)
		return psprintf("Perhaps you meant \"%s\".", guess->best);
	return psprintf("Perhaps you meant \"%s\". %s", guess->best, otherwise);
}

/* ---------- names in SQL ---------- */

/* Reads the name at *at, folded or unquoted, and moves behind it; NULL: there is none */
static char *
read_name(const char **at)
{
	const char *from = *at;
	const char *to = from;

	if (*from == '"')
	{
		char	   *name = palloc(strlen(from));
		char	   *out = name;

		for (to = from + 1; *to != '\0'; to++)
		{
			if (*to == '"' && *++to != '"')
				break;
			*out++ = *to;
		}
		*out = '\0';
		*at = to;
		return name;
	}
	while (IS_HIGHBIT_SET(*to) || isalpha((unsigned char) *to) || *to == '_' ||
		   (to > from && (isdigit((unsigned char) *to) || *to == '$')))
		to++;
	if (to == from)
		return NULL;
	*at = to;
	return downcase_truncate_identifier(from, to - from, false);
}

static void
try_named(PsmGuess *guess, const char *name, const char *form, const char *qualifier)
{
	if (psm_guess_try(guess, name))
	{
		guess->form = form;
		guess->qualifier = qualifier;
	}
}

/* Tries the columns of a row variable */
void
psm_guess_fields(PsmGuess *guess, const PsmVar *var)
{
	if (var->kind != PSM_VAR_ROW || var->tupdesc == NULL)
		return;
	for (int i = 0; i < var->tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(var->tupdesc, i);

		if (!att->attisdropped)
			try_named(guess, NameStr(att->attname), "column", var->name);
	}
}

static void
try_scope(PsmGuess *guess, const PsmExpr *expr, const PsmScope *scope, const char *qualifier)
{
	ListCell   *lc;

	foreach(lc, scope->vars)
	{
		PsmVar	   *var = lfirst(lc);

		/* a name with a blank in it is one of ours (CASE's operand) */
		if (var->number >= expr->nvisible || (var->name != NULL && strchr(var->name, ' ')))
			continue;
		try_named(guess, var->name, "variable", qualifier);
		if (qualifier == NULL && var->for_row)
			psm_guess_fields(guess, var);
	}
}

static void
try_parameters(PsmGuess *guess, Jsonb *params)
{
	JsonbIterator *it;
	JsonbValue	v;
	JsonbIteratorToken tok;

	if (params == NULL)
		return;
	it = JsonbIteratorInit(&params->root);
	while ((tok = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		if (tok == WJB_KEY && v.val.string.len <= NAMEDATALEN)
			try_named(guess, pnstrdup(v.val.string.val, v.val.string.len), "parameter", NULL);
	}
}

/*
 * The hint for an unknown name in a piece of SQL, which stands at a byte offset
 * of the script; NULL when nothing known is near.
 */
const char *
psm_guess_column(PsmExec *ex, const PsmExpr *expr, int offset)
{
	const char *at = ex->script->source + offset;
	char	   *name = read_name(&at);
	char	   *second = NULL;
	PsmGuess	guess;

	if (name == NULL)
		return NULL;
	if (*at == '.')
	{
		at++;
		second = read_name(&at);
		if (second == NULL)
			return NULL;
	}

	psm_guess_init(&guess, second ? second : name);
	for (PsmScope *scope = expr->scope; scope != NULL; scope = scope->parent)
	{
		ListCell   *lc;

		if (second == NULL)
			try_scope(&guess, expr, scope, NULL);
		else if (scope->label != NULL && strcmp(scope->label, name) == 0)
			try_scope(&guess, expr, scope, scope->label);
		foreach(lc, second ? scope->vars : NIL)
		{
			PsmVar	   *var = lfirst(lc);

			if (var->number < expr->nvisible && var->name != NULL && strcmp(var->name, name) == 0)
				psm_guess_fields(&guess, var);
		}
	}
	if (second == NULL)
		try_parameters(&guess, ex->given);

	if (guess.best == NULL)
		return NULL;
	return psprintf("Perhaps you meant the %s \"%s%s%s%s\".", guess.form,
					strcmp(guess.form, "parameter") == 0 ? ":" : "",
					guess.qualifier ? guess.qualifier : "", guess.qualifier ? "." : "",
					guess.best);
}
