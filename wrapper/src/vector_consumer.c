/* SPDX-License-Identifier: MIT */
/* Taking events from a vector; vector_consumer.h says what is guaranteed. */
#define _GNU_SOURCE
#include "vector_consumer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SAVE_NS 200000000ull

/* What was taken of a list since it was claimed. */
struct taken {
	uint32_t bytes;
	uint32_t events;
	bool corrupt;
};

struct ptv_consumer {
	struct ptv_sink sink;
	struct ptv_head *head;
	struct ptv_list *lists;
	const unsigned char *names, *data;
	uint64_t bytes, saved_at, serial;
	uint32_t list_count, list_size;
	uint32_t names_seen; /* names given to the sink */
	int failed;          /* what the sink said */
	struct ptv_totals totals;
	unsigned char told[PTV_KINDS + PTV_KEYS];
	struct taken taken[];
};

static uint64_t monotonic_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static int check(int fd, struct ptv_head *ret, uint64_t *bytes)
{
	struct stat status;
	int wanted = F_SEAL_SHRINK | F_SEAL_GROW, seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & wanted) != wanted || (seals & F_SEAL_WRITE) || fstat(fd, &status) != 0 ||
	    pread(fd, ret, sizeof *ret, 0) != sizeof *ret)
		return -EINVAL;
	if (ret->magic != PTV_MAGIC || ret->version != PTV_VERSION || ret->list_count == 0 ||
	    ret->list_count > PTV_LIST_COUNT_MAX || ret->list_size < PTV_LIST_SIZE_MIN ||
	    ret->list_size > PTV_LIST_SIZE_MAX || ret->list_size % PTV_ALIGN != 0)
		return -EINVAL;
	*bytes = ptv_bytes(ret->list_count, ret->list_size);
	return (uint64_t)status.st_size == *bytes ? 0 : -EINVAL;
}

int ptv_consumer_create(int fd, const struct ptv_sink *sink, struct ptv_consumer **ret)
{
	struct ptv_head head;
	uint64_t bytes;
	int error = check(fd, &head, &bytes);
	if (error < 0)
		return error;
	struct ptv_consumer *consumer = calloc(1, sizeof *consumer + head.list_count * sizeof consumer->taken[0]);
	if (!consumer)
		return -ENOMEM;
	unsigned char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (base == MAP_FAILED) {
		error = -errno;
		free(consumer);
		return error;
	}
	consumer->sink = *sink;
	consumer->head = (struct ptv_head *)base;
	consumer->names = base;
	consumer->lists = (struct ptv_list *)(base + PTV_NAMES_END);
	consumer->data = base + ptv_lists_at(head.list_count);
	consumer->bytes = bytes;
	consumer->list_count = head.list_count;
	consumer->list_size = head.list_size;
	__atomic_store_n(&consumer->head->heard, monotonic_ns(), __ATOMIC_RELAXED);
	*ret = consumer;
	return 0;
}

void ptv_consumer_destroy(struct ptv_consumer *consumer)
{
	munmap(consumer->head, consumer->bytes);
	free(consumer);
}

/* --- names ------------------------------------------------------------------------------------------------------- */

static void tell(struct ptv_consumer *consumer, uint32_t index, const unsigned char *entry, size_t size)
{
	unsigned char copy[sizeof(struct ptv_kind_entry)];
	if (consumer->told[index] ||
	    __atomic_load_n((const uint32_t *)entry, __ATOMIC_ACQUIRE) != PTV_NAME_THERE)
		return;
	memcpy(copy, entry, size);
	memcpy(copy, &(uint32_t){PTV_NAME_THERE}, sizeof(uint32_t));
	consumer->told[index] = 1;
	consumer->names_seen++;
	if (consumer->failed == 0)
		consumer->failed = consumer->sink.name(consumer->sink.self, index, copy);
}

static void tell_names(struct ptv_consumer *consumer)
{
	if (__atomic_load_n(&consumer->head->names_claimed, __ATOMIC_ACQUIRE) == consumer->names_seen)
		return;
	const unsigned char *kinds = consumer->names + PTV_KINDS_AT, *keys = consumer->names + PTV_KEYS_AT;
	for (uint32_t i = 0; i < PTV_KINDS; i++)
		tell(consumer, i, kinds + i * sizeof(struct ptv_kind_entry), sizeof(struct ptv_kind_entry));
	for (uint32_t i = 0; i < PTV_KEYS; i++)
		tell(consumer, PTV_KINDS + i, keys + i * sizeof(struct ptv_key_entry), sizeof(struct ptv_key_entry));
}

/* --- lists ------------------------------------------------------------------------------------------------------- */

static uint64_t owner_of(const struct ptv_consumer *consumer, uint32_t index)
{
	return __atomic_load_n(&consumer->lists[index].owner, __ATOMIC_ACQUIRE);
}

static uint64_t committed_of(const struct ptv_consumer *consumer, uint32_t index)
{
	return __atomic_load_n(&consumer->lists[index].committed, __ATOMIC_ACQUIRE);
}

/* How many lists were ever used. */
static uint32_t lists_used(const struct ptv_consumer *consumer)
{
	uint32_t high = __atomic_load_n(&consumer->head->high, __ATOMIC_ACQUIRE);
	return high < consumer->list_count ? high : consumer->list_count;
}

/* Give the sink what is finished in a list, as `committed` says, and was not there before. */
static void take(struct ptv_consumer *consumer, uint32_t index, uint64_t owner, uint64_t committed, bool last)
{
	struct ptv_list *list = &consumer->lists[index];
	struct taken *taken = &consumer->taken[index];
	uint32_t bytes = (uint32_t)committed, events = (uint32_t)(committed >> 32);
	if (taken->corrupt || bytes > consumer->list_size || bytes % 8 != 0 || bytes < taken->bytes ||
	    events < taken->events || (uint64_t)(events - taken->events) * sizeof(struct ptv_record) > bytes - taken->bytes) {
		consumer->totals.corrupt += taken->corrupt ? 0 : consumer->list_size - taken->bytes;
		taken->corrupt = true;
		bytes = taken->bytes;
		events = taken->events;
	}
	if (bytes == taken->bytes && !last)
		return;
	tell_names(consumer); /* an event that is finished has a kind that is there */
	struct ptv_chunk chunk = {
		.magic = PTV_CHUNK_MAGIC,
		.bytes = bytes - taken->bytes,
		.span = sizeof chunk + (bytes - taken->bytes),
		.serial = ++consumer->serial,
		.pid = ptv_pid_of(owner),
		.tid = ptv_tid_of(owner),
		.producer = __atomic_load_n(&list->producer, __ATOMIC_RELAXED),
		.lane = __atomic_load_n(&list->lane, __ATOMIC_RELAXED),
		.sequence = __atomic_load_n(&list->sequence, __ATOMIC_RELAXED),
		.offset = taken->bytes,
		.events = events - taken->events,
	};
	const unsigned char *data = consumer->data + (uint64_t)index * consumer->list_size + taken->bytes;
	if (consumer->failed == 0)
		consumer->failed = consumer->sink.chunk(consumer->sink.self, index, &chunk, data, last);
	if (consumer->failed == 0)
		consumer->totals.stored += chunk.events;
	else
		consumer->totals.unwritten += chunk.events;
	taken->bytes = bytes;
	taken->events = events;
}

static void give_back(struct ptv_consumer *consumer, uint32_t index)
{
	struct ptv_list *list = &consumer->lists[index];
	uint64_t at = (uint64_t)index * consumer->list_size;
	consumer->totals.begun += __atomic_load_n(&list->begun, __ATOMIC_RELAXED);
	consumer->totals.lost += __atomic_load_n(&list->lost, __ATOMIC_RELAXED);
	consumer->taken[index] = (struct taken){0, 0, false};
	if (at >= PTV_KEPT_BYTES)
		madvise((void *)(uintptr_t)(consumer->data + at), consumer->list_size, MADV_REMOVE);
	__atomic_store_n(&list->committed, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&list->begun, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&list->lost, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&list->owner, 0, __ATOMIC_RELEASE); /* last: it is the producers' from now on */
	__atomic_fetch_add(&consumer->head->freed, 1, __ATOMIC_RELEASE);
}

/* Of the lists that were handed over and stand before `list` in its lane, the first; list_count: there is none. */
static uint32_t first_before(const struct ptv_consumer *consumer, const struct ptv_list *list)
{
	uint32_t first = consumer->list_count, used = lists_used(consumer);
	uint32_t producer = __atomic_load_n(&list->producer, __ATOMIC_RELAXED);
	uint32_t lane = __atomic_load_n(&list->lane, __ATOMIC_RELAXED);
	uint64_t below = __atomic_load_n(&list->sequence, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < used && below; i++) {
		const struct ptv_list *other = &consumer->lists[i];
		if (ptv_state_of(owner_of(consumer, i)) != PTV_FULL ||
		    __atomic_load_n(&other->producer, __ATOMIC_RELAXED) != producer ||
		    __atomic_load_n(&other->lane, __ATOMIC_RELAXED) != lane)
			continue;
		uint64_t sequence = __atomic_load_n(&other->sequence, __ATOMIC_RELAXED);
		if (sequence < below) {
			below = sequence;
			first = i;
		}
	}
	return first;
}

/* Take what was written before this list: what is committed in it says that its owner had handed those over. Lists lie
 * anywhere, and while they are looked at one after the other their owners go on behind and before. Returns how many were
 * given back; no more than there are, whatever the memory says meanwhile. */
static int take_before(struct ptv_consumer *consumer, uint32_t index)
{
	int freed = 0;
	for (uint32_t i = 0; i < consumer->list_count; i++) {
		uint32_t first = first_before(consumer, &consumer->lists[index]);
		if (first == consumer->list_count || first == index)
			break;
		take(consumer, first, owner_of(consumer, first), committed_of(consumer, first), true);
		give_back(consumer, first);
		freed++;
	}
	return freed;
}

/* Take what is new in one list; `last`: and give it back. Returns how many were given back. */
static int look_at(struct ptv_consumer *consumer, uint32_t index, uint64_t owner, bool last)
{
	uint64_t committed = committed_of(consumer, index); /* what was written before it is there from now on */
	int freed = 0;
	if (consumer->taken[index].bytes == 0 && committed)
		freed = take_before(consumer, index);
	take(consumer, index, owner, committed, last);
	if (!last)
		return freed;
	give_back(consumer, index);
	return freed + 1;
}

/* What poll and reap share: `dead` says whose open lists are done, 0 all. */
static int look(struct ptv_consumer *consumer, bool open, bool reap, uint32_t dead)
{
	int before = consumer->failed, freed = 0;
	__atomic_store_n(&consumer->head->heard, monotonic_ns(), __ATOMIC_RELAXED);
	uint32_t used = lists_used(consumer);
	for (uint32_t i = 0; i < used; i++) {
		uint64_t owner = owner_of(consumer, i);
		if (ptv_state_of(owner) == PTV_FREE)
			continue;
		bool last = ptv_state_of(owner) == PTV_FULL || (reap && (dead == 0 || ptv_pid_of(owner) == dead));
		if (last || open)
			freed += look_at(consumer, i, owner, last);
	}
	for (uint32_t why = 0; why < PTV_DROPS; why++)
		consumer->totals.dropped[why] = __atomic_load_n(&consumer->head->dropped[why], __ATOMIC_RELAXED);
	return before == 0 && consumer->failed < 0 ? consumer->failed : freed;
}

static void save(struct ptv_consumer *consumer, bool closed)
{
	uint64_t now = monotonic_ns();
	if (!closed && now - consumer->saved_at < SAVE_NS)
		return;
	consumer->saved_at = now;
	int error = consumer->sink.save(consumer->sink.self, &consumer->totals, closed);
	if (consumer->failed == 0)
		consumer->failed = error;
}

int ptv_consumer_poll(struct ptv_consumer *consumer, bool open)
{
	int result = look(consumer, open, false, 0);
	save(consumer, false);
	return result;
}

int ptv_consumer_reap(struct ptv_consumer *consumer, uint32_t pid) { return look(consumer, true, true, pid); }

int ptv_consumer_finish(struct ptv_consumer *consumer)
{
	int result = look(consumer, true, true, 0), before = consumer->failed;
	save(consumer, true);
	return before == 0 && consumer->failed < 0 ? consumer->failed : result;
}

void ptv_consumer_totals(const struct ptv_consumer *consumer, struct ptv_totals *ret) { *ret = consumer->totals; }
