/* SPDX-License-Identifier: MIT */
/* Copies of arguments and environment; arguments.h says what for. */
#define _GNU_SOURCE
#include "arguments.h"

#include "layout.h"

#include <fcntl.h>
#include <linux/prctl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { /* fields of /proc/PID/stat, proc(5) */
	START_CODE = 26, END_CODE, START_STACK,
	START_DATA = 45, END_DATA, START_BRK, ARG_START, ARG_END, ENV_START, ENV_END, FIELDS,
};

static bool read_fields(uint64_t field[FIELDS])
{
	char text[2048];
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, "/proc/self/stat", O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return false;
	long got = PTW_SYS(SYS_read, fd, text, sizeof text - 1, 0, 0, 0);
	ptw_close((int)fd);
	text[got > 0 ? got : 0] = '\0';
	char *at = strrchr(text, ')'); /* the name may have anything before */
	unsigned number = 2;
	for (; at && number + 1 < FIELDS; number++) {
		at = strchr(at, ' ');
		if (!at)
			return false;
		field[number + 1] = strtoull(++at, NULL, 10);
	}
	return at != NULL;
}

void ptw_arguments_keep(void)
{
	uint64_t field[FIELDS];
	if (!read_fields(field) || field[ARG_START] >= field[ARG_END] || field[ENV_START] > field[ENV_END])
		return;
	uint64_t arguments = field[ARG_END] - field[ARG_START], environment = field[ENV_END] - field[ENV_START];
	uint64_t at = PTW_OWN_ARGUMENTS_END - ((arguments + environment + PTW_PAGE - 1) & ~(PTW_PAGE - 1));
	long copy = PTW_SYS(SYS_mmap, at, arguments + environment, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (copy != (long)at)
		return;
	uint64_t start = (uint64_t)copy, middle = start + arguments;
	memcpy((void *)start, (const void *)field[ARG_START], arguments);
	memcpy((void *)middle, (const void *)field[ENV_START], environment);
	struct prctl_mm_map map = {
		.start_code = field[START_CODE], .end_code = field[END_CODE],
		.start_data = field[START_DATA], .end_data = field[END_DATA],
		.start_brk = field[START_BRK], .brk = (uint64_t)PTW_SYS(SYS_brk, 0, 0, 0, 0, 0, 0),
		.start_stack = field[START_STACK],
		.arg_start = start, .arg_end = middle, .env_start = middle, .env_end = middle + environment,
		.exe_fd = (uint32_t)-1,
	};
	if (PTW_SYS(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0, 0) != 0)
		PTW_SYS(SYS_munmap, start, arguments + environment, 0, 0, 0, 0);
}
