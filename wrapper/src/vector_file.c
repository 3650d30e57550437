/* SPDX-License-Identifier: MIT */
/* A file of events; vector_file.h says what is guaranteed. */
#define _GNU_SOURCE
#include "vector_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { NO_SLOT = 0xffffffff };

struct slot {
	uint64_t events;
	uint64_t newest; /* TSC of its newest event; 0: never used */
	bool open;       /* its list is still written to */
};

struct ptv_file {
	struct ptv_file_head head;
	int fd;
	uint64_t end;  /* of the last whole chunk */
	struct slot *slot;
	uint32_t slot_of[PTV_LIST_COUNT_MAX];           /* of lists under way */
	struct ptv_chunk chunk_of[PTV_LIST_COUNT_MAX]; /* what their slots say */
};

static int write_at(int fd, const void *data, size_t size, uint64_t at)
{
	const unsigned char *from = data;
	while (size) {
		ssize_t done = pwrite(fd, from, size, (off_t)at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		from += done;
		at += (uint64_t)done;
		size -= (size_t)done;
	}
	return 0;
}

static void moment(uint64_t *tsc, uint64_t *ns)
{
	struct timespec now;
	uint64_t before = __rdtsc();
	clock_gettime(CLOCK_MONOTONIC, &now);
	*tsc = before + (__rdtsc() - before) / 2;
	*ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* --- making ------------------------------------------------------------------------------------------------------ */

static int make_slots(struct ptv_file *file, uint64_t ring, uint32_t list_size)
{
	uint64_t span = (sizeof(struct ptv_chunk) + list_size + PTV_ALIGN - 1) & ~(uint64_t)(PTV_ALIGN - 1);
	uint64_t slots = ring > PTV_NAMES_END ? (ring - PTV_NAMES_END) / span : 0;
	if (slots < PTV_SLOTS_MIN || slots > UINT32_MAX - 1)
		return -ERANGE;
	file->head.slots = (uint32_t)slots;
	file->head.span = span;
	file->slot = calloc(slots, sizeof *file->slot);
	return file->slot ? 0 : -ENOMEM;
}

int ptv_file_create(const char *path, uint64_t ring, uint32_t list_size, struct ptv_file **ret)
{
	struct ptv_file *file = calloc(1, sizeof *file);
	if (!file)
		return -ENOMEM;
	file->fd = -1;
	file->head = (struct ptv_file_head){.magic = PTV_FILE_MAGIC, .version = PTV_VERSION, .list_size = list_size};
	memset(file->slot_of, 0xff, sizeof file->slot_of);
	moment(&file->head.tsc0, &file->head.t0);
	file->head.tsc1 = file->head.tsc0;
	file->head.t1 = file->head.t0;
	int error = ring ? make_slots(file, ring, list_size) : 0;
	if (error == 0) {
		file->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		error = file->fd < 0 ? -errno : write_at(file->fd, &file->head, sizeof file->head, 0);
	}
	file->end = PTV_NAMES_END;
	if (error == 0 && ftruncate(file->fd, (off_t)file->end) != 0)
		error = -errno;
	if (error < 0)
		ptv_file_destroy(file);
	else
		*ret = file;
	return error;
}

void ptv_file_destroy(struct ptv_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	free(file->slot);
	free(file);
}

uint64_t ptv_file_overwritten(const struct ptv_file *file) { return file->head.overwritten; }

/* --- the sink ---------------------------------------------------------------------------------------------------- */

static int put_name(void *self, uint32_t index, const void *entry)
{
	struct ptv_file *file = self;
	if (index < PTV_KINDS)
		return write_at(file->fd, entry, sizeof(struct ptv_kind_entry),
				PTV_KINDS_AT + index * sizeof(struct ptv_kind_entry));
	return write_at(file->fd, entry, sizeof(struct ptv_key_entry),
			PTV_KEYS_AT + (index - PTV_KINDS) * sizeof(struct ptv_key_entry));
}

/* At the file's end: header and events in one go, and nothing of them when there is no room. */
static int append(struct ptv_file *file, const struct ptv_chunk *chunk, const unsigned char *data)
{
	struct iovec parts[] = {{(void *)(uintptr_t)chunk, sizeof *chunk}, {(void *)(uintptr_t)data, chunk->bytes}};
	if (chunk->bytes == 0)
		return 0;
	ssize_t done = pwritev(file->fd, parts, 2, (off_t)file->end);
	int error = done < 0 ? -errno : 0;
	uint64_t whole = sizeof *chunk + chunk->bytes, got = done < 0 ? 0 : (uint64_t)done;
	if (got < sizeof *chunk && error == 0)
		error = -ENOSPC;
	if (error == 0 && got < whole)
		error = write_at(file->fd, data + (got - sizeof *chunk), whole - got, file->end + got);
	if (error == 0)
		file->end += whole;
	else if (ftruncate(file->fd, (off_t)file->end) != 0)
		return error; /* a reader takes the whole events of what is there */
	return error;
}

/* The TSC of the newest event, as far as the events say; none is newer than now. */
static uint64_t newest_of(const unsigned char *data, uint32_t bytes)
{
	const uint64_t now = __rdtsc();
	uint64_t newest = 0;
	for (uint32_t at = 0; bytes - at >= sizeof(struct ptv_record);) {
		const struct ptv_record *record = (const struct ptv_record *)(data + at);
		uint32_t size = __atomic_load_n(&record->size, __ATOMIC_RELAXED); /* it may change: it is the target's */
		uint64_t tsc = __atomic_load_n(&record->tsc, __ATOMIC_RELAXED);
		newest = tsc > newest && tsc <= now ? tsc : newest;
		if (size < sizeof *record || size % 8 != 0 || size > bytes - at)
			break;
		at += size;
	}
	return newest;
}

/* The slot whose newest event is the oldest, for a list that begins; none if that list is `done` and older than all of
 * them: lists of several lanes come in any order. Those of one lane come in theirs, so its slots go in that order, too:
 * all but its last are closed by then. */
static uint32_t take_slot(struct ptv_file *file, uint64_t newest, bool done)
{
	uint32_t oldest = NO_SLOT;
	for (uint32_t i = 0; i < file->head.slots; i++)
		if (!file->slot[i].open && (oldest == NO_SLOT || file->slot[i].newest < file->slot[oldest].newest))
			oldest = i;
	if (oldest == NO_SLOT || (done && file->slot[oldest].newest > newest))
		return NO_SLOT;
	file->head.overwritten += file->slot[oldest].events;
	file->slot[oldest] = (struct slot){0, newest, true};
	return oldest;
}

/* Into the list's slot, behind what is there of it. The header is 0 while a slot passes to another list. */
static int put_in_ring(struct ptv_file *file, uint32_t list, const struct ptv_chunk *chunk, const unsigned char *data,
		       bool last)
{
	struct ptv_chunk *said = &file->chunk_of[list];
	uint64_t newest = newest_of(data, chunk->bytes);
	int error = 0;
	if (chunk->bytes && file->slot_of[list] == NO_SLOT && chunk->offset == 0) {
		file->slot_of[list] = take_slot(file, newest, last);
		*said = (struct ptv_chunk){0};
		if (file->slot_of[list] != NO_SLOT)
			error = write_at(file->fd, said, sizeof *said, PTV_NAMES_END + file->slot_of[list] * file->head.span);
		*said = *chunk;
		said->span = file->head.span;
		said->bytes = said->events = 0;
	}
	uint32_t slot = file->slot_of[list];
	if (slot == NO_SLOT) { /* too old, or more lists are under way than the ring has slots */
		file->head.overwritten += chunk->events;
		return 0;
	}
	uint64_t at = PTV_NAMES_END + slot * file->head.span;
	if (error == 0)
		error = write_at(file->fd, data, chunk->bytes, at + sizeof *said + chunk->offset);
	if (error == 0) {
		said->bytes = chunk->offset + chunk->bytes;
		said->events += chunk->events;
		error = write_at(file->fd, said, sizeof *said, at);
	}
	if (error == 0)
		file->slot[slot].events = said->events;
	if (newest > file->slot[slot].newest)
		file->slot[slot].newest = newest;
	if (last) {
		file->slot[slot].open = false;
		file->slot_of[list] = NO_SLOT;
	}
	return error;
}

static int put_chunk(void *self, uint32_t list, const struct ptv_chunk *chunk, const unsigned char *data, bool last)
{
	struct ptv_file *file = self;
	return file->head.slots ? put_in_ring(file, list, chunk, data, last) : append(file, chunk, data);
}

static int save(void *self, const struct ptv_totals *totals, bool closed)
{
	struct ptv_file *file = self;
	struct ptv_file_head *head = &file->head;
	moment(&head->tsc1, &head->t1);
	head->closed = closed;
	head->begun = totals->begun;
	head->stored = totals->stored;
	head->lost = totals->lost;
	head->corrupt = totals->corrupt;
	head->unwritten = totals->unwritten;
	uint64_t known = totals->stored + totals->unwritten + totals->lost;
	head->unfinished = closed && totals->begun > known ? totals->begun - known : 0;
	memcpy(head->dropped, totals->dropped, sizeof head->dropped);
	return write_at(file->fd, head, sizeof *head, 0);
}

struct ptv_sink ptv_file_sink(struct ptv_file *file)
{
	return (struct ptv_sink){.self = file, .name = put_name, .chunk = put_chunk, .save = save};
}

/* --- all in one -------------------------------------------------------------------------------------------------- */

int ptv_recorder_init(struct ptv_recorder *recorder, int fd, const char *path, uint64_t ring)
{
	struct ptv_head head;
	*recorder = (struct ptv_recorder){NULL, NULL};
	if (pread(fd, &head, sizeof head, 0) != sizeof head || head.list_size < PTV_LIST_SIZE_MIN ||
	    head.list_size > PTV_LIST_SIZE_MAX)
		return -EINVAL;
	int error = ptv_file_create(path, ring, head.list_size, &recorder->file);
	if (error < 0)
		return error;
	struct ptv_sink sink = ptv_file_sink(recorder->file);
	error = ptv_consumer_create(fd, &sink, &recorder->consumer);
	if (error < 0) {
		ptv_file_destroy(recorder->file);
		unlink(path);
	}
	return error;
}

void ptv_recorder_deinit(struct ptv_recorder *recorder)
{
	ptv_consumer_destroy(recorder->consumer);
	ptv_file_destroy(recorder->file);
}
