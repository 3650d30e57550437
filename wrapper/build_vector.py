# SPDX-License-Identifier: MIT
"""Build `_vector`: the consumer of event vectors (wrapper/src/vector_*.c)."""

from __future__ import annotations

from pathlib import Path

from build_tools import cffi_extension

CDEF = """
struct ptv_totals { uint64_t begun, stored, lost, corrupt, unwritten, dropped[4]; };
struct ptv_file;
struct ptv_consumer;
struct ptv_recorder { struct ptv_file *file; struct ptv_consumer *consumer; };
int ptv_recorder_init(struct ptv_recorder *recorder, int fd, const char *path, uint64_t ring);
void ptv_recorder_deinit(struct ptv_recorder *recorder);
int ptv_consumer_poll(struct ptv_consumer *consumer, bool open);
int ptv_consumer_reap(struct ptv_consumer *consumer, uint32_t pid);
int ptv_consumer_finish(struct ptv_consumer *consumer);
void ptv_consumer_totals(const struct ptv_consumer *consumer, struct ptv_totals *ret);
uint64_t ptv_file_overwritten(const struct ptv_file *file);
"""


def build(root: Path) -> list[Path]:
    """Build the extension below `root`; returns its path."""
    source, preload = root / "wrapper/src", root / "preload/src"
    return [cffi_extension(
        root / "wrapper/ptweave/wrapper", "_vector", CDEF, '#include "vector_file.h"',
        sorted(source.glob("vector_*.c")), [*sorted(source.glob("vector_*.h")), preload / "vector_format.h"], [],
        [source], remedy="install gcc and python3-dev")]
