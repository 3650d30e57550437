/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Copies of executed files that may be gone before anyone else can look: programs compile, run and delete. */
#ifndef PTSOFT_FILE_COPY_H
#define PTSOFT_FILE_COPY_H

#include "vg_core.h"

/* Copy the file into the spool folder, once a run, unless it lies where software is installed. */
void file_copy_keep(const HChar *path, const struct vg_stat *stat, ULong mtime_ns);

#endif
