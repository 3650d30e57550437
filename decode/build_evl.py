# SPDX-License-Identifier: MIT
"""Build `_evl`: event lists to thunks with vector clocks and accesses (decode/src/evl*.c)."""

from __future__ import annotations

from pathlib import Path

from build_tools import cffi_extension

CDEF = """
struct evl_clocks { uint64_t tsc0, tsc1; int64_t t0, t1; };
struct evl_batch {
    int32_t thread; uint32_t rows;
    const int32_t *thunk; const uint16_t *operation; const uint8_t *flags; const uint64_t *object;
    const int64_t *result, *t, *wait; const uint64_t *tsc, *marker;
    const int32_t *clock_offsets; const uint32_t *clock; const int32_t *stack;
    uint32_t new_stacks; const uint32_t *new_offsets; const uint64_t *new_words;
};
struct evl_accesses {
    int32_t thread; uint32_t rows; int64_t first;
    const int32_t *thunk; const uint16_t *operation; const uint64_t *tsc; const int64_t *t;
    const uint64_t *address, *argument; const int64_t *result; const int32_t *run_offsets; const uint32_t *run;
    const int32_t *stack_offsets; const uint64_t *stack;
    uint32_t pages; const int64_t *page_record; const uint64_t *page;
    const int32_t *page_thunk, *page_until; const uint8_t *page_write;
};
enum { EVL_THUNKS = 1, EVL_ACCESSES = 2 };
struct evl_counts { uint64_t rows, unfinished, corrupt, unread, lost, missing, accesses, inexact; };
struct evl_decoder;
struct evl_decoder *evl_decoder_create(const struct evl_clocks *clocks, uint64_t slack);
void evl_decoder_destroy(struct evl_decoder *decoder);
int evl_decoder_add(struct evl_decoder *decoder, const char *path, int32_t thread);
int evl_decoder_next(struct evl_decoder *decoder, struct evl_batch *ret, struct evl_accesses *ret_accesses);
void evl_decoder_counts(const struct evl_decoder *decoder, struct evl_counts *ret);
void evl_decoder_thread_counts(const struct evl_decoder *decoder, uint32_t index, struct evl_counts *ret);
"""


def build(root: Path) -> list[Path]:
    """Build the extension below `root`; returns its path."""
    source = root / "decode/src"
    return [cffi_extension(
        root / "decode/ptweave/decode", "_evl", CDEF, '#include "evl.h"', sorted(source.glob("evl*.c")),
        [*sorted(source.glob("evl*.h")), source / "grow.h", source / "hash.h"], [], [source],
        remedy="install gcc and python3-dev")]
