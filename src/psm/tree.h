/*
 * tree.h
 *		What a script is once it has been parsed: names, pieces of SQL, the tree of
 *		statements.
 *
 * parse.c makes it, check.c looks at it, exec.c walks it.  All of it lives in
 * PsmScript.mcxt and belongs to every execution of the script alike: what an
 * execution keeps is in PsmExec, by the numbers of variables, cursors,
 * parameters and statements given here.  Of what changes after the script has
 * been checked each field says so.
 */
#ifndef TW_TREE_H
#define TW_TREE_H

#include "tw.h"

#include "access/tupdesc.h"
#include "lib/ilist.h"
#include "nodes/pg_list.h"
#include "parser/parser.h"
#include "utils/jsonb.h"

typedef struct PsmScript PsmScript;
typedef struct PsmScope PsmScope;

/* A place in the script: byte offset, and the line and column a person counts. */
typedef struct PsmPos
{
	int			offset;			/* bytes from the start of the script */
	int			line;			/* from 1 */
	int			column;			/* from 1, in characters */
} PsmPos;

/* ---------- names ---------- */

typedef enum PsmVarKind
{
	PSM_VAR_SCALAR,				/* any type that is one Datum, arrays included */
	PSM_VAR_ROW					/* composite type, FOR row, NEW, OLD: a field a value */
} PsmVarKind;

typedef struct PsmExpr PsmExpr;
typedef struct PsmHostRef PsmHostRef;

typedef struct PsmVar
{
	PsmVarKind	kind;
	int			number;			/* index in PsmScript.vars and PsmExec.values */
	char	   *name;			/* as folded; NULL for an unnamed FOR row */
	PsmScope   *scope;			/* where it is declared */
	PsmPos		pos;
	bool		for_row;		/* the columns of a FOR query, visible by their own names too */
	bool		constant;		/* may not be assigned (FOR rows) */

	/* The type: text from the parser; the rest set by psm_script_resolve_types() */
	char	   *typename;		/* NULL for a FOR row, whose type its query gives */
	const PsmHostRef *host;		/* CASE :name: the operand is this parameter itself */
	Oid			type;
	int32		typmod;
	Oid			collation;
	int16		typlen;
	bool		typbyval;
	bool		expanded;		/* an array whose elements are used: kept as an expanded object */
	PsmExpr    *init;			/* DEFAULT, or NULL */

	/* PSM_VAR_ROW only: the columns.  FOR rows: set whenever the query is opened. */
	TupleDesc	tupdesc;
	uint64		tupdesc_id;		/* typcache's identifier, 0 for FOR rows */
	bool		domain;			/* type is a domain over that composite type */
} PsmVar;

typedef struct PsmCondition
{
	char	   *name;
	int			sqlstate;		/* packed as by MAKE_SQLSTATE; 45000 when not given */
	PsmScope   *scope;
} PsmCondition;

typedef struct PsmCursor
{
	char	   *name;
	int			number;			/* index in PsmExec.cursors */
	PsmScope   *scope;
	PsmPos		pos;
	PsmExpr    *query;			/* NULL: it is the loop FOR ... CURSOR FOR's own */
} PsmCursor;

struct PsmScope
{
	PsmScope   *parent;			/* NULL for the outermost */
	char	   *label;			/* NULL when the block or loop has none */
	List	   *vars;			/* PsmVar, in order of declaration */
	List	   *conditions;		/* PsmCondition */
	List	   *cursors;		/* PsmCursor */
};

/* ---------- SQL in the script ---------- */

/* A :name or params.name in a piece of SQL */
struct PsmHostRef
{
	int			offset;			/* in PsmExpr.text: where '$1' or 'params' starts */
	int			length;			/* bytes of the whole reference, :name or params.name */
	int			host;			/* index in PsmScript.hosts */
	bool		dotted;			/* params.name: a column of that name wins */
	bool		cast_context;	/* stands before '::' or in CAST( or ANY( / ALL( / SOME(: an
								 * object or array keeps the type of its place instead of
								 * jsonb */
};

/* A parameter of the script, by name */
typedef struct PsmHost
{
	char	   *written;		/* as spelled: tried first as key */
	char	   *folded;			/* in lower case (the same when quoted): tried next */
	bool		optional;		/* only seen as params.name in statements that have a table or alias
								 * called params: unknown is no error then */
	bool		container;		/* compiled for an object or array */
	PsmPos		pos;			/* first use */
} PsmHost;

/*
 * A piece of SQL: a statement or an expression.
 *
 * text is prefix bytes of ours and then the script's text from pos.offset on,
 * byte for byte, so that byte prefix + n of the text is byte pos.offset + n of
 * the script.  Only what PostgreSQL must not see is overwritten in place: :name
 * by '$1' and blanks (the occurrence is known by its offset, not its number),
 * and an INTO clause by blanks.
 */
struct PsmExpr
{
	PsmScript  *script;
	PsmPos		pos;
	char	   *text;
	int			prefix;			/* bytes at the start of text that are not the script's */
	RawParseMode mode;			/* RAW_PARSE_DEFAULT: a statement; RAW_PARSE_PLPGSQL_EXPR: an
								 * expression, which is planned as PSM_LEAD and text */
	PsmScope   *scope;			/* names are looked up from here outwards */
	int			nvisible;		/* only vars with a smaller number are declared yet */
	PsmHostRef *hosts;			/* by offset */
	int			nhosts;
	bool		lone_host;		/* the whole text is one :name: see psm_eval_for() */
	PsmVar	   *target;			/* SET gives its value, which it may change in place, to this;
								 * or NULL */
	bool		spliced;		/* a utility statement with :name: run from text made anew each
								 * time, a quoted literal for each */

	struct PsmPlan *plan;		/* owned by expr.c; NULL until first used */
};

/* What stands before an expression when it is planned */
#define PSM_LEAD "SELECT "
#define PSM_LEAD_LENGTH ((int) sizeof(PSM_LEAD) - 1)
#define psm_lead_length(expr) \
	((expr)->mode == RAW_PARSE_PLPGSQL_EXPR ? PSM_LEAD_LENGTH : 0)

/* ---------- the tree ---------- */

typedef enum PsmStmtKind
{
	PSM_COMPOUND,
	PSM_SET,
	PSM_SET_ROW,
	PSM_SQL,
	PSM_IF,
	PSM_CASE,
	PSM_LOOP,
	PSM_WHILE,
	PSM_REPEAT,
	PSM_FOR,
	PSM_LEAVE,
	PSM_ITERATE,
	PSM_OPEN,
	PSM_FETCH,
	PSM_CLOSE,
	PSM_SIGNAL,
	PSM_RESIGNAL,
	PSM_GET_DIAGNOSTICS,
	PSM_EXECUTE,
	PSM_RETURN
} PsmStmtKind;

/* Head of every statement */
typedef struct PsmStmt
{
	PsmStmtKind kind;
	int			number;			/* index in PsmScript.stmts and PsmExec.counts */
	PsmPos		pos;
} PsmStmt;

/* Where a value goes: a variable, or a field of a row variable */
typedef struct PsmTarget
{
	PsmVar	   *var;
	char	   *field;			/* NULL: the variable itself */
	PsmPos		pos;
} PsmTarget;

/* One of several conditions a handler is for */
typedef enum PsmHandlerCond
{
	PSM_ON_SQLSTATE,			/* SQLSTATE 'x' or a declared condition */
	PSM_ON_NOT_FOUND,
	PSM_ON_SQLWARNING,
	PSM_ON_SQLEXCEPTION
} PsmHandlerCond;

typedef struct PsmHandledState
{
	PsmHandlerCond kind;
	int			sqlstate;		/* PSM_ON_SQLSTATE only */
} PsmHandledState;

typedef enum PsmHandlerKind
{
	PSM_CONTINUE,
	PSM_EXIT,
	PSM_UNDO
} PsmHandlerKind;

typedef struct PsmHandler
{
	PsmHandlerKind kind;
	List	   *states;			/* PsmHandledState */
	PsmStmt    *action;
	PsmPos		pos;
} PsmHandler;

/* [label:] BEGIN [[NOT] ATOMIC] ... END */
typedef struct PsmCompound
{
	PsmStmt		stmt;
	PsmScope   *scope;
	bool		atomic;			/* the outermost always is */
	List	   *vars;			/* PsmVar to be initialised at entry, in order */
	List	   *handlers;		/* PsmHandler */
	bool		catches_errors; /* some handler is for class 03 and up, or for SQLEXCEPTION: costs a
								 * subtransaction a statement or a block */
	List	   *body;			/* PsmStmt */
} PsmCompound;

/* SET a = e.  SET a = e, b = f is two of them, one after the other. */
typedef struct PsmSet
{
	PsmStmt		stmt;
	PsmTarget	target;
	PsmExpr    *value;
} PsmSet;

/* SET (a, b) = (query), or = (e, f): all evaluated before any is assigned */
typedef struct PsmSetRow
{
	PsmStmt		stmt;
	List	   *targets;		/* PsmTarget */
	PsmExpr    *query;			/* or NULL: */
	List	   *values;			/* PsmExpr, as many as targets */
} PsmSetRow;

/* Any SQL statement, SELECT ... INTO and DML ... RETURNING ... INTO included */
typedef struct PsmSqlStmt
{
	PsmStmt		stmt;
	PsmExpr    *sql;
	List	   *into;			/* PsmTarget, NIL when no INTO */
	const char *command;		/* "INSERT", "CREATE TABLE", ...: from the raw parse tree's
								 * command tag */
	bool		utility;		/* not SELECT, VALUES, INSERT, UPDATE, DELETE or MERGE */
	bool		call;			/* CALL: variables receive output arguments */
} PsmSqlStmt;

typedef struct PsmBranch
{
	PsmExpr    *when;			/* a boolean expression */
	List	   *body;			/* PsmStmt */
	PsmPos		pos;
} PsmBranch;

typedef struct PsmIf
{
	PsmStmt		stmt;
	List	   *branches;		/* PsmBranch */
	List	   *otherwise;		/* PsmStmt */
	bool		has_else;
} PsmIf;

/*
 * CASE.  For a simple CASE the operand is evaluated once into a hidden
 * variable, and each WHEN becomes the boolean expression
 * "case operand" IN (what is written there).
 */
typedef struct PsmCase
{
	PsmStmt		stmt;
	PsmExpr    *operand;		/* NULL: searched */
	PsmVar	   *operand_var;	/* gets its type when the operand is prepared; NULL: searched */
	List	   *branches;		/* PsmBranch */
	List	   *otherwise;
	bool		has_else;		/* without: 20000 case_not_found */
} PsmCase;

/* LOOP, WHILE, REPEAT */
typedef struct PsmLoop
{
	PsmStmt		stmt;
	PsmScope   *scope;			/* has the label, no names */
	PsmExpr    *condition;		/* WHILE: run while true; REPEAT: until true; LOOP: NULL */
	List	   *body;
} PsmLoop;

typedef struct PsmFor
{
	PsmStmt		stmt;
	PsmScope   *scope;			/* has the label and the row */
	PsmVar	   *row;			/* PSM_VAR_ROW with for_row; name NULL when not named */
	PsmCursor  *cursor;			/* FOR r AS c CURSOR FOR ...; NULL otherwise */
	PsmExpr    *query;
	List	   *body;
} PsmFor;

/* LEAVE label, ITERATE label */
typedef struct PsmJump
{
	PsmStmt		stmt;
	PsmScope   *target;			/* scope of the block or loop that has the label */
} PsmJump;

/* OPEN c, CLOSE c, FETCH [[NEXT] FROM] c INTO ... */
typedef struct PsmCursorStmt
{
	PsmStmt		stmt;
	PsmCursor  *cursor;
	List	   *into;			/* PsmTarget; FETCH only */
} PsmCursorStmt;

typedef enum PsmItem
{
	/* of SIGNAL and GET STACKED DIAGNOSTICS */
	PSM_ITEM_MESSAGE_TEXT,
	PSM_ITEM_DETAIL,
	PSM_ITEM_HINT,
	PSM_ITEM_TABLE_NAME,
	PSM_ITEM_SCHEMA_NAME,
	PSM_ITEM_COLUMN_NAME,
	PSM_ITEM_CONSTRAINT_NAME,
	PSM_NUM_SIGNAL_ITEMS,
	/* of GET DIAGNOSTICS only */
	PSM_ITEM_RETURNED_SQLSTATE = PSM_NUM_SIGNAL_ITEMS,
	PSM_ITEM_ROW_COUNT,
	PSM_ITEM_LINE_NUMBER,
	PSM_ITEM_NUMBER				/* how many conditions there are */
} PsmItem;

/* SIGNAL and RESIGNAL */
typedef struct PsmSignal
{
	PsmStmt		stmt;
	int			sqlstate;		/* 0: RESIGNAL without a condition */
	const char *condition_name; /* when signalled by a declared name */
	PsmExpr    *items[PSM_NUM_SIGNAL_ITEMS];	/* NULL: not set */
} PsmSignal;

typedef struct PsmDiagItem
{
	PsmTarget	target;
	PsmItem		item;
} PsmDiagItem;

typedef struct PsmGetDiagnostics
{
	PsmStmt		stmt;
	bool		stacked;
	PsmExpr    *condition;		/* CONDITION n; NULL: the statement area, or CONDITION 1 */
	List	   *items;			/* PsmDiagItem */
} PsmGetDiagnostics;

typedef struct PsmExecute
{
	PsmStmt		stmt;
	PsmExpr    *text;
	List	   *into;			/* PsmTarget */
	List	   *using;			/* PsmExpr */
} PsmExecute;

typedef struct PsmReturn
{
	PsmStmt		stmt;
	PsmExpr    *value;			/* RETURN expr, or NULL */
	PsmExpr    *query;			/* RETURN TABLE query, or NULL */
} PsmReturn;

/* ---------- a script, compiled ---------- */

struct PsmScript
{
	MemoryContext mcxt;
	char	   *source;			/* the whole text, NUL-terminated */
	char	   *function;		/* "f(integer)" for CONTEXT; NULL: an atomic block */
	PsmCompound *body;
	PsmVar	  **vars;			/* all variables, by number */
	int			nvars;
	int			nargs;			/* functions: the first variables are the arguments */
	uint32		mentioned;		/* triggers: the arguments that the body mentions, a bit each */
	int			ncursors;
	PsmHost    *hosts;
	int			nhosts;
	PsmStmt   **stmts;			/* all statements, by number */
	int			nstmts;
	List	   *exprs;			/* every PsmExpr */
	bool		has_handlers;	/* somewhere: its executions begin subtransactions */

	/* owned by cache.c */
	int			in_use;			/* executions under way */
	bool		stale;			/* no longer in the cache: freed when nobody uses it */
	uint64		cache_key;
	List	   *search_path;	/* schemas that it was compiled under, by OID */
	int			scanner_settings;	/* likewise */
	Oid			role;			/* likewise */
	dlist_node	chain;			/* scripts with the same cache_key */
	dlist_node	recent;			/* all cached scripts, last used first */

	/* owned by operations.c: the operations of the last execution, see operations_json() */
	TwOperation *last_ops;
	int			last_nops;
	uint64		last_generation;
	Jsonb	   *last_json;

	List	   *retired;		/* SPIPlanPtr: plans replaced while they may be running */
	uint64		shape;			/* bumped when a row's columns change: plans made before are
								 * made again */
};

#endif							/* TW_TREE_H */
