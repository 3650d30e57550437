/* SPDX-License-Identifier: MIT */
/* Commits; see evl_commit.h. */
#include "evl_commit.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { PAGE = 4096, WORDS = PAGE / 64 };

static uint64_t word(const struct evl_record *r, unsigned index)
{
	uint64_t value;
	memcpy(&value, r->stack + index * sizeof value, sizeof value);
	return value;
}

static int listed(const struct evl_record *r, uint32_t *runs)
{
	int64_t count = r->result;
	uint32_t end = 0;
	if (count > EVL_MAX_FRAMES * 2 || (count + 1) / 2 != r->frames)
		return -EINVAL;
	for (int64_t i = 0; i < count; i++) {
		uint32_t run = (uint32_t)(word(r, (unsigned)i / 2) >> (i % 2 * 32)), offset = run & 0xffff, length = run >> 16;
		if (length == 0 || offset + length > PAGE || (i && offset <= end))
			return -EINVAL;
		end = offset + length;
		runs[i] = run;
	}
	return (int)count;
}

static int mapped(const struct evl_record *r, uint32_t *runs)
{
	int count = 0;
	uint32_t begin = 0;
	bool inside = false;
	if (r->frames != WORDS)
		return -EINVAL;
	for (uint32_t byte = 0; byte < PAGE; byte++) {
		bool set = word(r, byte / 64) >> (byte % 64) & 1;
		if (set && !inside)
			begin = byte;
		if (!set && inside)
			runs[count++] = begin | (byte - begin) << 16;
		inside = set;
	}
	if (inside)
		runs[count++] = begin | (PAGE - begin) << 16;
	return count;
}

int evl_commit_runs(const struct evl_record *r, uint32_t runs[EVL_RUNS_MAX])
{
	uint64_t bytes = 0;
	int count = r->result > 0 ? listed(r, runs) : r->result == 0 ? mapped(r, runs) : -EINVAL;
	for (int i = 0; i < count; i++)
		bytes += runs[i] >> 16;
	return count > 0 && bytes == r->argument && r->object % PAGE == 0 ? count : -EINVAL;
}
