/* SPDX-License-Identifier: MIT */
/* Mapped files; files.h says what is guaranteed. */
#define _GNU_SOURCE
#include "files.h"

#include "handshake.h"
#include "kept_files.h"
#include "limits.h"
#include "notice.h"
#include "pages.h"
#include "revoke.h"
#include "slots.h"
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

struct table {
	uint64_t next; /* bytes of PTW_FILES: where to look for room first */
	uint64_t serial;
	uint32_t high;
	uint32_t overlays; /* ever made */
	struct ptw_mapping mapping[PTW_MAPPINGS];
};
_Static_assert(sizeof(struct table) <= PTW_META_FILES_SIZE, "fits its place");

#define table ((struct table *)PTW_META_FILES)

/* Serial numbers of what is mapped in this process. */
static uint64_t here[PTW_MAPPINGS];

/* And of what is mapped at PTW_FILES_ALIAS. */
static uint64_t aliased[PTW_MAPPINGS];

static bool is_here(uint32_t index) { return here[index] == table->mapping[index].serial; }

static bool in_files(uint64_t address) { return address - PTW_FILES < PTW_FILES_SIZE; }

static int find(uint64_t address)
{
	uint32_t high = __atomic_load_n(&table->high, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < high; i++)
		if (address - table->mapping[i].start < __atomic_load_n(&table->mapping[i].size, __ATOMIC_ACQUIRE))
			return (int)i;
	return -1;
}

int ptw_files_protection(uint32_t page)
{
	int index = find(ptw_page_address(page));
	return index < 0 ? PROT_NONE : table->mapping[index].protection;
}

static long map_here(uint32_t index)
{
	const struct ptw_mapping *mapping = &table->mapping[index];
	uint64_t serial = mapping->serial;
	if (ptw_tracking) /* what was there before may have been open */
		ptw_pages_forget(ptw_page_of(mapping->start), (uint32_t)(mapping->size / PTW_PAGE));
	long result = PTW_SYS(SYS_mmap, mapping->start, mapping->size, ptw_tracking ? PROT_NONE : mapping->protection,
			      mapping->flags | MAP_FIXED, mapping->fd, mapping->offset);
	if (result == (long)mapping->start)
		here[index] = serial;
	return result;
}

bool ptw_files_admit(uint32_t page, bool write)
{
	int index = find(ptw_page_address(page));
	if (index < 0)
		return false;
	const struct ptw_mapping *mapping = &table->mapping[index];
	if (!ptw_limits[page] && !(mapping->protection & (write ? PROT_WRITE : PROT_READ)))
		return false;
	return is_here((uint32_t)index) || map_here((uint32_t)index) == (long)mapping->start;
}

void ptw_files_bring(uint64_t start, uint64_t size)
{
	for (uint32_t i = 0; in_files(start) && i < table->high; i++) {
		const struct ptw_mapping *mapping = &table->mapping[i];
		if (mapping->size && !is_here(i) && mapping->start < start + size && start < mapping->start + mapping->size)
			map_here(i);
	}
}

/* Mapped when it is first asked for. The kernel looks at robust mutexes when a process dies, whatever is closed then. */
void *ptw_files_alias(uint64_t address)
{
	int index = find(address);
	if (index < 0)
		return (void *)address;
	const struct ptw_mapping *mapping = &table->mapping[index];
	uint64_t serial = mapping->serial, start = mapping->start - PTW_FILES + PTW_FILES_ALIAS;
	if ((mapping->flags & MAP_TYPE) == MAP_PRIVATE || !(mapping->protection & PROT_WRITE))
		return (void *)address;
	if (aliased[index] != serial) {
		long result = PTW_SYS(SYS_mmap, start, mapping->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
				      mapping->fd, mapping->offset);
		if (result != (long)start)
			return (void *)address;
		aliased[index] = serial;
	}
	return (void *)(address - PTW_FILES + PTW_FILES_ALIAS);
}

bool ptw_files_same(uint32_t page, uint32_t next)
{
	int index = find(ptw_page_address(next));
	return index >= 0 && index == find(ptw_page_address(page));
}

void ptw_files_close(void)
{
	for (uint32_t i = 0; i < table->high; i++) {
		if (!table->mapping[i].size || !is_here(i))
			continue;
		if (in_files(table->mapping[i].start))
			PTW_SYS(SYS_mprotect, table->mapping[i].start, table->mapping[i].size, PROT_NONE, 0, 0, 0);
		else if (ptw_private) /* closed with the heap, or mapped over with it */
			here[i] = 0;
	}
}

/* --- room --- */

static bool is_free(const struct ptw_mapping *mapping) { return mapping->size == 0 && mapping->fd == 0; }

/* Under the lock. */
static int free_entry(void)
{
	for (uint32_t i = 0; i < PTW_MAPPINGS; i++) {
		if (!is_free(&table->mapping[i]))
			continue;
		if (i >= table->high)
			__atomic_store_n(&table->high, i + 1, __ATOMIC_RELEASE);
		return (int)i;
	}
	return -1;
}

/* An offset with `room` bytes that nothing lies in, from `at` on; PTW_FILES_SIZE when there is none. */
static uint64_t room_from(uint64_t at, uint64_t room)
{
	for (bool again = true; again && at + room <= PTW_FILES_SIZE;) {
		again = false;
		for (uint32_t i = 0; i < table->high; i++) {
			const struct ptw_mapping *mapping = &table->mapping[i];
			uint64_t start = mapping->start - PTW_FILES, end = start + mapping->size + PTW_PAGE;
			if (mapping->size && in_files(mapping->start) && start < at + room && at < end) {
				at = end;
				again = true;
			}
		}
	}
	return at + room <= PTW_FILES_SIZE ? at : PTW_FILES_SIZE;
}

/* An entry and an address for it, with a hole behind as a guard. Under the lock. */
static int claim(uint64_t size)
{
	int found = free_entry();
	uint64_t room = size + PTW_PAGE, at = PTW_FILES_SIZE;
	if (found >= 0 && size < PTW_FILES_SIZE) {
		at = room_from(table->next, room);
		if (at == PTW_FILES_SIZE)
			at = room_from(0, room);
	}
	if (at == PTW_FILES_SIZE)
		return -1;
	table->mapping[found].fd = -1;
	table->mapping[found].start = PTW_FILES + at;
	table->next = at + room;
	return found;
}

static void no_room(void)
{
	ptw_notice(PTW_NOTICE_LIMIT, NULL, "more than 8192 mapped files, or 256 GiB at once: mmap fails");
}

/* Descriptors of ours do not take the numbers the program expects. */
static long keep(int fd)
{
	long copy = PTW_SYS(SYS_fcntl, fd, F_DUPFD_CLOEXEC, PTW_DESCRIPTOR_BASE, 0, 0, 0);
	if (copy < 0)
		copy = PTW_SYS(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3, 0, 0, 0);
	if (copy >= 0)
		ptw_kept_add((int)copy);
	return copy;
}

static void let_go(int fd)
{
	ptw_kept_drop(fd);
	ptw_close(fd);
}

static void publish(struct ptw_mapping *mapping, uint64_t size)
{
	mapping->serial = __atomic_add_fetch(&table->serial, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&mapping->size, size, __ATOMIC_RELEASE);
}

static void drop(struct ptw_mapping *mapping)
{
	__atomic_store_n(&mapping->size, 0, __ATOMIC_RELEASE);
	if (mapping->fd > 0)
		let_go(mapping->fd);
	mapping->fd = 0;
	mapping->copied = 0;
}

/* Signals are blocked meanwhile: a handler that touches a file would need the table. */
static void lock(uint64_t *mask) { ptw_lock_masked(&ptw_shared->files_lock, mask); }

static void unlock(const uint64_t *mask) { ptw_unlock_masked(&ptw_shared->files_lock, mask); }

/* There is no entry for a mapping whose descriptor was kept. */
static long refuse(const uint64_t *mask, int kept)
{
	unlock(mask);
	let_go(kept);
	no_room();
	return -ENOMEM;
}

long ptw_files_map(uint64_t size, int protection, int flags, int fd, uint64_t offset)
{
	uint64_t mask;
	size = ptw_page_up(size);
	long copy = keep(fd);
	if (copy < 0)
		return copy;
	lock(&mask);
	int index = claim(size);
	if (index < 0)
		return refuse(&mask, (int)copy);
	struct ptw_mapping *mapping = &table->mapping[index];
	mapping->fd = (int)copy;
	mapping->protection = protection;
	mapping->flags = flags & ~(MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_ANONYMOUS);
	mapping->offset = offset;
	ptw_limits_clear(ptw_page_of(mapping->start), (uint32_t)(size / PTW_PAGE));
	publish(mapping, size);
	/* as asked first: may the descriptor be mapped so? */
	long result = PTW_SYS(SYS_mmap, mapping->start, size, protection, mapping->flags | MAP_FIXED, mapping->fd, offset);
	if (result == (long)mapping->start)
		result = map_here((uint32_t)index);
	if (result < 0)
		drop(mapping);
	unlock(&mask);
	return result;
}

/* --- parts --- */

/* Take [start, end) out of a mapping. False: what is left are two, and there is no place for the second. */
static bool cut(struct ptw_mapping *mapping, uint64_t start, uint64_t end)
{
	uint64_t from = mapping->start, to = from + mapping->size;
	if (start <= from && end >= to) {
		drop(mapping);
		return true;
	}
	if (start > from && end < to) {
		int index = free_entry();
		long fd = index < 0 ? -EMFILE : keep(mapping->fd);
		if (fd < 0)
			return false;
		struct ptw_mapping *rest = &table->mapping[index];
		*rest = *mapping;
		rest->fd = (int)fd;
		rest->size = 0;
		rest->start = end;
		rest->offset += end - from;
		publish(rest, to - end);
	} else if (start <= from) {
		mapping->size = 0;
		mapping->start = end;
		mapping->offset += end - from;
		publish(mapping, to - end);
		return true;
	}
	__atomic_store_n(&mapping->size, start - from, __ATOMIC_RELEASE);
	return true;
}

/* Under the lock. */
static void cut_all(uint64_t start, uint64_t end)
{
	for (uint32_t i = 0; i < table->high; i++) {
		struct ptw_mapping *mapping = &table->mapping[i];
		if (mapping->size && mapping->start < end && start < mapping->start + mapping->size &&
		    !cut(mapping, start, end))
			no_room();
	}
}

void ptw_files_unmap(uint64_t start, uint64_t size)
{
	uint64_t end = start + ptw_page_up(size), mask;
	if (end > PTW_FILES + PTW_FILES_SIZE || end < start)
		end = PTW_FILES + PTW_FILES_SIZE;
	lock(&mask);
	cut_all(start, end);
	unlock(&mask);
	if (ptw_tracking)
		ptw_revoke(ptw_page_of(start), (uint32_t)((end - start) / PTW_PAGE));
	PTW_SYS(SYS_munmap, start, end - start, 0, 0, 0, 0);
	if (in_files(start))
		PTW_SYS(SYS_munmap, start - PTW_FILES + PTW_FILES_ALIAS, end - start, 0, 0, 0, 0);
}

/* --- over the heap --- */

void ptw_files_overlay_cut(uint64_t start, uint64_t size)
{
	uint64_t mask;
	lock(&mask);
	cut_all(start, start + size);
	unlock(&mask);
}

static long overlay_here(uint32_t index)
{
	const struct ptw_mapping *mapping = &table->mapping[index];
	uint64_t serial = mapping->serial;
	if (here[index] == serial) /* closed with all that was open */
		return PTW_SYS(SYS_mprotect, mapping->start, mapping->size, mapping->protection, 0, 0, 0);
	long result = PTW_SYS(SYS_mmap, mapping->start, mapping->size, mapping->protection, mapping->flags | MAP_FIXED,
			      mapping->fd, mapping->offset);
	if (result != (long)mapping->start)
		return result;
	here[index] = serial;
	return 0;
}

bool ptw_files_overlays(void) { return __atomic_load_n(&table->overlays, __ATOMIC_RELAXED) != 0; }

long ptw_files_overlay(uint64_t start, uint64_t size, int protection, int flags, int fd, uint64_t offset)
{
	uint64_t mask;
	long copy = keep(fd), error;
	if (copy < 0)
		return copy;
	lock(&mask);
	table->overlays++;
	cut_all(start, start + size);
	int index = free_entry();
	if (index < 0)
		return refuse(&mask, (int)copy);
	struct ptw_mapping *mapping = &table->mapping[index];
	*mapping = (struct ptw_mapping){.start = start, .offset = offset, .fd = (int)copy, .protection = protection,
					.flags = flags & ~(MAP_FIXED | MAP_FIXED_NOREPLACE)};
	publish(mapping, size);
	error = overlay_here((uint32_t)index);
	if (error < 0)
		drop(mapping);
	unlock(&mask);
	return error < 0 ? error : (long)start;
}

bool ptw_files_overlay_admit(uint64_t address, bool write)
{
	int index = find(address);
	return index >= 0 && (table->mapping[index].protection & (write ? PROT_WRITE : PROT_READ)) &&
	       overlay_here((uint32_t)index) == 0;
}

/* --- what was private --- */

static long copy_bytes(const struct ptw_mapping *mapping, int to)
{
	uint64_t size = mapping->size;
	long view = PTW_SYS(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0), got = 0;
	if (view < 0 && view >= -4095)
		return view;
	for (uint64_t done = 0; done < size; done += got > 0 ? (uint64_t)got : 0) {
		got = PTW_SYS(SYS_pread64, mapping->fd, view + (long)done, size - done, mapping->offset + done, 0, 0);
		if (got <= 0 && got != -EINTR)
			break;
	}
	PTW_SYS(SYS_munmap, view, size, 0, 0, 0, 0);
	return got < 0 ? got : 0;
}

/* A memfd with what the mapping shows: the file's bytes, or another memfd's. */
static long copy_of(const struct ptw_mapping *mapping)
{
	long to = PTW_SYS(SYS_memfd_create, "private", MFD_CLOEXEC, 0, 0, 0, 0), high;
	if (to < 0)
		return to;
	high = keep((int)to);
	ptw_close((int)to);
	if (high < 0)
		return high;
	uint64_t size = mapping->size;
	long error = PTW_SYS(SYS_ftruncate, high, size, 0, 0, 0, 0);
	if (error == 0)
		error = copy_bytes(mapping, (int)high);
	if (error == 0)
		return high;
	let_go((int)high);
	return error;
}

/* The mapping is of the copy from now on. */
static long use_copy(struct ptw_mapping *mapping)
{
	long fd = copy_of(mapping);
	if (fd < 0)
		return fd;
	let_go(mapping->fd);
	mapping->fd = (int)fd;
	mapping->offset = 0;
	mapping->flags = MAP_SHARED;
	mapping->copied = 1;
	publish(mapping, mapping->size);
	return 0;
}

static bool opened_for_writing(int fd)
{
	return (PTW_SYS(SYS_fcntl, fd, F_GETFL, 0, 0, 0, 0) & O_ACCMODE) == O_RDWR;
}

long ptw_files_writable(uint64_t start, uint64_t size)
{
	uint64_t mask;
	long error = 0;
	if (!in_files(start))
		return 0;
	lock(&mask);
	for (uint32_t i = 0; i < table->high && !error; i++) {
		struct ptw_mapping *mapping = &table->mapping[i];
		if (!mapping->size || mapping->start >= start + size || start >= mapping->start + mapping->size)
			continue;
		if ((mapping->flags & MAP_TYPE) == MAP_PRIVATE)
			error = use_copy(mapping);
		else if (!opened_for_writing(mapping->fd))
			error = -EACCES;
	}
	unlock(&mask);
	return error;
}

long ptw_files_unshare(void)
{
	long error = 0;
	for (uint32_t i = 0; i < table->high && !error; i++) {
		if (table->mapping[i].size && table->mapping[i].copied)
			error = use_copy(&table->mapping[i]);
		if (!in_files(table->mapping[i].start)) /* its heap has just been mapped anew */
			here[i] = 0;
	}
	return error;
}
