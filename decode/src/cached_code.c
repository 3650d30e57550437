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

static int grow_table(struct ptd_code *code)
{
    uint64_t mask = 2 * code->table_mask + 1;
    uint32_t *table = calloc(mask + 1, sizeof *table);
    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < code->count; i++) {
        uint64_t slot = ptd_mix(code->nodes[i].ip) & mask;
        while (table[slot])
            slot = (slot + 1) & mask;
        table[slot] = (uint32_t)i + 1;
    }
    free(code->table);
    code->table = table;
    code->table_mask = mask;
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

int32_t ptd_code_at(struct ptd_code *code, uint64_t ip)
{
    uint64_t slot = ptd_mix(ip) & code->table_mask;
    for (; code->table[slot]; slot = (slot + 1) & code->table_mask)
        if (code->nodes[code->table[slot] - 1].ip == ip)
            return (int32_t)(code->table[slot] - 1);
    if (make_room(code) < 0)
        return -ENOMEM;
    slot = ptd_mix(ip) & code->table_mask;
    while (code->table[slot])
        slot = (slot + 1) & code->table_mask;
    code->nodes[code->count] = (struct ptd_node){
        .ip = ip, .kind = PTD_NODE_NEW, .isid = -1, .target_node = -1, .end_node = -1, .block = -1};
    code->table[slot] = (uint32_t)++code->count;
    return (int32_t)code->count - 1;
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
    node->isid = straight.isid;
    node->instructions = (uint16_t)straight.instructions;
    node->last = (uint8_t)straight.last;
    node->call = straight.call;
    node->kind = kind_of(straight.last);
    return 0;
}
