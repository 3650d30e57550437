/* SPDX-License-Identifier: MIT */
/* Numbering small numbers; merge_api.h says what is guaranteed. */
#include "merge_api.h"

#include <errno.h>

int64_t ptm_distinct(const int32_t *keys, size_t n, size_t begin, size_t count, int32_t *place, size_t limit,
		     int64_t *first)
{
	for (size_t i = 0; i < n; i++) {
		if (keys[i] < 0)
			continue;
		if ((size_t)keys[i] >= limit || count > INT32_MAX)
			return -EINVAL;
		if (place[keys[i]] < 0) {
			first[count] = (int64_t)(begin + i);
			place[keys[i]] = (int32_t)count++;
		}
	}
	return (int64_t)count;
}
