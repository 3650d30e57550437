/* SPDX-License-Identifier: MIT */
/*
 * The event vector: lists, and events in them; vector.h says what is guaranteed, vector_format.h what is where.
 *
 * How an event survives signals. It is built where it will stay, in its lane's list, behind what is finished there. A
 * lane is one event's from the store of `busy` on: a handler that comes before has used and left it when it returns, one
 * that comes later takes the next lane, which has a list of its own. So every list is written by one event at a time,
 * in order. An event that outgrows its list moves to the next one, before the old is handed over.
 *
 * `committed` is one word, bytes and events: death at any instruction leaves both right. What a lane counts for itself
 * (`done`, `begun`, `lost`) changes by one store each, so that a handler that jumps away leaves it right, too; the
 * descriptor follows at the latest when the list is handed over. A claim is one
 * compare-and-swap that names the owner: the consumer can tell whose list it is from the first moment.
 *
 * A handler may leave by siglongjmp and never return to the event it interrupted: its lane stays busy. When all are,
 * those are given up whose event began as deep in the stack as the one that wants a lane, or deeper. A handler that runs above
 * them gives none up, so nothing that was interrupted and will go on is ever taken away.
 *
 * Fork: the child finds its page of `live` wiped. Before its first event it maps the vector a second time, elsewhere,
 * and puts memory of its own over the first: a store to an event of the parent's that was under way goes there.
 */
#define _GNU_SOURCE
#include "vector.h"

#include "sealed.h"
#include "sys.h"
#include "vector_names.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define STORE(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)
#define PUBLISH(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELEASE)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum {
	FIRST_BYTES = 64 << 10, /* of a lane's first list come page by page: most threads log little */
	STEP_BYTES = 256 << 10, /* what follows is mapped in steps of that: several times cheaper than page by page */
};

enum { FORKED = 0, RENEWING = 1 }; /* of *live; greater: the process's epoch, one more than its parent's */

static bool failed(long result) { return result < 0 && result >= -4095; }

/* --- a process's end --------------------------------------------------------------------------------------------- */

static int map(struct ptv_vector *vector, int fd)
{
	long live = PTW_SYS(SYS_mmap, 0, PTV_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (failed(live))
		return (int)live;
	long base = PTW_SYS(SYS_madvise, live, PTV_ALIGN, MADV_WIPEONFORK, 0, 0, 0);
	if (!failed(base))
		base = PTW_SYS(SYS_mmap, 0, vector->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (failed(base)) {
		PTW_SYS(SYS_munmap, live, PTV_ALIGN, 0, 0, 0, 0);
		return (int)base;
	}
	vector->live = (uint32_t *)live;
	vector->head = (struct ptv_head *)base;
	return 0;
}

static void place(struct ptv_vector *vector)
{
	unsigned char *base = (unsigned char *)vector->head;
	vector->lists = (struct ptv_list *)(base + PTV_NAMES_END);
	vector->data = base + ptv_lists_at(vector->list_count);
}

static void go_live(struct ptv_vector *vector)
{
	place(vector);
	PUBLISH(*vector->live, ++vector->epoch);
}

static bool sensible(uint32_t list_count, uint32_t list_size)
{
	return list_count > 0 && list_count <= PTV_LIST_COUNT_MAX && list_size >= PTV_LIST_SIZE_MIN &&
	       list_size <= PTV_LIST_SIZE_MAX && list_size % PTV_ALIGN == 0;
}

int ptv_vector_init(struct ptv_vector *vector, uint32_t list_count, uint32_t list_size)
{
	if (!sensible(list_count, list_size))
		return -EINVAL;
	*vector = (struct ptv_vector){.list_count = list_count, .list_size = list_size, .epoch = RENEWING};
	vector->bytes = ptv_bytes(list_count, list_size);
	int fd = (int)PTW_SYS(SYS_memfd_create, "ptweave-vector", MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0);
	if (fd < 0)
		return fd;
	int error = ptw_grow_sealed(fd, vector->bytes);
	if (error == 0)
		error = map(vector, fd);
	if (error < 0) {
		ptw_close(fd);
		return error;
	}
	struct ptv_head *head = vector->head;
	head->version = PTV_VERSION;
	head->list_size = list_size;
	head->list_count = list_count;
	head->heard = ptw_monotonic_ns();
	vector->identity = head->identity =
		((uint32_t)((ptw_tsc() ^ (uint64_t)(uintptr_t)vector << 7) * 0x9e3779b97f4a7c15ull >> 32)) | 1;
	PUBLISH(head->magic, PTV_MAGIC);
	go_live(vector);
	return fd;
}

int ptv_vector_attach(struct ptv_vector *vector, int fd)
{
	struct stat status;
	struct ptv_head head;
	int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
	if ((PTW_SYS(SYS_fcntl, fd, F_GET_SEALS, 0, 0, 0, 0) & wanted) != wanted ||
	    PTW_SYS(SYS_fstat, fd, &status, 0, 0, 0, 0) != 0 ||
	    PTW_SYS(SYS_pread64, fd, &head, sizeof head, 0, 0, 0) != sizeof head)
		return -EINVAL;
	if (head.magic != PTV_MAGIC || head.version != PTV_VERSION || !sensible(head.list_count, head.list_size) ||
	    (uint64_t)status.st_size != ptv_bytes(head.list_count, head.list_size))
		return -EINVAL;
	*vector = (struct ptv_vector){
		.list_count = head.list_count,
		.list_size = head.list_size,
		.identity = head.identity,
		.epoch = RENEWING,
		.bytes = (uint64_t)status.st_size,
	};
	int error = map(vector, fd);
	if (error == 0)
		go_live(vector);
	return error;
}

void ptv_vector_deinit(struct ptv_vector *vector)
{
	PTW_SYS(SYS_munmap, vector->head, vector->bytes, 0, 0, 0, 0);
	PTW_SYS(SYS_munmap, vector->live, PTV_ALIGN, 0, 0, 0, 0);
	*vector = (struct ptv_vector){0};
}

void ptv_vector_forked(struct ptv_vector *vector)
{
	uint32_t forked = FORKED;
	if (!__atomic_compare_exchange_n(vector->live, &forked, RENEWING, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	long old = (long)vector->head;
	long base = PTW_SYS(SYS_mremap, old, 0, vector->bytes, MREMAP_MAYMOVE, 0, 0); /* the same memory once more */
	if (failed(base))
		return; /* no producer: events are counted and dropped */
	vector->head = (struct ptv_head *)base;
	memset(vector->touched, 0, sizeof vector->touched);
	PTW_SYS(SYS_mmap, old, vector->bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	go_live(vector);
}

int ptv_vector_replace(struct ptv_vector *vector)
{
	struct ptv_vector fresh, old = *vector;
	STORE(*old.live, RENEWING);
	int fd = ptv_vector_init(&fresh, old.list_count, old.list_size);
	if (fd < 0)
		return fd;
	PTW_SYS(SYS_munmap, fresh.live, PTV_ALIGN, 0, 0, 0, 0);
	PTW_SYS(SYS_mmap, old.head, old.bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0); /* for events the fork interrupted */
	fresh.live = old.live;
	fresh.epoch = old.epoch;
	*vector = fresh;
	go_live(vector);
	return fd;
}

/* Mostly there is nothing to clear: then the page is not written to, which would copy it. */
static void touch_none(struct ptv_vector *vector)
{
	if (vector->touched[0] || memcmp(vector->touched, vector->touched + 1, sizeof vector->touched - 1) != 0)
		memset(vector->touched, 0, sizeof vector->touched);
}

void ptv_vector_resume(struct ptv_vector *vector)
{
	touch_none(vector);
	go_live(vector);
}

void ptv_count_drop(const struct ptv_vector *vector, enum ptv_drop why)
{
	__atomic_fetch_add(&vector->head->dropped[why], 1, __ATOMIC_RELAXED);
}

/* --- lists ------------------------------------------------------------------------------------------------------- */

/* The list, if it was free; NULL: it is somebody's. */
static struct ptv_list *claim_one(struct ptv_list *list, uint64_t mine)
{
	uint64_t free = 0;
	if (LOAD(list->owner) != 0 ||
	    !__atomic_compare_exchange_n(&list->owner, &free, mine, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return NULL;
	return list;
}

/* A free list: one whose pages this process has mapped, else one that others used, else with `grow` one that nobody did;
 * NULL: none. Each step costs more memory and page faults than the one before. */
static struct ptv_list *claim(const struct ptv_producer *producer, bool grow)
{
	struct ptv_vector *vector = producer->vector;
	struct ptv_list *list = NULL;
	uint64_t mine = ptv_owner(PTV_OPEN, producer->pid, producer->tid);
	uint32_t high = LOAD(vector->head->high), used = high < vector->list_count ? high : vector->list_count;
	for (uint32_t i = 0; i < used && !list; i++)
		if (LOAD(vector->touched[i]))
			list = claim_one(&vector->lists[i], mine);
	for (uint32_t i = 0; i < used && !list; i++)
		list = claim_one(&vector->lists[i], mine);
	for (uint32_t i = used; grow && i < vector->list_count && !list; i++) {
		/* in use before it is claimed, so that the consumer looks at it */
		while (high <= i && !__atomic_compare_exchange_n(&vector->head->high, &high, i + 1, false,
								 __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			;
		list = claim_one(&vector->lists[i], mine);
	}
	return list;
}

static uint32_t bytes_done(const struct ptv_lane *lane) { return (uint32_t)lane->done; }

/* An event of this lane was begun, and neither finished nor lost. */
static bool is_open(const struct ptv_lane *lane)
{
	return lane->begun + lane->carried > (lane->done >> 32) + lane->lost;
}

static void hand_over(const struct ptv_producer *producer, const struct ptv_lane *lane)
{
	struct ptv_list *list = lane->list;
	STORE(list->begun, lane->begun);
	STORE(list->lost, lane->lost);
	STORE(list->committed, lane->done);
	PUBLISH(list->owner, ptv_owner(PTV_FULL, producer->pid, producer->tid));
}

static void lose(struct ptv_lane *lane)
{
	if (lane->list && is_open(lane))
		STORE(lane->list->lost, ++lane->lost);
}

/* Let the lane's list be used up to `need` bytes, at most its size. */
static void prepare(struct ptv_vector *vector, struct ptv_lane *lane, uint32_t need)
{
	uint32_t from = lane->limit, index = (uint32_t)(lane->list - vector->lists);
	uint32_t to = lane->sequence == 1 && need <= FIRST_BYTES ? FIRST_BYTES
								   : (need + STEP_BYTES) & ~(uint32_t)(STEP_BYTES - 1);
	to = to < vector->list_size ? to : vector->list_size;
	if (to != FIRST_BYTES && !LOAD(vector->touched[index])) /* at worst the pages come one by one */
		PTW_SYS(SYS_madvise, lane->data + from, to - from, MADV_POPULATE_WRITE, 0, 0, 0);
	lane->limit = to;
	if (to == vector->list_size && (uint64_t)index * to < PTV_KEPT_BYTES)
		STORE(vector->touched[index], 1);
}

/* Go on in a list that is free now, with the `bytes` of the event under way. */
static bool change(struct ptv_producer *producer, uint32_t number, struct ptv_lane *lane, const void *event,
		   uint32_t bytes, bool grow)
{
	struct ptv_vector *vector = producer->vector;
	struct ptv_list *list = claim(producer, grow);
	if (!list)
		return false;
	STORE(list->producer, producer->serial);
	STORE(list->lane, number);
	STORE(list->sequence, lane->sequence++);
	lane->data = vector->data + (uint64_t)(list - vector->lists) * vector->list_size;
	if (bytes)
		memcpy(lane->data, event, bytes);
	if (lane->list)
		hand_over(producer, lane);
	lane->list = list;
	lane->done = lane->begun = lane->lost = lane->limit = 0;
	lane->carried = bytes != 0;
	return true;
}

/* The same, waiting for a list while the consumer is heard of. Handlers may run while it waits, not while it changes:
 * one that forks must not leave half a change to the child. */
static bool advance(struct ptv_producer *producer, uint32_t epoch, struct ptv_lane *lane, const void *event,
		    uint32_t bytes)
{
	uint32_t number = (uint32_t)(lane - producer->lane[epoch & 1]);
	struct ptv_head *head = producer->vector->head;
	uint64_t heard = LOAD(head->heard), freed = __atomic_load_n(&head->freed, __ATOMIC_ACQUIRE), mask;
	if (producer->dropping && heard == producer->heard_seen && freed == producer->freed_seen)
		return false;
	for (long pause = 50000;; pause = pause < 1000000 ? 2 * pause : pause) {
		heard = LOAD(head->heard);
		freed = __atomic_load_n(&head->freed, __ATOMIC_ACQUIRE);
		bool gone = (int64_t)(ptw_monotonic_ns() - heard) > (int64_t)PTV_PATIENCE_NS;
		ptw_block_signals(&mask);
		bool stale = LOAD(*producer->vector->live) != epoch;
		bool done = !stale && change(producer, number, lane, event, bytes, !gone);
		ptw_restore_signals(&mask);
		if (stale)
			return false;
		producer->dropping = !done;
		if (done || gone) {
			producer->heard_seen = heard;
			producer->freed_seen = freed;
			return done;
		}
		ptw_sleep_ns(pause);
	}
}

/* Room for an event of `size` bytes, of which `bytes` are there; false: there is none. */
__attribute__((noinline)) static bool make_room(struct ptv_producer *producer, uint32_t epoch, struct ptv_lane *lane,
						const void *event, uint32_t bytes, uint32_t size)
{
	struct ptv_vector *vector = producer->vector;
	if ((!lane->list || bytes_done(lane) + size > vector->list_size) &&
	    !advance(producer, epoch, lane, event, bytes))
		return false;
	if (LOAD(*vector->live) != epoch)
		return false;
	prepare(vector, lane, bytes_done(lane) + size);
	return true;
}

/* --- producers --------------------------------------------------------------------------------------------------- */

void ptv_producer_init(struct ptv_producer *producer, struct ptv_vector *vector)
{
	memset(producer, 0, sizeof *producer);
	producer->vector = vector;
	producer->epoch = PTV_NEVER; /* not what *live can be: that is 0 in a fork child */
}

/* Become a producer of this process: at first, and after a fork. False: counted and dropped. */
__attribute__((noinline)) static bool renew(struct ptv_producer *producer)
{
	struct ptv_vector *vector = producer->vector;
	uint64_t mask;
	ptv_vector_forked(vector);
	uint32_t live = __atomic_load_n(vector->live, __ATOMIC_ACQUIRE);
	if (live == RENEWING) {
		ptv_count_drop(vector, PTV_DROP_FORK);
		return false;
	}
	ptw_block_signals(&mask);
	if (producer->epoch != live) { /* lists of the process before the fork are not ours */
		memset(producer->lane[live & 1], 0, sizeof producer->lane[0]);
		producer->dropping = 0;
		producer->pid = (uint32_t)ptw_getpid();
		producer->tid = (uint32_t)ptw_gettid();
		producer->serial = __atomic_add_fetch(&vector->head->producers, 1, __ATOMIC_RELAXED);
		producer->epoch = live;
	}
	ptw_restore_signals(&mask);
	return true;
}

void ptv_producer_deinit(struct ptv_producer *producer)
{
	if (producer->epoch != LOAD(*producer->vector->live))
		return;
	for (uint32_t i = 0; i < PTV_LANES; i++) {
		struct ptv_lane *lane = &producer->lane[producer->epoch & 1][i];
		lose(lane);
		lane->generation++;
		if (lane->list)
			hand_over(producer, lane);
		lane->list = NULL;
		STORE(lane->busy, 0);
	}
}

/* An event that a signal handler jumped away from: its frame lies below ours on our stack, or on an alternate stack
 * that nobody is on. */
static bool abandoned(uintptr_t began, uintptr_t now)
{
	stack_t stack = {0};
	if (PTW_SYS(SYS_sigaltstack, 0, &stack, 0, 0, 0, 0) != 0 || (stack.ss_flags & SS_ONSTACK))
		return false;
	if (!(stack.ss_flags & SS_DISABLE) && began - (uintptr_t)stack.ss_sp < stack.ss_size)
		return true;
	return began <= now && now - began < (8u << 20);
}

__attribute__((noinline)) static struct ptv_lane *another_lane(struct ptv_lane *lanes, uintptr_t frame)
{
	struct ptv_lane *lane, *end = lanes + PTV_LANES;
	for (lane = lanes; lane < end; lane++)
		if (!LOAD(lane->busy)) {
			STORE(lane->busy, 1);
			return lane;
		}
	for (lane = lanes; lane < end; lane++)
		if (abandoned(lane->frame, frame)) {
			lose(lane);
			return lane;
		}
	return NULL;
}

static struct ptv_lane *take_lane(struct ptv_lane *lanes, uintptr_t frame)
{
	struct ptv_lane *lane = lanes;
	if (__builtin_expect(LOAD(lane->busy), 0))
		lane = another_lane(lanes, frame);
	else
		STORE(lane->busy, 1);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return lane;
}

static void leave_lane(struct ptv_lane *lane)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	STORE(lane->busy, 0);
}

/* --- events ------------------------------------------------------------------------------------------------------ */

int ptv_begin(struct ptv_producer *producer, struct ptv_kind *kind, struct ptv_event *ret)
{
	struct ptv_vector *vector = producer->vector;
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
	ret->record = NULL;
	if (__builtin_expect(LOAD(producer->epoch) != LOAD(*vector->live), 0) && !renew(producer))
		return -EAGAIN;
	uint32_t epoch = LOAD(producer->epoch); /* once: lanes of an epoch that a fork ended are nobody's */
	int number = ptv_kind_number(vector, kind);
	if (__builtin_expect(number < 0, 0)) {
		ptv_count_drop(vector, PTV_DROP_KIND);
		return number;
	}
	struct ptv_lane *lane = take_lane(producer->lane[epoch & 1], frame);
	if (__builtin_expect(!lane, 0)) {
		ptv_count_drop(vector, PTV_DROP_NESTED);
		return -EBUSY;
	}
	lane->generation++;
	lane->frame = frame;
	uint32_t size = (uint32_t)sizeof(struct ptv_record) + 8 * kind->fields;
	if (__builtin_expect(!lane->list || bytes_done(lane) + size > lane->limit, 0) &&
	    !make_room(producer, epoch, lane, NULL, 0, size)) {
		ptv_count_drop(vector, LOAD(*vector->live) == epoch ? PTV_DROP_FULL : PTV_DROP_FORK);
		leave_lane(lane);
		return -ENOBUFS;
	}
	STORE(lane->list->begun, ++lane->begun);
	struct ptv_record *record = (struct ptv_record *)(lane->data + bytes_done(lane));
	record->kind = (uint16_t)number;
	record->flags = 0;
	record->tsc = ptw_tsc();
	record->present = 0;
	record->pairs = 0;
	*ret = (struct ptv_event){
		.record = record,
		.producer = producer,
		.lane = lane,
		.live = vector->live,
		.epoch = epoch,
		.fields = kind->fields,
		.generation = lane->generation,
		.end = size,
	};
	return 0;
}

/* The list has no room and there is no other: the event is lost. */
static void give_up(struct ptv_event *event)
{
	lose(event->lane);
	event->record = NULL;
	leave_lane(event->lane);
}

/* How many of `size` bytes the event may still take; fewer are wanted than asked for: it says so. */
static size_t allowed(struct ptv_event *event, size_t size)
{
	size_t room = PTV_EVENT_MAX - event->end;
	if (size <= room)
		return size;
	event->record->flags |= PTV_TRUNCATED;
	return room;
}

/* `size` more bytes at the event's end, zero behind the last of them; NULL: the event is lost. */
static unsigned char *extend(struct ptv_event *event, size_t size)
{
	struct ptv_lane *lane = event->lane;
	uint32_t padded = ((uint32_t)size + 7) & ~7u;
	if (__builtin_expect(bytes_done(lane) + event->end + padded > lane->limit, 0)) {
		if (!make_room(event->producer, event->epoch, lane, event->record, event->end, event->end + padded)) {
			give_up(event);
			return NULL;
		}
		event->record = (struct ptv_record *)(lane->data + bytes_done(lane));
	}
	unsigned char *at = (unsigned char *)event->record + event->end;
	if (padded)
		memset(at + padded - 8, 0, 8);
	event->end += padded;
	return at;
}

void ptv_set_data(struct ptv_event *event, uint32_t field, const void *data, size_t size)
{
	if (!ptv_usable(event) || field >= event->fields)
		return;
	size_t kept = allowed(event, size);
	uint32_t offset = event->end;
	unsigned char *at = extend(event, kept);
	if (!at)
		return;
	memcpy(at, data, kept);
	ptv_set_u64(event, field, offset | (uint64_t)kept << 32);
}

void ptv_add(struct ptv_event *event, struct ptv_key *key, enum ptv_type type, uint64_t number, const void *data)
{
	if (!ptv_usable(event) || type <= 0 || type >= PTV_TYPES)
		return;
	int id = ptv_key_number(event->producer->vector, key);
	size_t size = type >= PTV_STRING ? number : 0, length = id < 0 ? strlen(key->name) : 0;
	size_t named = id < 0 ? 8 + ((length + 7) & ~(size_t)7) : 0;
	size_t head = sizeof(struct ptv_pair) + named;
	if (allowed(event, head) < head)
		return; /* not even the key: the event says that it was cut */
	event->end += (uint32_t)head;
	size = allowed(event, size);
	event->end -= (uint32_t)head;
	uint32_t offset = event->end;
	struct ptv_pair *pair = (struct ptv_pair *)extend(event, head + size);
	if (!pair)
		return;
	*pair = (struct ptv_pair){
		.before = event->record->pairs,
		.key = id < 0 ? PTV_KEY_INLINE : (uint16_t)id,
		.type = (uint16_t)type,
		.value = type >= PTV_STRING ? size : number,
	};
	unsigned char *at = (unsigned char *)(pair + 1);
	if (named) {
		memset(at, 0, named);
		memcpy(at, &(uint64_t){length}, 8);
		memcpy(at + 8, key->name, length);
	}
	if (size)
		memcpy(at + named, data, size);
	event->record->pairs = offset;
}

int ptv_commit(struct ptv_event *event)
{
	struct ptv_lane *lane = event->lane;
	if (!ptv_usable(event))
		return event->record ? -ESTALE : -ENOBUFS;
	event->record->size = event->end;
	event->record = NULL;
	uint64_t done = lane->done + (event->end | 1ull << 32);
	STORE(lane->done, done);
	PUBLISH(lane->list->committed, done);
	leave_lane(lane);
	return 0;
}

void ptv_cancel(struct ptv_event *event)
{
	if (ptv_usable(event))
		give_up(event);
}
