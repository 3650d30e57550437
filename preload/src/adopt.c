/* SPDX-License-Identifier: MIT */
/* Taking mappings over; adopt.h says what is guaranteed. */
#define _GNU_SOURCE
#include "adopt.h"

#include "layout.h"
#include "loader.h"
#include "mappings.h"
#include "places.h"
#include "segments.h"
#include "slots.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>

enum { PATIENCE = 1000 };

/* The line about `address`, if the process has one; its path is in `all`. */
static bool look(struct ptw_mappings *all, uint32_t pid, uint64_t address, struct ptw_mapping_line *ret)
{
	bool found = false;
	if (!ptw_mappings_init(all, pid))
		return false;
	while (!found && ptw_mappings_next(all, ret))
		found = address >= ret->start && address < ret->end;
	ptw_mappings_deinit(all);
	return found;
}

static bool map_file(const struct ptw_mapping_line *mapping)
{
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, mapping->path,
			  (mapping->shared && (mapping->protection & PROT_WRITE) ? O_RDWR : O_RDONLY) | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	long result = PTW_SYS(SYS_mmap, mapping->start, mapping->end - mapping->start, mapping->protection,
			      (mapping->shared ? MAP_SHARED : MAP_PRIVATE) | ptw_places_flags(mapping->start), fd, mapping->offset);
	ptw_close((int)fd);
	return result == (long)mapping->start;
}

/* Its number is what the kernel shows as the file's. */
static bool attach(const struct ptw_mapping_line *mapping)
{
	int flags = (mapping->protection & PROT_WRITE ? 0 : SHM_RDONLY) |
		    (ptw_places_flags(mapping->start) == MAP_FIXED ? SHM_REMAP : 0);
	return PTW_SYS(SYS_shmat, mapping->inode, mapping->start, flags, 0, 0, 0) == (long)mapping->start;
}

/* What is in it there may differ from the file: relocated, or written since. False: it is not to be read any more. */
static bool copy(uint32_t pid, const struct ptw_mapping_line *mapping)
{
	struct iovec here = {(void *)mapping->start, mapping->end - mapping->start}, there = here;
	if (!(mapping->protection & PROT_WRITE))
		PTW_SYS(SYS_mprotect, mapping->start, here.iov_len, mapping->protection | PROT_WRITE, 0, 0, 0);
	bool whole = PTW_SYS(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0) == (long)here.iov_len;
	if (!(mapping->protection & PROT_WRITE))
		PTW_SYS(SYS_mprotect, mapping->start, here.iov_len, mapping->protection, 0, 0, 0);
	return whole;
}

/* As it was before: nothing, or what keeps the place free. */
static void give_back(const struct ptw_mapping_line *mapping)
{
	uint64_t size = mapping->end - mapping->start;
	if (ptw_places_contain(mapping->start))
		PTW_SYS(SYS_mmap, mapping->start, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
			-1, 0);
	else
		PTW_SYS(SYS_munmap, mapping->start, size, 0, 0, 0, 0);
}

static bool take(uint32_t pid, const struct ptw_mapping_line *mapping)
{
	bool file = mapping->path[0] == '/';
	if (mapping->shared && strncmp(mapping->path, "/SYSV", 5) == 0)
		return attach(mapping);
	if (file && !map_file(mapping))
		return false;
	if (!file && PTW_SYS(SYS_mmap, mapping->start, mapping->end - mapping->start, mapping->protection,
			     MAP_PRIVATE | MAP_ANONYMOUS | ptw_places_flags(mapping->start), -1, 0) != (long)mapping->start)
		return false;
	if (mapping->shared || (mapping->protection & PROT_EXEC) || !mapping->protection)
		return true;
	bool written = !file || mapping->protection & PROT_WRITE;
	if (!copy(pid, mapping) && written) { /* what nobody may write to is mostly as the file has it */
		give_back(mapping);
		return false;
	}
	if (mapping->protection & PROT_WRITE)
		ptw_loader_copied();
	return true;
}

/* Has this process something there, but what keeps the place free? */
static bool is_here(uint64_t address)
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	return ptw_places_contain(address) && look(&all, 0, address, &line) && (line.protection || line.path[0]);
}

static bool adopt(uint64_t address)
{
	uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
	if (address < PTW_PAGE || address >= 1ull << 47 || (address >= PTW_LOWEST && address < PTW_HIGHEST) || is_here(address))
		return false;
	for (uint32_t i = 0; i < high; i++) {
		const struct ptw_slot *slot = &ptw_shared->slot[i];
		struct ptw_mappings all;
		struct ptw_mapping_line mapping;
		if (i == ptw_slot_index || __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != PTW_SLOT_RUNNING)
			continue;
		if (look(&all, slot->pid, address, &mapping) && mapping.protection && take(slot->pid, &mapping))
			return true;
	}
	return false;
}

/* Until no process shares what it has loaded, or for so many milliseconds: who holds the lock may be ourselves. */
static void let_others_share(int most)
{
	const struct timespec moment = {0, 1000000};
	while (most-- > 0 && __atomic_load_n(&ptw_shared->segments_lock, __ATOMIC_ACQUIRE))
		PTW_SYS(SYS_nanosleep, &moment, 0, 0, 0, 0, 0);
}

/* Who loaded it may have shared it while we looked: then what we found there was closed, or is a copy of what others
 * share. Or shares it just now: it is neither as it was nor in the table. */
bool ptw_adopt(uint64_t address)
{
	bool found = adopt(address);
	if (ptw_segments_admit(address) || found)
		return true;
	let_others_share(PATIENCE);
	return ptw_segments_admit(address);
}
