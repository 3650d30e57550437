/* SPDX-License-Identifier: MIT */
/* Clocks into chunks; graph_api.h says what is guaranteed. */
#include "graph_api.h"

#include <errno.h>
#include <string.h>

/* Components begin to end - 1 of a row, of which `of` are there, the rest zero. */
static void take(uint32_t *to, const uint32_t *values, size_t of, size_t begin, size_t end)
{
	const size_t there = of < begin ? begin : of < end ? of : end;

	if (there > begin)
		memcpy(to, values + begin, (there - begin) * sizeof(*to));
	memset(to + (there - begin), 0, (end - there) * sizeof(*to));
}

static int64_t pack_row(struct ptm_packing *packing, const uint32_t *values, size_t of, uint32_t *chunks)
{
	const size_t size = (size_t)1 << packing->shift;
	int64_t made = 0;

	for (int32_t i = 0; i < packing->width; i++) {
		uint32_t *chunk = chunks + (size_t)made * size, *last = packing->last + (size_t)i * size;
		const size_t begin = (size_t)i * size;

		take(chunk, values, of, begin, begin + size);
		if (packing->own >= 0 && (size_t)packing->own >= begin && (size_t)packing->own < begin + size)
			chunk[(size_t)packing->own - begin] = 0;
		if (memcmp(chunk, last, size * sizeof(*chunk)) == 0)
			continue;
		if (packing->next == UINT32_MAX)
			return -EOVERFLOW;
		memcpy(last, chunk, size * sizeof(*chunk));
		packing->at[i] = packing->next++;
		made++;
	}
	return made;
}

int64_t ptm_clocks_pack(struct ptm_packing *packing, const int32_t *offsets, const uint32_t *values, size_t n,
			uint32_t *index, uint32_t *chunks)
{
	int64_t made = 0;

	if (packing->width < 0 || packing->shift < 0 || packing->shift > 16)
		return -EINVAL;
	for (size_t row = 0; row < n; row++) {
		int64_t more;

		if (offsets[row] < 0 || offsets[row + 1] < offsets[row])
			return -EINVAL;
		more = pack_row(packing, values + offsets[row], (size_t)(offsets[row + 1] - offsets[row]),
				chunks + ((size_t)made << packing->shift));
		if (more < 0)
			return more;
		made += more;
		memcpy(index + row * (size_t)packing->width, packing->at, (size_t)packing->width * sizeof(*index));
	}
	return made;
}
