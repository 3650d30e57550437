/* SPDX-License-Identifier: MIT */
/* Shared data of executable and libraries; segments.h says what is guaranteed. */
#define _GNU_SOURCE
#include "segments.h"

#include "engine.h"
#include "handshake.h"
#include "loader.h"
#include "log.h"
#include "mappings.h"
#include "pages.h"
#include "passed.h"
#include "places.h"
#include "real.h"
#include "region.h"
#include "tag.h"
#include "view.h"
#include "watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

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

/* Data that stays each process's own. */
static struct { uint64_t start, end; } own[8];
static uint32_t owns;

/* 0, or -ENOSPC: what cannot be noted would be shared, and processes would write over each other's. */
static int keep_own(uint64_t start, uint64_t end)
{
	if (owns == sizeof own / sizeof *own)
		return -ENOSPC;
	own[owns].start = start;
	own[owns++].end = end;
	return 0;
}

enum sharing { LEAVE, TRACK, SHARE };

static enum sharing sharing_of(const struct dl_phdr_info *info)
{
	if (holds(info, (uint64_t)GLIBC(_IO_file_doallocate)) || holds(info, getauxval(AT_BASE)))
		return SHARE;
	if (strstr(info->dlpi_name, "/vgpreload") || holds(info, (uint64_t)&ptw_segments_init) ||
	    holds(info, getauxval(AT_SYSINFO_EHDR)))
		return LEAVE;
	return TRACK;
}

/* What is mapped in this process. */
static bool here[PTW_SEGMENTS], untracked_here[PTW_UNTRACKED], code_here[PTW_CODE];

/* What is mapped shared by now. */
static void close_new(uint32_t page, uint32_t count)
{
	if (ptw_private)
		ptw_view_map(page, count);
	else
		ptw_pages_set(page, count, PTW_CLOSED);
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
		(struct ptw_segment){start, end, PTW_REGION_PAGES + all->used / PTW_PAGE, 0, 0};
	all->used += end - start;
	here[all->count] = true;
	__atomic_store_n(&all->count, all->count + 1, __ATOMIC_RELEASE);
	if (ptw_tracking)
		close_new((uint32_t)all->segment[all->count - 1].page, (uint32_t)((end - start) / PTW_PAGE));
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
		untracked_here[i] = true;
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
	const struct ptw_segments *all = ptw_segment_table;
	for (uint32_t i = 0; i < all->libraries; i++)
		if (all->library[i] == base)
			return true;
	return false;
}

static void get_to_know(uint64_t base)
{
	struct ptw_segments *all = ptw_segment_table;
	if (all->libraries < PTW_LIBRARIES)
		all->library[all->libraries++] = base;
}

/* What others map from the file when they need it. */
static void note_file(uint64_t start, uint64_t end, uint64_t offset, int protection, const char *path,
		      struct ptw_probe_place probes)
{
	struct ptw_segments *all = ptw_segment_table;
	for (uint32_t i = 0; i < all->codes; i++)
		if (start >= all->code[i].start && start < all->code[i].end)
			return;
	if (all->codes >= PTW_CODE || strlen(path) >= PTW_PATH)
		return;
	struct ptw_code *code = &all->code[all->codes];
	code->start = start;
	code->end = end;
	code->offset = offset;
	code->protection = (uint32_t)protection;
	code->probes = probes;
	strcpy(code->path, path);
	code_here[all->codes] = true;
	__atomic_store_n(&all->codes, all->codes + 1, __ATOMIC_RELEASE);
}

/* The program's linkage pages: the first, and the end. */
static uint32_t linkage, linkage_end;

bool ptw_segments_linkage(uint32_t page) { return page - linkage < linkage_end - linkage; }

/* Calls that are bound at the first of them: the loader writes to these words whichever thread it is called by. */
static void note_bindings(const struct dl_phdr_info *info, const ElfW(Phdr) *part)
{
	const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(info->dlpi_addr + part->p_vaddr);
	struct ptw_segments *all = ptw_segment_table;
	uint64_t from = 0, calls = 0;
	for (; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_PLTGOT)
			from = entry->d_un.d_ptr;
		if (entry->d_tag == DT_PLTRELSZ)
			calls = entry->d_un.d_val / sizeof(ElfW(Rela));
	}
	uint64_t to = from + (3 + calls) * sizeof(void *);
	for (uint32_t i = 0; from && i < all->count; i++) {
		if (from < all->segment[i].end && to > all->segment[i].start) {
			all->segment[i].bound_from = from;
			all->segment[i].bound_to = to;
		}
	}
	from += 3 * sizeof(void *); /* what only the loader reads */
	if (calls && info->dlpi_name[0] == '\0' && ptw_page_of(from) != PTW_PAGE_NONE) { /* the program */
		linkage = ptw_page_of(from);
		linkage_end = ptw_page_of(to - 1) + 1;
	}
}

static void note_code(const struct dl_phdr_info *info, const ElfW(Phdr) *part)
{
	note_file(page_down(info->dlpi_addr + part->p_vaddr), page_up(info->dlpi_addr + part->p_vaddr + part->p_filesz),
		  page_down(part->p_offset),
		  (part->p_flags & PF_R ? PROT_READ : 0) | (part->p_flags & PF_X ? PROT_EXEC : 0), info->dlpi_name,
		  ptw_probes_place(info->dlpi_addr));
}

static int share_object(struct dl_phdr_info *info, size_t size, void *data)
{
	if (known(info->dlpi_addr) || (ptw_process_mode && !ptw_loader_made(info)))
		return 0;
	get_to_know(info->dlpi_addr);
	enum sharing how = sharing_of(info);
	uint64_t fixed = 0; /* end of what is read-only after relocation */
	int *error = data;
	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum && *error == 0; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (how == LEAVE && part->p_type == PT_LOAD && part->p_flags & PF_W)
			*error = keep_own(page_down(info->dlpi_addr + part->p_vaddr),
					  page_up(info->dlpi_addr + part->p_vaddr + part->p_memsz));
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
	for (unsigned i = 0; i < info->dlpi_phnum && how == TRACK; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			note_bindings(info, &info->dlpi_phdr[i]);
	return *error;
}

/* --- whatever else there is --- */

/* Share [start, end) but for what is our own: the kernel tells neighbours that are alike as one mapping. */
static int share_others(uint64_t start, uint64_t end)
{
	for (uint32_t i = 0; i < owns; i++) {
		if (start >= own[i].end || own[i].start >= end)
			continue;
		int error = start < own[i].start ? share_others(start, own[i].start) : 0;
		if (error || own[i].end >= end)
			return error;
		start = own[i].end;
		i = UINT32_MAX; /* again from the first */
	}
	return share(start, end);
}

/* The loader's own with the main thread's control block, when the program is simulated: what else is mapped then may
 * be the simulator's. */
static bool is_the_loaders(const struct ptw_mapping_line *line)
{
	if ((uint64_t)pthread_self() - line->start < line->end - line->start)
		return true;
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
		if ((uint64_t)map - line->start < line->end - line->start)
			return true;
	return false;
}

static bool is_program_data(const struct ptw_mapping_line *line)
{
	if (line->shared || !(line->protection & PROT_WRITE) || (line->protection & PROT_EXEC) || line->is_stack)
		return false;
	return !ptw_under_engine() || is_the_loaders(line);
}

/* One after the other from the beginning: sharing changes what is listed. */
static int share_rest(void)
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	int error = keep_own(page_down((uint64_t)ptw_live), page_up((uint64_t)ptw_live + 1));
	if (!error && ptw_tags_own()) /* a new thread's process says there that its events are not its creator's */
		error = keep_own(ptw_tags_own(), ptw_tags_own() + PTW_PAGE);
	if (!error)
		error = keep_own(PTW_REGION, PTW_OWN + PTW_OWN_SIZE);
	if (error)
		return error;
	if (!ptw_mappings_init(&all, 0))
		return -ENOENT;
	while (error == 0 && ptw_mappings_next(&all, &line))
		if (is_program_data(&line))
			error = share_others(line.start, line.end);
	ptw_mappings_deinit(&all);
	return error;
}

void ptw_segments_leave(uint64_t start, uint64_t end)
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	if (!ptw_mappings_init(&all, 0))
		return;
	ptw_lock(&ptw_shared->segments_lock);
	while (ptw_mappings_next(&all, &line)) {
		if (line.start < start || line.end > end || !line.protection)
			continue;
		if (line.path[0] == '/' && !(line.protection & PROT_WRITE) && !ptw_probes_own(line.start))
			note_file(line.start, line.end, line.offset, line.protection, line.path,
				  (struct ptw_probe_place){0});
		else if (!line.shared && (line.protection & PROT_WRITE) && !(line.protection & PROT_EXEC))
			share(line.start, line.end);
	}
	ptw_unlock(&ptw_shared->segments_lock);
	ptw_mappings_deinit(&all);
}

void ptw_segments_share_around(const void *address)
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	uint64_t wanted = (uint64_t)address;
	if (!ptw_mappings_init(&all, 0))
		return;
	while (ptw_mappings_next(&all, &line))
		if (wanted >= line.start && wanted < line.end && !line.shared)
			share(line.start, line.end);
	ptw_mappings_deinit(&all);
}

int ptw_segments_init(void)
{
	int error = 0;
	dl_iterate_phdr(share_object, &error);
	return error ? error : share_rest();
}

/* --- what is loaded later --- */

bool ptw_segments_here(uint32_t i) { return here[i]; }

int ptw_segments_load(void)
{
	uint64_t mask;
	int error = 0;
	ptw_block_signals(&mask);
	dl_iterate_phdr(share_object, &error);
	ptw_passed_again();
	ptw_restore_signals(&mask);
	return error;
}

static bool map_code(const struct ptw_code *code)
{
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, code->path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	long result = PTW_SYS(SYS_mmap, code->start, code->end - code->start, code->protection,
			      MAP_PRIVATE | ptw_places_flags(code->start), fd, code->offset);
	ptw_close((int)fd);
	return result == (long)code->start;
}

static bool admit_segment(uint32_t i)
{
	const struct ptw_segment *segment = &ptw_segment_table->segment[i];
	here[i] = ptw_region_remap(segment->start, segment->end, segment->page * PTW_PAGE) == 0;
	if (here[i] && ptw_tracking)
		close_new((uint32_t)segment->page, (uint32_t)((segment->end - segment->start) / PTW_PAGE));
	ptw_watches_admitted();
	return here[i];
}

static bool admit_untracked(unsigned i)
{
	const struct ptw_segments *all = ptw_segment_table;
	untracked_here[i] =
		ptw_region_remap(all->untracked[i].start, all->untracked[i].end, all->untracked[i].offset) == 0;
	return untracked_here[i];
}

static bool admit_code(uint32_t i)
{
	const struct ptw_code *code = &ptw_segment_table->code[i];
	code_here[i] = map_code(code);
	if (code_here[i])
		ptw_probes_mapped(&code->probes, code->start, code->end);
	return code_here[i];
}

bool ptw_segments_admit(uint64_t address)
{
	const struct ptw_segments *all = ptw_segment_table;
	for (uint32_t i = 0; i < __atomic_load_n(&all->count, __ATOMIC_ACQUIRE); i++)
		if (!here[i] && address - all->segment[i].start < all->segment[i].end - all->segment[i].start)
			return admit_segment(i);
	for (unsigned i = 0; i < PTW_UNTRACKED && all->untracked[i].start; i++)
		if (!untracked_here[i] &&
		    address - all->untracked[i].start < all->untracked[i].end - all->untracked[i].start)
			return admit_untracked(i);
	for (uint32_t i = 0; i < __atomic_load_n(&all->codes, __ATOMIC_ACQUIRE); i++)
		if (!code_here[i] && address - all->code[i].start < all->code[i].end - all->code[i].start)
			return admit_code(i);
	return false;
}

void ptw_segments_catch_up(void)
{
	const struct ptw_segments *all = ptw_segment_table;
	uint64_t mask;
	ptw_block_signals(&mask);
	for (uint32_t i = 0; i < all->count; i++)
		if (!here[i])
			admit_segment(i);
	for (unsigned i = 0; i < PTW_UNTRACKED && all->untracked[i].start; i++)
		if (!untracked_here[i])
			admit_untracked(i);
	for (uint32_t i = 0; i < all->codes; i++)
		if (!code_here[i])
			admit_code(i);
	ptw_restore_signals(&mask);
}
