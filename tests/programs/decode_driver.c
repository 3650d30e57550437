/* SPDX-License-Identifier: MIT */
/*
 * The decoder's C half without Python, to be built with sanitizers.
 *
 *     decode_driver flow TRACE CODE ADDRESS TIMES   decode; then TIMES more with bytes of the trace changed
 *     decode_driver lines SECTION TIMES             read a .debug_line; then TIMES more with bytes changed
 *
 * Prints what the first, unchanged run found. Exits 1 when a run breaks a rule that holds for every input.
 */
#include "api.h"

#include <fcntl.h>
#include <inttypes.h>
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
        demand((uint64_t)rows->flow_seq[i] == sums->blocks, "seq is dense");
        sums->blocks += (uint64_t)paths.length[rows->flow_path[i]];
    }
    for (size_t i = 0; i < rows->gap_count; i++)
        sums->gap_bytes += (uint64_t)rows->gap_bytes[i];
    sums->gaps += rows->gap_count;
    sums->events += rows->event_count;
}

static void decode(struct ptd_space *space, const uint8_t *packets, size_t size, int show)
{
    struct ptd_tables *tables = ptd_tables_create();
    struct ptd_cpu cpu = {.mtc_freq = 3, .nom_freq = 32, .cpuid_0x15_eax = 2, .cpuid_0x15_ebx = 266, .exact_time = 1};
    struct ptd_slice slice = {.packets = packets, .size = size};
    struct ptd_decoder *decoder;
    demand(ptd_decoder_create(tables, space, &cpu, &slice, &decoder) == 0, "a decoder can be made");
    struct sums sums = {0};
    int more;
    do {
        struct ptd_rows *rows = ptd_rows_create(64); /* small: many turns */
        more = ptd_decoder_step(decoder, rows);
        demand(more >= 0, "no error");
        take_rows(tables, rows, &sums);
        ptd_rows_destroy(rows);
    } while (more);
    struct ptd_progress progress;
    ptd_decoder_progress(decoder, &progress);
    demand((uint64_t)progress.seq == sums.blocks, "blocks agree");
    demand(progress.lost == sums.gap_bytes && sums.gap_bytes <= size, "lost bytes agree");
    if (show)
        printf("%" PRIu64 " instructions %" PRIu64 " blocks %" PRIu64 " gaps %" PRIu64 " events\n",
               progress.instructions, sums.blocks, sums.gaps, sums.events);
    ptd_decoder_destroy(decoder);
    ptd_tables_destroy(tables);
}

static int flow(char **arguments)
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
    decode(space, exact, size, 1);
    free(exact);
    for (uint64_t i = 0; i < times; i++) {
        size_t length = size;
        uint8_t *copy = damaged(trace, &length);
        decode(space, copy, length, 0);
        free(copy);
    }
    ptd_space_destroy(space);
    ptd_images_destroy(images);
    free(trace);
    return 0;
}

/* ---- lines ---- */

static void read_lines(const uint8_t *section, size_t size, int show)
{
    struct ptd_line_sections sections = {.line = section, .line_size = size, .strings = section,
                                         .strings_size = size, .line_strings = section, .line_strings_size = size,
                                         .max_rows = 100000};
    struct ptd_lines *lines;
    demand(ptd_lines_read(&sections, &lines) == 0, "lines can be read");
    demand(lines->count <= sections.max_rows, "rows are bounded");
    for (size_t i = 0; i < lines->count; i++)
        demand(lines->file[i] >= -1 && lines->file[i] < (int64_t)lines->file_count, "files exist");
    for (size_t i = 0; i < lines->file_count; i++)
        demand(memchr(lines->names + lines->file_starts[i], 0, lines->names_size - lines->file_starts[i]) != NULL,
               "names end");
    if (show)
        printf("%zu rows %zu files %zu bad units\n", lines->count, lines->file_count, lines->bad_units);
    ptd_lines_destroy(lines);
}

static int lines(char **arguments)
{
    size_t size;
    uint8_t *section = read_file(arguments[0], &size);
    uint64_t times = strtoull(arguments[1], NULL, 0);
    uint8_t *exact = malloc(size);
    memcpy(exact, section, size);
    read_lines(exact, size, 1);
    free(exact);
    for (uint64_t i = 0; i < times; i++) {
        size_t length = size;
        uint8_t *copy = damaged(section, &length);
        read_lines(copy, length, 0);
        free(copy);
    }
    free(section);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "flow") == 0)
        return flow(argv + 2);
    if (argc == 4 && strcmp(argv[1], "lines") == 0)
        return lines(argv + 2);
    return 2;
}
