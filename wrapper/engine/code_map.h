/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which code the process runs and where it comes from, so that its packets can be decoded.
 *
 * A mapping is recorded when its first instruction is translated. When executed code goes away or changes, a new
 * epoch begins: every thread's packets then start a new slice (stream.c), which decodes with the code of its epoch.
 *
 * Changed code and --smc-check. Valgrind translates code once and, unless told otherwise, believes that it stays
 * as it was. `--smc-check=all-non-file`, the default on amd64, makes each translation of code that is in no file
 * compare the bytes it was made from, every time it runs, and translates again when they differ. That finds code
 * which a JIT writes, but not a file's code which the program itself patches (text relocations, hooks, breakpoints),
 * nor the code of a shared mapping of a file written through another mapping. So code_map_volatile adds the same
 * comparison for file mappings that are or were writable (what was translated before is thrown away), and for files that cannot be found under their name
 * (memfd, deleted, replaced): their code is kept as anonymous code is (anon_code.c). Files changed on disk under a
 * read-only mapping are believed not to change: compilers and package managers replace files, not write into them.
 */
#ifndef PTSOFT_CODE_MAP_H
#define PTSOFT_CODE_MAP_H

#include "vg_core.h"

/* The epoch the process is in. */
UInt code_map_epoch(void);

/* Executed code changed: begin an epoch. */
UInt code_map_next_epoch(void);

/* [addr, addr + size) is being translated. */
void code_map_translated(Addr addr, SizeT size);

/* True when a translation of code at `addr` must check, each time it runs, that the code is still the same. */
Bool code_map_volatile(Addr addr);

/* Valgrind's address-space events. */
void code_map_new(Addr addr, SizeT size, Bool readable, Bool writable, Bool executable, ULong handle);
void code_map_gone(Addr addr, SizeT size);
void code_map_protected(Addr addr, SizeT size, Bool readable, Bool writable, Bool executable);

/* In a fork child: describe all code that ran in the parent again, in the child's own files. */
void code_map_forked(void);

#endif
