/* SPDX-License-Identifier: MIT */
/*
 * The decoders: libipt's instruction decoder and block decoder by themselves, and ours. One thread; whatever is made here is freed here.
 */
#include "fuzz.h"

#include <intel-pt.h>
#include <stdlib.h>
#include <string.h>

/* Another decoder is another line. */
const struct decoder DECODERS[] = {
    {"libipt's block decoder", decode_blocks, decode_instructions, BY_SEGMENT},
    {"ptd_decoder", decode_ours, decode_instructions, WHOLE},
    {"ptd_cached", decode_paths, decode_ours, EXACTLY},
};
const size_t DECODER_COUNT = sizeof DECODERS / sizeof *DECODERS;

static struct pt_config config_of(const struct setting *setting, const struct input *input)
{
    struct pt_config config;
    pt_config_init(&config);
    config.begin = (uint8_t *)(uintptr_t)input->packets;
    config.end = config.begin + input->size;
    config.flags.variant.block.end_on_call = 1;
    config.flags.variant.block.end_on_jump = 1;
    if (setting->cpu.intel) {
        config.cpu = (struct pt_cpu){pcv_intel, setting->cpu.family, setting->cpu.model, setting->cpu.stepping};
        pt_cpu_errata(&config.errata, &config.cpu);
    }
    return config;
}

static struct pt_image *image_of(const struct setting *setting)
{
    struct pt_image *image = pt_image_alloc("fuzz");
    for (size_t i = 0; i < setting->section_count; i++) {
        const struct section *section = &setting->sections[i];
        if (i != setting->dropped)
            pt_image_add_file(image, section->file, section->offset, section->size, NULL, section->address);
    }
    return image;
}

/* What both of libipt's decoders can do. */
struct flow {
    void *decoder;
    bool blocks;
    struct result *result;
};

static int sync_forward(const struct flow *flow)
{
    return flow->blocks ? pt_blk_sync_forward(flow->decoder) : pt_insn_sync_forward(flow->decoder);
}

static int take_event(const struct flow *flow, struct pt_event *event)
{
    memset(event, 0, sizeof *event);
    return flow->blocks ? pt_blk_event(flow->decoder, event, sizeof *event)
                        : pt_insn_event(flow->decoder, event, sizeof *event);
}

/* libipt 2.0 looks for a far transfer when a TIP.PGD has no IP; processors write it after any branch that leaves. */
static int left_by_branch(const struct flow *flow)
{
    struct pt_event event;
    int status = take_event(flow, &event);
    bool left = status >= 0 && event.type == ptev_disabled && event.ip_suppressed;
    return left ? status : -pte_bad_query;
}

static int run_instruction(const struct flow *flow, bool off)
{
    struct pt_insn insn;
    memset(&insn, 0, sizeof insn);
    int status = pt_insn_next(flow->decoder, &insn, sizeof insn);
    if (off)
        return status == -pte_eos ? status : -pte_no_enable;
    if (insn.iclass != ptic_error)
        add_ip(flow->result, insn.ip);
    return status;
}

/* A block has no addresses but its first and its last: those between are 0, which agrees with any. */
static void add_block(const struct flow *flow, const struct pt_block *block)
{
    for (unsigned i = 0; i < block->ninsn; i++)
        add_ip(flow->result, i + 1u == block->ninsn ? block->end_ip : i ? 0 : block->ip);
}

static int run_block(const struct flow *flow, bool off)
{
    struct pt_block block;
    memset(&block, 0, sizeof block);
    int status = pt_blk_next(flow->decoder, &block, sizeof block);
    if (off)
        return status == -pte_eos ? status : -pte_no_enable;
    add_block(flow, &block);
    return status;
}

/* Decode to the next error or the end; returns libipt's status. */
static int decode_segment(const struct flow *flow, int status)
{
    while (status >= 0 && !flow->result->capped) {
        struct pt_event event;
        while (status >= 0 && status & pts_event_pending)
            status = take_event(flow, &event);
        if (status < 0 || status & pts_eos)
            break;
        bool off = status & pts_ip_suppressed;
        status = flow->blocks ? run_block(flow, off) : run_instruction(flow, off);
        if (status == -pte_bad_query)
            status = left_by_branch(flow);
    }
    return status;
}

static void decode_flow(const struct flow *flow)
{
    for (int status; (status = sync_forward(flow)) != -pte_eos && !flow->result->capped;) {
        status = decode_segment(flow, status);
        if (status >= 0 || status == -pte_eos)
            break;
        add_error(flow->result, -status);
    }
}

void decode_instructions(const struct setting *setting, const struct input *input, struct result *result)
{
    struct pt_config config = config_of(setting, input);
    struct pt_image *image = image_of(setting);
    struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(&config);
    pt_insn_set_image(decoder, image);
    decode_flow(&(struct flow){decoder, false, result});
    pt_insn_free_decoder(decoder);
    pt_image_free(image);
}

void decode_blocks(const struct setting *setting, const struct input *input, struct result *result)
{
    struct pt_config config = config_of(setting, input);
    struct pt_image *image = image_of(setting);
    struct pt_block_decoder *decoder = pt_blk_alloc_decoder(&config);
    pt_blk_set_image(decoder, image);
    decode_flow(&(struct flow){decoder, true, result});
    pt_blk_free_decoder(decoder);
    pt_image_free(image);
}

/* ---- ours ---- */

/* Lengths of all instructions of all blocks, and where each block's begin. */
struct lengths {
    uint8_t *lengths;
    size_t *starts;
    struct ptd_blocks_view blocks;
};

static struct lengths lengths_of(struct ptd_space *space, const struct ptd_tables *tables)
{
    struct lengths all = {0};
    ptd_tables_blocks(tables, &all.blocks);
    size_t total = 0;
    all.starts = calloc(all.blocks.count + 1, sizeof *all.starts);
    for (size_t i = 0; i < all.blocks.count; i++) {
        all.starts[i] = total;
        total += (size_t)all.blocks.instructions[i];
    }
    all.lengths = calloc(total + 1, 1);
    for (size_t i = 0; i < all.blocks.count; i++) {
        uint8_t mode = (uint8_t)(8u << all.blocks.mode[i]);
        int64_t found = ptd_space_lengths(space, 1, &all.blocks.ip[i], &all.blocks.instructions[i], &mode,
                                          all.lengths + all.starts[i], (size_t)all.blocks.instructions[i]);
        demand(found == all.blocks.instructions[i], "every block is code");
    }
    return all;
}

static void add_leg(const struct lengths *all, const struct ptd_paths_view *legs, int32_t leg, struct result *result)
{
    demand(leg >= 0 && (size_t)leg < legs->count, "legs exist");
    for (int32_t at = legs->starts[leg]; at < legs->starts[leg + 1] && !result->capped; at++) {
        int32_t block = legs->items[at];
        demand(block >= 0 && (size_t)block < all->blocks.count, "blocks exist");
        uint64_t ip = all->blocks.ip[block];
        for (int32_t i = 0; i < all->blocks.instructions[block]; i++) {
            add_ip(result, ip);
            demand(i + 1 < all->blocks.instructions[block] || ip == all->blocks.last_ip[block], "a block ends where it says");
            ip += all->lengths[all->starts[block] + (size_t)i];
        }
    }
}

static void add_path(const struct lengths *all, const struct ptd_tables *tables, int32_t path, struct result *result)
{
    struct ptd_paths_view legs, paths;
    ptd_tables_legs(tables, &legs);
    ptd_tables_paths(tables, &paths);
    demand(path >= 0 && (size_t)path < paths.count, "paths exist");
    for (int32_t at = paths.starts[path]; at < paths.starts[path + 1]; at++)
        add_leg(all, &legs, paths.items[at], result);
}

struct collected {
    int32_t *flow;
    size_t count, capacity;
    int64_t *gap_seqs;
    int32_t *gap_reasons;
    size_t gap_count;
    uint64_t gap_bytes, last_end;
};

static void collect(struct collected *collected, const struct ptd_rows *rows, uint64_t size)
{
    if (collected->count + rows->flow_count > collected->capacity) {
        collected->capacity = 2 * (collected->count + rows->flow_count);
        collected->flow = realloc(collected->flow, collected->capacity * sizeof *collected->flow);
    }
    if (rows->flow_count)
        memcpy(collected->flow + collected->count, rows->flow_path, rows->flow_count * sizeof *rows->flow_path);
    collected->count += rows->flow_count;
    for (size_t i = 0; i < rows->gap_count; i++) {
        uint64_t bytes = (uint64_t)rows->gap_bytes[i];
        demand(rows->gap_bytes[i] >= 0 && rows->gap_offset[i] <= size && bytes <= size - rows->gap_offset[i],
               "gaps lie in the trace");
        if (bytes) {
            demand(rows->gap_offset[i] >= collected->last_end, "gaps do not overlap");
            collected->last_end = rows->gap_offset[i] + bytes;
        }
        collected->gap_bytes += bytes;
        if (rows->gap_kind[i] != PTD_GAP_DECODE_ERROR && rows->gap_kind[i] != PTD_GAP_MISSING_IMAGE)
            continue;
        if (collected->gap_count < MAX_ERRORS) {
            collected->gap_seqs[collected->gap_count] = rows->gap_seq[i];
            collected->gap_reasons[collected->gap_count++] = rows->gap_reason[i];
        }
    }
    for (size_t i = 0; i < rows->event_count; i++)
        demand(rows->event_kind[i] >= 0 && rows->event_kind[i] < PTD_EV_UNKNOWN, "every event has a kind");
}

/* One of our decoders. */
struct ours {
    struct ptd_decoder *libipt;
    struct ptd_cached *paths; /* NULL: it is the other */
};

static void run_ours(const struct ours *decoder, const struct input *input, struct collected *collected)
{
    struct ptd_rows *rows = ptd_rows_create(256); /* small: many turns */
    int more;
    do {
        more = decoder->paths ? ptd_cached_step(decoder->paths, rows) : ptd_decoder_step(decoder->libipt, rows);
        demand(more >= 0, "no error");
        collect(collected, rows, input->size);
        ptd_rows_clear(rows);
    } while (more);
    ptd_rows_destroy(rows);
    struct ptd_progress progress;
    if (decoder->paths)
        ptd_cached_progress(decoder->paths, &progress);
    else
        ptd_decoder_progress(decoder->libipt, &progress);
    demand(progress.lost == collected->gap_bytes, "bytes decoded and bytes in gaps are all bytes");
}

/* Turn paths into instructions, errors into how many instructions ran before them. */
static void expand(struct ptd_space *space, const struct ptd_tables *tables, const struct collected *collected,
                   struct result *result)
{
    struct lengths all = lengths_of(space, tables);
    struct ptd_paths_view paths;
    ptd_tables_paths(tables, &paths);
    int64_t seq = 0;
    size_t gap = 0;
    for (size_t i = 0; i <= collected->count && !result->capped; i++) {
        for (; gap < collected->gap_count && collected->gap_seqs[gap] <= seq; gap++)
            add_error(result, collected->gap_reasons[gap]);
        if (i == collected->count)
            break;
        seq += paths.length[collected->flow[i]];
        add_path(&all, tables, collected->flow[i], result);
    }
    free(all.lengths);
    free(all.starts);
}

static void decode_with(const struct setting *setting, const struct input *input, struct result *result, bool paths)
{
    int numbers[MAX_SECTIONS];
    size_t count = 0;
    for (size_t i = 0; i < setting->section_count; i++)
        if (i != setting->dropped)
            numbers[count++] = setting->sections[i].number;
    struct ptd_space *space;
    demand(ptd_space_create(setting->images, numbers, count, &space) == 0, "a space can be made");
    struct ptd_tables *tables = ptd_tables_create();
    struct ptd_slice slice = {.packets = input->packets, .size = input->size, .has_stop = input->has_stop,
                              .stop_ip = input->stop};
    struct ours decoder = {0};
    int error = paths ? ptd_cached_create(tables, space, &setting->cpu, &slice, &decoder.paths)
                      : ptd_decoder_create(tables, space, &setting->cpu, &slice, &decoder.libipt);
    demand(error == 0, "a decoder can be made");
    struct collected collected = {.gap_seqs = calloc(MAX_ERRORS, sizeof *collected.gap_seqs),
                                  .gap_reasons = calloc(MAX_ERRORS, sizeof *collected.gap_reasons)};
    run_ours(&decoder, input, &collected);
    expand(space, tables, &collected, result);
    free(collected.flow);
    free(collected.gap_seqs);
    free(collected.gap_reasons);
    ptd_decoder_destroy(decoder.libipt);
    ptd_cached_destroy(decoder.paths);
    ptd_tables_destroy(tables);
    ptd_space_destroy(space);
}

void decode_ours(const struct setting *setting, const struct input *input, struct result *result)
{
    decode_with(setting, input, result, false);
}

void decode_paths(const struct setting *setting, const struct input *input, struct result *result)
{
    decode_with(setting, input, result, true);
}
