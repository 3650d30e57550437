/* SPDX-License-Identifier: MIT */
/* Reading a file of events; vector_reader.h says what is guaranteed. */
#define _GNU_SOURCE
#include "vector_reader.h"

#include "evl_time.h"
#include "grow.h"
#include "vector_rows.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEYS_BYTES = PTV_KEYS * sizeof(struct ptv_key_entry), KINDS_BYTES = PTV_KINDS * sizeof(struct ptv_kind_entry) };

/* Where a chunk's events are. */
struct place {
	struct ptv_chunk chunk;
	uint64_t at;
};

struct evv_reader {
	struct ptv_file_head head;
	struct ptv_kind_entry kind[PTV_KINDS];
	struct ptv_key_entry key[PTV_KEYS];
	struct evv_rows *rows[PTV_KINDS]; /* NULL: no event of that kind yet */
	struct place *place;
	size_t places, capacity, next;
	unsigned char *buffer;
	uint32_t have, done; /* bytes of the chunk at hand */
	struct evv_origin origin;
	int given; /* kind of the batch that was handed out last; -1 none */
	int fd;
	struct evv_counts counts;
};

/* As much of `size` bytes as there is; negative errno. */
static ssize_t read_at(int fd, void *ret, size_t size, uint64_t at)
{
	size_t have = 0;
	while (have < size) {
		ssize_t got = pread(fd, (unsigned char *)ret + have, size - have, (off_t)(at + have));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		have += (size_t)got;
	}
	return (ssize_t)have;
}

/* --- opening ----------------------------------------------------------------------------------------------------- */

static bool is_sound(struct ptv_kind_entry *kind)
{
	kind->name[PTV_NAME - 1] = 0;
	if (kind->state != PTV_NAME_THERE || kind->fields > PTV_FIELDS || !*kind->name)
		return false;
	for (uint32_t i = 0; i < kind->fields; i++) {
		kind->field[i].name[PTV_FIELD_NAME - 1] = 0;
		if (kind->field[i].type == 0 || kind->field[i].type >= PTV_TYPES || !*kind->field[i].name)
			return false;
	}
	return true;
}

/* Names as they are now: more may come while the file is being written. */
static int read_names(struct evv_reader *reader)
{
	ssize_t got = read_at(reader->fd, reader->kind, KINDS_BYTES, PTV_KINDS_AT);
	if (got >= 0)
		got = read_at(reader->fd, reader->key, KEYS_BYTES, PTV_KEYS_AT);
	for (uint32_t i = 0; got >= 0 && i < PTV_KINDS; i++)
		if (!is_sound(&reader->kind[i]))
			reader->kind[i].state = PTV_NAME_FREE;
	for (uint32_t i = 0; got >= 0 && i < PTV_KEYS; i++)
		reader->key[i].name[PTV_NAME - 1] = 0;
	return got < 0 ? (int)got : 0;
}

static int add_place(struct evv_reader *reader, const struct ptv_chunk *chunk, uint64_t at)
{
	if (reader->places == reader->capacity) {
		size_t capacity = reader->capacity ? reader->capacity * 2 : 256;
		int error = ptd_grow(&reader->place, capacity, sizeof *reader->place);
		if (error < 0)
			return error;
		reader->capacity = capacity;
	}
	reader->place[reader->places++] = (struct place){*chunk, at};
	return 0;
}

/* All chunks; what stands behind one that is none is not read. */
static int find_chunks(struct evv_reader *reader, uint64_t size)
{
	bool ring = reader->head.slots != 0;
	uint64_t at = PTV_NAMES_END;
	while (at + sizeof(struct ptv_chunk) <= size) {
		struct ptv_chunk chunk;
		ssize_t got = read_at(reader->fd, &chunk, sizeof chunk, at);
		if (got < 0)
			return (int)got;
		uint64_t span = ring ? reader->head.span : sizeof chunk + (uint64_t)chunk.bytes;
		bool sound = (size_t)got == sizeof chunk && chunk.magic == PTV_CHUNK_MAGIC &&
			     chunk.bytes <= reader->head.list_size && chunk.span == span;
		if (sound && chunk.serial) {
			int error = add_place(reader, &chunk, at + sizeof chunk);
			if (error < 0)
				return error;
		} else if (!ring) {
			reader->counts.unread += size - at;
			return 0;
		} else if (chunk.magic || chunk.serial) {
			reader->counts.unread += span;
		}
		at += span;
	}
	if (!ring && at < size) /* cut in its header; a chunk that is cut behind it is in the index */
		reader->counts.unread += size - at;
	return 0;
}

static int in_order(const void *left, const void *right)
{
	const struct ptv_chunk *a = &((const struct place *)left)->chunk, *b = &((const struct place *)right)->chunk;
	if (a->producer != b->producer)
		return a->producer < b->producer ? -1 : 1;
	if (a->lane != b->lane)
		return a->lane < b->lane ? -1 : 1;
	if (a->sequence != b->sequence)
		return a->sequence < b->sequence ? -1 : 1;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static int begin(struct evv_reader *reader, const char *path)
{
	struct stat status;
	reader->fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (reader->fd < 0)
		return -errno;
	if (fstat(reader->fd, &status) != 0 || !S_ISREG(status.st_mode))
		return -EINVAL;
	ssize_t got = read_at(reader->fd, &reader->head, sizeof reader->head, 0);
	const struct ptv_file_head *head = &reader->head;
	if (got < 0)
		return (int)got;
	if ((size_t)got != sizeof *head || head->magic != PTV_FILE_MAGIC)
		return -EINVAL;
	if (head->version != PTV_VERSION)
		return -ENOTSUP;
	if (head->list_size < PTV_LIST_SIZE_MIN || head->list_size > PTV_LIST_SIZE_MAX || head->list_size % PTV_ALIGN ||
	    (head->slots && (head->span < sizeof(struct ptv_chunk) + head->list_size || head->span % PTV_ALIGN ||
			     head->span > 2ull * PTV_LIST_SIZE_MAX)))
		return -EINVAL;
	reader->buffer = malloc(head->list_size);
	if (!reader->buffer)
		return -ENOMEM;
	int error = find_chunks(reader, (uint64_t)status.st_size);
	if (error == 0)
		error = read_names(reader); /* behind the chunks: what they need is there */
	if (error == 0 && reader->places)
		qsort(reader->place, reader->places, sizeof *reader->place, in_order);
	return error;
}

int evv_reader_open(const char *path, struct evv_reader **ret)
{
	struct evv_reader *reader = calloc(1, sizeof *reader);
	if (!reader)
		return -ENOMEM;
	reader->given = -1;
	reader->fd = -1;
	int error = begin(reader, path);
	if (error < 0)
		evv_reader_close(reader);
	else
		*ret = reader;
	return error;
}

void evv_reader_close(struct evv_reader *reader)
{
	for (uint32_t i = 0; i < PTV_KINDS; i++)
		if (reader->rows[i]) {
			evv_rows_deinit(reader->rows[i]);
			free(reader->rows[i]);
		}
	if (reader->fd >= 0)
		close(reader->fd);
	free(reader->place);
	free(reader->buffer);
	free(reader);
}

const struct ptv_file_head *evv_reader_head(const struct evv_reader *reader) { return &reader->head; }

const struct ptv_kind_entry *evv_reader_kind(const struct evv_reader *reader, uint32_t index)
{
	return index < PTV_KINDS && reader->kind[index].state == PTV_NAME_THERE ? &reader->kind[index] : NULL;
}

void evv_reader_counts(const struct evv_reader *reader, struct evv_counts *ret) { *ret = reader->counts; }

void evv_times(const struct evl_clocks *clocks, const uint64_t *tsc, size_t rows, int64_t *ret)
{
	for (size_t i = 0; i < rows; i++)
		ret[i] = evl_to_ns(clocks, tsc[i]);
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

/* The next chunk's events into the buffer: 1, 0: there is none, or negative errno. */
static int next_chunk(struct evv_reader *reader)
{
	while (reader->next < reader->places) {
		const struct place *place = &reader->place[reader->next++];
		struct ptv_chunk again;
		ssize_t got = read_at(reader->fd, reader->buffer, place->chunk.bytes, place->at);
		if (got < 0)
			return (int)got;
		if (reader->head.slots) { /* it may have become another list's while it was read */
			ssize_t whole = read_at(reader->fd, &again, sizeof again, place->at - sizeof again);
			if (whole != sizeof again || again.serial != place->chunk.serial) {
				reader->counts.moved++;
				continue;
			}
		}
		reader->have = (uint32_t)got;
		reader->done = 0;
		reader->origin = (struct evv_origin){place->chunk.pid, place->chunk.tid, place->chunk.producer,
						     reader->key};
		return 1;
	}
	return 0;
}

static struct evv_rows *rows_of(struct evv_reader *reader, uint16_t kind)
{
	struct evv_rows *rows = reader->rows[kind];
	if (!rows && (rows = reader->rows[kind] = calloc(1, sizeof *rows)))
		rows->kind = &reader->kind[kind];
	return rows;
}

/* The event at `done`. 1: its kind's rows are full, 0, or negative errno. */
static int take(struct evv_reader *reader)
{
	struct ptv_record head;
	const unsigned char *at = reader->buffer + reader->done;
	uint32_t left = reader->have - reader->done;
	if (left >= sizeof head)
		memcpy(&head, at, sizeof head);
	if (left < sizeof head || head.size < sizeof head || head.size % 8 || head.size > left) {
		reader->counts.unread += left;
		reader->done = reader->have;
		return 0;
	}
	reader->done += head.size;
	if (head.size > PTV_EVENT_MAX || !evv_reader_kind(reader, head.kind)) {
		reader->counts.corrupt++;
		return 0;
	}
	struct evv_rows *rows = rows_of(reader, head.kind);
	int added = rows ? evv_rows_add(rows, &reader->origin, at, head.size) : -ENOMEM;
	if (added < 0)
		return added;
	reader->counts.events += (uint64_t)added;
	reader->counts.corrupt += !added;
	reader->given = head.kind;
	return evv_rows_full(rows);
}

static int give(struct evv_reader *reader, uint32_t kind, struct evv_batch *ret)
{
	evv_rows_batch(reader->rows[kind], kind, ret);
	reader->given = (int)kind;
	return 1;
}

int evv_reader_next(struct evv_reader *reader, struct evv_batch *ret)
{
	if (reader->given >= 0)
		evv_rows_clear(reader->rows[reader->given]);
	reader->given = -1;
	for (;;) {
		while (reader->done < reader->have) {
			int full = take(reader);
			if (full < 0)
				return full;
			if (full)
				return give(reader, (uint32_t)reader->given, ret);
			reader->given = -1;
		}
		int more = next_chunk(reader);
		if (more < 0)
			return more;
		if (more == 0)
			break;
	}
	for (uint32_t i = 0; i < PTV_KINDS; i++)
		if (reader->rows[i] && reader->rows[i]->rows)
			return give(reader, i, ret);
	return 0;
}
