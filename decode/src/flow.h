/* SPDX-License-Identifier: MIT */
/* The decoder over libipt's blocks: what its parts, a concept a file, have in common. See flow.c. */
#ifndef PTD_FLOW_H
#define PTD_FLOW_H

#include "columns.h"
#include "handover.h"
#include "joins.h"
#include "pace.h"
#include "tables.h"
#include "trail.h"

#include <intel-pt.h>
#include <stdbool.h>

/*
 * Blocks in a row that need no packet before we say the code runs in circles. Straight recursion can use up an 8 MiB
 * stack in a million calls; nothing real needs more.
 */
enum { PTD_FLOW_BLOCKS_WITHOUT_PACKET = 1 << 22 };

enum ptd_flow_state {
    PTD_FLOW_SYNCHRONISING, /* looking for the next PSB */
    PTD_FLOW_RUNNING,
    PTD_FLOW_STOPPING, /* no packet is left: on to the address at which the next slice begins */
    PTD_FLOW_DONE
};

/* A gap that is open: where it began is known, where it ends is not. */
struct ptd_open_gap {
    bool open;
    struct ptd_gap_row row;
};

struct ptd_decoder {
    struct pt_block_decoder *libipt;
    struct ptd_tables *tables;
    struct ptd_space *space;  /* what runs, in use */
    struct ptd_space *timed;  /* what ran when the last block was held against packets, in use; NULL: none was yet */
    uint32_t round;           /* whose isids the trail has */
    struct ptd_slice slice;
    struct ptd_progress progress;
    enum ptd_flow_state state;
    int status;               /* of libipt, between two turns */
    uint64_t sync;            /* offset of the PSB libipt was last synchronised at */
    uint64_t psb_taken;       /* a PSB before this offset is behind us: its events were taken */
    uint64_t behind;          /* offset up to which packets were read when the last path or event was complete */
    uint64_t before;          /* where that was the time before: what lies between may be an event not yet due */
    uint64_t boundary;        /* the same, where a packet is known to begin */
    uint64_t ahead;           /* offset of a PSB read while failing, 0 none: decoding can go on there */
    bool used;                /* blocks came after the packets up to `behind` */
    uint32_t without_packet;  /* blocks since the last one that used a packet */
    uint32_t sure;            /* blocks of the run up to and with the last one that used a packet */
    bool of_host;             /* perf's recording: what code there is is the host's */
    bool guest;               /* a virtual machine ran (VMX non-root operation): addresses are of its code */
    bool overflowed;          /* the last event was an overflow: what comes after is not known to be the same */
    struct pt_block held;     /* the beginning of a block of which more may come; no instructions: there is none */
    uint64_t held_end;        /* the address after it */
    int32_t last;             /* the block appended last */
    struct ptd_open_gap gap;
    struct ptd_rows *rows; /* being filled by this step */
    bool paced;
    struct ptd_pace pace;
    struct ptd_handover handover; /* which switch is in force */
    uint64_t entered; /* the switch whose thread and space the rows and the code are of, from 1; 0: none yet */
    bool led;         /* a branch leads to the next block, or tracing began there */
    size_t stood;    /* stand-ins that are behind us */
    struct ptd_trail trail; /* where the run is in it */
    struct ptd_run run;
    struct ptd_joins joins;
};

/* ---- flow.c: where we are ---- */

/* How far libipt has read. */
uint64_t ptd_flow_offset(const struct ptd_decoder *decoder);

/* Everything read so far has become rows. */
void ptd_flow_settle(struct ptd_decoder *decoder);

/* Take over the time libipt knows by now. */
void ptd_flow_note_time(struct ptd_decoder *decoder, struct ptd_rows *rows);

/* All packets are used up. */
void ptd_flow_end(struct ptd_decoder *decoder, struct ptd_rows *rows);

/* ---- flow_run.c: blocks become runs, legs and rows ---- */

/*
 * Add a block libipt decoded; `whole`: an event or an error ends it. libipt ends blocks also where entries of its
 * block cache end, and what is in there depends on what was decoded before: a block that nothing ends is held until
 * the rest of it is there. Returns 1 when the run is to be cut after it, 0 or negative errno.
 */
int ptd_flow_take_block(struct ptd_decoder *decoder, struct ptd_rows *rows, struct pt_block *block, bool whole);

/* End the run: it is a leg. Returns 0 or negative errno. */
int ptd_flow_cut(struct ptd_decoder *decoder, struct ptd_rows *rows);

/* Nothing that comes next is of the same path. Returns 0 or negative errno. */
int ptd_flow_close_run(struct ptd_decoder *decoder, struct ptd_rows *rows);

/* Drop the blocks after the last one that used a packet. */
void ptd_flow_forget_tail(struct ptd_decoder *decoder);

/* Instruction lengths of a block from its beginning on; how many are known. */
uint32_t ptd_flow_lengths_of(const struct ptd_decoder *decoder, const struct pt_block *block, uint8_t *lengths);

/* The address after a block. */
uint64_t ptd_flow_end_of(const struct ptd_decoder *decoder, int32_t block);

/* ---- flow_events.c: events ---- */

/* Take pending events while there is room for their rows. Returns libipt's status; errors of our own are in *error. */
int ptd_flow_take_events(struct ptd_decoder *decoder, struct ptd_rows *rows, int status, int *error);

/*
 * libipt 2.0 looks for a far transfer when a TIP.PGD without an IP turns tracing off. Processors write that packet
 * after any branch out of what is traced: take the event where we are. True when there was such an event.
 */
bool ptd_flow_disabled_by_branch(struct ptd_decoder *decoder, struct ptd_rows *rows, int *status, int *error);

/* Give libipt the code that runs now: the space's, none of it in a virtual machine. Returns 0, -EINVAL or -ENOMEM. */
int ptd_flow_use_code(struct ptd_decoder *decoder);

/* What runs from here on is in that space. Returns 0 or negative errno. */
int ptd_flow_enter(struct ptd_decoder *decoder, struct ptd_space *space);

/* ---- flow_turns.c: switches to other threads ---- */

/*
 * Carry out the switches whose time has come. The run ends at the instruction that is the first of that time, which
 * may be in the middle of it, or of a block. Returns 0 or negative errno.
 */
int ptd_flow_follow(struct ptd_decoder *decoder, struct ptd_rows *rows);

/* Whether switches are made where the kernel makes them: else none of the following has to be called. */
static inline bool ptd_flow_by_place(const struct ptd_decoder *decoder)
{
    return decoder->paced && ptd_handover_by_place(&decoder->slice);
}

/* A block is about to be appended to the run: it may be where the kernel goes from one thread to the next. */
void ptd_flow_come_to(struct ptd_decoder *decoder, uint64_t ip);

/* A block of that class was appended, and held against packets. */
void ptd_flow_leave(struct ptd_decoder *decoder, enum ptd_class last);

/* An event was taken: execution may have gone elsewhere. Returns 0 or negative errno. */
int ptd_flow_handover_event(struct ptd_decoder *decoder, struct ptd_rows *rows, const struct pt_event *event);

/* All that ran so far is appended. Returns 0 or negative errno. */
int ptd_flow_settle_turns(struct ptd_decoder *decoder, struct ptd_rows *rows);

/* From `ip` on it is not known what ran; the run is closed. Returns 0 or negative errno. */
int ptd_flow_lose_turns(struct ptd_decoder *decoder, struct ptd_rows *rows, uint64_t ip);

/* ---- flow_gaps.c: what was not decoded ---- */

/* A gap begins at `offset` in the slice, at the code at `ip` if not 0; the next PSB is to be looked for. */
void ptd_flow_open_gap(struct ptd_decoder *decoder, enum ptd_gap kind, int32_t reason, uint64_t offset, uint64_t ip);

/* Close the open gap, if any, at `offset` in the slice. */
void ptd_flow_close_gap(struct ptd_decoder *decoder, struct ptd_rows *rows, uint64_t offset);

/* The slice is over, but for a packet cut short at its end, of which libipt says nothing. */
void ptd_flow_finish(struct ptd_decoder *decoder, struct ptd_rows *rows);

/* A gap of no bytes at the end of the slice: its packets and the PSB+ behind it contradict each other. */
void ptd_flow_contradiction(struct ptd_decoder *decoder, struct ptd_rows *rows, enum ptd_reason reason);

/* Whether there is nothing but padding. */
bool ptd_flow_all_padding(const uint8_t *packets, uint64_t size);

/* ---- flow_sync.c: where decoding begins, and goes on after an error ---- */

/* Go to the next PSB; the open gap ends there. */
void ptd_flow_synchronise(struct ptd_decoder *decoder, struct ptd_rows *rows);

/* Decoding failed at `ip`: what comes up to the next PSB is a gap. */
void ptd_flow_fail(struct ptd_decoder *decoder, struct ptd_rows *rows, int reason, uint64_t ip);

/* ---- flow_tail.c: on to where the next slice begins ---- */

/* Go on, without packets, until execution stands where the next slice begins. Returns 0 or negative errno. */
int ptd_flow_stop(struct ptd_decoder *decoder, struct ptd_rows *rows);

/* ---- the way most blocks go ---- */

/* The run ends in a block of a class: true when it is to be cut after it. */
static inline bool ptd_flow_ends_run(struct ptd_decoder *decoder, enum ptd_class last)
{
    struct ptd_run *run = &decoder->run;
    switch (last) {
    case PTD_COND_JUMP:
    case PTD_RETURN:
        decoder->without_packet = 0;
        decoder->sure = run->length;
        return ++run->decisions >= decoder->joins.decisions_limit || run->length == PATH_MAX_BLOCKS;
    case PTD_IND_JUMP:
    case PTD_IND_CALL:
    case PTD_SYSCALL:
    case PTD_FAR:
        decoder->without_packet = 0;
        return true;
    default:
        decoder->without_packet++;
        return run->length == PATH_MAX_BLOCKS;
    }
}

/*
 * Append a block that came in the same place the last time, and that a branch ends; nothing may be held. Returns 1
 * when the run is to be cut after it, 0; -1 when it is another block.
 */
static inline int ptd_flow_append_known(struct ptd_decoder *decoder, const struct pt_block *block)
{
    struct ptd_run *run = &decoder->run;
    struct ptd_trail_node *node = ptd_trail_guess(&decoder->trail, block, run->length);
    if (!node || node->last == PTD_OTHER)
        return -1;
    ptd_trail_follow(&decoder->trail, node);
    decoder->used = true;
    decoder->last = node->block;
    run->blocks[run->length++] = node->block;
    return ptd_flow_ends_run(decoder, (enum ptd_class)node->last);
}

#endif
