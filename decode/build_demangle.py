# SPDX-License-Identifier: MIT
"""Build `ptweave.decode._demangle`: libiberty's demanglers (C++, Rust) as a cffi API-mode extension.

libiberty is linked in, as its makers mean it to be: Debian has it as an archive only.
"""

from __future__ import annotations

from pathlib import Path

from build_tools import cffi_extension

CDEF = "int64_t ptd_demangle(const char *name, char *text, size_t size);"


def build(root: Path) -> list[Path]:
    """Build the extension below `root`; returns its path."""
    source = root / "decode/src"
    return [cffi_extension(
        root / "decode/ptweave/decode", "_demangle", CDEF, '#include "demangle.h"', [source / "demangle.c"],
        [source / "demangle.h"], ["iberty"], [source],
        remedy="install gcc, python3-dev and libiberty-dev (apt-get install gcc python3-dev libiberty-dev)")]
