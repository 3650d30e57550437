/* SPDX-License-Identifier: MIT */
/* Sections in libipt's image section cache, and images of them, until there are too many. See rounds.h. */
#include "rounds.h"

#include "grow.h"

enum {
    SECTIONS = 1 << 14, /* the cache looks at all it has for each that is added */
    MOST_SECTIONS = 56 << 10, /* of 2^16 */
    MOST_USES = 60000, /* of a stretch: one for each address it lies at, one for each time it is in an image, of 2^16 */
    MOST_IMAGES = 1 << 12,
    MOST_PARTS = 1 << 20 /* of all images: some 100 bytes each */
};

struct ptd_round {
    uint32_t number;
    struct pt_image_section_cache *cache;
    int32_t *sections; /* ours by isid */
    size_t capacity;
    size_t count, limit; /* sections, and how many there may be */
    size_t again;        /* sections that were in an earlier round, too */
    size_t made, parts;  /* images, and sections in them, in all */
    uint64_t before;     /* images made in earlier rounds */
    size_t images;       /* that are left */
};

/* What is needed again and again should be there together, if it can be. */
static size_t limit_after(const struct ptd_round *before)
{
    if (!before)
        return SECTIONS;
    size_t limit = 2 * before->again > before->count ? 2 * before->limit : before->limit;
    return limit < MOST_SECTIONS ? limit : MOST_SECTIONS;
}

struct ptd_round *ptd_round_create(const struct ptd_round *before)
{
    struct ptd_round *round = calloc(1, sizeof *round);
    if (!round)
        return NULL;
    round->number = before ? before->number + 1 : 1;
    round->limit = limit_after(before);
    round->before = before ? ptd_round_made(before) : 0;
    round->cache = pt_iscache_alloc(NULL);
    if (!round->cache) {
        free(round);
        return NULL;
    }
    /* The kernel takes clean file pages back by itself: nothing is won by unmapping. */
    pt_iscache_set_limit(round->cache, UINT64_MAX);
    return round;
}

void ptd_round_destroy(struct ptd_round *round)
{
    if (!round)
        return;
    pt_iscache_free(round->cache);
    free(round->sections);
    free(round);
}

uint64_t ptd_round_made(const struct ptd_round *round)
{
    return round->before + round->made;
}

uint32_t ptd_round_number(const struct ptd_round *round)
{
    return round->number;
}

bool ptd_round_is_over(const struct ptd_round *round, const struct ptd_images *images, const int32_t *sections,
                       size_t count)
{
    size_t missing = 0, uses = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ptd_section *section = ptd_images_section(images, sections[i]);
        const struct ptd_stretch *stretch = section ? ptd_images_stretch(images, section) : NULL;
        missing += section && section->round != round->number;
        if (stretch && stretch->round == round->number && stretch->uses > uses)
            uses = stretch->uses;
    }
    return round->made && (round->count + missing > round->limit || round->made == MOST_IMAGES ||
                           round->parts + count > MOST_PARTS || uses + 2 * count > MOST_USES);
}

static void use(struct ptd_round *round, struct ptd_stretch *stretch)
{
    if (stretch->round != round->number)
        stretch->uses = 0;
    stretch->round = round->number;
    stretch->uses++;
}

static int note(struct ptd_round *round, size_t isid, int32_t number)
{
    if (isid >= round->capacity) {
        size_t capacity = isid < 64 ? 128 : 2 * isid;
        if (ptd_grow(&round->sections, capacity, sizeof *round->sections) < 0)
            return -pte_nomem;
        while (round->capacity < capacity)
            round->sections[round->capacity++] = -1;
    }
    if (round->sections[isid] < 0)
        round->sections[isid] = number;
    return 0;
}

/* libipt's number of a section, added when it is not there yet; or libipt's error. */
static int isid_of(struct ptd_round *round, struct ptd_images *images, int32_t number)
{
    struct ptd_section *section = ptd_images_section(images, number);
    if (section->round == round->number)
        return section->isid;
    struct ptd_stretch *stretch = ptd_images_stretch(images, section);
    int isid = pt_iscache_add_file(round->cache, ptd_images_path(images, stretch), stretch->offset, stretch->size,
                                   section->address);
    if (isid < 0)
        return isid;
    use(round, stretch);
    round->count++;
    round->again += section->round != 0;
    int error = note(round, (size_t)isid, number);
    if (error < 0)
        return error;
    section->round = round->number;
    section->isid = isid;
    return isid;
}

int ptd_round_add(struct ptd_round *round, struct ptd_images *images, const int32_t *sections, size_t count,
                  struct pt_image *image)
{
    round->parts += count;
    for (size_t i = 0; i < count; i++) {
        const struct ptd_section *section = ptd_images_section(images, sections[i]);
        int isid = section ? isid_of(round, images, sections[i]) : -pte_invalid;
        int error = isid < 0 ? isid : pt_image_add_cached(image, round->cache, isid, NULL);
        if (error < 0)
            return error;
        use(round, ptd_images_stretch(images, section));
    }
    return 0;
}

int ptd_round_make(struct ptd_round *round, struct ptd_images *images, const int32_t *sections, size_t count,
                   struct pt_image **ret)
{
    struct pt_image *image = pt_image_alloc(NULL);
    if (!image)
        return -pte_nomem;
    int error = ptd_round_add(round, images, sections, count, image);
    if (error < 0) {
        pt_image_free(image);
        return error;
    }
    round->made++;
    round->images++;
    *ret = image;
    return 0;
}

void ptd_round_drop(struct ptd_round *round, struct pt_image *image)
{
    pt_image_free(image);
    round->images--;
}

size_t ptd_round_images(const struct ptd_round *round)
{
    return round->images;
}

int32_t ptd_round_section(const struct ptd_round *round, int isid)
{
    return isid < 0 || (size_t)isid >= round->capacity ? -1 : round->sections[isid];
}
