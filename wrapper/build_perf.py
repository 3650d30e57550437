# SPDX-License-Identifier: MIT
"""Build `_perf_ring`: the drain of perf's rings (wrapper/src/perf_ring.c)."""

from __future__ import annotations

import re
from pathlib import Path

from build_tools import cffi_extension


def build(root: Path) -> list[Path]:
    """Build the extension below `root`; returns its path."""
    source = root / "wrapper/src"
    header = source / "perf_ring.h"
    cdef = "".join(re.findall(r"/\* cffi begin \*/(.*?)/\* cffi end \*/", header.read_text(), re.DOTALL))
    return [cffi_extension(
        root / "wrapper/ptweave/wrapper", "_perf_ring", cdef, '#include "perf_ring.h"',
        [source / "perf_ring.c"], [header], [], [source],
        remedy="apt-get install gcc python3-dev linux-libc-dev")]
