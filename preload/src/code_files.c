/* SPDX-License-Identifier: MIT */
/* Code that others map when they need it; code_files.h says what is guaranteed. */
#define _GNU_SOURCE
#include "code_files.h"

#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

/* What is mapped in this process. */
static bool here[PTW_CODE];

/* Where the path stands; most often it is the last one again. Negative errno: no room. */
static long note_path(const char *path)
{
	struct ptw_code_files *all = ptw_code_table;
	size_t size = strlen(path) + 1;
	if (all->count) {
		uint32_t last = all->code[all->count - 1].path;
		if (strcmp(path, all->path + last) == 0)
			return last;
	}
	if (size > PTW_CODE_PATHS - all->paths)
		return -ENOSPC;
	uint32_t at = all->paths;
	memcpy(all->path + at, path, size);
	all->paths += (uint32_t)size;
	return at;
}

int ptw_code_note(uint64_t start, uint64_t end, uint64_t offset, int protection, const char *path,
		  struct ptw_probe_place probes)
{
	struct ptw_code_files *all = ptw_code_table;
	for (uint32_t i = 0; i < all->count; i++)
		if (start >= all->code[i].start && start < all->code[i].end)
			return 0;
	long at = all->count < PTW_CODE ? note_path(path) : -ENOSPC;
	if (at < 0)
		return (int)at;
	all->code[all->count] =
		(struct ptw_code){start, end, offset, (uint32_t)protection, (uint32_t)at, probes};
	here[all->count] = true;
	__atomic_store_n(&all->count, all->count + 1, __ATOMIC_RELEASE);
	return 0;
}

static bool map_here(const struct ptw_code *code)
{
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, ptw_code_table->path + code->path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	long result = PTW_SYS(SYS_mmap, code->start, code->end - code->start, code->protection,
			      MAP_PRIVATE | ptw_places_flags(code->start), fd, code->offset);
	ptw_close((int)fd);
	return result == (long)code->start;
}

static bool admit(uint32_t i)
{
	const struct ptw_code *code = &ptw_code_table->code[i];
	here[i] = map_here(code);
	if (here[i])
		ptw_probes_mapped(&code->probes, code->start, code->end);
	return here[i];
}

bool ptw_code_admit(uint64_t address)
{
	const struct ptw_code_files *all = ptw_code_table;
	for (uint32_t i = 0; i < __atomic_load_n(&all->count, __ATOMIC_ACQUIRE); i++)
		if (!here[i] && address - all->code[i].start < all->code[i].end - all->code[i].start)
			return admit(i);
	return false;
}

void ptw_code_catch_up(void)
{
	for (uint32_t i = 0; i < __atomic_load_n(&ptw_code_table->count, __ATOMIC_ACQUIRE); i++)
		if (!here[i])
			admit(i);
}
