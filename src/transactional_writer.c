/*
 * transactional_writer.c
 *		Module entry: magic block and registration, nothing else.
 */
#include "tw.h"

#include "psm/psm.h"

TW_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	tw_guc_init();
	tw_xact_init();
	tw_worker_init();
	tw_progress_init();
	tw_block_runner = psm_block_look;
	tw_conflict_init();
	tw_task_init();
	tw_prepared_init();
}
