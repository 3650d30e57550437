/* SPDX-License-Identifier: MIT */
/*
 * The instruction walker.
 *
 * libipt knows instruction lengths and classes but shows them only along a trace. So the walker decodes the shortest
 * trace there is, PSB PSBEND MODE.Exec TIP.PGE, with the address patched in: from there the instruction decoder goes
 * on without packets until a branch needs one. Used once for each distinct block, never in the hot loop.
 * Owns its buffer and its decoder; not thread-safe.
 */
#include "walker.h"

#include <stdlib.h>
#include <string.h>

enum {
    PSB_SIZE = 16,
    MODE_AT = PSB_SIZE + 2 + 1, /* payload of MODE.Exec, after PSBEND and the opcode */
    IP_AT = MODE_AT + 1 + 1,    /* payload of TIP.PGE with a full IP */
    TRACE_SIZE = IP_AT + 8
};

struct ptd_walker {
    struct pt_insn_decoder *decoder;
    uint8_t trace[TRACE_SIZE];
};

static void write_trace(uint8_t *trace)
{
    for (int i = 0; i < PSB_SIZE; i += 2) {
        trace[i] = 0x02;
        trace[i + 1] = 0x82;
    }
    trace[PSB_SIZE] = 0x02; /* PSBEND */
    trace[PSB_SIZE + 1] = 0x23;
    trace[MODE_AT - 1] = 0x99; /* MODE; the leaf in the payload's high bits is 0: Exec */
    trace[IP_AT - 1] = 6 << 5 | 0x11; /* TIP.PGE, all eight bytes of the IP */
}

struct ptd_walker *ptd_walker_create(struct pt_image *image)
{
    struct ptd_walker *walker = calloc(1, sizeof *walker);
    if (!walker)
        return NULL;
    write_trace(walker->trace);
    struct pt_config config;
    memset(&config, 0, sizeof config);
    pt_config_init(&config);
    config.begin = walker->trace;
    config.end = walker->trace + TRACE_SIZE;
    walker->decoder = pt_insn_alloc_decoder(&config);
    if (!walker->decoder || pt_insn_set_image(walker->decoder, image) < 0) {
        ptd_walker_destroy(walker);
        return NULL;
    }
    return walker;
}

void ptd_walker_destroy(struct ptd_walker *walker)
{
    if (!walker)
        return;
    pt_insn_free_decoder(walker->decoder);
    free(walker);
}

static uint8_t mode_payload(enum pt_exec_mode mode)
{
    /* CS.L in bit 0, CS.D in bit 1 (SDM vol. 3, MODE.Exec) */
    return mode == ptem_64bit ? 1 : mode == ptem_32bit ? 2 : 0;
}

/* The opcode bytes after prefixes: one, or two of the 0F map. Returns how many bytes the prefixes take. */
static uint8_t opcode_of(const struct pt_insn *insn, uint8_t *opcode, uint8_t *second)
{
    uint8_t i = 0;
    for (; i + 1 < insn->size; i++) {
        uint8_t byte = insn->raw[i];
        bool legacy = byte == 0x66 || byte == 0x67 || byte == 0xF2 || byte == 0xF3 || byte == 0x2E || byte == 0x36 ||
                      byte == 0x3E || byte == 0x26 || byte == 0x64 || byte == 0x65 || byte == 0xF0;
        bool rex = insn->mode == ptem_64bit && (byte & 0xF0) == 0x40;
        if (!legacy && !rex)
            break;
    }
    *opcode = insn->raw[i];
    *second = i + 1 < insn->size ? insn->raw[i + 1] : 0;
    return i;
}

static enum ptd_class class_of(const struct pt_insn *insn)
{
    uint8_t opcode, second;
    opcode_of(insn, &opcode, &second);
    switch (insn->iclass) {
    case ptic_cond_jump:
        return PTD_COND_JUMP;
    case ptic_jump:
        return opcode == 0xFF ? PTD_IND_JUMP : PTD_JUMP;
    case ptic_call:
        return opcode == 0xFF ? PTD_IND_CALL : PTD_CALL;
    case ptic_return:
        return PTD_RETURN;
    case ptic_far_call: /* syscall, sysenter and int n enter the kernel on purpose; int3, int1, far calls do not */
        if (opcode == 0xCD || (opcode == 0x0F && (second == 0x05 || second == 0x34)))
            return PTD_SYSCALL;
        return PTD_FAR;
    case ptic_far_return:
    case ptic_far_jump:
        return PTD_FAR;
    default:
        return PTD_OTHER;
    }
}

/* Where a direct branch leads: its displacement is what follows the opcode. False for a form we do not know. */
static bool target_of(const struct pt_insn *insn, uint64_t *target)
{
    uint8_t opcode, second, prefixes = opcode_of(insn, &opcode, &second);
    int at = prefixes + (opcode == 0x0F ? 2 : 1), width = insn->size - at;
    uint64_t next = insn->ip + insn->size;
    if (width == 1) {
        *target = next + (uint64_t)(int64_t)(int8_t)insn->raw[at];
    } else if (width == 4) {
        int32_t displacement;
        memcpy(&displacement, insn->raw + at, sizeof displacement);
        *target = next + (uint64_t)(int64_t)displacement;
    } else {
        return false;
    }
    return true;
}

/* Start the decoder at `ip` and take the events that PSB+ and TIP.PGE are. */
static int start(struct ptd_walker *walker, uint64_t ip, enum pt_exec_mode mode)
{
    walker->trace[MODE_AT] = mode_payload(mode);
    for (int i = 0; i < 8; i++)
        walker->trace[IP_AT + i] = (uint8_t)(ip >> 8 * i);
    int status = pt_insn_sync_set(walker->decoder, 0);
    while (status >= 0 && status & pts_event_pending) {
        struct pt_event event;
        status = pt_insn_event(walker->decoder, &event, sizeof event);
    }
    return status;
}

int ptd_walker_walk(struct ptd_walker *walker, uint64_t ip, enum pt_exec_mode mode, uint32_t instructions,
                    uint8_t *lengths, struct ptd_walk *ret)
{
    *ret = (struct ptd_walk){.end = ip, .last = PTD_OTHER};
    int status = start(walker, ip, mode);
    if (status < 0)
        return status;
    while (ret->instructions < instructions) {
        struct pt_insn insn;
        status = pt_insn_next(walker->decoder, &insn, sizeof insn);
        if (insn.iclass == ptic_error || !insn.size)
            return status < 0 ? status : -pte_bad_insn;
        if (lengths)
            lengths[ret->instructions] = insn.size;
        ret->instructions++;
        ret->last_ip = insn.ip;
        ret->end = insn.ip + insn.size;
        ret->isid = insn.isid;
        ret->last = class_of(&insn);
        if ((ret->last == PTD_JUMP || ret->last == PTD_CALL) && !target_of(&insn, &ret->target))
            ret->target = 0;
        if (ret->last != PTD_OTHER) /* the branch needs a packet there is none of, or leads elsewhere: the end */
            break;
    }
    return 0;
}

static bool moves_to_cr(const struct pt_insn *insn)
{
    uint8_t opcode, second;
    opcode_of(insn, &opcode, &second);
    return opcode == 0x0F && second == 0x22;
}

/* Add one instruction. Returns 1 when the walk ends with it, 0 when it goes on, or an error. */
static int straight_add(struct ptd_straight *ret, const struct pt_insn *insn)
{
    if (insn->truncated || moves_to_cr(insn) || ret->instructions == PTD_STRAIGHT_MAX)
        return -pte_not_supported;
    ret->isid = insn->isid;
    ret->instructions++;
    ret->last_ip = insn->ip;
    ret->end = insn->ip + insn->size;
    ret->last = class_of(insn);
    ret->call = insn->iclass == ptic_call || insn->iclass == ptic_far_call;
    if (ret->last == PTD_COND_JUMP || ret->last == PTD_JUMP || ret->last == PTD_CALL)
        if (!target_of(insn, &ret->target))
            return -pte_not_supported;
    return ret->last != PTD_OTHER;
}

int ptd_walker_straight(struct ptd_walker *walker, uint64_t ip, uint64_t stop, struct ptd_straight *ret)
{
    *ret = (struct ptd_straight){.end = ip, .last = PTD_OTHER};
    int status = start(walker, ip, ptem_64bit);
    if (status < 0)
        return status;
    for (;;) {
        if (ret->instructions && ret->end == stop)
            return 0;
        struct pt_insn insn;
        status = pt_insn_next(walker->decoder, &insn, sizeof insn);
        if (insn.iclass == ptic_error || !insn.size)
            return status < 0 ? status : -pte_bad_insn;
        if (ret->instructions && insn.isid != ret->isid) /* libipt's blocks do not cross sections */
            return 0;
        status = straight_add(ret, &insn);
        if (status != 0)
            return status < 0 ? status : 0;
    }
}
