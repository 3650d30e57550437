/* SPDX-License-Identifier: MIT */
/*
 * The two variables (libgomp's config/linux/mutex.c) have no symbol: they lie beside each other in its data, with the
 * values 128 and 129, and its code reads and writes each many times, which no other pair of words is like.
 */
#define _GNU_SOURCE
#include "openmp.h"

#include "fitness.h"
#include "options.h"
#include "touch.h"
#include "unwind.h"

#include <linux/futex.h>
#include <string.h>

enum {
	LIKELY = 8,  /* places in the code that name one of them, at least; there are 27 and 30 */
	REFERENCE = 6, /* bytes of `mov variable(%rip), %esi`, or of the other direction */
};

struct found {
	uint32_t *operations; /* wait, wake */
	unsigned candidates;
};

/* How often code loads %esi from an address, or stores it there. */
static unsigned references(const uint8_t *code, size_t size, const void *to)
{
	unsigned count = 0;
	for (size_t i = 0; i + REFERENCE <= size; i++) {
		int32_t distance;
		if ((code[i] != 0x8b && code[i] != 0x89) || code[i + 1] != 0x35)
			continue;
		memcpy(&distance, code + i + 2, sizeof distance);
		count += code + i + REFERENCE + distance == (const uint8_t *)to;
	}
	return count;
}

static bool is_named(const struct dl_phdr_info *info, const uint32_t *operations)
{
	unsigned wait = 0, wake = 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		const uint8_t *code = (const uint8_t *)(info->dlpi_addr + part->p_vaddr);
		if (part->p_type != PT_LOAD || (part->p_flags & (PF_X | PF_R)) != (PF_X | PF_R))
			continue;
		wait += references(code, part->p_filesz, operations);
		wake += references(code, part->p_filesz, operations + 1);
	}
	return wait >= LIKELY && wake >= LIKELY;
}

static void search(const struct dl_phdr_info *info, uint32_t *word, size_t count, struct found *found)
{
	for (size_t i = 0; i + 1 < count; i++) {
		if (word[i] != (FUTEX_WAIT | FUTEX_PRIVATE_FLAG) || word[i + 1] != (FUTEX_WAKE | FUTEX_PRIVATE_FLAG) ||
		    !is_named(info, word + i))
			continue;
		found->operations = word + i;
		found->candidates++;
	}
}

static void search_data(const struct dl_phdr_info *info, struct found *found)
{
	struct ptw_frame here = PTW_CALLER;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + part->p_vaddr, first = (start + 3) & ~3ull;
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_W) || part->p_filesz < 8)
			continue;
		if (ptw_tracking)
			ptw_touch((void *)start, part->p_filesz, false, &here);
		search(info, (uint32_t *)first, (start + part->p_filesz - first) / 4, found);
	}
}

static bool is_llvms(const char *path) { return ptw_is_called(path, "libomp") || ptw_is_called(path, "libiomp5"); }

bool ptw_is_openmp(const char *path) { return ptw_is_called(path, "libgomp") || is_llvms(path); }

bool ptw_openmp_share(const struct dl_phdr_info *info)
{
	struct found found = {0};
	struct ptw_frame here = PTW_CALLER;
	if (ptw_options()->private_view || !ptw_is_openmp(info->dlpi_name))
		return false;
	if (is_llvms(info->dlpi_name))
		return true;
	search_data(info, &found);
	if (found.candidates != 1)
		return false;
	if (ptw_tracking)
		ptw_touch(found.operations, 2 * sizeof *found.operations, true, &here);
	found.operations[0] = FUTEX_WAIT;
	found.operations[1] = FUTEX_WAKE;
	return true;
}

struct late {
	const struct link_map *map;
	bool shared;
};

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
	struct late *late = data;
	(void)size;
	if (info->dlpi_addr != late->map->l_addr || strcmp(info->dlpi_name, late->map->l_name) != 0)
		return 0;
	late->shared = ptw_openmp_share(info);
	return 1;
}

bool ptw_openmp_share_late(const struct link_map *map)
{
	struct late late = {map, false};
	dl_iterate_phdr(look, &late);
	return late.shared;
}
