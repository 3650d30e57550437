/* SPDX-License-Identifier: MIT */
/* Counting mappings; crowd.h says what for. */
#define _GNU_SOURCE
#include "crowd.h"

#include "mappings.h"

#include <fcntl.h>

enum { USUAL = 65530, FEW = 1000 };

PTW_CHANGING uint32_t ptw_crowd_most;
uint32_t ptw_crowd_limit = USUAL / 4 * 3;

void ptw_crowd_init(void)
{
	char digits[16];
	uint64_t limit = 0;
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, "/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return;
	long got = PTW_SYS(SYS_read, fd, digits, sizeof digits, 0, 0, 0);
	ptw_close((int)fd);
	for (long i = 0; i < got && digits[i] >= '0' && digits[i] <= '9'; i++)
		limit = limit * 10 + (uint64_t)(digits[i] - '0');
	if (limit > FEW)
		ptw_crowd_limit = (uint32_t)(limit > 1u << 30 ? 1u << 30 : limit) / 4 * 3;
	ptw_crowd_begin();
}

void ptw_crowd_begin(void) { ptw_crowd_most = FEW / 2; }

bool ptw_crowd_count(void)
{
	struct ptw_mappings all;
	struct ptw_mapping_line line;
	uint32_t count = 0;
	if (!ptw_mappings_init(&all, 0))
		return true;
	while (ptw_mappings_next(&all, &line))
		count++;
	ptw_mappings_deinit(&all);
	ptw_crowd_most = count;
	return count > ptw_crowd_limit / 8 * 7; /* else it would be counted again too soon */
}
