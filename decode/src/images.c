/* SPDX-License-Identifier: MIT */
/*
 * Code: which sections of which files there are, what libipt has mapped of them now, and what the path decoder
 * remembers of it.
 *
 * Sections are in libipt's image section cache, which keeps each mapped, so that the block cache libipt hangs on it
 * survives: sections added to an image by file name are unmapped whenever execution leaves them, which costs twenty
 * times the decoding itself. Not thread-safe.
 */
#define _GNU_SOURCE /* O_CLOEXEC, strdup */
#include "images_inner.h"

#include "cached_steps.h"
#include "hash.h"
#include "set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CODES = 4, /* so many spaces' code is remembered: programs that call each other take turns */
    CODES_SIZE = 64 << 20 /* bytes; the last one's may be more */
};

/* A file of code. */
struct file {
    char *path;
    bool known; /* its size */
    uint64_t size;
};

struct ptd_images {
    struct ptd_set files, stretches, sections;
    size_t users; /* whoever made them, and their spaces */
    struct ptd_round *round;
    struct ptd_mapped mapped;
    struct ptd_spare spare;
    struct ptd_steps *steps[CODES]; /* those asked for last first */
};

/* ---- files ---- */

/* The size of a file that can be read. Returns 0 or libipt's error. */
static int size_of(const char *path, uint64_t *ret)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return -pte_bad_file;
    bool known = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    close(file);
    if (!known)
        return -pte_bad_file;
    *ret = (uint64_t)status.st_size;
    return 0;
}

static uint64_t hash_of_file(const void *entry)
{
    uint64_t hash = 0;
    for (const char *at = ((const struct file *)entry)->path; *at; at++)
        hash = ptd_mix2(hash, (uint8_t)*at);
    return hash;
}

static bool same_file(const void *one, const void *other)
{
    return strcmp(((const struct file *)one)->path, ((const struct file *)other)->path) == 0;
}

/* The number of a file, or libipt's error. */
static int file_of(struct ptd_images *images, const char *path)
{
    char *copy = strdup(path);
    int number = copy ? ptd_set_add(&images->files, &(struct file){.path = copy}) : -ENOMEM;
    struct file *file = ptd_set_at(&images->files, number);
    if (!file || file->path != copy)
        free(copy);
    if (!file)
        return -pte_nomem;
    int error = file->known ? 0 : size_of(file->path, &file->size);
    file->known = error == 0;
    return error < 0 ? error : number;
}

const char *ptd_images_path(const struct ptd_images *images, const struct ptd_stretch *stretch)
{
    return ((const struct file *)ptd_set_at(&images->files, (int32_t)stretch->file))->path;
}

/* ---- stretches and sections ---- */

static uint64_t hash_of_stretch(const void *entry)
{
    const struct ptd_stretch *stretch = entry;
    return ptd_mix2(ptd_mix2(stretch->file, stretch->offset), stretch->size);
}

static bool same_stretch(const void *one, const void *other)
{
    const struct ptd_stretch *a = one, *b = other;
    return a->offset == b->offset && a->size == b->size && a->file == b->file;
}

static uint64_t hash_of_section(const void *entry)
{
    const struct ptd_section *section = entry;
    return ptd_mix2(section->stretch, section->address);
}

static bool same_section(const void *one, const void *other)
{
    const struct ptd_section *a = one, *b = other;
    return a->address == b->address && a->stretch == b->stretch;
}

/* ---- life ---- */

struct ptd_images *ptd_images_create(void)
{
    struct ptd_images *images = calloc(1, sizeof *images);
    if (!images)
        return NULL;
    images->users = 1;
    images->mapped.before = images->mapped.next = &images->mapped;
    images->files = (struct ptd_set){.width = sizeof(struct file), .hash = hash_of_file, .same = same_file};
    images->stretches = (struct ptd_set){
        .width = sizeof(struct ptd_stretch), .hash = hash_of_stretch, .same = same_stretch};
    images->sections = (struct ptd_set){
        .width = sizeof(struct ptd_section), .hash = hash_of_section, .same = same_section};
    images->round = ptd_round_create(NULL);
    if (!images->round) {
        ptd_images_destroy(images);
        return NULL;
    }
    return images;
}

static void destroy(struct ptd_images *images)
{
    for (size_t i = 0; i < CODES; i++)
        ptd_steps_destroy(images->steps[i]);
    for (size_t i = 0; i < images->files.count; i++)
        free(((struct file *)ptd_set_at(&images->files, (int32_t)i))->path);
    ptd_spare_deinit(&images->spare);
    ptd_round_destroy(images->round);
    ptd_set_deinit(&images->files);
    ptd_set_deinit(&images->stretches);
    ptd_set_deinit(&images->sections);
    free(images);
}

void ptd_images_keep(struct ptd_images *images)
{
    images->users++;
}

void ptd_images_release(struct ptd_images *images)
{
    if (--images->users == 0)
        destroy(images);
}

void ptd_images_destroy(struct ptd_images *images)
{
    if (images)
        ptd_images_release(images);
}

/* ---- what code there is ---- */

int ptd_images_add(struct ptd_images *images, const char *path, int32_t image, uint64_t offset, uint64_t size,
                   uint64_t address)
{
    int file = file_of(images, path);
    if (file < 0)
        return file;
    uint64_t rest = ((const struct file *)ptd_set_at(&images->files, file))->size;
    if (rest <= offset)
        return -pte_invalid;
    rest -= offset;
    const struct ptd_stretch stretch = {.file = (uint32_t)file, .offset = offset, .size = size < rest ? size : rest};
    int number = ptd_set_add(&images->stretches, &stretch);
    if (number < 0)
        return -pte_nomem;
    const struct ptd_section section = {.stretch = (uint32_t)number, .offset = offset, .address = address};
    number = ptd_set_add(&images->sections, &section);
    if (number < 0)
        return -pte_nomem;
    ptd_images_section(images, number)->image = image; /* a file may have two names: the last one holds */
    return number;
}

struct ptd_section *ptd_images_section(const struct ptd_images *images, int32_t number)
{
    return ptd_set_at(&images->sections, number);
}

struct ptd_stretch *ptd_images_stretch(const struct ptd_images *images, const struct ptd_section *section)
{
    return ptd_set_at(&images->stretches, (int32_t)section->stretch);
}

/* ---- what is mapped ---- */

struct ptd_mapped *ptd_images_mapped(struct ptd_images *images)
{
    return &images->mapped;
}

uint64_t ptd_images_made(const struct ptd_images *images)
{
    return ptd_round_made(images->round);
}

struct ptd_spare *ptd_images_spare(struct ptd_images *images)
{
    return &images->spare;
}

bool ptd_images_is_current(const struct ptd_images *images, const struct ptd_round *round)
{
    return images->round == round;
}

struct ptd_round *ptd_images_round(struct ptd_images *images, const int32_t *sections, size_t count)
{
    struct ptd_round *over = images->round;
    if (!ptd_round_is_over(over, images, sections, count))
        return over;
    struct ptd_round *next = ptd_round_create(over);
    if (!next)
        return NULL;
    images->round = next;
    ptd_spare_deinit(&images->spare);
    if (ptd_round_images(over))
        ptd_spaces_unmap_idle(&images->mapped); /* the last image destroys it */
    else
        ptd_round_destroy(over);
    return next;
}

/* ---- what the path decoder remembers ---- */

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

const char *ptd_error_text(int code)
{
    const char *text = pt_errstr((enum pt_error_code)code);
    return text ? text : "unknown error";
}
