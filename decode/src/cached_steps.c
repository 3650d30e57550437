/* SPDX-License-Identifier: MIT */
/*
 * Steps: walking them, keeping them, dropping them.
 *
 * Memory is bounded: steps beyond KEPT_STEPS, or KEPT_LISTS return addresses, are dropped at the next PSB, and all of it
 * at the next slice beyond KEPT_NODES nodes, KEPT_LEGS legs or KEPT_ITEMS nodes in them (under 100 MiB in all); nothing
 * is added beyond twice, or MOST times, that. Owns all its memory; not thread-safe.
 */
#define _GNU_SOURCE /* madvise */
#include "cached_steps.h"
#include "grow.h"
#include "huge.h"
#include "images.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOPS = 1 << PTD_HOPS_LOG,
    FIRST_STEPS = 1024,
    KEPT_STEPS = 5 << 16,
    KEPT_LISTS = 1 << 22,
    KEPT_NODES = 1 << 19,
    KEPT_LEGS = 1 << 17,
    KEPT_ITEMS = 1 << 21,
    MOST = 16 /* times what is kept of nodes and legs may be there in a slice: joins.c makes no more legs than that */
};

/* Steps are elsewhere from now on: no hop knows where. Returns 0 or -ENOMEM. */
static int forget_hops(struct ptd_steps *steps)
{
    if (!steps->hops)
        steps->hops = aligned_alloc(64, HOPS * sizeof *steps->hops);
    for (size_t i = 0; i < HOPS && steps->hops; i++)
        steps->hops[i] = (struct ptd_hop){.node = -1};
    return steps->hops ? 0 : -ENOMEM;
}

static int table_init(struct ptd_steps *steps, size_t size)
{
    struct ptd_step *table = forget_hops(steps) == 0 ? ptd_huge_alloc(size * sizeof *table) : NULL;
    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < size; i++)
        table[i].node = -1;
    steps->table = table;
    steps->mask = size - 1;
    steps->shift = (unsigned)__builtin_clzll(size) + 1;
    return 0;
}

static int table_drop(struct ptd_steps *steps)
{
    free(steps->table);
    free(steps->lists);
    steps->count = steps->list_count = steps->list_capacity = 0;
    steps->lists = NULL;
    steps->table = NULL;
    return table_init(steps, 2 * FIRST_STEPS);
}

struct ptd_steps *ptd_steps_create(void)
{
    struct ptd_steps *steps = calloc(1, sizeof *steps);
    if (steps && ptd_steps_drop(steps) < 0) {
        ptd_steps_destroy(steps);
        return NULL;
    }
    return steps;
}

void ptd_steps_destroy(struct ptd_steps *steps)
{
    if (!steps)
        return;
    ptd_code_deinit(&steps->code);
    ptd_joins_deinit(&steps->joins);
    free(steps->table);
    free(steps->hops);
    free(steps->lists);
    free(steps->sections);
    free(steps);
}

int ptd_steps_drop(struct ptd_steps *steps)
{
    ptd_code_deinit(&steps->code);
    ptd_joins_deinit(&steps->joins);
    int code = ptd_code_init(&steps->code), joins = ptd_joins_init(&steps->joins), table = table_drop(steps);
    return code < 0 || joins < 0 || table < 0 ? -ENOMEM : 0;
}

size_t ptd_steps_size(const struct ptd_steps *steps)
{
    const struct ptd_joins *joins = &steps->joins;
    return (steps->mask + 1) * sizeof *steps->table + HOPS * sizeof *steps->hops +
           steps->list_capacity * sizeof *steps->lists +
           steps->code.capacity * sizeof *steps->code.nodes +
           (steps->code.table_mask + 1) * sizeof *steps->code.table +
           ((size_t)joins->root_capacity + joins->joined_capacity) * sizeof *joins->roots +
           joins->legs.item_capacity * sizeof *joins->legs.items + joins->legs.capacity * 2 * sizeof(uint64_t) +
           (joins->legs.table_mask + 1) * sizeof *joins->legs.table;
}

static bool contains(const int32_t *sections, size_t count, int32_t section)
{
    for (size_t low = 0, high = count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (sections[middle] == section)
            return true;
        if (sections[middle] < section)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Whether code was decoded from a section that is not in the space any more. */
static bool any_gone(const struct ptd_steps *steps, const int32_t *sections, size_t count)
{
    bool some = false;
    for (size_t i = 0; i < steps->section_count && !some; i++)
        some = !contains(sections, count, steps->sections[i]);
    for (size_t i = 0; some && i < steps->code.count; i++)
        if (steps->code.nodes[i].section >= 0 && !contains(sections, count, steps->code.nodes[i].section))
            return true;
    return false;
}

bool ptd_steps_fit(const struct ptd_steps *steps, const struct ptd_space *space)
{
    size_t count;
    const int32_t *sections = ptd_space_sections(space, &count);
    return !any_gone(steps, sections, count);
}

/* Nodes and legs may be so many times what is kept of them. */
static bool much_code(const struct ptd_steps *steps, size_t times)
{
    return steps->code.count > times * KEPT_NODES || steps->joins.legs.count > times * KEPT_LEGS ||
           steps->joins.legs.item_count > times * KEPT_ITEMS;
}

static bool many_steps(const struct ptd_steps *steps, size_t times)
{
    return steps->count > times * KEPT_STEPS || steps->list_count > times * KEPT_LISTS;
}

int ptd_steps_enter(struct ptd_steps *steps, const struct ptd_space *space)
{
    size_t count;
    const int32_t *sections = ptd_space_sections(space, &count);
    bool gone = any_gone(steps, sections, count);
    int32_t *copy = malloc((count ? count : 1) * sizeof *copy);
    if (!copy)
        return -ENOMEM;
    if (count)
        memcpy(copy, sections, count * sizeof *copy);
    free(steps->sections);
    steps->sections = copy;
    steps->section_count = count;
    if (gone || much_code(steps, 1) || !steps->table || steps->stamp == UINT32_MAX) {
        steps->stamp = 0;
        if (ptd_steps_drop(steps) < 0)
            return -ENOMEM;
    }
    steps->stamp++;
    return 0;
}

int ptd_steps_bound(struct ptd_steps *steps)
{
    return many_steps(steps, 1) || !steps->table ? table_drop(steps) : 0;
}

bool ptd_steps_full(const struct ptd_steps *steps)
{
    return many_steps(steps, 2) || much_code(steps, MOST);
}

/* ---- legs ---- */

int ptd_steps_leg(struct ptd_steps *steps, const struct ptd_run *run, uint32_t *ret)
{
    const struct ptd_node *nodes = steps->code.nodes;
    struct ptd_sums sums = {.blocks = (int32_t)run->length};
    uint64_t hash;
    *ret = ptd_joins_find(&steps->joins, run, &hash);
    if (*ret)
        return 0;
    for (uint32_t i = 0; i < run->length; i++) {
        sums.instructions += nodes[run->blocks[i]].instructions;
        sums.branches += nodes[run->blocks[i]].last != PTD_OTHER;
    }
    return ptd_joins_add_leg(&steps->joins, run, hash, &sums, (enum ptd_class)nodes[run->blocks[run->length - 1]].last,
                             ret);
}

/* ---- walking ---- */

struct walk {
    struct ptd_steps *steps;
    struct ptd_space *space;
    const struct ptd_returns *returns;
    uint64_t bits;
    unsigned left; /* bits */
    bool flush;
    int32_t node;
    size_t pushes;
    uint32_t pops;
    size_t peak; /* return addresses at most, beyond those that were there */
    int32_t popped[PTD_STEP_BITS];
    enum ptd_step_end end;
    bool full;
};

static bool take_bit(struct walk *walk)
{
    bool bit = walk->bits >> 63;
    walk->bits <<= 1;
    walk->left--;
    return bit;
}

/* Where a compressed return leads, -1 when nothing is on the stack. */
static int32_t pop(struct walk *walk)
{
    if (walk->pushes)
        return walk->steps->pushed[--walk->pushes];
    if (walk->pops >= walk->returns->depth || walk->pops == PTD_STEP_BITS)
        return -1;
    int32_t node = walk->returns->nodes[(walk->returns->top - 1 - walk->pops) % PTD_RETURNS];
    walk->popped[walk->pops++] = node;
    return node;
}

static int push(struct walk *walk, int32_t node)
{
    if (node < 0)
        return node;
    walk->steps->pushed[walk->pushes++] = node; /* at most one for each block walked over */
    if (walk->pushes > walk->pops && walk->peak < walk->pushes - walk->pops)
        walk->peak = walk->pushes - walk->pops;
    return 0;
}

/* Go on to a node. Returns 0 to go on, 1 when the step ends there. */
static int go_to(struct walk *walk, int32_t node, bool used_bit)
{
    if (node < 0)
        return node == -1 ? -EILSEQ : node;
    walk->node = node;
    walk->full = walk->steps->walked.length == PATH_MAX_BLOCKS;
    if ((used_bit && !walk->left && !walk->flush) || walk->full) {
        walk->end = PTD_STEP_AT_NODE;
        return 1;
    }
    return 0;
}

static int stop_at(struct walk *walk, enum ptd_step_end end)
{
    walk->full = walk->steps->walked.length == PATH_MAX_BLOCKS;
    walk->end = end;
    return 1;
}

/* Walk over the node's block. Returns 0 to go on, 1 at the step's end, -EILSEQ or -ENOMEM. */
static int walk_over(struct walk *walk)
{
    struct ptd_code *code = &walk->steps->code;
    int32_t at = walk->node;
    if (code->nodes[at].kind == PTD_NODE_NEW && ptd_code_decode(code, walk->space, at) < 0)
        return -EILSEQ;
    walk->steps->walked.blocks[walk->steps->walked.length++] = at;
    switch ((enum ptd_node_kind)code->nodes[at].kind) {
    case PTD_NODE_ON:
        return go_to(walk, ptd_code_end(code, at), false);
    case PTD_NODE_JUMP:
        return go_to(walk, ptd_code_target(code, at), false);
    case PTD_NODE_CALL:
        if (ptd_node_pushes(&code->nodes[at]) && push(walk, ptd_code_end(code, at)) < 0)
            return -ENOMEM;
        return go_to(walk, ptd_code_target(code, at), false);
    case PTD_NODE_COND:
        if (!walk->left)
            return -EILSEQ;
        return go_to(walk, take_bit(walk) ? ptd_code_target(code, at) : ptd_code_end(code, at), true);
    case PTD_NODE_RETURN:
        if (!walk->left)
            return walk->flush ? stop_at(walk, PTD_STEP_RETURN) : -EILSEQ;
        return take_bit(walk) ? go_to(walk, pop(walk), true) : -EILSEQ;
    case PTD_NODE_IND_CALL:
        return push(walk, ptd_code_end(code, at)) < 0 ? -ENOMEM : stop_at(walk, PTD_STEP_BRANCH);
    case PTD_NODE_ELSEWHERE:
        return stop_at(walk, PTD_STEP_BRANCH);
    case PTD_NODE_NEW:
    case PTD_NODE_PART:
        break;
    }
    return -EILSEQ;
}

/* ---- keeping ---- */

static struct ptd_step *free_entry(struct ptd_steps *steps, uint64_t slot)
{
    while (steps->table[slot].node >= 0)
        slot = (slot + 1) & steps->mask;
    return &steps->table[slot];
}

/* Where a step is looked for. */
static uint64_t slot_of(const struct ptd_steps *steps, const struct ptd_step *step)
{
    uint64_t hash = ptd_steps_hash(step->node, step->bits & ~(unsigned)PTD_STEP_POPPED);
    for (uint32_t i = 0; i < step->hashed; i++)
        hash = ptd_steps_hash_on(hash, ptd_step_returns(steps, step)[i]);
    return ptd_steps_slot(steps, hash);
}

static int grow_table(struct ptd_steps *steps)
{
    struct ptd_step *old = steps->table;
    size_t size = steps->mask + 1;
    if (table_init(steps, 2 * size) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < size; i++) {
        if (old[i].node < 0)
            continue;
        *free_entry(steps, slot_of(steps, &old[i])) = old[i];
    }
    free(old);
    return 0;
}

static int make_room(struct ptd_steps *steps, size_t elements)
{
    if (steps->list_count + elements > steps->list_capacity) {
        size_t capacity = steps->list_capacity ? 2 * steps->list_capacity : 8 * FIRST_STEPS;
        while (capacity < steps->list_count + elements)
            capacity *= 2;
        if (ptd_grow(&steps->lists, capacity, sizeof *steps->lists) < 0)
            return -ENOMEM;
        ptd_huge(steps->lists, capacity * sizeof *steps->lists);
        steps->list_capacity = capacity;
    }
    return 8 * steps->count > 5 * steps->mask ? grow_table(steps) : 0; /* there is room for two more */
}

/*
 * Steps of a key depend on the return stack: say so in its entry. Returns how many return addresses say where they are
 * looked for. Those that were there when that became less are not found any more, and walked again.
 */
static uint8_t mark_popped(struct ptd_steps *steps, int32_t node, uint16_t key, uint8_t pops)
{
    uint64_t slot = ptd_steps_slot(steps, ptd_steps_hash(node, key));
    struct ptd_step *step = &steps->table[slot];
    for (; step->node >= 0; step = &steps->table[slot = (slot + 1) & steps->mask]) {
        if (step->node == node && step->bits == key) {
            step->pops = step->pops < pops ? step->pops : pops;
            return step->pops;
        }
    }
    *step = (struct ptd_step){.node = node, .bits = key, .end = PTD_STEP_POPS, .pops = pops};
    steps->count++;
    return pops;
}

static int keep(struct walk *walk, int32_t node, unsigned count, uint16_t key, struct ptd_step **ret)
{
    struct ptd_steps *steps = walk->steps;
    size_t pushes = walk->pushes;
    if (walk->peak > PTD_STEP_DEEPEST || pushes > PTD_STEP_DEEPEST)
        return -EILSEQ;
    if (make_room(steps, walk->pops + pushes) < 0)
        return -ENOMEM;
    struct ptd_step step = {
        .node = node,
        .bits = walk->pops ? key | PTD_STEP_POPPED : key,
        .used = (uint8_t)(count - walk->left),
        .end = (uint8_t)walk->end,
        .next = walk->end == PTD_STEP_AT_NODE ? walk->node : -1,
        .pops = (uint8_t)walk->pops,
        .pushes = (uint8_t)pushes,
        .peak = (uint8_t)walk->peak,
        .full = walk->full,
    };
    int error = ptd_steps_leg(steps, &steps->walked, &step.leg);
    if (error < 0)
        return error;
    step.returns.list = (uint32_t)steps->list_count;
    int32_t *returns = (int32_t *)ptd_step_returns(steps, &step);
    if (returns != step.returns.few)
        steps->list_count += walk->pops + pushes;
    memcpy(returns, walk->popped, walk->pops * sizeof *returns);
    memcpy(returns + walk->pops, steps->pushed, pushes * sizeof *returns);
    if (walk->pops)
        step.hashed = mark_popped(steps, node, key, (uint8_t)walk->pops) & 0x7F;
    steps->count++;
    *ret = free_entry(steps, slot_of(steps, &step));
    **ret = step;
    return 0;
}

int ptd_steps_walk(struct ptd_steps *steps, struct ptd_space *space, const struct ptd_returns *returns, int32_t node,
                   uint64_t bits, unsigned count, bool flush, struct ptd_step **ret)
{
    struct walk walk = {
        .steps = steps, .space = space, .returns = returns, .bits = bits, .left = count, .flush = flush, .node = node};
    if (ptd_steps_full(steps))
        return -EILSEQ;
    int status;
    ptd_run_reset(&steps->walked);
    do
        status = walk_over(&walk);
    while (status == 0);
    return status < 0 ? status : keep(&walk, node, count, ptd_steps_key(bits, count, flush), ret);
}
