# SPDX-License-Identifier: MIT
"""Compiles the C programs of the tests."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def compile_program(folder: Path, name: str, sources: Sequence[Path] = (), flags: Sequence[str] = ()) -> Path:
    """Compile `tests/programs/NAME.c`, with other sources of the project if wanted, into `folder`."""
    output = folder / name
    if not output.exists():
        subprocess.run(["gcc", "-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", *flags, "-o", output,
                        ROOT / "tests/programs" / f"{name}.c", *sources], check=True)
    return output
