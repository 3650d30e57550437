/* SPDX-License-Identifier: MIT */
#include "batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../bpf/record.h"

enum {
	TEXT_BYTES_A_ROW = 64,	/* mean room for paths; a batch that runs out of it is full earlier */
	TEXT_BYTES_LEAST = 4 * PTW_PATHS * PTW_PATH_SLOT,
};

static void set_bit(uint8_t *bits, uint32_t index, int value)
{
	uint8_t mask = (uint8_t)(1u << (index & 7));

	if (value)
		bits[index >> 3] |= mask;
	else
		bits[index >> 3] &= (uint8_t)~mask;
}

int ptw_batch_create(uint32_t rows, struct ptw_batch **ret)
{
	struct ptw_batch *batch = calloc(1, sizeof(*batch));
	size_t n = rows;

	if (!batch)
		return -ENOMEM;
	batch->row_capacity = rows;
	batch->text_capacity = rows * TEXT_BYTES_A_ROW;
	if (batch->text_capacity < TEXT_BYTES_LEAST)
		batch->text_capacity = TEXT_BYTES_LEAST;
	batch->t_enter = malloc(n * sizeof(*batch->t_enter));
	batch->t_exit = malloc(n * sizeof(*batch->t_exit));
	batch->result = malloc(n * sizeof(*batch->result));
	batch->ip = malloc(n * sizeof(*batch->ip));
	batch->args = malloc(6 * n * sizeof(*batch->args));
	batch->pid = malloc(n * sizeof(*batch->pid));
	batch->tid = malloc(n * sizeof(*batch->tid));
	batch->number = malloc(n * sizeof(*batch->number));
	batch->has_exit = calloc(n / 8 + 8, 1);
	batch->path_first = malloc((n + 1) * sizeof(*batch->path_first));
	batch->path_begin = malloc((PTW_PATHS * n + 1) * sizeof(*batch->path_begin));
	batch->has_path = calloc(PTW_PATHS * n / 8 + 8, 1);
	batch->text = malloc(batch->text_capacity);
	if (!batch->t_enter || !batch->t_exit || !batch->result || !batch->ip || !batch->args || !batch->pid ||
	    !batch->tid || !batch->number || !batch->has_exit || !batch->path_first || !batch->path_begin ||
	    !batch->has_path || !batch->text) {
		ptw_batch_destroy(batch);
		return -ENOMEM;
	}
	ptw_batch_clear(batch);
	*ret = batch;
	return 0;
}

void ptw_batch_destroy(struct ptw_batch *batch)
{
	if (!batch)
		return;
	free(batch->t_enter);
	free(batch->t_exit);
	free(batch->result);
	free(batch->ip);
	free(batch->args);
	free(batch->pid);
	free(batch->tid);
	free(batch->number);
	free(batch->has_exit);
	free(batch->path_first);
	free(batch->path_begin);
	free(batch->has_path);
	free(batch->text);
	free(batch);
}

void ptw_batch_clear(struct ptw_batch *batch)
{
	batch->rows = 0;
	batch->paths = 0;
	batch->returned = 0;
	batch->readable = 0;
	batch->truncated = 0;
	batch->missed = 0;
	batch->malformed = 0;
	batch->since = 0;
	batch->next = NULL;
	batch->path_first[0] = 0;
	batch->path_begin[0] = 0;
}

/* The paths of a call are there whole: their bytes lie within the record. */
static int well_formed(const struct ptw_syscall *call, size_t size)
{
	size_t text = size - sizeof(*call);

	for (unsigned int i = 0; i < PTW_PATHS; i++) {
		const struct ptw_path *path = &call->path[i];

		if (path->state > PTW_PATH_TRUNCATED || path->size > PTW_PATH_SIZE)
			return 0;
		if ((path->state == PTW_PATH_READ || path->state == PTW_PATH_TRUNCATED) &&
		    (size_t)path->offset + path->size > text)
			return 0;
	}
	return 1;
}

/* The call could read a path that we could not: it was given one, and did not fail for it. */
static int missed(const struct ptw_syscall *call, const struct ptw_path *path)
{
	return path->state == PTW_PATH_UNREADABLE && path->argument < 6 && call->args[path->argument] &&
	       call->result != -EFAULT;
}

static void append_path(struct ptw_batch *batch, const struct ptw_syscall *call, const struct ptw_path *path)
{
	const char *bytes = (const char *)(call + 1);
	uint32_t index = batch->paths;
	uint32_t size = 0;
	int readable = path->state == PTW_PATH_READ || path->state == PTW_PATH_TRUNCATED;
	int32_t begin = batch->path_begin[index];

	if (readable) {
		size = path->size;
		memcpy(batch->text + begin, bytes + path->offset, size);
	}
	set_bit(batch->has_path, index, readable);
	batch->path_begin[index + 1] = begin + (int32_t)size;
	batch->paths = index + 1;
	batch->readable += (uint32_t)readable;
	batch->truncated += path->state == PTW_PATH_TRUNCATED;
	batch->missed += (uint32_t)missed(call, path);
}

int ptw_batch_append(struct ptw_batch *batch, const void *record, size_t size)
{
	const struct ptw_syscall *call = record;
	uint32_t row = batch->rows;
	int returned;

	if (size < sizeof(*call) || call->head.kind != PTW_RECORD_SYSCALL || !well_formed(call, size)) {
		batch->malformed++;
		return -EBADMSG;
	}
	if (row >= batch->row_capacity ||
	    (size_t)batch->path_begin[batch->paths] + PTW_PATHS * PTW_PATH_SIZE > batch->text_capacity)
		return -ENOSPC;
	returned = !(call->head.flags & PTW_SYSCALL_NO_EXIT);
	batch->t_enter[row] = (int64_t)call->t_enter;
	batch->t_exit[row] = (int64_t)call->t_exit;
	batch->result[row] = call->result;
	batch->ip[row] = call->ip;
	memcpy(batch->args + 6 * (size_t)row, call->args, sizeof(call->args));
	batch->pid[row] = (int32_t)call->head.pid;
	batch->tid[row] = (int32_t)call->head.tid;
	batch->number[row] = (int32_t)call->head.number;
	set_bit(batch->has_exit, row, returned);
	batch->returned += (uint32_t)returned;
	for (unsigned int i = 0; i < PTW_PATHS; i++) {
		if (call->path[i].state != PTW_PATH_NONE)
			append_path(batch, call, &call->path[i]);
	}
	batch->path_first[row + 1] = (int32_t)batch->paths;
	batch->rows = row + 1;
	return 0;
}
