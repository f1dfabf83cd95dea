/*
 * names.c
 *		Relations by their names, looked up once and remembered until names may have
 *		changed.
 *
 * A generation counts the changes of any relation or schema that this session has heard of.
 * What was found under an older one is looked up again, and so is what was not found: the
 * catalogs of extensions that are not installed are asked for at every statement.
 */
#include "tw.h"

#include "catalog/namespace.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static uint64 generation = 0;	/* 0: nobody has asked for it */

static void
names_changed(Datum arg, int cacheid, uint32 hash)
{
	generation++;
}

uint64
tw_names_generation(void)
{
	if (generation == 0)
	{
		CacheRegisterSyscacheCallback(RELOID, names_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, names_changed, (Datum) 0);
		generation = 1;
	}
	return generation;
}

Oid
tw_name_lookup(const char *schema, const char *name, TwName *found)
{
	uint64		now = tw_names_generation();
	Oid			namespace;

	if (found->generation != now)
	{
		namespace = get_namespace_oid(schema, true);
		found->oid = OidIsValid(namespace) ? get_relname_relid(name, namespace) : InvalidOid;
		/* a change that was heard of meanwhile counts as one that comes later */
		found->generation = now;
	}
	return found->oid;
}
