/* SPDX-License-Identifier: MIT */
/*
 * Process mode: mmap and its kin, so that what one thread maps all threads have.
 *
 *   private anonymous memory        runs of the heap, executable ones too
 *   private, writable, of a file    a copy in the heap: nothing is written to the file
 *   private, read-only, of a file   PTW_FILES
 *   shared                          PTW_FILES; anonymous ones get a memfd of their own, for the program's children
 *   at a fixed address              in the heap: emptied or filled in place, or, if shared, over it (files.h); elsewhere:
 *                                   as asked, and what is anonymous and private to be shared by all threads
 *                                   (untracked.h), once it may be written
 *   executable ones of files        as asked
 *
 * A wish for an address below 4 GiB, huge pages or growth is not fulfilled. What the program may do with a page, or that
 * it has none there, is in limits.h, and holds for all threads when the call returns.
 */
#define _GNU_SOURCE
#include "allocation.h"
#include "early.h"
#include "files.h"
#include "heap.h"
#include "limits.h"
#include "notice.h"
#include "pages.h"
#include "region.h"
#include "slots.h"
#include "units.h"
#include "untracked.h"
#include "unwind.h"
#include "view.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#define UNIT_PAGES (PTW_UNIT / PTW_PAGE)
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define ALL (READ_WRITE | PROT_EXEC)

static bool aligned(uint64_t address) { return (address & (PTW_PAGE - 1)) == 0; }
static char *alias(uint64_t address) { return (char *)(address - PTW_REGION + PTW_ALIAS); }
static uint32_t page_at(uint64_t address) { return (uint32_t)((address - PTW_REGION) / PTW_PAGE); }
static uint32_t units_for(uint64_t size) { return (uint32_t)((size + PTW_UNIT - 1) / PTW_UNIT); }

static void *result_of(long result)
{
	if (result < 0 && result >= -4095) {
		errno = (int)-result;
		return MAP_FAILED;
	}
	return (void *)result;
}

static int status_of(long result)
{
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : (int)result;
}

/* --- mmap --- */

static void nothing_between(uint64_t start, uint64_t end)
{
	memset(ptw_limits + page_at(start), PTW_UNMAPPED, (end - start) / PTW_PAGE);
}

static long take_run(uint64_t size, int protection)
{
	uint32_t count = units_for(size), first = ptw_units_take(count, true);
	if (first == UINT32_MAX)
		return -ENOMEM;
	uint64_t address = ptw_unit_address(first);
	nothing_between(address + ptw_page_up(size), address + count * PTW_UNIT);
	if (protection != READ_WRITE)
		ptw_pages_limit(address, ptw_page_up(size), protection);
	ptw_allocation_log(address, size);
	return (long)address;
}

/* A file's bytes at `address`, which are zeros now: whole pages of them, as far as the file goes. */
static long fill(uint64_t address, uint64_t size, int fd, uint64_t offset)
{
	for (uint64_t done = 0; done < size;) {
		long got = PTW_SYS(SYS_pread64, fd, alias(address) + done, size - done, offset + done, 0, 0);
		if (got == -EINTR)
			continue;
		if (got < 0)
			return got;
		if (got == 0)
			break;
		done += (uint64_t)got;
	}
	if (ptw_private)
		ptw_view_changed(address, ptw_page_up(size));
	return (long)address;
}

static void empty(uint64_t start, uint64_t size)
{
	if (ptw_private)
		ptw_view_lose(start, size);
	if (PTW_SYS(SYS_madvise, alias(start), size, MADV_REMOVE, 0, 0, 0) != 0)
		memset(alias(start), 0, size);
	if (ptw_private)
		ptw_view_changed(start, size);
}

/* A memfd, or negative errno. */
static long shared_memory(uint64_t size)
{
	long fd = PTW_SYS(SYS_memfd_create, "shared", MFD_CLOEXEC, 0, 0, 0, 0), error;
	if (fd < 0)
		return fd;
	error = PTW_SYS(SYS_ftruncate, fd, ptw_page_up(size), 0, 0, 0, 0);
	if (error < 0)
		ptw_close((int)fd);
	return error < 0 ? error : fd;
}

static long map_anonymous_shared(uint64_t size, int protection)
{
	long fd = shared_memory(size);
	if (fd < 0)
		return fd;
	long result = ptw_files_map(size, protection, MAP_SHARED, (int)fd, 0);
	ptw_close((int)fd);
	return result;
}

static bool shared(int flags)
{
	return (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
}

static bool ours(uint64_t size, int protection, int flags)
{
	if (!ptw_process_mode || size == 0 || size > PTW_HEAP_SIZE || (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)))
		return false;
	return !(protection & PROT_EXEC) || (flags & MAP_ANONYMOUS);
}

/* What the kernel would say: 0, or negative errno. */
static long try_to_map(uint64_t size, int protection, int flags, int fd, uint64_t offset)
{
	long probe = PTW_SYS(SYS_mmap, 0, size, protection, flags, fd, offset);
	if (probe < 0 && probe >= -4095)
		return probe;
	PTW_SYS(SYS_munmap, probe, size, 0, 0, 0, 0);
	return 0;
}

/* Where there are no huge pages, asking for them fails as it would. */
static long huge_pages(uint64_t size, int flags)
{
	if (!(flags & MAP_HUGETLB))
		return 0;
	return try_to_map(size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | (flags & ~(MAP_TYPE | MAP_NORESERVE)), -1, 0);
}

/* What the kernel would say of the descriptor. */
static long may_copy(int fd, uint64_t size, int flags, uint64_t offset)
{
	return try_to_map(size, PROT_NONE, MAP_PRIVATE | (flags & ~(MAP_TYPE | MAP_POPULATE)), fd, offset);
}

/* Not within `mmap`, whose calls merging takes for the program's. */
__attribute__((noinline)) static long map(uint64_t size, int protection, int flags, int fd, uint64_t offset)
{
	if (flags & MAP_ANONYMOUS) {
		long error = huge_pages(size, flags);
		return error ? error : shared(flags) ? map_anonymous_shared(size, protection) : take_run(size, protection);
	}
	if (shared(flags) || !(protection & PROT_WRITE))
		return ptw_files_map(size, protection, flags & ~(MAP_POPULATE | MAP_32BIT), fd, offset);
	long error = may_copy(fd, size, flags, offset);
	if (error)
		return error;
	long run = take_run(size, protection), filled;
	if (run < 0)
		return run;
	filled = fill((uint64_t)run, ptw_page_up(size), fd, offset);
	if (filled < 0)
		ptw_units_give(ptw_unit_of((uint64_t)run), units_for(size));
	return filled;
}

/* --- files over the heap --- */

static bool has_overlaid(uint64_t start, uint64_t end)
{
	bool found = false;
	if (ptw_files_overlays())
		for (uint64_t at = start; at < end && !found; at += PTW_PAGE)
			found = ptw_limit_is_overlaid(page_at(at));
	return found;
}

/* This process has the heap there again. Others that had a file keep it. False: there was none. */
static bool uncover(uint64_t start, uint64_t size)
{
	if (!has_overlaid(start, start + size))
		return false;
	if (ptw_private) /* pages beside it */
		ptw_view_lose(start, size);
	ptw_files_overlay_cut(start, size);
	ptw_region_remap(start, start + size, start - PTW_REGION);
	if (ptw_tracking)
		ptw_pages_close_new(page_at(start), (uint32_t)(size / PTW_PAGE));
	return true;
}

/* What the program may do there is the mapping's, not a limit. */
__attribute__((noinline)) static long overlay(uint64_t start, uint64_t size, int protection, int flags, int fd, uint64_t offset)
{
	if (!aligned(start))
		return -EINVAL;
	size = ptw_page_up(size);
	if (flags & MAP_ANONYMOUS) {
		long memory = shared_memory(size);
		if (memory < 0)
			return memory;
		long result = overlay(start, size, protection, flags & ~MAP_ANONYMOUS, (int)memory, 0);
		ptw_close((int)memory);
		return result;
	}
	long error = try_to_map(size, protection, flags & ~(MAP_FIXED | MAP_POPULATE), fd, offset);
	if (error)
		return error;
	if (ptw_private)
		ptw_view_lose(start, size);
	ptw_pages_limit(start, size, PTW_OVERLAID);
	return ptw_files_overlay(start, size, protection, flags, fd, offset);
}

/* --- in the heap --- */

/* Over what is mapped in the heap. */
__attribute__((noinline)) static long map_in_heap(uint64_t start, uint64_t size, int protection, int flags, int fd, uint64_t offset)
{
	if (!aligned(start))
		return -EINVAL;
	long error = flags & MAP_ANONYMOUS ? 0 : may_copy(fd, size, flags & ~MAP_FIXED, offset);
	if (error)
		return error;
	uncover(start, ptw_page_up(size));
	empty(start, ptw_page_up(size));
	if (!(flags & MAP_ANONYMOUS) && (error = fill(start, ptw_page_up(size), fd, offset)) < 0)
		return error;
	ptw_pages_limit(start, ptw_page_up(size), protection);
	return (long)start;
}

/* The kernel would take a place there for free that is ours. A hint that cannot be followed is none. */
static void *hint(void *address, int flags)
{
	bool is_free = (uint64_t)address >= PTW_LOWEST && (uint64_t)address < PTW_HIGHEST;
	return is_free && !(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) && ptw_heap_is_ours() ? NULL : address;
}

static bool is_data(int protection) { return (protection & PROT_WRITE) && !(protection & PROT_EXEC); }

/* At an address of the program's that is not in the heap. What is private and anonymous is there for all threads. */
__attribute__((noinline)) static void was_mapped(uint64_t start, uint64_t size, int protection, int flags,
						 const void *code)
{
	uint64_t end = start + ptw_page_up(size);
	if (!(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)))
		return;
	if (shared(flags) && __atomic_load_n(&ptw_shared->alive, __ATOMIC_RELAXED) > 1)
		ptw_notice(PTW_NOTICE_LIMIT, code,
			   "shared memory at an address that was asked for: threads that live by then do not have it");
	if (ptw_page_of(start) != PTW_PAGE_NONE)
		return;
	if ((flags & MAP_ANONYMOUS) && !shared(flags) && is_data(protection))
		ptw_untracked_share_fresh(start, end);
	else
		ptw_untracked_replaced(start, end);
}

PTW_EXPORT void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	uint64_t start = (uint64_t)address;
	if (ours(size, protection, flags))
		return result_of(map(size, protection, flags, fd, (uint64_t)offset));
	bool in_heap = ptw_process_mode && ptw_in_heap(start) && size && size <= PTW_HEAP + PTW_HEAP_SIZE - start;
	if (in_heap && (flags & MAP_FIXED_NOREPLACE)) /* what is free there is not the program's to take */
		return result_of(aligned(start) ? -EEXIST : -EINVAL);
	if (in_heap && (flags & MAP_FIXED))
		return result_of((shared(flags) ? overlay : map_in_heap)(start, size, protection & ALL, flags, fd,
									 (uint64_t)offset));
	long result = PTW_SYS(SYS_mmap, hint(address, flags), size, protection, flags, fd, offset);
	if (result < 0 && result >= -4095)
		return result_of(result);
	if (ptw_process_mode)
		was_mapped((uint64_t)result, size, protection, flags, (const void *)(PTW_RETURNS_TO - 1));
	else
		(shared(flags) ? ptw_early_cut : ptw_early_add)((uint64_t)result, size);
	return (void *)result;
}

PTW_EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset)
{
	return mmap(address, size, protection, flags, fd, offset);
}

/* --- munmap --- */

static bool unit_is_empty(uint32_t unit)
{
	uint32_t first = page_at(ptw_unit_address(unit));
	for (unsigned i = 0; i < UNIT_PAGES; i++)
		if (!ptw_limit_is_unmapped(first + i))
			return false;
	return true;
}

/* Pages are emptied; units in which none is left go back. */
static void unmap_heap(uint64_t start, uint64_t end)
{
	bool overlaid = uncover(start, end - start);
	ptw_pages_limit(start, end - start, overlaid ? PTW_UNMAPPED | PTW_OVERLAID : PTW_UNMAPPED);
	empty(start, end - start);
	if (overlaid) /* other processes may have files there yet: the place is not used again */
		return;
	uint32_t first = ptw_unit_of(start), last = ptw_unit_of(end - 1);
	if (!unit_is_empty(first))
		first++;
	if (last >= first && !unit_is_empty(last))
		last--;
	if (first <= last && ptw_units_known(first))
		ptw_units_cut(first, last - first + 1);
}

PTW_EXPORT int munmap(void *address, size_t size)
{
	uint64_t start = (uint64_t)address, end = start + ptw_page_up(size);
	if (ptw_process_mode && aligned(start) && size && ptw_in_heap(start) && end <= PTW_HEAP + PTW_HEAP_SIZE &&
	    end > start) {
		unmap_heap(start, end);
		return 0;
	}
	if (ptw_process_mode && aligned(start) && start - PTW_FILES < PTW_FILES_SIZE && size) {
		ptw_files_unmap(start, size);
		return 0;
	}
	long result = PTW_SYS(SYS_munmap, address, size, 0, 0, 0, 0);
	if (ptw_process_mode && result == 0)
		ptw_untracked_empty(start, end);
	else if (result == 0)
		ptw_early_cut(start, size);
	return status_of(result);
}

/* --- mremap --- */

/* Moving is no access: the kernel would move page tables. */
static long move(uint64_t from, uint64_t before, uint64_t to, uint64_t size, int flags)
{
	if (ptw_private) {
		ptw_view_lose(from, before);
		ptw_view_lose(to, size);
	}
	memcpy(alias(to), alias(from), before < size ? before : size);
	if (ptw_private)
		ptw_view_changed(to, size);
	if (flags & MREMAP_DONTUNMAP)
		empty(from, before);
	else
		unmap_heap(from, from + before);
	return (long)to;
}

static bool grow_here(uint64_t start, uint64_t before, uint64_t size)
{
	uint32_t first = ptw_unit_of(start), has = units_for(before), wanted = units_for(size);
	if (start & (PTW_UNIT - 1) || !ptw_unit_begins_run(&ptw_units[first]) || ptw_units[first].run != has)
		return false; /* the end of a part of a run: what follows is somebody's */
	if (wanted > has) {
		if (!ptw_units_extend(first, has, wanted))
			return false;
		ptw_units_clean(first + has, wanted - has);
		nothing_between(start + size, ptw_unit_address(first + wanted));
	}
	uint64_t end = ptw_unit_address(first + has);
	ptw_limits_clear(page_at(start + before), (uint32_t)(((size + start < end ? size + start : end) - start - before) / PTW_PAGE));
	return true;
}

static bool may_remap(uint64_t start, uint64_t size, int flags)
{
	return aligned(start) && size != 0 && !(flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)) &&
	       (!(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) || (flags & MREMAP_MAYMOVE));
}

static bool may_move(uint64_t start, uint64_t before, uint64_t to, uint64_t size)
{
	bool apart = start >= to + size || to >= start + before;
	return aligned(to) && apart && (ptw_in_heap(to) || ptw_page_of(to) == PTW_PAGE_NONE);
}

/* Zeros at an address outside the heap, for all threads. */
static long map_zeros(uint64_t start, uint64_t size)
{
	long result = PTW_SYS(SYS_mmap, start, size, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (result == (long)start)
		ptw_untracked_share_fresh(start, start + size);
	return result;
}

/* To an address outside the heap. */
static long move_out(uint64_t from, uint64_t before, uint64_t to, uint64_t size, int protection, int flags)
{
	if (!is_data(protection))
		return -EINVAL;
	long result = map_zeros(to, size);
	if (result != (long)to)
		return result;
	if (ptw_private)
		ptw_view_lose(from, before);
	memcpy((char *)to, alias(from), before < size ? before : size);
	if (flags & MREMAP_DONTUNMAP)
		empty(from, before);
	else
		unmap_heap(from, from + before);
	return result;
}

static long remap_heap(uint64_t start, uint64_t before, uint64_t size, int flags, uint64_t fixed)
{
	if (!may_remap(start, size, flags) || has_overlaid(start, start + ptw_page_up(before)))
		return -EINVAL;
	before = ptw_page_up(before);
	size = ptw_page_up(size);
	int protection = ptw_limit_or(page_at(start), READ_WRITE);
	if (flags & MREMAP_FIXED) {
		if (!may_move(start, before, fixed, size))
			return -EINVAL;
		if (!ptw_in_heap(fixed))
			return move_out(start, before, fixed, size, protection, flags);
		long error = map_in_heap(fixed, size, protection, MAP_ANONYMOUS, -1, 0);
		return error < 0 ? error : move(start, before, fixed, size, flags);
	}
	if (!(flags & MREMAP_DONTUNMAP)) {
		if (size < before)
			unmap_heap(start + size, start + before);
		if (size <= before || grow_here(start, before, size))
			return (long)start;
	}
	if (!(flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	long moved = take_run(size, protection);
	return moved < 0 ? moved : move(start, before, (uint64_t)moved, size, flags);
}

/* The kernel would make it longer by what lies behind it in the memory that is shared. */
__attribute__((noinline)) static long remap_untracked(uint64_t start, uint64_t before, uint64_t size, int flags,
						      uint64_t fixed)
{
	before = ptw_page_up(before);
	size = ptw_page_up(size);
	if (!may_remap(start, size, flags) ||
	    ((flags & MREMAP_FIXED) && !may_move(start, before, fixed, size)))
		return -EINVAL;
	uint64_t stays = !(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) && size <= before ? size : 0;
	if (!stays && !(flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	long to = stays		      ? (long)start
		  : !(flags & MREMAP_FIXED) ? take_run(size, READ_WRITE)
		  : ptw_in_heap(fixed)      ? map_in_heap(fixed, size, READ_WRITE, MAP_ANONYMOUS, -1, 0)
					    : map_zeros(fixed, size);
	if (to < 0 && to >= -4095)
		return to;
	if (!stays) {
		bool in_heap = ptw_in_heap((uint64_t)to);
		ptw_untracked_read(start, in_heap ? alias((uint64_t)to) : (char *)to, before < size ? before : size);
		if (in_heap && ptw_private)
			ptw_view_changed((uint64_t)to, size);
	}
	if (!(flags & MREMAP_DONTUNMAP) && before > stays)
		PTW_SYS(SYS_munmap, start + stays, before - stays, 0, 0, 0, 0);
	ptw_untracked_empty(start + stays, start + before);
	return to;
}

PTW_EXPORT void *mremap(void *address, size_t before, size_t size, int flags, ...)
{
	va_list list;
	va_start(list, flags);
	void *fixed = flags & MREMAP_FIXED ? va_arg(list, void *) : NULL;
	va_end(list);
	if (ptw_process_mode && ptw_in_heap((uint64_t)address) && before)
		return result_of(remap_heap((uint64_t)address, before, size, flags, (uint64_t)fixed));
	if (ptw_process_mode && before && ptw_untracked_has((uint64_t)address))
		return result_of(remap_untracked((uint64_t)address, before, size, flags, (uint64_t)fixed));
	long result = PTW_SYS(SYS_mremap, address, before, size, flags, fixed, 0);
	if (!ptw_process_mode && (result >= 0 || result < -4095)) {
		if (before && !(flags & MREMAP_DONTUNMAP))
			ptw_early_cut((uint64_t)address, before);
		ptw_early_add((uint64_t)result, size);
	}
	return result_of(result);
}

/* --- mprotect, madvise --- */

static bool is_mapped(uint64_t start, uint64_t size)
{
	if (!ptw_in_heap(start))
		return true;
	for (uint32_t page = page_at(start), end = page + (uint32_t)(size / PTW_PAGE); page < end; page++)
		if (ptw_limit_is_unmapped(page))
			return false;
	return true;
}

PTW_EXPORT int mprotect(void *address, size_t size, int protection)
{
	uint64_t start = (uint64_t)address;
	if (!ptw_process_mode || ptw_page_of(start) == PTW_PAGE_NONE) {
		long result = PTW_SYS(SYS_mprotect, address, size, protection, 0, 0, 0);
		if (ptw_process_mode && result == 0 && is_data(protection))
			ptw_untracked_share_own(start, start + ptw_page_up(size));
		return status_of(result);
	}
	size = ptw_page_up(size);
	if (!aligned(start) || (protection & ~ALL))
		return status_of(-EINVAL);
	if (!is_mapped(start, size))
		return status_of(-ENOMEM);
	if (ptw_in_heap(start) && has_overlaid(start, start + size)) /* in this thread */
		return status_of(PTW_SYS(SYS_mprotect, address, size, protection, 0, 0, 0));
	long error = (protection & PROT_WRITE) ? ptw_files_writable(start, size) : 0;
	if (error == 0)
		ptw_pages_limit(start, size, protection);
	return status_of(error);
}

/* For the region there is one kind of memory, and nothing to expect. */
static long advise_region(uint64_t start, uint64_t size, int advice)
{
	if (!aligned(start) || advice == MADV_REMOVE)
		return -EINVAL;
	if (!is_mapped(start, size))
		return -ENOMEM;
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_FREE:
		if (ptw_in_heap(start))
			empty(start, size);
		return 0;
	case MADV_WIPEONFORK: /* programs ask what they can do without */
	case MADV_KEEPONFORK:
		return -EINVAL;
	default:
		return 0;
	}
}

PTW_EXPORT int madvise(void *address, size_t size, int advice)
{
	if (ptw_process_mode && ptw_in_region((uint64_t)address))
		return status_of(advise_region((uint64_t)address, ptw_page_up(size), advice));
	if (ptw_process_mode)
		ptw_files_bring((uint64_t)address, size);
	long result = PTW_SYS(SYS_madvise, address, size, advice, 0, 0, 0);
	if (ptw_process_mode && (advice == MADV_DONTNEED || advice == MADV_FREE) &&
	    ptw_untracked_has((uint64_t)address) && (result == 0 || advice == MADV_FREE)) {
		ptw_untracked_empty((uint64_t)address, (uint64_t)address + ptw_page_up(size));
		result = 0; /* shared memory cannot be free to be taken */
	}
	return status_of(result);
}

PTW_EXPORT int msync(void *address, size_t size, int flags)
{
	if (ptw_process_mode)
		ptw_files_bring((uint64_t)address, size);
	return status_of(PTW_SYS(SYS_msync, address, size, flags, 0, 0, 0));
}

/* --- protection keys: as on a processor without them --- */

PTW_EXPORT int pkey_alloc(unsigned flags, unsigned rights)
{
	return status_of(ptw_process_mode ? -ENOSPC : PTW_SYS(SYS_pkey_alloc, flags, rights, 0, 0, 0, 0));
}

PTW_EXPORT int pkey_mprotect(void *address, size_t size, int protection, int key)
{
	if (key == -1)
		return mprotect(address, size, protection);
	return status_of(ptw_process_mode ? -EINVAL : PTW_SYS(SYS_pkey_mprotect, address, size, protection, key, 0, 0));
}
