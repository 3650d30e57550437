# SPDX-License-Identifier: MIT
"""Runs `ptweave` as a user would, and looks for what it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 240


@dataclass(frozen=True)
class Done:
    """A finished command; `status` as subprocess gives it (negative: the signal that ended it)."""

    status: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """ptweave's own lines on stderr."""
        return [line for line in self.err.splitlines() if line.startswith("ptweave: ")]


def words(*args: str | Path) -> list[str]:
    """The command line of `ptweave ARGS`."""
    return [sys.executable, "-m", "ptweave.cli", *map(str, args)]


def ptweave(*args: str | Path, cwd: Path | None = None, stdin: bytes = b"",
            env: dict[str, str] | None = None) -> Done:
    """Run `ptweave ARGS` to its end."""
    done = subprocess.run(words(*args), input=stdin, capture_output=True, timeout=TIMEOUT, check=False, cwd=cwd,
                          env=None if env is None else {**os.environ, **env})
    return Done(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def native(argv: list[str | Path], cwd: Path | None = None, stdin: bytes = b"") -> Done:
    """The same command without ptweave: the oracle."""
    done = subprocess.run([str(word) for word in argv], input=stdin, capture_output=True, timeout=TIMEOUT,
                          check=False, cwd=cwd)
    return Done(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def engine_processes(folder: Path) -> set[int]:
    """Processes that run under the soft engine now and write below a folder."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"ptsoft" in line and os.fsencode(folder) in line:
                found.add(int(entry.name))
    return found


def compile_c(source: Path, out: Path, *flags: str) -> Path:
    """Compile one C file."""
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", out, source, *flags], check=True)
    return out
