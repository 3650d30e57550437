/* SPDX-License-Identifier: MIT */
/*
 * What the path decoder reads of packets by itself (SDM vol. 3, 33.4.2). Lengths are checked before bytes are read;
 * pure functions over the caller's buffer.
 */
#ifndef PTD_CACHED_PACKETS_H
#define PTD_CACHED_PACKETS_H

#include <intel-pt.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum ptd_opcode {
    PTD_OPC_PAD = 0x00,
    PTD_OPC_EXTENDED = 0x02,
    PTD_OPC_PGD = 0x01, /* this and the next three: the low five bits */
    PTD_OPC_TIP = 0x0D,
    PTD_OPC_PGE = 0x11,
    PTD_OPC_FUP = 0x1D,
    PTD_OPC_TSC = 0x19,
    PTD_OPC_MTC = 0x59,
    PTD_OPC_MODE = 0x99,
    /* second bytes */
    PTD_EXT_PSB = 0x82,
    PTD_EXT_PSBEND = 0x23,
    PTD_EXT_TNT = 0xA3,
    PTD_EXT_CBR = 0x03,
    PTD_EXT_PIP = 0x43,
    PTD_EXT_TMA = 0x73,
    PTD_EXT_VMCS = 0xC8
};

enum { PTD_SIZE_TSC = 8, PTD_SIZE_TNT = 8, PTD_SIZE_CBR = 4, PTD_SIZE_PIP = 8, PTD_SIZE_TMA = 7, PTD_SIZE_VMCS = 7 };

/* `count` bytes, least significant first. */
static inline uint64_t ptd_packet_bytes(const uint8_t *at, unsigned count)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* An IP packet: its whole size, 0 when it is not complete or malformed. `last` is updated; `known`: it has an IP. */
static inline unsigned ptd_packet_ip(const uint8_t *at, const uint8_t *end, uint64_t *last, bool *known)
{
    static const uint8_t width[8] = {0, 2, 4, 6, 6, 0, 8, 0};
    unsigned form = at[0] >> 5, size = 1u + width[form];
    if (form == 5 || form == 7 || (uint64_t)(end - at) < size)
        return 0;
    uint64_t value = ptd_packet_bytes(at + 1, width[form]);
    *known = form != 0;
    if (form == 1)
        *last = (*last & ~UINT64_C(0xFFFF)) | value;
    else if (form == 2)
        *last = (*last & ~UINT64_C(0xFFFFFFFF)) | value;
    else if (form == 3)
        *last = (uint64_t)((int64_t)(value << 16) >> 16);
    else if (form == 4)
        *last = (*last & ~UINT64_C(0xFFFFFFFFFFFF)) | value;
    else if (form == 6)
        *last = value;
    return size;
}

/* Whether a TMA packet's reserved bits are clear. */
static inline bool ptd_packet_is_tma(const uint8_t *at)
{
    return !at[4] && !(at[6] & 0xFE);
}

enum { PTD_PSB_EVENTS = 16 };

/* A PSB+ that the path decoder understands. */
struct ptd_psb_plus {
    uint64_t psbend; /* offset of the PSBEND packet */
    uint64_t end;    /* offset after it */
    uint64_t last_ip;
    uint64_t ip;     /* where execution stands */
    uint64_t tsc;
    bool has_ip, has_tsc, has_mode, after_tsc;
    bool clocks; /* it was given up because of packets whose time depends on what came before */
    unsigned count;
    struct pt_event events[PTD_PSB_EVENTS]; /* in their order */
};

/* Read the PSB+ at `psb`. False: it is not complete, malformed, or has in it what only libipt understands. */
bool ptd_psb_plus_read(const uint8_t *packets, uint64_t size, uint64_t psb, bool timing, struct ptd_psb_plus *ret);

#endif
