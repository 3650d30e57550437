/* SPDX-License-Identifier: MIT */
/*
 * From blocks to rows: each block is numbered and appended to the run; where the run is cut it is a leg of a path.
 * Works on the decoder it is handed; not thread-safe.
 */
#include "flow.h"
#include "walker.h"

#include <errno.h>

/* Where in blocks that ran before a switch something was may still be asked: their code stays until another runs. */
static struct ptd_walker *timed_walker(struct ptd_decoder *decoder)
{
    if (decoder->timed != decoder->space) {
        if (decoder->timed)
            ptd_space_leave(decoder->timed);
        (void)ptd_space_use(decoder->space); /* it is in use: nothing is to be mapped */
        decoder->timed = decoder->space;
    }
    return ptd_space_walker(decoder->space);
}

/* Hold the block appended last against the packets it used. */
static void pace_block(struct ptd_decoder *decoder, const struct ptd_block_hit *hit)
{
    const struct ptd_pace_block block = {
        .next = decoder->progress.seq + decoder->run.length,
        .ip = hit->ip,
        .end_ip = hit->end_ip,
        .mode = hit->mode,
        .instructions = hit->instructions,
        .last = (enum ptd_class)hit->last,
    };
    ptd_pace_block(&decoder->pace, decoder->rows, timed_walker(decoder), &block);
}

/* Append a block; true when the run is to be cut after it. */
static bool append(struct ptd_decoder *decoder, const struct ptd_block_hit *hit)
{
    struct ptd_run *run = &decoder->run;
    bool by_place = ptd_flow_by_place(decoder);
    if (by_place)
        ptd_flow_come_to(decoder, hit->ip);
    decoder->used = true;
    decoder->last = hit->block;
    ptd_trail_learn(&decoder->trail, hit, run->length);
    run->blocks[run->length++] = hit->block;
    if (decoder->paced)
        pace_block(decoder, hit);
    if (by_place)
        ptd_flow_leave(decoder, (enum ptd_class)hit->last);
    return ptd_flow_ends_run(decoder, (enum ptd_class)hit->last);
}

/* Append the block that is held, if any. Returns 1 when the run is to be cut after it, 0 or negative errno. */
static int release(struct ptd_decoder *decoder)
{
    struct pt_block *held = &decoder->held;
    if (!held->ninsn)
        return 0;
    const struct ptd_block_hit *hit;
    int error = ptd_blocks_intern(&decoder->tables->blocks, decoder->space, held, &hit);
    if (error < 0)
        return error;
    held->ninsn = 0;
    return append(decoder, hit);
}

/* The leg of a run that is in no memory of runs. Returns 0 or negative errno. */
static int look_up_leg(struct ptd_decoder *decoder, uint32_t *ret)
{
    const struct ptd_blocks *blocks = &decoder->tables->blocks;
    const struct ptd_run *run = &decoder->run;
    struct ptd_sums sums = {.blocks = (int32_t)run->length};
    uint64_t hash;
    *ret = ptd_joins_find(&decoder->joins, run, &hash);
    if (*ret)
        return 0;
    for (uint32_t i = 0; i < run->length; i++) {
        sums.instructions += blocks->instructions[run->blocks[i]];
        sums.branches += blocks->last[run->blocks[i]] != PTD_OTHER;
    }
    return ptd_joins_add_leg(&decoder->joins, run, hash, &sums,
                             (enum ptd_class)blocks->last[run->blocks[run->length - 1]], ret);
}

/* The leg the run is. Returns 0 or negative errno. */
static int leg_of(struct ptd_decoder *decoder, uint32_t *ret)
{
    struct ptd_trail_node *end = ptd_trail_end(&decoder->trail, decoder->run.length);
    if (end && end->leg) {
        *ret = end->leg;
        return 0;
    }
    int error = look_up_leg(decoder, ret);
    if (error == 0 && end)
        end->leg = *ret;
    return error;
}

/* The path that is being executed ends here: write its row. Returns 0 or negative errno. */
static int end_path(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    int32_t path;
    int found = ptd_joins_end(&decoder->joins, decoder->tables, &path);
    if (found > 0)
        ptd_rows_flow(rows, path);
    return found < 0 ? found : 0;
}

/* Execution went on to a leg: write the row of what is over by that. Returns 0 or negative errno. */
static int add_leg(struct ptd_decoder *decoder, struct ptd_rows *rows, uint32_t leg)
{
    struct ptd_joins *joins = &decoder->joins;
    if (!ptd_joins_follow(joins, leg)) {
        int32_t path;
        int found = ptd_joins_turn(joins, decoder->tables, leg, &path);
        if (found > 0)
            ptd_rows_flow(rows, path);
        if (found < 0)
            return found;
    }
    const struct ptd_join *at = joins->at;
    decoder->progress.seq = joins->seq + at->blocks;
    decoder->progress.instructions = joins->instructions + at->instructions;
    decoder->progress.branches = joins->branches + at->branches;
    return leg & PTD_JOIN_OVER ? end_path(decoder, rows) : 0;
}

int ptd_flow_cut(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    struct ptd_run *run = &decoder->run;
    int error = release(decoder);
    if (error < 0 || !run->length)
        return error < 0 ? error : 0;
    uint32_t leg;
    error = leg_of(decoder, &leg);
    if (error == 0)
        error = add_leg(decoder, rows, leg);
    if (error < 0)
        return error;
    if (decoder->progress.first_block < 0)
        decoder->progress.first_block = run->blocks[0];
    ptd_trail_cut(&decoder->trail, run->length);
    ptd_run_reset(run);
    decoder->sure = 0;
    return 0;
}

int ptd_flow_close_run(struct ptd_decoder *decoder, struct ptd_rows *rows)
{
    int error = ptd_flow_cut(decoder, rows);
    return error < 0 ? error : end_path(decoder, rows);
}

uint32_t ptd_flow_lengths_of(const struct ptd_decoder *decoder, const struct pt_block *block, uint8_t *lengths)
{
    struct ptd_walk walk;
    ptd_walker_walk(ptd_space_walker(decoder->space), block->ip, block->mode, block->ninsn, lengths, &walk);
    return walk.instructions;
}

/* Move the first `count` instructions of a block to the end of the one that is held. */
static void fill_held(struct ptd_decoder *decoder, struct pt_block *block, uint32_t count)
{
    uint8_t lengths[UINT16_MAX];
    if (ptd_flow_lengths_of(decoder, block, lengths) < count)
        return;
    for (uint32_t i = 0; i < count; i++) {
        decoder->held.end_ip = block->ip;
        block->ip += lengths[i];
    }
    decoder->held.ninsn = (uint16_t)(decoder->held.ninsn + count);
    block->ninsn = (uint16_t)(block->ninsn - count);
}

/* Put the block that is held before `block`, or append it if they are not one. Returns 0 or negative errno. */
static int join(struct ptd_decoder *decoder, struct ptd_rows *rows, struct pt_block *block)
{
    struct pt_block *held = &decoder->held;
    if (block->ip == decoder->held_end && block->isid == held->isid && block->mode == held->mode) {
        uint32_t room = (uint32_t)(UINT16_MAX - held->ninsn);
        if (block->ninsn <= room) {
            block->ip = held->ip;
            block->ninsn = (uint16_t)(block->ninsn + held->ninsn);
            held->ninsn = 0;
            return 0;
        }
        fill_held(decoder, block, room);
    }
    int error = release(decoder);
    return error > 0 ? ptd_flow_cut(decoder, rows) : error;
}

/* Whether a block ends although no branch and no event ends it; `end` becomes the address after it. */
static bool ends_in_nothing(const struct ptd_decoder *decoder, const struct pt_block *block, uint64_t *end)
{
    struct ptd_walk walk;
    if (ptd_walker_walk(ptd_space_walker(decoder->space), block->end_ip, block->mode, 1, NULL, &walk) < 0)
        return false;
    *end = walk.end;
    return walk.last == PTD_OTHER;
}

/*
 * libipt puts a PTWRITE that a direct branch leads to into the block of that branch. True when a block is such a one:
 * `block` becomes its beginning up to the branch, `rest` what is behind it.
 */
static bool goes_on_elsewhere(const struct ptd_decoder *decoder, struct pt_block *block, struct pt_block *rest)
{
    struct ptd_walker *walker = ptd_space_walker(decoder->space);
    struct ptd_walk walk, behind;
    if (block->ninsn < 2 || ptd_walker_walk(walker, block->ip, block->mode, block->ninsn, NULL, &walk) < 0 ||
        walk.instructions == block->ninsn || !walk.target ||
        ptd_walker_walk(walker, walk.target, block->mode, 1, NULL, &behind) < 0)
        return false;
    *rest = *block;
    rest->ip = walk.target;
    rest->isid = behind.isid;
    rest->ninsn = (uint16_t)(block->ninsn - walk.instructions);
    block->ninsn = (uint16_t)walk.instructions;
    block->end_ip = walk.last_ip;
    block->truncated = 0;
    return true;
}

/* Take a block up to the branch that leads on in it; `block` becomes the rest. 1: it was such a one, 0, or an error. */
static int take_beginning(struct ptd_decoder *decoder, struct ptd_rows *rows, struct pt_block *block)
{
    const struct ptd_block_hit *hit;
    struct pt_block rest;
    if (!goes_on_elsewhere(decoder, block, &rest))
        return 0;
    int error = ptd_blocks_intern(&decoder->tables->blocks, decoder->space, block, &hit);
    *block = rest;
    if (error < 0)
        return error;
    if (append(decoder, hit))
        error = ptd_flow_cut(decoder, rows);
    return error < 0 ? error : 1;
}

int ptd_flow_take_block(struct ptd_decoder *decoder, struct ptd_rows *rows, struct pt_block *block, bool whole)
{
    struct ptd_blocks *blocks = &decoder->tables->blocks;
    if (decoder->held.ninsn) {
        int error = join(decoder, rows, block);
        if (error < 0)
            return error;
    }
    const struct ptd_block_hit *hit = ptd_blocks_find(blocks, block);
    for (int split = 1; !hit && split; hit = ptd_blocks_find(blocks, block)) {
        split = take_beginning(decoder, rows, block);
        if (split < 0)
            return split;
    }
    if (!whole && (!hit || hit->last == PTD_OTHER) && ends_in_nothing(decoder, block, &decoder->held_end)) {
        decoder->held = *block;
        decoder->without_packet++;
        return 0;
    }
    if (!hit) {
        int error = ptd_blocks_intern_new(blocks, decoder->space, block, &hit);
        if (error < 0)
            return error;
    }
    return append(decoder, hit);
}

void ptd_flow_forget_tail(struct ptd_decoder *decoder)
{
    struct ptd_run *run = &decoder->run;
    decoder->held.ninsn = 0;
    decoder->trail.length = PTD_TRAIL_LOST;
    run->length = decoder->sure;
}

uint64_t ptd_flow_end_of(const struct ptd_decoder *decoder, int32_t block)
{
    const struct ptd_blocks *blocks = &decoder->tables->blocks;
    return blocks->ip[block] + (uint64_t)blocks->size[block];
}
