/*
 * conflict.h
 *		Private header of the conflict checks: what a transaction has read, and
 *		who offers what.
 *
 * A tracked transaction's life: hook.c and attach.c see each statement's scans,
 * qual.c and condition.c remember what they look for ("predicate"), rows.c the
 * rows that they return ("row"), and validate.c proves before the commit, with
 * the help of scan.c and change.c, that all of it still holds.  report.c words what does not.
 *
 * Everything reachable from tw_track lives in TwTrack.mcxt, a child of
 * TopTransactionContext, and locks and snapshots belong to the top
 * transaction's resource owner: what a subtransaction has read counts although
 * it rolls back.
 */
#ifndef TW_CONFLICT_H
#define TW_CONFLICT_H

#include "tw.h"

#include "access/skey.h"
#include "access/xlogdefs.h"
#include "executor/execdesc.h"
#include "lib/ilist.h"
#include "nodes/execnodes.h"
#include "storage/bufmgr.h"

/* Which changes of a row that satisfies a condition count */
typedef enum TwCounts
{
	TW_ALL_CHANGES,
	TW_REMOVALS,				/* rows deleted or updated */
	TW_KEY_REMOVALS				/* rows deleted, or updated in a column of a key */
} TwCounts;

/*
 * What one scan looks for.  Rows that satisfy keys (when there is an index) and
 * qual must not have been changed by others since the snapshot.
 */
typedef struct TwCondition
{
	struct TwCondition *next;	/* of the same relation */
	Snapshot	snapshot;		/* registered, see tw_track_snapshot() */
	TwCounts	counts;
	List	   *qual;			/* expressions over the row alone, all must hold; NIL: any row */
	Oid			userid;			/* who ran the statement, for functions in qual */
	int			sec_context;

	Oid			index;			/* InvalidOid: the whole relation */
	TwFileNumber index_file;	/* of the index when it was read */
	int			nkeys;
	ScanKey		keys;
	ScanDirection direction;
	bool		off;			/* has proved needless, see tw_condition_off() */
	bool		shared;			/* stands for what another statement has read as well */
	bool		escalated;		/* stands for more than is remembered one by one */
	bool		complete;		/* the scan may have gone to the end of its range */
	bool		stop_fixed;		/* complete for good */
	ItemPointerData stop;		/* unless complete: the last row that it has come to */

	uint32		hash;			/* of index and keys */
} TwCondition;

/* A row that was read: it must still be its newest version.  Sorted by page for the check. */
typedef struct TwReadRow
{
	BlockNumber block;
	OffsetNumber offset;
	TransactionId xmin;			/* raw */
} TwReadRow;

/* A relation is a file here: one that we have truncated ourselves becomes another */
typedef struct TwRelationKey
{
	Oid			relid;
	TwFileNumber file;
} TwRelationKey;

typedef struct TwRelation
{
	TwRelationKey key;
	struct TwRelation *next;	/* in the order of their first touch */
	TwLocator	locator;
	bool		permanent;
	bool		predicates;		/* some condition stands here, so a new child table counts */

	TwCondition *whole;			/* any change counts: nothing else need be remembered */
	TwCondition *scans;			/* without an index */
	TwCondition *probes;		/* with one */
	int			nscans;
	int64		nprobes;
	int64		nprobes_off;

	TwReadRow  *rows;
	int64		nrows;
	int64		max_rows;
	bool		sorted;			/* rows, without duplicates */
} TwRelation;

/*
 * A relation whose rows were not remembered, because they are locked or about to be
 * written; if the subtransaction rolls back, nothing protects what was read any more.
 */
typedef struct TwSpared
{
	TwRelation *relation;
	Snapshot	snapshot;
	SubTransactionId subid;
	List	   *probes;			/* TwCondition: all that was learned; NIL: anything of the relation */
} TwSpared;

/* An error of a constraint, which tells of rows that no scan has read */
typedef struct TwViolation
{
	int			sqlstate;		/* 0: of no constraint; then there is a row */
	char	   *schema;
	char	   *table;
	char	   *constraint;
	char	   *detail;
	Oid			target;			/* the row that an INSERT was adding to it; if row is set */
	Oid			userid;			/* who was adding it */
	int			sec_context;
	TupleDesc	desc;
	HeapTuple	row;			/* NULL: not known */
} TwViolation;

/* What this transaction tracks; NULL: nothing */
typedef struct TwTrack
{
	MemoryContext mcxt;
	TwTrackMode mode;			/* of what is read from now on */
	bool		busy;			/* we are reading for ourselves */
	bool		ending;			/* in the check before the commit */

	Snapshot	oldest;			/* of those registered */
	Snapshot   *snapshots;		/* registered with TopTransactionResourceOwner */
	int			nsnapshots;
	int			max_snapshots;

	TwRelation *first_relation;
	int			nrelations;
	HTAB	   *relations;		/* of them, by key, once there are many; otherwise NULL */
	TwRelation **end_relation;	/* where the next one goes */
	TwRelation *last_relation;	/* asked for last */
	struct tw_probe_hash *probes;
	List	   *parents;		/* OIDs of partitioned tables that were read */
	List	   *spared;			/* TwSpared */
	List	   *unsettled;		/* likewise, of subtransactions rolled back, their probes not yet remembered */
	SubTransactionId base;		/* is rolled back with the whole transaction only */
	List	   *violations;		/* TwViolation, not yet looked at */

	List	   *copies_read;	/* OIDs of tables that statements of Citus's here have read */
	dlist_head	queries;		/* the statements that are running */

	int64		nrows;			/* rows remembered, in all relations */
	int64		escalated;		/* rows and probes replaced by a condition on their relation */
	int64		waits;			/* for younger transactions, at the check */
} TwTrack;

extern TwTrack *tw_track;

/* ---------- in track.c: what is remembered, and for how long ---------- */

extern Snapshot tw_track_snapshot(Snapshot snapshot);

/* True: a is the same as b or was taken before it */
extern bool tw_snapshot_not_newer(Snapshot a, Snapshot b);
extern bool tw_track_wanted(Relation rel);
extern TwRelation *tw_track_relation(Relation rel, Snapshot snapshot);
extern void tw_track_parent(Oid relid);
extern bool tw_track_in_savepoint(void);

/* ---------- in spared.c ---------- */

extern void tw_track_spared(TwRelation *relation, Snapshot snapshot, List *probes);

/* Is a statement that of a foreign key, which keeps all that it tells by its locks? */
extern bool tw_spared_foreign_key(QueryDesc *query);

/* ---------- in attach.c: the scans of a running statement ---------- */

extern void tw_attach(QueryDesc *query, int eflags);
extern bool tw_attached(QueryDesc *query);

/* After a statement that wrote so many rows: what needs no check any more */
extern void tw_attach_written(QueryDesc *query, uint64 processed);

/* After an error in a statement: what it may have read beyond what was remembered */
extern void tw_attach_failed(QueryDesc *query);

/* Remembers all conditions of a statement that will not be run */
extern void tw_attach_conditions(QueryDesc *query);

/* ---------- in custom.c: nodes of a plan that another extension executes ---------- */

/* Before any row is read; spared: range table indexes that need not be remembered */
extern void tw_custom_attach(CustomScanState *state, bool spare_all, Bitmapset *spared);

/* ---------- in copies.c: tables of Citus ---------- */

extern List *tw_copies_needed(QueryDesc *query, const char *scan);
extern void tw_copies_refuse(Oid relid);
extern List *tw_copies_begin(void);
extern void tw_copies_note(QueryDesc *query);
extern void tw_copies_end(List *before, const List *needed);

/* ---------- in constraint.c: what constraints tell of ---------- */

/* What a statement that writes may tell by constraints of its targets, while it runs */
typedef struct TwTargets
{
	List	   *conditions;		/* of ON CONFLICT DO NOTHING, needless if nothing was skipped */
	ModifyTableState *single;	/* adds one row, in a savepoint; NULL: not so simple */
	Oid			userid;			/* who adds it, for functions in indexes */
	int			sec_context;
	Snapshot	snapshot;		/* of the statement, registered; set when needed */
} TwTargets;

extern void tw_constraint_before_write(QueryDesc *query, TwTargets *targets);
extern void tw_constraint_after_write(QueryDesc *query, const TwTargets *targets, uint64 processed);

/* Before COPY FROM */
extern void tw_constraint_before_copy(Relation rel);

/* An error has been raised, and may be caught; targets of the statement, or NULL */
extern void tw_constraint_violated(const TwTargets *targets);

/* Turns errors so far into conditions */
extern void tw_constraint_settle(void);

/* ---------- in qual.c ---------- */

extern List *tw_qual_of_row(List *clauses, List *index_tlist, ParamListInfo params);
extern List *tw_qual_of_any_row(List *clauses);

/* The filter of a scan node; index: with the keys of an index scan */
extern List *tw_qual_clauses(Plan *plan, bool index, List **index_tlist);

/* ---------- in condition.c ---------- */

extern TwCondition *tw_condition_add_scan(TwRelation *relation, Snapshot snapshot, List *qual,
										  TwCounts counts);
extern TwCondition *tw_condition_add_probe(TwRelation *relation, Snapshot snapshot, Relation index,
										   ScanKey keys, int nkeys, List *qual,
										   ScanDirection direction, TwCondition **remembered);
extern bool tw_condition_names_one_row(Relation index, const TwCondition *probe);
extern void tw_condition_off(TwRelation *relation, TwCondition *probe);

/* A probe that is not remembered yet, and its being so from now on */
extern TwCondition *tw_condition_make_probe(Snapshot snapshot, Relation index, ScanKey keys, int nkeys);
extern void tw_condition_link(TwRelation *relation, TwCondition *probe);
extern void tw_condition_add_whole(TwRelation *relation, Snapshot snapshot);
extern void tw_condition_escalate(TwRelation *relation, Snapshot snapshot);

/* ---------- in rows.c ---------- */

extern void tw_rows_add(TwRelation *relation, HeapTuple tuple);
extern void tw_rows_add_version(TwRelation *relation, ItemPointer tid, HeapTupleHeader tuple);
extern void tw_rows_sort(TwRelation *relation);

/* ---------- in change.c: what others have done to a row ---------- */

typedef enum TwChangeKind
{
	TW_UNCHANGED,
	TW_INSERTED,
	TW_UPDATED,
	TW_UPDATED_INTO,			/* the new version of an updated row */
	TW_DELETED,
	TW_MOVED,					/* into another partition */
	TW_GONE,					/* no trace is left */
	TW_ATTACHED					/* a child table, not a row */
} TwChangeKind;

typedef struct TwChange
{
	TwChangeKind kind;
	TransactionId xid;			/* who; invalid: not known */
	bool		in_progress;
} TwChange;

/* A version of a row, under its page's lock or copied: what others did since the snapshot */
extern bool tw_change_since(HeapTupleHeader tuple, ItemPointer tid, Snapshot snapshot,
							TwCounts counts, TwChange *change);

/* The same for a version that was the newest when it was read */
extern bool tw_change_of_row(HeapTupleHeader tuple, ItemPointer tid, TwChange *change);

/* Quick and safe: false means that nothing happened since any snapshot with this xmin */
extern bool tw_change_possible(HeapTupleHeader tuple, TransactionId xmin);

/* ---------- in validate.c ---------- */

/* A change that contradicts what was read */
typedef struct TwConflict
{
	Oid			relid;
	ItemPointerData tid;
	TwChange	change;
	HeapTuple	tuple;			/* NULL: not at hand */
	TwCondition *condition;		/* NULL: a row that was read */
	const char *failure;		/* why the condition could not be evaluated; NULL: it was */
} TwConflict;

/* Told of each conflict; returns true to go on */
typedef bool (*TwConflictSink) (const TwConflict *conflict, void *arg);

extern bool tw_validate_all(TwConflictSink sink, void *arg);

/* ---------- in quiet.c: pages that cannot have changed ---------- */

extern void tw_quiet_note(void);
extern XLogRecPtr tw_quiet_lsn(TransactionId xmin);

/* ---------- in scan.c: looking at what others have changed ---------- */

extern bool tw_scan_probes(Relation rel, TwRelation *relation, TwConflictSink sink, void *arg);
extern bool tw_scan_pages(Relation rel, TwRelation *relation, TwConflictSink sink, void *arg);
extern bool tw_scan_rows(Relation rel, TwRelation *relation, TwConflictSink sink, void *arg);
extern bool tw_scan_old_file(Oid relid, TwRelation *relation, TwConflictSink sink, void *arg);
extern bool tw_scan_children(Oid relid, Snapshot snapshot, TwConflictSink sink, void *arg);

/* ---------- in count.c ---------- */

typedef struct TwCounters
{
	int64		transactions;	/* that tracked */
	int64		relations;
	int64		rows;
	int64		conditions;
	int64		escalated;
	int64		waits;
	int64		conflicts;		/* commits that failed */
} TwCounters;

extern TwCounters tw_counters;

extern void tw_count_conflict(const TwConflict *conflict);
extern void tw_count_transaction(void);

/* ---------- in report.c ---------- */

extern const char *tw_conflict_kind(const TwConflict *conflict);
extern char *tw_conflict_detail(const TwConflict *conflict);
pg_noreturn extern void tw_conflict_report(const TwConflict *conflict);

/* 0A000: a plan reads what nobody could check */
pg_noreturn extern void tw_conflict_refuse(const char *what, const char *name, const char *detail);

#endif							/* TW_CONFLICT_H */
