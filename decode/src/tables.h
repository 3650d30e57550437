/* SPDX-License-Identifier: MIT */
/* The two dictionaries of a run side by side. */
#ifndef PTD_TABLES_H
#define PTD_TABLES_H

#include "blocks.h"
#include "paths.h"

struct ptd_tables {
    struct ptd_blocks blocks;
    struct ptd_paths paths;
};

#endif
