/* SPDX-License-Identifier: MIT */
/*
 * PSBs in raw packets (SDM vol. 3, 33.4.2.17: 02 82, eight times).
 *
 * libipt reads packets ahead of the instructions it decodes and does not tell which PSBs it passed; after an error
 * this says whether a PSB among the packets read ahead is still good to go on at. A trace that is decoded in parts
 * is cut at PSBs; what a part must know of the next one is in that one's PSB+.
 */
#include "psb.h"

#include <intel-pt.h>
#include <stddef.h>
#include <string.h>

static const uint8_t PSB[PTD_PSB_SIZE] = {0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
                                          0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82};

uint64_t ptd_psb_before(const uint8_t *packets, uint64_t floor, uint64_t end)
{
    if (end < PTD_PSB_SIZE)
        return UINT64_MAX;
    for (uint64_t at = end - PTD_PSB_SIZE + 1; at-- > floor;)
        if (packets[at] == PSB[0] && memcmp(packets + at, PSB, sizeof PSB) == 0)
            return at;
    return UINT64_MAX;
}

uint64_t ptd_psb_after(const uint8_t *packets, uint64_t size, uint64_t from)
{
    uint64_t at = from;
    while (at + PTD_PSB_SIZE <= size) {
        const uint8_t *found = memchr(packets + at, PSB[0], size - PTD_PSB_SIZE + 1 - at);
        if (!found)
            break;
        at = (uint64_t)(found - packets);
        if (memcmp(found, PSB, sizeof PSB) == 0) {
            /* a payload right before a PSB may look like its beginning: the PSB is the last of such bytes */
            while (at + 2 + PTD_PSB_SIZE <= size && memcmp(packets + at + 2, PSB, sizeof PSB) == 0)
                at += 2;
            return at;
        }
        at++;
    }
    return UINT64_MAX;
}

static bool moves_nothing(const struct pt_packet *packet, bool in_psb)
{
    switch (packet->type) {
    case ppt_pad:
    case ppt_psb:
    case ppt_psbend:
    case ppt_tsc:
    case ppt_cbr:
    case ppt_tma:
    case ppt_mtc:
    case ppt_cyc:
        return true;
    case ppt_fup:
    case ppt_mode:
    case ppt_pip:
    case ppt_vmcs:
        return in_psb; /* state, not something that happened */
    default:
        return false;
    }
}

static bool scan(struct pt_packet_decoder *decoder, uint64_t end)
{
    bool in_psb = false;
    for (;;) {
        uint64_t offset;
        struct pt_packet packet;
        if (pt_pkt_get_offset(decoder, &offset) < 0)
            return false;
        if (offset >= end)
            return true;
        if (pt_pkt_next(decoder, &packet, sizeof packet) < 0)
            return false;
        if (packet.type == ppt_psb || packet.type == ppt_psbend)
            in_psb = packet.type == ppt_psb;
        else if (!moves_nothing(&packet, in_psb))
            return false;
    }
}

static struct pt_packet_decoder *decoder_at(const uint8_t *packets, uint64_t size, uint64_t offset)
{
    struct pt_config config;
    memset(&config, 0, sizeof config);
    pt_config_init(&config);
    config.begin = (uint8_t *)(uintptr_t)packets;
    config.end = config.begin + size;
    struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(&config);
    if (decoder && pt_pkt_sync_set(decoder, offset) < 0) {
        pt_pkt_free_decoder(decoder);
        return NULL;
    }
    return decoder;
}

bool ptd_psb_only(const uint8_t *packets, uint64_t size, uint64_t psb, uint64_t end)
{
    struct pt_packet_decoder *decoder = decoder_at(packets, size, psb);
    bool only = decoder && scan(decoder, end);
    pt_pkt_free_decoder(decoder);
    return only;
}

uint64_t ptd_last_move(const uint8_t *packets, uint64_t size, uint64_t psb, uint64_t end)
{
    struct pt_packet_decoder *decoder = decoder_at(packets, size, psb);
    uint64_t offset = psb, last = end;
    bool in_psb = false;
    while (decoder && pt_pkt_get_offset(decoder, &offset) >= 0 && offset < end) {
        struct pt_packet packet;
        if (pt_pkt_next(decoder, &packet, sizeof packet) < 0) {
            last = offset;
            break;
        }
        if (packet.type == ppt_psb || packet.type == ppt_psbend)
            in_psb = packet.type == ppt_psb;
        else if (!moves_nothing(&packet, in_psb))
            last = offset;
    }
    pt_pkt_free_decoder(decoder);
    return last;
}

/* Kinds that use up what stood before them. */
static bool settles(const struct pt_packet *packet)
{
    return packet->type == ppt_tnt_8 || packet->type == ppt_tnt_64 || packet->type == ppt_tip ||
           packet->type == ppt_tip_pge;
}

/* Kinds that become an event where execution comes to them. */
static bool waits(const struct pt_packet *packet)
{
    switch (packet->type) {
    case ppt_fup:
    case ppt_tip_pgd:
    case ppt_mode:
    case ppt_pip:
    case ppt_vmcs:
    case ppt_stop:
    case ppt_ptw:
    case ppt_mwait:
    case ppt_exstop:
        return true;
    default:
        return false;
    }
}

uint64_t ptd_waiting(const uint8_t *packets, uint64_t size, uint64_t from, uint64_t end)
{
    struct pt_packet_decoder *decoder = decoder_at(packets, size, from);
    uint64_t offset = from, waiting = end;
    bool in_psb = false;
    while (decoder && pt_pkt_get_offset(decoder, &offset) >= 0 && offset < end) {
        struct pt_packet packet;
        if (pt_pkt_next(decoder, &packet, sizeof packet) < 0)
            break;
        if (packet.type == ppt_psb || packet.type == ppt_psbend)
            in_psb = packet.type == ppt_psb;
        else if (settles(&packet))
            waiting = end;
        else if (waiting == end && !in_psb && waits(&packet))
            waiting = offset;
    }
    pt_pkt_free_decoder(decoder);
    return waiting;
}

uint64_t ptd_packets_end(const uint8_t *packets, uint64_t size, uint64_t start)
{
    struct pt_packet_decoder *decoder = decoder_at(packets, size, start);
    uint64_t end = start;
    struct pt_packet packet;
    while (decoder && pt_pkt_next(decoder, &packet, sizeof packet) >= 0)
        if (pt_pkt_get_offset(decoder, &end) < 0)
            break;
    pt_pkt_free_decoder(decoder);
    return end;
}

bool ptd_first_ip(const struct pt_packet_ip *packet, uint64_t *ip)
{
    *ip = packet->ip;
    switch (packet->ipc) {
    case pt_ipc_suppressed:
        return false;
    case pt_ipc_update_16:
        *ip &= UINT16_MAX;
        break;
    case pt_ipc_update_32:
        *ip &= UINT32_MAX;
        break;
    case pt_ipc_update_48:
        *ip &= (UINT64_C(1) << 48) - 1;
        break;
    case pt_ipc_sext_48:
        *ip = (uint64_t)((int64_t)(*ip << 16) >> 16);
        break;
    case pt_ipc_full:
        break;
    }
    return true;
}

/*
 * Whether tracing is turned on right behind a PSB+. Some processors put a FUP into a PSB+ although tracing was off,
 * and the TIP.PGE that turns it on follows (erratum BDM70).
 */
static bool turned_on_next(struct pt_packet_decoder *decoder)
{
    struct pt_packet packet;
    while (pt_pkt_next(decoder, &packet, sizeof packet) >= 0)
        if (!moves_nothing(&packet, packet.type == ppt_mode || packet.type == ppt_pip || packet.type == ppt_vmcs) ||
            packet.type == ppt_psb)
            return packet.type == ppt_tip_pge;
    return false;
}

/* As ptd_psb_ip; `whole`: it ends with a PSBEND. */
static int ip_of(struct pt_packet_decoder *decoder, uint64_t *ip, bool *whole)
{
    bool found = false;
    *whole = false;
    struct pt_packet packet;
    if (pt_pkt_next(decoder, &packet, sizeof packet) < 0 || packet.type != ppt_psb)
        return -1;
    for (;;) {
        if (pt_pkt_next(decoder, &packet, sizeof packet) < 0)
            return -1;
        if (packet.type == ppt_psbend) {
            *whole = true;
            return found && !turned_on_next(decoder);
        }
        if (packet.type == ppt_ovf) /* takes the place of PSBEND */
            return found;
        if (packet.type == ppt_fup)
            found = ptd_first_ip(&packet.payload.ip, ip);
        else if (!moves_nothing(&packet, true) || packet.type == ppt_psb)
            return -1;
    }
}

int ptd_psb_ip(const uint8_t *packets, uint64_t size, uint64_t psb, uint64_t *ip)
{
    *ip = 0;
    bool whole;
    struct pt_packet_decoder *decoder = decoder_at(packets, size, psb);
    int found = decoder ? ip_of(decoder, ip, &whole) : -1;
    pt_pkt_free_decoder(decoder);
    return found;
}

int ptd_psb_whole(const uint8_t *packets, uint64_t size, uint64_t psb)
{
    uint64_t ip;
    bool whole = false;
    struct pt_packet_decoder *decoder = decoder_at(packets, size, psb);
    bool good = decoder && ip_of(decoder, &ip, &whole) >= 0;
    pt_pkt_free_decoder(decoder);
    return good && whole;
}
