# SPDX-License-Identifier: MIT
"""Build `ptweave.decode._ipt`: the decoder's C half on Debian's libipt, as a cffi API-mode extension."""

from __future__ import annotations

from pathlib import Path

import build_tools

SOURCES = ("assemble", "blocks", "cached", "cached_buffer", "cached_code", "cached_packets", "cached_run",
           "cached_segment", "cached_steps", "checksum", "columns", "config", "dwarf_form", "events", "expand",
           "flow", "flow_events", "flow_gaps", "flow_run", "flow_sync", "flow_tail", "flow_turns", "handover", "images",
           "joins", "line_header", "lines", "pace", "packet_counts", "paths", "psb", "rounds", "set", "spaces",
           "spare", "stand_ins", "tables", "timer", "trail", "unit_dirs", "walker")
REMEDY = "install gcc, python3-dev and libipt-dev (apt-get install gcc python3-dev libipt-dev)"


def declarations(header: Path) -> str:
    """The header's text without its preprocessor lines: what cffi can parse."""
    return "\n".join(line for line in header.read_text().splitlines() if not line.startswith("#"))


def build(root: Path) -> list[Path]:
    """Build the extension in place; returns its path. Raises SystemExit with one line when it cannot be built."""
    source = root / "decode" / "src"
    made = build_tools.cffi_extension(
        root / "decode" / "ptweave" / "decode", "_ipt", declarations(source / "api.h"), '#include "api.h"',
        [source / f"{name}.c" for name in SOURCES], sorted(source.glob("*.h")), ["ipt"], [source], REMEDY)
    return [made]
