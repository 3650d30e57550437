/* SPDX-License-Identifier: MIT */
/*
 * A bare loop over libipt's block decoder: what decoding costs before anything is made of it.
 *
 *     bench_blocks [-l] TRACE PLAN
 *
 * PLAN is what tests/support/engine.py writes: `image`, then for each slice `slice BEGIN END` (hexadecimal) and its
 * `code ADDRESS SIZE OFFSET FILE` lines. Blocks end at calls and jumps as ptweave's do; with -l (long) they do not.
 * All sections are in one image section cache. Prints seconds, blocks, instructions and errors.
 */
#include <intel-pt.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct sums {
    uint64_t blocks, instructions, errors;
    double seconds;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void decode(uint8_t *begin, uint8_t *end, struct pt_image *image, int long_blocks, struct sums *sums)
{
    struct pt_config config;
    memset(&config, 0, sizeof config);
    pt_config_init(&config);
    config.begin = begin;
    config.end = end;
    config.flags.variant.block.end_on_call = config.flags.variant.block.end_on_jump = !long_blocks;
    double start = now();
    struct pt_block_decoder *decoder = pt_blk_alloc_decoder(&config);
    pt_blk_set_image(decoder, image);
    for (int status = pt_blk_sync_forward(decoder); status >= 0; status = pt_blk_sync_forward(decoder)) {
        while (status >= 0 && !(status & pts_eos)) {
            struct pt_event event;
            struct pt_block block;
            if (status & pts_event_pending) {
                status = pt_blk_event(decoder, &event, sizeof event);
                continue;
            }
            status = pt_blk_next(decoder, &block, sizeof block);
            sums->blocks += block.ninsn > 0;
            sums->instructions += block.ninsn;
        }
        if (status >= 0)
            break;
        sums->errors += status != -pte_eos;
    }
    pt_blk_free_decoder(decoder);
    sums->seconds += now() - start;
}

/* Read the plan; each slice is decoded when its code is known: at the next line that is not `code`. */
static void run(FILE *plan, uint8_t *trace, int long_blocks, struct sums *sums)
{
    struct pt_image_section_cache *cache = pt_iscache_alloc(NULL);
    pt_iscache_set_limit(cache, UINT64_MAX);
    struct pt_image *image = NULL;
    uint64_t begin = 0, end = 0;
    char line[8192];
    for (int more = 1; more;) {
        more = fgets(line, sizeof line, plan) != NULL;
        uint64_t address, size, offset;
        int path = 0;
        if (more && sscanf(line, "code %" SCNx64 " %" SCNx64 " %" SCNx64 " %n", &address, &size, &offset, &path) == 3) {
            line[strcspn(line, "\n")] = 0;
            int section = pt_iscache_add_file(cache, line + path, offset, size, address);
            if (section >= 0)
                pt_image_add_cached(image, cache, section, NULL);
            continue;
        }
        if (image && end > begin)
            decode(trace + begin, trace + end, image, long_blocks, sums);
        begin = end = 0;
        if (more && sscanf(line, "slice %" SCNx64 " %" SCNx64, &begin, &end) == 2) {
            pt_image_free(image);
            image = pt_image_alloc(NULL);
        }
    }
    pt_image_free(image);
    pt_iscache_free(cache);
}

int main(int argc, char **argv)
{
    int long_blocks = argc > 1 && strcmp(argv[1], "-l") == 0;
    if (argc - long_blocks != 3)
        return 2;
    int fd = open(argv[1 + long_blocks], O_RDONLY);
    FILE *plan = fopen(argv[2 + long_blocks], "r");
    struct stat file;
    if (fd < 0 || !plan || fstat(fd, &file) < 0)
        die(argv[1 + long_blocks]);
    uint8_t *trace = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (trace == MAP_FAILED)
        die("mmap");
    struct sums sums = {0};
    run(plan, trace, long_blocks, &sums);
    printf("%.6f %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", sums.seconds, sums.blocks, sums.instructions, sums.errors);
    return 0;
}
