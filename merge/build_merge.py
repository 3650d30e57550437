# SPDX-License-Identifier: MIT
"""Build the merge's C part: the cffi extension `ptweave.merge._merge`."""

from __future__ import annotations

from pathlib import Path

from build_tools import cffi_extension

SOURCES = ("program.c", "timeline.c", "tree.c", "tape.c", "frames.c", "visits.c", "memo.c", "replay.c", "walk.c",
           "part.c", "callers.c", "distinct.c", "clocks.c", "graph.c", "graph_flow.c", "graph_bytes.c", "graph_races.c",
           "sync.c", "side.c", "scouts.c", "compare.c", "correspond.c", "timeline_rows.c")
APIS = ("merge_api.h", "graph_api.h", "compare_api.h", "timeline_api.h")
HEADERS = (*APIS, "program.h", "part.h", "timeline.h", "tree.h", "pages.h", "tape.h", "frames.h", "memo.h", "replay.h",
           "visits.h", "walk.h", "callers.h", "graph.h", "sync.h", "side.h", "scouts.h")


def cdef(header: Path) -> str:
    """The declarations between the header's guards, as cffi reads them."""
    text = header.read_text()
    return text.split("/* cdef: begin */", 1)[1].split("/* cdef: end */", 1)[0]


def build(root: Path) -> list[Path]:
    """Build the extension in place; returns the artefact."""
    source = root / "merge" / "src"
    return [cffi_extension(
        root / "merge" / "ptweave" / "merge", "_merge", "".join(cdef(source / name) for name in APIS),
        "".join(f'#include "{name}"\n' for name in APIS),
        sources=[source / name for name in SOURCES], headers=[source / name for name in HEADERS], libraries=[],
        include=[source], remedy="install gcc and python3-dev (apt-get install gcc python3-dev)")]
