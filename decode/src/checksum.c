/* SPDX-License-Identifier: MIT */
/*
 * A checksum as fast as memory, for files of our own that a lost disk or power may have damaged; it is no defence
 * against somebody. Eight lanes, each step of a lane can be undone, so that no one changed word goes unseen. Pure.
 */
#include "api.h"
#include "hash.h"

#include <string.h>

enum { LANES = 8, STRIDE = LANES * 8 };

static uint64_t step(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return lane << 29 | lane >> 35;
}

uint64_t ptd_checksum(const uint8_t *bytes, size_t count)
{
    uint64_t lanes[LANES], sum = count;
    for (unsigned i = 0; i < LANES; i++)
        lanes[i] = ptd_mix(i + 1);
    size_t at = 0;
    for (; count - at >= STRIDE; at += STRIDE) {
        uint64_t words[LANES];
        memcpy(words, bytes + at, STRIDE);
        for (unsigned i = 0; i < LANES; i++)
            lanes[i] = step(lanes[i], words[i]);
    }
    for (; at < count; at++)
        lanes[0] = step(lanes[0], bytes[at]);
    for (unsigned i = 0; i < LANES; i++)
        sum = step(step(sum, lanes[i]), i);
    return sum ^ sum >> 32;
}
