/* SPDX-License-Identifier: MIT */
/* PSB+ as the path decoder reads it: state at a PSB, and the events libipt makes of it. Pure functions. */
#include "cached_packets.h"
#include "psb.h"

struct reader {
    const uint8_t *at, *end;
    enum ptd_clocks clocks;
    bool after_tsc; /* a TMA may come: to libipt it belongs to the TSC before it */
    struct ptd_psb_plus *plus;
};

static struct pt_event *add(struct ptd_psb_plus *plus, enum pt_event_type type)
{
    if (plus->count == PTD_PSB_EVENTS)
        return NULL;
    struct pt_event *event = &plus->events[plus->count++];
    memset(event, 0, sizeof *event);
    event->type = type;
    return event;
}

/* MODE.Exec of 64-bit code, MODE.TSX outside of transactions. */
static bool read_mode(struct reader *reader)
{
    struct pt_event *event;
    uint8_t payload = reader->at[1];
    switch (payload >> 5) {
    case 0:
        event = add(reader->plus, ptev_exec_mode);
        if (!event || (payload & 3) != 1)
            return false;
        event->variant.exec_mode.mode = ptem_64bit;
        reader->plus->has_mode = true;
        return true;
    case 1:
        return add(reader->plus, ptev_tsx) && !(payload & 3);
    default:
        return false;
    }
}

static bool read_cbr(struct reader *reader)
{
    struct pt_event *event = add(reader->plus, ptev_cbr);
    if (event)
        event->variant.cbr.ratio = reader->at[2];
    return event && reader->at[2]; /* nothing runs at 0: libipt says it is no such packet */
}

/* PIP; in perf's recordings of a guest's packets there is no code to look up. */
static bool read_pip(struct reader *reader)
{
    struct pt_event *event = add(reader->plus, ptev_async_paging);
    uint64_t payload = ptd_packet_bytes(reader->at + 2, 6);
    if (event) {
        event->variant.async_paging.non_root = payload & 1;
        event->variant.async_paging.cr3 = payload >> 1 << 5;
    }
    return event && !(payload & 1 && reader->clocks == PTD_CLOCKS_PACED);
}

static bool read_vmcs(struct reader *reader)
{
    struct pt_event *event = add(reader->plus, ptev_async_vmcs);
    if (event)
        event->variant.async_vmcs.base = ptd_packet_bytes(reader->at + 2, 5) << 12;
    return event;
}

static bool read_tsc(struct reader *reader)
{
    reader->plus->has_tsc = reader->after_tsc = true;
    reader->plus->tsc = ptd_packet_bytes(reader->at + 1, 7);
    return true;
}

static bool read_tma(struct reader *reader)
{
    bool good = reader->after_tsc && reader->clocks != PTD_CLOCKS_LIBIPTS && ptd_packet_is_tma(reader->at);
    reader->after_tsc = false;
    return good;
}

static bool read_mtc(struct reader *reader)
{
    reader->after_tsc = false;
    return reader->clocks != PTD_CLOCKS_LIBIPTS;
}

/* Read one packet between PSB and PSBEND. Returns its size, 0 when it is none that we know here. */
static unsigned read_packet(struct reader *reader)
{
    const uint8_t *at = reader->at;
    uint64_t left = (uint64_t)(reader->end - at);
    uint8_t first = at[0];
    if (first == PTD_OPC_PAD)
        return 1;
    if (first == PTD_OPC_TSC)
        return left >= PTD_SIZE_TSC && read_tsc(reader) ? PTD_SIZE_TSC : 0;
    if (first == PTD_OPC_MODE)
        return left >= 2 && read_mode(reader) ? 2 : 0;
    if (first == PTD_OPC_MTC)
        return left >= 2 && read_mtc(reader) ? 2 : 0;
    if ((first & 3) == 3)
        return reader->clocks == PTD_CLOCKS_PACED ? ptd_packet_cyc(at, reader->end) : 0;
    if ((first & 0x1F) == PTD_OPC_FUP) {
        unsigned size = ptd_packet_ip(at, reader->end, &reader->plus->last_ip, &reader->plus->has_ip);
        reader->plus->ip = reader->plus->last_ip;
        return reader->plus->has_ip ? size : 0;
    }
    if (first != PTD_OPC_EXTENDED || left < 2)
        return 0;
    switch (at[1]) {
    case PTD_EXT_CBR:
        return left >= PTD_SIZE_CBR && read_cbr(reader) ? PTD_SIZE_CBR : 0;
    case PTD_EXT_PIP:
        return left >= PTD_SIZE_PIP && read_pip(reader) ? PTD_SIZE_PIP : 0;
    case PTD_EXT_VMCS:
        return left >= PTD_SIZE_VMCS && read_vmcs(reader) ? PTD_SIZE_VMCS : 0;
    case PTD_EXT_TMA:
        return left >= PTD_SIZE_TMA && read_tma(reader) ? PTD_SIZE_TMA : 0;
    default:
        return 0;
    }
}

bool ptd_psb_plus_read(const uint8_t *packets, uint64_t size, uint64_t psb, enum ptd_clocks clocks,
                       struct ptd_psb_plus *ret)
{
    memset(ret, 0, offsetof(struct ptd_psb_plus, events));
    struct reader reader = {
        .at = packets + psb + PTD_PSB_SIZE, .end = packets + size, .clocks = clocks, .plus = ret};
    while (reader.end - reader.at >= 2 && !(reader.at[0] == PTD_OPC_EXTENDED && reader.at[1] == PTD_EXT_PSBEND)) {
        unsigned taken = read_packet(&reader);
        if (!taken)
            return false;
        reader.at += taken;
    }
    if (reader.end - reader.at < 2)
        return false;
    ret->after_tsc = reader.after_tsc;
    ret->psbend = (uint64_t)(reader.at - packets);
    ret->end = ret->psbend + 2;
    for (unsigned i = 0; i < ret->count; i++) {
        struct pt_event *event = &ret->events[i];
        event->ip_suppressed = !ret->has_ip && event->type != ptev_cbr;
        event->status_update = 1;
        if (event->type == ptev_exec_mode)
            event->variant.exec_mode.ip = ret->ip;
        else if (event->type == ptev_tsx)
            event->variant.tsx.ip = ret->ip;
        else if (event->type == ptev_async_paging)
            event->variant.async_paging.ip = ret->ip;
        else if (event->type == ptev_async_vmcs)
            event->variant.async_vmcs.ip = ret->ip;
    }
    return true;
}
