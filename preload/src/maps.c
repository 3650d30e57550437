/* SPDX-License-Identifier: MIT */
/*
 * Process mode: mmap and its kin, so that what one thread maps all threads have.
 *
 *   private anonymous memory        runs of the heap
 *   private, writable, of a file    a copy in the heap: nothing is written to the file
 *   private, read-only, of a file   PTW_FILES
 *   shared                          PTW_FILES; anonymous ones get a memfd of their own, for the program's children
 *   at a fixed address              in the heap: emptied or filled in place; elsewhere: as asked, for this thread and
 *                                   threads it makes
 *   executable, huge pages, stacks that grow: as asked
 */
#define _GNU_SOURCE
#include "files.h"
#include "heap.h"
#include "pages.h"
#include "real.h"
#include "region.h"
#include "units.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#define LARGEST (PTW_HEAP_SIZE / 4)

static uint64_t page_up(uint64_t size) { return (size + PTW_PAGE - 1) & ~(PTW_PAGE - 1); }
static char *alias(uint64_t address) { return (char *)(address - PTW_REGION + PTW_ALIAS); }

static void *result_of(long result)
{
	if (result < 0 && result >= -4095) {
		errno = (int)-result;
		return MAP_FAILED;
	}
	return (void *)result;
}

static long take_run(uint64_t size)
{
	uint32_t first = ptw_units_take((uint32_t)((size + PTW_UNIT - 1) / PTW_UNIT), true);
	return first == UINT32_MAX ? -ENOMEM : (long)ptw_unit_address(first);
}

/* A file's bytes at `address`, which are zeros now. */
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
	return (long)address;
}

static void empty(uint64_t start, uint64_t size)
{
	if (PTW_SYS(SYS_madvise, alias(start), size, MADV_REMOVE, 0, 0, 0) != 0)
		memset(alias(start), 0, size);
}

static long map_anonymous_shared(uint64_t size, int protection)
{
	long fd = PTW_SYS(SYS_memfd_create, "shared", MFD_CLOEXEC, 0, 0, 0, 0), result;
	if (fd < 0)
		return fd;
	result = PTW_SYS(SYS_ftruncate, fd, page_up(size), 0, 0, 0, 0);
	if (result == 0)
		result = ptw_files_map(size, protection, MAP_SHARED, (int)fd, 0);
	ptw_close((int)fd);
	return result;
}

static bool ours(uint64_t size, int protection, int flags)
{
	if (!ptw_process_mode || size == 0 || size > LARGEST || (protection & PROT_EXEC))
		return false;
	return !(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_HUGETLB | MAP_GROWSDOWN | MAP_32BIT));
}

static bool shared(int flags)
{
	return (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
}

static long map(uint64_t size, int protection, int flags, int fd, uint64_t offset)
{
	if (flags & MAP_ANONYMOUS)
		return shared(flags) ? map_anonymous_shared(size, protection) : take_run(size);
	if (shared(flags) || !(protection & PROT_WRITE))
		return ptw_files_map(size, protection, flags & ~MAP_POPULATE, fd, offset);
	if (offset & (PTW_PAGE - 1))
		return -EINVAL;
	long run = take_run(size), filled;
	if (run < 0)
		return run;
	filled = fill((uint64_t)run, size, fd, offset);
	if (filled < 0)
		ptw_heap_give((void *)run);
	return filled;
}

PTW_EXPORT void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	if (ours(size, protection, flags))
		return result_of(map(size, protection, flags, fd, (uint64_t)offset));
	if (ptw_process_mode && (flags & MAP_FIXED) && ptw_in_heap((uint64_t)address) && !shared(flags) &&
	    !(protection & PROT_EXEC)) {
		empty((uint64_t)address, page_up(size));
		if (flags & MAP_ANONYMOUS)
			return address;
		return result_of(fill((uint64_t)address, size, fd, (uint64_t)offset));
	}
	return result_of(PTW_SYS(SYS_mmap, address, size, protection, flags, fd, offset));
}

PTW_EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset)
{
	return mmap(address, size, protection, flags, fd, offset);
}

/* Whole units go back; pages beside them are emptied. */
static int unmap_heap(uint64_t start, uint64_t size)
{
	uint64_t end = start + page_up(size);
	uint64_t first = (start + PTW_UNIT - 1) & ~(PTW_UNIT - 1), last = end & ~(PTW_UNIT - 1);
	uint32_t unit = ptw_unit_of(start);
	/* the run's last unit is whole when the range ends where the mapping did */
	if (end > last && last >= first && (last > start || start == first)) {
		uint32_t next = ptw_unit_of(last) + 1;
		bool ends = next >= PTW_UNITS || ptw_units[next].kind != PTW_UNIT_NEVER || !ptw_units_known(next);
		if (ends && (last >= first))
			last += PTW_UNIT;
	}
	ptw_pages_limit(start, end - start, PROT_NONE);
	if (first > start)
		empty(start, (first < end ? first : end) - start);
	if (last > first)
		ptw_units_cut(ptw_unit_of(first), (uint32_t)((last - first) / PTW_UNIT));
	else if (start == ptw_unit_address(unit) && end > start)
		empty(start, end - start);
	return 0;
}

PTW_EXPORT int munmap(void *address, size_t size)
{
	uint64_t start = (uint64_t)address;
	if (ptw_process_mode && ptw_in_heap(start) && !(start & (PTW_PAGE - 1)) && size)
		return unmap_heap(start, size);
	if (ptw_process_mode && start - PTW_FILES < PTW_FILES_SIZE && size) {
		ptw_files_unmap(start, size);
		return 0;
	}
	long result = PTW_SYS(SYS_munmap, address, size, 0, 0, 0, 0);
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : 0;
}

static void *remap_heap(uint64_t start, uint64_t before, uint64_t size, int flags)
{
	uint32_t first = ptw_unit_of(start);
	uint32_t has = (uint32_t)((before + PTW_UNIT - 1) / PTW_UNIT), wanted = (uint32_t)((size + PTW_UNIT - 1) / PTW_UNIT);
	if (page_up(size) <= page_up(before)) {
		if (page_up(size) < page_up(before))
			unmap_heap(start + page_up(size), page_up(before) - page_up(size));
		return (void *)start;
	}
	if (wanted == has)
		return (void *)start; /* the unit's rest is zeros */
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	(void)first;
	long moved = take_run(size);
	if (moved < 0)
		return result_of(moved);
	memcpy((void *)moved, (const void *)start, before);
	unmap_heap(start, before);
	return (void *)moved;
}

PTW_EXPORT void *mremap(void *address, size_t before, size_t size, int flags, ...)
{
	va_list list;
	va_start(list, flags);
	void *fixed = flags & MREMAP_FIXED ? va_arg(list, void *) : NULL;
	va_end(list);
	if (ptw_process_mode && ptw_in_heap((uint64_t)address) && !(flags & MREMAP_FIXED))
		return remap_heap((uint64_t)address, before, size, flags);
	return result_of(PTW_SYS(SYS_mremap, address, before, size, flags, fixed, 0));
}

PTW_EXPORT int mprotect(void *address, size_t size, int protection)
{
	uint32_t page = ptw_process_mode ? ptw_page_of((uint64_t)address) : PTW_PAGE_NONE;
	if (page != PTW_PAGE_NONE && !(protection & PROT_EXEC)) {
		if ((uint64_t)address & (PTW_PAGE - 1)) {
			errno = EINVAL;
			return -1;
		}
		ptw_pages_limit((uint64_t)address, size, protection);
		return 0;
	}
	if (page != PTW_PAGE_NONE && page < PTW_MEMFD_PAGES && ptw_tracking)
		memset(ptw_page_states + page, PTW_ALWAYS, page_up(size) / PTW_PAGE);
	long result = PTW_SYS(SYS_mprotect, address, size, protection, 0, 0, 0);
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : 0;
}

PTW_EXPORT int madvise(void *address, size_t size, int advice)
{
	uint64_t start = (uint64_t)address;
	if (ptw_process_mode && ptw_in_region(start)) {
		if (start & (PTW_PAGE - 1)) {
			errno = EINVAL;
			return -1;
		}
		if (advice == MADV_DONTNEED && ptw_in_heap(start))
			empty(start, page_up(size));
		return 0;
	}
	long result = PTW_SYS(SYS_madvise, address, size, advice, 0, 0, 0);
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : 0;
}
