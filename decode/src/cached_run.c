/* SPDX-License-Identifier: MIT */
/* The path decoder's side of execution: steps and blocks become runs, runs become paths and rows. */
#include "cached_segment.h"
#include "images.h"
#include "walker.h"

#include <errno.h>

enum { MAX_BLOCKS_WALKED = 1 << 14 };

static int32_t number_straight(struct ptd_segment *segment, uint64_t ip, const struct ptd_straight *straight)
{
    const struct ptd_section *section = ptd_images_section(segment->images, straight->isid);
    struct ptd_block_row row = {
        .image = -1,
        .ip = ip,
        .last_ip = straight->last_ip,
        .size = (int32_t)(straight->end - ip),
        .instructions = (int32_t)straight->instructions,
        .last = (int8_t)straight->last,
        .mode = (uint8_t)ptem_64bit,
    };
    if (section) {
        row.image = section->image;
        row.offset = (int64_t)(ip - section->address + section->offset);
    }
    int32_t block;
    int error = ptd_blocks_intern_row(&segment->tables->blocks, &row, &block);
    return error < 0 ? error : block;
}

/* The number of a node's block in the segment's tables, or negative errno. */
static int32_t block_of(struct ptd_segment *segment, int32_t number)
{
    struct ptd_node *node = &segment->steps->code.nodes[number];
    if (node->stamp == segment->stamp)
        return node->block;
    struct ptd_straight straight = {.instructions = node->instructions, .isid = node->isid, .last_ip = node->last_ip,
                                    .end = node->end, .last = node->last};
    int32_t block = number_straight(segment, node->ip, &straight);
    if (block >= 0) {
        node->block = block;
        node->stamp = segment->stamp;
    }
    return block;
}

/* ---- time ---- */

int ptd_segment_note(struct ptd_segment *segment)
{
    struct ptd_place *place = &segment->place;
    place->note_due = false;
    if (!place->last_timed || place->last_time == place->progress.tsc)
        return 0;
    place->progress.tsc = place->last_time;
    return ptd_buffer_clock(&segment->buffer, place->progress.seq + segment->run.length, place->last_time);
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

/* ---- paths ---- */

static int intern(struct ptd_segment *segment, const struct ptd_run *run, int32_t *path)
{
    struct ptd_tables *tables = segment->tables;
    return ptd_paths_intern(&tables->paths, run, tables->blocks.instructions, tables->blocks.last, path);
}

int ptd_segment_number(struct ptd_segment *segment, struct ptd_step *step)
{
    struct ptd_run *run = &segment->scratch;
    ptd_run_reset(run);
    const int32_t *nodes = segment->steps->lists + step->list;
    for (uint32_t i = 0; i < step->length; i++) {
        int32_t block = block_of(segment, nodes[i]);
        if (block < 0)
            return block;
        ptd_run_append(run, block);
    }
    int error = intern(segment, run, &step->path);
    if (error == 0)
        step->stamp = segment->stamp;
    return error;
}

int ptd_segment_cut(struct ptd_segment *segment)
{
    struct ptd_run *run = &segment->run;
    struct ptd_progress *progress = &segment->place.progress;
    if (!run->length)
        return 0;
    int32_t path;
    int error = intern(segment, run, &path);
    if (error == 0)
        error = ptd_buffer_flow(&segment->buffer, progress->seq, path);
    if (error < 0)
        return error == -E2BIG ? -EILSEQ : error;
    progress->seq += run->length;
    progress->instructions += (uint32_t)segment->tables->paths.instructions[path];
    progress->branches += (uint32_t)segment->tables->paths.branches[path];
    ptd_run_reset(run);
    return 0;
}

/* Append a block to the run. Returns 1 when the run was cut after it, 0 or negative errno. */
static int append(struct ptd_segment *segment, int32_t block)
{
    struct ptd_run *run = &segment->run;
    if (block < 0)
        return block;
    segment->place.after_event = false;
    ptd_run_append(run, block);
    bool full = run->length == PATH_MAX_BLOCKS;
    switch ((enum ptd_class)segment->tables->blocks.last[block]) {
    case PTD_COND_JUMP:
    case PTD_RETURN:
        full |= ++run->decisions >= segment->tables->paths.decisions_limit;
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
    int cut = 0;
    for (uint32_t i = 0; i < step->length; i++) {
        if (cut) /* in the middle: which moment that was is not known any more */
            return -EILSEQ;
        cut = append(segment, block_of(segment, segment->steps->lists[step->list + i]));
        if (cut < 0)
            return cut;
    }
    return cut ? ptd_segment_pass_marks(segment) : 0;
}

/* ---- walking without packets ---- */

/* A block cut short before `ip`: its number, -1 when `ip` is not one of its instructions but the first. */
static int32_t part_of(struct ptd_segment *segment, const struct ptd_node *node, uint64_t ip)
{
    struct ptd_straight straight;
    if (ip <= node->ip || ip > node->last_ip ||
        ptd_walker_straight(ptd_space_walker(segment->space), node->ip, ip, &straight) < 0 || straight.end != ip)
        return -1;
    return number_straight(segment, node->ip, &straight);
}

static int append_and_note(struct ptd_segment *segment, int32_t block)
{
    int cut = append(segment, block);
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
    int error = append_and_note(segment, block_of(segment, at));
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
            return append_and_note(segment, block_of(segment, segment->place.node));
        }
        int error = walk_over(segment);
        if (error < 0)
            return error;
    }
    return -EILSEQ;
}
