/* SPDX-License-Identifier: MIT */
/*
 * Feeds the dump's C half what a hostile bundle may hold, for the sanitizers to watch:
 *   dump_driver packets FILE SEED ROUNDS   mutated and cut packets, in random spans
 *   dump_driver flow FILE SEED ROUNDS      tables of random numbers over FILE as the only image
 * Prints how much text there was; exits 1 where the text is not whole lines, or what comes out contradicts itself.
 */
#include "dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 64, PATHS = 32, LIST = 256, ROWS = 64, NAMES = 4, MAX_FILE = 1 << 20 };

static uint64_t state;
static size_t written;

static uint64_t dice(uint64_t end)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return end ? state % end : 0;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void check_text(struct dump_text *text)
{
    if (text->size > text->capacity)
        fail("more text than fits");
    if (text->size && text->data[text->size - 1] != '\n')
        fail("half a line");
    written += text->size;
    text->size = 0;
}

static void packets_round(const uint8_t *file, size_t size, struct dump_text *text)
{
    size_t length = dice(2) ? size : dice(size + 1);
    uint8_t *data = malloc(length ? length : 1); /* of its very size: reads beyond it show */
    memcpy(data, file, length);
    for (uint64_t i = dice(20); i && length; i--)
        data[dice(length)] = (uint8_t)dice(256);
    uint64_t from = dice(2) ? 0 : dice(length + 10), to = dice(2) ? length : dice(length + 10);
    struct dump_packets *dump;
    if (dump_packets_create(data, length, from, to, &dump) < 0)
        fail("no dump");
    while (dump_packets_next(dump, text) > 0)
        check_text(text);
    check_text(text);
    struct dump_packets_progress progress;
    dump_packets_progress(dump, &progress);
    if (progress.offset < length && progress.offset < to)
        fail("it ended too early");
    dump_packets_destroy(dump);
    free(data);
}

/* Mostly something sensible, now and then anything. */
static int64_t near(int64_t end)
{
    static const int64_t odd[] = {-1, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX, 1 << 20, 0};
    return dice(20) ? (int64_t)dice((uint64_t)end) : odd[dice(sizeof odd / sizeof *odd)];
}

static void flow_round(const char *path, size_t size, struct dump_text *text)
{
    static int32_t image[BLOCKS], sizes[BLOCKS], instructions[BLOCKS], last[BLOCKS], function[BLOCKS], file[BLOCKS],
        line[BLOCKS], starts[PATHS + 1], list[LIST], path_of[ROWS];
    static int64_t offset[BLOCKS], function_offset[BLOCKS], seq[ROWS], name_starts[NAMES + 1];
    static uint64_t ip[BLOCKS], last_ip[BLOCKS];
    static uint8_t mode[BLOCKS];
    static const char names[] = "main\x1b[2Jcond_jump\xc2\x9b\xe2\x80";
    const char *images[] = {path, NULL, "/nonexistent"};
    for (int i = 0; i < BLOCKS; i++) {
        image[i] = dice(10) ? 0 : (int32_t)near(4);
        sizes[i] = (int32_t)near(40);
        instructions[i] = (int32_t)near(8);
        offset[i] = near((int64_t)size);
        ip[i] = (uint64_t)near(1 << 30);
        last_ip[i] = ip[i] + (uint64_t)near(30);
        mode[i] = (uint8_t[]){64, 64, 32, 16, 0, 77}[dice(6)];
        last[i] = (int32_t)near(NAMES);
        function[i] = (int32_t)near(NAMES);
        file[i] = (int32_t)near(NAMES);
        line[i] = (int32_t)near(100);
        function_offset[i] = near(100);
    }
    for (int i = 0; i <= PATHS; i++)
        starts[i] = dice(30) ? i * (LIST / PATHS) : (int32_t)near(LIST);
    for (int i = 0; i < LIST; i++)
        list[i] = dice(50) ? (int32_t)dice(BLOCKS) : (int32_t)near(BLOCKS);
    for (int i = 0; i < ROWS; i++) {
        seq[i] = i * 8;
        path_of[i] = dice(50) ? (int32_t)dice(PATHS) : (int32_t)near(PATHS);
    }
    for (int i = 0; i <= NAMES; i++)
        name_starts[i] = (int64_t)(sizeof names - 1) * i / NAMES;
    struct dump_tables tables = {BLOCKS, image, offset, ip, last_ip, sizes, instructions, mode, last, function,
                                 function_offset, file, line, NAMES, name_starts, names, PATHS, starts, LIST, list, 3,
                                 images};
    struct dump_flow *dump;
    if (dump_flow_create(&tables, (enum dump_form)dice(4), &dump) < 0)
        fail("no dump");
    int64_t starts_of_notes[] = {0, 2, 5}, note_seqs[] = {3, 100};
    for (int row = 0; row < ROWS; row++) { /* a bad path ends a batch, not the next one */
        struct dump_batch batch = {.count = 1, .seq = seq + row, .path = path_of + row, .from = (int64_t)dice(20),
                                   .to = INT64_MAX, .clock_count = 1, .clock_seq = seq + row, .clock_t = seq + row,
                                   .notes = {2, note_seqs, starts_of_notes, "abcde"}};
        dump_flow_set(dump, &batch);
        while (dump_flow_next(dump, text) > 0)
            check_text(text);
        check_text(text);
    }
    dump_flow_destroy(dump);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    static uint8_t file[MAX_FILE];
    FILE *source = fopen(argv[2], "rb");
    if (!source)
        return 2;
    size_t size = fread(file, 1, sizeof file, source);
    fclose(source);
    state = strtoull(argv[3], NULL, 10) * 2 + 1;
    struct dump_text text = {malloc(DUMP_MIN_TEXT), 0, DUMP_MIN_TEXT};
    for (long rounds = strtol(argv[4], NULL, 10); rounds; rounds--) {
        if (!strcmp(argv[1], "packets"))
            packets_round(file, size, &text);
        else
            flow_round(argv[2], size, &text);
    }
    free(text.data);
    printf("%zu bytes\n", written);
    return 0;
}
