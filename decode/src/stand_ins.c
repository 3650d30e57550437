/* SPDX-License-Identifier: MIT */
/*
 * Packets of processors that libipt 2.0 does not know: events (CFE, EVD, and MODE.Exec where only the interrupt flag
 * changed) and records of PEBS (BBP, BIP, BEP); SDM vol. 3, 33.4.2.
 *
 * To libipt they are an error, and all up to the next PSB would be lost. So they are overwritten, in the caller's copy
 * of the trace, by packets of the same size that it knows and that do to the flow what these do: PADs and an EXSTOP. One
 * with an IP waits for a FUP, and execution goes on behind it, as with a CFE, a BEP or a MODE.Exec with one. The event
 * that libipt makes of it is what the packet was.
 *
 * An item of a record (BIP) looks like a TNT: only a BBP before it says what it is. Packets of time may lie between.
 */
#include "stand_ins.h"

#include "cached_packets.h"
#include "grow.h"
#include "psb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXT_EXSTOP = 0x62,
    EXT_IP = 0x80, /* of BEP and EXSTOP: a FUP follows */
    SIZE_EXT = 2,
    MODE_IF = 4,
    MODE_LEAF = 0xE0
};

struct reader {
    uint8_t *packets;
    uint64_t size;
    uint64_t at;
    struct pt_packet_decoder *decoder;
    struct ptd_stand_ins *found; /* NULL: only look whether there is any */
    bool in_psb;
    int mode; /* bits of the last MODE.Exec without its interrupt flag; -1: none */
    bool any; /* there were such packets */
};

static bool is_ext(const struct reader *reader, uint64_t at, uint8_t second)
{
    return at + SIZE_EXT <= reader->size && reader->packets[at] == PTD_OPC_EXTENDED && reader->packets[at + 1] == second;
}

static bool is_bep(const struct reader *reader, uint64_t at)
{
    return is_ext(reader, at, PTD_EXT_BEP) || is_ext(reader, at, PTD_EXT_BEP_IP);
}

static int add(struct ptd_stand_ins *found, struct ptd_stand_in row)
{
    if (found->count == found->capacity) {
        size_t capacity = found->capacity ? 2 * found->capacity : 64;
        if (ptd_grow(&found->rows, capacity, sizeof *found->rows) < 0)
            return -ENOMEM;
        found->capacity = capacity;
    }
    found->rows[found->count++] = row;
    return 0;
}

/* An EXSTOP in the last bytes of [at, end), PADs before it. Returns 0 or -ENOMEM. */
static int stand_in(struct reader *reader, uint64_t at, uint64_t end, bool ip, enum ptd_event kind, int64_t detail)
{
    if (!reader->found)
        return 0;
    memset(reader->packets + at, 0, end - at);
    reader->packets[end - 2] = PTD_OPC_EXTENDED;
    reader->packets[end - 1] = (uint8_t)(EXT_EXSTOP | (ip ? EXT_IP : 0));
    bool timeless = !ip && kind != PTD_EV_PEBS;
    return add(reader->found, (struct ptd_stand_in){end - PTD_SIZE_EXSTOP, kind, detail, timeless});
}

static void pad(struct reader *reader, uint64_t at, uint64_t size)
{
    if (reader->found)
        memset(reader->packets + at, 0, size);
}

/* ---- events ---- */

/* detail: the vector above the type. */
static int cfe(struct reader *reader, uint64_t at)
{
    const uint8_t *packet = reader->packets + at;
    return stand_in(reader, at, at + PTD_SIZE_CFE, packet[2] & 0x80, PTD_EV_CFE, packet[3] << 8 | (packet[2] & 0x1F));
}

static int evd(struct reader *reader, uint64_t at)
{
    static const enum ptd_event kinds[] = {PTD_EV_PAGE_FAULT, PTD_EV_VMX_QUALIFICATION, PTD_EV_VMX_REASON};
    const uint8_t *packet = reader->packets + at;
    unsigned type = packet[2] & 0x3F;
    return stand_in(reader, at, at + PTD_SIZE_EVD, false, type < 3 ? kinds[type] : PTD_EV_EVD,
                    (int64_t)ptd_packet_bytes(packet + 3, 8));
}

static bool is_fup(const struct reader *reader, uint64_t at)
{
    return at < reader->size && (reader->packets[at] & 31) == PTD_OPC_FUP && reader->packets[at] >> 5;
}

/* A MODE.Exec with a FUP of its own says that the interrupt flag changed there. Elsewhere they lead to a TIP. */
static int mode_exec(struct reader *reader, uint64_t at)
{
    uint8_t bits = reader->packets[at + 1];
    int mode = bits & ~MODE_IF;
    if (bits & MODE_LEAF)
        return 0;
    bool same = mode == reader->mode;
    reader->mode = mode;
    if (reader->in_psb || !same || !is_fup(reader, at + SIZE_EXT))
        return 0;
    reader->any = true;
    return stand_in(reader, at, at + SIZE_EXT, true, PTD_EV_INTERRUPT_FLAG, (bits & MODE_IF) != 0);
}

/* ---- records of PEBS ---- */

/* Size of a packet that may lie between the items of a record; 0: none is there. */
static unsigned between(struct reader *reader, uint64_t at)
{
    struct pt_packet packet;
    if (pt_pkt_sync_set(reader->decoder, at) < 0)
        return 0;
    int size = pt_pkt_next(reader->decoder, &packet, sizeof packet);
    return size > 0 && ptd_may_be_in_record(packet.type) ? (unsigned)size : 0;
}

/* A record whose first BBP, or BEP, is at `at`. Returns where it ends, or negative errno. */
static int64_t record(struct reader *reader, uint64_t at)
{
    uint64_t items = 0, width = 8;
    while (at < reader->size) {
        const uint8_t *packet = reader->packets + at;
        unsigned size;
        if (is_ext(reader, at, PTD_EXT_BBP) && reader->size - at >= PTD_SIZE_BBP) {
            width = packet[2] & 0x80 ? 4 : 8;
            size = PTD_SIZE_BBP;
            pad(reader, at, size);
        } else if (is_bep(reader, at)) {
            int error = stand_in(reader, at, at + SIZE_EXT, packet[1] & EXT_IP, PTD_EV_PEBS, (int64_t)items);
            return error < 0 ? error : (int64_t)(at + SIZE_EXT);
        } else if ((packet[0] & 7) == 4 && reader->size - at > width) {
            size = 1 + (unsigned)width;
            pad(reader, at, size);
            items++;
        } else {
            size = between(reader, at);
            if (!size)
                break;
        }
        at += size;
    }
    return (int64_t)at;
}

/* ---- reading ---- */

/* Take the packet that libipt could not read. Returns where it ends, `at` when it is nothing we know, or -ENOMEM. */
static int64_t unknown(struct reader *reader)
{
    uint64_t at = reader->at, left = reader->size - at;
    int error = 0;
    if (is_ext(reader, at, PTD_EXT_BBP) || is_bep(reader, at))
        return record(reader, at);
    if (is_ext(reader, at, PTD_EXT_CFE) && left >= PTD_SIZE_CFE) {
        error = cfe(reader, at);
        at += PTD_SIZE_CFE;
    } else if (is_ext(reader, at, PTD_EXT_EVD) && left >= PTD_SIZE_EVD) {
        error = evd(reader, at);
        at += PTD_SIZE_EVD;
    }
    return error < 0 ? error : (int64_t)at;
}

static int known(struct reader *reader, const struct pt_packet *packet)
{
    if (packet->type == ppt_psb)
        reader->in_psb = true;
    else if (packet->type == ppt_psbend || packet->type == ppt_ovf)
        reader->in_psb = false;
    if (packet->type == ppt_exstop && reader->found)
        return add(reader->found, (struct ptd_stand_in){.offset = reader->at, .kind = PTD_EV_EXSTOP});
    return packet->type == ppt_mode ? mode_exec(reader, reader->at) : 0;
}

/* Read from the PSB at `at` to `end`, or to what is malformed. Returns 0 or -ENOMEM. */
static int read_to(struct reader *reader, uint64_t end)
{
    struct pt_packet packet;
    int size = pt_pkt_sync_set(reader->decoder, reader->at);
    while (size >= 0 && reader->at < end) {
        int error = 0;
        size = pt_pkt_next(reader->decoder, &packet, sizeof packet);
        if (size > 0) {
            error = known(reader, &packet);
            reader->at += (uint64_t)size;
        } else if (size == -pte_bad_opc || size == -pte_bad_packet) {
            int64_t behind = unknown(reader);
            if (behind <= (int64_t)reader->at)
                return behind < 0 ? (int)behind : 0;
            reader->any = true;
            reader->at = (uint64_t)behind;
            size = pt_pkt_sync_set(reader->decoder, reader->at);
        }
        if (error < 0)
            return error;
    }
    return 0;
}

static bool may_be(const struct reader *reader, uint64_t at)
{
    uint8_t second = reader->packets[at + 1];
    if (reader->packets[at] == PTD_OPC_MODE)
        return !(second & MODE_LEAF) && is_fup(reader, at + SIZE_EXT);
    return second == PTD_EXT_CFE || second == PTD_EXT_EVD || second == PTD_EXT_BBP || (second & ~EXT_IP) == PTD_EXT_BEP;
}

/* The first place at `from` or later that may be one of the packets that begin with `first`; `size`: none. */
static uint64_t candidate(const struct reader *reader, uint64_t from, enum ptd_opcode first)
{
    while (from + SIZE_EXT <= reader->size) {
        const uint8_t *at = memchr(reader->packets + from, first, reader->size - 1 - from);
        if (!at)
            break;
        from = (uint64_t)(at - reader->packets);
        if (may_be(reader, from))
            return from;
        from++;
    }
    return reader->size;
}

/* Read the segment `at` is in, unless it begins before `behind`. Returns up to where there is no more to be found out. */
static uint64_t read_segment(struct reader *reader, uint64_t behind, uint64_t at)
{
    reader->at = ptd_psb_before(reader->packets, behind, at);
    if (reader->at == UINT64_MAX)
        return at + 1;
    uint64_t next = ptd_psb_after(reader->packets, reader->size, at);
    (void)read_to(reader, next < reader->size ? next : reader->size); /* it stores nothing yet: it cannot fail */
    return reader->at > at ? reader->at : at + 1;
}

/* Whether there is any of the packets: bytes that look like one are most often part of another. */
static bool any(struct reader *reader)
{
    static const enum ptd_opcode firsts[] = {PTD_OPC_EXTENDED, PTD_OPC_MODE};
    uint64_t behind = 0, next[2] = {0, 0};
    bool sought[2] = {false, false};
    while (!reader->any) {
        for (int i = 0; i < 2; i++) {
            if (!sought[i] || next[i] < behind)
                next[i] = candidate(reader, behind, firsts[i]);
            sought[i] = true;
        }
        uint64_t at = next[0] < next[1] ? next[0] : next[1];
        if (at >= reader->size)
            break;
        behind = read_segment(reader, behind, at);
    }
    return reader->any;
}

/* Replace them all. Returns 0 or -ENOMEM. */
static int replace(struct reader *reader)
{
    uint64_t from = 0;
    while ((reader->at = ptd_psb_after(reader->packets, reader->size, from)) != UINT64_MAX) {
        int error = read_to(reader, reader->size);
        if (error < 0)
            return error;
        from = reader->at + 1;
    }
    return 0;
}

int ptd_stand_ins_create(uint8_t *packets, uint64_t size, struct ptd_stand_ins **ret)
{
    struct pt_config config = {0};
    pt_config_init(&config);
    config.begin = packets;
    config.end = packets + size;
    *ret = NULL;
    if (!size)
        return 0;
    struct reader reader = {.packets = packets, .size = size, .mode = -1, .decoder = pt_pkt_alloc_decoder(&config)};
    if (!reader.decoder)
        return -ENOMEM;
    int error = 0;
    if (any(&reader)) {
        *ret = reader.found = calloc(1, sizeof *reader.found);
        error = reader.found ? replace(&reader) : -ENOMEM;
    }
    pt_pkt_free_decoder(reader.decoder);
    if (error < 0) {
        ptd_stand_ins_destroy(*ret);
        *ret = NULL;
    }
    return error;
}

const struct ptd_stand_in *ptd_stood_for(const struct ptd_stand_ins *stand_ins, uint64_t offset)
{
    size_t low = 0, high = stand_ins ? stand_ins->count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (stand_ins->rows[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    const struct ptd_stand_in *row = stand_ins && low < stand_ins->count ? &stand_ins->rows[low] : NULL;
    return row && row->offset == offset && row->kind != PTD_EV_EXSTOP ? row : NULL;
}

void ptd_stand_ins_destroy(struct ptd_stand_ins *stand_ins)
{
    if (!stand_ins)
        return;
    free(stand_ins->rows);
    free(stand_ins);
}
