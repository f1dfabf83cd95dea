/*
 * memory.c
 *		PostgreSQL's memory contexts, for the fuzzer of the parser: each chunk is one
 *		malloc(), so that AddressSanitizer knows its bounds and when it was freed.
 *
 * Stands in for the server's mcxt.c and aset.c, with what a parser needs of them.
 * The node and chunk layouts are those that the headers of PostgreSQL 15 rely on:
 * the context's address is in the eight bytes before a chunk.  What else is there
 * of ours is poisoned while we are not looking at it.
 */
#include "postgres.h"

#include <sanitizer/asan_interface.h>

#include "nodes/memnodes.h"
#include "utils/memutils.h"

/* New memory that is not asked to be zero holds this, so that reading it shows */
#define JUNK 0xC7

typedef struct Chunk
{
	Size		size;
	Size		number;			/* in Context.chunks */
	void	   *unused;
	MemoryContext context;		/* never poisoned: the headers look at it */
} Chunk;

#define HIDDEN offsetof(Chunk, context)
#define REVEAL(chunk) ASAN_UNPOISON_MEMORY_REGION(chunk, HIDDEN)
#define HIDE(chunk) ASAN_POISON_MEMORY_REGION(chunk, HIDDEN)

typedef struct Context
{
	MemoryContextData node;
	Chunk	  **chunks;
	Size		nchunks;
	Size		allocated;
} Context;

StaticAssertDecl(sizeof(Chunk) == MAXALIGN(sizeof(Chunk)), "chunks must be aligned");

MemoryContext CurrentMemoryContext = NULL;
MemoryContext TopMemoryContext = NULL;
MemoryContext ErrorContext = NULL;
MemoryContext PostmasterContext = NULL;
MemoryContext CacheMemoryContext = NULL;
MemoryContext MessageContext = NULL;
MemoryContext TopTransactionContext = NULL;
MemoryContext CurTransactionContext = NULL;
MemoryContext PortalContext = NULL;

/* ---------- contexts ---------- */

MemoryContext
AllocSetContextCreateInternal(MemoryContext parent, const char *name, Size minContextSize,
							  Size initBlockSize, Size maxBlockSize)
{
	Context    *context = calloc(1, sizeof(Context));

	context->node.type = T_AllocSetContext;
	context->node.name = name;
	context->node.isReset = true;
	MemoryContextSetParent(&context->node, parent);
	return &context->node;
}

void
MemoryContextSetParent(MemoryContext context, MemoryContext new_parent)
{
	if (context->parent != NULL)
	{
		if (context->prevchild != NULL)
			context->prevchild->nextchild = context->nextchild;
		else
			context->parent->firstchild = context->nextchild;
		if (context->nextchild != NULL)
			context->nextchild->prevchild = context->prevchild;
	}
	context->parent = new_parent;
	context->prevchild = NULL;
	context->nextchild = NULL;
	if (new_parent != NULL)
	{
		context->nextchild = new_parent->firstchild;
		if (context->nextchild != NULL)
			context->nextchild->prevchild = context;
		new_parent->firstchild = context;
	}
}

void
MemoryContextDeleteChildren(MemoryContext context)
{
	while (context->firstchild != NULL)
		MemoryContextDelete(context->firstchild);
}

void
MemoryContextResetOnly(MemoryContext context)
{
	Context    *own = (Context *) context;

	while (own->nchunks > 0)
		pfree(own->chunks[own->nchunks - 1] + 1);
	context->isReset = true;
}

void
MemoryContextReset(MemoryContext context)
{
	MemoryContextDeleteChildren(context);
	MemoryContextResetOnly(context);
}

void
MemoryContextDelete(MemoryContext context)
{
	Assert(context != CurrentMemoryContext);
	MemoryContextReset(context);
	MemoryContextSetParent(context, NULL);
	free(((Context *) context)->chunks);
	free(context);
}

void
MemoryContextInit(void)
{
	TopMemoryContext = AllocSetContextCreate(NULL, "top", ALLOCSET_DEFAULT_SIZES);
	ErrorContext = AllocSetContextCreate(TopMemoryContext, "error", ALLOCSET_DEFAULT_SIZES);
	CurrentMemoryContext = TopMemoryContext;
}

/* ---------- chunks ---------- */

void *
MemoryContextAllocExtended(MemoryContext context, Size size, int flags)
{
	Context    *own = (Context *) context;
	Chunk	   *chunk;

	if (!((flags & MCXT_ALLOC_HUGE) ? AllocHugeSizeIsValid(size) : AllocSizeIsValid(size)))
		elog(ERROR, "invalid memory alloc request size %zu", size);
	if (own->nchunks == own->allocated)
	{
		own->allocated = own->allocated * 2 + 8;
		own->chunks = realloc(own->chunks, own->allocated * sizeof(Chunk *));
	}
	chunk = malloc(sizeof(Chunk) + size);
	chunk->size = size;
	chunk->number = own->nchunks;
	chunk->context = context;
	own->chunks[own->nchunks++] = chunk;
	HIDE(chunk);
	context->isReset = false;
	memset(chunk + 1, (flags & MCXT_ALLOC_ZERO) ? 0 : JUNK, size);
	return chunk + 1;
}

void
pfree(void *pointer)
{
	Chunk	   *chunk = (Chunk *) pointer - 1;
	Context    *context = (Context *) chunk->context;
	Chunk	   *last = context->chunks[--context->nchunks];

	/* the last takes the place of this one */
	REVEAL(chunk);
	REVEAL(last);
	last->number = chunk->number;
	context->chunks[last->number] = last;
	HIDE(last);
	REVEAL(chunk);
	free(chunk);
}

/*
 * Always moves, so that whoever keeps the old address is found.
 */
static void *
resize(void *pointer, Size size, int flags)
{
	Chunk	   *chunk = (Chunk *) pointer - 1;
	void	   *moved = MemoryContextAllocExtended(chunk->context, size, flags);
	Size		old;

	REVEAL(chunk);
	old = chunk->size;
	HIDE(chunk);
	memcpy(moved, pointer, Min(old, size));
	pfree(pointer);
	return moved;
}

void *
repalloc(void *pointer, Size size)
{
	return resize(pointer, size, 0);
}

void *
repalloc_huge(void *pointer, Size size)
{
	return resize(pointer, size, MCXT_ALLOC_HUGE);
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	return MemoryContextAllocExtended(context, size, 0);
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return MemoryContextAllocExtended(context, size, MCXT_ALLOC_ZERO);
}

void *
MemoryContextAllocZeroAligned(MemoryContext context, Size size)
{
	return MemoryContextAllocExtended(context, size, MCXT_ALLOC_ZERO);
}

void *
MemoryContextAllocHuge(MemoryContext context, Size size)
{
	return MemoryContextAllocExtended(context, size, MCXT_ALLOC_HUGE);
}

void *
palloc(Size size)
{
	return MemoryContextAllocExtended(CurrentMemoryContext, size, 0);
}

void *
palloc0(Size size)
{
	return MemoryContextAllocExtended(CurrentMemoryContext, size, MCXT_ALLOC_ZERO);
}

void *
palloc_extended(Size size, int flags)
{
	return MemoryContextAllocExtended(CurrentMemoryContext, size, flags);
}

/* ---------- strings ---------- */

char *
MemoryContextStrdup(MemoryContext context, const char *string)
{
	Size		size = strlen(string) + 1;

	return memcpy(MemoryContextAlloc(context, size), string, size);
}

char *
pstrdup(const char *in)
{
	return MemoryContextStrdup(CurrentMemoryContext, in);
}

char *
pnstrdup(const char *in, Size len)
{
	char	   *out;

	len = strnlen(in, len);
	out = palloc(len + 1);
	memcpy(out, in, len);
	out[len] = '\0';
	return out;
}
