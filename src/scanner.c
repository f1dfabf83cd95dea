/*
 * scanner.c
 *		PostgreSQL's own scanner, for texts that are cut up before the server parses them.
 *
 * It is given an empty keyword list: then every word arrives as an identifier, folded,
 * and is the same in all versions, whose keyword numbers differ.
 */
#include "tw.h"

#include "parser/scanner.h"

/* Never called, since every word is longer than the longest keyword of none */
static int
no_keyword(const void *key, size_t length)
{
	return -1;
}

static const uint16 no_offsets[1] = {0};

static const ScanKeywordList no_keywords = {
	.kw_string = "",
	.kw_offsets = no_offsets,
	.hash = no_keyword,
	.num_keywords = 0,
	.max_kw_len = 0
};

core_yyscan_t
tw_scanner_begin(const char *text, core_yy_extra_type *extra)
{
	core_yyscan_t scanner = scanner_init(text, extra, &no_keywords, no_offsets);

	/* the pieces are scanned again when they are parsed: one warning is enough */
	extra->escape_string_warning = false;
	return scanner;
}

/*
 * Where the token ends that was read last, and began at start.  flex ends it with a NUL in
 * its buffer, until the next call; at the end of input it stands on the last NUL.
 */
int
tw_scanner_token_end(const core_yy_extra_type *extra, int start)
{
	return start + strlen(extra->scanbuf + start);
}
