/* SPDX-License-Identifier: MIT */
/* Which instruction ran when: packets and flow, side by side. */
#ifndef PTD_PACE_H
#define PTD_PACE_H

#include "columns.h"
#include "timer.h"
#include "walker.h"

/* Blocks without a packet that are remembered, to find where in them a PSB was. */
enum { PTD_PACE_BLOCKS = 32 };

/* A block that was executed, as far as time is concerned. */
struct ptd_pace_block {
    int64_t next; /* ordinal of the block after it */
    uint64_t ip;
    uint64_t end_ip; /* of its last instruction */
    uint32_t instructions;
    uint8_t mode; /* enum pt_exec_mode */
    enum ptd_class last;
};

/* A moment that is not in rows yet: it may be another thread's. */
struct ptd_turn {
    int64_t next; /* as a moment's */
    int32_t before;
    bool arrival; /* it is no moment: there the kernel goes from one thread to the next */
    bool back;    /* it counts though it may be before the one before it */
    uint64_t time;
};

/* Turns between two looks at them; when there are more, the last ones are one, but for an arrival and what is behind. */
enum { PTD_PACE_TURNS = 64 };

/*
 * The time of what has been executed so far. A moment is known where a packet is used: by the branch that ends a
 * block, or by an event between two blocks.
 */
struct ptd_pace {
    struct ptd_timer timer;
    uint64_t now;    /* of the instruction executed last; 0: not known */
    uint64_t latest; /* of any instruction executed so far */
    uint64_t due;    /* moments from then on, and what comes after them, are turns */
    int64_t arrival; /* ordinal of the block that is an arrival no later packet was used since; -1: none */
    uint32_t turn_count;
    struct ptd_turn turns[PTD_PACE_TURNS + 2];
    uint64_t since;  /* instructions since a timing packet, up to the packet used last */
    uint64_t walked; /* instructions since the packet used last */
    int64_t mark;    /* ordinal of the first block after the packet used last, or after a PSB behind that */
    int32_t mark_before; /* so many instructions before that block, as a moment's */
    uint32_t bits;   /* of a TNT, not used yet */
    uint32_t used_ahead; /* packets of events that are still to come */
    uint32_t told_ahead; /* events that came before those of packets before theirs, which wait for a FUP */
    bool held;       /* the timer's packet is not used yet */
    bool adrift;     /* packets and flow do not go together: from the next PSB on they do again */
    uint32_t behind_count;
    struct ptd_pace_block behind[PTD_PACE_BLOCKS]; /* since the packet used last */
    struct ptd_walker *walker; /* of the code being executed */
};

/* The pace of a slice. Returns 0, -EINVAL or -ENOMEM; deinit also takes one whose init failed. */
int ptd_pace_init(struct ptd_pace *pace, const struct ptd_cpu *cpu, const struct ptd_slice *slice);
void ptd_pace_deinit(struct ptd_pace *pace);

/* Decoding begins at the PSB at `offset`, before the block `next`. */
void ptd_pace_sync(struct ptd_pace *pace, struct ptd_rows *rows, uint64_t offset, int64_t next);

/* A block was executed; `walker` knows its code. */
void ptd_pace_block(struct ptd_pace *pace, struct ptd_rows *rows, struct ptd_walker *walker,
                    const struct ptd_pace_block *block);

/*
 * Blocks of `instructions` were executed, up to `next`, that used `bits` of TNTs and nothing else, the last of them by
 * its branch. True when no moment can have come by that; when false nothing was done, and it is to be said block by block.
 */
static inline bool ptd_pace_bits(struct ptd_pace *pace, uint32_t bits, uint32_t instructions, int64_t next)
{
    if (pace->adrift)
        return false;
    while (pace->bits < bits) {
        /* a TNT right behind, at a time that is known already */
        unsigned more = pace->held || pace->timer.at.time > pace->now ? 0 : ptd_timer_tnt(&pace->timer);
        if (!more)
            return false;
        pace->bits += more;
    }
    pace->bits -= bits;
    pace->since += pace->walked + instructions;
    pace->walked = 0;
    pace->mark = next;
    pace->mark_before = 0;
    pace->behind_count = 0;
    return true;
}

/*
 * Execution stands before the block `next`, where it stood at the PSB at `offset`: what that says is known from here on.
 * Else it is found out when the next packet is used.
 */
void ptd_pace_psb(struct ptd_pace *pace, struct ptd_rows *rows, uint64_t offset, int64_t next);

/*
 * The next block, `next`, is where the kernel goes from one thread to the next. It becomes a turn as soon as nothing can
 * be told of what ran before it any more. `guess`: the branch that led there is at the time estimated for it.
 */
void ptd_pace_arrive(struct ptd_pace *pace, struct ptd_rows *rows, int64_t next, bool guess);

/* Nothing more can be told of what ran so far. */
void ptd_pace_settle(struct ptd_pace *pace);

/* Block `ordinal` became two: what comes after it has numbers one higher. */
void ptd_pace_split(struct ptd_pace *pace, int64_t ordinal);

/* The slice's last block was executed, and its next one begins there: PSBs and other packets of time behind it are used. */
void ptd_pace_stop(struct ptd_pace *pace, struct ptd_rows *rows);

/* The slice is over: what is known of time behind it. */
void ptd_pace_end(struct ptd_pace *pace, struct ptd_timing *ret);

/* An event took place before the block `next`. */
void ptd_pace_event(struct ptd_pace *pace, struct ptd_rows *rows, const struct pt_event *event, int64_t next);

#endif
