/* SPDX-License-Identifier: MIT */
/* Folders of compilation: what relative file names in the line tables of DWARF 2 to 4 are relative to. */
#ifndef PTD_UNIT_DIRS_H
#define PTD_UNIT_DIRS_H

#include "api.h"

/* The line table at `line` in .debug_line is of a unit compiled in `folder`, a text in the sections. */
struct ptd_unit_dir {
    uint64_t line;
    const char *folder;
};

struct ptd_unit_dirs {
    struct ptd_unit_dir *entries; /* sorted by line */
    size_t count;
    size_t capacity;
};

/* Read .debug_info's units. Returns 0 or -ENOMEM; malformed units have no folder. deinit in every case. */
int ptd_unit_dirs_init(struct ptd_unit_dirs *dirs, const struct ptd_line_sections *sections);
void ptd_unit_dirs_deinit(struct ptd_unit_dirs *dirs);

/* The folder of the unit whose line table is at `line`; "" when it is not known. */
const char *ptd_unit_dirs_find(const struct ptd_unit_dirs *dirs, uint64_t line);

#endif
