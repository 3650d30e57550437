/* SPDX-License-Identifier: MIT */
/* Packets libipt does not know, and what stands in for them. */
#ifndef PTD_STAND_INS_H
#define PTD_STAND_INS_H

#include "api.h"

#include <stdbool.h>
#include <stddef.h>

/* What an EXSTOP packet stands for: itself, too. */
struct ptd_stand_in {
    uint64_t offset; /* of the EXSTOP */
    enum ptd_event kind;
    int64_t detail;
    bool timeless; /* perf goes on without looking at the time */
};

/* In the order of their offsets. */
struct ptd_stand_ins {
    size_t count;
    size_t capacity;
    struct ptd_stand_in *rows;
};

/* What the EXSTOP at `offset` stands for, if it is another packet; else NULL. `stand_ins` may be NULL. */
const struct ptd_stand_in *ptd_stood_for(const struct ptd_stand_ins *stand_ins, uint64_t offset);

#endif
