/* SPDX-License-Identifier: MIT */
/*
 * Process mode: memory that is passed through (--shared SYMBOL|ADDRESS|FROM-TO): open to every thread, never tracked,
 * never isolated. Whole pages: what lies beside a symbol on its pages is passed through with it.
 *
 * PTWEAVE_SHARED names it, separated by commas. Symbols are those of the executable and of its libraries, static ones
 * too, and of libraries that are loaded later. What is in no file that is loaded at the start is told once.
 */
#ifndef PTW_PASSED_H
#define PTW_PASSED_H

#include "sys.h"

#include <stdbool.h>

enum { PTW_PASSED_RANGES = 256 };

/* Pages, from their first byte up to the last one's end. */
struct ptw_passed {
	uint32_t count;
	uint32_t zero;
	struct { uint64_t start, end; } range[PTW_PASSED_RANGES];
};

/* In the first process, when the program's data is shared and before anything is closed. */
PTW_HIDDEN void ptw_passed_init(void);

/* Libraries were loaded: symbols of theirs count from now on. */
PTW_HIDDEN void ptw_passed_again(void);

/* Is it passed through? Signal-safe. */
PTW_HIDDEN bool ptw_is_passed(uint64_t address);

#endif
