/* SPDX-License-Identifier: MIT */
/*
 * Holds wrapper/src/perf_ring.c to its promises on rings made here: records over the ring's end, records that lie about
 * their size, AUX bytes over many wraps with a writer in another thread, a file that cannot be written, snapshots.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "perf_ring.h"

enum { PAGE = 4096, DATA = 4096, AUX = 16384 };

static uint8_t byte_at(uint64_t position)
{
	return (uint8_t)(position * 2654435761u >> 13);
}

static struct perf_event_mmap_page *make(struct ptw_ring *ring, int file)
{
	uint8_t *memory = aligned_alloc(PAGE, PAGE + DATA);
	struct perf_event_mmap_page *page = (void *)memory;

	assert(memory);
	memset(memory, 0, PAGE + DATA);
	page->data_offset = PAGE;
	page->data_size = DATA;
	memset(ring, 0, sizeof(*ring));
	ring->page = page;
	ring->mapped = PAGE + DATA;
	ring->aux = calloc(1, AUX);
	ring->aux_size = AUX;
	ring->file = file;
	return page;
}

static void drop(struct ptw_ring *ring)
{
	free(ring->page);
	free((void *)ring->aux);
}

static void put_record(struct perf_event_mmap_page *page, uint16_t size, uint8_t fill)
{
	uint8_t *area = (uint8_t *)page + PAGE;
	struct perf_event_header header = { .type = fill, .size = size };
	uint8_t bytes[65536];

	memset(bytes, fill, sizeof(bytes));
	memcpy(bytes, &header, sizeof(header));
	for (uint16_t i = 0; i < size; i++)
		area[(page->data_head + i) % DATA] = bytes[i];
	page->data_head += size;
}

static void check_records(void)
{
	static uint8_t out[65536];
	struct ptw_ring ring;
	struct perf_event_mmap_page *page = make(&ring, -1);

	for (int round = 0; round < 1000; round++) {
		uint16_t size = (uint16_t)(8 + 8 * (round * 7 % 200));

		put_record(page, size, (uint8_t)(round | 1));
		put_record(page, 16, 2);
		assert(ptw_ring_records(&ring, out, sizeof(out)) == size + 16);
		for (int i = 8; i < size; i++)
			assert(out[i] == (uint8_t)(round | 1));
		assert(page->data_tail == page->data_head);
		assert(ptw_ring_records(&ring, out, sizeof(out)) == 0);
	}
	put_record(page, 800, 3);
	put_record(page, 800, 4);
	assert(ptw_ring_records(&ring, out, 1000) == 800); /* only whole ones */
	assert(ptw_ring_records(&ring, out, 1000) == 800);
	drop(&ring);
}

static void check_lies(void)
{
	static uint8_t out[65536];
	struct ptw_ring ring;
	struct perf_event_mmap_page *page = make(&ring, -1);

	put_record(page, 16, 1);
	((struct perf_event_header *)((uint8_t *)page + PAGE))->size = 4000; /* more than there is */
	assert(ptw_ring_records(&ring, out, sizeof(out)) == -EBADMSG);
	((struct perf_event_header *)((uint8_t *)page + PAGE))->size = 0;
	assert(ptw_ring_records(&ring, out, sizeof(out)) == -EBADMSG);
	page->data_head = DATA + 8;
	assert(ptw_ring_records(&ring, out, sizeof(out)) == -EBADMSG);
	page->data_head = 16;
	page->data_size = 1 << 20; /* more than is mapped */
	assert(ptw_ring_records(&ring, out, sizeof(out)) == -EBADMSG);
	page->data_size = 1000; /* no power of two */
	assert(ptw_ring_records(&ring, out, sizeof(out)) == -EBADMSG);
	page->data_offset = PAGE + DATA;
	assert(ptw_ring_records(&ring, out, sizeof(out)) == -EBADMSG);
	drop(&ring);
}

/* The kernel's side: never writes over what was not read. */
struct writer {
	struct ptw_ring *ring;
	uint64_t total;
};

static void *write_all(void *argument)
{
	struct writer *writer = argument;
	struct perf_event_mmap_page *page = writer->ring->page;
	uint8_t *area = (uint8_t *)writer->ring->aux;

	for (uint64_t head = 0; head < writer->total;) {
		uint64_t room = AUX - (head - __atomic_load_n(&page->aux_tail, __ATOMIC_ACQUIRE));
		uint64_t part = room < 777 ? room : 777;

		if (part > writer->total - head)
			part = writer->total - head;
		for (uint64_t i = 0; i < part; i++)
			area[(head + i) % AUX] = byte_at(head + i);
		head += part;
		__atomic_store_n(&page->aux_head, head, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void check_file(int file, uint64_t total)
{
	uint8_t bytes[4096];
	uint64_t at = 0;
	ssize_t got;

	assert(lseek(file, 0, SEEK_SET) == 0);
	while ((got = read(file, bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < got; i++, at++)
			assert(bytes[i] == byte_at(at));
	assert(at == total);
}

static void check_aux(void)
{
	struct ptw_ring ring, *rings[] = { &ring };
	int file = memfd_create("aux", 0);
	struct perf_event_mmap_page *page = make(&ring, file);
	struct writer writer = { &ring, 100 * AUX + 12345 };
	pthread_t thread;

	assert(!pthread_create(&thread, NULL, write_all, &writer));
	while (ring.position < writer.total) {
		ptw_rings_aux(rings, 1);
		assert(page->aux_tail % PAGE == 0 && page->aux_tail <= ring.position);
	}
	pthread_join(thread, NULL);
	assert(ring.stored == writer.total && !ring.lost && !ring.overwritten && !ring.error);
	check_file(file, writer.total);
	close(file);
	drop(&ring);
}

static void check_full(void)
{
	struct ptw_ring ring;
	int file = memfd_create("aux", 0);
	struct perf_event_mmap_page *page = make(&ring, file);

	page->aux_head = AUX - 100;
	assert(ptw_ring_aux(&ring) == AUX - 100 && !ring.full);
	page->aux_head = page->aux_tail + AUX;
	assert(ptw_ring_aux(&ring) > 0 && ring.full);
	assert(ptw_ring_aux(&ring) == 0 && !ring.full);
	page->aux_head += 3 * AUX; /* a writer that does not care */
	assert(ptw_ring_aux(&ring) == AUX && ring.overwritten == 2 * AUX);
	assert(ring.stored + ring.overwritten + ring.lost == page->aux_head);
	close(file);
	drop(&ring);
}

static void check_unwritable(void)
{
	struct ptw_ring ring;
	int file = open("/dev/full", O_WRONLY);
	struct perf_event_mmap_page *page = make(&ring, file);

	page->aux_head = 5000;
	assert(ptw_ring_aux(&ring) == 5000);
	assert(ring.stored == 0 && ring.lost == 5000 && ring.error == ENOSPC);
	assert(page->aux_tail == 4096); /* tracing goes on */
	close(file);
	ring.file = -1;
	page->aux_head = 6000;
	assert(ptw_ring_aux(&ring) == 1000 && ring.lost == 6000);
	drop(&ring);
}

/* `produced` bytes, the first of them at `begin`: in an area that is fresh, or that was used before. */
static void check_snapshot_from(uint64_t begin)
{
	for (uint64_t produced = 0; produced <= 5000 + 3 * AUX; produced += produced ? 3 * AUX : 5000) {
		struct ptw_ring ring;
		int file = memfd_create("aux", 0);
		struct perf_event_mmap_page *page = make(&ring, file);
		uint64_t head = begin + produced, kept = produced < AUX ? produced : AUX;

		for (uint64_t at = head - kept; at < head; at++)
			((uint8_t *)ring.aux)[at % AUX] = (uint8_t)(at % 255 + 1);
		page->aux_head = head % AUX; /* as the driver says it where it overwrites */
		assert(ptw_ring_snapshot(&ring) == (int64_t)kept);
		for (uint64_t at = head - kept; at < head; at++) {
			uint8_t byte;

			assert(pread(file, &byte, 1, (off_t)(at - (head - kept))) == 1);
			assert(byte == (uint8_t)(at % 255 + 1));
		}
		close(file);
		drop(&ring);
	}
}

static void check_snapshot(void)
{
	check_snapshot_from(0);
	check_snapshot_from(AUX - 3000); /* it goes on at the area's beginning */
}

static void check_time(void)
{
	struct ptw_ring ring;
	struct perf_event_mmap_page *page = make(&ring, -1);
	struct ptw_time time;

	assert(ptw_ring_time(&ring, &time) == -EOPNOTSUPP);
	page->cap_user_time_zero = 1;
	page->time_zero = 77;
	page->time_mult = 5;
	page->time_shift = 3;
	assert(ptw_ring_time(&ring, &time) == 0 && time.zero == 77 && time.mult == 5 && time.shift == 3);
	drop(&ring);
}

int main(void)
{
	check_records();
	check_lies();
	check_aux();
	check_full();
	check_unwritable();
	check_snapshot();
	check_time();
	return 0;
}
