/* SPDX-License-Identifier: MIT */
/* Lines of /proc/PID/maps; mappings.h says what is guaranteed. */
#define _GNU_SOURCE
#include "mappings.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

enum { LONGER = 512 };

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
static void parse(const char *at, struct ptw_mapping_line *ret)
{
	*ret = (struct ptw_mapping_line){.path = ""};
	at = hex(at, &ret->start);
	at = hex(at + (*at == '-'), &ret->end);
	if (strlen(at) < 6)
		return;
	ret->protection = (at[1] == 'r' ? PROT_READ : 0) | (at[2] == 'w' ? PROT_WRITE : 0) | (at[3] == 'x' ? PROT_EXEC : 0);
	ret->shared = at[4] == 's';
	at = hex(at + 6, &ret->offset);
	at = strchr(at + (*at == ' '), ' '); /* behind the device */
	if (!at)
		return;
	for (at++; *at >= '0' && *at <= '9'; at++)
		ret->inode = ret->inode * 10 + (uint64_t)(*at - '0');
	const char *path = strchr(at, '/');
	ret->is_stack = strstr(at, "[stack]") != NULL;
	if (path)
		ret->path = path;
}

static void put_path(char *ret, uint32_t pid)
{
	char digits[12];
	unsigned count = 0;
	strcpy(ret, "/proc/self/maps");
	if (pid == 0)
		return;
	do
		digits[count++] = (char)('0' + pid % 10);
	while (pid /= 10);
	ret += 6;
	while (count)
		*ret++ = digits[--count];
	strcpy(ret, "/maps");
}

bool ptw_mappings_init(struct ptw_mappings *mappings, uint32_t pid)
{
	char name[40];
	put_path(name, pid);
	mappings->got = mappings->at = 0;
	mappings->fd = PTW_SYS(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	return mappings->fd >= 0;
}

void ptw_mappings_deinit(struct ptw_mappings *mappings) { ptw_close((int)mappings->fd); }

/* A line that is longer loses a part of its end: no file has such a path. */
static bool fill(struct ptw_mappings *mappings)
{
	mappings->got -= mappings->at;
	memmove(mappings->buffer, mappings->buffer + mappings->at, (size_t)mappings->got);
	mappings->at = 0;
	if (mappings->got == sizeof mappings->buffer)
		mappings->got -= LONGER;
	long done = PTW_SYS(SYS_read, mappings->fd, mappings->buffer + mappings->got,
			    sizeof mappings->buffer - (size_t)mappings->got, 0, 0, 0);
	mappings->got += done > 0 ? done : 0;
	return done > 0;
}

bool ptw_mappings_next(struct ptw_mappings *mappings, struct ptw_mapping_line *ret)
{
	char *line, *end;
	do {
		line = mappings->buffer + mappings->at;
		end = memchr(line, '\n', (size_t)(mappings->got - mappings->at));
		if (!end && !fill(mappings))
			return false;
	} while (!end);
	*end = '\0';
	mappings->at = end + 1 - mappings->buffer;
	parse(line, ret);
	return true;
}
