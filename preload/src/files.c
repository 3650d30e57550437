/* SPDX-License-Identifier: MIT */
/* Mapped files; files.h says what is guaranteed. */
#define _GNU_SOURCE
#include "files.h"

#include "handshake.h"
#include "pages.h"
#include "slots.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

struct table {
	uint64_t used; /* bytes of PTW_FILES given out */
	uint32_t high;
	uint32_t zero;
	struct ptw_mapping mapping[PTW_MAPPINGS];
};
_Static_assert(sizeof(struct table) <= (3 << 20), "ends with PTW_META's head");

#define table ((struct table *)PTW_META_FILES)

/* Where what is mapped in this process begins: a place in the table may be another's by now. */
static uint64_t here[PTW_MAPPINGS];

static bool is_here(uint32_t index) { return here[index] == table->mapping[index].start; }
static void set_here(uint32_t index) { here[index] = table->mapping[index].start; }

static int find(uint64_t address)
{
	uint32_t high = __atomic_load_n(&table->high, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < high; i++)
		if (address - table->mapping[i].start < table->mapping[i].size)
			return (int)i;
	return -1;
}

int ptw_files_protection(uint32_t page)
{
	int index = find(ptw_page_address(page));
	return index < 0 ? PROT_READ : table->mapping[index].protection;
}

static long map_here(uint32_t index, int protection)
{
	const struct ptw_mapping *mapping = &table->mapping[index];
	long result = PTW_SYS(SYS_mmap, mapping->start, mapping->size, protection, mapping->flags | MAP_FIXED,
			      mapping->fd, mapping->offset);
	if (result == (long)mapping->start)
		set_here(index);
	return result;
}

bool ptw_files_admit(uint32_t page, bool write)
{
	int index = find(ptw_page_address(page));
	if (index < 0)
		return false;
	const struct ptw_mapping *mapping = &table->mapping[index];
	if (!(mapping->protection & (write ? PROT_WRITE : PROT_READ)))
		return false;
	return is_here((uint32_t)index) || map_here((uint32_t)index, PROT_NONE) == (long)mapping->start;
}

bool ptw_files_same(uint32_t page, uint32_t next)
{
	int index = find(ptw_page_address(next));
	return index >= 0 && index == find(ptw_page_address(page));
}

void ptw_files_close(void)
{
	for (uint32_t i = 0; i < table->high; i++)
		if (table->mapping[i].size && is_here(i))
			PTW_SYS(SYS_mprotect, table->mapping[i].start, table->mapping[i].size, PROT_NONE, 0, 0, 0);
}

static int claim(uint64_t size)
{
	static bool said;
	int found = -1;
	ptw_lock(&ptw_shared->files_lock);
	for (uint32_t i = 0; i < PTW_MAPPINGS && found < 0; i++)
		if (table->mapping[i].size == 0 && table->mapping[i].fd == 0)
			found = (int)i;
	uint64_t room = size + PTW_PAGE; /* a hole between mappings, as a guard */
	if (found >= 0 && room <= PTW_FILES_SIZE - table->used) {
		table->mapping[found].fd = -1;
		table->mapping[found].start = PTW_FILES + table->used;
		table->used += room;
		if ((uint32_t)found >= table->high)
			__atomic_store_n(&table->high, (uint32_t)found + 1, __ATOMIC_RELEASE);
	} else {
		found = -1;
	}
	ptw_unlock(&ptw_shared->files_lock);
	if (found < 0 && !said) {
		said = true;
		ptw_say("more than 8192 mapped files, or 256 GiB: further ones are not shared between threads");
	}
	return found;
}

long ptw_files_map(uint64_t size, int protection, int flags, int fd, uint64_t offset)
{
	size = (size + PTW_PAGE - 1) & ~(PTW_PAGE - 1);
	int index = claim(size);
	if (index < 0)
		return -ENOMEM;
	struct ptw_mapping *mapping = &table->mapping[index];
	long copy = PTW_SYS(SYS_fcntl, fd, F_DUPFD_CLOEXEC, PTW_DESCRIPTOR_BASE, 0, 0, 0);
	if (copy < 0)
		copy = PTW_SYS(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3, 0, 0, 0);
	if (copy < 0) {
		mapping->fd = 0;
		return copy;
	}
	mapping->fd = (int)copy;
	mapping->protection = protection;
	mapping->flags = flags & ~(MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_ANONYMOUS);
	mapping->offset = offset;
	__atomic_store_n(&mapping->size, size, __ATOMIC_RELEASE);
	long result = map_here((uint32_t)index, ptw_tracking ? PROT_NONE : protection);
	if (result < 0) {
		__atomic_store_n(&mapping->size, 0, __ATOMIC_RELEASE);
		ptw_close((int)copy);
		mapping->fd = 0;
	}
	return result;
}

void ptw_files_unmap(uint64_t start, uint64_t size)
{
	uint64_t end = start + ((size + PTW_PAGE - 1) & ~(PTW_PAGE - 1));
	for (uint32_t i = 0; i < table->high; i++) {
		struct ptw_mapping *mapping = &table->mapping[i];
		if (!mapping->size || mapping->start < start || mapping->start + mapping->size > end)
			continue;
		__atomic_store_n(&mapping->size, 0, __ATOMIC_RELEASE);
		ptw_close(mapping->fd);
		mapping->fd = 0;
	}
	PTW_SYS(SYS_munmap, start, size, 0, 0, 0, 0);
}
