/* SPDX-License-Identifier: MIT */
/*
 * pt_oracle TRACE (FILE ADDRESS)…: what libipt's instruction decoder makes of a trace, without anything of ours.
 * Prints "COUNT HASH ERRORS": instructions, h = (h ^ ip) * 0x9E3779B97F4A7C15; h ^= h >> 29, and errors met.
 */
#include <fcntl.h>
#include <intel-pt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t count, hash, errors;

static void see(const struct pt_insn *insn)
{
    if (insn->iclass == ptic_error)
        return;
    count++;
    hash = (hash ^ insn->ip) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 29;
}

/* Decode to the next error or the end; returns libipt's status. */
static int decode(struct pt_insn_decoder *decoder, int status)
{
    while (status >= 0) {
        while (status >= 0 && status & pts_event_pending) {
            struct pt_event event;
            status = pt_insn_event(decoder, &event, sizeof event);
        }
        if (status < 0 || status & pts_eos)
            break;
        struct pt_insn insn;
        memset(&insn, 0, sizeof insn);
        status = pt_insn_next(decoder, &insn, sizeof insn);
        see(&insn);
    }
    return status;
}

int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDONLY);
    struct stat file;
    if (argc < 2 || fd < 0 || fstat(fd, &file) < 0)
        return 2;
    struct pt_image *image = pt_image_alloc("oracle");
    for (int i = 2; i + 1 < argc; i += 2) {
        struct stat code;
        if (stat(argv[i], &code) < 0 || pt_image_add_file(image, argv[i], 0, (uint64_t)code.st_size, NULL,
                                                          strtoull(argv[i + 1], NULL, 0)) < 0)
            return 2;
    }
    struct pt_config config;
    memset(&config, 0, sizeof config);
    pt_config_init(&config);
    config.begin = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    config.end = config.begin + file.st_size;
    struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(&config);
    pt_insn_set_image(decoder, image);
    for (int status; (status = pt_insn_sync_forward(decoder)) != -pte_eos;) {
        status = decode(decoder, status);
        if (status >= 0 || status == -pte_eos)
            break;
        errors++;
    }
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", count, hash, errors);
    pt_insn_free_decoder(decoder);
    pt_image_free(image);
    return 0;
}
