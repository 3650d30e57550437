/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Files in the spool folder: opened for a moment each, by name below one folder descriptor, so that the program
 * may chroot, change directory or use up its descriptors. A full disk is a return value, never a SIGBUS: every
 * mapped byte is allocated before it is mapped. So is the program's limit of file size: it is asked before files are
 * written, as the kernel would end the program with SIGXFSZ.
 *
 * All of it runs under Valgrind's big lock and with signals blocked or synchronous only.
 */
#ifndef PTSOFT_OUTPUT_H
#define PTSOFT_OUTPUT_H

#include "vg_core.h"

enum { OUTPUT_NAME = 64 };

/* Use the spool folder: the descriptor `inherited` over an exec if that is one, else the one named `folder`. A
   process that changed its user or root reaches it by descriptor only. False: it cannot be reached; nothing can be
   stored then. */
Bool output_init(const HChar *folder, Int inherited);

/* The next exec keeps the descriptor. Returns it; -1 there is none. */
Int output_pass_on(void);

/* Open a file below the folder: VKI_O_* flags. Returns the descriptor or a negative errno. */
Int output_open(const HChar *name, Int flags);

/* Remove a file below the folder. */
void output_remove(const HChar *name);

/* Make the user the owner of a file below the folder, where that may be done. */
void output_give(const HChar *name, UInt user);

/* Whether the program's limit of file size allows a file of so many bytes. */
Bool output_fits(ULong end);

/* Append `size` bytes behind the first `at` of a file, all or nothing. False: they could not be stored. */
Bool output_append(const HChar *name, ULong at, const void *bytes, SizeT size);

/* Allocate [offset, offset + size) of an open file, so that a mapping of it can be written. */
Bool output_allocate(Int fd, ULong offset, SizeT size);

/* A mapping of a part of a file, shared and writable. */
struct window {
   HChar name[OUTPUT_NAME];
   UChar *base;    /* where windows are mapped; NULL while none is */
   SizeT size;     /* bytes mapped */
   ULong offset;   /* offset of `base` in the file */
};

/* Map [offset, offset + size) of the file (page-aligned; made if need be), over the window mapped before.
   `size` may only differ from the one before when `base` is NULL. False: the old window stays as it was. */
Bool window_map(struct window *window, ULong offset, SizeT size);

/* Unmap; the file keeps its first `keep` bytes. */
void window_close(struct window *window, ULong keep);

/* Unmap without touching the file (it is another process's). */
void window_forget(struct window *window);

#endif
