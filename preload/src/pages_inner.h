/* SPDX-License-Identifier: MIT */
/* What the parts of pages.h know of each other: pages.c (opening), page_sets.c (numbers, protection), page_life.c (a
 * process's beginning and end). The same guarantees hold. */
#ifndef PTW_PAGES_INNER_H
#define PTW_PAGES_INNER_H

#include "pages.h"

#include <stdbool.h>

struct ptw_segment;

/* The segment that a page of data lies in; NULL for others. */
PTW_HIDDEN const struct ptw_segment *ptw_page_segment(uint32_t page);

/* Do they lie beside each other, `next` being the number after `page`, in one mapping? */
PTW_HIDDEN bool ptw_page_beside(uint32_t page, uint32_t next);

/* PROT_ bits: what the program may do with it. */
PTW_HIDDEN int ptw_page_allowance(uint32_t page);

PTW_HIDDEN void ptw_protect(uint64_t address, uint64_t size, int protection);

/* It is of this thread's stack, which it cannot be without. */
PTW_HIDDEN bool ptw_page_own_stack(uint32_t page);

/* Opening begins anew: nothing is known of how this thread accesses memory. */
PTW_HIDDEN void ptw_pages_fresh(void);

/* The program has one thread, or has not any more. */
PTW_HIDDEN void ptw_pages_alone(bool alone);

/* There are too many mappings: close everything. */
PTW_HIDDEN void ptw_pages_close_everything(void);

/* Call `visit` for each page that is not closed; it may close the page. Only parts of the table of states that were ever
 * written to are looked at. */
PTW_HIDDEN void ptw_pages_visit(void (*visit)(uint32_t page));

#endif
