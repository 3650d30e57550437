/* SPDX-License-Identifier: MIT */
/* Shared data of executable and libraries; segments.h says what is guaranteed. */
#define _GNU_SOURCE
#include "segments.h"

#include "code_files.h"
#include "early.h"
#include "engine.h"
#include "handshake.h"
#include "loader.h"
#include "log.h"
#include "mappings.h"
#include "notice.h"
#include "pages.h"
#include "passed.h"
#include "real.h"
#include "region.h"
#include "tag.h"
#include "untracked.h"
#include "view.h"
#include "watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

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
		(struct ptw_segment){start, end, PTW_REGION_PAGES + all->used / PTW_PAGE, 0, 0};
	here[all->count] = true;
	__atomic_store_n(&all->count, all->count + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&all->used, all->used + (end - start), __ATOMIC_RELEASE); /* last, as ptw_segments_bytes tells */
	if (ptw_tracking)
		ptw_pages_close_new((uint32_t)all->segment[all->count - 1].page, (uint32_t)((end - start) / PTW_PAGE));
	return 0;
}

int ptw_segments_remap(void)
{
	const struct ptw_segments *all = ptw_segment_table;
	int error = 0;
	for (uint32_t i = 0; i < all->count && !error; i++) {
		here[i] = true;
		error = ptw_region_remap(all->segment[i].start, all->segment[i].end, all->segment[i].page * PTW_PAGE);
	}
	return error ? error : ptw_untracked_remap();
}

/* Mostly they are asked for in the order they came in. */
static bool known(uint64_t base)
{
	static uint32_t last;
	const struct ptw_segments *all = ptw_segment_table;
	for (uint32_t i = 1; i <= all->libraries; i++) {
		uint32_t at = (last + i) % all->libraries;
		if (all->library[at] != base)
			continue;
		last = at;
		return true;
	}
	return false;
}

/* 0, or -ENOSPC: what is not known must not be shared, or it would be shared anew with each library that comes. */
static int get_to_know(uint64_t base)
{
	struct ptw_segments *all = ptw_segment_table;
	if (all->libraries == PTW_LIBRARIES)
		return -ENOSPC;
	all->library[all->libraries++] = base;
	return 0;
}

/* The program's linkage pages: the first, and the end. */
static uint32_t linkage, linkage_end;

bool ptw_segments_linkage(uint32_t page) { return page - linkage < linkage_end - linkage; }

/* Calls that are bound at the first of them: the loader writes to these words whichever thread it is called by. */
struct bindings { uint64_t from, to, calls; };

static struct bindings bindings_of(const struct dl_phdr_info *info)
{
	struct bindings ret = {0, 0, 0};
	const ElfW(Dyn) *entry = NULL;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; entry && entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_PLTGOT)
			ret.from = entry->d_un.d_ptr;
		if (entry->d_tag == DT_PLTRELSZ)
			ret.calls = entry->d_un.d_val / sizeof(ElfW(Rela));
	}
	ret.to = ret.from + (3 + ret.calls) * sizeof(void *);
	return ret;
}

static void note_bindings(const struct dl_phdr_info *info, struct bindings bindings)
{
	struct ptw_segments *all = ptw_segment_table;
	for (uint32_t i = 0; bindings.from && i < all->count; i++) {
		if (bindings.from < all->segment[i].end && bindings.to > all->segment[i].start) {
			all->segment[i].bound_from = bindings.from;
			all->segment[i].bound_to = bindings.to;
		}
	}
	uint64_t from = bindings.from + 3 * sizeof(void *); /* what only the loader reads comes before */
	if (bindings.calls && info->dlpi_name[0] == '\0' && ptw_page_of(from) != PTW_PAGE_NONE) { /* the program */
		linkage = ptw_page_of(from);
		linkage_end = ptw_page_of(bindings.to - 1) + 1;
	}
}

static int note_code(const struct dl_phdr_info *info, const ElfW(Phdr) *part)
{
	return ptw_code_note(ptw_page_down(info->dlpi_addr + part->p_vaddr),
			 ptw_page_up(info->dlpi_addr + part->p_vaddr + part->p_filesz), ptw_page_down(part->p_offset),
			 (part->p_flags & PF_R ? PROT_READ : 0) | (part->p_flags & PF_X ? PROT_EXEC : 0), info->dlpi_name,
			 ptw_probes_place(info->dlpi_addr));
}

static int keep_object_own(const struct dl_phdr_info *info)
{
	int error = 0;
	for (unsigned i = 0; i < info->dlpi_phnum && !error; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type == PT_LOAD && part->p_flags & PF_W)
			error = keep_own(ptw_page_down(info->dlpi_addr + part->p_vaddr),
					 ptw_page_up(info->dlpi_addr + part->p_vaddr + part->p_memsz));
	}
	return error;
}

static int note_object_code(const struct dl_phdr_info *info)
{
	int error = 0;
	for (unsigned i = 0; i < info->dlpi_phnum && !error; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type == PT_LOAD && !(part->p_flags & PF_W))
			error = note_code(info, part);
	}
	return error;
}

static int share_object_data(const struct dl_phdr_info *info, enum sharing how)
{
	struct bindings bindings = bindings_of(info); /* before they are in pages that are closed */
	uint64_t fixed = 0; /* end of what is read-only after relocation */
	int error = 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
			fixed = ptw_page_down(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
	for (unsigned i = 0; i < info->dlpi_phnum && !error; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_W) || (part->p_flags & PF_X))
			continue;
		uint64_t start = ptw_page_down(info->dlpi_addr + part->p_vaddr);
		uint64_t end = ptw_page_up(info->dlpi_addr + part->p_vaddr + part->p_memsz);
		if (fixed > start && fixed <= end) {
			if (ptw_process_mode) /* relocated by this process only */
				error = ptw_untracked_share(start, fixed);
			start = fixed;
		}
		if (!error && start < end)
			error = how == TRACK ? track(start, end) : ptw_untracked_share(start, end);
	}
	if (how == TRACK)
		note_bindings(info, bindings);
	return error;
}

/* One that is too many is not shared; its code can be called all the same. */
static int share_object(struct dl_phdr_info *info, size_t size, void *data)
{
	int *first = data;
	(void)size;
	if (known(info->dlpi_addr) || (ptw_process_mode && !ptw_loader_made(info)))
		return 0;
	enum sharing how = sharing_of(info);
	int full = get_to_know(info->dlpi_addr);
	int error = how == LEAVE ? keep_object_own(info) : note_object_code(info);
	if (!full && !error && how != LEAVE)
		error = share_object_data(info, how);
	if (*first == 0)
		*first = full ? full : error;
	return 0;
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
	return ptw_untracked_share(start, end);
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

/* Of what may be the simulator's, what the program has mapped itself. */
static int share_early(const struct ptw_mapping_line *line)
{
	int error = 0;
	for (uint32_t i = 0; i < ptw_early_count() && !error; i++) {
		struct ptw_early one = ptw_early_at(i);
		uint64_t start = one.start > line->start ? one.start : line->start;
		uint64_t end = one.end < line->end ? one.end : line->end;
		if (start < end)
			error = share_others(start, end);
	}
	return error;
}

/* One after the other from the beginning: sharing changes what is listed. */
static int share_rest(void)
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	int error = keep_own(ptw_page_down((uint64_t)ptw_live), ptw_page_up((uint64_t)ptw_live + 1));
	if (!error && ptw_tags_own()) /* a new thread's process says there that its events are not its creator's */
		error = keep_own(ptw_tags_own(), ptw_tags_own() + PTW_PAGE);
	if (!error)
		error = keep_own(PTW_LOWEST, PTW_HIGHEST);
	if (error)
		return error;
	if (!ptw_mappings_init(&all, 0))
		return -ENOENT;
	while (error == 0 && ptw_mappings_next(&all, &line))
		if (ptw_mappings_is_data(&line))
			error = !ptw_under_engine() || is_the_loaders(&line) ? share_others(line.start, line.end)
									    : share_early(&line);
	ptw_mappings_deinit(&all);
	if (ptw_under_engine() && ptw_early_lost())
		ptw_notice(PTW_NOTICE_LIMIT, NULL, "more than 256 mappings before main: threads do not share all of them");
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
		if (line.path[0] == '/' && !(line.protection & PROT_WRITE)) {
			if (!ptw_probes_own(line.start))
				ptw_untracked_tell(ptw_code_note(line.start, line.end, line.offset, line.protection, line.path,
					       (struct ptw_probe_place){0}));
		} else if (!line.shared && (line.protection & PROT_WRITE) && !(line.protection & PROT_EXEC)) {
			ptw_untracked_tell(ptw_untracked_share(line.start, line.end));
		}
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
			ptw_untracked_tell(ptw_untracked_share(line.start, line.end));
	ptw_mappings_deinit(&all);
}

int ptw_segments_init(void)
{
	int error = 0;
	dl_iterate_phdr(share_object, &error);
	return error ? error : share_rest();
}

/* --- what is loaded later --- */

bool ptw_segments_room(void) { return ptw_segment_table->libraries < PTW_LIBRARIES - PTW_LIBRARIES / 8; }

uint64_t ptw_segments_bytes(void)
{
	const struct ptw_segments *all = ptw_segment_table;
	return __atomic_load_n(&all->used, __ATOMIC_ACQUIRE) + __atomic_load_n(&all->libc_used, __ATOMIC_ACQUIRE);
}

bool ptw_segments_here(uint32_t i) { return here[i]; }

int ptw_segments_load(void)
{
	const uint64_t but_faults = PTW_ALL_BUT_FAULTS; /* libraries' names are in the program's heap */
	uint64_t mask;
	int error = 0;
	PTW_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &but_faults, &mask, sizeof mask, 0, 0);
	dl_iterate_phdr(share_object, &error);
	ptw_passed_again();
	ptw_restore_signals(&mask);
	return error;
}

static bool admit_segment(uint32_t i)
{
	const struct ptw_segment *segment = &ptw_segment_table->segment[i];
	here[i] = ptw_region_remap(segment->start, segment->end, segment->page * PTW_PAGE) == 0;
	if (here[i] && ptw_tracking)
		ptw_pages_close_new((uint32_t)segment->page, (uint32_t)((segment->end - segment->start) / PTW_PAGE));
	ptw_watches_admitted();
	return here[i];
}

bool ptw_segments_admit(uint64_t address)
{
	const struct ptw_segments *all = ptw_segment_table;
	for (uint32_t i = 0; i < __atomic_load_n(&all->count, __ATOMIC_ACQUIRE); i++)
		if (!here[i] && address - all->segment[i].start < all->segment[i].end - all->segment[i].start)
			return admit_segment(i);
	return ptw_untracked_admit(address) || ptw_code_admit(address);
}

void ptw_segments_catch_up(void)
{
	const struct ptw_segments *all = ptw_segment_table;
	uint64_t mask;
	ptw_block_signals(&mask);
	for (uint32_t i = 0; i < __atomic_load_n(&all->count, __ATOMIC_ACQUIRE); i++)
		if (!here[i])
			admit_segment(i);
	ptw_untracked_catch_up();
	ptw_code_catch_up();
	ptw_restore_signals(&mask);
}
