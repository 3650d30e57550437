/* SPDX-License-Identifier: MIT */
/*
 * malloc and its kin. In native mode they are the program's own, called through; in process mode heap.h serves them.
 * Blocks from before, or from an allocator we do not stand in front of, go back to where they came from.
 */
#define _GNU_SOURCE
#include "heap.h"

#include "fitness.h"
#include "notice.h"
#include "handshake.h"
#include "loader.h"
#include "next.h"
#include "options.h"
#include "real.h"
#include "region.h"
#include "unwind.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <string.h>
#include <sys/auxv.h>

/* Code whose allocations are given to the kernel by the C library itself, or read with signals blocked. */
static struct { uint64_t start, size; } loader, stdio, libc;

/* In the private view: code whose allocations the C library's own data points to (locales, conversions, name services).
 * That data is shared at once, ordered by locks that are none of the program's. */
static struct { uint64_t start, size; } inner;

/* And functions in it whose allocations are the program's. */
static struct { uint64_t start, size; } copiers[2];

/* Where the segments of an object that have a flag end, from where it is loaded on: other objects come behind it. */
static uint64_t extent(uint64_t base, uint32_t flag)
{
	const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)base;
	const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(base + header->e_phoff);
	uint64_t size = 0;
	for (unsigned i = 0; i < header->e_phnum; i++)
		if (segment[i].p_type == PT_LOAD && segment[i].p_flags & flag &&
		    segment[i].p_vaddr + segment[i].p_memsz > size)
			size = segment[i].p_vaddr + segment[i].p_memsz;
	return size;
}

static void find_libc(uint64_t address)
{
	const struct link_map *object = address ? ptw_next_object_at(address) : NULL;
	if (!object)
		return;
	libc.start = object->l_addr;
	libc.size = extent(libc.start, PF_X);
}

enum { DIRECTORY_HEAD = 48, DIRECTORY_LEAST = 32768, DIRECTORY_MOST = 1 << 20 };

/* The C library allocates a stream of a directory, wherever it opens one: the kernel writes to it. */
static inline bool is_directory(size_t size, uint64_t caller)
{
	return __builtin_expect(size >= DIRECTORY_LEAST + DIRECTORY_HEAD, 0) && size <= DIRECTORY_MOST + DIRECTORY_HEAD &&
	       (size - DIRECTORY_HEAD) % PTW_PAGE == 0 && caller - libc.start < libc.size;
}

static void find_inner(void)
{
	static const char *const names[] = {"strdup", "strndup"};
	enum { LONGEST = 128 /* either is about 70 bytes long */ };
	if (!ptw_options()->private_view)
		return;
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		copiers[i].start = (uint64_t)dlsym(RTLD_NEXT, names[i]);
		copiers[i].size = copiers[i].start ? LONGEST : 0;
	}
	inner.start = libc.start;
	inner.size = libc.size;
}

static void find_loader(void)
{
	uint64_t base = getauxval(AT_BASE);
	if (!base)
		return;
	loader.size = extent(base, PF_R | PF_W | PF_X);
	stdio.start = (uint64_t)GLIBC(_IO_file_doallocate);
	stdio.size = stdio.start ? 400 : 0; /* the function is about 200 bytes long */
	find_libc(stdio.start);
	find_inner();
	__atomic_store_n(&loader.start, base, __ATOMIC_RELEASE);
}

__thread uint32_t ptw_untracked_malloc __attribute__((tls_model("initial-exec")));

static bool copies(uint64_t caller)
{
	return caller - copiers[0].start < copiers[0].size || caller - copiers[1].start < copiers[1].size;
}

static inline bool untracked(uint64_t caller)
{
	return caller - loader.start < loader.size || caller - stdio.start < stdio.size || ptw_untracked_malloc ||
	       (__builtin_expect(caller - inner.start < inner.size, 0) && !copies(caller));
}

/* Is the heap ours? Sets the memory up at the first call. */
static bool ours(void)
{
	static uint32_t state; /* 1 yes, 2 no */
	uint32_t now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
	if (__builtin_expect(now != 0, 1))
		return now == 1;
	if (ptw_fit()) {
		int error = ptw_region_init();
		if (error == 0)
			find_loader();
		else
			ptw_notice(PTW_NOTICE_FALLBACK, NULL, "no address space for process mode: threads stay threads");
		now = error == 0 ? 1 : 2;
	} else {
		now = 2;
	}
	__atomic_store_n(&state, now, __ATOMIC_RELEASE);
	return now == 1;
}

bool ptw_heap_is_ours(void) { return ours(); }

#define CALLER PTW_RETURNS_TO

static void *or_errno(void *block)
{
	if (!block)
		errno = ENOMEM;
	return block;
}

static void *take(size_t size, uint64_t caller)
{
	return or_errno(untracked(caller) || is_directory(size, caller) ? ptw_open_take(size) : ptw_heap_take(size, NULL));
}

static void *take_zeroed(size_t size, uint64_t caller)
{
	bool fresh = false;
	void *block = untracked(caller) ? ptw_open_take(size) : ptw_heap_take(size, &fresh);
	if (block && !fresh)
		memset(block, 0, size);
	if (__builtin_expect(size >= PTW_LINK_MAP_LEAST && caller - loader.start < loader.size && block, 0))
		ptw_loader_allocated(block);
	return or_errno(block);
}

static void *aligned(size_t alignment, size_t size, uint64_t caller)
{
	if (alignment & (alignment - 1)) {
		size_t power = PTW_GRANULE;
		while (power < alignment && power <= PTW_HEAP_SIZE)
			power *= 2;
		alignment = power;
	}
	if (alignment <= 64 && untracked(caller))
		return or_errno(ptw_open_take(size));
	return or_errno(ptw_heap_take_aligned(alignment, size));
}

static bool mine(const void *block)
{
	return ptw_in_heap((uint64_t)block) || ptw_in_open_heap((uint64_t)block);
}

/* Does another allocator stand between us and the C library? */
static bool has_other(void)
{
	static uint32_t state; /* 1 yes, 2 no */
	uint32_t now = __atomic_load_n(&state, __ATOMIC_RELAXED);
	if (!now) {
		now = ptw_next_in_libc("free", PTW_NEXT_HASH("free")) == (void *)GLIBC(free) ? 2 : 1;
		__atomic_store_n(&state, now, __ATOMIC_RELAXED);
	}
	return now == 1;
}

/* Another allocator's block: it hands out some by functions that call none of ours, and takes them back by free (operator
 * new and operator delete of jemalloc). */
static bool of_other(const void *block)
{
	return !ptw_in_open_heap((uint64_t)block) && ptw_heap_size(block) == 0 && has_other();
}

PTW_EXPORT void *malloc(size_t size)
{
	if (!ours())
		return GLIBC(malloc)(size);
	return take(size, CALLER);
}

PTW_EXPORT void free(void *block)
{
	if (ptw_in_heap((uint64_t)block)) {
		if (!ptw_heap_give(block) && has_other())
			GLIBC(free)(block);
	} else if (ptw_in_open_heap((uint64_t)block)) {
		ptw_open_give(block);
	} else if (block) {
		GLIBC(free)(block);
	}
}

PTW_EXPORT void *calloc(size_t count, size_t each)
{
	size_t size;
	if (!ours())
		return GLIBC(calloc)(count, each);
	if (__builtin_mul_overflow(count, each, &size))
		return or_errno(NULL);
	return take_zeroed(size, CALLER);
}

PTW_EXPORT size_t malloc_usable_size(void *block)
{
	if (ptw_in_heap((uint64_t)block) && !of_other(block))
		return ptw_heap_size(block);
	if (ptw_in_open_heap((uint64_t)block))
		return ptw_open_size(block);
	return block ? GLIBC(malloc_usable_size)(block) : 0;
}

static void *resize(void *block, size_t size, uint64_t caller)
{
	if (!block)
		return take(size, caller);
	if ((!mine(block) && !ours()) || of_other(block))
		return GLIBC(realloc)(block, size);
	if (size == 0) {
		free(block);
		return NULL;
	}
	if (ptw_in_heap((uint64_t)block) && ptw_heap_resize(block, size))
		return block;
	size_t before = malloc_usable_size(block);
	if (ptw_in_open_heap((uint64_t)block) && size <= before)
		return block;
	void *moved = take(size, caller);
	if (moved) {
		memcpy(moved, block, before < size ? before : size);
		free(block);
	}
	return moved;
}

PTW_EXPORT void *realloc(void *block, size_t size)
{
	if (!ours())
		return GLIBC(realloc)(block, size);
	return resize(block, size, CALLER);
}

PTW_EXPORT void *reallocarray(void *block, size_t count, size_t each)
{
	size_t size;
	if (!ours())
		return GLIBC(reallocarray)(block, count, each);
	if (__builtin_mul_overflow(count, each, &size))
		return or_errno(NULL);
	return resize(block, size, CALLER);
}

PTW_EXPORT void *memalign(size_t alignment, size_t size)
{
	return ours() ? aligned(alignment, size, CALLER) : GLIBC(memalign)(alignment, size);
}

PTW_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	return ours() ? aligned(alignment, size, CALLER) : GLIBC(aligned_alloc)(alignment, size);
}

PTW_EXPORT int posix_memalign(void **ret, size_t alignment, size_t size)
{
	if (!ours())
		return GLIBC(posix_memalign)(ret, alignment, size);
	if (alignment % sizeof(void *) || alignment == 0 || (alignment & (alignment - 1)))
		return EINVAL;
	int before = errno;
	void *block = aligned(alignment, size, CALLER);
	errno = before;
	if (!block)
		return ENOMEM;
	*ret = block;
	return 0;
}

PTW_EXPORT void *valloc(size_t size) { return ours() ? aligned(PTW_PAGE, size, CALLER) : GLIBC(valloc)(size); }

PTW_EXPORT void *pvalloc(size_t size)
{
	if (!ours())
		return GLIBC(pvalloc)(size);
	return aligned(PTW_PAGE, (size + PTW_PAGE - 1) & ~(size_t)(PTW_PAGE - 1), CALLER);
}
