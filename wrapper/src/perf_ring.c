/* SPDX-License-Identifier: MIT */
/* See perf_ring.h. Thread-safe for different rings; not signal-safe (it writes files); safe after fork where the
 * rings are not used by both sides. */
#define _GNU_SOURCE
#include "perf_ring.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <unistd.h>

#define AUX_PAGE 4096

/* Heads are written by the kernel, tails by us: what lies between them is read after the one and before the other. */
static uint64_t load(const __u64 *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(__u64 *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void copy_out(const uint8_t *area, uint64_t size, uint64_t at, void *to, uint64_t wanted)
{
	uint64_t offset = at & (size - 1);
	uint64_t first = size - offset < wanted ? size - offset : wanted;

	memcpy(to, area + offset, first);
	memcpy((uint8_t *)to + first, area, wanted - first);
}

int64_t ptw_ring_records(struct ptw_ring *ring, uint8_t *out, uint64_t room)
{
	struct perf_event_mmap_page *page = ring->page;
	uint64_t size = page->data_size, taken = 0;
	uint64_t head = load(&page->data_head), tail = page->data_tail;

	if (page->data_offset >= ring->mapped || size > ring->mapped - page->data_offset || !size || (size & (size - 1)) ||
	    head - tail > size)
		return -EBADMSG;
	const uint8_t *area = (const uint8_t *)ring->page + page->data_offset;

	while (tail < head) {
		struct perf_event_header header;

		if (head - tail < sizeof(header))
			return -EBADMSG;
		copy_out(area, size, tail, &header, sizeof(header));
		if (header.size < sizeof(header) || header.size > head - tail)
			return -EBADMSG;
		if (header.size > room - taken)
			break;
		copy_out(area, size, tail, out + taken, header.size);
		taken += header.size;
		tail += header.size;
	}
	store(&page->data_tail, tail);
	return (int64_t)taken;
}

/* How many of the bytes were written. */
static uint64_t put(struct ptw_ring *ring, const uint8_t *bytes, uint64_t size)
{
	uint64_t written = 0;

	while (written < size && ring->file >= 0) {
		ssize_t done = write(ring->file, bytes + written, size - written);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0) {
			if (!ring->error)
				ring->error = done < 0 ? errno : EIO;
			break;
		}
		written += (uint64_t)done;
	}
	return written;
}

/* Bytes `from` to `until`, counted from the beginning of the trace. */
static void put_span(struct ptw_ring *ring, uint64_t from, uint64_t until)
{
	while (from < until) {
		uint64_t offset = from & (ring->aux_size - 1);
		uint64_t part = ring->aux_size - offset < until - from ? ring->aux_size - offset : until - from;
		uint64_t written = put(ring, ring->aux + offset, part);

		ring->stored += written;
		ring->lost += part - written;
		from += part;
	}
}

int64_t ptw_ring_aux(struct ptw_ring *ring)
{
	struct perf_event_mmap_page *page = ring->page;

	if (!ring->aux)
		return 0;
	uint64_t head = load(&page->aux_head), from = ring->position;

	ring->full = head - page->aux_tail >= ring->aux_size - 1;
	if (head == from)
		return 0;
	if (head - from > ring->aux_size) {
		ring->overwritten += head - from - ring->aux_size;
		from = head - ring->aux_size;
	}
	put_span(ring, from, head);
	ring->position = head;
	store(&page->aux_tail, head & ~(uint64_t)(AUX_PAGE - 1));
	return (int64_t)(head - from);
}

int64_t ptw_rings_aux(struct ptw_ring **rings, uint64_t count)
{
	int64_t taken = 0;

	for (uint64_t i = 0; i < count; i++)
		taken += ptw_ring_aux(rings[i]);
	return taken;
}

int64_t ptw_ring_snapshot(struct ptw_ring *ring)
{
	const struct perf_event_mmap_page *page = ring->page;
	uint64_t before = ring->stored + ring->lost;

	if (!ring->aux)
		return 0;
	uint64_t head = load(&page->aux_head) & (ring->aux_size - 1), begin = head;

	/* the area is zero at first: what is zero was never reached (and of what was, PAD packets say nothing) */
	while (begin < head + ring->aux_size && !ring->aux[begin & (ring->aux_size - 1)])
		begin++;
	put_span(ring, begin, head + ring->aux_size);
	return (int64_t)(ring->stored + ring->lost - before);
}

uint64_t ptw_ring_aux_head(const struct ptw_ring *ring)
{
	const struct perf_event_mmap_page *page = ring->page;

	return load(&page->aux_head);
}

int ptw_ring_time(const struct ptw_ring *ring, struct ptw_time *ret)
{
	const volatile struct perf_event_mmap_page *page = ring->page;
	uint32_t sequence;

	do {
		sequence = page->lock;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!page->cap_user_time_zero)
			return -EOPNOTSUPP;
		ret->zero = page->time_zero;
		ret->mult = page->time_mult;
		ret->shift = page->time_shift;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (sequence & 1 || page->lock != sequence);
	return 0;
}
