/* SPDX-License-Identifier: MIT */
/*
 * Damaged traces through every decoder, to be built with sanitizers.
 *
 *     fuzz_decode FIRST COUNT ENTRY…
 *
 * An ENTRY is a file of lines `trace FILE`, `cpu FAMILY MODEL STEPPING` and `code FILE OFFSET SIZE ADDRESS`. Input number
 * N is made from entry N modulo their number and damaged as N says, so that each can be run again alone. Checked of each:
 * nothing crashes or hangs; bytes decoded and bytes in gaps are all bytes; the decoders agree; what lies before the
 * damaged PSB segment and after the next PSB behind it decodes as if nothing had happened. Exits 1 where that is not so.
 */
#include "fuzz.h"
#include "psb.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS = 60, MAX_ENTRIES = 1024 };

struct entry {
    char *text; /* what the names in `setting` point into */
    const char *name;
    struct setting setting;
    uint8_t *trace;
    size_t size;
};

static uint64_t number; /* of the input at hand */
static const char *at_hand = "none";
static uint64_t state;

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void say_where(void)
{
    fprintf(stderr, "input %" PRIu64 " of %s\n", number, at_hand);
}

void demand(bool holds, const char *rule)
{
    if (holds)
        return;
    fprintf(stderr, "broken: %s\n", rule);
    say_where();
    exit(1);
}

static uint64_t chance(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % limit;
}

/* ---- entries ---- */

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    demand(file != NULL, path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*size + 1);
    demand(fread(data, 1, *size, file) == *size, path);
    data[*size] = 0;
    fclose(file);
    return data;
}

static void read_line(struct entry *entry, char *line)
{
    struct setting *setting = &entry->setting;
    char *kind = strtok(line, " "), *first = strtok(NULL, " ");
    if (!kind || !first)
        return;
    if (strcmp(kind, "trace") == 0) {
        entry->trace = read_file(first, &entry->size);
    } else if (strcmp(kind, "cpu") == 0) {
        setting->cpu.intel = 1;
        setting->cpu.family = (uint16_t)atoi(first);
        setting->cpu.model = (uint8_t)atoi(strtok(NULL, " "));
        setting->cpu.stepping = (uint8_t)atoi(strtok(NULL, " "));
    } else if (strcmp(kind, "code") == 0 && setting->section_count < MAX_SECTIONS) {
        struct section *section = &setting->sections[setting->section_count++];
        section->file = first;
        section->offset = strtoull(strtok(NULL, " "), NULL, 0);
        section->size = strtoull(strtok(NULL, " "), NULL, 0);
        section->address = strtoull(strtok(NULL, " "), NULL, 0);
        section->number = ptd_images_add(setting->images, first, 0, section->offset, section->size, section->address);
        demand(section->number >= 0, "code can be mapped");
    }
}

static void read_entry(struct entry *entry, const char *path)
{
    size_t size;
    entry->name = path;
    entry->text = (char *)read_file(path, &size);
    entry->setting.images = ptd_images_create();
    for (char *line = entry->text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = 0;
        read_line(entry, line);
    }
    entry->setting.dropped = entry->setting.section_count;
    demand(entry->trace != NULL, "an entry has a trace");
}

/* ---- damage ---- */

/* A trace of its own size, so that reads past its end are seen. */
struct damaged {
    uint8_t *data;
    size_t size;
    bool code; /* code is missing, too */
};

static void join(struct damaged *damaged, const uint8_t *first, size_t first_size, const uint8_t *second,
                 size_t second_size, const uint8_t *third, size_t third_size)
{
    damaged->size = first_size + second_size + third_size;
    damaged->data = malloc(damaged->size ? damaged->size : 1);
    memcpy(damaged->data, first, first_size);
    memcpy(damaged->data + first_size, second, second_size);
    memcpy(damaged->data + first_size + second_size, third, third_size);
}

static void flip(struct damaged *damaged)
{
    for (uint64_t i = 0, changes = 1 + chance(3); i < changes; i++) {
        size_t at = chance(damaged->size);
        damaged->data[at] = chance(2) ? (uint8_t)chance(256) : (uint8_t)(damaged->data[at] ^ 1u << chance(8));
    }
}

static struct damaged damage(const struct entry *entry, const struct entry *other)
{
    struct damaged damaged = {0};
    const uint8_t *data = entry->trace;
    size_t size = entry->size, at = chance(size), length = 1 + chance(size - at);
    if (length > 300 && chance(3))
        length = 1 + chance(300);
    size_t from = chance(other->size), take = 1 + chance(other->size - from < 300 ? other->size - from : 300);
    switch (chance(8)) {
    case 0: /* cut at the end */
        join(&damaged, data, 1 + at, data, 0, data, 0);
        break;
    case 1: /* cut at the beginning */
        join(&damaged, data + at, size - at, data, 0, data, 0);
        break;
    case 2: /* a range is missing */
        join(&damaged, data, at, data, 0, data + at + length, size - at - length);
        if (!damaged.size)
            damaged.size = 1, damaged.data[0] = 0;
        break;
    case 3: /* a range stands there twice */
        join(&damaged, data, at + length, data + at, length, data + at + length, size - at - length);
        break;
    case 4: /* a range of another trace */
        join(&damaged, data, at, other->trace + from, take, data + at, size - at);
        break;
    case 5: /* code is missing */
        join(&damaged, data, size, data, 0, data, 0);
        damaged.code = entry->setting.section_count > 0;
        break;
    default:
        join(&damaged, data, size, data, 0, data, 0);
        flip(&damaged);
        break;
    }
    return damaged;
}

/* ---- what must hold ---- */

static struct result *new_result(void)
{
    struct result *result = calloc(1, sizeof *result);
    result->ips = malloc(MAX_INSTRUCTIONS * sizeof *result->ips);
    return result;
}

static void free_result(struct result *result)
{
    free(result->ips);
    free(result);
}

static struct result *decoded(decode_function *decode, const struct setting *setting, const struct input *input)
{
    struct result *result = new_result();
    alarm(SECONDS);
    decode(setting, input, result);
    alarm(0);
    return result;
}

static bool same_ip(uint64_t one, uint64_t other)
{
    return one == other || !one || !other;
}

static uint64_t compared, placed_elsewhere; /* inputs or segments, and those with errors at different places */

static size_t first_error(const struct result *result)
{
    return result->error_count ? result->errors[0].before : result->count;
}

static void agree(const struct decoder *decoder, const struct result *expected, const struct result *found)
{
    bool clean = !expected->error_count && !found->error_count;
    size_t one = first_error(expected), other = first_error(found), count = one < other ? one : other, at = 0;
    while (at < count && same_ip(expected->ips[at], found->ips[at]))
        at++;
    compared++;
    placed_elsewhere += !clean && one != other;
    if (at == count && (!clean || found->count == expected->count))
        return;
    fprintf(stderr, "%s: %zu instructions, first error after %zu; expected %zu, %zu; first difference at %zu\n",
            decoder->name, found->count, other, expected->count, one, at);
    demand(false, "the decoders agree");
}

static void agree_exactly(const struct decoder *decoder, const struct result *expected, const struct result *found)
{
    bool same = expected->count == found->count && expected->error_count == found->error_count &&
                memcmp(expected->ips, found->ips, found->count * sizeof *found->ips) == 0;
    for (size_t i = 0; same && i < found->error_count; i++)
        same = expected->errors[i].before == found->errors[i].before && expected->errors[i].code == found->errors[i].code;
    compared++;
    if (same)
        return;
    fprintf(stderr, "%s: %zu instructions, %zu errors; expected %zu, %zu\n", decoder->name, found->count,
            found->error_count, expected->count, expected->error_count);
    demand(false, "the decoders agree");
}

static void compare(const struct decoder *decoder, const struct setting *setting, const struct input *input)
{
    struct result *expected = decoded(decoder->against, setting, input);
    struct result *found = decoded(decoder->decode, setting, input);
    if (!expected->capped && !found->capped)
        (decoder->how == EXACTLY ? agree_exactly : agree)(decoder, expected, found);
    free_result(found);
    free_result(expected);
}

static void compare_segments(const struct decoder *decoder, const struct setting *setting, const struct input *input)
{
    uint64_t begin = ptd_psb_after(input->packets, input->size, 0);
    while (begin < input->size) {
        uint64_t end = ptd_psb_after(input->packets, input->size, begin + PTD_PSB_SIZE);
        end = end < input->size ? end : input->size;
        compare(decoder, setting, &(struct input){.packets = input->packets + begin, .size = end - begin});
        begin = end;
    }
}

static void all_agree(const struct setting *setting, const struct input *input)
{
    for (size_t i = 0; i < DECODER_COUNT; i++)
        (DECODERS[i].how == BY_SEGMENT ? compare_segments : compare)(&DECODERS[i], setting, input);
}

/* Instructions of [begin, end) of an undamaged trace, by our decoder. */
static struct result *part_of(const struct entry *entry, uint64_t begin, uint64_t end)
{
    struct input input = {.packets = entry->trace + begin, .size = end - begin};
    if (end < entry->size)
        input.has_stop = ptd_psb_ip(entry->trace, entry->size, end, &input.stop) > 0;
    return decoded(decode_ours, &entry->setting, &input);
}

static size_t common_prefix(const struct entry *entry, const struct damaged *damaged)
{
    size_t at = 0;
    while (at < entry->size && at < damaged->size && entry->trace[at] == damaged->data[at])
        at++;
    return at;
}

static size_t common_suffix(const struct entry *entry, const struct damaged *damaged)
{
    size_t length = 0;
    while (length < entry->size && length < damaged->size &&
           entry->trace[entry->size - 1 - length] == damaged->data[damaged->size - 1 - length])
        length++;
    return length;
}

static bool begins(const struct result *whole, const struct result *part)
{
    return whole->count >= part->count && memcmp(whole->ips, part->ips, part->count * sizeof *part->ips) == 0;
}

static bool ends(const struct result *whole, const struct result *part)
{
    return whole->count >= part->count &&
           memcmp(whole->ips + whole->count - part->count, part->ips, part->count * sizeof *part->ips) == 0;
}

/* Segments before the damaged one: all but the last of them, whose end libipt reads together with what follows. */
static void before_damage(const struct entry *entry, const struct damaged *damaged, const struct result *found)
{
    uint64_t last = ptd_psb_before(entry->trace, 0, common_prefix(entry, damaged));
    if (last == UINT64_MAX || last == 0)
        return;
    uint64_t end = ptd_psb_before(entry->trace, 0, last);
    if (end == UINT64_MAX || end == 0)
        return;
    struct result *whole = part_of(entry, 0, entry->size), *part = part_of(entry, 0, end);
    if (!part->capped && !found->capped && !whole->capped && begins(whole, part))
        demand(begins(found, part), "what lies before the damage decodes as before");
    free_result(part);
    free_result(whole);
}

/* Segments behind the damage, but for the first: its PSB may have been swallowed. */
static void after_damage(const struct entry *entry, const struct damaged *damaged, const struct result *found)
{
    uint64_t psb = ptd_psb_after(entry->trace, entry->size, entry->size - common_suffix(entry, damaged));
    if (psb != UINT64_MAX)
        psb = ptd_psb_after(entry->trace, entry->size, psb + 1);
    if (psb == UINT64_MAX)
        return;
    struct result *whole = part_of(entry, 0, entry->size), *part = part_of(entry, psb, entry->size);
    if (!part->capped && !found->capped && !whole->capped && ends(whole, part))
        demand(ends(found, part), "what lies behind the damage decodes as before");
    free_result(part);
    free_result(whole);
}

static void try_one(struct entry *entry, const struct entry *other)
{
    struct damaged damaged = damage(entry, other);
    struct input input = {.packets = damaged.data, .size = damaged.size};
    if (damaged.code)
        entry->setting.dropped = chance(entry->setting.section_count);
    all_agree(&entry->setting, &input);
    if (!damaged.code) {
        struct result *found = decoded(decode_ours, &entry->setting, &input);
        before_damage(entry, &damaged, found);
        after_damage(entry, &damaged, found);
        free_result(found);
    }
    entry->setting.dropped = entry->setting.section_count;
    free(damaged.data);
}

int main(int argc, char **argv)
{
    static struct entry entries[MAX_ENTRIES];
    int count = argc - 3;
    if (count < 1 || count > MAX_ENTRIES)
        return 2;
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(say_where);
    for (int i = 0; i < count; i++)
        read_entry(&entries[i], argv[i + 3]);
    for (int i = 0; i < count; i++) {
        at_hand = entries[i].name;
        struct input input = {.packets = entries[i].trace, .size = entries[i].size};
        all_agree(&entries[i].setting, &input);
    }
    uint64_t first = strtoull(argv[1], NULL, 0), end = first + strtoull(argv[2], NULL, 0);
    for (number = first; number < end; number++) {
        struct entry *entry = &entries[number % (uint64_t)count];
        at_hand = entry->name;
        state = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
        chance(2);
        try_one(entry, &entries[chance((uint64_t)count)]);
    }
    printf("%" PRIu64 " inputs of %d traces; %" PRIu64 " comparisons, in %" PRIu64 " an error is placed differently\n",
           end - first, count, compared, placed_elsewhere);
    for (int i = 0; i < count; i++) {
        ptd_images_destroy(entries[i].setting.images);
        free(entries[i].trace);
        free(entries[i].text);
    }
    return 0;
}
