/* SPDX-License-Identifier: MIT */
/* Taking mappings over; adopt.h says what is guaranteed. */
#define _GNU_SOURCE
#include "adopt.h"

#include "layout.h"
#include "slots.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* A line of /proc/PID/maps. */
struct mapping {
	uint64_t start, end, offset;
	int protection;
	bool shared;
	char path[512]; /* "" anonymous */
};

static const char *hex(const char *at, uint64_t *ret)
{
	for (*ret = 0;; at++) {
		unsigned digit = *at >= '0' && *at <= '9' ? (unsigned)(*at - '0')
				 : *at >= 'a' && *at <= 'f' ? (unsigned)(*at - 'a') + 10
							    : 16;
		if (digit > 15)
			return at;
		*ret = *ret << 4 | digit;
	}
}

/* "start-end rwxp offset device inode   path" */
static void parse(const char *at, struct mapping *ret)
{
	at = hex(at, &ret->start);
	at = hex(at + (*at == '-'), &ret->end);
	if (strlen(at) < 6)
		return;
	ret->protection = (at[1] == 'r' ? PROT_READ : 0) | (at[2] == 'w' ? PROT_WRITE : 0) | (at[3] == 'x' ? PROT_EXEC : 0);
	ret->shared = at[4] == 's';
	at = hex(at + 6, &ret->offset);
	const char *path = strchr(at, '/');
	ret->path[0] = '\0';
	if (path)
		strncat(ret->path, path, sizeof ret->path - 1);
}

static void put_path(char *ret, uint32_t pid)
{
	char digits[12];
	unsigned count = 0;
	strcpy(ret, "/proc/");
	do
		digits[count++] = (char)('0' + pid % 10);
	while (pid /= 10);
	ret += 6;
	while (count)
		*ret++ = digits[--count];
	strcpy(ret, "/maps");
}

/* The line about `address`, if the process has one. */
static bool look(uint32_t pid, uint64_t address, struct mapping *ret)
{
	char name[40], buffer[4096], line[768];
	size_t used = 0;
	bool found = false;
	long got;
	put_path(name, pid);
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	while (!found && (got = PTW_SYS(SYS_read, fd, buffer, sizeof buffer, 0, 0, 0)) > 0) {
		for (long i = 0; i < got && !found; i++) {
			if (buffer[i] != '\n') {
				if (used < sizeof line - 1)
					line[used++] = buffer[i];
				continue;
			}
			line[used] = '\0';
			used = 0;
			parse(line, ret);
			found = address >= ret->start && address < ret->end;
		}
	}
	ptw_close((int)fd);
	return found;
}

static bool map_file(const struct mapping *mapping)
{
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, mapping->path,
			  (mapping->shared && (mapping->protection & PROT_WRITE) ? O_RDWR : O_RDONLY) | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	long result = PTW_SYS(SYS_mmap, mapping->start, mapping->end - mapping->start, mapping->protection,
			      (mapping->shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED_NOREPLACE, fd, mapping->offset);
	ptw_close((int)fd);
	return result == (long)mapping->start;
}

/* What is in it there may differ from the file: relocated, or written since. */
static void copy(uint32_t pid, const struct mapping *mapping)
{
	struct iovec here = {(void *)mapping->start, mapping->end - mapping->start}, there = here;
	if (!(mapping->protection & PROT_WRITE))
		PTW_SYS(SYS_mprotect, mapping->start, here.iov_len, mapping->protection | PROT_WRITE, 0, 0, 0);
	PTW_SYS(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0);
	if (!(mapping->protection & PROT_WRITE))
		PTW_SYS(SYS_mprotect, mapping->start, here.iov_len, mapping->protection, 0, 0, 0);
}

static bool take(uint32_t pid, const struct mapping *mapping)
{
	bool file = mapping->path[0] == '/';
	if (file && !map_file(mapping))
		return false;
	if (!file && PTW_SYS(SYS_mmap, mapping->start, mapping->end - mapping->start, mapping->protection,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (long)mapping->start)
		return false;
	if (!mapping->shared && !(mapping->protection & PROT_EXEC) && mapping->protection)
		copy(pid, mapping);
	return true;
}

bool ptw_adopt(uint64_t address)
{
	uint32_t high = __atomic_load_n(&ptw_shared->slots_high, __ATOMIC_ACQUIRE);
	if (address < PTW_PAGE || address >= 1ull << 47 || (address >= PTW_REGION && address < PTW_OWN + PTW_OWN_SIZE))
		return false;
	for (uint32_t i = 0; i < high; i++) {
		const struct ptw_slot *slot = &ptw_shared->slot[i];
		struct mapping mapping;
		if (i == ptw_slot_index || __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != PTW_SLOT_RUNNING)
			continue;
		if (look(slot->pid, address, &mapping) && mapping.protection && take(slot->pid, &mapping))
			return true;
	}
	return false;
}
