/*
 * check.c
 *		Refuses what can be refused before anything runs.
 *
 * Every piece of SQL goes through PostgreSQL's raw parser here, also in branches
 * that may never be taken: it needs no catalogs, so it cannot be wrong later
 * because a table was made earlier in the same block.  Its error positions are
 * in the piece; a context callback turns them into positions in the script.
 *
 * Statements that would end the transaction, or that PostgreSQL refuses inside
 * one, are told from their raw parse trees.
 */
#include "psm/parse.h"

#include <ctype.h>

#include "commands/defrem.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/cmdtag.h"
#include "tcop/utility.h"
#include "utils/memutils.h"

/* What a callback needs to find the script's position of an error in a piece */
typedef struct PieceError
{
	const char *source;
	const char *text;			/* what is being parsed */
	int			prefix;			/* bytes of text in front of the script's */
	int			offset;			/* of the rest, in the script */
	int			length;			/* of the rest, without what follows it */
	ErrorContextCallback callback;
} PieceError;

/* ---------- positions ---------- */

/*
 * Byte offset in text of character number position, from 1; at most its end.
 */
static int
byte_offset(const char *text, int position)
{
	int			encoding = GetDatabaseEncoding();
	int			length = strlen(text);
	int			offset = 0;

	while (--position > 0 && offset < length)
	{
		if (IS_HIGHBIT_SET(text[offset]))
			offset += pg_encoding_mblen(encoding, text + offset);
		else
			offset++;
	}
	return Min(offset, length);
}

/*
 * True when what stands at an offset of a piece is the first on a line of its
 * own, as the next statement is when the semicolon before it was forgotten.
 */
static bool
begins_line(const PieceError *piece, int offset)
{
	const char *start = piece->text + piece->prefix;
	const char *at = start + offset;

	while (at > start && (at[-1] == ' ' || at[-1] == '\t'))
		at--;
	return at > start && at[-1] == '\n';
}

/* A parameter where none can stand, which is $1 in the piece, or one in quotes, as psql has them */
static bool
explain_parameter(const PieceError *piece, int offset)
{
	const char *written = piece->source + piece->offset + offset;
	int			length = 1;

	if (written[0] != ':')
		return false;
	if (written[1] == '\'')
	{
		errhint("Write a parameter as :name, without quotes.");
		return true;
	}
	if (offset >= piece->length || piece->text[piece->prefix + offset] != '$')
		return false;
	if (written[1] == '"')
		length = strcspn(written + 2, "\"") + 3;
	else
		while (isalnum((unsigned char) written[length]) || written[length] == '_' ||
			   IS_HIGHBIT_SET(written[length]))
			length++;
	errmsg("syntax error at or near \"%.*s\"", length, written);
	errhint("A parameter is a value: it cannot be a name, and a type stands behind it, as in :day::date.");
	return true;
}

static void
translate_position(void *arg)
{
	const PieceError *piece = arg;
	int			position = geterrposition();
	int			offset;

	if (position <= 0)
		return;
	offset = byte_offset(piece->text, position) - piece->prefix;
	offset = Max(offset, 0);
	offset = Min(offset, piece->length);
	psm_errposition(piece->source, piece->offset + offset);

	if (geterrcode() != ERRCODE_SYNTAX_ERROR)
		return;
	if (explain_parameter(piece, offset))
		return;
	if (offset == piece->length)
		errdetail("The SQL ends here, incomplete.");
	else if (begins_line(piece, offset))
		errhint("A semicolon may be missing before it.");
}

static void
push_piece(PieceError *piece)
{
	piece->callback.callback = translate_position;
	piece->callback.arg = piece;
	piece->callback.previous = error_context_stack;
	error_context_stack = &piece->callback;
}

static void
pop_piece(PieceError *piece)
{
	error_context_stack = piece->callback.previous;
}

int
psm_expr_offset(const PsmExpr *expr, int cursorpos)
{
	if (cursorpos <= 0)
		return -1;
	return expr->pos.offset + Max(byte_offset(expr->text, cursorpos) - expr->prefix, 0);
}

/* ---------- raw parsing ---------- */

static Node *
parse_text(const PsmExpr *expr, const char *text, int prefix, RawParseMode mode)
{
	PieceError	piece;
	List	   *list;

	piece.source = expr->script->source;
	piece.text = text;
	piece.prefix = prefix;
	piece.offset = expr->pos.offset;
	piece.length = strlen(text) - prefix;
	push_piece(&piece);
	list = raw_parser(text, mode);
	pop_piece(&piece);

	/* a semicolon ends every piece, so there is exactly one */
	if (list_length(list) != 1)
		elog(ERROR, "a piece of SQL holds %d statements", list_length(list));
	return linitial_node(RawStmt, list)->stmt;
}

/*
 * The type of a variable, given where it stands
 */
void
psm_check_type(const char *source, const char *typename, int offset)
{
	PieceError	piece;
	TypeName   *type;

	piece.source = source;
	piece.text = typename;
	piece.prefix = 0;
	piece.offset = offset;
	piece.length = strlen(typename);
	push_piece(&piece);
	type = linitial_node(TypeName, raw_parser(typename, RAW_PARSE_TYPE_NAME));
	pop_piece(&piece);
	if (type->setof)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("a variable cannot be a set"),
				 psm_errposition(source, offset)));
}

/*
 * A statement's text with '' for each parameter: in place, so that positions
 * stay.
 */
static char *
literal_text(const PsmExpr *expr)
{
	char	   *text = pstrdup(expr->text);

	for (int i = 0; i < expr->nhosts; i++)
	{
		memset(text + expr->hosts[i].offset, ' ', expr->hosts[i].length);
		memcpy(text + expr->hosts[i].offset, "''", 2);
	}
	return text;
}

Node *
psm_raw_parse(const PsmExpr *expr)
{
	return parse_text(expr, expr->spliced ? literal_text(expr) : expr->text, expr->prefix,
					  expr->mode);
}

/* ---------- what cannot run in a block ---------- */

typedef struct Refusal
{
	const char *what;			/* "VACUUM", or NULL: nothing against it */
	int			code;
	const char *detail;
	const char *hint;
} Refusal;

static const char *const in_transaction =
"The whole block is one transaction, and this cannot run inside a transaction.";

static Refusal
outside_only(const char *what)
{
	Refusal		refusal = {what, ERRCODE_ACTIVE_SQL_TRANSACTION, in_transaction,
	"Run it on its own."};

	return refusal;
}

static Refusal
transaction_control(const TransactionStmt *stmt)
{
	Refusal		refusal = {NULL, ERRCODE_INVALID_TRANSACTION_TERMINATION,
		"The whole block is one transaction, which is committed or rolled back from outside.",
	NULL};

	switch (stmt->kind)
	{
		case TRANS_STMT_BEGIN:
			refusal.what = "BEGIN";
			break;
		case TRANS_STMT_START:
			refusal.what = "START TRANSACTION";
			break;
		case TRANS_STMT_COMMIT:
			refusal.what = "COMMIT";
			break;
		case TRANS_STMT_ROLLBACK:
			refusal.what = "ROLLBACK";
			refusal.hint = "Use SIGNAL to fail and undo everything.";
			break;
		case TRANS_STMT_SAVEPOINT:
			refusal.what = "SAVEPOINT";
			refusal.hint = "A nested BEGIN ATOMIC ... END is a savepoint.";
			break;
		case TRANS_STMT_RELEASE:
			refusal.what = "RELEASE SAVEPOINT";
			refusal.hint = "A nested BEGIN ATOMIC ... END is a savepoint.";
			break;
		case TRANS_STMT_ROLLBACK_TO:
			refusal.what = "ROLLBACK TO SAVEPOINT";
			refusal.hint = "A nested BEGIN ATOMIC ... END with an UNDO handler is undone.";
			break;
		case TRANS_STMT_PREPARE:
			refusal.what = "PREPARE TRANSACTION";
			break;
		case TRANS_STMT_COMMIT_PREPARED:
			refusal.what = "COMMIT PREPARED";
			break;
		case TRANS_STMT_ROLLBACK_PREPARED:
			refusal.what = "ROLLBACK PREPARED";
			break;
	}
	return refusal;
}

/* Value of a boolean option, as PostgreSQL reads it, or otherwise when not given */
static bool
option_is_set(List *options, const char *name, bool otherwise)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (strcmp(option->defname, name) == 0)
			return defGetBoolean(option);
	}
	return otherwise;
}

static Refusal
alter_table(const AlterTableStmt *stmt)
{
	ListCell   *lc;
	Refusal		none = {NULL};

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_DetachPartition && castNode(PartitionCmd, cmd->def)->concurrent)
			return outside_only("ALTER TABLE ... DETACH PARTITION ... CONCURRENTLY");
	}
	return none;
}

static Refusal
reindex(const ReindexStmt *stmt)
{
	Refusal		none = {NULL};

	if (option_is_set(stmt->params, "concurrently", false))
		return outside_only("REINDEX CONCURRENTLY");
	switch (stmt->kind)
	{
		case REINDEX_OBJECT_SCHEMA:
			return outside_only("REINDEX SCHEMA");
		case REINDEX_OBJECT_SYSTEM:
			return outside_only("REINDEX SYSTEM");
		case REINDEX_OBJECT_DATABASE:
			return outside_only("REINDEX DATABASE");
		default:
			return none;
	}
}

static Refusal
copy(const CopyStmt *stmt)
{
	Refusal		refusal = {NULL, ERRCODE_FEATURE_NOT_SUPPORTED,
		"A block has no connection to the client while it runs.",
	"Use a file of the server, or copy into a temporary table before the block."};

	if (stmt->filename == NULL && !stmt->is_program)
		refusal.what = stmt->is_from ? "COPY FROM STDIN" : "COPY TO STDOUT";
	return refusal;
}

/*
 * What is to be said against a statement
 */
static Refusal
refuse_statement(Node *stmt)
{
	Refusal		refusal = {NULL};

	switch (nodeTag(stmt))
	{
		case T_TransactionStmt:
			return transaction_control((TransactionStmt *) stmt);
		case T_VariableSetStmt:
			{
				VariableSetStmt *set = (VariableSetStmt *) stmt;

				if (set->kind == VAR_SET_MULTI && strncmp(set->name, "TRANSACTION", 11) == 0)
				{
					refusal.what = "SET TRANSACTION";
					refusal.code = ERRCODE_INVALID_TRANSACTION_TERMINATION;
					refusal.detail = "The block's transaction has begun already.";
					refusal.hint = "Set it where the transaction begins.";
				}
				return refusal;
			}
		case T_CopyStmt:
			return copy((CopyStmt *) stmt);
		case T_VacuumStmt:
			if (((VacuumStmt *) stmt)->is_vacuumcmd)
				return outside_only("VACUUM");
			return refusal;
		case T_CreatedbStmt:
			return outside_only("CREATE DATABASE");
		case T_DropdbStmt:
			return outside_only("DROP DATABASE");
		case T_AlterDatabaseStmt:
			{
				ListCell   *lc;

				foreach(lc, ((AlterDatabaseStmt *) stmt)->options)
					if (strcmp(lfirst_node(DefElem, lc)->defname, "tablespace") == 0)
						return outside_only("ALTER DATABASE ... SET TABLESPACE");
				return refusal;
			}
		case T_CreateTableSpaceStmt:
			return outside_only("CREATE TABLESPACE");
		case T_DropTableSpaceStmt:
			return outside_only("DROP TABLESPACE");
		case T_IndexStmt:
			if (((IndexStmt *) stmt)->concurrent)
				return outside_only("CREATE INDEX CONCURRENTLY");
			return refusal;
		case T_DropStmt:
			if (((DropStmt *) stmt)->concurrent)
				return outside_only("DROP INDEX CONCURRENTLY");
			return refusal;
		case T_ReindexStmt:
			return reindex((ReindexStmt *) stmt);
		case T_ClusterStmt:
			if (((ClusterStmt *) stmt)->relation == NULL)
				return outside_only("CLUSTER of all tables");
			return refusal;
		case T_AlterSystemStmt:
			return outside_only("ALTER SYSTEM");
		case T_AlterTableStmt:
			return alter_table((AlterTableStmt *) stmt);
		case T_CreateSubscriptionStmt:
			{
				List	   *options = ((CreateSubscriptionStmt *) stmt)->options;

				if (option_is_set(options, "create_slot",
								  option_is_set(options, "connect", true)))
					return outside_only("CREATE SUBSCRIPTION");
				return refusal;
			}
		case T_DiscardStmt:
			if (((DiscardStmt *) stmt)->target == DISCARD_ALL)
				return outside_only("DISCARD ALL");
			return refusal;
		default:
			return refusal;
	}
}

/* ---------- pieces ---------- */

/* SELECT ... INTO a new table, anywhere in a set operation */
static bool
selects_into_table(const SelectStmt *select)
{
	while (select->op != SETOP_NONE)
		select = select->larg;
	return select->intoClause != NULL;
}

static bool
gives_rows(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_SelectStmt:
			return !selects_into_table((SelectStmt *) stmt);
		case T_InsertStmt:
			return TW_HAS_RETURNING((InsertStmt *) stmt);
		case T_UpdateStmt:
			return TW_HAS_RETURNING((UpdateStmt *) stmt);
		case T_DeleteStmt:
			return TW_HAS_RETURNING((DeleteStmt *) stmt);
		case T_MergeStmt:
			return TW_MERGE_HAS_RETURNING((MergeStmt *) stmt);
		default:
			return false;
	}
}

static bool
is_utility(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_SelectStmt:
			return selects_into_table((SelectStmt *) stmt);
		case T_InsertStmt:
		case T_UpdateStmt:
		case T_DeleteStmt:
		case T_MergeStmt:
			return false;
		default:
			return true;
	}
}

/* Utility statements in which PostgreSQL takes parameters, since a query is in them */
static bool
takes_parameters(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_CallStmt:
		case T_SelectStmt:
		case T_DeclareCursorStmt:
			return true;
		case T_CreateTableAsStmt:
			return ((CreateTableAsStmt *) stmt)->objtype == OBJECT_TABLE &&
				!IsA(((CreateTableAsStmt *) stmt)->query, ExecuteStmt);
		case T_ExplainStmt:
			return !IsA(((ExplainStmt *) stmt)->query, ExecuteStmt);
		default:
			return false;
	}
}

static void
check_expression(PsmExpr *expr)
{
	Node	   *stmt;
	SelectStmt *select;
	ResTarget  *target;

	/* the list of a WHEN is looked at without what we put around it */
	if (expr->prefix > 0)
	{
		char	   *inner = pstrdup(expr->text + expr->prefix);

		inner[strlen(inner) - 1] = '\0';
		(void) parse_text(expr, inner, 0, expr->mode);
	}

	stmt = parse_text(expr, expr->text, expr->prefix, expr->mode);
	if (IsA(stmt, PLAssignStmt))
		stmt = (Node *) ((PLAssignStmt *) stmt)->val;
	select = castNode(SelectStmt, stmt);
	target = select->targetList ? linitial_node(ResTarget, select->targetList) : NULL;
	if (list_length(select->targetList) != 1 ||
		target->name != NULL || target->indirection != NIL ||
		select->distinctClause != NIL || select->fromClause != NIL ||
		select->whereClause != NULL || select->groupClause != NIL ||
		select->havingClause != NULL || select->windowClause != NIL ||
		select->sortClause != NIL || select->limitOffset != NULL ||
		select->limitCount != NULL || select->lockingClause != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("an expression that gives one value was expected"),
				 target != NULL && target->name != NULL ?
				 errhint("An expression has no name of its own: leave out \"%s\".", target->name) :
				 errhint("A query in an expression stands in parentheses."),
				 psm_errposition(expr->script->source, expr->pos.offset)));
}

/*
 * Refuses a statement that may not run in a block; offset is its place in
 * source, or source is NULL for one that was made at run time.
 */
void
psm_check_runnable(Node *stmt, const char *source, int offset)
{
	Refusal		refusal = refuse_statement(stmt);

	if (refusal.what != NULL)
		ereport(ERROR,
				(errcode(refusal.code),
				 errmsg("%s cannot run in a block", refusal.what),
				 errdetail("%s", refusal.detail),
				 refusal.hint ? errhint("%s", refusal.hint) : 0,
				 source ? psm_errposition(source, offset) : 0));
}

/*
 * A statement; sql is NULL for the query of a FOR, a cursor, RETURN TABLE or SET.
 */
static void
check_statement(PsmExpr *expr, PsmSqlStmt *sql)
{
	const char *source = expr->script->source;
	Node	   *stmt;

	/* the parser's guess from the first word: utility statements take no $1 */
	stmt = parse_text(expr, expr->spliced ? literal_text(expr) : expr->text, 0, expr->mode);
	psm_check_runnable(stmt, source, expr->pos.offset);
	expr->spliced = expr->nhosts > 0 && is_utility(stmt) && !takes_parameters(stmt);

	if ((sql == NULL || sql->into != NIL) && !gives_rows(stmt))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("a query that returns rows was expected"),
				 is_utility(stmt) ? 0 : errhint("Add RETURNING."),
				 psm_errposition(source, expr->pos.offset)));
	if (sql != NULL)
	{
		sql->command = GetCommandTagName(CreateCommandTag(stmt));
		sql->utility = is_utility(stmt);
		sql->call = IsA(stmt, CallStmt);
	}
}

void
psm_check(PsmScript *script)
{
	MemoryContext scratch;
	MemoryContext caller;
	ListCell   *lc;
	int			next = 0;

	scratch = AllocSetContextCreate(CurrentMemoryContext, "psm check", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(scratch);

	/* pieces and statements are both in the order of the script */
	foreach(lc, script->exprs)
	{
		PsmExpr    *expr = lfirst(lc);
		PsmSqlStmt *sql = NULL;

		CHECK_FOR_INTERRUPTS();
		while (next < script->nstmts &&
			   (script->stmts[next]->kind != PSM_SQL ||
				script->stmts[next]->pos.offset < expr->pos.offset))
			next++;
		if (next < script->nstmts && ((PsmSqlStmt *) script->stmts[next])->sql == expr)
			sql = (PsmSqlStmt *) script->stmts[next];

		if (expr->mode == RAW_PARSE_DEFAULT)
			check_statement(expr, sql);
		else
			check_expression(expr);
		MemoryContextReset(scratch);
	}

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
}
