# SPDX-License-Identifier: MIT
"""The twelve workloads of tests/workloads: what they are called with, and the files they read."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "workloads"
SEED = 4
MB = 1 << 20


class Input(Enum):
    """What a workload reads."""

    NONE = "none"
    PIXELS = "pixels"
    TEXT = "text"
    HTML = "html"


@dataclass(frozen=True)
class Workload:
    """One program. Sizes count what the program counts: bytes of its file, points, rows, rounds, …

    `size` takes 20 to 250 ms natively with four threads on two processors, `small` a few milliseconds. `published` is
    the time of the literature's threading library on its program of that kind, divided by the native time.
    """

    name: str
    size: int
    small: int
    published: float
    input: Input = Input.NONE

    @property
    def source(self) -> Path:
        return SOURCES / f"{self.name}.c"


WORKLOADS = (
    Workload("histogram", 96 * MB, 3 * MB, 1.11, Input.PIXELS),
    Workload("linear_regression", 64 * MB, 2 * MB, 0.18, Input.PIXELS),
    Workload("string_match", 24 * MB, 1 * MB, 1.05, Input.TEXT),
    Workload("word_count", 16 * MB, 1 * MB, 1.21, Input.TEXT),
    Workload("reverse_index", 32 * MB, 2 * MB, 18.2, Input.HTML),
    Workload("kmeans", 20_000, 1_000, 4.97),
    Workload("matrix_multiply", 600, 100, 1.11),
    Workload("pca", 800, 120, 1.28),
    Workload("blackscholes", 200_000, 8_000, 1.12),
    Workload("annealing", 1 << 20, 1 << 14, 7.07),
    Workload("swaptions", 3_000, 100, 1.02),
    Workload("streamcluster", 2_800, 150, 1.25),
)


def compile_workload(workload: Workload, folder: Path, *flags: str) -> Path:
    """The program, in `folder`; compiled when it is not there or older than its source. Other flags: another folder."""
    out = folder / workload.name
    changed = max(path.stat().st_mtime for path in (workload.source, SOURCES / "workload.h"))
    if not out.exists() or out.stat().st_mtime < changed:
        subprocess.run(["gcc", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", *flags, "-o", out,
                        workload.source, "-lm"], check=True)
    return out


# --- input files: the same bytes every time, whatever their length: a shorter file is the beginning of a longer one ---

BLOCK = 1 * MB
WORDS = 4_000
LINK_EVERY = 1_600  # bytes between two links, on average
PAGES = 3_000


def _letters(source: np.random.Generator, count: int) -> list[bytes]:
    return [bytes(source.integers(ord("a"), ord("z") + 1, size, dtype=np.uint8))
            for size in source.integers(2, 10, count)]


def _pixels(source: np.random.Generator) -> bytes:
    return source.normal(128, 40, BLOCK).clip(0, 255).astype(np.uint8).tobytes()


def _vocabulary() -> list[bytes]:
    return [b"the", b"of", b"at", b"key", *_letters(np.random.default_rng(SEED), WORDS - 4)]


def _text(source: np.random.Generator, words: list[bytes]) -> bytes:
    frequency = 1 / np.arange(1, WORDS + 1)
    chosen = source.choice(WORDS, BLOCK // 3, p=frequency / frequency.sum())
    ends = source.random(BLOCK // 3) < 0.1
    text = b"".join(words[one] + (b".\n" if end else b" ") for one, end in zip(chosen, ends, strict=True))
    return text[:BLOCK]


def _html(source: np.random.Generator, words: list[bytes]) -> bytes:
    plain, parts, at = _text(source, words), [], 0
    for gap in source.integers(LINK_EVERY // 2, LINK_EVERY * 3 // 2, BLOCK // (LINK_EVERY // 2)):
        page = int(PAGES * source.random() ** 2)
        parts += [plain[at:at + gap], b'<a href="http://site%d.example/%s">' % (page, words[page]), b"<b>x</b></a>"]
        at += int(gap)
    return b"".join(parts)[:BLOCK]


def make_input(kind: Input, path: Path, size: int) -> Path:
    """A file of that kind, at least `size` bytes long; kept when it is there and long enough."""
    if path.exists() and path.stat().st_size >= size:
        return path
    words = _vocabulary()
    make: dict[Input, Callable[[np.random.Generator], bytes]] = {
        Input.PIXELS: _pixels,
        Input.TEXT: lambda source: _text(source, words),
        Input.HTML: lambda source: _html(source, words),
    }
    scratch = path.with_suffix(".part")
    with scratch.open("wb") as out:
        for block in range(-(-size // BLOCK)):
            out.write(make[kind](np.random.default_rng([SEED, block])))
    scratch.rename(path)
    return path


@dataclass(frozen=True)
class Bench:
    """A folder with compiled workloads and their inputs."""

    folder: Path
    flags: tuple[str, ...] = ()

    def argv(self, workload: Workload, threads: int, size: int) -> list[str]:
        """The command line that runs a workload; compiles it and makes its input when they are not there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        words = [str(compile_workload(workload, self.folder, *self.flags)), str(threads), str(size)]
        if workload.input is not Input.NONE:
            words.append(str(make_input(workload.input, self.folder / f"input.{workload.input.value}", size)))
        return words
