/* SPDX-License-Identifier: MIT */
/* Shared data of executable and libraries; segments.h says what is guaranteed. */
#define _GNU_SOURCE
#include "segments.h"

#include "handshake.h"
#include "pages.h"
#include "real.h"
#include "region.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

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

/* Tracked segments that are mapped in this process. */
static bool here[PTW_SEGMENTS];

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
	here[all->count] = true;
	__atomic_store_n(&all->count, all->count + 1, __ATOMIC_RELEASE);
	if (ptw_tracking)
		ptw_pages_set((uint32_t)all->segment[all->count - 1].page, (uint32_t)((end - start) / PTW_PAGE), PTW_CLOSED);
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
	for (uint32_t i = 0; i < all->count && !error; i++) {
		here[i] = true;
		error = ptw_region_remap(all->segment[i].start, all->segment[i].end, all->segment[i].page * PTW_PAGE);
	}
	for (unsigned i = 0; i < PTW_UNTRACKED && all->untracked[i].start && !error; i++)
		error = ptw_region_remap(all->untracked[i].start, all->untracked[i].end, all->untracked[i].offset);
	return error;
}

static bool known(uint64_t base)
{
	struct ptw_segments *all = ptw_segment_table;
	for (uint32_t i = 0; i < all->libraries; i++)
		if (all->library[i] == base)
			return true;
	if (all->libraries < PTW_LIBRARIES)
		all->library[all->libraries++] = base;
	return false;
}

/* What others map from the file when they need it. */
static void note_code(const struct dl_phdr_info *info, const ElfW(Phdr) *part)
{
	struct ptw_segments *all = ptw_segment_table;
	if (all->codes >= PTW_CODE || strlen(info->dlpi_name) >= PTW_PATH)
		return;
	struct ptw_code *code = &all->code[all->codes];
	code->start = page_down(info->dlpi_addr + part->p_vaddr);
	code->end = page_up(info->dlpi_addr + part->p_vaddr + part->p_filesz);
	code->offset = page_down(part->p_offset);
	code->protection = (part->p_flags & PF_R ? PROT_READ : 0) | (part->p_flags & PF_X ? PROT_EXEC : 0);
	strcpy(code->path, info->dlpi_name);
	__atomic_store_n(&all->codes, all->codes + 1, __ATOMIC_RELEASE);
}

static int share_object(struct dl_phdr_info *info, size_t size, void *data)
{
	if (known(info->dlpi_addr))
		return 0;
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
		if (part->p_type != PT_LOAD || (part->p_flags & PF_W && part->p_flags & PF_X))
			continue;
		if (!(part->p_flags & PF_W)) {
			note_code(info, part);
			continue;
		}
		uint64_t start = page_down(info->dlpi_addr + part->p_vaddr);
		uint64_t end = page_up(info->dlpi_addr + part->p_vaddr + part->p_memsz);
		if (fixed > start && fixed <= end) {
			if (ptw_process_mode) /* relocated by this process only */
				*error = share(start, fixed);
			start = fixed;
		}
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

uint32_t ptw_segments_loaded;

bool ptw_segments_here(uint32_t i) { return here[i]; }

void ptw_segments_load(void)
{
	uint64_t mask;
	int error = 0;
	ptw_segments_loaded = 0;
	ptw_block_signals(&mask);
	ptw_lock(&ptw_shared->segments_lock);
	dl_iterate_phdr(share_object, &error);
	ptw_unlock(&ptw_shared->segments_lock);
	ptw_restore_signals(&mask);
	if (error)
		ptw_say("no room to share the data of a library that was loaded: each thread has its own");
}

static bool map_code(const struct ptw_code *code)
{
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, code->path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	long result = PTW_SYS(SYS_mmap, code->start, code->end - code->start, code->protection,
			      MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, code->offset);
	ptw_close((int)fd);
	return result == (long)code->start;
}

bool ptw_segments_admit(uint64_t address)
{
	const struct ptw_segments *all = ptw_segment_table;
	for (uint32_t i = 0; i < __atomic_load_n(&all->count, __ATOMIC_ACQUIRE); i++) {
		const struct ptw_segment *segment = &all->segment[i];
		if (here[i] || address - segment->start >= segment->end - segment->start)
			continue;
		here[i] = ptw_region_remap(segment->start, segment->end, segment->page * PTW_PAGE) == 0;
		if (here[i] && ptw_tracking)
			ptw_pages_set((uint32_t)segment->page, (uint32_t)((segment->end - segment->start) / PTW_PAGE),
				      PTW_CLOSED);
		return here[i];
	}
	for (unsigned i = 0; i < PTW_UNTRACKED && all->untracked[i].start; i++)
		if (address - all->untracked[i].start < all->untracked[i].end - all->untracked[i].start)
			return ptw_region_remap(all->untracked[i].start, all->untracked[i].end, all->untracked[i].offset) == 0;
	for (uint32_t i = 0; i < __atomic_load_n(&all->codes, __ATOMIC_ACQUIRE); i++)
		if (address - all->code[i].start < all->code[i].end - all->code[i].start)
			return map_code(&all->code[i]);
	return false;
}
