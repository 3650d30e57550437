# SPDX-License-Identifier: MIT
"""Compiles the C and C++ programs of the tests."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")

SCARCE_MEMORY = "-Wl," + ",".join(f"--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc"))
"""With tests/programs/scarce_memory.h."""


def compile_program(folder: Path, name: str, sources: Sequence[Path] = (), flags: Sequence[str] = ()) -> Path:
    """Compile `tests/programs/NAME.c` or `NAME.cpp`, with other sources of the project if wanted, into `folder`."""
    output, source = folder / name, ROOT / "tests/programs" / f"{name}.c"
    compiler = ["gcc", "-std=c11"]
    if not source.exists():
        source, compiler = source.with_suffix(".cpp"), ["g++", "-std=c++17"]
    if not output.exists():
        subprocess.run([*compiler, "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", *flags, "-o", output, source,
                        *sources], check=True)
    return output
