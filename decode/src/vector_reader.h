/* SPDX-License-Identifier: MIT */
/*
 * Reading a file of events (preload/src/vector_format.h) into columns: rows of one kind at a time.
 *
 * The file may be in the midst of being written, cut short, or hostile: every length is checked before it is used; an
 * event that contradicts itself is counted and left out, and where a chunk cannot be walked any further its rest is
 * counted. Events of one producer and lane come in the order they were committed in. Memory: a chunk, an index of the
 * chunks, and a batch of each kind. Not thread-safe. Errors are negative errno.
 */
#ifndef EVV_READER_H
#define EVV_READER_H

#include "../../preload/src/vector_format.h"

#include "evl.h"

#include <stddef.h>
#include <stdint.h>

enum {
	EVV_ROWS = 1 << 16,         /* a batch has no more rows */
	EVV_DATA_BYTES = 256 << 20, /* nor, but for its last row, more bytes in a column */
};

/* `rows` values. Of text, bytes and words value i lies in data[offset[i]] up to data[offset[i + 1]] (offsets in bytes),
 * otherwise it is word[i]. */
struct evv_column {
	uint32_t type; /* enum ptv_type */
	const uint8_t *valid;
	const uint64_t *word;
	const int32_t *offset;
	const unsigned char *data;
};

/* Rows of one kind. Pairs of row i are elements pair_offset[i] up to pair_offset[i + 1] of `key` and `value`, in the
 * order they were added; both are text: numbers are decimal, bytes are \xNN. Valid until the next call. */
struct evv_batch {
	uint32_t kind;
	uint32_t rows;
	const uint32_t *pid, *tid, *producer;
	const uint64_t *tsc;
	const uint8_t *truncated;
	struct evv_column field[PTV_FIELDS];
	const int32_t *pair_offset;
	struct evv_column key, value;
};

struct evv_counts {
	uint64_t events;  /* came out */
	uint64_t corrupt; /* contradicted themselves */
	uint64_t unread;  /* bytes of which nothing could be made */
	uint64_t moved;   /* chunks of a ring that were overwritten while they were read */
};

struct evv_reader;

/* -EINVAL: it is no file of events; -ENOTSUP: of another version. */
int evv_reader_open(const char *path, struct evv_reader **ret);
void evv_reader_close(struct evv_reader *reader);

const struct ptv_file_head *evv_reader_head(const struct evv_reader *reader);

/* Kind `index` as it stands in the file, names ended by a NUL; NULL: there is none. */
const struct ptv_kind_entry *evv_reader_kind(const struct evv_reader *reader, uint32_t index);

/* The next batch: 1, or 0 at the end. */
int evv_reader_next(struct evv_reader *reader, struct evv_batch *ret);

/* Times of `rows` TSCs, in ns. */
void evv_times(const struct evl_clocks *clocks, const uint64_t *tsc, size_t rows, int64_t *ret);

void evv_reader_counts(const struct evv_reader *reader, struct evv_counts *ret);

#endif
