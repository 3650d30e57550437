/* SPDX-License-Identifier: MIT */
/*
 * Process mode: what one process has mapped from files and nobody writes to, above all code of libraries that a thread
 * loaded. Others map it from the same file when they first need it, and patch it as it is patched there (probe.h).
 *
 * Notes are taken under the lock of loader.h; the others may be called at any time, also in signal handlers.
 */
#ifndef PTW_CODE_FILES_H
#define PTW_CODE_FILES_H

#include "layout.h"
#include "probe.h"
#include "segments.h"

#include <stdbool.h>

enum { PTW_CODE = 4 * PTW_LIBRARIES, PTW_CODE_PATHS = 64 << 20 };

struct ptw_code {
	uint64_t start, end, offset;
	uint32_t protection;
	uint32_t path; /* where among the paths */
	struct ptw_probe_place probes;
};

struct ptw_code_files {
	uint32_t count;
	uint32_t paths; /* bytes of them */
	struct ptw_code code[PTW_CODE];
	char path[PTW_CODE_PATHS];
};
_Static_assert(sizeof(struct ptw_code_files) <= PTW_META_CODE_SIZE, "fits its place");

#define ptw_code_table ((struct ptw_code_files *)PTW_META_CODE)

/* Others may map it. 0, or -ENOSPC: they cannot. */
PTW_HIDDEN int ptw_code_note(uint64_t start, uint64_t end, uint64_t offset, int protection, const char *path,
			     struct ptw_probe_place probes);

/* Nothing is mapped at the address here; map what another has noted there. */
PTW_HIDDEN bool ptw_code_admit(uint64_t address);

/* Map all that others have noted. */
PTW_HIDDEN void ptw_code_catch_up(void);

#endif
