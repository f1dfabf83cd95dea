/*
 * psm.h
 *		Private header of the block language: the run-time state, and who offers
 *		what.  The tree is in tree.h.
 *
 * A script's life: scan.c cuts the text into tokens, parse.c makes the tree,
 * check.c refuses what may not run, cache.c keeps the result for the session,
 * exec.c walks it, expr.c prepares and evaluates the SQL in it, condition.c
 * chooses handlers, position.c tells where an error came from.
 *
 * Lifetimes: everything reachable from a PsmScript lives in PsmScript.mcxt,
 * plans excepted, which are saved SPI plans freed by psm_script_free().
 * Everything reachable from a PsmExec lives for one execution.
 */
#ifndef TW_PSM_H
#define TW_PSM_H

#include "tw.h"

#include <signal.h>

#include "access/tupdesc.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "lib/ilist.h"
#include "nodes/execnodes.h"
#include "nodes/params.h"
#include "nodes/pg_list.h"
#include "parser/parse_node.h"
#include "parser/parser.h"
#include "utils/jsonb.h"
#include "utils/plancache.h"
#include "utils/portal.h"

#include "psm/tree.h"

/* ours alone: nothing but what PostgreSQL looks up by name is exported */
#pragma GCC visibility push(hidden)

typedef struct PsmExec PsmExec;

/* In scan.c */

/* Types: single characters stand for themselves, numbers from 258 on are core_yylex's own */
typedef struct PsmToken
{
	int			type;			/* see compat.h: PSM_TOK_IDENT, ... ; 0 at the end */
	int			start;			/* byte offset in the script */
	int			end;			/* offset just behind it */
	int			line;			/* of start, from 1 */
	int			column;			/* of start, from 1, in characters */
	bool		quoted;			/* an identifier in double quotes: never a keyword */
	char	   *text;			/* identifiers: folded or unquoted; strings: their value; else
								 * NULL */
} PsmToken;

/* Cuts source into tokens (palloc'd, the last has type 0).  Errors carry errposition in source. */
extern PsmToken *psm_scan(const char *source, int *ntokens);

/* In parse.c */

/* What a function brings into its outermost scope before the block is read; NULL for a block */
typedef struct PsmArgument
{
	const char *name;			/* NULL: only $n */
	Oid			type;
	int32		typmod;
	bool		constant;
} PsmArgument;

/*
 * Parses source into a new script, whose memory context is a child of parent.
 * label names the outermost scope of a function's arguments (NULL for a block).
 * Errors: 42601 and others with errposition in source; call it under
 * psm_compile_error_callback.
 */
extern PsmScript *psm_parse(const char *source, MemoryContext parent, const char *label,
							const PsmArgument *args, int nargs);

/* In check.c */

/*
 * Refuses, before anything has run, what can be refused from the text alone:
 * statements that cannot run in a transaction or would end it, and syntax
 * errors of every SQL statement and expression (by PostgreSQL's own raw
 * parser).  Fills PsmSqlStmt.command and utility, and PsmExpr.spliced.
 */
extern void psm_check(PsmScript *script);
extern void psm_check_runnable(Node *stmt, const char *source, int offset);

/* The raw parse tree of a piece, with '' for each parameter that has to be a literal */
extern Node *psm_raw_parse(const PsmExpr *expr);

/*
 * Byte offset in the script of an error position (geterrposition(): characters
 * from 1, in expr->text); -1 when there is none.
 */
extern int	psm_expr_offset(const PsmExpr *expr, int cursorpos);

/* In scan.c: errposition() for a byte offset of source; for use in ereport() */
extern int	psm_errposition(const char *source, int offset);
extern PsmPos psm_pos(const char *source, int offset);

/* ---------- run time ---------- */

/* The value of a variable, by PsmVar.number */
typedef struct PsmValue
{
	Datum		value;			/* scalars */
	bool		isnull;
	bool		owned;			/* value is a palloc'd copy of ours */
	bool		changed;		/* rows: assigned to since psm_row_set() */

	/* rows: isnull tells whether the row as a whole is null */
	int			nfields;
	Datum	   *fields;
	bool	   *nulls;
	bool	   *owned_fields;
} PsmValue;

/* A parameter of the script, converted to a type that some place needed */
typedef struct PsmHostDatum
{
	Oid			type;
	uint64		version;		/* of rows: the block may alter their table behind */
	Datum		value;
	bool		isnull;
	struct PsmHostDatum *next;
} PsmHostDatum;

/* What a statement did so far, by PsmStmt.number */
typedef struct PsmCount
{
	int64		executions;
	int64		rows;
	bool		writes;			/* rows are rows written */
	Oid			relation;		/* target of a utility statement; others are read from the plan */
	const char *command;		/* of a query that wrote; NULL: the statement's own name */
} PsmCount;

/* A block with handlers that is being executed */
typedef struct PsmFrame
{
	PsmCompound *block;
	struct PsmFrame *outer;
	bool		catches_errors; /* this frame or one further out, up to an atomic block */
	bool		handling;		/* a handler of it is running: none of them is active */
} PsmFrame;

/* The portal of a FOR loop, by name: after an error it may be gone or not */
typedef struct PsmOpenLoop
{
	char	   *portal;
	struct PsmOpenLoop *outer;
} PsmOpenLoop;

/* How a statement ended */
typedef enum PsmResult
{
	PSM_NEXT,					/* go on behind it */
	PSM_JUMP_LEAVE,				/* LEAVE PsmExec.jump, or an EXIT handler of it */
	PSM_JUMP_ITERATE,			/* ITERATE PsmExec.jump */
	PSM_JUMP_UNDO,				/* an UNDO handler of PsmExec.jump was chosen */
	PSM_RETURNED
} PsmResult;

/*
 * A subtransaction of the interpreter.  Blocks with error handlers run their
 * statements in one that is renewed whenever it holds something to keep; an
 * atomic block that may be undone alone has one more around all of it.
 */
typedef struct PsmSavepoint
{
	bool		open;
	bool		used;			/* holds something that must stay: renew it before the next
								 * statement */
	bool		left;			/* open behind its block, with nothing in it: for the next block */
	int			level;			/* nest level of the subtransaction; 0: never opened */
	MemoryContext oldcontext;
	ResourceOwner oldowner;
	ExprContext *oldecontext;
} PsmSavepoint;

/* What a handler handles */
typedef struct PsmDiagnostics
{
	ErrorData  *error;			/* for warnings and NOT FOUND too; an error's assoc_context holds it
								 * and nothing else, theirs is NULL */
	int			line;
	PsmCompound *block;			/* whose handler it is; set when that runs */
	struct PsmDiagnostics *outer;	/* of the handler this one interrupts */
} PsmDiagnostics;

/* A literal that stands in a statement's text for a :name */
typedef struct PsmSplice
{
	int			at;				/* offset in the text that was run */
	int			grown;			/* how many bytes longer than the :name */
} PsmSplice;

struct PsmExec
{
	PsmScript  *script;
	MemoryContext mcxt;			/* the values live here */
	MemoryContextCallback gone; /* of mcxt */

	PsmValue   *values;
	char	  **cursors;		/* names of open portals, by PsmCursor.number; NULL: closed */
	PsmCount   *counts;

	/* parameters of the script, by PsmScript.hosts */
	Jsonb	   *given;			/* all that the caller gave; NULL: a function */
	JsonbValue **host_values;
	PsmHostDatum **host_datums;

	/* handed to PostgreSQL with every plan; parserSetupArg is the PsmExpr in use */
	ParamListInfo params;
	ExprContext *econtext;		/* NULL until needed: use psm_econtext() */
	SPITupleTable *eval_tuples; /* hold values until psm_eval_cleanup() */
	List	   *more_tuples;	/* likewise, when there are several */

	/* where we are, for CONTEXT */
	PsmStmt    *stmt;
	PsmVar	   *declaring;		/* being initialised, or NULL */
	PsmExpr    *expr;			/* being prepared or executed, or NULL */
	char	   *run_text;		/* what is run in place of a spliced expr's text, or NULL */
	PsmSplice  *splices;		/* as many as the expr has hosts */
	Oid			run_relation;	/* the table of the last spliced statement */
	ErrorContextCallback context;

	/* handlers */
	PsmFrame   *frames;
	struct PsmOpenLoop *loops;	/* FOR loops under way, innermost first */
	PsmSavepoint savepoint;
	PsmDiagnostics *diagnostics;	/* of the innermost running handler; NULL outside */
	MemoryContext passing;		/* see passing_context() in condition.c; NULL until needed */
	MemoryContext passed;		/* likewise, of the error before */
	PsmHandler *undo_handler;	/* PSM_JUMP_UNDO: to run when the block is undone */
	PsmDiagnostics *undo_diagnostics;

	PsmScope   *jump;
	int64		row_count;		/* of the last SQL statement */

	/* what RETURN does: a block makes JSON, a function its result */
	void		(*do_return) (PsmExec *ex, PsmReturn *stmt);
	void	   *return_arg;
	Jsonb	   *result;			/* blocks */
	bool		read_only;		/* functions that are not volatile */
};

/* What a parameter of a plan stands for; paramid - 1 is its index in PsmPlan.slots */
typedef enum PsmSlotKind
{
	PSM_SLOT_VAR,				/* a scalar, or a row as a whole */
	PSM_SLOT_FIELD,				/* a column of a row */
	PSM_SLOT_HOST,				/* one occurrence of a parameter of the script */
	PSM_SLOT_CURSOR				/* WHERE CURRENT OF: the name of the cursor's portal */
} PsmSlotKind;

typedef struct PsmSlot
{
	PsmSlotKind kind;
	Oid			type;
	PsmVar	   *var;
	int			field;			/* from 0 */
	int			host;
	PsmCursor  *cursor;
} PsmSlot;

/* A PsmExpr made ready; all of it lives in the script's context, the SPI plan beside it */
typedef struct PsmPlan
{
	SPIPlanPtr	plan;			/* saved; NULL: to be made */
	CachedPlanSource *source;	/* of plan */
	uint64		shape;			/* PsmScript.shape when it was made */

	bool		effects_known;	/* since the last analysis */
	bool		has_effects;	/* changes or locks rows, or calls a volatile function */

	/* filled by the parser hooks, anew at each analysis */
	PsmSlot    *slots;
	int			nslots;
	int			maxslots;

	/* an expression that needs no query; see expr.c */
	Expr	   *simple;			/* NULL: it does need one */
	bool		mutable;
	Oid			type;
	int32		typmod;
	CachedPlan *cached;
	LocalTransactionId cached_lxid; /* we hold a reference in this transaction */
	ExprState  *state;
	LocalTransactionId state_lxid;	/* state was made in this transaction */
	Oid			state_role;		/* by this role, which may execute the functions in it */
	bool		in_use;			/* being evaluated further out: do not touch */
} PsmPlan;

/* In evalstate.c: what evaluation keeps for a transaction */
extern EState *psm_eval_estate(void);
extern ResourceOwner psm_eval_owner(void);
extern ExprContext *psm_econtext_push(void);
extern void psm_econtext_pop(ExprContext *econtext);
extern void psm_xact_end(bool committed);
extern void psm_subxact_end(SubTransactionId subid, bool committed);

/* In cast.c */
#define PSM_NO_CONDITION "a condition must be of type boolean, not type %s"
#define PSM_NO_CONDITION_HINT "Compare it with a value."
extern bool psm_is_condition_type(Oid type);
extern Datum psm_cast(ExprContext *econtext, Datum value, bool *isnull, Oid type, int32 typmod,
					  Oid to_type, int32 to_typmod);

extern bool psm_rows_differ(TupleDesc from, TupleDesc to, const char *mismatch);
extern void psm_cast_row(ExprContext *econtext, TupleDesc from, const Datum *values,
						 const bool *nulls, TupleDesc to, Datum *to_values, bool *to_nulls);
extern HeapTuple psm_cast_tuple(ExprContext *econtext, HeapTuple tuple, TupleDesc from,
								TupleDesc to, MemoryContext mcxt, const char *mismatch);

/* In portal.c: cursors and FOR loops */
extern void psm_portal_detach(Portal portal);
extern void psm_cursor_set_portal(PsmExec *ex, PsmCursor *cursor, Portal portal);
extern Portal psm_cursor_portal(PsmExec *ex, PsmCursor *cursor);
extern void psm_cursors_close(PsmExec *ex, PsmScope *scope);
extern void psm_loops_close(PsmExec *ex, PsmOpenLoop *outer);

/* In param.c: names and parameters in SQL */
extern void psm_parser_setup(ParseState *pstate, void *arg);
extern PsmVar *psm_lookup_name(const PsmExpr *expr, PsmScope *only, const char *name, int *field);
extern void psm_params_init(PsmExec *ex, ParamListInfo params);
extern void psm_params_forget(const PsmExec *ex);
extern void psm_hosts_bind(PsmExec *ex, Jsonb *params, bool missing_ok);
pg_noreturn extern void psm_host_missing(PsmScript *script, int host, Jsonb *params);
extern bool psm_hosts_match(PsmScript *script, Jsonb *params);
extern void psm_hosts_describe(PsmScript *script, Jsonb *params);
extern char *psm_json_text(JsonbValue *value);
extern Datum psm_host_datum(PsmExec *ex, int host, Oid type, bool *isnull);
extern Oid	psm_host_type(PsmExec *ex, int host);
extern PsmExec *psm_params_parsing(PsmExec *ex);

/* In value.c: variables */
extern void psm_values_init(PsmExec *ex);
extern void psm_types_resolve(PsmScript *script);
extern bool psm_types_current(PsmScript *script);
extern uint64 psm_row_version(Oid type);
extern char psm_array_delimiter(Oid element);
extern int	psm_row_field(const PsmVar *var, const char *name);
extern void psm_shape_change(PsmExec *ex, bool known);
extern void psm_row_describe(PsmExec *ex, PsmVar *var, TupleDesc tupdesc);
extern void psm_operand_describe(PsmExec *ex, PsmVar *var, Oid type);
extern void psm_row_set(PsmExec *ex, PsmVar *var, HeapTuple tuple, TupleDesc tupdesc);
extern Datum psm_row_datum(PsmExec *ex, PsmVar *var, bool *isnull);
extern TupleDesc psm_datum_tuple(Datum value, HeapTuple tuple);
extern void psm_set_null(PsmExec *ex, PsmVar *var);
extern void psm_argument_set(PsmExec *ex, PsmVar *var, Datum value, bool isnull);
extern void psm_assign(PsmExec *ex, const PsmTarget *target, Datum value, bool isnull, Oid type,
					   int32 typmod);
#define PSM_COLUMNS_DIFFER "number of columns (%d) does not match number of variables (%d)"
extern void psm_assign_tuple(PsmExec *ex, List *targets, HeapTuple tuple, TupleDesc tupdesc);
extern void psm_assign_into(PsmExec *ex, List *into, SPITupleTable *tuples, uint64 n);

/* In expr.c: plans and evaluation */
extern void psm_plan_make(PsmExec *ex, PsmExpr *expr, int cursor_options);
extern Datum psm_eval(PsmExec *ex, PsmExpr *expr, bool *isnull, Oid *type, int32 *typmod);
extern Datum psm_eval_for(PsmExec *ex, PsmExpr *expr, Oid wanted, bool *isnull, Oid *type,
						  int32 *typmod);
extern bool psm_eval_bool(PsmExec *ex, PsmExpr *expr);
extern char *psm_eval_text(PsmExec *ex, PsmExpr *expr);
extern int	psm_execute(PsmExec *ex, PsmExpr *expr, bool must_return_tuples, uint64 tcount);
extern void psm_execute_into(PsmExec *ex, PsmExpr *expr, DestReceiver *dest);
extern Portal psm_open(PsmExec *ex, PsmExpr *expr, const char *name);
extern Oid	psm_expr_relation(PsmExpr *expr);
extern Oid	psm_utility_relation(const Node *stmt);
extern void psm_eval_tuples_free(PsmExec *ex);
extern void psm_plan_free(PsmPlan *plan);

/* Makes the plan of a piece of SQL unless a good one is there */
static inline void
psm_prepare(PsmExec *ex, PsmExpr *expr, int cursor_options)
{
	if (unlikely(expr->plan == NULL || expr->plan->plan == NULL ||
				 expr->plan->shape != ex->script->shape))
		psm_plan_make(ex, expr, cursor_options);
}

/* The context in which this execution evaluates; made when first needed */
static inline ExprContext *
psm_econtext(PsmExec *ex)
{
	if (unlikely(ex->econtext == NULL))
		ex->econtext = psm_econtext_push();
	return ex->econtext;
}

/* Frees what evaluations have returned */
static inline void
psm_eval_cleanup(PsmExec *ex)
{
	if (unlikely(ex->eval_tuples != NULL))
		psm_eval_tuples_free(ex);
	if (ex->econtext != NULL && !ex->econtext->ecxt_per_tuple_memory->isReset)
		ResetExprContext(ex->econtext);
}

/* In exec.c */
extern PsmExec *psm_exec_create(PsmScript *script);
extern void psm_exec_run(PsmExec *ex);

/* In statement.c: statements that hold no others; true: not a row was found */
extern void psm_exec_set(PsmExec *ex, PsmSet *stmt);
extern void psm_exec_set_row(PsmExec *ex, PsmSetRow *stmt);
extern void psm_set_case_operand(PsmExec *ex, PsmCase *stmt);
extern void psm_enter_scope(PsmExec *ex, PsmCompound *block);
extern bool psm_exec_sql(PsmExec *ex, PsmSqlStmt *stmt);
extern void psm_fetch(PsmExec *ex, PsmStmt *stmt, PsmExpr *query, Portal portal, long n);
extern Portal psm_open_cursor(PsmExec *ex, PsmExpr *query, PsmCursor *cursor);
extern void psm_exec_open(PsmExec *ex, PsmCursorStmt *stmt);
extern bool psm_exec_fetch(PsmExec *ex, PsmCursorStmt *stmt);
extern void psm_exec_close(PsmExec *ex, PsmCursorStmt *stmt);

/* In position.c: where in the script an error comes from */

/* What psm_compile_error_callback is told: whose text is being compiled */
typedef struct PsmSource
{
	const char *text;
	const char *function;		/* "f(integer)", NULL for a block */
} PsmSource;

extern const char *psm_stmt_name(const PsmStmt *stmt);
extern void psm_compile_error_callback(void *arg);
extern void psm_exec_error_callback(void *arg);
extern PsmPos psm_exec_pos(const PsmExec *ex);
extern int	psm_error_line(void);
extern void psm_error_line_clear(void);
extern void psm_error_line_set(int line);
extern int	psm_error_offset(PsmExec *ex);
extern int	psm_run_errposition(PsmExec *ex, int offset);
extern int	psm_char_offset(const char *text, int pos);

/* In condition.c */
extern PsmHandler *psm_handler_find(PsmExec *ex, int sqlstate, bool failed, PsmFrame **found);
extern PsmHandler *psm_handler_for_error(PsmExec *ex, int sqlstate,
										 const PsmDiagnostics *before, PsmFrame **found);
extern ErrorData *psm_not_found(PsmExec *ex);
extern bool psm_completion_handled(PsmExec *ex, int sqlstate);
extern ErrorData *psm_error_take(PsmExec *ex, bool passing);
extern PsmDiagnostics *psm_diagnostics_make(PsmExec *ex, ErrorData *error, int line);
extern void psm_diagnostics_free(PsmDiagnostics *diagnostics);
extern ErrorData *psm_signal(PsmExec *ex, PsmSignal *stmt);
extern void psm_get_diagnostics(PsmExec *ex, PsmGetDiagnostics *stmt);

/* In guess.c */

/* The message for r.x when the row r has no such column */
#define PSM_NO_SUCH_FIELD "row \"%s\" has no column \"%s\""

/* The nearest of the names tried to the one that is wanted */
typedef struct PsmGuess
{
	const char *wanted;
	const char *best;			/* NULL: none is near */
	int			distance;
	const char *form;			/* of names in SQL: "variable", "column", "parameter" */
	const char *qualifier;		/* likewise: what stands before it and a dot, or NULL */
} PsmGuess;

extern void psm_guess_init(PsmGuess *guess, const char *wanted);
extern bool psm_guess_try(PsmGuess *guess, const char *name);
extern const char *psm_guess_hint(const PsmGuess *guess, const char *otherwise);
extern void psm_guess_fields(PsmGuess *guess, const PsmVar *var);
extern const char *psm_guess_column(PsmExec *ex, const PsmExpr *expr, int offset);

/* In operations.c */
extern bool psm_writes_rows(int spi_code);
extern void psm_count_written(PsmExec *ex, PsmStmt *stmt, PsmExpr *query, uint64 rows);
extern void psm_error_blame_writer(PsmExec *ex, ErrorData *error);
extern Jsonb *psm_exec_operations(PsmExec *ex, int64 *rows);

/* In savepoint.c */
extern void psm_savepoint_begin(PsmExec *ex, PsmSavepoint *savepoint);
extern void psm_savepoint_release(PsmExec *ex, PsmSavepoint *savepoint);
extern void psm_savepoint_rollback(PsmExec *ex, PsmSavepoint *savepoint);
extern void psm_savepoint_renew(PsmExec *ex);
extern void psm_savepoint_leave(PsmExec *ex);

/* In dynamic.c */
extern bool psm_exec_immediate(PsmExec *ex, PsmExecute *stmt);
extern Node *psm_dynamic_parse(char **text, int nusing);

/* In call.c */
extern void psm_call_check(PsmExec *ex, PsmExpr *expr);
extern void psm_call_outputs(PsmExec *ex, PsmExpr *expr, SPITupleTable *tuples);

/* In timeout.c */
extern volatile sig_atomic_t psm_timed_out;
extern bool psm_timeout_begin(void);
extern void psm_timeout_end(void);
extern void psm_timeout_check(void);
extern void psm_timeout_error_callback(void *arg);
extern void psm_timeout_error(void);

/* In cache.c */
extern PsmScript *psm_compile(const char *source, Jsonb *params);
extern PsmScript *psm_cache_get(const char *source, int length, Jsonb *params);
extern void psm_script_unuse(PsmScript *script);
extern void psm_script_free(PsmScript *script);

/* In function.c: functions, procedures and triggers in LANGUAGE psm */
typedef struct PsmFunction PsmFunction;
extern PsmFunction *psm_function_get(FunctionCallInfo fcinfo);
extern void psm_function_validate(Oid funcid);
extern Datum psm_function_call(FunctionCallInfo fcinfo, PsmFunction *function);

/* In returntable.c */
extern void psm_return_table(PsmExec *ex, PsmExpr *query, ReturnSetInfo *rsi, ResourceOwner owner,
							 Tuplestorestate **tuples);

/* In trigger.c */
extern int	psm_trigger_arguments(Relation rel, PsmArgument **args);
extern void psm_trigger_mentions(PsmScript *script);
extern Datum psm_trigger_call(FunctionCallInfo fcinfo, PsmScript *script);

/* In run.c */

/* A batch that owns its transactions; lives as long as the CALL's portal */
typedef struct PsmRun
{
	char	   *source;
	int			length;
	Jsonb	   *params;
	TwClaim		claim;
	int			isolation;		/* XACT_READ_COMMITTED, ... */
	TwTrackMode tracking;
	int			max_attempts;
	MemoryContext mcxt;			/* of outcomes and errors */
} PsmRun;

extern void psm_run_require_call(FunctionCallInfo fcinfo, const char *name);
extern void psm_run_read_conflicts(PsmRun *run, const char *conflicts);
extern void psm_run_batch(PsmRun *run, TwOutcome *outcome);

/* In atomic.c */

/* What becomes of deferred constraints at the end of a block */
typedef enum PsmConstraints
{
	PSM_LEAVE_DEFERRED,			/* nothing */
	PSM_CHECK_DEFERRED,			/* they are checked, and stay deferred */
	PSM_MAKE_IMMEDIATE			/* they are checked, and so is what comes after */
} PsmConstraints;

extern void psm_block_look(const char *source, int length, Jsonb *params, TwOutcome *outcome);
extern void psm_block_run(const char *source, int length, Jsonb *params,
						  PsmConstraints constraints, TwOutcome *outcome);
extern char *psm_block_text(FunctionCallInfo fcinfo, Jsonb **params);
extern char *psm_block_arguments(FunctionCallInfo fcinfo, int *length, Jsonb **params,
								 TwClaim *claim);

#pragma GCC visibility pop

#endif							/* TW_PSM_H */
