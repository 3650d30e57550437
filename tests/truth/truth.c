/* SPDX-License-Identifier: MIT */
/*
 * Runtime of the truth checker: epochs, threads, and the file. A program is compiled with -fsanitize=thread and linked
 * with this and calls.c in place of the sanitizer's runtime.
 *
 * Nothing here uses memory that a library under test could track: the file is mapped shared by a direct system call,
 * a thread's tables too, and the only thread-local variables are a pointer to them and a flag.
 */
#define _GNU_SOURCE
#include "core.h"
#include "truth.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SLOTS = 1 << 16, PAGES = 1 << 15, MOVED_STACK = 1 << 20 };

struct page {
	uint64_t address;
	uint32_t snapshot; /* whether `before` is there */
	uint32_t slot;
	uint64_t read[TRUTH_WORDS], write[TRUTH_WORDS];
	unsigned char before[TRUTH_PAGE];
};

/* What a thread knows of its epoch. */
struct self {
	struct truth_thread *thread;
	uint32_t number;
	uint32_t count;
	uint64_t epoch, begin;
	struct truth_row *row, *rows_end; /* where the next row goes, and the end of the chunk */
	struct page *last;
	uint32_t slots[SLOTS]; /* 1 + index of a page */
	struct page pages[PAGES];
	unsigned char now[TRUTH_PAGE];
};

static struct truth_header *header;
static __thread struct self *self;
static __thread uint64_t stopped; /* depth of calls whose accesses are not the program's */

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static uint64_t tsc(void)
{
	uint32_t low, high;
	__asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high)::"memory");
	return (uint64_t)high << 32 | low;
}

static void give_up(const char *why)
{
	call(SYS_write, 2, (long)why, (long)strlen(why), 0, 0, 0);
	call(SYS_exit_group, 99, 0, 0, 0, 0, 0);
}

static void *map(size_t size, int flags, int fd)
{
	long result = call(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
	if (result < 0 && result > -4096)
		give_up("truth: no memory\n");
	return (void *)result;
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

static bool next_chunk(struct self *me)
{
	uint64_t chunk = __atomic_fetch_add(&header->chunks, 1, __ATOMIC_RELAXED);
	uint64_t at = TRUTH_HEADER + chunk * TRUTH_CHUNK;
	if (at + TRUTH_CHUNK > TRUTH_SIZE) {
		__atomic_fetch_add(&header->lost, 1, __ATOMIC_RELAXED);
		return false;
	}
	me->row = (struct truth_row *)((char *)header + at);
	me->rows_end = me->row + TRUTH_CHUNK / sizeof *me->row;
	return true;
}

/* The bytes written that are not what they were; a page that is gone has none. */
static void find_changes(const struct page *page, unsigned char *now, uint64_t *ret)
{
	struct iovec local = {now, TRUTH_PAGE}, remote = {(void *)page->address, TRUTH_PAGE};
	long pid = call(SYS_getpid, 0, 0, 0, 0, 0, 0);
	memset(ret, 0, TRUTH_WORDS * sizeof *ret);
	if (!page->snapshot || call(SYS_process_vm_readv, pid, (long)&local, 1, (long)&remote, 1, 0) != TRUTH_PAGE)
		return;
	for (int word = 0; word < TRUTH_WORDS; word++)
		for (uint64_t left = page->write[word]; left; left &= left - 1) {
			int byte = word * 64 + __builtin_ctzll(left);
			if (now[byte] != page->before[byte])
				ret[word] |= left & -left;
		}
}

static void put(struct self *me, const struct page *page, uint64_t end)
{
	if (me->row == me->rows_end && !next_chunk(me))
		return;
	struct truth_row *row = me->row++;
	row->thread = me->number, row->epoch = me->epoch;
	row->begin = me->begin, row->end = end;
	row->page = page->address;
	memcpy(row->read, page->read, sizeof row->read);
	memcpy(row->write, page->write, sizeof row->write);
	find_changes(page, me->now, row->changed);
	row->magic = TRUTH_ROW;
}

static void epoch_begin(struct self *me) { me->begin = tsc(); }

/* A library may have moved main to another stack since its first epoch began: that is where a frame lies now, and its
 * surroundings. */
static void find_stack(struct truth_thread *thread)
{
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	if ((here < thread->stack_low || here >= thread->stack_high) && !thread->moved_low) {
		thread->moved_low = here - MOVED_STACK;
		thread->moved_high = here + MOVED_STACK;
	}
}

static void epoch_end(struct self *me)
{
	uint64_t end = tsc();
	find_stack(me->thread);
	for (uint32_t i = 0; i < me->count; i++) {
		put(me, &me->pages[i], end);
		me->slots[me->pages[i].slot] = 0;
	}
	me->thread->epochs = ++me->epoch;
	me->count = 0;
	me->last = NULL;
}

/* --- accesses ---------------------------------------------------------------------------------------------------- */

static struct page *lookup(struct self *me, uint64_t address)
{
	uint32_t slot = (uint32_t)(address / TRUTH_PAGE * 0x9e3779b97f4a7c15ull >> 48) % SLOTS;
	while (me->slots[slot] && me->pages[me->slots[slot] - 1].address != address)
		slot = (slot + 1) % SLOTS;
	if (!me->slots[slot]) {
		if (me->count == PAGES)
			give_up("truth: an epoch has too many pages\n");
		struct page *page = &me->pages[me->count++];
		page->address = address;
		page->snapshot = 0;
		page->slot = slot;
		memset(page->read, 0, sizeof page->read);
		memset(page->write, 0, sizeof page->write);
		me->slots[slot] = me->count;
	}
	return &me->pages[me->slots[slot] - 1];
}

static void set_bits(uint64_t *bits, uint64_t from, uint64_t count)
{
	while (count) {
		uint64_t bit = from % 64, here = count < 64 - bit ? count : 64 - bit;
		bits[from / 64] |= (here == 64 ? ~0ull : (1ull << here) - 1) << bit;
		from += here, count -= here;
	}
}

void core_note(const volatile void *where, uint64_t size, enum core_how how)
{
	struct self *me = self;
	uint64_t address = (uint64_t)where;
	if (!me || stopped)
		return;
	while (size) {
		uint64_t offset = address % TRUTH_PAGE;
		uint64_t here = size < TRUTH_PAGE - offset ? size : TRUTH_PAGE - offset;
		if (!me->last || me->last->address != address - offset)
			me->last = lookup(me, address - offset);
		if (how != READ && !me->last->snapshot) {
			memcpy(me->last->before, (void *)(address - offset), TRUTH_PAGE);
			me->last->snapshot = 1;
		}
		if (how != PREPARE)
			set_bits(how == WRITE ? me->last->write : me->last->read, offset, here);
		address += here, size -= here;
	}
}

/* --- threads ----------------------------------------------------------------------------------------------------- */

static void thread_begin(void)
{
	if (!header)
		return;
	uint32_t number = __atomic_fetch_add(&header->threads, 1, __ATOMIC_RELAXED);
	if (number >= TRUTH_THREADS)
		give_up("truth: too many threads\n");
	struct self *me = map(sizeof *me, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	pthread_attr_t attributes;
	me->number = number;
	me->thread = &header->thread[number];
	me->thread->pid = (uint32_t)call(SYS_getpid, 0, 0, 0, 0, 0, 0);
	me->thread->tid = (uint32_t)call(SYS_gettid, 0, 0, 0, 0, 0, 0);
	if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
		void *low;
		size_t size;
		pthread_attr_getstack(&attributes, &low, &size);
		me->thread->stack_low = (uint64_t)low, me->thread->stack_high = (uint64_t)low + size;
		pthread_attr_destroy(&attributes);
	}
	me->thread->begin = tsc();
	self = me;
	epoch_begin(me);
}

static void thread_end(void)
{
	struct self *me = self;
	if (!me)
		return;
	epoch_end(me);
	me->thread->end = tsc();
	self = NULL;
	call(SYS_munmap, (long)me, sizeof *me, 0, 0, 0, 0);
}

struct start {
	void *(*routine)(void *);
	void *argument;
};

static void *run(void *argument)
{
	struct start *shared = argument, start = *shared;
	free(shared);
	thread_begin();
	void *value = start.routine(start.argument);
	thread_end();
	return value;
}

/* A call that synchronises: it ends an epoch, and the next one begins when it returns. */
#define SYNC(name, parameters, arguments)                \
	WRAP(int, name, parameters)                      \
	{                                                \
		if (self)                                \
			epoch_end(self);                 \
		stopped++;                               \
		int result = name arguments;    \
		stopped--;                               \
		if (self)                                \
			epoch_begin(self);               \
		return result;                           \
	}

WRAP(int, pthread_create, (pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument))
{
	struct start *start = malloc(sizeof *start);
	*start = (struct start){routine, argument};
	if (self)
		epoch_end(self);
	stopped++;
	int result = pthread_create(thread, attributes, run, start);
	stopped--;
	if (self)
		epoch_begin(self);
	return result;
}

_Noreturn WRAP(void, pthread_exit, (void *value))
{
	thread_end();
	pthread_exit(value);
}

SYNC(pthread_join, (pthread_t thread, void **value), (thread, value))
SYNC(pthread_mutex_lock, (pthread_mutex_t *mutex), (mutex))
SYNC(pthread_mutex_trylock, (pthread_mutex_t *mutex), (mutex))
SYNC(pthread_mutex_timedlock, (pthread_mutex_t *mutex, const struct timespec *until), (mutex, until))
SYNC(pthread_mutex_unlock, (pthread_mutex_t *mutex), (mutex))
SYNC(pthread_cond_wait, (pthread_cond_t *condition, pthread_mutex_t *mutex), (condition, mutex))
SYNC(pthread_cond_timedwait, (pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until),
     (condition, mutex, until))
SYNC(pthread_cond_signal, (pthread_cond_t *condition), (condition))
SYNC(pthread_cond_broadcast, (pthread_cond_t *condition), (condition))
SYNC(pthread_barrier_wait, (pthread_barrier_t *barrier), (barrier))
SYNC(pthread_rwlock_rdlock, (pthread_rwlock_t *lock), (lock))
SYNC(pthread_rwlock_wrlock, (pthread_rwlock_t *lock), (lock))
SYNC(pthread_rwlock_unlock, (pthread_rwlock_t *lock), (lock))
SYNC(pthread_spin_lock, (pthread_spinlock_t *lock), (lock))
SYNC(pthread_spin_unlock, (pthread_spinlock_t *lock), (lock))

/* --- the process ------------------------------------------------------------------------------------------------- */

static void add_region(uint64_t start, uint64_t end, enum truth_kind kind)
{
	if (header->regions < TRUTH_REGIONS && start < end)
		header->region[header->regions++] = (struct truth_region){start, end, kind};
}

static bool is_runtime(const char *path)
{
	static const char *const names[] = {"/libc.so", "/ld-linux", "/libtthread.so", "/libpthread.so", "linux-vdso"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strstr(path, names[i]))
			return true;
	return false;
}

static int add_object(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size, (void)unused;
	bool runtime = is_runtime(info->dlpi_name);
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uint64_t start = (info->dlpi_addr + segment->p_vaddr) & -(uint64_t)TRUTH_PAGE;
		uint64_t end = info->dlpi_addr + segment->p_vaddr + segment->p_memsz;
		if (segment->p_type == PT_GNU_RELRO)
			add_region(start, end & -(uint64_t)TRUTH_PAGE, TRUTH_READ_ONLY);
		else if (segment->p_type == PT_LOAD)
			add_region(start, (end + TRUTH_PAGE - 1) & -(uint64_t)TRUTH_PAGE,
				   !(segment->p_flags & PF_W) ? TRUTH_READ_ONLY
				   : runtime                  ? TRUTH_RUNTIME
							      : TRUTH_GLOBALS);
	}
	return 0;
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("PTWEAVE_TRUTH");
	if (!path)
		return;
	long fd = call(SYS_open, (long)path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600, 0, 0, 0);
	if (fd < 0 || call(SYS_ftruncate, fd, (long)TRUTH_SIZE, 0, 0, 0, 0) < 0)
		give_up("truth: the file cannot be made\n");
	header = map(TRUTH_SIZE, MAP_SHARED, (int)fd);
	call(SYS_close, fd, 0, 0, 0, 0, 0);
	header->magic = TRUTH_MAGIC;
	uint64_t top = getauxval(AT_EXECFN) & -(uint64_t)TRUTH_PAGE; /* the last of what exec put above main's stack */
	dl_iterate_phdr(add_object, NULL);
	add_region((uint64_t)header, (uint64_t)header + TRUTH_SIZE, TRUTH_OWN);
	thread_begin();
	if (self->thread->stack_high < top + TRUTH_PAGE)
		self->thread->stack_high = top + TRUTH_PAGE;
}

__attribute__((destructor)) static void end(void)
{
	if (header)
		thread_end();
}
