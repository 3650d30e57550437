/* SPDX-License-Identifier: MIT */
/*
 * Who allocated what: the heap took units for somebody. Once a span or run, not for each block, so that it costs little.
 * Not for signal handlers (as malloc is not).
 */
#ifndef PTW_ALLOCATION_H
#define PTW_ALLOCATION_H

#include "sys.h"

#include <stdint.h>

/* Log that [address, address + size) was taken, with the stack of the call into this library. */
PTW_HIDDEN void ptw_allocation_log(uint64_t address, uint64_t size);

#endif
