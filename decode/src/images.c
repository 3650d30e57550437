/* SPDX-License-Identifier: MIT */
/*
 * Code: sections in libipt's image section cache, and images (address spaces) made of them.
 *
 * The cache keeps every section mapped, so that the block cache libipt hangs on it survives: sections added to an
 * image by file name are unmapped whenever execution leaves them, which costs twenty times the decoding itself.
 * A space borrows the images it was made from. Not thread-safe.
 */
#include "images.h"
#include "cached_steps.h"
#include "walker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    CODES = 4, /* so many spaces' code is remembered: programs that call each other take turns */
    CODES_SIZE = 64 << 20 /* bytes; the last one's may be more */
};

struct ptd_images {
    struct pt_image_section_cache *cache;
    struct ptd_section *sections; /* by isid; image -1: none */
    size_t capacity;
    struct ptd_steps *steps[CODES]; /* those asked for last first */
};

struct ptd_space {
    struct ptd_images *images;
    struct pt_image *image;
    struct ptd_walker *walker;
    int32_t *sections;
    size_t section_count;
};

struct ptd_images *ptd_images_create(void)
{
    struct ptd_images *images = calloc(1, sizeof *images);
    if (!images)
        return NULL;
    images->cache = pt_iscache_alloc(NULL);
    if (!images->cache) {
        free(images);
        return NULL;
    }
    /* The kernel takes clean file pages back by itself: nothing is won by unmapping. */
    pt_iscache_set_limit(images->cache, UINT64_MAX);
    return images;
}

void ptd_images_destroy(struct ptd_images *images)
{
    if (!images)
        return;
    for (size_t i = 0; i < CODES; i++)
        ptd_steps_destroy(images->steps[i]);
    pt_iscache_free(images->cache);
    free(images->sections);
    free(images);
}

static int reserve_sections(struct ptd_images *images, size_t isid)
{
    if (isid < images->capacity)
        return 0;
    size_t capacity = images->capacity ? images->capacity : 64;
    while (capacity <= isid)
        capacity *= 2;
    struct ptd_section *sections = realloc(images->sections, capacity * sizeof *sections);
    if (!sections)
        return -pte_nomem;
    for (size_t i = images->capacity; i < capacity; i++)
        sections[i] = (struct ptd_section){.image = -1};
    images->sections = sections;
    images->capacity = capacity;
    return 0;
}

int ptd_images_add(struct ptd_images *images, const char *path, int32_t image, uint64_t offset, uint64_t size,
                   uint64_t address)
{
    int isid = pt_iscache_add_file(images->cache, path, offset, size, address);
    if (isid < 0)
        return isid;
    int error = reserve_sections(images, (size_t)isid);
    if (error < 0)
        return error;
    images->sections[isid] = (struct ptd_section){.image = image, .offset = offset, .address = address};
    return isid;
}

const struct ptd_section *ptd_images_section(const struct ptd_images *images, int isid)
{
    if (isid < 0 || (size_t)isid >= images->capacity || images->sections[isid].image < 0)
        return NULL;
    return &images->sections[isid];
}

static int ascending(const void *one, const void *other)
{
    int32_t a = *(const int32_t *)one, b = *(const int32_t *)other;
    return (a > b) - (a < b);
}

static int space_init(struct ptd_space *space, struct ptd_images *images, const int *sections, size_t count)
{
    space->images = images;
    space->image = pt_image_alloc(NULL);
    if (!space->image)
        return -pte_nomem;
    for (size_t i = 0; i < count; i++) {
        int error = pt_image_add_cached(space->image, images->cache, sections[i], NULL);
        if (error < 0)
            return error;
    }
    space->walker = ptd_walker_create(space->image);
    space->sections = malloc((count ? count : 1) * sizeof *space->sections);
    if (!space->walker || !space->sections)
        return -pte_nomem;
    for (size_t i = 0; i < count; i++)
        space->sections[i] = sections[i];
    space->section_count = count;
    qsort(space->sections, count, sizeof *space->sections, ascending);
    return 0;
}

static void space_deinit(struct ptd_space *space)
{
    ptd_walker_destroy(space->walker);
    pt_image_free(space->image);
    free(space->sections);
}

int ptd_space_create(struct ptd_images *images, const int *sections, size_t count, struct ptd_space **ret)
{
    struct ptd_space *space = calloc(1, sizeof *space);
    if (!space)
        return -pte_nomem;
    int error = space_init(space, images, sections, count);
    if (error < 0) {
        ptd_space_destroy(space);
        return error;
    }
    *ret = space;
    return 0;
}

void ptd_space_destroy(struct ptd_space *space)
{
    if (!space)
        return;
    space_deinit(space);
    free(space);
}

struct pt_image *ptd_space_image(const struct ptd_space *space)
{
    return space->image;
}

struct ptd_images *ptd_space_images(const struct ptd_space *space)
{
    return space->images;
}

const int32_t *ptd_space_sections(const struct ptd_space *space, size_t *count)
{
    *count = space->section_count;
    return space->sections;
}

/* The place of what is remembered of the code of a space: that fits, or is free, or was not asked for for longest. */
static size_t steps_for(const struct ptd_images *images, const struct ptd_space *space)
{
    size_t i = 0;
    while (i < CODES - 1 && images->steps[i] && !ptd_steps_fit(images->steps[i], space))
        i++;
    return i;
}

/* Drop what was not asked for for longest while there is too much of all. */
static void bound_steps(struct ptd_images *images)
{
    size_t size = 0;
    for (size_t i = 0; i < CODES && images->steps[i]; i++) {
        size += ptd_steps_size(images->steps[i]);
        if (i && size > CODES_SIZE && ptd_steps_drop(images->steps[i]) == 0)
            images->steps[i]->user = NULL;
    }
}

struct ptd_steps *ptd_images_steps(struct ptd_images *images, const struct ptd_space *space)
{
    size_t at = steps_for(images, space);
    struct ptd_steps *steps = images->steps[at] ? images->steps[at] : ptd_steps_create();
    if (!steps)
        return NULL;
    memmove(&images->steps[1], &images->steps[0], at * sizeof *images->steps);
    images->steps[0] = steps;
    bound_steps(images);
    return steps;
}

struct ptd_walker *ptd_space_walker(struct ptd_space *space)
{
    return space->walker;
}

static enum pt_exec_mode exec_mode(uint8_t bits)
{
    return bits == 16 ? ptem_16bit : bits == 32 ? ptem_32bit : ptem_64bit;
}

int64_t ptd_space_lengths(struct ptd_space *space, size_t count, const uint64_t *ips, const int32_t *instructions,
                          const uint8_t *modes, uint8_t *lengths, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (instructions[i] < 0 || (size_t)instructions[i] > capacity - used)
            return -ENOBUFS;
        struct ptd_walk walk;
        int walked = ptd_walker_walk(space->walker, ips[i], exec_mode(modes[i]), (uint32_t)instructions[i],
                                     lengths + used, &walk);
        if (walked < 0 || walk.instructions != (uint32_t)instructions[i])
            return -EILSEQ;
        used += walk.instructions;
    }
    return (int64_t)used;
}

const char *ptd_error_text(int code)
{
    const char *text = pt_errstr((enum pt_error_code)code);
    return text ? text : "unknown error";
}
