/*
 * cache.c
 *		Compiled blocks, kept for the session.
 *
 * A block is found by its text, the search path and the two settings that say
 * what a string is, and by which of its parameters are objects or arrays, since
 * that is part of how it was compiled.  And by the role: who may execute a
 * function is asked when an expression is planned or compiled, not at each use.
 * Plans are kept with it.  The least recently used goes when there are more
 * than transactional_writer.block_cache; one that is being executed is only
 * marked stale and goes when its last execution ends.
 */
#include "psm/psm.h"

#include "catalog/namespace.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "parser/parser.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

typedef struct CacheEntry
{
	uint64		key;
	dlist_head	scripts;		/* PsmScript.chain */
} CacheEntry;

static HTAB *cache = NULL;
static dlist_head recent = DLIST_STATIC_INIT(recent);
static int	ncached = 0;

/* Frees the plans that were replaced; nobody may be executing the script */
static void
free_retired(PsmScript *script)
{
	ListCell   *lc;

	foreach(lc, script->retired)
		SPI_freeplan(lfirst(lc));
	list_free(script->retired);
	script->retired = NIL;
}

/* Frees a script with its plans; nobody may be executing it */
void
psm_script_free(PsmScript *script)
{
	ListCell   *lc;

	foreach(lc, script->exprs)
	{
		PsmExpr    *expr = lfirst(lc);

		if (expr->plan != NULL)
			psm_plan_free(expr->plan);
	}
	free_retired(script);
	MemoryContextDelete(script->mcxt);
}

/* An execution of the script is over */
void
psm_script_unuse(PsmScript *script)
{
	if (--script->in_use > 0)
		return;
	if (script->stale)
		psm_script_free(script);
	else if (script->retired != NIL)
		free_retired(script);
}

static void
cache_drop(PsmScript *script)
{
	CacheEntry *entry = hash_search(cache, &script->cache_key, HASH_FIND, NULL);

	dlist_delete(&script->chain);
	if (dlist_is_empty(&entry->scripts))
		hash_search(cache, &script->cache_key, HASH_REMOVE, NULL);
	dlist_delete(&script->recent);
	ncached--;
	script->stale = true;
	if (script->in_use == 0)
		psm_script_free(script);
}

/*
 * A new script, in the current memory context; nobody else knows of it.
 * Errors: whatever is wrong with it, with its place in source; call it under a
 * context callback that knows what to do with that.
 */
PsmScript *
psm_compile(const char *source, Jsonb *params)
{
	PsmScript  *script = psm_parse(source, CurrentMemoryContext, NULL, NULL, 0);

	psm_hosts_describe(script, params);
	psm_types_resolve(script);
	psm_check(script);
	return script;
}

static PsmScript *
compile_reported(const char *source, Jsonb *params)
{
	PsmSource	place = {source, NULL};
	ErrorContextCallback context;
	PsmScript  *script;

	context.callback = psm_compile_error_callback;
	context.arg = &place;
	context.previous = error_context_stack;
	error_context_stack = &context;
	script = psm_compile(source, params);
	error_context_stack = context.previous;
	return script;
}

/* What the scanner makes of quotes, see scan.c */
static int
scanner_settings(void)
{
	return backslash_quote * 2 + standard_conforming_strings;
}

static uint64
cache_key(const char *source, int length)
{
	return hash_bytes_extended((const unsigned char *) source, length, scanner_settings()) ^
		hash_bytes_extended((const unsigned char *) namespace_search_path,
							strlen(namespace_search_path), 1);
}

/* A compiled script that is still good, or NULL */
static PsmScript *
cache_find(uint64 key, const char *source, List *search_path, Jsonb *params)
{
	CacheEntry *entry = hash_search(cache, &key, HASH_FIND, NULL);
	dlist_iter	iter;

	if (entry == NULL)
		return NULL;
	dlist_foreach(iter, &entry->scripts)
	{
		PsmScript  *script = dlist_container(PsmScript, chain, iter.cur);

		if (strcmp(script->source, source) == 0 &&
			equal(script->search_path, search_path) &&
			script->scanner_settings == scanner_settings() &&
			script->role == GetUserId() &&
			psm_hosts_match(script, params))
		{
			if (psm_types_current(script))
				return script;
			cache_drop(script);
			return NULL;
		}
	}
	return NULL;
}

static void
cache_insert(PsmScript *script)
{
	CacheEntry *entry;
	bool		found;

	while (ncached >= tw_block_cache)
		cache_drop(dlist_container(PsmScript, recent, dlist_tail_node(&recent)));
	entry = hash_search(cache, &script->cache_key, HASH_ENTER, &found);
	if (!found)
		dlist_init(&entry->scripts);
	dlist_push_head(&entry->scripts, &script->chain);
	dlist_push_head(&recent, &script->recent);
	ncached++;
}

/*
 * The compiled form of a block, to be executed at once by psm_exec_create().
 * Errors: whatever is wrong with it, with its place.  Nothing has run then.
 */
PsmScript *
psm_cache_get(const char *source, int length, Jsonb *params)
{
	uint64		key = cache_key(source, length);
	List	   *search_path = fetch_search_path(true);
	PsmScript  *script;
	MemoryContext oldcontext;

	if (cache == NULL)
	{
		HASHCTL		ctl = {0};

		ctl.keysize = sizeof(uint64);
		ctl.entrysize = sizeof(CacheEntry);
		cache = hash_create("psm blocks", 64, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	script = cache_find(key, source, search_path, params);
	if (script != NULL)
	{
		list_free(search_path);
		dlist_move_head(&recent, &script->recent);
		return script;
	}

	script = compile_reported(source, params);
	oldcontext = MemoryContextSwitchTo(script->mcxt);
	script->search_path = list_copy(search_path);
	MemoryContextSwitchTo(oldcontext);
	list_free(search_path);
	script->scanner_settings = scanner_settings();
	script->role = GetUserId();
	script->cache_key = key;
	MemoryContextSetParent(script->mcxt, CacheMemoryContext);
	if (tw_block_cache > 0)
		cache_insert(script);
	else
		script->stale = true;	/* goes with its execution */
	return script;
}
