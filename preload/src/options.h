/* SPDX-License-Identifier: MIT */
/*
 * What the supervisor asks for, by environment:
 *
 *   PTWEAVE_THREADS  native (default), process
 *   PTWEAVE_ACCESS   held (default), exact, off: which accesses of pages are found (process mode)
 *   PTWEAVE_VIEW     shared (default), private: when a thread's writes are seen by others (view.h)
 *
 * Right at any time, also before the C library's own start-up (an allocator is asked that early). Thread-safe.
 */
#ifndef PTW_OPTIONS_H
#define PTW_OPTIONS_H

#include "sys.h"

#include <stdbool.h>

enum ptw_access {
	PTW_ACCESS_HELD = 0,
	PTW_ACCESS_EXACT,
	PTW_ACCESS_OFF,
};

struct ptw_options {
	bool known;
	bool process;
	bool private_view;
	enum ptw_access access;
};

PTW_HIDDEN const struct ptw_options *ptw_options(void);

#endif
