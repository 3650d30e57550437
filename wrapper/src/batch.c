/* SPDX-License-Identifier: MIT */
#include "batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../bpf/record.h"

enum {
	BYTES_A_ROW = 64,	/* mean room for paths, and for captures; a batch that runs out of it is full earlier */
	CAPTURES_A_ROW = 2,
	MESSAGE_SIZE = 64,	/* sizeof(struct mmsghdr) */
	CAPTURES_A_CALL = 64,	/* more than there can be */
	TEXT_LEAST = 4 * PTW_PATHS * (PTW_PATH_SIZE + 1),
	DATA_LEAST = 4 * (PTW_ROOM + PTW_SLACK),
};

_Static_assert(PTW_RECORD_KINDS == sizeof(((struct ptw_batch *)0)->events) / sizeof(unsigned char *), "a slot a kind");

static const uint32_t record_sizes[PTW_RECORD_KINDS] = {
	[PTW_RECORD_BLOCKING] = sizeof(struct ptw_blocking),
	[PTW_RECORD_FD_CHANGE] = sizeof(struct ptw_fd_change),
	[PTW_RECORD_SIGNAL] = sizeof(struct ptw_signal),
	[PTW_RECORD_WRITE] = sizeof(struct ptw_write),
	[PTW_RECORD_GC] = sizeof(struct ptw_probe),
	[PTW_RECORD_JNI] = sizeof(struct ptw_probe),
	[PTW_RECORD_UPROBE] = sizeof(struct ptw_probe),
	[PTW_RECORD_FILE] = PTW_FILE_HEAD,
};

uint32_t ptw_batch_record_size(uint32_t kind)
{
	return kind < PTW_RECORD_KINDS ? record_sizes[kind] : 0;
}

static void set_bit(uint8_t *bits, uint32_t index, int value)
{
	uint8_t mask = (uint8_t)(1u << (index & 7));

	if (value)
		bits[index >> 3] |= mask;
	else
		bits[index >> 3] &= (uint8_t)~mask;
}

static uint32_t at_least(uint64_t value, uint32_t least)
{
	return value < least ? least : value > INT32_MAX ? INT32_MAX : (uint32_t)value;
}

int ptw_batch_create(uint32_t rows, struct ptw_batch **ret)
{
	struct ptw_batch *batch = calloc(1, sizeof(*batch));
	size_t n = rows;
	size_t captures;

	if (!batch)
		return -ENOMEM;
	batch->row_capacity = rows;
	batch->text_capacity = at_least((uint64_t)rows * BYTES_A_ROW, TEXT_LEAST);
	batch->data_capacity = at_least((uint64_t)rows * BYTES_A_ROW, DATA_LEAST);
	batch->capture_capacity = at_least((uint64_t)rows * CAPTURES_A_ROW, 2 * CAPTURES_A_CALL);
	captures = batch->capture_capacity;
	batch->t_enter = malloc(n * sizeof(*batch->t_enter));
	batch->t_exit = malloc(n * sizeof(*batch->t_exit));
	batch->result = malloc(n * sizeof(*batch->result));
	batch->ip = malloc(n * sizeof(*batch->ip));
	batch->args = malloc(PTW_ARGUMENTS * n * sizeof(*batch->args));
	batch->file = malloc(PTW_FILES * n * sizeof(*batch->file));
	batch->pid = malloc(n * sizeof(*batch->pid));
	batch->tid = malloc(n * sizeof(*batch->tid));
	batch->number = malloc(n * sizeof(*batch->number));
	batch->has_exit = calloc(n / 8 + 8, 1);
	batch->path_first = malloc((n + 1) * sizeof(*batch->path_first));
	batch->path_begin = malloc((PTW_PATHS * n + 1) * sizeof(*batch->path_begin));
	batch->has_path = calloc(PTW_PATHS * n / 8 + 8, 1);
	batch->text = malloc(batch->text_capacity);
	batch->capture_first = malloc((n + 1) * sizeof(*batch->capture_first));
	batch->capture_argument = malloc(captures);
	batch->capture_kind = malloc(captures);
	batch->capture_part = malloc(captures);
	batch->capture_when = malloc(captures);
	batch->capture_size = malloc(captures * sizeof(*batch->capture_size));
	batch->capture_begin = malloc((captures + 1) * sizeof(*batch->capture_begin));
	batch->has_capture = calloc(captures / 8 + 8, 1);
	batch->data = malloc(batch->data_capacity);
	if (!batch->t_enter || !batch->t_exit || !batch->result || !batch->ip || !batch->args || !batch->file ||
	    !batch->pid || !batch->tid || !batch->number || !batch->has_exit || !batch->path_first ||
	    !batch->path_begin || !batch->has_path || !batch->text || !batch->capture_first ||
	    !batch->capture_argument || !batch->capture_kind || !batch->capture_part || !batch->capture_when ||
	    !batch->capture_size || !batch->capture_begin || !batch->has_capture || !batch->data) {
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
	free(batch->file);
	free(batch->pid);
	free(batch->tid);
	free(batch->number);
	free(batch->has_exit);
	free(batch->path_first);
	free(batch->path_begin);
	free(batch->has_path);
	free(batch->text);
	free(batch->capture_first);
	free(batch->capture_argument);
	free(batch->capture_kind);
	free(batch->capture_part);
	free(batch->capture_when);
	free(batch->capture_size);
	free(batch->capture_begin);
	free(batch->has_capture);
	free(batch->data);
	for (unsigned int kind = 0; kind < PTW_RECORD_KINDS; kind++)
		free(batch->events[kind]);
	free(batch->file_text);
	free(batch);
}

void ptw_batch_clear(struct ptw_batch *batch)
{
	batch->rows = batch->paths = batch->captures = 0;
	batch->returned = batch->readable = batch->truncated = batch->missed = 0;
	batch->captured = batch->unread = batch->no_room = batch->left_out = batch->malformed = 0;
	batch->file_bytes = batch->all = 0;
	memset(batch->event_rows, 0, sizeof(batch->event_rows));
	batch->since = 0;
	batch->next = NULL;
	batch->path_first[0] = 0;
	batch->path_begin[0] = 0;
	batch->capture_first[0] = 0;
	batch->capture_begin[0] = 0;
}

/* --- system calls -------------------------------------------------------------------------------------------- */

/* The chunk at `*at` behind a call, which moves on to the next; NULL at the end. It was checked before. */
static const struct ptw_chunk *next_chunk(const struct ptw_syscall *call, size_t size, size_t *at)
{
	const struct ptw_chunk *chunk = (const void *)((const char *)call + *at);

	if (*at >= size)
		return NULL;
	*at += sizeof(*chunk) + ((chunk->kept + 7ull) & ~7ull);
	return chunk;
}

/* The captures of a call are there whole, and no more than there can be. */
static int well_formed(const struct ptw_syscall *call, size_t size)
{
	size_t at = sizeof(*call);
	unsigned int count = 0;
	unsigned int paths = 0;

	while (at < size) {
		const struct ptw_chunk *chunk = (const void *)((const char *)call + at);

		if (size - at < sizeof(*chunk) || chunk->kept > PTW_ROOM + PTW_SLACK ||
		    size - at - sizeof(*chunk) < ((chunk->kept + 7ull) & ~7ull))
			return 0;
		if (chunk->argument > PTW_ARGUMENTS || ++count > CAPTURES_A_CALL)
			return 0;
		if (chunk->kind == PTW_CAPTURE_PATH && (++paths > PTW_PATHS || chunk->kept > PTW_PATH_SIZE))
			return 0;
		at += sizeof(*chunk) + ((chunk->kept + 7ull) & ~7ull);
	}
	return 1;
}

/*
 * The call could use memory that we could not read: it was given some, and did not fail for it, nor ended before that
 * one of several messages.
 */
static int missed(const struct ptw_syscall *call, const struct ptw_chunk *chunk)
{
	if (chunk->kind == PTW_CAPTURE_MESSAGES && chunk->part && call->result <= chunk->part / PTW_PARTS)
		return 0;
	return chunk->state == PTW_CHUNK_UNREADABLE && chunk->argument < PTW_ARGUMENTS &&
	       call->args[chunk->argument] && call->result != -EFAULT;
}

static void append_path(struct ptw_batch *batch, const struct ptw_syscall *call, const struct ptw_chunk *chunk)
{
	uint32_t index = batch->paths;
	int readable = chunk->state != PTW_CHUNK_UNREADABLE;
	int32_t begin = batch->path_begin[index];

	memcpy(batch->text + begin, chunk + 1, chunk->kept);
	set_bit(batch->has_path, index, readable);
	batch->path_begin[index + 1] = begin + (int32_t)chunk->kept;
	batch->paths = index + 1;
	batch->readable += (uint32_t)readable;
	batch->truncated += chunk->state == PTW_CHUNK_TRUNCATED;
	batch->missed += (uint32_t)missed(call, chunk);
}

static void append_capture(struct ptw_batch *batch, const struct ptw_syscall *call, const struct ptw_chunk *chunk)
{
	uint32_t index = batch->captures;
	int readable = chunk->state != PTW_CHUNK_UNREADABLE;
	int32_t begin = batch->capture_begin[index];

	memcpy(batch->data + begin, chunk + 1, chunk->kept);
	set_bit(batch->has_capture, index, readable);
	batch->capture_argument[index] = (int8_t)chunk->argument;
	batch->capture_kind[index] = (int8_t)chunk->kind;
	batch->capture_part[index] = (int8_t)chunk->part;
	batch->capture_when[index] = (int8_t)chunk->when;
	/* of a longer one whose end was not looked for: one more than is kept, at least */
	batch->capture_size[index] = (int64_t)(chunk->state == PTW_CHUNK_TRUNCATED && chunk->size <= chunk->kept ?
					       chunk->kept + 1ull : chunk->size);
	batch->capture_begin[index + 1] = begin + (int32_t)chunk->kept;
	batch->captures = index + 1;
	batch->captured += (uint32_t)readable;
	batch->unread += (uint32_t)missed(call, chunk);
	if (chunk->kind == PTW_CAPTURE_MESSAGES && chunk->part == PTW_PART_ITSELF && chunk->size > chunk->kept)
		batch->left_out += (uint32_t)((chunk->size - chunk->kept) / MESSAGE_SIZE);
}

/* Paths in the order of the arguments, whenever each could be read; other captures as they come. */
static void append_chunks(struct ptw_batch *batch, const struct ptw_syscall *call, size_t size)
{
	const struct ptw_chunk *paths[PTW_PATHS] = {NULL};
	const struct ptw_chunk *chunk;
	unsigned int count = 0;
	size_t at = sizeof(*call);

	while ((chunk = next_chunk(call, size, &at))) {
		if (chunk->kind == PTW_CAPTURE_PATH)
			paths[count++] = chunk;
		else
			append_capture(batch, call, chunk);
	}
	if (count == 2 && paths[1]->argument < paths[0]->argument) {
		chunk = paths[0];
		paths[0] = paths[1];
		paths[1] = chunk;
	}
	for (unsigned int i = 0; i < count; i++)
		append_path(batch, call, paths[i]);
}

static int append_call(struct ptw_batch *batch, const struct ptw_syscall *call, size_t size)
{
	uint32_t row = batch->rows;
	int returned;

	if (size < sizeof(*call) || !well_formed(call, size))
		return -EBADMSG;
	if (row >= batch->row_capacity || batch->captures + CAPTURES_A_CALL > batch->capture_capacity ||
	    (size_t)batch->path_begin[batch->paths] + PTW_PATHS * PTW_PATH_SIZE > batch->text_capacity ||
	    (size_t)batch->capture_begin[batch->captures] + PTW_ROOM + PTW_SLACK > batch->data_capacity)
		return -ENOSPC;
	returned = !(call->head.flags & PTW_SYSCALL_NO_EXIT);
	batch->t_enter[row] = (int64_t)call->t_enter;
	batch->t_exit[row] = (int64_t)call->t_exit;
	batch->result[row] = call->result;
	batch->ip[row] = call->ip;
	memcpy(batch->args + PTW_ARGUMENTS * (size_t)row, call->args, sizeof(call->args));
	memcpy(batch->file + PTW_FILES * (size_t)row, call->file, sizeof(call->file));
	batch->pid[row] = (int32_t)call->head.pid;
	batch->tid[row] = (int32_t)call->head.tid;
	batch->number[row] = (int32_t)call->head.number;
	set_bit(batch->has_exit, row, returned);
	batch->returned += (uint32_t)returned;
	batch->no_room += !!(call->head.flags & PTW_SYSCALL_NO_ROOM);
	append_chunks(batch, call, size);
	batch->path_first[row + 1] = (int32_t)batch->paths;
	batch->capture_first[row + 1] = (int32_t)batch->captures;
	batch->rows = row + 1;
	return 0;
}

/* --- other records ------------------------------------------------------------------------------------------- */

static int make_room(struct ptw_batch *batch, unsigned int kind)
{
	if (!batch->events[kind])
		batch->events[kind] = malloc((size_t)batch->row_capacity * record_sizes[kind]);
	if (kind == PTW_RECORD_FILE && !batch->file_text)
		batch->file_text = malloc(at_least((uint64_t)batch->row_capacity * BYTES_A_ROW, TEXT_LEAST));
	return batch->events[kind] && (kind != PTW_RECORD_FILE || batch->file_text) ? 0 : -ENOSPC;
}

static int append_event(struct ptw_batch *batch, unsigned int kind, const void *record, size_t size)
{
	size_t kept = record_sizes[kind];
	const struct ptw_file *file = record;

	if (kind == PTW_RECORD_FILE ? size < PTW_FILE_HEAD || file->size > size - PTW_FILE_HEAD : size != kept)
		return -EBADMSG;
	if (make_room(batch, kind) || batch->event_rows[kind] >= batch->row_capacity)
		return -ENOSPC;
	if (kind == PTW_RECORD_FILE) {
		if (batch->file_bytes + file->size >
		    at_least((uint64_t)batch->row_capacity * BYTES_A_ROW, TEXT_LEAST))
			return -ENOSPC;
		memcpy(batch->file_text + batch->file_bytes, file->components, file->size);
		batch->file_bytes += file->size;
	}
	memcpy(batch->events[kind] + kept * batch->event_rows[kind], record, kept);
	batch->event_rows[kind]++;
	return 0;
}

int ptw_batch_append(struct ptw_batch *batch, const void *record, size_t size)
{
	const struct ptw_record *head = record;
	int error = -EBADMSG;

	if (size >= sizeof(*head) && head->kind == PTW_RECORD_SYSCALL)
		error = append_call(batch, record, size);
	else if (size >= sizeof(*head) && ptw_batch_record_size(head->kind))
		error = append_event(batch, head->kind, record, size);
	batch->malformed += error == -EBADMSG;
	if (error)
		return error;
	batch->all++;
	return head->kind;
}
