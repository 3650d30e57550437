/* SPDX-License-Identifier: MIT */
/* Instruction by instruction through straight code, with libipt's own instruction decoder. */
#ifndef PTD_WALKER_H
#define PTD_WALKER_H

#include "api.h"

#include <intel-pt.h>

struct ptd_walker;

/* What a walk found. */
struct ptd_walk {
    uint32_t instructions;
    uint64_t last_ip;
    uint64_t end;         /* address after the last instruction */
    enum ptd_class last;  /* class of the last instruction */
    uint32_t inner;       /* branches before the last instruction: 0 in straight code */
};

/* A walker over the code of `image`, which it borrows. NULL: out of memory. */
struct ptd_walker *ptd_walker_create(struct pt_image *image);
void ptd_walker_destroy(struct ptd_walker *walker);

/*
 * Walk at most `instructions` instructions from `ip`, up to the first branch; their lengths go to `lengths` unless
 * it is NULL. Returns 0 or libipt's error of the instruction that could not be decoded; `ret` is filled either way.
 */
int ptd_walker_walk(struct ptd_walker *walker, uint64_t ip, enum pt_exec_mode mode, uint32_t instructions,
                    uint8_t *lengths, struct ptd_walk *ret);

#endif
