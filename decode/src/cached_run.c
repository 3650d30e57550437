/* SPDX-License-Identifier: MIT */
/* The path decoder's side of execution: steps and blocks become runs, runs become paths and rows. */
#include "cached_segment.h"
#include "images.h"
#include "walker.h"

#include <errno.h>

enum { MAX_BLOCKS_WALKED = 1 << 14 };

/* The number of a node's block in the segment's tables, or negative errno. */
static int32_t block_of(struct ptd_segment *segment, int32_t number)
{
    struct ptd_node *node = &segment->steps->code.nodes[number];
    if (node->stamp == segment->steps->stamp)
        return node->block;
    const struct ptd_section *section = ptd_images_section(segment->images, node->section);
    struct ptd_block_row row = {
        .image = -1,
        .ip = node->ip,
        .last_ip = node->last_ip,
        .size = (int32_t)(node->end - node->ip),
        .instructions = node->instructions,
        .last = (int8_t)node->last,
        .mode = (uint8_t)ptem_64bit,
    };
    if (section) {
        row.image = section->image;
        row.offset = (int64_t)(node->ip - section->address + section->offset);
    }
    int32_t block;
    int error = ptd_blocks_intern_row(&segment->tables->blocks, &row, &block);
    if (error < 0)
        return error;
    node->block = block;
    node->stamp = segment->steps->stamp;
    return block;
}

int ptd_segment_blocks(void *owner, const int32_t *nodes, uint32_t count, int32_t *ret)
{
    struct ptd_segment *segment = owner;
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = block_of(segment, nodes[i]);
        if (ret[i] < 0)
            return ret[i];
    }
    return 0;
}

/* ---- time ---- */

int ptd_segment_note(struct ptd_segment *segment)
{
    struct ptd_place *place = &segment->place;
    place->note_due = false;
    if (ptd_segment_paced(segment) || !place->last_timed || place->last_time == place->progress.tsc)
        return 0;
    place->progress.tsc = place->last_time;
    return ptd_buffer_clock(&segment->buffer, ptd_segment_seq(segment) + segment->run.length, place->last_time);
}

int ptd_segment_pass_marks(struct ptd_segment *segment)
{
    struct ptd_place *place = &segment->place;
    uint64_t used = ptd_segment_used(segment);
    unsigned passed = 0;
    for (; passed < segment->mark_count && segment->marks[passed].bit <= used; passed++) {
        place->last_time = segment->marks[passed].tsc;
        place->last_timed = true;
    }
    segment->mark_count -= passed;
    for (unsigned i = 0; i < segment->mark_count; i++)
        segment->marks[i] = segment->marks[i + passed];
    place->next_mark = segment->mark_count ? segment->marks[0].bit : UINT64_MAX;
    return place->hold_notes ? 0 : ptd_segment_note(segment);
}

/* Hold a block that comes next in the run against the packets it used. */
static int pace_block(struct ptd_segment *segment, const struct ptd_pace_block *block)
{
    struct ptd_rows *moments = ptd_buffer_moments(&segment->buffer);
    if (!moments)
        return -EILSEQ;
    ptd_pace_block(&segment->pace, moments, ptd_space_walker(segment->space), block);
    ptd_buffer_timed(&segment->buffer);
    return 0;
}

static struct ptd_pace_block paced(const struct ptd_node *node, int64_t next)
{
    return (struct ptd_pace_block){.next = next, .ip = node->ip, .end_ip = node->last_ip,
                                   .instructions = node->instructions, .mode = (uint8_t)ptem_64bit,
                                   .last = (enum ptd_class)node->last};
}

int ptd_segment_pace(struct ptd_segment *segment, const struct ptd_step *step)
{
    const struct ptd_node *nodes = segment->steps->code.nodes;
    const struct ptd_joins *joins = &segment->steps->joins;
    const struct ptd_join *leg = ptd_joins_root(joins, step->leg);
    int64_t next = ptd_segment_seq(segment) + segment->run.length;
    int error = 0;
    bool whole = step->used && step->end == PTD_STEP_AT_NODE && !step->full;
    if (!whole || !ptd_pace_bits(&segment->pace, step->used, leg->instructions, next + leg->blocks)) {
        const int32_t *items = ptd_joins_items(joins, step->leg);
        struct ptd_rows *moments = ptd_buffer_moments(&segment->buffer);
        struct ptd_walker *walker = ptd_space_walker(segment->space);
        for (uint32_t i = 0; i < leg->blocks && moments; i++) {
            struct ptd_pace_block block = paced(&nodes[items[i]], next + i + 1);
            ptd_pace_block(&segment->pace, moments, walker, &block);
        }
        error = moments ? 0 : -EILSEQ;
        ptd_buffer_timed(&segment->buffer);
    }
    segment->place.progress.tsc = segment->pace.now;
    return error;
}

int ptd_segment_pace_event(struct ptd_segment *segment, const struct pt_event *event)
{
    struct ptd_progress *progress = &segment->place.progress;
    struct ptd_rows *moments = ptd_buffer_moments(&segment->buffer);
    if (!moments)
        return -EILSEQ;
    ptd_pace_event(&segment->pace, moments, event, ptd_segment_seq(segment));
    ptd_buffer_timed(&segment->buffer);
    progress->tsc = segment->pace.now;
    return 0;
}

int ptd_segment_pace_stop(struct ptd_segment *segment)
{
    struct ptd_rows *moments = ptd_buffer_moments(&segment->buffer);
    if (!moments)
        return -EILSEQ;
    ptd_pace_stop(&segment->pace, moments);
    ptd_buffer_timed(&segment->buffer);
    segment->place.progress.tsc = segment->pace.now;
    return 0;
}

/* ---- legs and paths ---- */

int ptd_segment_end_path(struct ptd_segment *segment)
{
    int32_t path;
    int found = ptd_joins_end(&segment->steps->joins, segment->tables, &path);
    if (found > 0)
        found = ptd_buffer_flow(&segment->buffer, path);
    return found == -E2BIG ? -EILSEQ : found;
}

int ptd_segment_cut(struct ptd_segment *segment)
{
    struct ptd_run *run = &segment->run;
    if (!run->length)
        return 0;
    uint32_t leg;
    int error = ptd_steps_leg(segment->steps, run, &leg);
    if (error == 0)
        error = ptd_segment_take_leg(segment, leg);
    ptd_run_reset(run);
    return error;
}

/* Append a node's block to the run. Returns 1 when the run was cut after it, 0 or negative errno. */
static int append(struct ptd_segment *segment, int32_t node)
{
    struct ptd_run *run = &segment->run;
    if (node < 0)
        return node;
    segment->place.after_event = false;
    run->blocks[run->length++] = node;
    bool full = run->length == PATH_MAX_BLOCKS;
    switch ((enum ptd_class)segment->steps->code.nodes[node].last) {
    case PTD_COND_JUMP:
    case PTD_RETURN:
        full |= ++run->decisions >= segment->steps->joins.decisions_limit;
        break;
    case PTD_IND_JUMP:
    case PTD_IND_CALL:
    case PTD_SYSCALL:
    case PTD_FAR:
        full = true;
        break;
    default:
        break;
    }
    if (!full)
        return 0;
    int error = ptd_segment_cut(segment);
    return error < 0 ? error : 1;
}

int ptd_segment_append(struct ptd_segment *segment, const struct ptd_step *step)
{
    struct ptd_joins *joins = &segment->steps->joins;
    uint32_t leg = step->leg, length = ptd_joins_root(joins, leg)->blocks;
    int cut = 0;
    for (uint32_t i = 0; i < length; i++) {
        if (cut) /* in the middle: which moment that was is not known any more */
            return -EILSEQ;
        cut = append(segment, ptd_joins_items(joins, leg)[i]);
        if (cut < 0)
            return cut;
    }
    return cut ? ptd_segment_pass_marks(segment) : 0;
}

/* ---- walking without packets ---- */

/* A block cut short before `ip`: its node, -1 when `ip` is not one of its instructions but the first. */
static int32_t part_of(struct ptd_segment *segment, const struct ptd_node *node, uint64_t ip)
{
    struct ptd_straight straight;
    if (ip <= node->ip || ip > node->last_ip ||
        ptd_walker_straight(ptd_space_walker(segment->space), node->ip, ip, &straight) < 0 || straight.end != ip)
        return -1;
    return ptd_code_part(&segment->steps->code, node->ip, &straight, ptd_space_section(segment->space, straight.isid));
}

static int append_and_note(struct ptd_segment *segment, int32_t node)
{
    if (ptd_segment_paced(segment) && node >= 0) {
        struct ptd_pace_block block =
            paced(&segment->steps->code.nodes[node], ptd_segment_seq(segment) + segment->run.length + 1);
        int error = pace_block(segment, &block);
        if (error < 0)
            return error;
        segment->place.progress.tsc = segment->pace.now;
    }
    int cut = append(segment, node);
    return cut > 0 ? ptd_segment_pass_marks(segment) : cut;
}

static int stand_at(struct ptd_segment *segment, int32_t node)
{
    if (node < 0)
        return node;
    segment->place.node = node;
    return 0;
}

/* Over a block that leads on without a packet. Returns 0, or -EILSEQ when it does not. */
static int walk_over(struct ptd_segment *segment)
{
    struct ptd_code *code = &segment->steps->code;
    int32_t at = segment->place.node;
    if (code->nodes[at].kind > PTD_NODE_CALL)
        return -EILSEQ;
    int error = append_and_note(segment, at);
    if (error < 0)
        return error;
    if (code->nodes[at].kind == PTD_NODE_CALL && ptd_node_pushes(&code->nodes[at])) {
        int32_t end = ptd_code_end(code, at);
        if (end < 0)
            return end;
        ptd_returns_push(&segment->place.returns, end);
    }
    return stand_at(segment,
                    code->nodes[at].kind == PTD_NODE_ON ? ptd_code_end(code, at) : ptd_code_target(code, at));
}

/* Where execution stands, decoded. Returns 1 when that is at `ip` (after part of a block, it may be), 0 or an error. */
static int look_for(struct ptd_segment *segment, bool known, uint64_t ip)
{
    struct ptd_code *code = &segment->steps->code;
    int32_t at = segment->place.node;
    if (known && code->nodes[at].ip == ip)
        return 1;
    if (code->nodes[at].kind == PTD_NODE_NEW && ptd_code_decode(code, segment->space, at) < 0)
        return -EILSEQ;
    int32_t part = known ? part_of(segment, &code->nodes[at], ip) : -1;
    if (part == -1)
        return 0;
    int error = append_and_note(segment, part);
    if (error == 0)
        error = stand_at(segment, ptd_code_at(code, ip));
    return error < 0 ? error : 1;
}

int ptd_segment_walk_to(struct ptd_segment *segment, uint64_t ip)
{
    for (int i = 0; i < MAX_BLOCKS_WALKED; i++) {
        int there = look_for(segment, true, ip);
        if (there != 0)
            return there < 0 ? there : 0;
        int error = walk_over(segment);
        if (error < 0)
            return error;
    }
    return -EILSEQ;
}

int ptd_segment_walk_off(struct ptd_segment *segment, bool known, uint64_t ip)
{
    struct ptd_code *code = &segment->steps->code;
    for (int i = 0; i < MAX_BLOCKS_WALKED; i++) {
        int there = look_for(segment, known, ip);
        if (there > 0)
            segment->place.resume_ip = ip;
        if (there != 0)
            return there < 0 ? there : 0;
        const struct ptd_node *node = &code->nodes[segment->place.node];
        if (node->kind > PTD_NODE_CALL) {
            segment->place.resume_ip = node->call ? node->end : 0;
            if (node->kind == PTD_NODE_IND_CALL) {
                int32_t end = ptd_code_end(code, segment->place.node);
                if (end < 0)
                    return end;
                ptd_returns_push(&segment->place.returns, end);
            }
            return append_and_note(segment, segment->place.node);
        }
        int error = walk_over(segment);
        if (error < 0)
            return error;
    }
    return -EILSEQ;
}
