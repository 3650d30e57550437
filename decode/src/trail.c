/* SPDX-License-Identifier: MIT */
/* The memory of runs; what comes when it has MOST_NODES is not remembered. Owns its memory; not thread-safe. */
#include "trail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_NODES = 64, MOST_NODES = 1 << 18, MOST_SIBLINGS = 32 };

static int grow(struct ptd_trail *trail, uint32_t capacity)
{
    struct ptd_trail_node *nodes = aligned_alloc(sizeof *nodes, capacity * sizeof *nodes);
    if (!nodes)
        return -ENOMEM;
    if (trail->count)
        memcpy(nodes, trail->nodes, trail->count * sizeof *nodes);
    free(trail->nodes);
    trail->nodes = nodes;
    trail->capacity = capacity;
    return 0;
}

int ptd_trail_init(struct ptd_trail *trail)
{
    memset(trail, 0, sizeof *trail);
    trail->starts = calloc(PTD_TRAIL_STARTS, sizeof *trail->starts);
    int error = grow(trail, FIRST_NODES);
    if (error < 0 || !trail->starts)
        return -ENOMEM;
    memset(trail->nodes, 0, sizeof *trail->nodes);
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

/* A new node; 0: there is no room. */
static uint32_t add(struct ptd_trail *trail, const struct ptd_block_hit *hit)
{
    if (trail->count == trail->capacity && (trail->count == MOST_NODES || grow(trail, 2 * trail->capacity) < 0))
        return 0;
    trail->nodes[trail->count] = (struct ptd_trail_node){
        .ip = hit->ip,
        .end_ip = hit->end_ip,
        .rest = ptd_trail_rest(hit->isid, hit->instructions, hit->mode),
        .block = hit->block,
        .last = hit->last,
    };
    return trail->count++;
}

/* Make a node the one to be tried first, or else the second. */
static void link_start(struct ptd_trail_node *from, uint32_t to, uint64_t ip)
{
    bool second = from->ends && from->successors[0] && from->first_ip != ip;
    from->ends = true;
    from->successors[second] = to;
    if (!second)
        from->first_ip = ip;
}

/* The first node of a run, 0: there is no room. */
static uint32_t start(struct ptd_trail *trail, const struct ptd_block_hit *hit)
{
    uint32_t slot = (uint32_t)(ptd_block_hash(hit->ip, hit->end_ip) % PTD_TRAIL_STARTS);
    if (!node_is(&trail->nodes[trail->starts[slot]], hit)) {
        uint32_t node = add(trail, hit);
        if (!node)
            return 0;
        trail->starts[slot] = node;
    }
    struct ptd_trail_node *at = &trail->nodes[trail->at];
    if (trail->at && (at->ends || !at->successors[0]))
        link_start(at, trail->starts[slot], hit->ip);
    return trail->starts[slot];
}

/* A child of the node we are at, 0: there is no room. */
static uint32_t new_child(struct ptd_trail *trail, const struct ptd_block_hit *hit)
{
    uint32_t node = add(trail, hit);
    if (!node)
        return 0;
    struct ptd_trail_node *at = &trail->nodes[trail->at];
    if (!at->successors[0]) {
        at->successors[0] = node;
        at->first_ip = hit->ip;
        return node;
    }
    trail->nodes[node].sibling = at->successors[1];
    at->successors[1] = node;
    return node;
}

/* The child of the node we are at; of the others in the list it is now the head. 0: there is no room. */
static uint32_t child(struct ptd_trail *trail, const struct ptd_block_hit *hit)
{
    struct ptd_trail_node *at = &trail->nodes[trail->at];
    if (node_is(&trail->nodes[at->successors[0]], hit))
        return at->successors[0];
    uint32_t before = 0, node = at->successors[1];
    for (int i = 0; node && i < MOST_SIBLINGS && !node_is(&trail->nodes[node], hit); i++) {
        before = node;
        node = trail->nodes[node].sibling;
    }
    if (!node || !node_is(&trail->nodes[node], hit))
        return new_child(trail, hit);
    if (before) {
        trail->nodes[before].sibling = trail->nodes[node].sibling;
        trail->nodes[node].sibling = at->successors[1];
        at->successors[1] = node;
    }
    return node;
}

void ptd_trail_learn(struct ptd_trail *trail, const struct ptd_block_hit *hit, uint32_t length)
{
    if (trail->length != length)
        return;
    if (length && trail->nodes[trail->at].ends) { /* runs ended here that now go on */
        trail->length = PTD_TRAIL_LOST;
        return;
    }
    uint32_t node = length ? child(trail, hit) : start(trail, hit);
    trail->at = node;
    trail->length = node ? length + 1 : PTD_TRAIL_LOST;
}
