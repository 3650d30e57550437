/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "ring.h"

#include <errno.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

int ptw_ring_init(struct ptw_ring *ring, int map_fd, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *consumer;
	void *producer;
	int error;

	consumer = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
	if (consumer == MAP_FAILED)
		return -errno;
	producer = mmap(NULL, page + 2 * size, PROT_READ, MAP_SHARED, map_fd, (off_t)page);
	if (producer == MAP_FAILED) {
		error = -errno;
		munmap(consumer, page);
		return error;
	}
	/* the target is forked from us: it must not hold the recorder's memory */
	(void)madvise(consumer, page, MADV_DONTFORK);
	(void)madvise(producer, page + 2 * size, MADV_DONTFORK);
	*ring = (struct ptw_ring){
		.consumer = consumer,
		.producer = producer,
		.data = (const unsigned char *)producer + page,
		.mask = size - 1,
		.page = page,
	};
	return 0;
}

void ptw_ring_deinit(struct ptw_ring *ring)
{
	if (!ring->consumer)
		return;
	munmap((void *)ring->producer, ring->page + 2 * (ring->mask + 1));
	munmap(ring->consumer, ring->page);
	*ring = (struct ptw_ring){0};
}

uint64_t ptw_ring_used(const struct ptw_ring *ring)
{
	uint64_t position = __atomic_load_n(ring->consumer, __ATOMIC_RELAXED);

	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - position;
}

uint64_t ptw_ring_consume(struct ptw_ring *ring, ptw_ring_taker *take, void *context, uint64_t limit, int *stopped)
{
	uint64_t position = __atomic_load_n(ring->consumer, __ATOMIC_RELAXED);
	uint64_t end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
	uint64_t published = position;
	uint64_t taken = 0;

	*stopped = 0;
	while (taken < limit) {
		const unsigned char *header = ring->data + (position & ring->mask);
		uint32_t word;
		uint32_t size;

		if (position >= end) {
			end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
			if (position >= end)
				break;
		}
		word = __atomic_load_n((const uint32_t *)(const void *)header, __ATOMIC_ACQUIRE);
		if (word & BPF_RINGBUF_BUSY_BIT)
			break;	/* reserved, not committed yet: what follows waits, order is kept */
		size = word & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
		if (!(word & BPF_RINGBUF_DISCARD_BIT)) {
			*stopped = take(context, header + BPF_RINGBUF_HDR_SZ, size);
			if (*stopped)
				break;
			taken++;
		}
		position += (size + BPF_RINGBUF_HDR_SZ + 7) & ~7ull;
		if (position - published > (ring->mask + 1) / 16) {	/* give room back while a long drain goes on */
			__atomic_store_n(ring->consumer, position, __ATOMIC_RELEASE);
			published = position;
		}
	}
	__atomic_store_n(ring->consumer, position, __ATOMIC_RELEASE);
	return taken;
}
