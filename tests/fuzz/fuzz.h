/* SPDX-License-Identifier: MIT */
/* What a decoder made of an input, and the decoders that are held against each other. */
#ifndef FUZZ_H
#define FUZZ_H

#include "api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Instructions kept of one decode; an input that runs longer is not compared. */
enum { MAX_INSTRUCTIONS = 1 << 18, MAX_ERRORS = 4096, MAX_SECTIONS = 64 };

/* An error: how many instructions ran before it, and libipt's code. */
struct failure {
    size_t before;
    int code;
};

struct result {
    uint64_t *ips; /* MAX_INSTRUCTIONS of room */
    size_t count;
    struct failure errors[MAX_ERRORS];
    size_t error_count;
    bool capped; /* there was more than is kept */
};

struct section {
    const char *file;
    uint64_t offset, size, address;
    int number; /* in `images` */
};

/* Code, and the processor packets are of. */
struct setting {
    struct ptd_images *images;
    struct section sections[MAX_SECTIONS];
    size_t section_count;
    size_t dropped; /* a section that is missing, section_count: none */
    struct ptd_cpu cpu;
};

/* Part of a trace, to be decoded up to `stop` (see struct ptd_slice). */
struct input {
    const uint8_t *packets;
    uint64_t size;
    bool has_stop;
    uint64_t stop;
};

typedef void decode_function(const struct setting *setting, const struct input *input, struct result *result);

/*
 * `how` the two are held together: up to the first error of either; so, each PSB segment by itself, for decoders that go
 * on differently after an error; or exactly, errors and all.
 */
struct decoder {
    const char *name;
    decode_function *decode;
    decode_function *against;
    enum { WHOLE, BY_SEGMENT, EXACTLY } how;
};

/* Decoders that must agree. */
extern const struct decoder DECODERS[];
extern const size_t DECODER_COUNT;

/* libipt's decoders by themselves; ours. */
decode_function decode_instructions, decode_blocks, decode_ours, decode_paths;

/* Exit with an error, saying which input it was. */
void demand(bool holds, const char *rule);

static inline void add_ip(struct result *result, uint64_t ip)
{
    if (result->count < MAX_INSTRUCTIONS)
        result->ips[result->count++] = ip;
    else
        result->capped = true;
}

static inline void add_error(struct result *result, int code)
{
    if (result->error_count < MAX_ERRORS)
        result->errors[result->error_count++] = (struct failure){result->count, code};
    else
        result->capped = true;
}

#endif
