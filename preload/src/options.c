/* SPDX-License-Identifier: MIT */
/* Options; options.h says what they are. */
#define _GNU_SOURCE
#include "options.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static struct ptw_options options;

/* One variable of the environment, into `ret`; "" when it is not set. */
static void from_list(char **list, const char *name, char *ret, size_t size)
{
	size_t length = strlen(name);
	ret[0] = '\0';
	for (; *list; list++) {
		if (strncmp(*list, name, length) != 0 || (*list)[length] != '=')
			continue;
		size_t used = strnlen(*list + length + 1, size - 1);
		memcpy(ret, *list + length + 1, used);
		ret[used] = '\0';
		return;
	}
}

/* The same from /proc, before the C library knows the environment: strings are matched as they stream by. */
static void from_proc(const char *name, char *ret, size_t size)
{
	char chunk[512];
	size_t length = strlen(name), at = 0, used = 0;
	bool matching = true;
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, "/proc/self/environ", O_RDONLY | O_CLOEXEC, 0, 0, 0), got;
	ret[0] = '\0';
	if (fd < 0)
		return;
	while ((got = PTW_SYS(SYS_read, fd, chunk, sizeof chunk, 0, 0, 0)) > 0) {
		for (long i = 0; i < got; i++) {
			if (chunk[i] == '\0') {
				if (matching && at > length)
					goto done;
				at = used = 0;
				matching = true;
				continue;
			}
			if (at <= length)
				matching = matching && chunk[i] == (at < length ? name[at] : '=');
			else if (matching && used + 1 < size)
				ret[used++] = chunk[i];
			at++;
		}
	}
	used = matching && at > length ? used : 0;
done:
	ret[used] = '\0';
	ptw_close((int)fd);
}

static void variable(const char *name, char *ret, size_t size)
{
	if (environ)
		from_list(environ, name, ret, size);
	else
		from_proc(name, ret, size);
}

const struct ptw_options *ptw_options(void)
{
	if (__builtin_expect(__atomic_load_n(&options.known, __ATOMIC_ACQUIRE), 1))
		return &options;
	char value[16];
	variable("PTWEAVE_THREADS", value, sizeof value);
	options.process = strcmp(value, "process") == 0;
	variable("PTWEAVE_ACCESS", value, sizeof value);
	options.access = strcmp(value, "exact") == 0 ? PTW_ACCESS_EXACT
			 : strcmp(value, "off") == 0 ? PTW_ACCESS_OFF
						     : PTW_ACCESS_HELD;
	variable("PTWEAVE_VIEW", value, sizeof value);
	options.private_view = strcmp(value, "private") == 0;
	__atomic_store_n(&options.known, true, __ATOMIC_RELEASE);
	return &options;
}
