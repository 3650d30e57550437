/* SPDX-License-Identifier: MIT */
/*
 * Hops: where an indirect branch goes again and again, in the same packets. Where execution stands, the bits that wait,
 * and the bytes of a TIP with a TNT before it if there is one -> the step to the branch, and the node behind it. That is
 * one look instead of reading two packets and looking for a step and a node one after the other.
 *
 * A hop says nothing that is not said by packets, steps and nodes; it takes the place of whatever lay there. Void with
 * the steps, whose places it knows. What time and events want of packets is up to the caller.
 */
#ifndef PTD_CACHED_HOPS_H
#define PTD_CACHED_HOPS_H

#include "cached_packets.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    PTD_HOPS_LOG = 12,
    PTD_HOP_BYTES = 6, /* of packets, at most */
    PTD_HOP_READ = 8   /* bytes that are read */
};

/* Two to a cache line. */
struct ptd_hop {
    uint64_t packets; /* their bytes, and above them the bits that waited as in a step's key */
    uint64_t ip;      /* where the TIP leads */
    int32_t node;     /* -1: the entry is empty */
    int32_t next;     /* the node at `ip` */
    uint32_t step;    /* its place in the table */
    uint8_t bits;     /* that it uses, with those that waited */
};

/* A TIP, and a TNT of one byte before it if there is one, as a hop may have them. */
struct ptd_hop_packets {
    uint64_t bytes;
    unsigned size;    /* 0: there is something else */
    unsigned tnt;     /* bytes of the TNT */
    unsigned ip_bits; /* of the address that are in the TIP */
};

/* Read eight bytes at `at`. Compressed addresses only: whole ones do not fit. */
static inline struct ptd_hop_packets ptd_hop_packets_at(const uint8_t *at)
{
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes); /* little-endian, as packets are */
    unsigned first = bytes & 0xFF, tnt = !(first & 1) && first > PTD_OPC_EXTENDED;
    unsigned opcode = bytes >> 8 * tnt & 0xFF, form = opcode >> 5; /* 1: two bytes, 2: four */
    bool fits = (opcode & 0x1F) == PTD_OPC_TIP && form - 1 < 2;
    unsigned size = tnt + 1 + 2 * form;
    return (struct ptd_hop_packets){.bytes = fits ? bytes & ((UINT64_C(1) << 8 * size) - 1) : 0,
                                    .size = fits ? size : 0, .tnt = tnt, .ip_bits = 16 * form};
}

/* Where the hop of packets, with the bits that waited above them, lies or would lie. */
static inline struct ptd_hop *ptd_hops_at(struct ptd_hop *hops, int32_t node, uint64_t packets)
{
    uint64_t hash = packets * UINT64_C(0x9E3779B97F4A7C15) + (uint32_t)node * UINT64_C(0xD6E8FEB86659FD93);
    return &hops[hash >> (64 - PTD_HOPS_LOG)];
}

/* Whether an entry is of those packets, which came after one of the address `last`. */
static inline bool ptd_hop_is(const struct ptd_hop *hop, int32_t node, uint64_t packets, unsigned ip_bits, uint64_t last)
{
    return hop->packets == packets && hop->node == node && (hop->ip ^ last) >> ip_bits == 0;
}

#endif
