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
	/* system calls */
	uint32_t rows;
	uint32_t paths;
	uint32_t captures;
	uint32_t returned;		/* rows with a t_exit and a result */
	uint32_t readable;		/* paths that are not null */
	uint32_t truncated;		/* paths of which only the beginning is kept */
	uint32_t missed;		/* paths that are null though the call could read them */
	uint32_t captured;		/* captures that are not null */
	uint32_t unread;		/* captures that are null though the call could use the memory */
	uint32_t no_room;		/* rows of which captures are missing for lack of room */
	uint32_t left_out;		/* messages of arrays of them that were not looked at */
	uint32_t malformed;		/* records refused: always 0 unless a program and this file disagree */
	int64_t *t_enter;
	int64_t *t_exit;
	int64_t *result;
	uint64_t *ip;
	uint64_t *args;			/* 6 a row */
	uint64_t *file;			/* 3 a row */
	int32_t *pid;
	int32_t *tid;
	int32_t *number;
	uint8_t *has_exit;		/* a bit a row, for t_exit and result */
	int32_t *path_first;		/* by row: its first path; rows + 1 of them */
	int32_t *path_begin;		/* by path: its first byte in text; paths + 1 of them */
	uint8_t *has_path;		/* a bit a path */
	char *text;
	int32_t *capture_first;		/* by row: its first capture; rows + 1 of them */
	int8_t *capture_argument;	/* by capture: the argument, 6 for the call stack */
	int8_t *capture_kind;		/* enum ptw_capture */
	int8_t *capture_part;		/* enum ptw_part */
	int8_t *capture_when;		/* enum ptw_when */
	int64_t *capture_size;		/* bytes it has in the program */
	int32_t *capture_begin;		/* its first byte in data; captures + 1 of them */
	uint8_t *has_capture;		/* a bit a capture */
	char *data;
	/* other records, as they are in wrapper/bpf/record.h, by kind; of files, without components */
	uint32_t event_rows[9];
	unsigned char *events[9];
	uint32_t file_bytes;		/* components of all files, one behind the other */
	char *file_text;
	uint32_t all;			/* records of every kind */
	uint32_t row_capacity;
	uint32_t capture_capacity;
	uint32_t text_capacity;
	uint32_t data_capacity;
	int64_t since;			/* ns, CLOCK_MONOTONIC: when its first record came */
	struct ptw_batch *next;
};

/* Bytes of a record in `events`, by kind; 0 for system calls. */
uint32_t ptw_batch_record_size(uint32_t kind);
/* cffi end */

/* An empty batch for `rows` rows of a kind, or -ENOMEM. Room for kinds beside system calls is made when they come. */
int ptw_batch_create(uint32_t rows, struct ptw_batch **ret);
void ptw_batch_destroy(struct ptw_batch *batch);

/* Forget all rows; the memory stays. */
void ptw_batch_clear(struct ptw_batch *batch);

/*
 * Append one record as it is in the ring. Returns its kind; -ENOSPC when the batch is full (nothing was appended);
 * -EBADMSG for a record that is not well-formed (counted, nothing appended).
 */
int ptw_batch_append(struct ptw_batch *batch, const void *record, size_t size);

#endif
