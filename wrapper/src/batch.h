/* SPDX-License-Identifier: MIT */
/*
 * A batch of records turned into columns, laid out as Arrow wants them, so that they are stored without another copy.
 *
 * Not thread-safe; whoever holds a batch owns it. Created and destroyed by the recorder.
 */
#ifndef PTW_BATCH_H
#define PTW_BATCH_H

#include <stddef.h>
#include <stdint.h>

/* cffi begin */
struct ptw_batch {
	uint32_t rows;
	uint32_t paths;
	uint32_t returned;		/* rows with a t_exit and a result */
	uint32_t readable;		/* paths that are not null */
	uint32_t truncated;		/* paths of which only the beginning is kept */
	uint32_t missed;		/* paths that are null though the call could read them */
	uint32_t malformed;		/* records refused: always 0 unless a program and this file disagree */
	int64_t *t_enter;
	int64_t *t_exit;
	int64_t *result;
	uint64_t *ip;
	uint64_t *args;			/* 6 a row */
	int32_t *pid;
	int32_t *tid;
	int32_t *number;
	uint8_t *has_exit;		/* a bit a row, for t_exit and result */
	int32_t *path_first;		/* by row: its first path; rows + 1 of them */
	int32_t *path_begin;		/* by path: its first byte in text; paths + 1 of them */
	uint8_t *has_path;		/* a bit a path */
	char *text;
	uint32_t row_capacity;
	uint32_t text_capacity;
	int64_t since;			/* ns, CLOCK_MONOTONIC: when its first row came */
	struct ptw_batch *next;
};
/* cffi end */

/* An empty batch for `rows` rows, or -ENOMEM. */
int ptw_batch_create(uint32_t rows, struct ptw_batch **ret);
void ptw_batch_destroy(struct ptw_batch *batch);

/* Forget all rows; the memory stays. */
void ptw_batch_clear(struct ptw_batch *batch);

/*
 * Append one record as it is in the ring. Returns 0; -ENOSPC when the batch is full (nothing was appended);
 * -EBADMSG for a record that is not well-formed (counted, nothing appended).
 */
int ptw_batch_append(struct ptw_batch *batch, const void *record, size_t size);

#endif
