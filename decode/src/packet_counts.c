/* SPDX-License-Identifier: MIT */
/*
 * What kinds of packets a trace holds, and sums of what they say: libipt's packet decoder from the first PSB to the end,
 * forward to the next PSB where a packet cannot be read. Pure but for the memory of a decoder while it runs.
 */
#include "api.h"

#include <errno.h>
#include <intel-pt.h>
#include <string.h>

static const char *const NAMES[PTD_PACKET_KINDS] = {
    [ppt_invalid] = "invalid", [ppt_unknown] = "unknown", [ppt_pad] = "pad",         [ppt_psb] = "psb",
    [ppt_psbend] = "psbend",   [ppt_fup] = "fup",         [ppt_tip] = "tip",         [ppt_tip_pge] = "tip.pge",
    [ppt_tip_pgd] = "tip.pgd", [ppt_tnt_8] = "tnt.8",     [ppt_tnt_64] = "tnt.64",   [ppt_mode] = "mode.exec",
    [ppt_pip] = "pip",         [ppt_vmcs] = "vmcs",       [ppt_cbr] = "cbr",         [ppt_tsc] = "tsc",
    [ppt_tma] = "tma",         [ppt_mtc] = "mtc",         [ppt_cyc] = "cyc",         [ppt_stop] = "stop",
    [ppt_ovf] = "ovf",         [ppt_mnt] = "mnt",         [ppt_exstop] = "exstop",   [ppt_mwait] = "mwait",
    [ppt_pwre] = "pwre",       [ppt_pwrx] = "pwrx",       [ppt_ptw] = "ptw",         [PTD_PACKET_TSX] = "mode.tsx"};

_Static_assert((int)ppt_ptw < (int)PTD_PACKET_TSX, "libipt's kinds come first");

const char *ptd_packet_name(int kind)
{
    return kind >= 0 && kind < PTD_PACKET_KINDS ? NAMES[kind] : NULL;
}

static void count_bits(const struct pt_packet_tnt *tnt, struct ptd_packet_counts *counts)
{
    counts->tnt_bits += tnt->bit_size;
    for (unsigned bit = 0; bit < tnt->bit_size; bit++)
        counts->tnt_taken += tnt->payload >> bit & 1;
}

static void count(const struct pt_packet *packet, struct ptd_packet_counts *counts)
{
    int kind = packet->type;
    if (packet->type == ppt_mode && packet->payload.mode.leaf == pt_mol_tsx)
        kind = PTD_PACKET_TSX;
    if (kind < 0 || kind >= PTD_PACKET_KINDS)
        kind = ppt_unknown;
    counts->packets++;
    counts->by_kind[kind]++;
    if (packet->type == ppt_tnt_8 || packet->type == ppt_tnt_64) {
        count_bits(&packet->payload.tnt, counts);
    } else if (packet->type == ppt_cyc) {
        counts->cyc_sum += packet->payload.cyc.value;
    } else if (packet->type == ppt_tsc) {
        if (counts->by_kind[ppt_tsc] == 1)
            counts->tsc_first = packet->payload.tsc.tsc;
        counts->tsc_last = packet->payload.tsc.tsc;
    }
}

/* Packets up to one that cannot be read. Returns libipt's error. */
static int count_segment(struct pt_packet_decoder *decoder, struct ptd_packet_counts *counts)
{
    for (;;) {
        struct pt_packet packet;
        int status = pt_pkt_next(decoder, &packet, sizeof packet);
        if (status < 0)
            return status;
        count(&packet, counts);
    }
}

int ptd_packets_count(const uint8_t *packets, uint64_t size, struct ptd_packet_counts *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->first_sync = UINT64_MAX;
    if (!size)
        return 0;
    struct pt_config config;
    pt_config_init(&config);
    /* libipt reads the buffer only; its type lacks the const */
    config.begin = (uint8_t *)(uintptr_t)packets;
    config.end = config.begin + size;
    struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(&config);
    if (!decoder)
        return -ENOMEM;
    while (pt_pkt_sync_forward(decoder) >= 0) {
        if (ret->first_sync == UINT64_MAX)
            pt_pkt_get_sync_offset(decoder, &ret->first_sync);
        if (count_segment(decoder, ret) == -pte_eos)
            break;
        ret->errors++;
    }
    pt_pkt_free_decoder(decoder);
    return 0;
}
