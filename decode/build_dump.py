# SPDX-License-Identifier: MIT
"""Build `ptweave.decode._dump`: packets, instructions, blocks and events as text (libipt, Zydis)."""

from __future__ import annotations

from pathlib import Path

import build_tools

SOURCES = ("dump_code", "dump_events", "dump_flow", "dump_lengths", "dump_packets", "dump_text", "walker")
REMEDY = "install what it needs (apt-get install gcc python3-dev libipt-dev libzydis-dev)"


def build(root: Path) -> list[Path]:
    """Build the extension in place; returns its path. Raises SystemExit with one line when it cannot be built."""
    source = root / "decode" / "src"
    header = "\n".join(line for line in (source / "dump.h").read_text().splitlines() if not line.startswith("#"))
    return [build_tools.cffi_extension(
        root / "decode" / "ptweave" / "decode", "_dump", header, '#include "dump.h"',
        [source / f"{name}.c" for name in SOURCES], sorted(source.glob("*.h")), ["ipt", "Zydis"], [source], REMEDY)]
