/*
 * errors.h
 *		SQLSTATEs of this extension: class TW, one entry per state.
 *
 * Kinds: fatal means stop, abortable means this try is lost, retriable means
 * run the whole batch again.  doc/errors.md lists the same table for users.
 */
#ifndef TW_ERRORS_H
#define TW_ERRORS_H

#include "utils/elog.h"

#define TW_SQLSTATE(d) MAKE_SQLSTATE('T', 'W', '0', (d) / 10 + '0', (d) % 10 + '0')

#define ERRCODE_TW_PRODUCER_FENCED			TW_SQLSTATE(1)	/* fatal */
#define ERRCODE_TW_IDEMPOTENCY_KEY_MISMATCH TW_SQLSTATE(2)	/* fatal */
#define ERRCODE_TW_JOB_IN_PROGRESS			TW_SQLSTATE(3)	/* retriable */
#define ERRCODE_TW_TRANSACTION_TIMED_OUT	TW_SQLSTATE(4)	/* retriable */
#define ERRCODE_TW_OFFSET_CONFLICT			TW_SQLSTATE(5)	/* fatal */
#define ERRCODE_TW_ATTEMPT_SUPERSEDED		TW_SQLSTATE(6)	/* abortable */
#define ERRCODE_TW_INCOMPLETE_BATCH			TW_SQLSTATE(7)	/* abortable */
#define ERRCODE_TW_OUT_OF_ORDER				TW_SQLSTATE(8)	/* fatal */
#define ERRCODE_TW_STAGING_LOST				TW_SQLSTATE(9)	/* abortable */
#define ERRCODE_TW_UNKNOWN_BATCH			TW_SQLSTATE(10) /* fatal */

/* Of the SQL standard, but without a name in PostgreSQL */
#define ERRCODE_RESIGNAL_WHEN_HANDLER_NOT_ACTIVE MAKE_SQLSTATE('0', 'K', '0', '0', '0')
#define ERRCODE_INVALID_CONDITION_NUMBER MAKE_SQLSTATE('3', '5', '0', '0', '0')

#endif							/* TW_ERRORS_H */
