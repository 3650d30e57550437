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
    PTD_EXT_VMCS = 0xC8,
    /* of packets libipt does not know */
    PTD_EXT_CFE = 0x13,
    PTD_EXT_EVD = 0x53,
    PTD_EXT_BBP = 0x63,
    PTD_EXT_BEP = 0x33,
    PTD_EXT_BEP_IP = 0xB3
};

enum { PTD_SIZE_TSC = 8, PTD_SIZE_TNT = 8, PTD_SIZE_CBR = 4, PTD_SIZE_PIP = 8, PTD_SIZE_TMA = 7, PTD_SIZE_VMCS = 7, PTD_SIZE_EXSTOP = 2,
       PTD_SIZE_CFE = 4, PTD_SIZE_EVD = 11, PTD_SIZE_BBP = 3, PTD_SIZE_BEP = 2,
       PTD_SIZE_CYC = 10 /* at most */ };

/* `count` bytes, least significant first. */
static inline uint64_t ptd_packet_bytes(const uint8_t *at, unsigned count)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* A TNT packet: its size, 0 when it is none, or not complete or malformed; its bits are the low `count` of `bits`. */
static inline unsigned ptd_packet_tnt(const uint8_t *at, const uint8_t *end, uint64_t *bits, unsigned *count)
{
    if (at >= end)
        return 0;
    if (!(at[0] & 1) && at[0] > PTD_OPC_EXTENDED) {
        *count = 30 - (unsigned)__builtin_clz(at[0]);
        *bits = at[0] >> 1 & ((1u << *count) - 1);
        return 1;
    }
    if (end - at < PTD_SIZE_TNT || at[0] != PTD_OPC_EXTENDED || at[1] != PTD_EXT_TNT)
        return 0;
    uint64_t value;
    memcpy(&value, at, sizeof value); /* little-endian, as packets are */
    value >>= 16;
    if (value < 2)
        return 0;
    *count = 63 - (unsigned)__builtin_clzll(value);
    *bits = value & ((UINT64_C(1) << *count) - 1);
    return PTD_SIZE_TNT;
}

/* A CYC packet: its size, 0 when it is not complete or longer than any. */
static inline unsigned ptd_packet_cyc(const uint8_t *at, const uint8_t *end)
{
    unsigned size = 1;
    for (bool more = at[0] & 4; more; size++) {
        if (end - at <= (int64_t)size || size == PTD_SIZE_CYC)
            return 0;
        more = at[size] & 1;
    }
    return size;
}

/* An IP packet: its whole size, 0 when it is not complete or malformed. `last` is updated; `known`: it has an IP. */
static inline unsigned ptd_packet_ip(const uint8_t *at, const uint8_t *end, uint64_t *last, bool *known)
{
    static const uint8_t width[8] = {0, 2, 4, 6, 6, 0, 8, 0};
    unsigned form = at[0] >> 5, size = 1u + width[form];
    if (form == 5 || form == 7 || (uint64_t)(end - at) < size)
        return 0;
    uint64_t mask = form == 6 ? UINT64_MAX : (UINT64_C(1) << 8 * (size - 1)) - 1, value;
    if (end - at > 8)
        memcpy(&value, at + 1, sizeof value); /* little-endian, as packets are */
    else
        value = ptd_packet_bytes(at + 1, size - 1);
    value &= mask;
    *known = form != 0;
    *last = form == 3 ? (uint64_t)((int64_t)(value << 16) >> 16) : (*last & ~mask) | value;
    return size;
}

/* Whether a record of PEBS may go on behind a packet: time may be told in it. */
static inline bool ptd_may_be_in_record(enum pt_packet_type type)
{
    return type == ppt_pad || type == ppt_tsc || type == ppt_tma || type == ppt_mtc || type == ppt_cyc ||
           type == ppt_cbr || type == ppt_mnt;
}

/* What packets other than TSC say of time. */
enum ptd_clocks {
    PTD_CLOCKS_UNKNOWN, /* nothing: MTC, TMA are read over, CYC is not to be expected */
    PTD_CLOCKS_LIBIPTS, /* libipt calibrates as it goes: only it can say */
    PTD_CLOCKS_PACED    /* what is no concern of packets' readers: pace.c knows */
};

/* Whether a TMA packet's reserved bits are clear. */
static inline bool ptd_packet_is_tma(const uint8_t *at)
{
    return !at[4] && !(at[6] & 0xFE);
}

enum { PTD_PSB_EVENTS = 6 }; /* libipt has room for as many; processors write five at most */

/* A PSB+ that the path decoder understands. */
struct ptd_psb_plus {
    uint64_t psbend; /* offset of the PSBEND packet */
    uint64_t end;    /* offset after it */
    uint64_t last_ip;
    uint64_t ip;     /* where execution stands */
    uint64_t tsc;
    bool has_ip, has_tsc, has_mode, after_tsc;
    unsigned count;
    struct pt_event events[PTD_PSB_EVENTS]; /* in their order */
};

/* Read the PSB+ at `psb`. False: it is not complete, malformed, or has in it what only libipt understands. */
bool ptd_psb_plus_read(const uint8_t *packets, uint64_t size, uint64_t psb, enum ptd_clocks clocks,
                       struct ptd_psb_plus *ret);

#endif
