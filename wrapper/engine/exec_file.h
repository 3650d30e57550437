/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Files that a program executes by a name that means another file once the engine runs it, or none at all.
 *
 * /proc/self/exe is the engine's file to the kernel, and /proc/self/fd/N of a descriptor that closes at an exec is gone
 * when the next engine opens it; a file without a name (memfd_create, or one that was deleted) has no other way. Where
 * the file has a name of its own, the exec goes on with that. Else the file goes along, open, under the name that
 * /proc has for its descriptor, which the environment tells to the next engine; it closes it.
 */
#ifndef PTSOFT_EXEC_FILE_H
#define PTSOFT_EXEC_FILE_H

#include "vg_core.h"

enum { EXEC_PATH_MAX = 4096 };

/* What a path is to be replaced with at an exec; False: nothing, it means what it says. */
Bool exec_file_rename(const HChar *path, HChar name[EXEC_PATH_MAX]);

/* The same of a descriptor whose file is executed (execveat, AT_EMPTY_PATH). */
Bool exec_file_of(Int fd, HChar name[EXEC_PATH_MAX]);

/* The descriptor that goes along; negative when there is none. */
Int exec_file_pass_on(void);

/* The exec failed: nothing goes along. */
void exec_file_forget(void);

/* In the new program: close what came along under this descriptor's number (NULL: nothing did). */
void exec_file_arrived(const HChar *descriptor);

#endif
