/*
 * condition.c
 *		What scans look for, in mode "predicate" and for tw.watch.
 *
 * A scan becomes a condition when it is about to return its first row, and again
 * after each rescan that gave it other keys.  With an index it is a probe: the
 * index and its keys, by which the check will look again; without one the
 * relation and the part of the filter that a row alone decides.
 *
 * A condition that an older one implies is not remembered: what has not changed
 * since the older snapshot has not changed since the newer one.  Very many
 * conditions on a relation are replaced by one on the whole relation.
 */
#include "conflict/conflict.h"

#include "access/genam.h"
#include "access/transam.h"
#include "catalog/pg_am.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Scans without index that are remembered one by one for a relation */
#define MAX_SCANS 100

/* A probe takes about as much memory as this many rows, and counts as such */
#define ROWS_PER_PROBE 16

static uint32 hash_probe(const TwCondition *probe);
static bool same_probe(const TwCondition *a, const TwCondition *b);

#define SH_PREFIX tw_probe
#define SH_ELEMENT_TYPE ProbeEntry
#define SH_KEY_TYPE TwCondition *
#define SH_KEY condition
#define SH_HASH_KEY(table, key) ((key)->hash)
#define SH_EQUAL(table, a, b) same_probe(a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) ((entry)->hash)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
typedef struct ProbeEntry
{
	TwCondition *condition;
	uint32		hash;
	char		status;
} ProbeEntry;
#include "lib/simplehash.h"

/* ---------- index keys ---------- */

static void
key_type(const ScanKeyData *key, int16 *typlen, bool *typbyval)
{
	/* looked up last; no type that a user could drop */
	static Oid	last = InvalidOid;
	static int16 last_typlen;
	static bool last_typbyval;

	if ((key->sk_flags & SK_SEARCHARRAY) || !OidIsValid(key->sk_subtype))
	{
		*typlen = -1;
		*typbyval = false;
	}
	else if (key->sk_subtype == last)
	{
		*typlen = last_typlen;
		*typbyval = last_typbyval;
	}
	else
	{
		get_typlenbyval(key->sk_subtype, typlen, typbyval);
		if (key->sk_subtype < FirstNormalObjectId)
		{
			last = key->sk_subtype;
			last_typlen = *typlen;
			last_typbyval = *typbyval;
		}
	}
}

static bool
key_has_value(const ScanKeyData *key)
{
	return !(key->sk_flags & (SK_ISNULL | SK_SEARCHNULL | SK_SEARCHNOTNULL));
}

static void
copy_key(ScanKey to, const ScanKeyData *from)
{
	*to = *from;
	if (from->sk_flags & SK_ROW_HEADER)
	{
		ScanKey		part = (ScanKey) DatumGetPointer(from->sk_argument);
		int			n = 1;
		ScanKey		parts;

		while (!(part[n - 1].sk_flags & SK_ROW_END))
			n++;
		parts = palloc(n * sizeof(ScanKeyData));
		for (int i = 0; i < n; i++)
			copy_key(&parts[i], &part[i]);
		to->sk_argument = PointerGetDatum(parts);
		return;
	}
	if (OidIsValid(from->sk_func.fn_oid))
		fmgr_info_copy(&to->sk_func, unconstify(FmgrInfo *, &from->sk_func), CurrentMemoryContext);
	if (key_has_value(from))
	{
		int16		typlen;
		bool		typbyval;

		key_type(from, &typlen, &typbyval);
		to->sk_argument = datumCopy(from->sk_argument, typbyval, typlen);
	}
}

static uint32
hash_key(uint32 hash, const ScanKeyData *key)
{
	hash = hash_combine(hash, (uint32) key->sk_flags ^ ((uint32) key->sk_attno << 8) ^
						((uint32) key->sk_strategy << 16));
	if (key->sk_flags & SK_ROW_HEADER)
	{
		ScanKey		part = (ScanKey) DatumGetPointer(key->sk_argument);

		do
			hash = hash_key(hash, part);
		while (!(part++->sk_flags & SK_ROW_END));
	}
	else if (key_has_value(key))
	{
		int16		typlen;
		bool		typbyval;

		key_type(key, &typlen, &typbyval);
		/* both halves mixed: keys that have like numbers in both must not meet */
		if (typbyval)
			hash = hash_combine(hash, murmurhash32((uint32) key->sk_argument ^
												   murmurhash32((uint64) key->sk_argument >> 32)));
		else
			hash = hash_combine(hash,
								hash_bytes((unsigned char *) DatumGetPointer(key->sk_argument),
										   datumGetSize(key->sk_argument, typbyval, typlen)));
	}
	return hash;
}

static bool
same_key(const ScanKeyData *a, const ScanKeyData *b)
{
	int16		typlen;
	bool		typbyval;

	if (a->sk_flags != b->sk_flags || a->sk_attno != b->sk_attno ||
		a->sk_strategy != b->sk_strategy || a->sk_subtype != b->sk_subtype ||
		a->sk_collation != b->sk_collation || a->sk_func.fn_oid != b->sk_func.fn_oid)
		return false;
	if (a->sk_flags & SK_ROW_HEADER)
	{
		ScanKey		part_a = (ScanKey) DatumGetPointer(a->sk_argument);
		ScanKey		part_b = (ScanKey) DatumGetPointer(b->sk_argument);

		for (;; part_a++, part_b++)
		{
			if (!same_key(part_a, part_b))
				return false;
			if (part_a->sk_flags & SK_ROW_END)
				return true;
		}
	}
	if (!key_has_value(a))
		return true;
	key_type(a, &typlen, &typbyval);
	return datumIsEqual(a->sk_argument, b->sk_argument, typbyval, typlen);
}

static uint32
hash_probe(const TwCondition *probe)
{
	uint32		hash = murmurhash32(probe->index);

	for (int i = 0; i < probe->nkeys; i++)
		hash = hash_key(hash, &probe->keys[i]);
	return hash;
}

static bool
same_keys(const TwCondition *a, const TwCondition *b)
{
	if (a->index != b->index || a->index_file != b->index_file || a->nkeys != b->nkeys)
		return false;
	for (int i = 0; i < a->nkeys; i++)
	{
		if (!same_key(&a->keys[i], &b->keys[i]))
			return false;
	}
	return true;
}

static bool
same_probe(const TwCondition *a, const TwCondition *b)
{
	return a->direction == b->direction && a->userid == b->userid && same_keys(a, b) &&
		equal(a->qual, b->qual);
}

/* ---------- conditions ---------- */

static void
describe_caller(TwCondition *condition)
{
	GetUserIdAndSecContext(&condition->userid, &condition->sec_context);
}

static bool
implied_by_whole(TwRelation *relation, Snapshot snapshot)
{
	return relation->whole != NULL && tw_snapshot_not_newer(relation->whole->snapshot, snapshot);
}

/* From here on, any change of the relation since the snapshot counts */
void
tw_condition_add_whole(TwRelation *relation, Snapshot snapshot)
{
	TwCondition *whole;

	relation->predicates = true;
	if (implied_by_whole(relation, snapshot))
		return;

	/* It stands for what was remembered so far as well */
	if (relation->nrows > 0 || relation->nprobes > 0 || relation->nscans > 0 ||
		relation->whole != NULL)
		snapshot = tw_track->oldest;
	whole = MemoryContextAllocZero(tw_track->mcxt, sizeof(TwCondition));
	whole->snapshot = snapshot;
	whole->complete = true;
	describe_caller(whole);
	relation->whole = whole;

	tw_track->escalated += relation->nrows + relation->nprobes;
	tw_track->nrows -= relation->nrows + relation->nprobes * ROWS_PER_PROBE;
	relation->nrows = 0;
	relation->max_rows = 0;
	if (relation->rows != NULL)
		pfree(relation->rows);
	relation->rows = NULL;
	relation->probes = relation->scans = NULL;
	relation->nprobes = relation->nprobes_off = relation->nscans = 0;
}

/* The same, because there is too much to be remembered one by one */
void
tw_condition_escalate(TwRelation *relation, Snapshot snapshot)
{
	tw_condition_add_whole(relation, snapshot);
	relation->whole->escalated = true;
}

/*
 * Remembers a scan of the whole relation with a filter.  The filter belongs to the
 * caller and is copied.  Returns the condition when the caller alone needs it.
 */
TwCondition *
tw_condition_add_scan(TwRelation *relation, Snapshot snapshot, List *qual, TwCounts which)
{
	TwCondition *condition;
	TwCondition *needless = NULL;
	MemoryContext old;

	relation->predicates = true;
	if (implied_by_whole(relation, snapshot))
		return NULL;
	if (qual == NIL && which == TW_ALL_CHANGES)
	{
		tw_condition_add_whole(relation, snapshot);
		return NULL;
	}
	for (condition = relation->scans; condition != NULL; condition = condition->next)
	{
		if (condition->userid != GetUserId() || !equal(condition->qual, qual))
			continue;
		if (condition->off)
			needless = condition;
		else if (condition->counts <= which &&
				 tw_snapshot_not_newer(condition->snapshot, snapshot))
		{
			condition->shared = true;
			return NULL;
		}
	}
	if (needless != NULL)
	{
		needless->off = needless->shared = false;
		needless->snapshot = snapshot;
		needless->counts = which;
		describe_caller(needless);
		return needless;
	}
	if (relation->nscans >= MAX_SCANS)
	{
		tw_condition_escalate(relation, snapshot);
		return NULL;
	}

	old = MemoryContextSwitchTo(tw_track->mcxt);
	condition = palloc0(sizeof(TwCondition));
	condition->snapshot = snapshot;
	condition->counts = which;
	condition->complete = true;
	condition->qual = copyObject(qual);
	describe_caller(condition);
	condition->next = relation->scans;
	relation->scans = condition;
	relation->nscans++;
	MemoryContextSwitchTo(old);
	return condition;
}

static void
describe_probe(TwCondition *probe, Relation index, ScanKey keys, int nkeys, List *qual,
			   ScanDirection direction)
{
	probe->index = RelationGetRelid(index);
	probe->index_file = TW_FILE_NUMBER(index);
	probe->nkeys = nkeys;
	probe->keys = keys;
	probe->direction = direction;
	probe->qual = qual;
	describe_caller(probe);
	probe->hash = hash_probe(probe);
}

static TwCondition *
copy_probe(const TwCondition *probe, Snapshot snapshot)
{
	MemoryContext old = MemoryContextSwitchTo(tw_track->mcxt);
	TwCondition *copy = palloc(sizeof(TwCondition) + probe->nkeys * sizeof(ScanKeyData));

	*copy = *probe;
	copy->snapshot = snapshot;
	copy->complete = true;
	copy->qual = copyObject(probe->qual);
	copy->keys = (ScanKey) (copy + 1);
	for (int i = 0; i < probe->nkeys; i++)
		copy_key(&copy->keys[i], &probe->keys[i]);
	MemoryContextSwitchTo(old);
	return copy;
}

/* The same one, by a snapshot that is not newer; NULL: none */
static TwCondition *
find_probe(TwCondition *probe, Snapshot snapshot)
{
	ProbeEntry *entry = NULL;

	if (tw_track->probes != NULL)
		entry = tw_probe_lookup_hash(tw_track->probes, probe, probe->hash);
	if (entry == NULL || !tw_snapshot_not_newer(entry->condition->snapshot, snapshot))
		return NULL;
	return entry->condition;
}

static void
enter_probe(TwRelation *relation, TwCondition *probe)
{
	TwTrack    *track = tw_track;
	bool		found;

	if (track->probes == NULL)
		track->probes = tw_probe_create(track->mcxt, 8, NULL);
	probe->next = relation->probes;
	relation->probes = probe;
	relation->nprobes++;
	tw_probe_insert_hash(track->probes, probe, probe->hash, &found)->condition = probe;
	track->nrows += ROWS_PER_PROBE;
	if (track->nrows > tw_max_tracked_rows && relation->nprobes > 1)
		tw_condition_escalate(relation, track->oldest);
}

/*
 * Remembers a scan by index.  Keys and filter belong to the caller and are copied.
 * Returns the condition when the scan may report how far it has come, NULL when the condition
 * covers the whole range whatever the scan does.  *remembered becomes the condition in any
 * case; NULL when the whole relation stands for it.
 */
TwCondition *
tw_condition_add_probe(TwRelation *relation, Snapshot snapshot, Relation index, ScanKey keys,
					   int nkeys, List *qual, ScanDirection direction, TwCondition **remembered)
{
	TwCondition wanted = {0};
	TwCondition *condition;

	relation->predicates = true;
	*remembered = NULL;
	if (implied_by_whole(relation, snapshot))
		return NULL;
	describe_probe(&wanted, index, keys, nkeys, qual, direction);
	condition = find_probe(&wanted, snapshot);
	if (condition != NULL)
	{
		/* two scans that may stop at different places: take the whole range */
		condition->complete = condition->stop_fixed = true;
		*remembered = condition;
		return NULL;
	}
	condition = copy_probe(&wanted, snapshot);
	enter_probe(relation, condition);
	if (relation->whole == NULL)
		*remembered = condition;
	return condition;
}

TwCondition *
tw_condition_make_probe(Snapshot snapshot, Relation index, ScanKey keys, int nkeys)
{
	TwCondition wanted = {0};
	TwCondition *condition;

	describe_probe(&wanted, index, keys, nkeys, NIL, ForwardScanDirection);
	condition = copy_probe(&wanted, snapshot);
	condition->stop_fixed = true;
	return condition;
}

void
tw_condition_link(TwRelation *relation, TwCondition *probe)
{
	TwCondition *same;

	relation->predicates = true;
	if (implied_by_whole(relation, probe->snapshot))
		return;
	same = find_probe(probe, probe->snapshot);
	if (same == NULL)
		enter_probe(relation, probe);
	else
		same->complete = same->stop_fixed = true;
}

/* So many conditions are looked at for others with the same keys */
#define MAX_OFF 32

/* Do the keys of a probe name one row, whose index keeps others from adding another? */
bool
tw_condition_names_one_row(Relation index, const TwCondition *probe)
{
	if (index->rd_rel->relam != BTREE_AM_OID ||
		!index->rd_index->indisunique || !index->rd_index->indimmediate ||
		probe->nkeys != IndexRelationGetNumberOfKeyAttributes(index) ||
		RelationGetIndexPredicate(index) != NIL)
		return false;
	for (int i = 0; i < probe->nkeys; i++)
	{
		const ScanKeyData *key = &probe->keys[i];

		if (key->sk_flags != 0 || key->sk_strategy != BTEqualStrategyNumber ||
			key->sk_attno != i + 1)
			return false;
	}
	return true;
}

/*
 * Nobody else can change any row with the keys of this probe until we end, and nobody has
 * since the snapshot: neither this condition nor another one with the same keys needs a check.
 */
void
tw_condition_off(TwRelation *relation, TwCondition *probe)
{
	TwCondition *other = relation->probes;

	for (int i = 0; i < MAX_OFF && other != NULL; i++, other = other->next)
	{
		if (!other->off && (other == probe ||
							(other->hash == probe->hash && same_keys(other, probe) &&
							 tw_snapshot_not_newer(probe->snapshot, other->snapshot))))
		{
			other->off = true;
			relation->nprobes_off++;
		}
	}
}
