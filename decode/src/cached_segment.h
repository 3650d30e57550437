/* SPDX-License-Identifier: MIT */
/*
 * From packets of a PSB segment to rows, with the cache of steps.
 *
 * The rows are those libipt's block decoder leads to (flow.c): legs are cut where that cuts them, events and moments
 * lie at the same blocks, with the same times and offsets. Whatever is out of the ordinary is not decoded here: the
 * segment is reported as such, and what had become of it is dropped.
 */
#ifndef PTD_CACHED_SEGMENT_H
#define PTD_CACHED_SEGMENT_H

#include "api.h"
#include "cached_buffer.h"
#include "cached_packets.h"
#include "cached_steps.h"
#include "joins.h"
#include "pace.h"
#include "tables.h"

#include <errno.h>

enum ptd_standing {
    PTD_STANDING_OFF,  /* tracing is off */
    PTD_STANDING_ON,   /* at `node` */
    PTD_STANDING_WAITS /* for the target of an indirect branch, a TIP */
};

enum { PTD_MARKS = 128, PTD_NO_ROW = -1 };

/* From which bit on libipt has read the packet that bears a time. */
struct ptd_mark {
    uint64_t bit;
    uint64_t tsc;
};

/* Where execution and packets stand: what a segment hands to the next one, and what is put back when it was bad. */
struct ptd_place {
    enum ptd_standing standing;
    int32_t node;
    uint64_t bits;      /* not used yet, from the top */
    unsigned pending;   /* how many */
    unsigned last_tnt;  /* bits of the last TNT packet */
    uint64_t received;  /* bits, in all */
    uint64_t last_ip;
    uint64_t resume_ip; /* where libipt expects tracing to be turned on again */
    bool fresh;         /* nothing came before */
    bool mode_known, mode_pending, mode_timed;
    uint64_t mode_tsc, mode_offset; /* of a MODE.Exec before a TIP.PGE */
    uint64_t fup_ip, fup_tsc;
    bool fup_timed;
    bool hold_notes;    /* a TIP is about to be used */
    unsigned idle;      /* steps in a row that used no packet */
    bool timed, last_timed; /* time is known; at the last packet used */
    bool after_tsc;         /* a TMA may come: to libipt it belongs to the TSC before it */
    bool time_moved;        /* since the last packet used */
    bool note_due;          /* a TIP was used: its time is noted unless an event comes next */
    bool fup_pending;       /* an asynchronous event has begun */
    bool attention;         /* the next packet of flow has to look at some of these, or at events below */
    bool after_event;       /* nothing was executed since */
    uint64_t time, last_time;
    uint64_t next_mark;     /* a path that ends at this bit or behind it passes a mark */
    /* rows of events whose offset is not known yet: that of the next packet of flow, or of the next but one */
    int64_t event_before, event_last;
    struct ptd_progress progress; /* seq, instructions and branches are those of the joins, see ptd_segment_seq */
    struct ptd_returns returns;
};

/* Hops since the last PSB, how many of them were new, and how many segments more do without. */
struct ptd_hops_use {
    uint32_t taken, learned, rest;
};

struct ptd_segment {
    /* borrowed */
    struct ptd_tables *tables;
    struct ptd_space *space;
    struct ptd_images *images;
    struct ptd_steps *steps;
    struct ptd_slice slice;
    enum ptd_clocks clocks;
    struct ptd_pace pace; /* if they are PTD_CLOCKS_PACED */
    bool skd022; /* a FUP before TIP.PGD may be of the instruction that turned tracing off: libipt knows */
    struct ptd_place place;
    struct ptd_run run;   /* nodes since the last cut, when they are not a whole step */
    struct ptd_mark marks[PTD_MARKS];
    unsigned mark_count;
    struct ptd_hops_use hops;
    struct ptd_buffer buffer;
};

/*
 * Decode from the PSB at `*offset` of the slice, which was arrived at, to the next PSB or the slice's end. Returns 1
 * at a PSB, 0 at the end; -EILSEQ when the segment is out of the ordinary, so that the slice is to be left to libipt;
 * -ENOMEM, -EOVERFLOW.
 */
int ptd_segment_decode(struct ptd_segment *segment, uint64_t *offset);

/* Arrive at the PSB at `*offset`, with its events, and go behind it. Returns 0 or as ptd_segment_decode. */
int ptd_segment_arrive(struct ptd_segment *segment, uint64_t *offset);

/*
 * The packets end; if `known`, where execution stands next is at `ip`: on to there. Returns 0 or as
 * ptd_segment_decode.
 */
int ptd_segment_stop(struct ptd_segment *segment, bool known, uint64_t ip);

/* Offsets of events that were to be those of the next packets become `offset` in the slice. */
void ptd_segment_no_more(struct ptd_segment *segment, uint64_t offset);

/* ---- execution (cached_run.c); 0 or as ptd_segment_decode ---- */

/* Bits used so far. */
static inline uint64_t ptd_segment_used(const struct ptd_segment *segment)
{
    return segment->place.received - segment->place.pending;
}

/* Decisions the run has room for. */
static inline unsigned ptd_segment_room(const struct ptd_segment *segment)
{
    return segment->steps->joins.decisions_limit - segment->run.decisions;
}

/* Blocks before the run. */
static inline int64_t ptd_segment_seq(const struct ptd_segment *segment)
{
    return segment->steps->joins.seq + segment->steps->joins.at->blocks;
}

/* What nodes are called in the tables: a ptd_blocks_of. */
int ptd_segment_blocks(void *segment, const int32_t *nodes, uint32_t count, int32_t *ret);

/* Append a step that is no leg of its own to the run; cut the run when it is full. */
int ptd_segment_append(struct ptd_segment *segment, const struct ptd_step *step);

/* End the run: it is a leg. */
int ptd_segment_cut(struct ptd_segment *segment);

/* What was executed last is the end of a path. */
int ptd_segment_end_path(struct ptd_segment *segment);

/* Execution went on to a leg; the path may be over by that. */
static inline int ptd_segment_take_leg(struct ptd_segment *segment, uint32_t leg)
{
    struct ptd_joins *joins = &segment->steps->joins;
    int32_t path;
    int found = ptd_joins_follow(joins, leg) ? 0 : ptd_joins_turn(joins, segment->tables, leg, &path);
    if (found > 0)
        found = ptd_buffer_flow(&segment->buffer, path);
    if (__builtin_expect(found < 0, 0))
        return found == -E2BIG ? -EILSEQ : found;
    return __builtin_expect(leg & PTD_JOIN_OVER, 0) ? ptd_segment_end_path(segment) : 0;
}

static inline bool ptd_segment_paced(const struct ptd_segment *segment)
{
    return segment->clocks == PTD_CLOCKS_PACED;
}

/* Hold a step that was executed, before it became part of the run, against the packets it used. */
int ptd_segment_pace(struct ptd_segment *segment, const struct ptd_step *step);

/* The same for an event before which nothing waits to become a path. */
int ptd_segment_pace_event(struct ptd_segment *segment, const struct pt_event *event);

/* The same for packets of time behind the last block of a slice that ends at a PSB. */
int ptd_segment_pace_stop(struct ptd_segment *segment);

/* The time libipt knows by now becomes a moment. */
int ptd_segment_note(struct ptd_segment *segment);

/* Pass the marks that lie behind, and note the time. */
int ptd_segment_pass_marks(struct ptd_segment *segment);

/* Go to `ip` without packets; execution stands before it then. */
int ptd_segment_walk_to(struct ptd_segment *segment, uint64_t ip);

/* Go to the first branch that wants a packet, over it, or to `ip` (if `known`): where tracing was turned off. */
int ptd_segment_walk_off(struct ptd_segment *segment, bool known, uint64_t ip);

#endif
