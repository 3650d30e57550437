/* SPDX-License-Identifier: MIT */
/*
 * The packets of a trace as libipt's packet decoder sees them, one a line: offset, size, kind, values.
 *
 *     packet_list TRACE [FAMILY MODEL STEPPING]
 *
 * After an error (`offset 0 error CODE`) it goes on at the next PSB.
 */
#include <intel-pt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_tnt(const char *kind, uint64_t payload, unsigned bits)
{
    printf("%s ", kind);
    while (bits--)
        putchar(payload >> bits & 1 ? '!' : '.');
}

static void print_ip(const char *kind, const struct pt_packet_ip *ip)
{
    printf("%s %d %" PRIu64, kind, (int)ip->ipc, ip->ipc == pt_ipc_suppressed ? 0 : ip->ip);
}

static void print_mode(const struct pt_packet_mode *mode)
{
    if (mode->leaf == pt_mol_exec)
        printf("mode.exec %d", mode->bits.exec.csl ? 64 : mode->bits.exec.csd ? 32 : 16);
    else
        printf("mode.tsx %d %d", mode->bits.tsx.intx, mode->bits.tsx.abrt);
}

static void print_power(const struct pt_packet *packet)
{
    switch (packet->type) {
    case ppt_exstop:
        printf("exstop %d", packet->payload.exstop.ip);
        break;
    case ppt_mwait:
        printf("mwait %u %u", packet->payload.mwait.hints, packet->payload.mwait.ext);
        break;
    case ppt_pwre:
        printf("pwre %d %d %d", packet->payload.pwre.state, packet->payload.pwre.sub_state, packet->payload.pwre.hw);
        break;
    default:
        printf("pwrx %d %d %d", packet->payload.pwrx.last, packet->payload.pwrx.deepest,
               packet->payload.pwrx.interrupt | packet->payload.pwrx.store << 2 |
                   packet->payload.pwrx.autonomous << 3);
        break;
    }
}

static void print_packet(const struct pt_packet *packet)
{
    switch (packet->type) {
    case ppt_pad: printf("pad"); break;
    case ppt_psb: printf("psb"); break;
    case ppt_psbend: printf("psbend"); break;
    case ppt_stop: printf("stop"); break;
    case ppt_ovf: printf("ovf"); break;
    case ppt_fup: print_ip("fup", &packet->payload.ip); break;
    case ppt_tip: print_ip("tip", &packet->payload.ip); break;
    case ppt_tip_pge: print_ip("tip.pge", &packet->payload.ip); break;
    case ppt_tip_pgd: print_ip("tip.pgd", &packet->payload.ip); break;
    case ppt_tnt_8: print_tnt("tnt.8", packet->payload.tnt.payload, packet->payload.tnt.bit_size); break;
    case ppt_tnt_64: print_tnt("tnt.64", packet->payload.tnt.payload, packet->payload.tnt.bit_size); break;
    case ppt_mode: print_mode(&packet->payload.mode); break;
    case ppt_pip: printf("pip %" PRIu64 " %d", packet->payload.pip.cr3, packet->payload.pip.nr); break;
    case ppt_vmcs: printf("vmcs %" PRIu64, packet->payload.vmcs.base); break;
    case ppt_cbr: printf("cbr %d", packet->payload.cbr.ratio); break;
    case ppt_tsc: printf("tsc %" PRIu64, packet->payload.tsc.tsc); break;
    case ppt_tma: printf("tma %d %d", packet->payload.tma.ctc, packet->payload.tma.fc); break;
    case ppt_mtc: printf("mtc %d", packet->payload.mtc.ctc); break;
    case ppt_cyc: printf("cyc %" PRIu64, packet->payload.cyc.value); break;
    case ppt_mnt: printf("mnt %" PRIu64, packet->payload.mnt.payload); break;
    case ppt_ptw:
        printf("ptw %d %d %" PRIu64, pt_ptw_size(packet->payload.ptw.plc), packet->payload.ptw.ip,
               packet->payload.ptw.payload);
        break;
    case ppt_exstop: case ppt_mwait: case ppt_pwre: case ppt_pwrx: print_power(packet); break;
    default: printf("unknown"); break;
    }
}

/* Every packet up to an error, which is returned. */
static int list(struct pt_packet_decoder *decoder)
{
    for (;;) {
        uint64_t offset = 0;
        struct pt_packet packet;
        pt_pkt_get_offset(decoder, &offset);
        int status = pt_pkt_next(decoder, &packet, sizeof packet);
        if (status == -pte_eos)
            return status;
        if (status < 0) {
            printf("%" PRIu64 " 0 error %d\n", offset, -status);
            return status;
        }
        printf("%" PRIu64 " %d ", offset, packet.size);
        print_packet(&packet);
        putchar('\n');
    }
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 || argc == 5 ? fopen(argv[1], "rb") : NULL;
    if (!file)
        return 2;
    static uint8_t trace[1 << 22];
    size_t size = fread(trace, 1, sizeof trace, file);
    fclose(file);
    if (!size)
        return 0;
    struct pt_config config;
    pt_config_init(&config);
    config.begin = trace;
    config.end = trace + size;
    if (argc == 5) {
        config.cpu = (struct pt_cpu){.vendor = pcv_intel, .family = (uint16_t)atoi(argv[2]),
                                     .model = (uint8_t)atoi(argv[3]), .stepping = (uint8_t)atoi(argv[4])};
        pt_cpu_errata(&config.errata, &config.cpu);
    }
    struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(&config);
    while (decoder && pt_pkt_sync_forward(decoder) >= 0 && list(decoder) != -pte_eos)
        continue;
    pt_pkt_free_decoder(decoder);
    return 0;
}
