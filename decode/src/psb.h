/* SPDX-License-Identifier: MIT */
/* Finding PSBs in raw packets. Pure but for the memory of a packet decoder while a function runs. */
#ifndef PTD_PSB_H
#define PTD_PSB_H

#include "api.h"

#include <stdbool.h>
#include <stdint.h>

enum { PTD_PSB_SIZE = 16 };

/* Offset of the last PSB that begins at `floor` or later and ends at `end` or before; UINT64_MAX: none. */
uint64_t ptd_psb_before(const uint8_t *packets, uint64_t floor, uint64_t end);

/*
 * Whether the packets from the PSB at `psb` to `end` are only PSB+ and packets that move nothing (timing, padding):
 * then a decoder that has read up to `end` has not executed anything of that PSB's segment yet.
 */
bool ptd_psb_only(const uint8_t *packets, uint64_t size, uint64_t psb, uint64_t end);

/* Offset of the first byte that is not part of a complete packet; `start` is the beginning of one. */
uint64_t ptd_packets_end(const uint8_t *packets, uint64_t size, uint64_t start);

#endif
