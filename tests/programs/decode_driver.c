/* SPDX-License-Identifier: MIT */
/*
 * The decoder's C half without Python, to be built with sanitizers.
 *
 *     decode_driver flow TRACE CODE ADDRESS TIMES   decode; then TIMES more with bytes of the trace changed
 *     decode_driver replaced TRACE CODE ADDRESS TIMES  the same, with others for packets libipt does not know
 *     decode_driver lines LINE INFO ABBREV TIMES    read three debug sections; then TIMES more with bytes changed
 *
 * Prints what the first, unchanged run found. Exits 1 when a run breaks a rule that holds for every input.
 */
#include "api.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint8_t *read_file(const char *path, size_t *size)
{
    int fd = open(path, O_RDONLY);
    struct stat file;
    if (fd < 0 || fstat(fd, &file) < 0)
        exit(2);
    uint8_t *data = malloc((size_t)file.st_size + 1); /* exactly sized below: reads past the end are seen */
    *size = (size_t)read(fd, data, (size_t)file.st_size);
    close(fd);
    return data;
}

static uint64_t state = 88172645463325252u;

static uint64_t chance(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

/* A copy with a few bytes changed, sometimes shortened, of exactly its size. */
static uint8_t *damaged(const uint8_t *data, size_t *size)
{
    if (chance(4) == 0)
        *size = chance(*size) + 1;
    uint8_t *copy = malloc(*size);
    memcpy(copy, data, *size);
    for (uint64_t i = 0, changes = 1 + chance(8); i < changes; i++)
        copy[chance(*size)] = chance(2) ? (uint8_t)chance(256) : (uint8_t)(copy[chance(*size)] ^ 1u << chance(8));
    return copy;
}

static void demand(int holds, const char *rule)
{
    if (holds)
        return;
    fprintf(stderr, "broken: %s\n", rule);
    exit(1);
}

/* ---- flow ---- */

struct sums {
    uint64_t blocks, gaps, gap_bytes, events;
};

static void take_rows(struct ptd_tables *tables, const struct ptd_rows *rows, struct sums *sums)
{
    struct ptd_paths_view paths;
    ptd_tables_paths(tables, &paths);
    for (size_t i = 0; i < rows->flow_count; i++) {
        demand(rows->flow_path[i] >= 0 && (size_t)rows->flow_path[i] < paths.count, "paths exist");
        sums->blocks += (uint64_t)paths.length[rows->flow_path[i]];
    }
    for (size_t i = 0; i < rows->gap_count; i++)
        sums->gap_bytes += (uint64_t)rows->gap_bytes[i];
    sums->gaps += rows->gap_count;
    sums->events += rows->event_count;
}

/* The path decoder over the same: what it did not give to libipt it decoded as libipt did. */
static void decode_paths(struct ptd_space *space, const uint8_t *packets, size_t size,
                         const struct ptd_progress *libipt, uint64_t gaps, int show)
{
    struct ptd_tables *tables = ptd_tables_create();
    struct ptd_cpu cpu = {0};
    struct ptd_slice slice = {.packets = packets, .size = size};
    struct ptd_cached *cached;
    demand(ptd_cached_create(tables, space, &cpu, &slice, &cached) == 0, "a path decoder can be made");
    struct sums sums = {0};
    int more;
    do {
        struct ptd_rows *rows = ptd_rows_create(64);
        more = ptd_cached_step(cached, rows);
        demand(more >= 0, "no error of the path decoder");
        take_rows(tables, rows, &sums);
        ptd_rows_destroy(rows);
    } while (more);
    struct ptd_progress progress;
    ptd_cached_progress(cached, &progress);
    demand((uint64_t)progress.seq == sums.blocks, "blocks of the path decoder agree");
    demand(progress.lost == sums.gap_bytes && sums.gap_bytes <= size, "its lost bytes agree");
    bool same = progress.instructions == libipt->instructions && progress.seq == libipt->seq && sums.gaps == gaps;
    demand(same || ptd_cached_handed(cached), "both decoders agree");
    demand(!show || (same && !ptd_cached_handed(cached)), "both agree about a trace that is whole");
    ptd_cached_destroy(cached);
    ptd_tables_destroy(tables);
}

static const struct ptd_cpu PLAIN = {0};

/* Its times are told by branch. */
static const struct ptd_cpu PACED = {
    .mtc_freq = 3, .nom_freq = 32, .cpuid_0x15_eax = 2, .cpuid_0x15_ebx = 266, .exact_time = 1};

/* Decode a slice; returns what it came to. */
static struct ptd_progress decode_slice(struct ptd_tables *tables, struct ptd_space *space, const struct ptd_cpu *cpu,
                                        const struct ptd_slice *slice, struct sums *sums)
{
    struct ptd_decoder *decoder;
    uint64_t gap_bytes = sums->gap_bytes;
    demand(ptd_decoder_create(tables, space, cpu, slice, &decoder) == 0, "a decoder can be made");
    int more;
    do {
        struct ptd_rows *rows = ptd_rows_create(64); /* small: many turns */
        more = ptd_decoder_step(decoder, rows);
        demand(more >= 0, "no error");
        take_rows(tables, rows, sums);
        ptd_rows_destroy(rows);
    } while (more);
    struct ptd_progress progress;
    ptd_decoder_progress(decoder, &progress);
    demand((uint64_t)progress.seq == sums->blocks, "blocks agree");
    demand(progress.lost == sums->gap_bytes - gap_bytes && progress.lost <= slice->size, "lost bytes agree");
    ptd_decoder_destroy(decoder);
    return progress;
}

/* Take a part's dictionaries over into those of the whole. */
static void take_tables(struct ptd_tables *whole, const struct ptd_tables *part)
{
    struct ptd_blocks_view blocks;
    struct ptd_paths_view legs, paths;
    ptd_tables_blocks(part, &blocks);
    ptd_tables_legs(part, &legs);
    ptd_tables_paths(part, &paths);
    int32_t *block_map = calloc(blocks.count + 1, sizeof *block_map);
    int32_t *leg_map = calloc(legs.count + 1, sizeof *leg_map), *path_map = calloc(paths.count + 1, sizeof *path_map);
    int32_t *all = calloc(paths.count + 1, sizeof *all), *renumbered = calloc(paths.count + 1, sizeof *renumbered);
    int64_t *seqs = calloc(paths.count + 1, sizeof *seqs);
    demand(ptd_tables_take(whole, &blocks, &legs, &paths, block_map, leg_map, path_map) == 0, "tables can be taken over");
    struct ptd_renumbering numbers = {.count = paths.count, .map = path_map, .length = paths.length};
    for (size_t i = 0; i < paths.count; i++)
        all[i] = (int32_t)i;
    demand(ptd_renumber_flow(&numbers, all, paths.count, 7, renumbered, seqs) >= 7, "flow can be renumbered");
    all[0] = (int32_t)paths.count;
    demand(ptd_renumber_flow(&numbers, all, 1, 0, renumbered, seqs) == -ERANGE, "paths there are none of are refused");
    free(block_map);
    free(leg_map);
    free(path_map);
    free(all);
    free(renumbered);
    free(seqs);
}

/* Decode in ranges, cut at every PSB; returns the instructions of all of them. */
static uint64_t decode_ranges(struct ptd_space *space, const uint8_t *packets, size_t size)
{
    struct ptd_tables *whole = ptd_tables_create_distinct();
    uint64_t instructions = 0;
    for (uint64_t begin = 0, end; begin < size; begin = end) {
        struct ptd_slice slice = {.packets = packets + begin, .offset = begin};
        int found = -1;
        for (end = begin; found < 0 && end < size;) {
            end = ptd_psb_after(packets, size, end + 1);
            found = end < size ? ptd_psb_ip(packets, size, end, &slice.stop_ip) : 0;
        }
        end = end < size ? end : size;
        slice.has_stop = found == 1;
        slice.size = end - begin;
        struct ptd_tables *part = ptd_tables_create();
        struct sums sums = {0};
        instructions += decode_slice(part, space, &PLAIN, &slice, &sums).instructions;
        take_tables(whole, part);
        ptd_tables_destroy(part);
    }
    ptd_tables_destroy(whole);
    return instructions;
}

static void decode(struct ptd_space *space, const uint8_t *packets, size_t size, int show)
{
    struct ptd_tables *tables = ptd_tables_create();
    struct ptd_slice slice = {.packets = packets, .size = size};
    struct sums sums = {0};
    struct ptd_progress progress = decode_slice(tables, space, &PLAIN, &slice, &sums);
    struct sums paced = {0};
    demand(decode_slice(tables, space, &PACED, &slice, &paced).instructions == progress.instructions,
           "how time is told changes nothing else");
    uint64_t in_ranges = decode_ranges(space, packets, size);
    if (show) {
        demand(progress.instructions == in_ranges, "ranges are the whole");
        printf("%" PRIu64 " instructions %" PRIu64 " blocks %" PRIu64 " gaps %" PRIu64 " events\n", progress.instructions,
               sums.blocks, sums.gaps, sums.events);
    }
    ptd_tables_destroy(tables);
    decode_paths(space, packets, size, &progress, sums.gaps, show);
}

enum { SWITCHES = 300 };

/* The address of a block in the middle of those that were decoded; 0: there is none. */
static uint64_t some_place(const struct ptd_tables *tables)
{
    struct ptd_blocks_view blocks;
    ptd_tables_blocks(tables, &blocks);
    return blocks.count ? blocks.ip[blocks.count / 2] : 0;
}

/*
 * The same while threads take turns, at times or at a place; one is nobody's. What is executed is not changed by that.
 * Returns a place.
 */
static uint64_t decode_in_turns(struct ptd_space *space, const struct ptd_slice *slice,
                                const struct ptd_progress *expected, uint64_t place)
{
    const uint64_t begin = UINT64_C(3094328170983760), step = 391; /* the writer's beginning */
    struct ptd_switch switches[SWITCHES];
    for (int i = 0; i < SWITCHES; i++)
        switches[i] = (struct ptd_switch){
            .tsc = begin + (uint64_t)i * step, .space = space, .thread = i % 4 - 1, .when = (uint8_t)(i % 7 % 3)};
    struct ptd_tables *tables = ptd_tables_create();
    struct ptd_slice turns = *slice;
    struct sums sums = {0};
    turns.switches = switches;
    turns.switch_count = SWITCHES;
    turns.switch_ip = place;
    struct ptd_progress progress = decode_slice(tables, space, &PACED, &turns, &sums);
    demand(progress.instructions == expected->instructions && progress.lost == expected->lost,
           "turns change nothing else");
    place = some_place(tables);
    ptd_tables_destroy(tables);
    return place;
}

/* Decode with what libipt does not know replaced, and times told by branch, from a moment on that is known. */
static void decode_replaced(struct ptd_space *space, uint8_t *packets, size_t size, int show)
{
    struct ptd_stand_ins *stand_ins, *again;
    demand(ptd_stand_ins_create(packets, size, &stand_ins) == 0, "packets can be replaced");
    struct ptd_slice slice = {.packets = packets, .size = size, .stand_ins = stand_ins};
    demand(ptd_timing_pass(&PACED, packets, size, stand_ins, &slice.timing) == 0, "packets can be read for their time");
    struct ptd_tables *tables = ptd_tables_create();
    struct sums sums = {0};
    struct ptd_progress progress = decode_slice(tables, space, &PACED, &slice, &sums);
    uint64_t place = decode_in_turns(space, &slice, &progress, 0);
    (void)decode_in_turns(space, &slice, &progress, place);
    if (show)
        printf("%" PRIu64 " instructions %" PRIu64 " gaps %s\n", progress.instructions, sums.gaps,
               stand_ins ? "replaced" : "as it was");
    demand(ptd_stand_ins_create(packets, size, &again) == 0 && !again, "nothing is left to be replaced");
    ptd_stand_ins_destroy(stand_ins);
    ptd_tables_destroy(tables);
}

typedef void decode_fn(struct ptd_space *space, uint8_t *packets, size_t size, int show);

static void decode_plainly(struct ptd_space *space, uint8_t *packets, size_t size, int show)
{
    decode(space, packets, size, show);
}

static int flow(char **arguments, decode_fn *decode_one)
{
    size_t size;
    uint8_t *trace = read_file(arguments[0], &size);
    uint64_t times = strtoull(arguments[3], NULL, 0);
    struct ptd_images *images = ptd_images_create();
    int section = ptd_images_add(images, arguments[1], 0, 0, UINT64_MAX / 2, strtoull(arguments[2], NULL, 0));
    struct ptd_space *space;
    demand(section >= 0 && ptd_space_create(images, &section, 1, &space) == 0, "the code can be mapped");
    uint8_t *exact = malloc(size);
    memcpy(exact, trace, size);
    decode_one(space, exact, size, 1);
    free(exact);
    for (uint64_t i = 0; i < times; i++) {
        size_t length = size;
        uint8_t *copy = damaged(trace, &length);
        decode_one(space, copy, length, 0);
        free(copy);
    }
    ptd_space_destroy(space);
    ptd_images_destroy(images);
    free(trace);
    return 0;
}

/* ---- more spaces than libipt can count ---- */

enum { SPACES = 9000 };

/* The first block of a trace's code as others see it: its space is mapped for that. */
static void look_at(struct ptd_space *space, uint64_t ip)
{
    const int32_t one = 1;
    const uint8_t mode = 64;
    uint8_t length;
    demand(ptd_space_lengths(space, 1, &ip, &one, &mode, &length, 1) == 1, "an instruction is there");
}

/* Decode while thousands of spaces are looked at: libipt begins anew, and what is being decoded goes on. */
static int rounds(char **arguments)
{
    size_t size;
    uint8_t *trace = read_file(arguments[0], &size);
    uint64_t base = strtoull(arguments[2], NULL, 0);
    struct ptd_images *images = ptd_images_create();
    struct ptd_space **spaces = calloc(SPACES, sizeof *spaces);
    for (int i = 0; i < SPACES; i++) {
        int section = ptd_images_add(images, arguments[1], i, 0, UINT64_MAX / 2, base + (uint64_t)(i % 3) * 0x100000);
        demand(section >= 0 && ptd_space_create(images, &section, 1, &spaces[i]) == 0, "the code can be mapped");
    }
    struct ptd_tables *tables = ptd_tables_create();
    struct ptd_slice slice = {.packets = trace, .size = size};
    struct ptd_decoder *decoder;
    struct ptd_progress progress;
    demand(ptd_decoder_create(tables, spaces[0], &PLAIN, &slice, &decoder) == 0, "a decoder can be made");
    int more, looked = 0;
    do {
        struct ptd_rows *rows = ptd_rows_create(1);
        more = ptd_decoder_step(decoder, rows);
        demand(more >= 0 && rows->gap_count == 0, "no error");
        ptd_rows_destroy(rows);
        for (int i = 0; i < SPACES && looked < 3 * SPACES; i++, looked++)
            look_at(spaces[looked % SPACES], base + (uint64_t)(looked % SPACES % 3) * 0x100000);
    } while (more);
    ptd_decoder_progress(decoder, &progress);
    demand(looked == 3 * SPACES, "all were looked at again and again");
    printf("%" PRIu64 " instructions\n", progress.instructions);
    ptd_images_destroy(images); /* the spaces hold what they need */
    ptd_decoder_destroy(decoder);
    for (int i = 0; i < SPACES; i++)
        ptd_space_destroy(spaces[i]);
    ptd_tables_destroy(tables);
    free(spaces);
    free(trace);
    return 0;
}

/* ---- lines ---- */

enum { SECTIONS = 3 };

/* .debug_line, .debug_info, .debug_abbrev; the first stands for the sections of texts, too. Returns the rows. */
static size_t read_rows(uint8_t *const section[SECTIONS], const size_t size[SECTIONS], const uint64_t *wanted,
                        size_t wanted_count, int show)
{
    struct ptd_line_sections sections = {
        .line = section[0], .line_size = size[0], .strings = section[0], .strings_size = size[0],
        .line_strings = section[0], .line_strings_size = size[0], .shared_strings = section[0],
        .shared_strings_size = size[0], .info = section[1], .info_size = size[1], .abbrev = section[2],
        .abbrev_size = size[2], .wanted = wanted, .wanted_count = wanted_count, .max_rows = 100000,
        .max_names = 1 << 20};
    struct ptd_lines *lines;
    demand(ptd_lines_read(&sections, &lines) == 0, "lines can be read");
    demand(lines->count <= sections.max_rows, "rows are bounded");
    demand(lines->names_size <= sections.max_names, "names are bounded");
    for (size_t i = 0; i < lines->count; i++)
        demand(lines->file[i] >= -1 && lines->file[i] < (int64_t)lines->file_count, "files exist");
    for (size_t i = 0; i < lines->file_count; i++)
        demand(memchr(lines->names + lines->file_starts[i], 0, lines->names_size - lines->file_starts[i]) != NULL,
               "names end");
    if (show)
        printf("%zu rows %zu files %zu bad units\n", lines->count, lines->file_count, lines->bad_units);
    size_t count = lines->count;
    ptd_lines_destroy(lines);
    return count;
}

/* All rows, and those that some addresses need */
static void read_lines(uint8_t *const section[SECTIONS], const size_t size[SECTIONS], int show)
{
    enum { WANTED = 64, STEP = 7 };
    uint64_t wanted[WANTED];
    for (unsigned i = 0; i < WANTED; i++)
        wanted[i] = i * STEP;
    size_t all = read_rows(section, size, NULL, 0, show), some = read_rows(section, size, wanted, WANTED, 0);
    demand(some <= all, "wanted addresses need no more rows than there are");
    demand(read_rows(section, size, wanted, 0, 0) == 0, "nobody needs no rows");
}

static int lines(char **arguments)
{
    uint8_t *section[SECTIONS];
    size_t size[SECTIONS];
    uint64_t times = strtoull(arguments[SECTIONS], NULL, 0);
    for (int i = 0; i < SECTIONS; i++) {
        uint8_t *data = read_file(arguments[i], &size[i]);
        section[i] = malloc(size[i]);
        memcpy(section[i], data, size[i]);
        free(data);
    }
    read_lines(section, size, 1);
    for (uint64_t i = 0; i < times; i++) {
        uint8_t *copy[SECTIONS];
        size_t length[SECTIONS];
        for (int k = 0; k < SECTIONS; k++) {
            length[k] = size[k];
            copy[k] = damaged(section[k], &length[k]);
        }
        read_lines(copy, length, 0);
        for (int k = 0; k < SECTIONS; k++)
            free(copy[k]);
    }
    for (int i = 0; i < SECTIONS; i++)
        free(section[i]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "flow") == 0)
        return flow(argv + 2, decode_plainly);
    if (argc == 6 && strcmp(argv[1], "replaced") == 0)
        return flow(argv + 2, decode_replaced);
    if (argc == 5 && strcmp(argv[1], "rounds") == 0)
        return rounds(argv + 2);
    if (argc == 6 && strcmp(argv[1], "lines") == 0)
        return lines(argv + 2);
    return 2;
}
