# SPDX-License-Identifier: MIT
"""Build `ptweave.decode._join`: the join of the soft engine's logs with the kernel's records, in C."""

from __future__ import annotations

import re
from pathlib import Path

from build_tools import cffi_extension

REMEDY = "apt-get install gcc python3-dev"


def build(root: Path) -> list[Path]:
    """Build the extension in place; returns its path. Raises SystemExit with one line when it cannot be built."""
    folder = root / "decode/src"
    header = folder / "join.h"
    parts = re.findall(r"/\* cffi begin \*/(.*?)/\* cffi end \*/", header.read_text(), re.DOTALL)
    return [cffi_extension(root / "decode/ptweave/decode", "_join", "".join(parts), '#include "join.h"',
                           [folder / "join.c"], [header], [], [folder], REMEDY)]
