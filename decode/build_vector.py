# SPDX-License-Identifier: MIT
"""Build `_vector`: files of events to columns (decode/src/vector_*.c)."""

from __future__ import annotations

from pathlib import Path

from build_tools import cffi_extension

CDEF = """
struct ptv_field_entry { uint8_t type; char name[31]; };
struct ptv_kind_entry { uint32_t state, fields; char name[56]; struct ptv_field_entry field[32]; };
struct ptv_file_head {
    uint64_t magic; uint32_t version, list_size, slots, closed; uint64_t span, tsc0, tsc1, t0, t1;
    uint64_t begun, stored, lost, unfinished, corrupt, overwritten, unwritten, dropped[4];
};
struct evv_column {
    uint32_t type; const uint8_t *valid; const uint64_t *word; const int32_t *offset; const unsigned char *data;
};
struct evv_batch {
    uint32_t kind, rows; const uint32_t *pid, *tid, *producer; const uint64_t *tsc; const uint8_t *truncated;
    struct evv_column field[32]; const int32_t *pair_offset; struct evv_column key, value;
};
struct evl_clocks { uint64_t tsc0, tsc1; int64_t t0, t1; };
void evv_times(const struct evl_clocks *clocks, const uint64_t *tsc, size_t rows, int64_t *ret);
struct evv_counts { uint64_t events, corrupt, unread, moved; };
struct evv_reader;
int evv_reader_open(const char *path, struct evv_reader **ret);
void evv_reader_close(struct evv_reader *reader);
const struct ptv_file_head *evv_reader_head(const struct evv_reader *reader);
const struct ptv_kind_entry *evv_reader_kind(const struct evv_reader *reader, uint32_t index);
int evv_reader_next(struct evv_reader *reader, struct evv_batch *ret);
void evv_reader_counts(const struct evv_reader *reader, struct evv_counts *ret);
"""


def build(root: Path) -> list[Path]:
    """Build the extension below `root`; returns its path."""
    source, preload = root / "decode/src", root / "preload/src"
    return [cffi_extension(
        root / "decode/ptweave/decode", "_vector", CDEF, '#include "vector_reader.h"',
        sorted(source.glob("vector_*.c")),
        [*sorted(source.glob("vector_*.h")), *(source / name for name in ("grow.h", "evl_time.h", "evl.h")),
         preload / "vector_format.h"], [], [source], remedy="install gcc and python3-dev")]
