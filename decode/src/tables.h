/* SPDX-License-Identifier: MIT */
/* The dictionaries of a run side by side. */
#ifndef PTD_TABLES_H
#define PTD_TABLES_H

#include "blocks.h"
#include "paths.h"

#include <stdbool.h>

struct ptd_tables {
    struct ptd_blocks blocks;
    struct ptd_paths legs;  /* lists of blocks */
    struct ptd_paths paths; /* lists of legs */
    bool distinct;          /* each leg and path is there once */
};

#endif
