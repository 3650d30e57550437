# SPDX-License-Identifier: MIT
"""Build `_host`: the clock and the identity of the processor (wrapper/src/host.c)."""

from __future__ import annotations

from pathlib import Path

from build_tools import cffi_extension

CDEF = """
struct ptw_moment { uint64_t tsc; uint64_t ns; };
int ptw_host_moment(struct ptw_moment *ret, int tries);
struct ptw_cpu { char vendor[13]; uint32_t family, model, stepping; };
void ptw_host_cpu(struct ptw_cpu *ret);
"""


def build(root: Path) -> list[Path]:
    """Build the extension below `root`; returns its path."""
    source = root / "wrapper/src"
    return [cffi_extension(
        root / "wrapper/ptweave/wrapper", "_host", CDEF, '#include "host.h"',
        [source / "host.c"], [source / "host.h"], [], [source], remedy="install gcc and python3-dev")]
