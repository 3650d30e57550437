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

/* A call and captures behind it. */
struct record {
	struct ptw_syscall call;
	char room[PTW_ROOM + PTW_SLACK];
	size_t size;
};

static void make(struct record *record)
{
	memset(record, 0, sizeof(*record));
	record->call.head = (struct ptw_record){.kind = PTW_RECORD_SYSCALL, .number = 82, .pid = 7, .tid = 8};
	record->call.t_enter = 100;
	record->call.t_exit = 200;
	record->call.args[0] = 0x1000;
	record->call.args[1] = 0x2000;
	record->call.file[2] = 9;
	record->call.result = -2;
	record->size = sizeof(record->call);
}

static struct ptw_chunk *add(struct record *record, unsigned int kind, unsigned int argument, unsigned int state,
			     const char *bytes, size_t size)
{
	struct ptw_chunk *chunk = (void *)((char *)record + record->size);

	CHECK(record->size + sizeof(*chunk) + size <= sizeof(*record) - sizeof(record->size));
	*chunk = (struct ptw_chunk){.argument = (ptw_u8)argument, .kind = (ptw_u8)kind, .state = state & 15,
				    .kept = (ptw_u32)size, .size = size};
	memcpy(chunk + 1, bytes, size);
	record->size += sizeof(*chunk) + ((size + 7) & ~(size_t)7);
	return chunk;
}

static int append(struct ptw_batch *batch, struct record *record)
{
	return ptw_batch_append(batch, record, record->size);
}

static void records_become_columns(void)
{
	struct ptw_batch *batch;
	struct record record;

	CHECK(!ptw_batch_create(4, &batch));
	make(&record);
	CHECK(append(batch, &record) == PTW_RECORD_SYSCALL);
	add(&record, PTW_CAPTURE_PATH, 0, PTW_CHUNK_READ, "one", 3);
	add(&record, PTW_CAPTURE_PATH, 1, PTW_CHUNK_READ, "second", 6);
	CHECK(append(batch, &record) == PTW_RECORD_SYSCALL);
	make(&record);
	add(&record, PTW_CAPTURE_PATH, 1, PTW_CHUNK_READ, "second", 6);
	add(&record, PTW_CAPTURE_PATH, 0, PTW_CHUNK_UNREADABLE, "", 0);
	record.call.head.flags = PTW_SYSCALL_NO_EXIT;
	CHECK(append(batch, &record) == PTW_RECORD_SYSCALL);
	CHECK(batch->rows == 3 && batch->paths == 4 && batch->returned == 2 && batch->readable == 3);
	CHECK(batch->missed == 1 && batch->truncated == 0 && batch->all == 3);
	CHECK(batch->t_enter[1] == 100 && batch->pid[1] == 7 && batch->tid[1] == 8 && batch->number[1] == 82);
	CHECK(batch->args[6 + 1] == 0x2000 && batch->result[0] == -2 && batch->file[3 + 2] == 9);
	CHECK(batch->path_first[0] == 0 && batch->path_first[1] == 0 && batch->path_first[2] == 2);
	CHECK(batch->path_first[3] == 4 && batch->path_begin[1] == 3 && batch->path_begin[2] == 9);
	CHECK(!memcmp(batch->text, "onesecondsecond", 15));
	CHECK((batch->has_exit[0] & 7) == 3 && (batch->has_path[0] & 15) == 11);
	CHECK(append(batch, &record) == PTW_RECORD_SYSCALL);
	CHECK(append(batch, &record) == -ENOSPC);
	ptw_batch_clear(batch);
	CHECK(append(batch, &record) == PTW_RECORD_SYSCALL);
	CHECK(batch->rows == 1 && (batch->has_exit[0] & 1) == 0);
	ptw_batch_destroy(batch);
}

static void captures_keep_what_and_how_much_they_are(void)
{
	struct ptw_batch *batch;
	struct record record;
	struct ptw_chunk *chunk;

	CHECK(!ptw_batch_create(4, &batch));
	make(&record);
	chunk = add(&record, PTW_CAPTURE_BUFFER, 1, PTW_CHUNK_READ, "abcdefghi", 9);
	chunk->size = 4096;
	chunk->when = PTW_AT_EXIT;
	add(&record, PTW_CAPTURE_WORDS, 0, PTW_CHUNK_TRUNCATED, "word", 5)->part = PTW_PART_DATA;
	add(&record, PTW_CAPTURE_STRUCT, 1, PTW_CHUNK_UNREADABLE, "", 0);
	record.call.head.flags = PTW_SYSCALL_NO_ROOM;
	CHECK(append(batch, &record) == PTW_RECORD_SYSCALL);
	CHECK(batch->captures == 3 && batch->captured == 2 && batch->unread == 1 && batch->no_room == 1);
	CHECK(batch->capture_first[1] == 3 && batch->paths == 0);
	CHECK(batch->capture_argument[0] == 1 && batch->capture_kind[0] == PTW_CAPTURE_BUFFER);
	CHECK(batch->capture_when[0] == PTW_AT_EXIT && batch->capture_size[0] == 4096);
	CHECK(batch->capture_part[1] == PTW_PART_DATA && batch->capture_size[1] == 6);
	CHECK(batch->capture_begin[1] == 9 && batch->capture_begin[3] == 14 && !memcmp(batch->data, "abcdefghiword", 14));
	CHECK((batch->has_capture[0] & 7) == 3);
	ptw_batch_destroy(batch);
}

static void a_path_that_was_no_path_is_not_missed(void)
{
	struct ptw_batch *batch;
	struct record record;

	CHECK(!ptw_batch_create(4, &batch));
	make(&record);
	add(&record, PTW_CAPTURE_PATH, 0, PTW_CHUNK_UNREADABLE, "", 0);
	record.call.result = -EFAULT;
	CHECK(append(batch, &record) == PTW_RECORD_SYSCALL);
	record.call.result = 0;
	record.call.args[0] = 0;	/* NULL */
	CHECK(append(batch, &record) == PTW_RECORD_SYSCALL);
	CHECK(batch->paths == 2 && batch->missed == 0);
	ptw_batch_destroy(batch);
}

static void refuse(struct ptw_batch *batch, const void *record, size_t size)
{
	uint32_t before = batch->malformed;

	CHECK(ptw_batch_append(batch, record, size) == -EBADMSG);
	CHECK(batch->malformed == before + 1 && batch->rows == 0 && batch->all == 0);
}

static void records_that_are_not_whole_are_refused(void)
{
	struct ptw_batch *batch;
	struct record record;
	struct ptw_chunk *chunk;

	CHECK(!ptw_batch_create(4, &batch));
	make(&record);
	refuse(batch, &record, sizeof(record.call) - 1);
	refuse(batch, &record, 0);
	refuse(batch, &record, sizeof(record.call) + sizeof(*chunk) - 1);
	chunk = add(&record, PTW_CAPTURE_PATH, 0, PTW_CHUNK_READ, "123456789", 9);
	refuse(batch, &record, record.size - 8);
	chunk->kept = 0xffffffff;
	refuse(batch, &record, record.size);
	chunk->kept = 9;
	chunk->argument = PTW_ARGUMENTS + 1;
	refuse(batch, &record, record.size);
	chunk->argument = 0;
	add(&record, PTW_CAPTURE_PATH, 1, PTW_CHUNK_READ, "", 0);
	add(&record, PTW_CAPTURE_PATH, 2, PTW_CHUNK_READ, "", 0);
	refuse(batch, &record, record.size);	/* more paths than a call has */
	make(&record);
	for (int i = 0; i < 65; i++)
		add(&record, PTW_CAPTURE_STRUCT, 0, PTW_CHUNK_READ, "", 0);
	refuse(batch, &record, record.size);
	make(&record);
	record.call.head.kind = 99;
	refuse(batch, &record, record.size);
	ptw_batch_destroy(batch);
}

static void long_paths_fill_a_batch_before_its_rows_do(void)
{
	static char path[PTW_PATH_SIZE];
	struct ptw_batch *batch;
	struct record record;
	unsigned int rows = 0;

	CHECK(!ptw_batch_create(1000, &batch));
	make(&record);
	memset(path, 'p', sizeof(path));
	add(&record, PTW_CAPTURE_PATH, 0, PTW_CHUNK_TRUNCATED, path, sizeof(path));
	add(&record, PTW_CAPTURE_PATH, 1, PTW_CHUNK_TRUNCATED, path, sizeof(path));
	while (append(batch, &record) >= 0)
		rows++;
	CHECK(rows > 3 && rows < 1000 && rows == batch->rows && batch->truncated == 2 * rows);
	CHECK((uint32_t)batch->path_begin[batch->paths] <= batch->text_capacity);
	ptw_batch_destroy(batch);
}

static void long_captures_fill_a_batch_too(void)
{
	static char bytes[PTW_WORDS_SIZE];
	struct ptw_batch *batch;
	struct record record;
	unsigned int rows = 0;

	CHECK(!ptw_batch_create(1000, &batch));
	make(&record);
	add(&record, PTW_CAPTURE_WORDS, 1, PTW_CHUNK_READ, bytes, sizeof(bytes));
	add(&record, PTW_CAPTURE_WORDS, 2, PTW_CHUNK_READ, bytes, sizeof(bytes));
	while (append(batch, &record) >= 0)
		rows++;
	CHECK(rows >= 3 && rows < 1000 && rows == batch->rows && batch->captures == 2 * rows);
	CHECK((uint32_t)batch->capture_begin[batch->captures] <= batch->data_capacity);
	ptw_batch_destroy(batch);
	CHECK(!ptw_batch_create(64, &batch));
	make(&record);
	for (int i = 0; i < 60; i++)
		add(&record, PTW_CAPTURE_STRUCT, 0, PTW_CHUNK_READ, "", 0);
	for (rows = 0; append(batch, &record) >= 0; rows++)
		;
	CHECK(rows >= 1 && rows < 64 && batch->captures <= batch->capture_capacity);
	ptw_batch_destroy(batch);
}

static void other_events_are_kept_as_they_are(void)
{
	struct ptw_batch *batch;
	struct ptw_write write = {.head = {.kind = PTW_RECORD_WRITE, .pid = 3}, .bytes = 77};
	struct ptw_file file = {.head = {.kind = PTW_RECORD_FILE}, .id = 5, .size = 8, .components = "one\0two"};

	CHECK(!ptw_batch_create(2, &batch));
	CHECK(ptw_batch_append(batch, &write, sizeof(write)) == PTW_RECORD_WRITE);
	CHECK(ptw_batch_append(batch, &write, sizeof(write) - 1) == -EBADMSG);
	CHECK(ptw_batch_append(batch, &file, sizeof(file)) == PTW_RECORD_FILE);
	CHECK(ptw_batch_append(batch, &file, sizeof(file)) == PTW_RECORD_FILE);
	CHECK(ptw_batch_append(batch, &file, sizeof(file)) == -ENOSPC);
	CHECK(batch->event_rows[PTW_RECORD_WRITE] == 1 && batch->event_rows[PTW_RECORD_FILE] == 2);
	CHECK(((struct ptw_write *)(void *)batch->events[PTW_RECORD_WRITE])->bytes == 77);
	CHECK(batch->file_bytes == 16 && !memcmp(batch->file_text, "one\0two\0one\0two", 16));
	file.size = sizeof(file.components) + 1;
	CHECK(ptw_batch_append(batch, &file, sizeof(file)) == -EBADMSG);
	CHECK(batch->rows == 0 && batch->all == 3);
	ptw_batch_destroy(batch);
}

int main(void)
{
	records_come_in_order_around_the_end();
	busy_and_refused_records_stay();
	a_limit_is_kept();
	records_become_columns();
	captures_keep_what_and_how_much_they_are();
	a_path_that_was_no_path_is_not_missed();
	records_that_are_not_whole_are_refused();
	long_paths_fill_a_batch_before_its_rows_do();
	long_captures_fill_a_batch_too();
	other_events_are_kept_as_they_are();
	return 0;
}
