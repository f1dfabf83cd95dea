/*
 * compat.h
 *		All that differs between the PostgreSQL versions we support.
 *
 * Each entry names what changed upstream and when; delete it with the last
 * version that needs it.
 */
#ifndef TW_COMPAT_H
#define TW_COMPAT_H

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "transactional_writer supports PostgreSQL 15 to 18"
#endif

/* The arguments of ProcessUtility_hook, the same in all of them */
#define TW_UTILITY_ARGS \
	PlannedStmt *pstmt, const char *query_string, bool read_only_tree, \
	ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env, \
	DestReceiver *dest, QueryCompletion *completion
#define TW_UTILITY_PASS pstmt, query_string, read_only_tree, context, params, env, dest, completion

/* 18: the module block carries name and version */
#ifdef PG_MODULE_MAGIC_EXT
#define TW_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "transactional_writer", .version = TW_VERSION)
#else
#define TW_MODULE_MAGIC PG_MODULE_MAGIC
#endif

/* 18: pg_class counts pages that are all-frozen */
#if PG_VERSION_NUM >= 180000
#define TW_EXCHANGE_ALL_FROZEN(a, b) EXCHANGE(int32, (a)->relallfrozen, (b)->relallfrozen)
#else
#define TW_EXCHANGE_ALL_FROZEN(a, b) ((void) 0)
#endif

/* 16: DefineIndex() takes the number of partitions, for the progress report */
#if PG_VERSION_NUM >= 160000
#define tw_define_index(relid, stmt) \
	DefineIndex(relid, stmt, InvalidOid, InvalidOid, InvalidOid, -1, \
				false, true, false, false, true)
#else
#define tw_define_index(relid, stmt) \
	DefineIndex(relid, stmt, InvalidOid, InvalidOid, InvalidOid, \
				false, true, false, false, true)
#endif

/* 16: rights are looked up in a list of their own; 18: partitions to be pruned in a set */
#if PG_VERSION_NUM >= 180000
#define tw_init_range_table(estate, pstate) \
	ExecInitRangeTable(estate, (pstate)->p_rtable, (pstate)->p_rteperminfos, bms_make_singleton(1))
#elif PG_VERSION_NUM >= 160000
#define tw_init_range_table(estate, pstate) \
	ExecInitRangeTable(estate, (pstate)->p_rtable, (pstate)->p_rteperminfos)
#else
#define tw_init_range_table(estate, pstate) \
	ExecInitRangeTable(estate, (pstate)->p_rtable)
#endif

/* 16: ExecInsertIndexTuples() can leave out all but summarizing indexes */
#if PG_VERSION_NUM >= 160000
#define tw_insert_index_tuples(info, slot, estate) \
	ExecInsertIndexTuples(info, slot, estate, false, false, NULL, NIL, false)
#else
#define tw_insert_index_tuples(info, slot, estate) \
	ExecInsertIndexTuples(info, slot, estate, false, false, NULL, NIL)
#endif

/* 17: what an index keeps between insertions (BRIN) has to be released */
#if PG_VERSION_NUM >= 170000
#define tw_index_insert_cleanup(index, info) index_insert_cleanup(index, info)
#else
#define tw_index_insert_cleanup(index, info) ((void) 0)
#endif

/* 18: pg_noreturn before a declaration took the place of pg_attribute_noreturn() after it */
#if PG_VERSION_NUM < 180000
#define pg_noreturn __attribute__((noreturn))
#endif

/* 17: MyProc->lxid moved into MyProc->vxid */
#if PG_VERSION_NUM >= 170000
#define TW_MY_LXID (MyProc->vxid.lxid)
#else
#define TW_MY_LXID (MyProc->lxid)
#endif

/* 17: a transaction may have a time limit, of the server, a database or a role */
#if PG_VERSION_NUM >= 170000
#define tw_lift_transaction_timeout() \
	SetConfigOption("transaction_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE)
#else
#define tw_lift_transaction_timeout() ((void) 0)
#endif

/* 17: LockHeldByMe() may count stronger locks as well */
#if PG_VERSION_NUM >= 170000
#define tw_lock_held(tag, mode) LockHeldByMe(tag, mode, false)
#else
#define tw_lock_held(tag, mode) LockHeldByMe(tag, mode)
#endif

/* 17: MyProc->pgprocno became MyProcNumber */
#if PG_VERSION_NUM >= 170000
#define TW_MY_PROC_NUMBER MyProcNumber
#else
#define TW_MY_PROC_NUMBER (MyProc->pgprocno)
#endif

/* 17: ResourceOwnerReleaseAllPlanCacheRefs became ReleaseAllPlanCacheRefsInOwner */
#if PG_VERSION_NUM >= 170000
#define tw_release_plan_refs(owner) ReleaseAllPlanCacheRefsInOwner(owner)
#else
#define tw_release_plan_refs(owner) ResourceOwnerReleaseAllPlanCacheRefs(owner)
#endif

/* 16: membership alone no longer lets one become a role */
#if PG_VERSION_NUM >= 160000
#define tw_can_set_role(member, role) member_can_set_role(member, role)
#else
#define tw_can_set_role(member, role) is_member_of_role(member, role)
#endif

/* 16: parseTypeString() takes an error context in place of missing_ok */
#if PG_VERSION_NUM >= 160000
#define tw_hard_errors NULL
#else
#define tw_hard_errors false
#endif

/* 16: RelFileNode became RelFileLocator, and its relNode a relNumber of a type of its own */
#if PG_VERSION_NUM >= 160000
#include "storage/relfilelocator.h"
#define TwLocator RelFileLocator
#define TwFileNumber RelFileNumber
#define TW_LOCATOR(rel) ((rel)->rd_locator)
#define TW_FILE_NUMBER(rel) ((rel)->rd_locator.relNumber)
#define TW_LOCATOR_EQUALS RelFileLocatorEquals
#define TW_NEW_FILE_SUBID(rel) ((rel)->rd_firstRelfilelocatorSubid)
#else
#include "storage/relfilenode.h"
#define TwLocator RelFileNode
#define TwFileNumber Oid
#define TW_LOCATOR(rel) ((rel)->rd_node)
#define TW_FILE_NUMBER(rel) ((rel)->rd_node.relNode)
#define TW_LOCATOR_EQUALS RelFileNodeEquals
#define TW_NEW_FILE_SUBID(rel) ((rel)->rd_firstRelfilenodeSubid)
#endif

/* 16: the record that lets a standby end old snapshots names its fields otherwise */
#if PG_VERSION_NUM >= 160000
#define TW_REUSE_PAGE_LOCATOR(record) ((record).locator)
#define TW_REUSE_PAGE_HORIZON(record) ((record).snapshotConflictHorizon)
#else
#define TW_REUSE_PAGE_LOCATOR(record) ((record).node)
#define TW_REUSE_PAGE_HORIZON(record) ((record).latestRemovedFullXid)
#endif

/* 17: InvalidBackendId became INVALID_PROC_NUMBER */
#if PG_VERSION_NUM >= 170000
#define TW_NO_BACKEND INVALID_PROC_NUMBER
#else
#define TW_NO_BACKEND InvalidBackendId
#endif

/* 18: RelationGetPrimaryKeyIndex() may answer with a deferrable one */
#if PG_VERSION_NUM >= 180000
#define TW_PRIMARY_KEY(rel) RelationGetPrimaryKeyIndex(rel, false)
#else
#define TW_PRIMARY_KEY(rel) RelationGetPrimaryKeyIndex(rel)
#endif

/* 18: ExecutorRun lost execute_once */
#if PG_VERSION_NUM >= 180000
#define TW_RUN_ARGS QueryDesc *query, ScanDirection direction, uint64 count
#define TW_RUN_PASS query, direction, count
#else
#define TW_RUN_ARGS QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once
#define TW_RUN_PASS query, direction, count, execute_once
#endif

/* 18: index_beginscan takes a place to count in */
#if PG_VERSION_NUM >= 180000
#define tw_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#else
#define tw_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#endif

/* 16: an update on the same page may leave work for summarizing indexes (BRIN) alone */
#if PG_VERSION_NUM >= 160000
#define TwUpdateIndexes TU_UpdateIndexes
#define TW_UPDATES_INDEX(how, index) \
	((how) == TU_All || ((how) == TU_Summarizing && (index)->rd_indam->amsummarizing))
#define TW_UPDATES_ALL TU_All
#else
#define TwUpdateIndexes bool
#define TW_UPDATES_INDEX(how, index) (how)
#define TW_UPDATES_ALL true
#endif

/* 18: RETURNING may name OLD and NEW, and became a node of its own */
#if PG_VERSION_NUM >= 180000
#define TW_HAS_RETURNING(stmt) ((stmt)->returningClause != NULL)
#else
#define TW_HAS_RETURNING(stmt) ((stmt)->returningList != NIL)
#endif

/* 18: a check may be NOT ENFORCED, and a NOT NULL be NOT VALID: rows that are there may be null */
#if PG_VERSION_NUM >= 180000
#define TW_CHECK_IS_ENFORCED(check) ((check)->ccenforced)
#define TW_NO_NULLS(tupdesc, i) \
	(TupleDescCompactAttr(tupdesc, i)->attnullability == ATTNULLABLE_VALID)
#else
#define TW_CHECK_IS_ENFORCED(check) true
#define TW_NO_NULLS(tupdesc, i) (TupleDescAttr(tupdesc, i)->attnotnull)
#endif

/* 17: MERGE has RETURNING */
#if PG_VERSION_NUM >= 170000
#define TW_MERGE_HAS_RETURNING(stmt) TW_HAS_RETURNING(stmt)
#else
#define TW_MERGE_HAS_RETURNING(stmt) false
#endif

/*
 * Token numbers of core_yylex.  gram.h is not installed from 16 on; plpgsql
 * relies on the same numbers, since bison counts from 258 in the order of the
 * first %token lines of gram.y.
 */
typedef enum PsmTokenType
{
	PSM_TOK_IDENT = 258,
	PSM_TOK_UIDENT,
	PSM_TOK_FCONST,
	PSM_TOK_SCONST,
	PSM_TOK_USCONST,
	PSM_TOK_BCONST,
	PSM_TOK_XCONST,
	PSM_TOK_OP,
	PSM_TOK_ICONST,
	PSM_TOK_PARAM,
	PSM_TOK_TYPECAST,
	PSM_TOK_DOT_DOT,
	PSM_TOK_COLON_EQUALS,
	PSM_TOK_EQUALS_GREATER,
	PSM_TOK_LESS_EQUALS,
	PSM_TOK_GREATER_EQUALS,
	PSM_TOK_NOT_EQUALS
} PsmTokenType;

#endif							/* TW_COMPAT_H */
