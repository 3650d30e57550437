/* SPDX-License-Identifier: MIT */
/* The kinds of tracking; pages.h says what they are. Each is asked when pages were opened, and at boundaries. */
#ifndef PTW_ACCESS_H
#define PTW_ACCESS_H

#include "pages.h"

PTW_HIDDEN void ptw_held_opened(uint32_t page, uint32_t count, bool write);
PTW_HIDDEN void ptw_held_boundary(void);

PTW_HIDDEN void ptw_exact_opened(uint32_t page, uint32_t count);
PTW_HIDDEN void ptw_exact_boundary(void);
PTW_HIDDEN void ptw_exact_begin(void);

/* access_log.c: `frame` is where the access was made. */
PTW_HIDDEN void ptw_access_log(uint64_t address, uint32_t pages, bool write, const struct ptw_frame *frame);

/* Pages were closed; 0, 0: all that were open. */
PTW_HIDDEN void ptw_access_log_end(uint64_t address, uint32_t pages);

#endif
