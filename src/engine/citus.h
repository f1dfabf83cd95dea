/*
 * citus.h
 *		What the rest of the extension asks of citus.c; see there.
 */
#ifndef TW_CITUS_H
#define TW_CITUS_H

#include "tw.h"

#include "nodes/pg_list.h"

#pragma GCC visibility push(hidden)

/* Where the rows of a table are */
typedef enum TwPlacement
{
	TW_IN_TABLE,				/* in the table itself: Citus is not there, or not concerned */
	TW_IN_LOCAL_SHARD,			/* in a shard on the coordinator: a table that Citus manages */
	TW_ON_EVERY_NODE,			/* a reference table */
	TW_ON_ONE_NODE,				/* in one shard: distributed without a column */
	TW_DISTRIBUTED				/* in shards, by the value of a column */
} TwPlacement;

/* Is Citus in this database? */
extern bool tw_citus_present(void);

extern TwPlacement tw_citus_placement(Oid relid);

/* Does a statement on the table take its rows from, or to, another place than the table? */
static inline bool
tw_citus_manages(Oid relid)
{
	return tw_citus_placement(relid) != TW_IN_TABLE;
}

/* Are both distributed, and the rows that belong together on the same nodes? */
extern bool tw_citus_colocated(Oid a, Oid b);

/* The distribution column; NULL: it has none */
extern char *tw_citus_column(Oid relid);

/* This node's copy of a reference table, or the shard of a local one; InvalidOid: there is none */
extern Oid	tw_citus_local_copy(Oid relid);

/* The table that a shard on this node belongs to; what is none is returned as it is */
extern Oid	tw_citus_table_of(Oid relid);

/* Is a plan node of this name one of Citus's that asks nodes, itself or by statements it runs here? */
extern bool tw_citus_is_scan(const char *name);
extern bool tw_citus_scan_in_parts(const char *name);

/* 0A000 on a worker of a cluster: what we keep is the coordinator's */
extern void tw_citus_check_node(const char *command);

/* From here on this transaction's changes, on all nodes, must commit together or not at all */
extern void tw_citus_protect(void);

/* Has Citus begun a transaction that spans nodes? */
extern bool tw_citus_is_distributed(void);

/* For xact.c: after all that may fail; and the end */
extern void tw_citus_before_commit(void);
extern void tw_citus_clear(void);

#pragma GCC visibility pop

#endif							/* TW_CITUS_H */
