/* SPDX-License-Identifier: MIT */
/*
 * Rows of one kind of events, appended one by one: the builder behind a batch of vector_reader.h. Owns its memory; the
 * columns of a batch are its own, until rows are added or removed.
 */
#ifndef EVV_ROWS_H
#define EVV_ROWS_H

#include "vector_reader.h"

#include <stdbool.h>

enum { EVV_PAIRS = PTV_EVENT_MAX / 16 }; /* an event has no more: that is a pair's least size */

/* Values of varying length, or numbers. */
struct evv_values {
	uint64_t *word;
	int32_t *offset;
	unsigned char *data;
	uint8_t *valid;
	size_t rows, capacity, data_size, data_capacity;
};

struct evv_rows {
	const struct ptv_kind_entry *kind;
	uint32_t rows, capacity;
	uint32_t *pid, *tid, *producer;
	uint64_t *tsc;
	uint8_t *truncated;
	int32_t *pair_offset;
	struct evv_values field[PTV_FIELDS], key, value;
	uint32_t pair[EVV_PAIRS]; /* of the event at hand */
};

/* Where a row comes from. */
struct evv_origin {
	uint32_t pid, tid, producer;
	const struct ptv_key_entry *keys; /* PTV_KEYS, names ended by a NUL */
};

/* Append `record` of `size` bytes. 1, 0: it contradicts itself and was left out, or -ENOMEM. */
int evv_rows_add(struct evv_rows *rows, const struct evv_origin *origin, const unsigned char *record, uint32_t size);

/* No batch should have more. */
bool evv_rows_full(const struct evv_rows *rows);

void evv_rows_batch(const struct evv_rows *rows, uint32_t kind, struct evv_batch *ret);
void evv_rows_clear(struct evv_rows *rows);
void evv_rows_deinit(struct evv_rows *rows);

#endif
