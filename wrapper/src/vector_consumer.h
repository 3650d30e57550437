/* SPDX-License-Identifier: MIT */
/*
 * The consumer of an event vector (preload/src/vector_format.h): takes what is finished, gives lists back, counts.
 *
 * The memory is somebody else's and may say anything at any moment: each word is read once and checked before it is
 * used. What is taken goes to a sink, of each lane in the order it was written in; a sink that fails is told of no more
 * chunks, and what it did not take is counted.
 * One consumer a vector. Not thread-safe. Errors are negative errno.
 */
#ifndef PTW_VECTOR_CONSUMER_H
#define PTW_VECTOR_CONSUMER_H

#include "../../preload/src/vector_format.h"

#include <stdbool.h>

/* Events as far as the lists read to their end say: begun = stored + lost + unfinished; `stored` of them were taken. */
struct ptv_totals {
	uint64_t begun;
	uint64_t stored;
	uint64_t lost;
	uint64_t corrupt;   /* bytes of lists whose descriptors contradicted themselves */
	uint64_t unwritten; /* events that the sink did not take */
	uint64_t dropped[PTV_DROPS];
};

/* Where what was taken goes. `name` gets each kind (the index is below PTV_KINDS) and key (behind them) before the first
 * chunk that may use it; `chunk` gets `list`, the number of the list, and in the chunk where in that list its events
 * began; with `last` the list is done. Both 0 or negative errno; `save` is called now and then, and at the end. */
struct ptv_sink {
	void *self;
	int (*name)(void *self, uint32_t index, const void *entry);
	int (*chunk)(void *self, uint32_t list, const struct ptv_chunk *chunk, const unsigned char *data, bool last);
	int (*save)(void *self, const struct ptv_totals *totals, bool closed);
};

struct ptv_consumer;

/* Look at the vector in `fd` (which stays the caller's). 0 and *ret, or -EINVAL when it is none, … */
int ptv_consumer_create(int fd, const struct ptv_sink *sink, struct ptv_consumer **ret);
void ptv_consumer_destroy(struct ptv_consumer *consumer);

/* Take what was handed over, with `open` also what is finished in lists that are written to. Returns how many lists
 * were given back, or what the sink said when it failed (once). Call it several times a second: producers that hear
 * nothing for 5 s take no new lists into use. */
int ptv_consumer_poll(struct ptv_consumer *consumer, bool open);

/* All producers of process `pid`, or with 0 all there are, have ended: take their lists to the end. As poll. */
int ptv_consumer_reap(struct ptv_consumer *consumer, uint32_t pid);

/* Everybody has ended: reap all, save. As poll. */
int ptv_consumer_finish(struct ptv_consumer *consumer);

void ptv_consumer_totals(const struct ptv_consumer *consumer, struct ptv_totals *ret);

#endif
