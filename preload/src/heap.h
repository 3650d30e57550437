/* SPDX-License-Identifier: MIT */
/*
 * Process mode: the allocator. Small blocks (up to 32 KiB) come from spans of one size class that belong to one slot,
 * so that threads keep off each other's pages; larger ones are runs of units. Free blocks are linked out of band, so
 * freeing touches no page of the program. A block freed by another than its owner goes to the owner's remote list.
 *
 * A slot's heap is its thread's; as long as the program is not in process mode (start-up, or when that failed) one lock
 * is around everything. Not signal-safe, as malloc is not.
 *
 * The untracked heap serves the loader's thread-local storage and stdio's buffers: the C library passes those to the
 * kernel by itself, so they must never be closed.
 */
#ifndef PTW_HEAP_H
#define PTW_HEAP_H

#include "layout.h"
#include "sys.h"

#include <stdbool.h>

/* NULL when there is no room. `fresh` (may be NULL): all bytes are zeros already. */
PTW_HIDDEN void *ptw_heap_take(size_t size, bool *fresh);
PTW_HIDDEN void *ptw_heap_take_aligned(size_t alignment, size_t size);

/* False: it is no block of the heap's. */
PTW_HIDDEN bool ptw_heap_give(void *block);

/* Bytes that may be used; 0 for what is not a block. */
PTW_HIDDEN size_t ptw_heap_size(const void *block);

/* Make the block hold `size` where it lies. */
PTW_HIDDEN bool ptw_heap_resize(void *block, size_t size);

PTW_HIDDEN void *ptw_open_take(size_t size);
PTW_HIDDEN void ptw_open_give(void *block);
PTW_HIDDEN size_t ptw_open_size(const void *block);

/* malloc and its kin are served from here (process mode, and its memory could be made). */
PTW_HIDDEN bool ptw_heap_is_ours(void);

/* While nonzero in a thread, its allocations are untracked. */
extern PTW_HIDDEN __thread uint32_t ptw_untracked_malloc __attribute__((tls_model("initial-exec")));

static inline bool ptw_in_open_heap(uint64_t address) { return address - PTW_OPEN_HEAP < PTW_OPEN_SIZE; }

#endif
