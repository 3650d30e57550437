/* SPDX-License-Identifier: MIT */
/*
 * The static control flow of the code that was executed: a node for each address execution went on at, with the block
 * that begins there and where it leads. Nodes are decoded when they are first walked over, by libipt's own instruction
 * decoder, so that both decoders agree about what an instruction is.
 */
#ifndef PTD_CACHED_CODE_H
#define PTD_CACHED_CODE_H

#include "api.h"

#include <stdbool.h>

enum ptd_node_kind {
    PTD_NODE_NEW,     /* not decoded */
    PTD_NODE_ON,      /* goes on at the next block without a branch: the section ends */
    PTD_NODE_JUMP,    /* direct */
    PTD_NODE_CALL,    /* direct */
    PTD_NODE_COND,
    PTD_NODE_RETURN,
    PTD_NODE_IND_CALL,
    PTD_NODE_ELSEWHERE /* indirect jumps and far transfers: a packet says where to */
};

struct ptd_node {
    uint64_t ip;
    uint64_t last_ip;
    uint64_t end;
    uint64_t target; /* of direct branches */
    int32_t isid;
    int32_t target_node, end_node; /* -1: not looked up yet */
    uint16_t instructions;
    uint8_t kind;
    uint8_t last; /* enum ptd_class */
    bool call;    /* ends in a near or far call */
    /* the block's number in the tables whose stamp this is */
    int32_t block;
    uint32_t stamp;
};

struct ptd_code {
    struct ptd_node *nodes;
    size_t count, capacity;
    uint32_t *table; /* node + 1 by hash of its ip, 0 empty; at most half full */
    uint64_t table_mask;
};

/* Returns 0 or -ENOMEM; deinit also takes an object whose init failed. */
int ptd_code_init(struct ptd_code *code);
void ptd_code_deinit(struct ptd_code *code);

/* The node of an address, added when it is new; -ENOMEM. */
int32_t ptd_code_at(struct ptd_code *code, uint64_t ip);

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
