/* SPDX-License-Identifier: MIT */
/*
 * Event lists; lists.h says what is guaranteed.
 *
 * How a put survives signals. The outermost put under way leaves its frame's address in `frame`, in one store, before it
 * looks at the list; only it may change lists, so a list somebody is about to write to is never handed over. Handlers
 * that come meanwhile write into the same list, into its slack if need be. The reservation is one instruction
 * (ptweave_mark); the size word is stored with PTW_RECORD_OPEN before the rest, and without it last. When the outermost
 * put ends, everything reserved is finished: `committed` says so to the supervisor.
 *
 * A handler may leave by siglongjmp and never return to the put it interrupted. The next put notices (its frame is
 * above the interrupted one's, on the same stack) and takes over; the abandoned record stays flagged, and a place that
 * was reserved and has no size word yet is given one.
 *
 * x86-64 keeps stores in order; the atomics below say which orders matter.
 */
#define _GNU_SOURCE
#include "lists.h"

#include "sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

__asm__(".pushsection .text.ptweave_mark,\"ax\",@progbits\n"
	".globl ptweave_mark\n"
	".type ptweave_mark, @function\n"
	".p2align 6\n"
	"ptweave_mark:\n"
	".cfi_startproc\n"
	"	xaddq %rsi, (%rdi)\n"
	"	movq %rsi, %rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size ptweave_mark, .-ptweave_mark\n"
	".globl ptweave_mark_access\n"
	".type ptweave_mark_access, @function\n"
	".p2align 6\n"
	"ptweave_mark_access:\n"
	".cfi_startproc\n"
	"	xaddq %rsi, (%rdi)\n"
	"	movq %rsi, %rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size ptweave_mark_access, .-ptweave_mark_access\n"
	".popsection\n");

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define STORE(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)
#define PUBLISH(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELEASE)

/* Add one, in one instruction, so that a handler's own bump is not lost; only this thread writes *word. */
static inline void bump(uint64_t *word) { __asm__ volatile("incq %0" : "+m"(*word)); }

int ptw_lists_init(void *at, struct ptw_lists **ret)
{
	int fd = (int)PTW_SYS(SYS_memfd_create, "ptweave-lists", MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0);
	if (fd < 0)
		return fd;
	long result = ptw_grow_sealed(fd, PTW_LISTS_BYTES);
	if (result == 0) {
		result = PTW_SYS(SYS_mmap, at, PTW_LISTS_BYTES, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_NORESERVE | (at ? MAP_FIXED : 0), fd, 0);
		if (result > 0 || result < -4095) {
			*ret = (struct ptw_lists *)result;
			(*ret)->list_size = PTW_LIST_SIZE;
			(*ret)->list_count = PTW_LIST_COUNT;
			PUBLISH((*ret)->magic, PTW_LISTS_MAGIC);
			return fd;
		}
	}
	ptw_close(fd);
	return (int)result;
}

void ptw_lists_deinit(struct ptw_lists *lists) { PTW_SYS(SYS_munmap, lists, PTW_LISTS_BYTES, 0, 0, 0, 0); }

static unsigned char *list_data(struct ptw_lists *lists, const struct ptw_list *list)
{
	return (unsigned char *)lists + PTW_LISTS_DATA + (uint64_t)(list - lists->list) * PTW_LIST_SIZE;
}

static void raise_high(struct ptw_lists *lists, uint32_t high)
{
	uint32_t seen = LOAD(lists->high);
	while (seen < high &&
	       !__atomic_compare_exchange_n(&lists->high, &seen, high, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

/* The free list of lowest index, now OPEN and ours; NULL when the backlog is used up. */
static struct ptw_list *claim(struct ptw_writer *writer)
{
	struct ptw_lists *lists = writer->lists;
	uint32_t limit = __atomic_add_fetch(&lists->live, 1, __ATOMIC_RELAXED) + PTW_LIST_BACKLOG;
	if (limit > PTW_LIST_COUNT)
		limit = PTW_LIST_COUNT;
	for (uint32_t i = 0; i < limit; i++) {
		struct ptw_list *list = &lists->list[i];
		uint32_t state = PTW_LIST_FREE;
		if (LOAD(list->state) != PTW_LIST_FREE)
			continue;
		raise_high(lists, i + 1);
		if (!__atomic_compare_exchange_n(&list->state, &state, PTW_LIST_OPEN, false, __ATOMIC_ACQUIRE,
						 __ATOMIC_RELAXED))
			continue;
		STORE(list->tid, writer->tid);
		STORE(list->sequence, writer->sequence++);
		PUBLISH(list->serial, writer->serial);
		return list;
	}
	__atomic_sub_fetch(&lists->live, 1, __ATOMIC_RELAXED);
	return NULL;
}

static bool consumer_hung_up(int liveness)
{
	struct pollfd one = {.fd = liveness, .events = POLLRDHUP};
	struct timespec none = {0, 0};
	if (liveness < 0)
		return false;
	return PTW_SYS(SYS_ppoll, &one, 1, &none, 0, 0, 0) > 0 && (one.revents & (POLLHUP | POLLRDHUP | POLLERR));
}

/* Wait for a list while the consumer gives any back. NULL: it did not for PTW_PATIENCE_NS, or hung up. */
static struct ptw_list *await(struct ptw_writer *writer)
{
	struct ptw_lists *lists = writer->lists;
	uint64_t freed = __atomic_load_n(&lists->freed, __ATOMIC_ACQUIRE);
	if (writer->dropping && freed == writer->freed_seen)
		return NULL;
	uint64_t since = ptw_monotonic_ns();
	long pause = 50000;
	for (;;) {
		struct ptw_list *list = claim(writer);
		uint64_t now = ptw_monotonic_ns();
		if (list) {
			writer->dropping = 0;
			return list;
		}
		uint64_t more = __atomic_load_n(&lists->freed, __ATOMIC_ACQUIRE);
		if (more != freed) {
			freed = more;
			since = now;
		} else if (now - since > PTW_PATIENCE_NS || consumer_hung_up(writer->liveness)) {
			writer->dropping = 1;
			writer->freed_seen = freed;
			return NULL;
		}
		ptw_sleep_ns(pause);
		if (pause < 2000000)
			pause *= 2;
	}
}

static void hand_over(struct ptw_writer *writer, struct ptw_list *list, enum ptw_list_state state)
{
	__atomic_sub_fetch(&writer->lists->live, 1, __ATOMIC_RELAXED);
	PUBLISH(list->state, state);
}

/* Go on in a new list; only in the outermost put, when every record of the old one is finished or abandoned. */
static bool next_list(struct ptw_writer *writer)
{
	struct ptw_list *old = writer->list;
	struct ptw_list *list = await(writer);
	if (!list)
		return false;
	writer->data = list_data(writer->lists, list);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	STORE(writer->list, list);
	if (old) {
		PUBLISH(old->committed, LOAD(old->reserved));
		hand_over(writer, old, PTW_LIST_FULL);
	}
	return true;
}

/* A put that was interrupted by a handler which then left by siglongjmp: its frame lies below ours on our stack. */
static bool abandoned(uintptr_t interrupted, uintptr_t now)
{
	stack_t stack = {0};
	if (PTW_SYS(SYS_sigaltstack, 0, &stack, 0, 0, 0, 0) != 0 || (stack.ss_flags & SS_ONSTACK))
		return false;
	uintptr_t low = (uintptr_t)stack.ss_sp;
	if (!(stack.ss_flags & SS_DISABLE) && interrupted - low < stack.ss_size)
		return true; /* it ran on the alternate stack, which is not in use any more */
	return interrupted <= now && now - interrupted < (8u << 20);
}

/* Make [at, end) of a list records that were never finished. */
static void fill(struct ptw_writer *writer, uint64_t at, uint64_t end)
{
	while (at < end) {
		uint64_t size = end - at < 2 * PTW_RECORD_SIZE ? end - at : PTW_RECORD_SIZE;
		STORE(*(uint32_t *)(writer->data + at), (uint32_t)size | PTW_RECORD_OPEN);
		at += size;
	}
}

static bool plausible(uint32_t word)
{
	uint32_t size = word & ~(uint32_t)PTW_RECORD_OPEN;
	return size >= PTW_RECORD_SIZE && size <= PTW_RECORD_SIZE + 8 * PTW_MAX_FRAMES && size % 8 == 0;
}

/* After puts were abandoned: count them as lost, and give a reserved place without size word one, so that the list
 * can be walked. */
static void mend(struct ptw_writer *writer)
{
	struct ptw_list *list = writer->list;
	uint64_t mask;
	if (!list)
		return;
	ptw_block_signals(&mask);
	uint64_t at = 0, end = LOAD(list->reserved), count = 0, size;
	for (end = end > PTW_LIST_SIZE ? PTW_LIST_SIZE : end; at < end; at += size) {
		uint32_t word = LOAD(*(uint32_t *)(writer->data + at));
		size = word & ~(uint64_t)PTW_RECORD_OPEN;
		if (plausible(word)) {
			count += !(word & PTW_RECORD_OPEN);
			continue;
		}
		size = end - at;
		if (writer->pending && writer->pending <= size &&
		    (writer->pending == size || plausible(LOAD(*(uint32_t *)(writer->data + at + writer->pending)))))
			size = writer->pending;
		fill(writer, at, at + size);
		writer->pending = 0;
	}
	STORE(list->count, count);
	STORE(list->lost, LOAD(list->attempts) - count);
	ptw_restore_signals(&mask);
}

int ptw_writer_init(struct ptw_writer *writer, struct ptw_lists *lists, uint32_t tid, uint64_t serial, int liveness)
{
	*writer = (struct ptw_writer){.lists = lists, .tid = tid, .serial = serial, .liveness = liveness};
	return next_list(writer) ? 0 : -ENOBUFS;
}

void ptw_writer_deinit(struct ptw_writer *writer)
{
	struct ptw_list *list = writer->list;
	if (!list)
		return;
	STORE(writer->list, NULL);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	PUBLISH(list->committed, LOAD(list->reserved));
	hand_over(writer, list, PTW_LIST_LAST);
}

uint32_t ptw_list_index(const struct ptw_writer *writer)
{
	return writer->list ? (uint32_t)(writer->list - writer->lists->list) : (uint32_t)PTW_LIST_NONE;
}

/* Where a record of `size` goes, or NULL (counted). */
static unsigned char *reserve(struct ptw_writer *writer, uint32_t size, bool access, bool outermost)
{
	struct ptw_list *list = LOAD(writer->list);
	bool full = false;
	if (outermost && (!list || LOAD(list->reserved) + size > PTW_LIST_SIZE - PTW_LIST_SLACK)) {
		full = !next_list(writer);
		list = writer->list;
	}
	if (!list) {
		__atomic_fetch_add(&writer->lists->unlisted, 1, __ATOMIC_RELAXED);
		return NULL;
	}
	bump(&list->attempts);
	if (full || LOAD(list->reserved) + size > PTW_LIST_SIZE) {
		bump(&list->lost);
		return NULL;
	}
	uint64_t offset = access ? ptweave_mark_access(&list->reserved, size) : ptweave_mark(&list->reserved, size);
	if (offset + size > PTW_LIST_SIZE) { /* a thousand handlers came since the check above */
		bump(&list->lost);
		return NULL;
	}
	return writer->data + offset;
}

void ptw_writer_put(struct ptw_writer *writer, const struct ptw_record *record, const uint64_t *stack)
{
	uint32_t size = PTW_RECORD_SIZE + record->frames * 8u;
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0), under_way = LOAD(writer->frame);
	if (under_way && abandoned(under_way, frame)) {
		mend(writer);
		under_way = 0;
	}
	bool outermost = !under_way;
	if (outermost) {
		STORE(writer->frame, frame);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		STORE(writer->pending, size);
	}
	__atomic_signal_fence(__ATOMIC_SEQ_CST);

	struct ptw_record *place = (struct ptw_record *)reserve(writer, size, !ptw_begins_thunk(record->operation),
								      outermost);
	if (place) {
		STORE(place->size, size | PTW_RECORD_OPEN);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		if (outermost)
			STORE(writer->pending, 0);
		memcpy((unsigned char *)place + 4, (const unsigned char *)record + 4, PTW_RECORD_SIZE - 4);
		memcpy(place + 1, stack, record->frames * 8u);
		PUBLISH(place->size, size);
		bump(&writer->list->count);
	}

	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (outermost) {
		struct ptw_list *list = writer->list;
		if (list)
			PUBLISH(list->committed, LOAD(list->reserved));
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		STORE(writer->frame, 0);
	}
}
