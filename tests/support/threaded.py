# SPDX-License-Identifier: MIT
"""Real programs with threads of their own, and what they are called with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """A program that reads a file and writes to its standard output. `words` with {threads} and {file} filled in.

    `wanted` is the time, divided by the native one, that threads as processes (shared, held) may take at most.
    """

    name: str
    words: tuple[str, ...]
    wanted: float | None = None

    def argv(self, threads: int, file: Path) -> list[str]:
        return [word.format(threads=threads, file=file) for word in self.words]


PROGRAMS = (
    Program("pigz", ("pigz", "-p", "{threads}", "-n", "-c", "{file}"), 1.6),
    Program("pbzip2", ("pbzip2", "-p{threads}", "-q", "-k", "-c", "{file}"), 1.6),
    Program("zstd", ("zstd", "-T{threads}", "-B1M", "-6", "-q", "-c", "{file}"), 1.6),
    Program("xz", ("xz", "-T{threads}", "-1", "--block-size=2MiB", "-k", "-c", "{file}"), 1.6),
    Program("sort", ("sort", "--parallel={threads}", "-S", "200M", "{file}"), 5),
    Program("lbzip2", ("lbzip2", "-n", "{threads}", "-k", "-c", "{file}")),
)
