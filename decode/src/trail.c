/* SPDX-License-Identifier: MIT */
/* The memory of runs; what comes when it has MOST_NODES is not remembered. Owns its memory; not thread-safe. */
#define _GNU_SOURCE /* madvise */
#include "trail.h"
#include "huge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifndef PTD_TRAIL_NODES /* a power of two; fewer in tests: a sanitizer marks all of this memory for each decoder */
/* 64 MB, of which as much is used as is written; with a quarter gcc takes a twentieth longer */
#define PTD_TRAIL_NODES (1 << 20)
#endif

enum {
    MOST_NODES = PTD_TRAIL_NODES,
    MOST_SIBLINGS = 32
};

/* What a node is before it has successors. */
static struct ptd_trail_node *none_of(struct ptd_trail *trail)
{
    return &trail->nodes[0];
}

int ptd_trail_init(struct ptd_trail *trail)
{
    memset(trail, 0, sizeof *trail);
    trail->starts = calloc(PTD_TRAIL_STARTS, sizeof *trail->starts);
    trail->nodes = ptd_huge_alloc(MOST_NODES * sizeof *trail->nodes); /* pages are taken as they are written */
    if (!trail->starts || !trail->nodes)
        return -ENOMEM;
    struct ptd_trail_node *none = none_of(trail);
    *none = (struct ptd_trail_node){.successors = {none, none}};
    trail->at = none;
    trail->count = 1;
    return 0;
}

void ptd_trail_deinit(struct ptd_trail *trail)
{
    free(trail->nodes);
    free(trail->starts);
}

static bool node_is(const struct ptd_trail_node *node, const struct ptd_block_hit *hit)
{
    return node->ip == hit->ip && node->end_ip == hit->end_ip &&
           node->rest == ptd_trail_rest(hit->isid, hit->instructions, hit->mode);
}

/* A new node; that of no block: there is no room. */
static struct ptd_trail_node *add(struct ptd_trail *trail, const struct ptd_block_hit *hit)
{
    struct ptd_trail_node *none = none_of(trail);
    if (trail->count == MOST_NODES)
        return none;
    struct ptd_trail_node *node = &trail->nodes[trail->count++];
    *node = (struct ptd_trail_node){
        .ip = hit->ip,
        .end_ip = hit->end_ip,
        .rest = ptd_trail_rest(hit->isid, hit->instructions, hit->mode),
        .successors = {none, none},
        .block = hit->block,
        .last = hit->last,
    };
    return node;
}

/* Make a node the one to be tried first, or else the second. */
static void link_start(struct ptd_trail *trail, struct ptd_trail_node *to)
{
    struct ptd_trail_node *from = trail->at;
    bool second = from->ends && from->successors[0] != none_of(trail) && from->first_ip != to->ip;
    from->ends = true;
    from->successors[second] = to;
    if (!second)
        from->first_ip = to->ip;
}

/* The first node of a run; that of no block: there is no room. */
static struct ptd_trail_node *start(struct ptd_trail *trail, const struct ptd_block_hit *hit)
{
    uint32_t *slot = &trail->starts[ptd_block_hash(hit->ip, hit->end_ip) % PTD_TRAIL_STARTS];
    struct ptd_trail_node *none = none_of(trail), *node = &trail->nodes[*slot];
    if (!node_is(node, hit)) {
        node = add(trail, hit);
        if (node == none)
            return none;
        *slot = (uint32_t)(node - none);
    }
    if (trail->at != none && (trail->at->ends || trail->at->successors[0] == none))
        link_start(trail, node);
    return node;
}

/* A child of the node we are at; that of no block: there is no room. */
static struct ptd_trail_node *new_child(struct ptd_trail *trail, const struct ptd_block_hit *hit)
{
    struct ptd_trail_node *node = add(trail, hit), *at = trail->at, *none = none_of(trail);
    if (node == none)
        return none;
    if (at->successors[0] == none) {
        at->successors[0] = node;
        at->first_ip = hit->ip;
        return node;
    }
    node->sibling = (uint32_t)(at->successors[1] - none);
    at->successors[1] = node;
    return node;
}

/* The child of the node we are at; of the others in the list it is now the head. That of no block: there is no room. */
static struct ptd_trail_node *child(struct ptd_trail *trail, const struct ptd_block_hit *hit)
{
    struct ptd_trail_node *at = trail->at, *none = none_of(trail);
    if (node_is(at->successors[0], hit))
        return at->successors[0];
    struct ptd_trail_node *before = NULL, *node = at->successors[1];
    for (int i = 0; node != none && i < MOST_SIBLINGS && !node_is(node, hit); i++) {
        before = node;
        node = &trail->nodes[node->sibling];
    }
    if (!node_is(node, hit))
        return new_child(trail, hit);
    if (before) {
        before->sibling = node->sibling;
        node->sibling = (uint32_t)(at->successors[1] - none);
        at->successors[1] = node;
    }
    return node;
}

void ptd_trail_learn(struct ptd_trail *trail, const struct ptd_block_hit *hit, uint32_t length)
{
    if (trail->length != length)
        return;
    if (length && trail->at->ends) { /* runs ended here that now go on */
        trail->length = PTD_TRAIL_LOST;
        return;
    }
    trail->at = length ? child(trail, hit) : start(trail, hit);
    trail->length = trail->at != none_of(trail) ? length + 1 : PTD_TRAIL_LOST;
}
