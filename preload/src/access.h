/* SPDX-License-Identifier: MIT */
/* The kinds of tracking; pages.h says what they are. Each is asked when pages were opened, and at boundaries. */
#ifndef PTW_ACCESS_H
#define PTW_ACCESS_H

#include "pages.h"

PTW_HIDDEN void ptw_held_opened(uint32_t page, uint32_t count, bool write);
PTW_HIDDEN void ptw_held_boundary(void);
PTW_HIDDEN void ptw_held_begin(void);

/* Close pages and say so. The array is sorted. Private view: bytes of a page were committed, so others that hold it must
 * close it. */
PTW_HIDDEN void ptw_held_give_back(uint32_t *pages, uint32_t count);
PTW_HIDDEN void ptw_held_committed(uint32_t page);
/* The page is no private copy any more, but open: this thread may be asked for it again. */
PTW_HIDDEN void ptw_held_ask_again(uint32_t page);
/* Pages were closed because nobody may have them open. */
PTW_HIDDEN void ptw_held_left(uint32_t page, uint32_t count);

PTW_HIDDEN void ptw_exact_opened(uint32_t page, uint32_t count, bool write);
PTW_HIDDEN void ptw_exact_boundary(void);

/* Pages that the thunk which begins is said to access from its begin; around the record that begins it. */
extern PTW_HIDDEN uint32_t ptw_exact_standing; /* linkage pages: every one reads them */
extern PTW_HIDDEN uint32_t ptw_exact_stack;    /* of the stack that the thread is on, where that is tracked */
PTW_HIDDEN void ptw_exact_thunk_ends(void);
PTW_HIDDEN void ptw_exact_thunk_begins(void);
PTW_HIDDEN void ptw_exact_begin(void);
/* After a boundary, pages from `page` on were opened for the thunk that begins: its stack. */
PTW_HIDDEN void ptw_exact_stack_opened(uint32_t page, uint32_t pages);

/* access_log.c: `frame` is where the access was made. */
PTW_HIDDEN void ptw_access_log(uint64_t address, uint32_t pages, bool write, const struct ptw_frame *frame);

/* So many bytes of a page were committed. */
struct ptw_diff;
PTW_HIDDEN void ptw_access_log_commit(uint64_t address, uint32_t version, uint32_t changed,
				      const struct ptw_diff *diff);

/* Pages were closed; 0, 0: all that were open. */
PTW_HIDDEN void ptw_access_log_end(uint64_t address, uint32_t pages);

#endif
