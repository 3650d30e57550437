/* SPDX-License-Identifier: MIT */
/*
 * Address spaces: sections, and while they are used an image libipt has of them.
 *
 * A space that nobody uses stays mapped until the round is over, and is mapped anew when it is used again: whatever
 * the number of spaces, what is mapped is bounded. Not thread-safe.
 */
#include "images_inner.h"

#include "walker.h"

#include <errno.h>
#include <stdlib.h>

struct ptd_space {
    struct ptd_mapped mapped; /* first: a place in the list is its space */
    struct ptd_images *images;
    int32_t *sections;
    size_t section_count;
    uint32_t users;
    struct ptd_round *round; /* NULL: it is not mapped */
    struct pt_image *image;
    struct ptd_walker *walker;
};

static int ascending(const void *one, const void *other)
{
    int32_t a = *(const int32_t *)one, b = *(const int32_t *)other;
    return (a > b) - (a < b);
}

int ptd_space_create(struct ptd_images *images, const int *sections, size_t count, struct ptd_space **ret)
{
    struct ptd_space *space = calloc(1, sizeof *space);
    if (!space)
        return -pte_nomem;
    space->images = images;
    space->sections = malloc((count ? count : 1) * sizeof *space->sections);
    if (!space->sections) {
        free(space);
        return -pte_nomem;
    }
    for (size_t i = 0; i < count; i++)
        space->sections[i] = sections[i];
    space->section_count = count;
    ptd_images_keep(images);
    qsort(space->sections, count, sizeof *space->sections, ascending);
    *ret = space;
    return 0;
}

/* ---- mapping ---- */

/* No image any more: it is the caller's. */
static void part(struct ptd_space *space)
{
    space->mapped.before->next = space->mapped.next;
    space->mapped.next->before = space->mapped.before;
    space->round = NULL;
    ptd_walker_destroy(space->walker);
}

static void unmap(struct ptd_space *space)
{
    struct ptd_round *round = space->round;
    if (!round)
        return;
    part(space);
    ptd_round_drop(round, space->image);
    if (!ptd_round_images(round) && !ptd_images_is_current(space->images, round))
        ptd_round_destroy(round);
}

/* Unmap it, and leave its image for the next space. */
static void bequeath(struct ptd_space *space)
{
    struct ptd_round *round = space->round;
    part(space);
    ptd_spare_keep(ptd_images_spare(space->images), round, space->image, space->sections, space->section_count);
    space->sections = NULL;
}

void ptd_space_destroy(struct ptd_space *space)
{
    if (!space)
        return;
    if (space->round && ptd_images_is_current(space->images, space->round))
        bequeath(space);
    else
        unmap(space);
    ptd_images_release(space->images);
    free(space->sections);
    free(space);
}

void ptd_spaces_unmap_idle(struct ptd_mapped *list)
{
    for (struct ptd_mapped *at = list->next, *next; at != list; at = next) {
        struct ptd_space *space = (struct ptd_space *)at;
        next = at->next;
        if (!space->users)
            unmap(space);
    }
}

static int map(struct ptd_space *space)
{
    struct ptd_mapped *list = ptd_images_mapped(space->images);
    struct ptd_round *round = ptd_images_round(space->images, space->sections, space->section_count);
    if (!round)
        return -ENOMEM;
    space->image = ptd_spare_take(ptd_images_spare(space->images), space->images, space->sections,
                                  space->section_count);
    int error = space->image ? 0 : ptd_round_make(round, space->images, space->sections, space->section_count,
                                                  &space->image);
    if (error < 0)
        return error == -pte_nomem ? -ENOMEM : -EIO;
    space->round = round;
    space->walker = ptd_walker_create(space->image);
    space->mapped = (struct ptd_mapped){.before = list, .next = list->next};
    list->next->before = &space->mapped;
    list->next = &space->mapped;
    if (space->walker)
        return 0;
    unmap(space);
    return -ENOMEM;
}

int ptd_space_use(struct ptd_space *space)
{
    int error = space->round ? 0 : map(space);
    space->users += error == 0;
    return error;
}

void ptd_space_leave(struct ptd_space *space)
{
    if (--space->users == 0 && !ptd_images_is_current(space->images, space->round))
        unmap(space);
}

/* ---- what is known of it ---- */

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

struct ptd_walker *ptd_space_walker(struct ptd_space *space)
{
    return space->walker;
}

int32_t ptd_space_section(const struct ptd_space *space, int isid)
{
    return ptd_round_section(space->round, isid);
}

uint32_t ptd_space_round(const struct ptd_space *space)
{
    return ptd_round_number(space->round);
}

/* ---- lengths ---- */

static enum pt_exec_mode exec_mode(uint8_t bits)
{
    return bits == 16 ? ptem_16bit : bits == 32 ? ptem_32bit : ptem_64bit;
}

static int64_t lengths_of(struct ptd_space *space, size_t count, const uint64_t *ips, const int32_t *instructions,
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

int64_t ptd_space_lengths(struct ptd_space *space, size_t count, const uint64_t *ips, const int32_t *instructions,
                          const uint8_t *modes, uint8_t *lengths, size_t capacity)
{
    int error = ptd_space_use(space);
    if (error < 0)
        return error;
    int64_t found = lengths_of(space, count, ips, instructions, modes, lengths, capacity);
    ptd_space_leave(space);
    return found;
}
