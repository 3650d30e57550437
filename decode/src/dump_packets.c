/* SPDX-License-Identifier: MIT */
/*
 * Packets as text, a line each: offset, kind, payload (SDM vol. 3, 33.4.2), and of a compressed IP what it comes to.
 *
 * Where libipt's packet decoder cannot go on, a line says so and it starts again at the next PSB. Bytes before the
 * first PSB are passed over the same way, unless they are all PAD. A dump borrows the packets. Not thread-safe.
 */
#include "cached_packets.h"
#include "dump_text.h"

#include <errno.h>
#include <intel-pt.h>
#include <stdlib.h>

enum kind {
    KIND_UNKNOWN,
    KIND_PAD,
    KIND_PSB,
    KIND_PSBEND,
    KIND_FUP,
    KIND_TIP,
    KIND_TIP_PGE,
    KIND_TIP_PGD,
    KIND_TNT_8,
    KIND_TNT_64,
    KIND_MODE_EXEC,
    KIND_MODE_TSX,
    KIND_MODE,
    KIND_PIP,
    KIND_VMCS,
    KIND_CBR,
    KIND_TSC,
    KIND_TMA,
    KIND_MTC,
    KIND_CYC,
    KIND_STOP,
    KIND_OVF,
    KIND_MNT,
    KIND_EXSTOP,
    KIND_MWAIT,
    KIND_PWRE,
    KIND_PWRX,
    KIND_PTW,
    /* libipt does not know these */
    KIND_CFE,
    KIND_EVD,
    KIND_BBP,
    KIND_BIP,
    KIND_BEP,
    KIND_COUNT
};

static const char *const NAMES[KIND_COUNT] = {
    "unknown", "pad", "psb",  "psbend", "fup", "tip", "tip.pge", "tip.pgd", "tnt.8", "tnt.64", "mode.exec", "mode.tsx",
    "mode",    "pip", "vmcs", "cbr",    "tsc", "tma", "mtc",     "cyc",     "stop",  "ovf",    "mnt",       "exstop",
    "mwait",   "pwre", "pwrx", "ptw",    "cfe", "evd", "bbp",     "bip",     "bep"};

_Static_assert((int)KIND_COUNT <= (int)DUMP_PACKET_KINDS, "there is room for all kinds");

enum { PSB_SIZE = 16 };

struct dump_packets {
    struct pt_packet_decoder *decoder;
    const uint8_t *packets;
    uint64_t size;
    uint64_t from;
    uint64_t to;
    uint64_t offset; /* of the next packet, or where looking for a PSB begins */
    uint64_t last_ip;
    unsigned item; /* bytes of an item of the record of PEBS we are in; 0: in none */
    bool synchronised;
    struct dump_packets_progress progress;
};

static enum kind kind_of(const struct pt_packet *packet)
{
    switch (packet->type) {
    case ppt_pad:
        return KIND_PAD;
    case ppt_psb:
        return KIND_PSB;
    case ppt_psbend:
        return KIND_PSBEND;
    case ppt_fup:
        return KIND_FUP;
    case ppt_tip:
        return KIND_TIP;
    case ppt_tip_pge:
        return KIND_TIP_PGE;
    case ppt_tip_pgd:
        return KIND_TIP_PGD;
    case ppt_tnt_8:
        return KIND_TNT_8;
    case ppt_tnt_64:
        return KIND_TNT_64;
    case ppt_mode:
        return packet->payload.mode.leaf == pt_mol_exec  ? KIND_MODE_EXEC
               : packet->payload.mode.leaf == pt_mol_tsx ? KIND_MODE_TSX
                                                         : KIND_MODE;
    case ppt_pip:
        return KIND_PIP;
    case ppt_vmcs:
        return KIND_VMCS;
    case ppt_cbr:
        return KIND_CBR;
    case ppt_tsc:
        return KIND_TSC;
    case ppt_tma:
        return KIND_TMA;
    case ppt_mtc:
        return KIND_MTC;
    case ppt_cyc:
        return KIND_CYC;
    case ppt_stop:
        return KIND_STOP;
    case ppt_ovf:
        return KIND_OVF;
    case ppt_mnt:
        return KIND_MNT;
    case ppt_exstop:
        return KIND_EXSTOP;
    case ppt_mwait:
        return KIND_MWAIT;
    case ppt_pwre:
        return KIND_PWRE;
    case ppt_pwrx:
        return KIND_PWRX;
    case ppt_ptw:
        return KIND_PTW;
    case ppt_invalid:
    case ppt_unknown:
        break;
    }
    return KIND_UNKNOWN;
}

/* ---- IPs ---- */

/* The IP a packet comes to (SDM vol. 3, 33.4.2.2), given the one before it. */
static uint64_t ip_after(uint64_t last, const struct pt_packet_ip *ip)
{
    switch (ip->ipc) {
    case pt_ipc_update_16:
        return (last & ~UINT64_C(0xFFFF)) | ip->ip;
    case pt_ipc_update_32:
        return (last & ~UINT64_C(0xFFFFFFFF)) | ip->ip;
    case pt_ipc_update_48:
        return (last & ~UINT64_C(0xFFFFFFFFFFFF)) | ip->ip;
    case pt_ipc_sext_48:
        return ip->ip & UINT64_C(1) << 47 ? ip->ip | ~UINT64_C(0xFFFFFFFFFFFF) : ip->ip;
    case pt_ipc_full:
        return ip->ip;
    case pt_ipc_suppressed:
        break;
    }
    return last;
}

static int payload_digits(enum pt_ip_compression compression)
{
    switch (compression) {
    case pt_ipc_suppressed:
        return 0;
    case pt_ipc_update_16:
        return 4;
    case pt_ipc_update_32:
        return 8;
    case pt_ipc_update_48:
        return 12;
    case pt_ipc_sext_48:
    case pt_ipc_full:
        break;
    }
    return 16;
}

static void put_ip(struct dump_packets *dump, struct dump_text *text, const struct pt_packet_ip *ip)
{
    int digits = payload_digits(ip->ipc);
    dump->last_ip = ip_after(dump->last_ip, ip);
    put_hex(text, (uint64_t)ip->ipc, 1);
    put(text, ": ");
    for (int i = 16; i > digits; i--)
        put_char(text, '?');
    if (digits)
        put_hex(text, ip->ipc == pt_ipc_sext_48 ? dump->last_ip : ip->ip, digits);
    if (digits && digits < 16) {
        put(text, "  ");
        put_address(text, dump->last_ip);
    }
}

/* ---- payloads ---- */

static void put_tnt(struct dump_text *text, const struct pt_packet_tnt *tnt)
{
    for (int bit = tnt->bit_size; bit-- > 0;)
        put_char(text, tnt->payload >> bit & 1 ? '!' : '.');
}

static void put_mode(struct dump_packets *dump, struct dump_text *text, const struct pt_packet_mode *mode)
{
    const char *words[2] = {NULL, NULL};
    bool interrupts = mode->leaf == pt_mol_exec && dump->packets[dump->offset + 1] & 4; /* libipt leaves it out */
    if (mode->leaf == pt_mol_exec) {
        words[0] = mode->bits.exec.csl ? "cs.l" : NULL;
        words[1] = mode->bits.exec.csd ? "cs.d" : NULL;
    } else if (mode->leaf == pt_mol_tsx) {
        words[0] = mode->bits.tsx.intx ? "intx" : NULL;
        words[1] = mode->bits.tsx.abrt ? "abrt" : NULL;
    }
    if (words[0])
        put(text, words[0]);
    if (words[0] && words[1])
        put(text, ", ");
    if (words[1])
        put(text, words[1]);
    if (interrupts)
        put(text, words[0] || words[1] ? ", if" : "if");
}

static void put_pair(struct dump_text *text, uint64_t first, uint64_t second)
{
    put_hex(text, first, 1);
    put(text, ", ");
    put_hex(text, second, 1);
}

static void put_c_state(struct dump_text *text, uint64_t state, uint64_t sub_state)
{
    put_char(text, 'c');
    put_decimal(text, (state + 1) & 15);
    put_char(text, '.');
    put_decimal(text, (sub_state + 1) & 15);
}

static void put_power(struct dump_text *text, const struct pt_packet *packet)
{
    switch (packet->type) {
    case ppt_exstop:
        if (packet->payload.exstop.ip)
            put(text, "ip");
        break;
    case ppt_mwait:
        put_hex(text, packet->payload.mwait.hints, 8);
        put(text, ", ");
        put_hex(text, packet->payload.mwait.ext, 8);
        break;
    case ppt_pwre:
        put_c_state(text, packet->payload.pwre.state, packet->payload.pwre.sub_state);
        if (packet->payload.pwre.hw)
            put(text, ", hw");
        break;
    default: {
        const struct pt_packet_pwrx *pwrx = &packet->payload.pwrx;
        put(text, pwrx->interrupt ? "int" : pwrx->store ? "st" : pwrx->autonomous ? "hw" : "bad");
        put(text, ": c");
        put_decimal(text, (pwrx->last + 1u) & 15);
        put(text, ", c");
        put_decimal(text, (pwrx->deepest + 1u) & 15);
        break;
    }
    }
}

static void put_payload(struct dump_packets *dump, struct dump_text *text, const struct pt_packet *packet)
{
    switch (packet->type) {
    case ppt_fup:
    case ppt_tip:
    case ppt_tip_pge:
    case ppt_tip_pgd:
        put_ip(dump, text, &packet->payload.ip);
        break;
    case ppt_tnt_8:
    case ppt_tnt_64:
        put_tnt(text, &packet->payload.tnt);
        break;
    case ppt_mode:
        put_mode(dump, text, &packet->payload.mode);
        break;
    case ppt_pip:
        put_hex(text, packet->payload.pip.cr3, 1);
        if (packet->payload.pip.nr)
            put(text, ", nr");
        break;
    case ppt_vmcs:
        put_hex(text, packet->payload.vmcs.base, 1);
        break;
    case ppt_cbr:
        put_hex(text, packet->payload.cbr.ratio, 1);
        break;
    case ppt_tsc:
        put_hex(text, packet->payload.tsc.tsc, 1);
        break;
    case ppt_tma:
        put_pair(text, packet->payload.tma.ctc, packet->payload.tma.fc);
        break;
    case ppt_mtc:
        put_hex(text, packet->payload.mtc.ctc, 1);
        break;
    case ppt_cyc:
        put_hex(text, packet->payload.cyc.value, 1);
        break;
    case ppt_mnt:
        put_hex(text, packet->payload.mnt.payload, 1);
        break;
    case ppt_ptw:
        put_hex(text, packet->payload.ptw.plc, 1);
        put(text, ": ");
        put_hex(text, packet->payload.ptw.payload, 1);
        if (packet->payload.ptw.ip)
            put(text, ", ip");
        break;
    case ppt_exstop:
    case ppt_mwait:
    case ppt_pwre:
    case ppt_pwrx:
        put_power(text, packet);
        break;
    case ppt_invalid:
    case ppt_unknown:
    case ppt_pad:
    case ppt_psb:
    case ppt_psbend:
    case ppt_stop:
    case ppt_ovf:
        break;
    }
}

/* ---- lines ---- */

/* A line that is being written. */
struct line {
    enum kind kind;
    size_t start;   /* of it */
    size_t end;     /* of the kind */
    size_t payload; /* where that begins */
};

static struct line begin_line(const struct dump_packets *dump, struct dump_text *text, enum kind kind)
{
    struct line line = {.kind = kind, .start = text->size};
    put_address(text, dump->offset);
    put(text, "  ");
    size_t start = text->size;
    put(text, NAMES[kind]);
    line.end = text->size;
    put_pad(text, start, 11);
    line.payload = text->size;
    return line;
}

/* Lines of packets before those that are wanted are taken back. */
static void end_line(struct dump_packets *dump, struct dump_text *text, const struct line *line)
{
    if (text->size == line->payload)
        text->size = line->end;
    put_char(text, '\n');
    if (dump->offset >= dump->from)
        dump->progress.counts[line->kind]++;
    else
        text->size = line->start;
}

static void put_packet(struct dump_packets *dump, struct dump_text *text, const struct pt_packet *packet)
{
    if (packet->type == ppt_psb)
        dump->last_ip = 0;
    struct line line = begin_line(dump, text, kind_of(packet));
    put_payload(dump, text, packet);
    end_line(dump, text, &line);
}

/* ---- packets libipt does not know ---- */

static unsigned put_cfe(struct dump_packets *dump, struct dump_text *text, const uint8_t *packet)
{
    struct line line = begin_line(dump, text, KIND_CFE);
    put_pair(text, packet[2] & 0x1F, packet[3]);
    if (packet[2] & 0x80)
        put(text, ", ip");
    end_line(dump, text, &line);
    return PTD_SIZE_CFE;
}

static unsigned put_evd(struct dump_packets *dump, struct dump_text *text, const uint8_t *packet)
{
    struct line line = begin_line(dump, text, KIND_EVD);
    put_pair(text, packet[2] & 0x3F, ptd_packet_bytes(packet + 3, 8));
    end_line(dump, text, &line);
    return PTD_SIZE_EVD;
}

static unsigned put_bbp(struct dump_packets *dump, struct dump_text *text, const uint8_t *packet)
{
    struct line line = begin_line(dump, text, KIND_BBP);
    dump->item = packet[2] & 0x80 ? 4 : 8;
    put_pair(text, packet[2] & 0x1F, dump->item);
    end_line(dump, text, &line);
    return PTD_SIZE_BBP;
}

static unsigned put_bep(struct dump_packets *dump, struct dump_text *text, const uint8_t *packet)
{
    struct line line = begin_line(dump, text, KIND_BEP);
    dump->item = 0;
    if (packet[1] == PTD_EXT_BEP_IP)
        put(text, "ip");
    end_line(dump, text, &line);
    return PTD_SIZE_BEP;
}

static unsigned put_bip(struct dump_packets *dump, struct dump_text *text, const uint8_t *packet)
{
    struct line line = begin_line(dump, text, KIND_BIP);
    put_pair(text, packet[0] >> 3, ptd_packet_bytes(packet + 1, dump->item));
    end_line(dump, text, &line);
    return 1 + dump->item;
}

/* The next packet, if it is one that libipt cannot read. Returns its size; 0: it is not. */
static unsigned put_unknown(struct dump_packets *dump, struct dump_text *text)
{
    const uint8_t *packet = dump->packets + dump->offset;
    uint64_t left = dump->size - dump->offset;
    if (dump->item && (packet[0] & 7) == 4)
        return left > dump->item ? put_bip(dump, text, packet) : 0;
    if (left < 2 || packet[0] != PTD_OPC_EXTENDED)
        return 0;
    switch (packet[1]) {
    case PTD_EXT_CFE:
        return left < PTD_SIZE_CFE ? 0 : put_cfe(dump, text, packet);
    case PTD_EXT_EVD:
        return left < PTD_SIZE_EVD ? 0 : put_evd(dump, text, packet);
    case PTD_EXT_BBP:
        return left < PTD_SIZE_BBP ? 0 : put_bbp(dump, text, packet);
    case PTD_EXT_BEP:
    case PTD_EXT_BEP_IP:
        return put_bep(dump, text, packet);
    default:
        return 0;
    }
}

static void put_gap(struct dump_packets *dump, struct dump_text *text, uint64_t end, const char *why)
{
    if (end <= dump->from)
        return;
    dump->progress.bad++;
    put_address(text, dump->offset);
    put(text, "  -- gap: ");
    put_decimal(text, end - dump->offset);
    put(text, " bytes: ");
    put(text, why);
    put_char(text, '\n');
}

static bool only_pads(const struct dump_packets *dump, uint64_t end)
{
    for (uint64_t at = dump->offset; at < end; at++)
        if (dump->packets[at])
            return false;
    return true;
}

/* Find the next PSB at or after `floor`, and say what lies before it. False: there is none. */
static bool synchronise(struct dump_packets *dump, struct dump_text *text, uint64_t floor, const char *why)
{
    uint64_t found = dump->size;
    for (uint64_t at = floor; at + PSB_SIZE <= dump->size; at++) {
        const uint8_t *next = memchr(dump->packets + at, 0x02, (size_t)(dump->size - at - PSB_SIZE + 1));
        if (!next)
            break;
        at = (uint64_t)(next - dump->packets);
        if (next[1] == 0x82 && pt_pkt_sync_set(dump->decoder, at) >= 0) {
            struct pt_packet packet;
            if (pt_pkt_next(dump->decoder, &packet, sizeof packet) >= 0 && packet.type == ppt_psb &&
                pt_pkt_sync_set(dump->decoder, at) >= 0) {
                found = at;
                break;
            }
        }
    }
    if (found > dump->offset && !only_pads(dump, found))
        put_gap(dump, text, found < dump->to ? found : dump->to, why);
    dump->offset = found;
    dump->item = 0;
    dump->synchronised = found < dump->size;
    return dump->synchronised && found < dump->to;
}

/* One packet, or one stretch that cannot be read. False: that was all. */
static bool step(struct dump_packets *dump, struct dump_text *text)
{
    if (dump->offset >= dump->size || dump->offset >= dump->to)
        return false;
    if (!dump->synchronised)
        return synchronise(dump, text, dump->offset, "before the first PSB");
    unsigned size = put_unknown(dump, text);
    if (size) {
        dump->offset += size;
        (void)pt_pkt_sync_set(dump->decoder, dump->offset);
        return true;
    }
    struct pt_packet packet;
    int status = pt_pkt_next(dump->decoder, &packet, sizeof packet);
    if (status >= 0) {
        put_packet(dump, text, &packet);
        dump->offset += (uint64_t)status;
        if (!ptd_may_be_in_record(packet.type))
            dump->item = 0;
        return true;
    }
    if (status == -pte_eos) {
        put_gap(dump, text, dump->size, "the trace ends in the middle of a packet");
        dump->offset = dump->size;
        return false;
    }
    return synchronise(dump, text, dump->offset + 1, pt_errstr((enum pt_error_code)-status));
}

/* Go back to the PSB before `from`: what an IP comes to depends on the ones since. */
static void begin(struct dump_packets *dump)
{
    uint64_t at = 0;
    if (dump->from && dump->from < dump->size && pt_pkt_sync_set(dump->decoder, dump->from) >= 0 &&
        pt_pkt_sync_backward(dump->decoder) >= 0 && pt_pkt_get_offset(dump->decoder, &at) >= 0)
        dump->offset = at;
}

int dump_packets_create(const uint8_t *packets, uint64_t size, uint64_t from, uint64_t to, struct dump_packets **ret)
{
    struct dump_packets *dump = calloc(1, sizeof *dump);
    if (!dump)
        return -ENOMEM;
    *dump = (struct dump_packets){.packets = packets, .size = size, .from = from, .to = to};
    if (!size) {
        *ret = dump;
        return 0;
    }
    struct pt_config config;
    memset(&config, 0, sizeof config);
    pt_config_init(&config);
    config.begin = (uint8_t *)(uintptr_t)packets;
    config.end = config.begin + size;
    dump->decoder = pt_pkt_alloc_decoder(&config);
    if (!dump->decoder) {
        free(dump);
        return -ENOMEM;
    }
    begin(dump);
    *ret = dump;
    return 0;
}

void dump_packets_destroy(struct dump_packets *dump)
{
    if (!dump)
        return;
    if (dump->decoder)
        pt_pkt_free_decoder(dump->decoder);
    free(dump);
}

int dump_packets_next(struct dump_packets *dump, struct dump_text *text)
{
    /* packets before `from` make no text: come up for air all the same */
    for (uint64_t limit = dump->offset + (1 << 24); dump->offset < limit;) {
        if (text_full(text, DUMP_MAX_LINE))
            return 1;
        if (!step(dump, text)) {
            dump->progress.offset = dump->offset;
            return 0;
        }
    }
    return 1;
}

void dump_packets_progress(const struct dump_packets *dump, struct dump_packets_progress *ret)
{
    *ret = dump->progress;
    ret->offset = dump->offset;
}

const char *dump_packet_kind(int kind)
{
    return kind < 0 || kind >= KIND_COUNT ? NULL : NAMES[kind];
}
