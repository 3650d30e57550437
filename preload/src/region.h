/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the memory the threads share. Made once, by the first process, before it has a second thread; children
 * made by the spawn recipe inherit the mappings. Never unmapped.
 */
#ifndef PTW_REGION_H
#define PTW_REGION_H

#include "layout.h"
#include "sys.h"

#include <stdbool.h>

/* Map everything. 0 or negative errno; then nothing is mapped. Idempotent. */
PTW_HIDDEN int ptw_region_init(void);

/* The memfd's descriptor (close-on-exec, among our high ones), or negative errno when the program closed it. */
PTW_HIDDEN int ptw_region_fd(void);

static inline bool ptw_in_region(uint64_t address) { return address - PTW_REGION < PTW_REGION_SIZE; }
static inline bool ptw_in_heap(uint64_t address) { return address - PTW_HEAP < PTW_HEAP_SIZE; }

/* Copy [start, end) into the memfd at `offset` and map it there instead, shared. Signals must be blocked. */
PTW_HIDDEN int ptw_region_adopt(uint64_t start, uint64_t end, uint64_t offset);

/* For a fork child: copy everything that the memfd holds into a new one (its descriptor, or negative errno); then map
 * that one instead, region, alias and shared state; then each range that was adopted. */
PTW_HIDDEN int ptw_region_copy(void);
PTW_HIDDEN int ptw_region_replace(int fd);
PTW_HIDDEN int ptw_region_remap(uint64_t start, uint64_t end, uint64_t offset);

#endif
