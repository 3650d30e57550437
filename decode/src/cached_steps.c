/* SPDX-License-Identifier: MIT */
/*
 * Steps: walking them, keeping them, dropping them.
 *
 * Memory is bounded: ptd_steps_bound drops everything beyond KEPT_STEPS steps, KEPT_NODES nodes or KEPT_LISTS list
 * elements (under 150 MiB in all), and nothing is added beyond twice that. Owns all its memory; not thread-safe.
 */
#define _GNU_SOURCE /* madvise */
#include "cached_steps.h"
#include "grow.h"
#include "huge.h"
#include "images.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_STEPS = 1024, KEPT_STEPS = 1 << 20, KEPT_NODES = 1 << 19, KEPT_LISTS = 1 << 24 };

static int table_init(struct ptd_steps *steps, size_t size)
{
    size_t bytes = size * sizeof(struct ptd_step);
    struct ptd_step *table = aligned_alloc(bytes < PTD_HUGE_PAGE ? 64 : PTD_HUGE_PAGE, bytes);
    if (!table)
        return -ENOMEM;
    ptd_huge(table, bytes);
    for (size_t i = 0; i < size; i++)
        table[i].node = -1;
    steps->table = table;
    steps->mask = size - 1;
    steps->shift = (unsigned)__builtin_clzll(size) + 1;
    return 0;
}

/* Everything but the sections. */
static int contents_init(struct ptd_steps *steps)
{
    steps->count = steps->list_count = steps->list_capacity = 0;
    steps->last_stamp = 0;
    steps->lists = NULL;
    steps->table = NULL;
    int code = ptd_code_init(&steps->code), table = table_init(steps, 2 * FIRST_STEPS);
    return code < 0 ? code : table;
}

static void contents_deinit(struct ptd_steps *steps)
{
    ptd_code_deinit(&steps->code);
    free(steps->table);
    free(steps->lists);
}

struct ptd_steps *ptd_steps_create(void)
{
    struct ptd_steps *steps = calloc(1, sizeof *steps);
    if (steps && contents_init(steps) < 0) {
        ptd_steps_destroy(steps);
        return NULL;
    }
    return steps;
}

void ptd_steps_destroy(struct ptd_steps *steps)
{
    if (!steps)
        return;
    contents_deinit(steps);
    free(steps->sections);
    free(steps);
}

static int drop(struct ptd_steps *steps)
{
    contents_deinit(steps);
    steps->generation++;
    return contents_init(steps);
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
        if (steps->code.nodes[i].isid >= 0 && !contains(sections, count, steps->code.nodes[i].isid))
            return true;
    return false;
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
    return gone || !steps->table ? drop(steps) : 0;
}

static bool beyond(const struct ptd_steps *steps, size_t times)
{
    return steps->count > times * KEPT_STEPS || steps->code.count > times * KEPT_NODES ||
           steps->list_count > times * KEPT_LISTS;
}

int ptd_steps_bound(struct ptd_steps *steps)
{
    return beyond(steps, 1) || !steps->table ? drop(steps) : 0;
}

bool ptd_steps_full(const struct ptd_steps *steps)
{
    return beyond(steps, 2);
}

uint16_t ptd_steps_stamp(struct ptd_steps *steps)
{
    if (steps->last_stamp == UINT16_MAX && drop(steps) < 0)
        return 0;
    return ++steps->last_stamp;
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
    size_t length, pushes;
    uint32_t pops;
    size_t peak; /* return addresses at most, beyond those that were there */
    int32_t popped[PTD_STEP_BITS];
    uint32_t instructions, branches;
    enum ptd_step_end end;
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
    if ((used_bit && !walk->left && !walk->flush) || walk->length == PATH_MAX_BLOCKS) {
        walk->end = PTD_STEP_AT_NODE;
        return 1;
    }
    return 0;
}

static int stop_at(struct walk *walk, enum ptd_step_end end)
{
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
    walk->steps->walked[walk->length++] = at;
    walk->instructions += code->nodes[at].instructions;
    walk->branches += code->nodes[at].kind != PTD_NODE_ON;
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
        break;
    }
    return -EILSEQ;
}

/* ---- keeping ---- */

static int grow_table(struct ptd_steps *steps)
{
    struct ptd_step *old = steps->table;
    size_t size = steps->mask + 1;
    if (table_init(steps, 2 * size) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < size; i++) {
        if (old[i].node < 0)
            continue;
        uint64_t slot = ptd_steps_slot(steps, old[i].node, old[i].bits);
        while (steps->table[slot].node >= 0)
            slot = (slot + 1) & steps->mask;
        steps->table[slot] = old[i];
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
    return 2 * steps->count > steps->mask ? grow_table(steps) : 0;
}

static int keep(struct walk *walk, int32_t node, unsigned count, uint16_t key, struct ptd_step **ret)
{
    struct ptd_steps *steps = walk->steps;
    size_t pushes = walk->pushes;
    if (walk->peak > PTD_STEP_DEEPEST || pushes > PTD_STEP_DEEPEST)
        return -EILSEQ;
    if (make_room(steps, walk->length + walk->pops + pushes) < 0)
        return -ENOMEM;
    int32_t *list = steps->lists + steps->list_count;
    memcpy(list, steps->walked, walk->length * sizeof *list);
    memcpy(list + walk->length, walk->popped, walk->pops * sizeof *list);
    memcpy(list + walk->length + walk->pops, steps->pushed, pushes * sizeof *list);

    uint64_t slot = ptd_steps_slot(steps, node, key);
    while (steps->table[slot].node >= 0)
        slot = (slot + 1) & steps->mask;
    steps->table[slot] = (struct ptd_step){
        .node = node,
        .bits = key,
        .used = (uint8_t)(count - walk->left),
        .pops = (uint8_t)walk->pops,
        .next = walk->end == PTD_STEP_AT_NODE ? walk->node : -1,
        .list = (uint32_t)steps->list_count,
        .pushes = (uint8_t)pushes,
        .end = walk->end & 3,
        .peak = walk->peak & 63,
        .length = (uint16_t)walk->length,
        .branches = (uint16_t)walk->branches,
        .instructions = walk->instructions,
    };
    steps->list_count += walk->length + walk->pops + pushes;
    steps->count++;
    *ret = &steps->table[slot];
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
    do
        status = walk_over(&walk);
    while (status == 0);
    return status < 0 ? status : keep(&walk, node, count, ptd_steps_key(bits, count, flush), ret);
}
