/* SPDX-License-Identifier: MIT */
/* Paths in /proc; proc_path.h says what becomes of them. */
#define _GNU_SOURCE
#include "proc_path.h"

#include "pages.h"

#include <string.h>
#include <sys/uio.h>

static const char *const own[] = {
	"mem",  "maps", "smaps",   "smaps_rollup", "numa_maps", "pagemap", "map_files",	 "clear_refs",
	"exe",  "cmdline", "auxv", "environ",	   "fd",	"fdinfo",  "cwd",	 "root",
	"ns",	"mounts", "mountinfo", "mountstats",
};

/* Is `word` the next component of the path? */
static bool next_is(const char *at, const char *word)
{
	size_t length = strlen(word);
	return strncmp(at, word, length) == 0 && (at[length] == '/' || at[length] == '\0');
}

static bool is_own(const char *at)
{
	for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
		if (next_is(at, own[i]))
			return true;
	return false;
}

/* The number that is the next component, and what follows it; 0 when it is none. */
static uint32_t number(const char *at, const char **rest)
{
	uint64_t value = 0;
	for (; *at >= '0' && *at <= '9' && value < UINT32_MAX; at++)
		value = value * 10 + (uint64_t)(*at - '0');
	*rest = at;
	return *at == '/' || *at == '\0' ? (uint32_t)value : 0;
}

static const char *skip_slashes(const char *at)
{
	while (*at == '/')
		at++;
	return at;
}

static bool is_thread(uint32_t tid)
{
	uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < high; i++)
		if (ptw_shared->slot[i].pid == tid && i != ptw_shared->main_slot &&
		    ptw_shared->slot[i].state != PTW_SLOT_FREE)
			return true;
	return false;
}

static char *put(char *at, const char *end, const char *text)
{
	size_t length = at ? strlen(text) : 0;
	if (!at || (size_t)(end - at) <= length)
		return NULL;
	memcpy(at, text, length + 1);
	return at + length;
}

static char *put_number(char *at, const char *end, uint32_t value)
{
	char digits[12];
	char *first = digits + sizeof digits - 1;
	*first = '\0';
	do
		*--first = (char)('0' + value % 10);
	while (value /= 10);
	return put(at, end, first);
}

/* Ours if it is tracked; else it may be anything. */
static bool in_proc(const char *path)
{
	char start[6];
	uint32_t page = ptw_page_of((uint64_t)path);
	if (page != PTW_PAGE_NONE)
		return ptw_page_states[page] != PTW_CLOSED && strncmp(path, "/proc/", 6) == 0;
	struct iovec here = {start, sizeof start}, there = {(void *)(uintptr_t)path, sizeof start};
	return PTW_SYS(SYS_process_vm_readv, ptw_getpid(), &here, 1, &there, 1, 0) == sizeof start &&
	       memcmp(start, "/proc/", sizeof start) == 0;
}

bool ptw_proc_self(const char *path)
{
	return ptw_process_mode && path && in_proc(path) && strcmp(path, "/proc/self") == 0 && !ptw_is_main();
}

size_t ptw_proc_self_link(char *ret, size_t size)
{
	char text[16];
	size_t length = (size_t)(put_number(text, text + sizeof text, ptw_shared->main_pid) - text);
	if (length > size)
		length = size;
	memcpy(ret, text, length);
	return length;
}

const char *ptw_proc_path_slow(const char *path, char room[PTW_PROC_PATH])
{
	const char *at, *rest, *end = room + PTW_PROC_PATH;
	if (!in_proc(path))
		return path;
	at = skip_slashes(path + 6);
	bool self = next_is(at, "self");
	if (self)
		rest = at + 4;
	else if (number(at, &rest) != ptw_shared->main_pid)
		return path;
	rest = skip_slashes(rest);
	if (next_is(rest, "task")) {
		const char *after = rest;
		uint32_t tid = number(skip_slashes(rest + 4), &after);
		if (tid && is_thread(tid)) {
			char *to = put_number(put(room, end, "/proc/"), end, tid);
			to = put_number(put(to, end, "/task/"), end, tid);
			return put(to, end, after) ? room : path;
		}
	}
	if (!self || ptw_is_main() || is_own(rest))
		return path;
	char *to = put_number(put(room, end, "/proc/"), end, ptw_shared->main_pid);
	if (at[4] == '/')
		to = put(put(to, end, "/"), end, rest);
	return to ? room : path;
}
