/* SPDX-License-Identifier: MIT */
/* Which instruction ran when: packets and flow, side by side. */
#ifndef PTD_PACE_H
#define PTD_PACE_H

#include "columns.h"
#include "timer.h"

/*
 * The time of what has been executed so far. A moment is known where a packet is used: by the branch that ends a
 * block, or by an event between two blocks.
 */
struct ptd_pace {
    struct ptd_timer timer;
    uint64_t now;    /* of the instruction executed last; 0: not known */
    uint64_t used;   /* time of the packet used last */
    uint64_t since;  /* instructions since a timing packet, up to the packet used last */
    uint64_t walked; /* instructions since the packet used last */
    int64_t mark;    /* ordinal of the first block after the packet used last */
    uint32_t bits;   /* of a TNT, not used yet */
    bool held;       /* the timer's packet is not used yet */
    bool adrift;     /* packets and flow do not go together: from the next PSB on they do again */
    bool said;       /* a moment has been written */
};

/* What a block ended in, as far as time is concerned. */
struct ptd_pace_block {
    int64_t next;      /* ordinal of the block after it */
    uint32_t instructions;
    enum ptd_class last;
    bool kernel;
};

/* Returns 0 or -ENOMEM; deinit also takes one whose init failed. */
int ptd_pace_init(struct ptd_pace *pace, const struct pt_config *config, const struct ptd_cpu *cpu);
void ptd_pace_deinit(struct ptd_pace *pace);

/*
 * Decoding begins at the PSB at `offset`, before the block `next`. `known`: time does not simply go on from a part of
 * the trace that was decoded elsewhere; a PSB in mid-stream is no moment for what runs up to the next packet.
 */
void ptd_pace_sync(struct ptd_pace *pace, struct ptd_rows *rows, uint64_t offset, int64_t next, bool known);

/* A block was executed. */
void ptd_pace_block(struct ptd_pace *pace, struct ptd_rows *rows, const struct ptd_pace_block *block);

/* An event took place before the block `next`. */
void ptd_pace_event(struct ptd_pace *pace, struct ptd_rows *rows, const struct pt_event *event, int64_t next);

#endif
