/* SPDX-License-Identifier: MIT */
/*
 * The static control flow of the code that was executed: a node for each address execution went on at, with the block
 * that begins there and where it leads. Nodes are decoded when they are first walked over, by libipt's own instruction
 * decoder, so that both decoders agree about what an instruction is.
 */
#ifndef PTD_CACHED_CODE_H
#define PTD_CACHED_CODE_H

#include "api.h"
#include "hash.h"
#include "walker.h"

#include <stdbool.h>

enum ptd_node_kind {
    PTD_NODE_NEW,     /* not decoded */
    PTD_NODE_ON,      /* goes on at the next block without a branch: the section ends */
    PTD_NODE_JUMP,    /* direct */
    PTD_NODE_CALL,    /* direct */
    PTD_NODE_COND,
    PTD_NODE_RETURN,
    PTD_NODE_IND_CALL,
    PTD_NODE_ELSEWHERE, /* indirect jumps and far transfers: a packet says where to */
    PTD_NODE_PART /* the beginning of a block, up to where an event cut it: execution goes on nowhere */
};

struct ptd_node {
    uint64_t ip;
    uint64_t last_ip;
    uint64_t end;
    uint64_t target; /* of direct branches */
    int32_t section; /* -1: not known */
    int32_t target_node, end_node; /* -1: not looked up yet */
    uint16_t instructions;
    uint8_t kind;
    uint8_t last; /* enum ptd_class */
    bool call;    /* ends in a near or far call */
    /* the block's number in the tables whose stamp this is */
    int32_t block;
    uint32_t stamp;
};

/* Where a node is found. */
struct ptd_node_entry {
    uint64_t ip;
    uint32_t node_plus_1; /* 0: the entry is empty */
    bool part;
};

struct ptd_code {
    struct ptd_node *nodes;
    size_t count, capacity;
    struct ptd_node_entry *table; /* by hash of the ip; at most half full */
    uint64_t table_mask;
};

/* Returns 0 or -ENOMEM; deinit also takes an object whose init failed. */
int ptd_code_init(struct ptd_code *code);
void ptd_code_deinit(struct ptd_code *code);

/* The node of an address that is not there yet; -ENOMEM. */
int32_t ptd_code_add(struct ptd_code *code, uint64_t ip);

/* The node of an address, added when it is new; -ENOMEM. */
static inline int32_t ptd_code_at(struct ptd_code *code, uint64_t ip)
{
    const struct ptd_node_entry *entry = &code->table[ptd_mix(ip) & code->table_mask];
    for (; entry->node_plus_1; entry = entry < code->table + code->table_mask ? entry + 1 : code->table)
        if (entry->ip == ip && !entry->part)
            return (int32_t)(entry->node_plus_1 - 1);
    return ptd_code_add(code, ip);
}

/* The node of a block's beginning, added when it is new; -ENOMEM. */
int32_t ptd_code_part(struct ptd_code *code, uint64_t ip, const struct ptd_straight *straight, int32_t section);

/* Decode a new node. Returns 0, or -EILSEQ when there is no such code in `space`, or none that is ours to decode. */
int ptd_code_decode(struct ptd_code *code, struct ptd_space *space, int32_t node);

/* Nodes after a node; -ENOMEM. */
static inline int32_t ptd_code_target(struct ptd_code *code, int32_t node)
{
    if (code->nodes[node].target_node < 0) {
        int32_t target = ptd_code_at(code, code->nodes[node].target);
        code->nodes[node].target_node = target;
    }
    return code->nodes[node].target_node;
}

static inline int32_t ptd_code_end(struct ptd_code *code, int32_t node)
{
    if (code->nodes[node].end_node < 0) {
        int32_t end = ptd_code_at(code, code->nodes[node].end);
        code->nodes[node].end_node = end;
    }
    return code->nodes[node].end_node;
}

/* Whether a direct call takes part in return compression: one to the next instruction does not. */
static inline bool ptd_node_pushes(const struct ptd_node *node)
{
    return node->target != node->end;
}

#endif
