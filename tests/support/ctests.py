# SPDX-License-Identifier: MIT
"""Compiles C unit tests with sanitizers and runs their cases (a program without arguments lists its cases)."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-fno-omit-frame-pointer",
         "-pthread")
SANITIZERS = {"": (), "asan": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
              "tsan": ("-fsanitize=thread",)}


def case_names(program: str) -> list[str]:
    """Names of the cases of tests/programs/PROGRAM.c, without compiling it."""
    return re.findall(r"^\tCASE\((\w+)\),$", (ROOT / "tests/programs" / f"{program}.c").read_text(), re.M)


@functools.cache
def build(program: str, sources: tuple[str, ...], sanitizer: str = "", flags: tuple[str, ...] = ()) -> Path:
    """The test program, compiled once a session with the given sources (paths from the root)."""
    folder = Path(tempfile.mkdtemp(prefix="ctest-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    include = sorted({str(ROOT / Path(source).parent) for source in sources})
    out = folder / program
    subprocess.run(["gcc", *FLAGS, *SANITIZERS[sanitizer], *flags, *[f"-I{path}" for path in include], "-o", out,
                    ROOT / "tests/programs" / f"{program}.c", *[ROOT / source for source in sources]], check=True)
    return out


def run_case(program: Path, *words: str | Path, seconds: float = 120) -> None:
    """Run one case; an assertion with its output when it fails."""
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=seconds, check=False,
                          env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"})
    assert done.returncode == 0, done.stderr[-4000:]
