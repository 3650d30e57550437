/* SPDX-License-Identifier: MIT */
/* The two dictionaries of a run side by side. */
#ifndef PTD_TABLES_H
#define PTD_TABLES_H

#include "blocks.h"
#include "paths.h"

struct ptd_tables {
    struct ptd_blocks blocks;
    struct ptd_paths paths;
    /* by what the steps of the path decoder know which of their numbers are these tables' */
    uint32_t generation;
    uint16_t stamp;
};

#endif
