/* SPDX-License-Identifier: MIT */
/* Numbering small numbers; merge_api.h says what is guaranteed. */
#include "merge_api.h"

#include <errno.h>

int64_t ptm_distinct(const int32_t *keys, size_t n, int32_t *place, size_t limit, int32_t *which, int64_t *first)
{
	int32_t count = 0;

	if (n > INT32_MAX)
		return -EINVAL;
	for (size_t i = 0; i < limit; i++)
		place[i] = -1;
	for (size_t i = 0; i < n; i++) {
		if (keys[i] < 0) {
			which[i] = -1;
			continue;
		}
		if ((size_t)keys[i] >= limit)
			return -EINVAL;
		if (place[keys[i]] < 0) {
			first[count] = (int64_t)i;
			place[keys[i]] = count++;
		}
		which[i] = place[keys[i]];
	}
	return count;
}
