/* SPDX-License-Identifier: MIT */
/* Shared data of executable and libraries; segments.h says what is guaranteed. */
#define _GNU_SOURCE
#include "segments.h"

#include "real.h"
#include "region.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>

enum { TCB_SIZE = 2304 }; /* of struct pthread; what lies behind on its last page comes along */

static uint64_t page_down(uint64_t address) { return address & ~(PTW_PAGE - 1); }
static uint64_t page_up(uint64_t address) { return page_down(address + PTW_PAGE - 1); }

static bool holds(const struct dl_phdr_info *info, uint64_t address)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type == PT_LOAD && address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz)
			return true;
	}
	return false;
}

enum sharing { LEAVE, TRACK, SHARE };

static enum sharing sharing_of(const struct dl_phdr_info *info)
{
	if (holds(info, (uint64_t)GLIBC(_IO_file_doallocate)))
		return SHARE;
	if (holds(info, getauxval(AT_BASE)) || holds(info, (uint64_t)&ptw_segments_init) ||
	    holds(info, getauxval(AT_SYSINFO_EHDR)) || strstr(info->dlpi_name, "/vgpreload"))
		return LEAVE;
	return TRACK;
}

static int track(uint64_t start, uint64_t end)
{
	struct ptw_segments *all = ptw_segment_table;
	if (all->count >= PTW_SEGMENTS || all->used + (end - start) > PTW_DATA_SIZE)
		return -ENOSPC;
	int error = ptw_region_adopt(start, end, PTW_DATA_OFFSET + all->used);
	if (error)
		return error;
	all->segment[all->count] =
		(struct ptw_segment){start, end, PTW_REGION_PAGES + all->used / PTW_PAGE};
	all->used += end - start;
	__atomic_store_n(&all->count, all->count + 1, __ATOMIC_RELEASE);
	return 0;
}

static int share(uint64_t start, uint64_t end)
{
	struct ptw_segments *all = ptw_segment_table;
	if (all->libc_used + (end - start) > PTW_LIBC_SIZE)
		return -ENOSPC;
	uint64_t offset = PTW_LIBC_OFFSET + all->libc_used;
	int error = ptw_region_adopt(start, end, offset);
	for (unsigned i = 0; i < PTW_UNTRACKED; i++) {
		if (all->untracked[i].start)
			continue;
		all->untracked[i].start = start;
		all->untracked[i].end = end;
		all->untracked[i].offset = offset;
		all->libc_used += end - start;
		return error;
	}
	return -ENOSPC;
}

int ptw_segments_remap(void)
{
	const struct ptw_segments *all = ptw_segment_table;
	int error = 0;
	for (uint32_t i = 0; i < all->count && !error; i++)
		error = ptw_region_remap(all->segment[i].start, all->segment[i].end, all->segment[i].page * PTW_PAGE);
	for (unsigned i = 0; i < PTW_UNTRACKED && all->untracked[i].start && !error; i++)
		error = ptw_region_remap(all->untracked[i].start, all->untracked[i].end, all->untracked[i].offset);
	return error;
}

static int share_object(struct dl_phdr_info *info, size_t size, void *data)
{
	enum sharing how = sharing_of(info);
	uint64_t fixed = 0; /* end of what is read-only after relocation */
	int *error = data;
	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type == PT_GNU_RELRO)
			fixed = page_down(info->dlpi_addr + part->p_vaddr + part->p_memsz);
	}
	for (unsigned i = 0; i < info->dlpi_phnum && how != LEAVE && *error == 0; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_W) || (part->p_flags & PF_X))
			continue;
		uint64_t start = page_down(info->dlpi_addr + part->p_vaddr);
		uint64_t end = page_up(info->dlpi_addr + part->p_vaddr + part->p_memsz);
		if (fixed > start && fixed <= end)
			start = fixed;
		if (start < end)
			*error = how == TRACK ? track(start, end) : share(start, end);
	}
	return *error;
}

/* The loader allocated it, thread control block included, before there was an allocator to replace. */
static int share_main_tls(void)
{
	void (*info)(size_t *, size_t *) = (void (*)(size_t *, size_t *))dlsym(RTLD_DEFAULT, "_dl_get_tls_static_info");
	size_t size = 0, align = 0;
	uint64_t block = (uint64_t)pthread_self();
	if (info)
		info(&size, &align);
	uint64_t below = size > TCB_SIZE && size < (1 << 20) ? size - TCB_SIZE : PTW_PAGE;
	uint64_t start = page_down(block), end = page_up(block + TCB_SIZE);
	unsigned char resident;
	while (start > page_down(block - below) && PTW_SYS(SYS_mincore, start - PTW_PAGE, PTW_PAGE, &resident, 0, 0, 0) == 0)
		start -= PTW_PAGE;
	return share(start, end);
}

int ptw_segments_init(void)
{
	int error = 0;
	dl_iterate_phdr(share_object, &error);
	return error ? error : share_main_tls();
}
