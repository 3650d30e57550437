/* SPDX-License-Identifier: MIT */
/*
 * Nodes of the static control flow. Owns all its memory, which grows with the code that was executed; whoever owns
 * the object bounds it by dropping it. Not thread-safe.
 */
#include "cached_code.h"
#include "grow.h"
#include "hash.h"
#include "images.h"
#include "walker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_NODES = 512 };

int ptd_code_init(struct ptd_code *code)
{
    memset(code, 0, sizeof *code);
    code->table_mask = 2 * FIRST_NODES - 1;
    code->table = calloc(code->table_mask + 1, sizeof *code->table);
    return code->table ? 0 : -ENOMEM;
}

void ptd_code_deinit(struct ptd_code *code)
{
    free(code->nodes);
    free(code->table);
}

static struct ptd_node_entry *free_entry(struct ptd_code *code, uint64_t ip)
{
    uint64_t slot = ptd_mix(ip) & code->table_mask;
    while (code->table[slot].node_plus_1)
        slot = (slot + 1) & code->table_mask;
    return &code->table[slot];
}

static int grow_table(struct ptd_code *code)
{
    struct ptd_node_entry *old = code->table;
    uint64_t size = code->table_mask + 1;
    struct ptd_node_entry *table = calloc(2 * size, sizeof *table);
    if (!table)
        return -ENOMEM;
    code->table = table;
    code->table_mask = 2 * size - 1;
    for (uint64_t i = 0; i < size; i++)
        if (old[i].node_plus_1)
            *free_entry(code, old[i].ip) = old[i];
    free(old);
    return 0;
}

static int make_room(struct ptd_code *code)
{
    if (code->count == code->capacity) {
        size_t capacity = code->capacity ? 2 * code->capacity : FIRST_NODES;
        if (capacity > INT32_MAX || ptd_grow(&code->nodes, capacity, sizeof *code->nodes) < 0)
            return -ENOMEM;
        code->capacity = capacity;
    }
    return 2 * code->count > code->table_mask ? grow_table(code) : 0;
}

static int32_t add(struct ptd_code *code, const struct ptd_node *node)
{
    if (make_room(code) < 0)
        return -ENOMEM;
    code->nodes[code->count] = *node;
    *free_entry(code, node->ip) = (struct ptd_node_entry){
        .ip = node->ip, .node_plus_1 = (uint32_t)++code->count, .part = node->kind == PTD_NODE_PART};
    return (int32_t)code->count - 1;
}

int32_t ptd_code_add(struct ptd_code *code, uint64_t ip)
{
    return add(code, &(struct ptd_node){
        .ip = ip, .kind = PTD_NODE_NEW, .section = -1, .target_node = -1, .end_node = -1, .block = -1});
}

int32_t ptd_code_part(struct ptd_code *code, uint64_t ip, const struct ptd_straight *straight, int32_t section)
{
    uint64_t slot = ptd_mix(ip) & code->table_mask;
    for (; code->table[slot].node_plus_1; slot = (slot + 1) & code->table_mask) {
        uint32_t node = code->table[slot].node_plus_1 - 1;
        if (code->table[slot].part && code->table[slot].ip == ip && code->nodes[node].end == straight->end)
            return (int32_t)node;
    }
    return add(code, &(struct ptd_node){
        .ip = ip,
        .kind = PTD_NODE_PART,
        .last_ip = straight->last_ip,
        .end = straight->end,
        .section = section,
        .instructions = (uint16_t)straight->instructions,
        .last = (uint8_t)straight->last,
        .target_node = -1,
        .end_node = -1,
        .block = -1,
    });
}

static enum ptd_node_kind kind_of(enum ptd_class last)
{
    switch (last) {
    case PTD_OTHER:
        return PTD_NODE_ON;
    case PTD_COND_JUMP:
        return PTD_NODE_COND;
    case PTD_JUMP:
        return PTD_NODE_JUMP;
    case PTD_CALL:
        return PTD_NODE_CALL;
    case PTD_IND_CALL:
        return PTD_NODE_IND_CALL;
    case PTD_RETURN:
        return PTD_NODE_RETURN;
    case PTD_IND_JUMP:
    case PTD_SYSCALL:
    case PTD_FAR:
        break;
    }
    return PTD_NODE_ELSEWHERE;
}

int ptd_code_decode(struct ptd_code *code, struct ptd_space *space, int32_t number)
{
    struct ptd_node *node = &code->nodes[number];
    struct ptd_straight straight;
    if (ptd_walker_straight(ptd_space_walker(space), node->ip, 0, &straight) < 0)
        return -EILSEQ;
    node->last_ip = straight.last_ip;
    node->end = straight.end;
    node->target = straight.target;
    node->section = ptd_space_section(space, straight.isid);
    node->instructions = (uint16_t)straight.instructions;
    node->last = (uint8_t)straight.last;
    node->call = straight.call;
    node->kind = kind_of(straight.last);
    return 0;
}
