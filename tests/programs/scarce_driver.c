/* SPDX-License-Identifier: MIT */
/*
 * The decoder's and the dump's C halves, each of whose allocations fails (scarce_memory.h).
 *
 *     scarce_driver TRACE IMAGE BASE
 *
 * To be linked with --wrap for close, too. What is closed must be open: a number that nobody set would be another file's
 * some day.
 */
#include "api.h"
#include "dump.h"
#include "scarce_memory.h"

int __real_close(int file);
int __wrap_close(int file);

int __wrap_close(int file)
{
    int error = __real_close(file);
    if (error)
        abort();
    return error;
}

/* ---- decoding ---- */

static uint8_t trace[1 << 16];
static size_t trace_size;
static const char *image;
static uint64_t base;

static const struct ptd_cpu PACED = {
    .mtc_freq = 3, .nom_freq = 32, .cpuid_0x15_eax = 2, .cpuid_0x15_ebx = 266, .exact_time = 1};

/* Whether it was decoded to its end. */
static bool decode_by_libipt(struct ptd_tables *tables, struct ptd_space *space, const struct ptd_cpu *cpu)
{
    struct ptd_slice slice = {.packets = trace, .size = trace_size};
    struct ptd_decoder *decoder;
    if (ptd_decoder_create(tables, space, cpu, &slice, &decoder) < 0)
        return false;
    struct ptd_rows *rows = ptd_rows_create(1 << 12);
    int more = rows ? ptd_decoder_step(decoder, rows) : -1;
    ptd_rows_destroy(rows);
    ptd_decoder_destroy(decoder);
    return more >= 0;
}

static bool decode_by_paths(struct ptd_tables *tables, struct ptd_space *space, const struct ptd_cpu *cpu)
{
    struct ptd_slice slice = {.packets = trace, .size = trace_size};
    struct ptd_cached *decoder;
    if (ptd_cached_create(tables, space, cpu, &slice, &decoder) < 0)
        return false;
    struct ptd_rows *rows = ptd_rows_create(1 << 12);
    int more = rows ? ptd_cached_step(decoder, rows) : -1;
    ptd_rows_destroy(rows);
    ptd_cached_destroy(decoder);
    return more >= 0;
}

static bool decode_with(struct ptd_space *space, const struct ptd_cpu *cpu, bool paths)
{
    struct ptd_tables *tables = ptd_tables_create();
    bool done = tables && (paths ? decode_by_paths : decode_by_libipt)(tables, space, cpu);
    if (tables)
        ptd_tables_destroy(tables);
    return done;
}

static bool decode(void)
{
    static const struct ptd_cpu plain = {0};
    struct ptd_images *images = ptd_images_create();
    if (!images)
        return false;
    int section = ptd_images_add(images, image, 0, 0, UINT64_MAX / 2, base);
    struct ptd_space *space = NULL;
    bool done = section >= 0 && ptd_space_create(images, &section, 1, &space) == 0;
    if (done) {
        done = decode_with(space, &plain, false);
        done = decode_with(space, &PACED, false) && done;
        done = decode_with(space, &plain, true) && done;
        ptd_space_destroy(space);
    }
    ptd_images_destroy(images);
    return done;
}

/* ---- the dump ---- */

static bool dump(void)
{
    enum { BLOCKS = 4 };
    static int32_t images_of[BLOCKS], sizes[] = {4, 4, 4, 4}, instructions[] = {1, 1, 1, 1}, zeros[BLOCKS], path[1];
    static int32_t starts[] = {0, BLOCKS}, list[] = {0, 1, 2, 3};
    static int64_t offsets[BLOCKS], seq[1], names[] = {0, 4};
    static uint64_t ip[] = {0, 4, 8, 12}, last_ip[] = {0, 4, 8, 12};
    static uint8_t mode[] = {64, 64, 64, 64};
    static uint8_t room[DUMP_MIN_TEXT];
    const char *files[] = {image};
    struct dump_tables tables = {BLOCKS, images_of, offsets, ip, last_ip, sizes, instructions, mode, zeros, zeros,
                                 offsets, zeros, zeros, 1, names, "main", 1, starts, BLOCKS, list, 1, files};
    struct dump_text text = {(char *)room, 0, sizeof room};
    struct dump_flow *flow;
    struct dump_packets *packets;
    bool done = true;
    for (int form = 0; form < 4; form++) {
        if (dump_flow_create(&tables, (enum dump_form)form, &flow) < 0) {
            done = false;
            continue;
        }
        struct dump_batch batch = {.count = 1, .seq = seq, .path = path, .to = INT64_MAX};
        dump_flow_set(flow, &batch);
        int more;
        do {
            more = dump_flow_next(flow, &text);
            text.size = 0;
        } while (more > 0);
        done = done && more == 0;
        dump_flow_destroy(flow);
    }
    if (dump_packets_create(trace, trace_size, 0, trace_size, &packets) < 0)
        return false;
    while (dump_packets_next(packets, &text) > 0)
        text.size = 0;
    dump_packets_destroy(packets);
    return done;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    FILE *source = fopen(argv[1], "rb");
    if (!source)
        return 2;
    trace_size = fread(trace, 1, sizeof trace, source);
    fclose(source);
    image = argv[2];
    base = strtoull(argv[3], NULL, 0);
    return exhaust("decode", decode) || exhaust("dump", dump);
}
