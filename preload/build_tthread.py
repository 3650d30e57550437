# SPDX-License-Identifier: MIT
"""Build libtthread.so (preload/src): what runs inside the target."""

from __future__ import annotations

from pathlib import Path

from build_tools import shared_library

FLAGS = (
    "-fvisibility=hidden",
    "-fno-omit-frame-pointer",  # a wrapper finds its caller's frame through its own
    "-ftls-model=initial-exec",  # preloaded, so there is room; and no allocation on first use
    "-Wl,-z,now", "-Wl,-z,relro",  # no symbol is looked up in signal context
    "-Wl,-soname,libtthread.so", "-static-libgcc",
)


def build(root: Path) -> list[Path]:
    """Build the library below `root`; returns its path."""
    source = root / "preload/src"
    return [shared_library(
        root / "preload/ptweave/preload/libtthread.so", sorted(source.glob("*.c")), sorted(source.glob("*.h")), FLAGS,
        ["-pthread"], remedy="install gcc")]
