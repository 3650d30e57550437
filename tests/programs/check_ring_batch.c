// SPDX-License-Identifier: MIT
/* Checks of wrapper/src/ring.c and batch.c on rings made here. Ends with 0, or aborts at the line that is wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "batch.h"
#include "ring.h"
#include "../bpf/record.h"

#define CHECK(truth)                                                                \
	do {                                                                        \
		if (!(truth)) {                                                     \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #truth); \
			abort();                                                    \
		}                                                                   \
	} while (0)

enum { SIZE = 4096 };

/* A ring as the kernel makes it: two position pages, the data once, mapped twice by ptw_ring_init's offset. */
struct fake {
	struct ptw_ring ring;
	unsigned char *memory;	/* consumer page, producer page, data, data again */
	uint64_t produced;
};

static void fake_init(struct fake *fake)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("ring", 0);

	CHECK(fd >= 0 && !ftruncate(fd, (off_t)(2 * page + SIZE)));
	fake->memory = mmap(NULL, 2 * page + 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(fake->memory != MAP_FAILED);
	CHECK(mmap(fake->memory, 2 * page + SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
	      MAP_FAILED);
	CHECK(mmap(fake->memory + 2 * page + SIZE, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		   (off_t)(2 * page)) != MAP_FAILED);
	fake->ring = (struct ptw_ring){
		.consumer = (uint64_t *)(void *)fake->memory,
		.producer = (const uint64_t *)(void *)(fake->memory + page),
		.data = fake->memory + 2 * page,
		.mask = SIZE - 1,
		.page = page,
	};
	fake->produced = 0;
	close(fd);
}

static void fake_deinit(struct fake *fake)
{
	munmap(fake->memory, 2 * fake->ring.page + 2 * SIZE);
}

static uint32_t *reserve(struct fake *fake, const void *record, uint32_t size, uint32_t bits)
{
	unsigned char *at = (unsigned char *)(uintptr_t)fake->ring.data + (fake->produced & fake->ring.mask);

	memcpy(at + BPF_RINGBUF_HDR_SZ, record, size);
	*(uint32_t *)(void *)at = size | bits;
	fake->produced += (size + BPF_RINGBUF_HDR_SZ + 7) & ~7ull;
	*(uint64_t *)(uintptr_t)fake->ring.producer = fake->produced;
	return (uint32_t *)(void *)at;
}

struct seen {
	unsigned int count;
	unsigned int refuse_at;
	uint64_t sum;
};

static int see(void *context, const void *record, size_t size)
{
	struct seen *seen = context;

	if (seen->count == seen->refuse_at)
		return -EAGAIN;
	CHECK(size >= 8);
	seen->count++;
	seen->sum += *(const uint64_t *)record;
	return 0;
}

static void records_come_in_order_around_the_end(void)
{
	struct fake fake;
	struct seen seen = {.refuse_at = ~0u};
	uint64_t expected = 0;
	int stopped;

	fake_init(&fake);
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t record[12] = {i};

		reserve(&fake, record, (uint32_t)(8 + 8 * (i % 12)), 0);
		expected += i;
		if (i % 7 == 6)
			CHECK(ptw_ring_consume(&fake.ring, see, &seen, 100, &stopped) == 7 && !stopped);
	}
	ptw_ring_consume(&fake.ring, see, &seen, 100, &stopped);
	CHECK(seen.count == 1000 && seen.sum == expected);
	CHECK(*fake.ring.consumer == fake.produced);
	fake_deinit(&fake);
}

static void busy_and_refused_records_stay(void)
{
	struct fake fake;
	struct seen seen = {.refuse_at = 2};
	uint64_t record[1] = {5};
	uint32_t *busy;
	int stopped;

	fake_init(&fake);
	reserve(&fake, record, 8, 0);
	reserve(&fake, record, 8, BPF_RINGBUF_DISCARD_BIT);
	busy = reserve(&fake, record, 8, BPF_RINGBUF_BUSY_BIT);
	reserve(&fake, record, 8, 0);
	CHECK(ptw_ring_consume(&fake.ring, see, &seen, 100, &stopped) == 1 && !stopped);
	*busy &= ~BPF_RINGBUF_BUSY_BIT;
	CHECK(ptw_ring_consume(&fake.ring, see, &seen, 100, &stopped) == 1 && stopped == -EAGAIN);
	seen.refuse_at = ~0u;
	CHECK(ptw_ring_consume(&fake.ring, see, &seen, 100, &stopped) == 1 && !stopped);
	CHECK(seen.count == 3 && *fake.ring.consumer == fake.produced);
	CHECK(ptw_ring_consume(&fake.ring, see, &seen, 100, &stopped) == 0);
	fake_deinit(&fake);
}

static void a_limit_is_kept(void)
{
	struct fake fake;
	struct seen seen = {.refuse_at = ~0u};
	uint64_t record[1] = {1};
	int stopped;

	fake_init(&fake);
	for (int i = 0; i < 10; i++)
		reserve(&fake, record, 8, 0);
	CHECK(ptw_ring_consume(&fake.ring, see, &seen, 4, &stopped) == 4);
	CHECK(ptw_ring_consume(&fake.ring, see, &seen, 100, &stopped) == 6);
	fake_deinit(&fake);
}

struct record {
	struct ptw_syscall call;
	char text[PTW_PATHS * PTW_PATH_SLOT];
};

static void set_path(struct record *record, int i, unsigned int state, unsigned int offset, unsigned int size)
{
	record->call.path[i] = (struct ptw_path){(ptw_u16)state, (ptw_u16)offset, (ptw_u16)size, (ptw_u16)i};
}

static void make(struct record *record)
{
	memset(record, 0, sizeof(*record));
	record->call.head = (struct ptw_record){.kind = PTW_RECORD_SYSCALL, .number = 82, .pid = 7, .tid = 8};
	record->call.t_enter = 100;
	record->call.t_exit = 200;
	record->call.args[0] = 0x1000;
	record->call.args[1] = 0x2000;
	record->call.result = -2;
}

static void records_become_columns(void)
{
	struct ptw_batch *batch;
	struct record record;

	CHECK(!ptw_batch_create(4, &batch));
	make(&record);
	CHECK(!ptw_batch_append(batch, &record, sizeof(record.call)));
	strcpy(record.text, "one");
	strcpy(record.text + 8, "second");
	set_path(&record, 0, PTW_PATH_READ, 0, 3);
	set_path(&record, 1, PTW_PATH_READ, 8, 6);
	CHECK(!ptw_batch_append(batch, &record, sizeof(record.call) + 16));
	set_path(&record, 0, PTW_PATH_UNREADABLE, 0, 0);
	record.call.head.flags = PTW_SYSCALL_NO_EXIT;
	CHECK(!ptw_batch_append(batch, &record, sizeof(record.call) + 16));
	CHECK(batch->rows == 3 && batch->paths == 4 && batch->returned == 2 && batch->readable == 3);
	CHECK(batch->missed == 1 && batch->truncated == 0);
	CHECK(batch->t_enter[1] == 100 && batch->pid[1] == 7 && batch->tid[1] == 8 && batch->number[1] == 82);
	CHECK(batch->args[6 + 1] == 0x2000 && batch->result[0] == -2);
	CHECK(batch->path_first[0] == 0 && batch->path_first[1] == 0 && batch->path_first[2] == 2);
	CHECK(batch->path_first[3] == 4 && batch->path_begin[1] == 3 && batch->path_begin[2] == 9);
	CHECK(!memcmp(batch->text, "onesecondsecond", 15));
	CHECK((batch->has_exit[0] & 7) == 3 && (batch->has_path[0] & 15) == 11);
	CHECK(!ptw_batch_append(batch, &record, sizeof(record.call) + 16));
	CHECK(ptw_batch_append(batch, &record, sizeof(record.call) + 16) == -ENOSPC);
	ptw_batch_clear(batch);
	CHECK(!ptw_batch_append(batch, &record, sizeof(record.call) + 16));
	CHECK(batch->rows == 1 && (batch->has_exit[0] & 1) == 0);
	ptw_batch_destroy(batch);
}

static void a_path_that_was_no_path_is_not_missed(void)
{
	struct ptw_batch *batch;
	struct record record;

	CHECK(!ptw_batch_create(4, &batch));
	make(&record);
	set_path(&record, 0, PTW_PATH_UNREADABLE, 0, 0);
	record.call.result = -EFAULT;
	CHECK(!ptw_batch_append(batch, &record, sizeof(record.call)));
	record.call.result = 0;
	record.call.args[0] = 0;	/* NULL */
	CHECK(!ptw_batch_append(batch, &record, sizeof(record.call)));
	CHECK(batch->paths == 2 && batch->missed == 0);
	ptw_batch_destroy(batch);
}

static void records_that_are_not_whole_are_refused(void)
{
	struct ptw_batch *batch;
	struct record record;

	CHECK(!ptw_batch_create(4, &batch));
	make(&record);
	CHECK(ptw_batch_append(batch, &record, sizeof(record.call) - 1) == -EBADMSG);
	CHECK(ptw_batch_append(batch, &record, 0) == -EBADMSG);
	set_path(&record, 0, PTW_PATH_READ, 8, 9);
	CHECK(ptw_batch_append(batch, &record, sizeof(record.call) + 16) == -EBADMSG);
	set_path(&record, 0, PTW_PATH_READ, 0xffff, 0xffff);
	CHECK(ptw_batch_append(batch, &record, sizeof(record)) == -EBADMSG);
	set_path(&record, 0, 77, 0, 0);
	CHECK(ptw_batch_append(batch, &record, sizeof(record)) == -EBADMSG);
	make(&record);
	record.call.head.kind = 99;
	CHECK(ptw_batch_append(batch, &record, sizeof(record)) == -EBADMSG);
	CHECK(batch->rows == 0 && batch->malformed == 6);
	ptw_batch_destroy(batch);
}

static void long_paths_fill_a_batch_before_its_rows_do(void)
{
	struct ptw_batch *batch;
	struct record record;
	unsigned int rows = 0;

	CHECK(!ptw_batch_create(1000, &batch));
	make(&record);
	memset(record.text, 'p', sizeof(record.text));
	set_path(&record, 0, PTW_PATH_TRUNCATED, 0, PTW_PATH_SIZE);
	set_path(&record, 1, PTW_PATH_TRUNCATED, PTW_PATH_SLOT, PTW_PATH_SIZE);
	while (!ptw_batch_append(batch, &record, sizeof(record)))
		rows++;
	CHECK(rows > 3 && rows < 1000 && rows == batch->rows && batch->truncated == 2 * rows);
	CHECK((uint32_t)batch->path_begin[batch->paths] <= batch->text_capacity);
	ptw_batch_destroy(batch);
}

int main(void)
{
	records_come_in_order_around_the_end();
	busy_and_refused_records_stay();
	a_limit_is_kept();
	records_become_columns();
	a_path_that_was_no_path_is_not_missed();
	records_that_are_not_whole_are_refused();
	long_paths_fill_a_batch_before_its_rows_do();
	return 0;
}
