/* SPDX-License-Identifier: MIT */
/* Plain sequences beside each other; compare_api.h says what is guaranteed. */
#include "compare_api.h"
#include "scouts.h"
#include "sync.h"

int ptm_correspond(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, int64_t *ret)
{
	struct sync sync;
	size_t i = 0, j = 0;
	int error = 0;

	sync_init(&sync);
	for (size_t k = 0; k < n_a; k++)
		ret[k] = -1;
	while (i < n_a && j < n_b && error >= 0) {
		size_t at[2] = { 1, 1 };

		if (a[i] == b[j]) {
			ret[i++] = (int64_t)j++;
			continue;
		}
		error = 0;
		for (size_t wanted = FIRST_WINDOW; !error && wanted <= SYNC_WINDOW; wanted *= 8) {
			const size_t most_a = n_a - i, most_b = n_b - j;

			sync_allow(&sync, (int64_t)(i + j));
			/* without enough edits for all there is, nothing found does not mean that there is nothing */
			const bool all = most_a + most_b <= (size_t)sync.edits;
			const struct sync_window left = { a + i, most_a < wanted ? most_a : wanted, all && most_a <= wanted };
			const struct sync_window right = { b + j, most_b < wanted ? most_b : wanted, all && most_b <= wanted };

			error = sync_find(&sync, &left, &right, at);
		}
		i += error ? at[0] : 1;
		j += error ? at[1] : 1;
	}
	sync_deinit(&sync);
	return error < 0 ? error : 0;
}
