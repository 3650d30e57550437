/* SPDX-License-Identifier: MIT */
/* Images that change from one space's to the next one's. See spare.h. */
#include "spare.h"

#include <stdlib.h>

enum {
    MOST_CHANGED = 64 /* sections: with more of them an image is made as quickly */
};

/* Sections of one space that another does not have. */
struct changed {
    int32_t sections[MOST_CHANGED];
    size_t count;
};

void ptd_spare_keep(struct ptd_spare *spare, struct ptd_round *round, struct pt_image *image, int32_t *sections,
                    size_t count)
{
    ptd_spare_deinit(spare);
    *spare = (struct ptd_spare){.round = round, .image = image, .sections = sections, .count = count};
}

void ptd_spare_deinit(struct ptd_spare *spare)
{
    if (spare->round)
        ptd_round_drop(spare->round, spare->image);
    free(spare->sections);
    *spare = (struct ptd_spare){0};
}

/* Both ascending. False: there are too many. */
static bool missing_in(const int32_t *sections, size_t count, const int32_t *others, size_t other_count,
                       struct changed *ret)
{
    ret->count = 0;
    for (size_t i = 0, j = 0; i < count; i++) {
        while (j < other_count && others[j] < sections[i])
            j++;
        if (j < other_count && others[j] == sections[i])
            continue;
        if (ret->count == MOST_CHANGED)
            return false;
        ret->sections[ret->count++] = sections[i];
    }
    return true;
}

static uint64_t end_of(const struct ptd_images *images, const struct ptd_section *section)
{
    return section->address + ptd_images_stretch(images, section)->size;
}

/* The first address from `at` on that none of them has. */
static uint64_t first_left(const struct ptd_images *images, const struct changed *over, uint64_t at)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (size_t i = 0; i < over->count; i++) {
            const struct ptd_section *section = ptd_images_section(images, over->sections[i]);
            if (section && section->address <= at && at < end_of(images, section)) {
                at = end_of(images, section);
                moved = true;
            }
        }
    }
    return at;
}

static bool all_below(const struct ptd_images *images, const struct changed *gone, const struct changed *added)
{
    for (size_t i = 0; i < gone->count; i++) {
        const struct ptd_section *section = ptd_images_section(images, gone->sections[i]);
        if (!section || first_left(images, added, section->address) < end_of(images, section))
            return false;
    }
    return true;
}

struct pt_image *ptd_spare_take(struct ptd_spare *spare, struct ptd_images *images, const int32_t *sections,
                                size_t count)
{
    struct changed gone, added;
    if (!spare->round || !missing_in(spare->sections, spare->count, sections, count, &gone) ||
        !missing_in(sections, count, spare->sections, spare->count, &added) || !all_below(images, &gone, &added))
        return NULL;
    if (ptd_round_add(spare->round, images, added.sections, added.count, spare->image) < 0) {
        ptd_spare_deinit(spare); /* some of it may be there */
        return NULL;
    }
    struct pt_image *image = spare->image;
    free(spare->sections);
    *spare = (struct ptd_spare){0};
    return image;
}
