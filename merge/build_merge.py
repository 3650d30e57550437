# SPDX-License-Identifier: MIT
"""Build the merge's C part: the cffi extension `ptweave.merge._merge`."""

from __future__ import annotations

from pathlib import Path

from build_tools import cffi_extension

SOURCES = ("program.c", "timeline.c", "tree.c", "frames.c", "walk.c")
HEADERS = ("merge_api.h", "program.h", "timeline.h", "tree.h", "frames.h")


def cdef(header: Path) -> str:
    """The declarations between the header's guards, as cffi reads them."""
    text = header.read_text()
    return text.split("/* cdef: begin */", 1)[1].split("/* cdef: end */", 1)[0]


def build(root: Path) -> list[Path]:
    """Build the extension in place; returns the artefact."""
    source = root / "merge" / "src"
    return [cffi_extension(
        root / "merge" / "ptweave" / "merge", "_merge", cdef(source / "merge_api.h"), '#include "merge_api.h"',
        sources=[source / name for name in SOURCES], headers=[source / name for name in HEADERS], libraries=[],
        include=[source], remedy="install gcc and python3-dev (apt-get install gcc python3-dev)")]
