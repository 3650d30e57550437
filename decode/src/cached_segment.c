/* SPDX-License-Identifier: MIT */
/*
 * The path decoder's side of packets.
 *
 * libipt reads packets ahead of what it executes, and so does this: bits of TNT packets wait until there are more than
 * a path can use, so that where paths are cut does not depend on how the bits were packed. Times and offsets are kept
 * as libipt would have them: the time is that of the last packet used (a mark says from which bit on), the offset of
 * an event is that of the packet it would be about to read.
 */
#include "cached_segment.h"
#include "events.h"
#include "psb.h"

#include <errno.h>

#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

enum {
    MAX_IDLE = 64,
    MOST_KNOWN = 16, /* of so many hops one may be new */
    HOPS_REST = 32   /* segments without hops, when more were */
};

/* ---- steps ---- */

static inline int take_leg(struct ptd_segment *segment, const struct ptd_step *step)
{
    struct ptd_place *place = &segment->place;
    int error = ptd_segment_take_leg(segment, step->leg);
    if (UNLIKELY(error < 0))
        return error;
    place->after_event = false;
    return UNLIKELY(ptd_segment_used(segment) >= place->next_mark) ? ptd_segment_pass_marks(segment) : 0;
}

/* Whether a step is a whole leg when a leg begins with it. */
static inline bool is_leg(const struct ptd_segment *segment, const struct ptd_step *step)
{
    return step->end == PTD_STEP_BRANCH || step->full ||
           step->used + (step->end == PTD_STEP_RETURN) >= (int)segment->steps->joins.decisions_limit;
}

/* One step with the next `count` bits. Returns 0 or an error. */
static inline int advance(struct ptd_segment *segment, unsigned count, bool flush)
{
    struct ptd_place *place = &segment->place;
    struct ptd_steps *steps = segment->steps;
    struct ptd_step *step =
        ptd_steps_find(steps, &place->returns, place->node, ptd_steps_key(place->bits, count, flush));
    if (UNLIKELY(!step)) {
        int error = ptd_steps_walk(steps, segment->space, &place->returns, place->node, place->bits, count, flush,
                                   &step);
        if (error < 0)
            return error;
    }
    place->bits <<= step->used;
    place->pending -= step->used;
    if (step->pops | step->pushes)
        ptd_steps_returns(steps, step, &place->returns);
    if (step->end == PTD_STEP_AT_NODE) {
        place->node = step->next;
        place->idle = UNLIKELY(!step->used) ? place->idle + 1 : 0;
        if (UNLIKELY(place->idle > MAX_IDLE)) /* it runs in circles */
            return -EILSEQ;
    } else {
        place->standing = PTD_STANDING_WAITS;
        if (UNLIKELY(place->pending > place->last_tnt)) /* libipt has one TNT packet at a time */
            return -EILSEQ;
    }
    if (UNLIKELY(ptd_segment_paced(segment))) {
        int error = ptd_segment_pace(segment, step);
        if (error < 0)
            return error;
    }
    if (UNLIKELY(segment->run.length) || !is_leg(segment, step))
        return ptd_segment_append(segment, step);
    return take_leg(segment, step);
}

/* Use all bits but those that may become part of a longer path. */
static inline int use_bits(struct ptd_segment *segment)
{
    struct ptd_place *place = &segment->place;
    for (unsigned room; place->standing == PTD_STANDING_ON && place->pending > (room = ptd_segment_room(segment));) {
        int error = advance(segment, room, false);
        if (UNLIKELY(error < 0))
            return error;
    }
    return 0;
}

/* Use all bits, and stand where the last one leads. */
static int use_all_bits(struct ptd_segment *segment)
{
    struct ptd_place *place = &segment->place;
    while (place->pending && place->standing == PTD_STANDING_ON) {
        unsigned room = ptd_segment_room(segment);
        int error = advance(segment, place->pending < room ? place->pending : room, false);
        if (error < 0)
            return error;
    }
    return place->standing == PTD_STANDING_WAITS ? -EILSEQ : 0;
}

/* ---- events ---- */

/* A packet at `offset` that libipt stops at when it reads ahead. */
static void relevant(struct ptd_segment *segment, uint64_t offset, bool event)
{
    struct ptd_place *place = &segment->place;
    struct ptd_event_row *rows = segment->buffer.events;
    if (place->event_before != PTD_NO_ROW)
        rows[place->event_before].offset = segment->slice.offset + offset;
    place->event_before = PTD_NO_ROW;
    if (event) {
        place->event_before = place->event_last;
    } else if (place->event_last != PTD_NO_ROW) {
        rows[place->event_last].offset = segment->slice.offset + offset;
    }
    place->event_last = PTD_NO_ROW;
}

void ptd_segment_no_more(struct ptd_segment *segment, uint64_t offset)
{
    relevant(segment, offset, false);
}

/* All packets before an event are used; it is libipt's last packet read. */
static int meet(struct ptd_segment *segment)
{
    struct ptd_place *place = &segment->place;
    if (place->standing == PTD_STANDING_WAITS || segment->mark_count == PTD_MARKS)
        return -EILSEQ;
    bool tip_before = !place->pending && !place->after_event && !segment->run.length;
    if (place->pending && place->timed) {
        segment->marks[segment->mark_count++] = (struct ptd_mark){.bit = place->received, .tsc = place->time};
        place->next_mark = 0; /* a path that ends with the last bit has the event's time */
    }
    int error = use_all_bits(segment);
    if (error < 0)
        return error;
    segment->mark_count = 0;
    place->last_time = place->time;
    place->last_timed = place->timed;
    place->time_moved = false;
    return tip_before ? ptd_segment_note(segment) : 0; /* the path before ended after the event was read */
}

/* The run ends at an event. Of events in a row only the first is a new moment to libipt. */
static int close_run(struct ptd_segment *segment)
{
    if (segment->place.after_event)
        return 0;
    int error = ptd_segment_cut(segment);
    if (error == 0)
        error = ptd_segment_end_path(segment);
    return error < 0 ? error : ptd_segment_note(segment);
}

/* Write an event's row; it was fetched at `offset`. */
static int add_event(struct ptd_segment *segment, const struct pt_event *event, bool timed, uint64_t tsc,
                     uint64_t offset)
{
    struct ptd_place *place = &segment->place;
    int error = 0;
    relevant(segment, offset, true);
    if (ptd_segment_paced(segment)) {
        error = ptd_segment_pace_event(segment, event);
    } else if (timed && tsc > place->progress.tsc) { /* else what we know was read ahead: it is later */
        place->progress.tsc = tsc;
        error = ptd_buffer_clock(&segment->buffer, ptd_segment_seq(segment), tsc);
    }
    struct ptd_event_row row = ptd_event_row(event);
    row.seq = ptd_segment_seq(segment);
    row.tsc = timed ? tsc : place->progress.tsc;
    if (error == 0)
        error = ptd_buffer_event(&segment->buffer, &row);
    if (error < 0)
        return error == -E2BIG ? -EILSEQ : error;
    place->event_last = (int64_t)segment->buffer.filled.events - 1;
    place->after_event = place->attention = true;
    place->next_mark = 0;
    return 0;
}

static int stand_at(struct ptd_segment *segment, uint64_t ip)
{
    int32_t node = ptd_code_at(&segment->steps->code, ip);
    if (node < 0)
        return node;
    segment->place.node = node;
    segment->place.standing = PTD_STANDING_ON;
    return 0;
}

/* ---- packets ---- */

/* What a TNT or TIP at `offset` finds to be done before it. */
static int attend(struct ptd_segment *segment, uint64_t offset, bool tnt)
{
    struct ptd_place *place = &segment->place;
    if (place->fup_pending || place->mode_pending)
        return -EILSEQ;
    relevant(segment, offset, false);
    if (place->note_due) {
        int error = ptd_segment_note(segment);
        if (error < 0)
            return error;
    }
    if (tnt && place->time_moved && place->timed) {
        if (segment->mark_count >= PTD_MARKS - 1)
            return -EILSEQ;
        uint64_t bit = place->received + 1;
        segment->marks[segment->mark_count++] = (struct ptd_mark){.bit = bit, .tsc = place->time};
        place->next_mark = place->next_mark < bit ? place->next_mark : bit;
        place->time_moved = false;
    }
    place->attention = false;
    return 0;
}

static inline int take_tnt(struct ptd_segment *segment, uint64_t offset, uint64_t bits, unsigned count)
{
    struct ptd_place *place = &segment->place;
    if (UNLIKELY(place->attention)) {
        int error = attend(segment, offset, true);
        if (error < 0)
            return error;
    }
    if (UNLIKELY(place->standing != PTD_STANDING_ON) &&
        (place->standing == PTD_STANDING_OFF || place->pending)) /* libipt has one TNT packet at a time */
        return -EILSEQ;
    place->bits |= bits << (64 - place->pending - count);
    place->pending += count;
    place->received += count;
    place->last_tnt = count;
    return use_bits(segment);
}

/* A TIP was used. */
static inline void use_tip(struct ptd_segment *segment)
{
    struct ptd_place *place = &segment->place;
    place->hold_notes = false;
    if (UNLIKELY(place->timed)) {
        place->last_time = place->time;
        place->last_timed = true;
        place->time_moved = false;
        segment->mark_count = 0;
        place->next_mark = UINT64_MAX;
        if (place->time != place->progress.tsc) {
            place->note_due = place->attention = !segment->run.length;
            place->next_mark = segment->run.length ? 0 : UINT64_MAX;
        }
    }
}

/* The TIP that an indirect branch, or a return without a bit, was waiting for. */
static int take_tip(struct ptd_segment *segment, uint64_t offset, uint64_t ip)
{
    struct ptd_place *place = &segment->place;
    if (UNLIKELY(place->attention)) {
        int error = attend(segment, offset, false);
        if (error < 0)
            return error;
    }
    if (place->standing == PTD_STANDING_OFF)
        return -EILSEQ;
    while (place->standing == PTD_STANDING_ON) {
        unsigned room = ptd_segment_room(segment);
        place->hold_notes = place->pending < room;
        int error = place->pending < room ? advance(segment, place->pending, true) : advance(segment, room, false);
        if (UNLIKELY(error < 0))
            return error;
    }
    use_tip(segment);
    int error = stand_at(segment, ip);
    return error < 0 ? error : use_bits(segment);
}

/* ---- hops ---- */

static inline uint64_t hop_key(const struct ptd_place *place, const struct ptd_hop_packets *packets)
{
    return packets->bytes | (uint64_t)ptd_steps_key(place->bits, place->pending, false) << 8 * PTD_HOP_BYTES;
}

/*
 * Make a hop of packets that are there. Returns the step to the branch; NULL: it was not walked yet, or the packets are
 * more, or less, than it needs.
 */
static struct ptd_step *learn_hop(struct ptd_segment *segment, const uint8_t *at, const uint8_t *end,
                                  const struct ptd_hop_packets *packets, struct ptd_hop *hop)
{
    const struct ptd_place *place = &segment->place;
    struct ptd_steps *steps = segment->steps;
    uint64_t bits = place->bits, more, ip = place->last_ip;
    unsigned count = place->pending, added;
    bool known;
    if (packets->tnt && ptd_packet_tnt(at, end, &more, &added)) {
        count += added;
        bits |= more << (64 - count);
    }
    if (count >= ptd_segment_room(segment))
        return NULL;
    struct ptd_step *step =
        ptd_steps_find(steps, &place->returns, place->node, ptd_steps_key(bits, count, true));
    if (!step || step->end != PTD_STEP_BRANCH || step->used != count)
        return NULL;
    ptd_packet_ip(at + packets->tnt, end, &ip, &known);
    int32_t next = ptd_code_at(&steps->code, ip);
    if (next < 0)
        return NULL;
    *hop = (struct ptd_hop){.packets = hop_key(place, packets), .ip = ip, .node = place->node, .next = next,
                            .step = (uint32_t)(step - steps->table), .bits = (uint8_t)count};
    segment->hops.learned++;
    return step;
}

/* Whether to look for hops up to the next PSB: where many were new the last time it costs more than it saves. */
static bool begin_hops(struct ptd_segment *segment)
{
    struct ptd_hops_use *hops = &segment->hops;
    if (MOST_KNOWN * (uint64_t)hops->learned > hops->taken)
        hops->rest = HOPS_REST;
    else if (hops->rest)
        hops->rest--;
    hops->learned = hops->taken = 0;
    return !hops->rest && !ptd_segment_paced(segment); /* pace is about each packet */
}

/* A TIP, with a TNT before it, that came like this before. Returns their size, 0: they did not; or an error. */
static inline int take_hop(struct ptd_segment *segment, const uint8_t *at, const uint8_t *end)
{
    struct ptd_place *place = &segment->place;
    struct ptd_steps *steps = segment->steps;
    if (end - at < PTD_HOP_READ)
        return 0;
    struct ptd_hop_packets packets = ptd_hop_packets_at(at);
    if (!packets.size || place->standing != PTD_STANDING_ON || place->attention || segment->run.length)
        return 0;
    uint64_t key = hop_key(place, &packets);
    struct ptd_hop *hop = ptd_hops_at(steps->hops, place->node, key);
    const struct ptd_step *step = &steps->table[hop->step];
    if (UNLIKELY(!ptd_hop_is(hop, place->node, key, packets.ip_bits, place->last_ip) ||
                 (step->pops && !ptd_steps_pops_match(steps, step, &place->returns))))
        step = learn_hop(segment, at, end, &packets, hop);
    if (UNLIKELY(!step || hop->bits >= ptd_segment_room(segment)))
        return 0;
    unsigned count = hop->bits - place->pending;
    place->received += count;
    place->last_tnt = packets.tnt ? count : place->last_tnt;
    place->bits = 0;
    place->pending = 0;
    place->last_ip = hop->ip;
    place->node = hop->next;
    if (step->pops | step->pushes)
        ptd_steps_returns(steps, step, &place->returns);
    place->hold_notes = true;
    int error = take_leg(segment, step);
    use_tip(segment);
    return error < 0 ? error : (int)packets.size;
}

/* FUP, TIP: an asynchronous branch. */
static int take_async_branch(struct ptd_segment *segment, uint64_t offset, uint64_t ip)
{
    struct ptd_place *place = &segment->place;
    struct pt_event event = {.type = ptev_async_branch};
    event.variant.async_branch.from = place->fup_ip;
    event.variant.async_branch.to = ip;
    place->fup_pending = false;
    int error = meet(segment);
    if (error == 0)
        error = ptd_segment_walk_to(segment, place->fup_ip);
    if (error == 0)
        error = close_run(segment);
    if (error == 0)
        error = add_event(segment, &event, place->fup_timed, place->fup_tsc, offset);
    return error < 0 ? error : stand_at(segment, ip);
}

static int take_pgd(struct ptd_segment *segment, uint64_t offset, bool known, uint64_t ip)
{
    struct ptd_place *place = &segment->place;
    struct pt_event event = {.ip_suppressed = !known};
    bool async = place->fup_pending, timed = async ? place->fup_timed : place->timed;
    uint64_t tsc = async ? place->fup_tsc : place->time;
    if (place->standing != PTD_STANDING_ON || place->mode_pending || (async && segment->skd022))
        return -EILSEQ;
    place->fup_pending = false;
    int error = meet(segment);
    if (error < 0)
        return error;
    if (async) {
        event.type = ptev_async_disabled;
        event.variant.async_disabled.at = place->fup_ip;
        event.variant.async_disabled.ip = ip;
        error = ptd_segment_walk_to(segment, place->fup_ip);
        place->resume_ip = place->fup_ip;
    } else {
        event.type = ptev_disabled;
        event.variant.disabled.ip = ip;
        error = ptd_segment_walk_off(segment, known, ip);
    }
    if (error == 0)
        error = close_run(segment);
    if (error == 0)
        error = add_event(segment, &event, timed, tsc, offset);
    place->standing = PTD_STANDING_OFF;
    return error;
}

static int take_pge(struct ptd_segment *segment, uint64_t offset, uint64_t ip)
{
    struct ptd_place *place = &segment->place;
    bool mode = place->mode_pending;
    if (place->standing != PTD_STANDING_OFF || (!mode && !place->mode_known))
        return -EILSEQ;
    struct pt_event enabled = {.type = ptev_enabled}, exec_mode = {.type = ptev_exec_mode};
    enabled.variant.enabled.ip = exec_mode.variant.exec_mode.ip = ip;
    enabled.variant.enabled.resumed = place->resume_ip == ip;
    exec_mode.variant.exec_mode.mode = ptem_64bit;
    place->mode_pending = false;
    place->mode_known = true;
    int error = meet(segment);
    if (error == 0)
        error = close_run(segment);
    if (error == 0)
        error = add_event(segment, &enabled, place->timed, place->time, mode ? place->mode_offset : offset);
    if (error == 0 && mode)
        error = add_event(segment, &exec_mode, place->mode_timed, place->mode_tsc, offset);
    return error < 0 ? error : stand_at(segment, ip);
}

static int take_fup(struct ptd_segment *segment, uint64_t ip)
{
    struct ptd_place *place = &segment->place;
    if (place->standing != PTD_STANDING_ON || place->fup_pending)
        return -EILSEQ;
    place->fup_pending = place->attention = true;
    place->fup_ip = ip;
    place->fup_timed = place->timed;
    place->fup_tsc = place->time;
    return 0;
}

static int take_cbr(struct ptd_segment *segment, uint64_t offset, uint8_t ratio)
{
    struct ptd_place *place = &segment->place;
    if (place->fup_pending || place->mode_pending || !ratio) /* 0: no packet to libipt */
        return -EILSEQ;
    struct pt_event event = {.type = ptev_cbr};
    event.variant.cbr.ratio = ratio;
    int error = meet(segment);
    if (error == 0)
        error = close_run(segment);
    return error < 0 ? error : add_event(segment, &event, place->timed, place->time, offset);
}

static int take_mode(struct ptd_segment *segment, uint64_t offset, uint8_t payload)
{
    struct ptd_place *place = &segment->place;
    if (place->standing != PTD_STANDING_OFF || place->mode_pending || payload >> 5 || (payload & 3) != 1)
        return -EILSEQ;
    place->mode_pending = place->attention = true;
    place->mode_offset = offset;
    place->mode_timed = place->timed;
    place->mode_tsc = place->time;
    return 0;
}

static void take_tsc(struct ptd_segment *segment, uint64_t tsc)
{
    struct ptd_place *place = &segment->place;
    place->after_tsc = true;
    if (ptd_segment_paced(segment))
        return;
    place->time = tsc;
    place->timed = place->time_moved = place->attention = true;
}

static int take_tma(struct ptd_segment *segment, const uint8_t *at)
{
    bool good = segment->place.after_tsc && ptd_packet_is_tma(at);
    segment->place.after_tsc = false;
    return good && segment->clocks != PTD_CLOCKS_LIBIPTS ? PTD_SIZE_TMA : -EILSEQ;
}

/* TIP, TIP.PGE, TIP.PGD or FUP at `at`. Returns its size or an error. */
static int take_ip(struct ptd_segment *segment, const uint8_t *at, const uint8_t *end, uint64_t offset)
{
    struct ptd_place *place = &segment->place;
    bool known;
    unsigned size = ptd_packet_ip(at, end, &place->last_ip, &known);
    uint8_t opcode = at[0] & 0x1F;
    if (!size || (!known && opcode != PTD_OPC_PGD))
        return -EILSEQ;
    int error = opcode == PTD_OPC_PGD   ? take_pgd(segment, offset, known, known ? place->last_ip : 0)
                : opcode == PTD_OPC_PGE ? take_pge(segment, offset, place->last_ip)
                : opcode == PTD_OPC_FUP ? take_fup(segment, place->last_ip)
                : place->fup_pending    ? take_async_branch(segment, offset, place->last_ip)
                                        : take_tip(segment, offset, place->last_ip);
    return error < 0 ? error : (int)size;
}

/* A packet whose first byte is 02, but no PSB. Returns its size or an error. */
static int take_extended(struct ptd_segment *segment, const uint8_t *at, uint64_t left, uint64_t offset)
{
    int error = -EILSEQ;
    if (left < 2)
        return -EILSEQ;
    switch (at[1]) {
    case PTD_EXT_CBR:
        if (left >= PTD_SIZE_CBR)
            error = take_cbr(segment, offset, at[2]);
        return error < 0 ? error : PTD_SIZE_CBR;
    case PTD_EXT_TMA:
        return left >= PTD_SIZE_TMA ? take_tma(segment, at) : -EILSEQ;
    default:
        return -EILSEQ;
    }
}

/* A packet that is neither TNT nor has an IP. Returns its size or an error. */
static int take_other(struct ptd_segment *segment, const uint8_t *at, const uint8_t *end, uint64_t offset)
{
    uint64_t left = (uint64_t)(end - at);
    if (at[0] == PTD_OPC_EXTENDED)
        return take_extended(segment, at, left, offset);
    if (at[0] == PTD_OPC_TSC && left >= PTD_SIZE_TSC) {
        take_tsc(segment, ptd_packet_bytes(at + 1, 7));
        return PTD_SIZE_TSC;
    }
    if (at[0] == PTD_OPC_MODE && left >= 2) {
        int error = take_mode(segment, offset, at[1]);
        return error < 0 ? error : 2;
    }
    if ((at[0] & 3) == 3) { /* CYC: libipt calibrates with it, whatever it is told about the processor */
        unsigned size = ptd_segment_paced(segment) ? ptd_packet_cyc(at, end) : 0;
        return size ? (int)size : -EILSEQ;
    }
    if (at[0] == PTD_OPC_MTC && left >= 2) {
        segment->place.after_tsc = false;
        return segment->clocks == PTD_CLOCKS_LIBIPTS ? -EILSEQ : 2;
    }
    return -EILSEQ;
}

static inline bool has_ip(uint8_t first)
{
    uint8_t opcode = first & 0x1F;
    return opcode == PTD_OPC_TIP || opcode == PTD_OPC_PGD || opcode == PTD_OPC_PGE || opcode == PTD_OPC_FUP;
}

static bool is_psb(const uint8_t *at, const uint8_t *end)
{
    static const uint8_t PSB[PTD_PSB_SIZE] = {0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
                                              0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82};
    return end - at >= PTD_PSB_SIZE && memcmp(at, PSB, sizeof PSB) == 0;
}

int ptd_segment_decode(struct ptd_segment *segment, uint64_t *offset)
{
    const uint8_t *begin = segment->slice.packets, *at = begin + *offset, *end = begin + segment->slice.size;
    bool hops = begin_hops(segment);
    int status = 0;
    while (at < end && status >= 0) {
        status = hops ? take_hop(segment, at, end) : 0;
        if (status > 0) {
            at += status;
            segment->hops.taken++;
        }
        if (status != 0)
            continue;
        uint64_t bits;
        unsigned count, size = ptd_packet_tnt(at, end, &bits, &count);
        if (size) {
            status = take_tnt(segment, (uint64_t)(at - begin), bits, count);
            at += size;
            continue;
        }
        uint8_t first = *at;
        if (first == PTD_OPC_PAD) {
            at++;
            continue;
        }
        if (first == PTD_OPC_EXTENDED && is_psb(at, end)) {
            *offset = (uint64_t)(at - begin);
            return 1;
        }
        status = has_ip(first) ? take_ip(segment, at, end, (uint64_t)(at - begin))
                               : take_other(segment, at, end, (uint64_t)(at - begin));
        at += status > 0 ? status : 0;
    }
    *offset = (uint64_t)(at - begin);
    return status < 0 ? status : 0;
}

/* ---- PSBs and ends ---- */

int ptd_segment_stop(struct ptd_segment *segment, bool known, uint64_t ip)
{
    struct ptd_place *place = &segment->place;
    bool on = place->standing == PTD_STANDING_ON;
    if (place->standing == PTD_STANDING_WAITS || place->fup_pending || place->mode_pending || (known && !on))
        return -EILSEQ;
    int error = use_all_bits(segment);
    if (error == 0 && !known && !place->after_event)
        error = ptd_segment_cut(segment);
    if (error == 0 && !place->after_event)
        error = ptd_segment_pass_marks(segment);
    place->next_mark = UINT64_MAX; /* no moments in the tail */
    if (error == 0 && known)
        error = ptd_segment_walk_to(segment, ip);
    if (error == 0 && known && ptd_segment_paced(segment))
        error = ptd_segment_pace_stop(segment);
    if (error == 0)
        error = ptd_segment_cut(segment);
    return error < 0 ? error : ptd_segment_end_path(segment);
}

/* Nothing came before: execution stands where the PSB+ says. */
static int begin_at(struct ptd_segment *segment, const struct ptd_psb_plus *plus)
{
    segment->place.fresh = false;
    if (!plus->has_ip)
        return 0;
    return plus->has_mode ? stand_at(segment, plus->ip) : -EILSEQ;
}

static int add_psb_event(struct ptd_segment *segment, const struct ptd_psb_plus *plus, const struct pt_event *event)
{
    struct ptd_place *place = &segment->place;
    int error = 0;
    if (place->standing == PTD_STANDING_ON && event->type != ptev_cbr)
        error = ptd_segment_walk_to(segment, plus->ip);
    if (error == 0)
        error = close_run(segment);
    return error < 0 ? error : add_event(segment, event, place->timed, place->time, plus->psbend);
}

int ptd_segment_arrive(struct ptd_segment *segment, uint64_t *offset)
{
    struct ptd_place *place = &segment->place;
    struct ptd_psb_plus plus;
    bool read = ptd_psb_plus_read(segment->slice.packets, segment->slice.size, *offset, segment->clocks, &plus);
    if (place->fup_pending || place->mode_pending || !read)
        return -EILSEQ;
    if (plus.has_tsc)
        take_tsc(segment, plus.tsc);
    place->after_tsc = plus.after_tsc;
    int error = place->fresh ? begin_at(segment, &plus) : 0;
    bool on = place->standing != PTD_STANDING_OFF;
    if (error < 0 || on != plus.has_ip || (on && !plus.has_mode)) /* without an event libipt would not stop there */
        return error < 0 ? error : -EILSEQ;
    if (plus.count)
        error = meet(segment);
    for (unsigned i = 0; i < plus.count && error == 0; i++)
        error = add_psb_event(segment, &plus, &plus.events[i]);
    place->mode_known |= plus.has_mode;
    place->last_ip = plus.last_ip;
    place->returns.depth = 0;
    *offset = plus.end;
    return error;
}
