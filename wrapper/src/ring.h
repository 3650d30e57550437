/* SPDX-License-Identifier: MIT */
/*
 * The consumer's end of a BPF ring buffer (kernel: Documentation/bpf/ringbuf.rst): two position pages and the data,
 * mapped twice in a row so that a record is always contiguous.
 *
 * One thread consumes at a time; the caller sees to that. The mapping is not inherited by a forked child.
 */
#ifndef PTW_RING_H
#define PTW_RING_H

#include <stddef.h>
#include <stdint.h>

struct ptw_ring {
	uint64_t *consumer;		/* position, written by us */
	const uint64_t *producer;	/* position, written by the kernel */
	const unsigned char *data;
	uint64_t mask;
	size_t page;
};

/* Takes a record of `size` bytes. Returns 0, or anything else to leave it (and what follows) in the ring. */
typedef int ptw_ring_taker(void *context, const void *record, size_t size);

/* Map the ring behind `map_fd`, of `size` bytes. Returns 0 or a negative errno. */
int ptw_ring_init(struct ptw_ring *ring, int map_fd, size_t size);
void ptw_ring_deinit(struct ptw_ring *ring);

/* Bytes in it that were not consumed. */
uint64_t ptw_ring_used(const struct ptw_ring *ring);

/*
 * Hand at most `limit` committed records to `take`, in order. Returns how many were taken; `*stopped` gets what `take`
 * returned when it left one, else 0.
 */
uint64_t ptw_ring_consume(struct ptw_ring *ring, ptw_ring_taker *take, void *context, uint64_t limit, int *stopped);

#endif
