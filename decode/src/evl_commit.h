/* SPDX-License-Identifier: MIT */
/* Which bytes a commit changed: the words of its record as runs. */
#ifndef PTW_EVL_COMMIT_H
#define PTW_EVL_COMMIT_H

#include "evl_file.h"

enum { EVL_RUNS_MAX = 2048 }; /* of a page's bytes, no two of which touch */

/* Runs (offset in the page | length << 16) of a commit's record, ascending; their number, or -EINVAL when the record
 * contradicts itself. */
int evl_commit_runs(const struct evl_record *record, uint32_t runs[EVL_RUNS_MAX]);

#endif
