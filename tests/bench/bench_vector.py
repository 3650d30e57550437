# SPDX-License-Identifier: MIT
"""`make bench-vector`: nanoseconds per event of the event vector, beside LTTng-UST with the same payload.

Four producers (threads, then processes) insert 4,000,000 events of four key/value fields between them while a consumer
writes them to a file in memory (/dev/shm); times are from the first insertion to the last, divided by all events.
Either has 128 MiB of memory for what was not written yet. LTTng's buffers are as large as the lists (its sizes are
powers of two: 8 MiB stand for 10 MB), its consumer writes to the same file system, and it may block rather than
discard, so both store every event. All are measured in turns. A machine without
lttng-tools and liblttng-ust-dev shows the peer as absent.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.report import ROOT, Figure, write

PRODUCERS = 4
EVENTS = 1_000_000
"""Of each producer."""
RUNS = 5
SIZES = {"10 MB": (10 << 20, 8 << 20), "1024 KB": (1 << 20, 1 << 20)}
"""Bytes of a list, and of LTTng's buffers."""
MEMORY = 128 << 20
"""Of all buffers together; LTTng has its own for each processor."""
WANTED_NS = 60.0
WANTED_SECONDS = 1.0
PUBLISHED_SECONDS = {"10 MB": 4.0, "1024 KB": 6.0}
SOURCES = ("tests/bench/vector_bench.c", "preload/src/vector.c", "preload/src/vector_names.c",
           "wrapper/src/vector_consumer.c", "wrapper/src/vector_file.c")
FLAGS = ("-O2", "-g", "-Wall", "-Wextra", "-pthread")


@dataclass(frozen=True)
class Timing:
    """Seconds until the last insertion, and until everything was stored (None: not known)."""

    inserted: float
    stored: float | None


def compile_vector(folder: Path) -> Path:
    """Build the benchmark. Raises CalledProcessError."""
    out = folder / "vector_bench"
    subprocess.run(["gcc", "-std=c11", *FLAGS, "-I", ROOT / "preload/src", "-I", ROOT / "wrapper/src", "-o", out,
                    *[ROOT / source for source in SOURCES]], check=True)
    return out


def compile_lttng(folder: Path) -> Path | None:
    """Build the peer; None where it cannot be."""
    out = folder / "lttng_bench"
    done = subprocess.run(["gcc", "-std=gnu11", *FLAGS[:2], "-I", ROOT / "tests/bench", "-pthread", "-o", out,
                           ROOT / "tests/bench/lttng_bench.c", "-llttng-ust", "-ldl"],
                          capture_output=True, check=False)
    return out if done.returncode == 0 and shutil.which("lttng") and shutil.which("lttng-sessiond") else None


def vector(program: Path, kind: str, list_bytes: int, folder: Path) -> Timing:
    """One run; every event must have been stored."""
    file = folder / "events.ptv"
    file.unlink(missing_ok=True)
    out = subprocess.run([program, kind, str(PRODUCERS), str(EVENTS), str(list_bytes), file], check=True,
                         capture_output=True, text=True).stdout.split()
    if [int(word) for word in out[2:]] != [PRODUCERS * EVENTS, 0, 0]:
        raise SystemExit(f"bench-vector: events were lost: {out}")
    file.unlink()
    return Timing(float(out[0]), float(out[1]))


@contextmanager
def session_daemon(folder: Path) -> Iterator[dict[str, str]]:
    """LTTng's daemon with a home of its own; the environment for its clients."""
    environment = {**os.environ, "LTTNG_HOME": str(folder), "HOME": str(folder), "LTTNG_RUNDIR": str(folder / "run"),
                   "LTTNG_UST_ALLOW_BLOCKING": "1"}
    daemon = subprocess.Popen(["lttng-sessiond", "--no-kernel", "--group=root"], env=environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if subprocess.run(["lttng", "--no-sessiond", "list"], env=environment, capture_output=True,
                              check=False).returncode == 0:
                break
            time.sleep(0.1)
        else:
            raise SystemExit("bench-vector: lttng-sessiond does not answer")
        yield environment
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)


def lttng(program: Path, kind: str, buffer_bytes: int, folder: Path, environment: dict[str, str]) -> Timing:
    """One run in a session of its own."""
    output = folder / "trace"
    buffers = MEMORY // buffer_bytes // (1 << ((os.cpu_count() or 1) - 1).bit_length())

    def control(*words: str) -> str:
        return subprocess.run(["lttng", "--no-sessiond", *words], env=environment, check=True, capture_output=True,
                              text=True).stdout

    control("create", "bench", f"--output={output}")
    try:
        control("enable-channel", "--userspace", "--session=bench", f"--subbuf-size={buffer_bytes}",
                f"--num-subbuf={buffers}", "--blocking-timeout=inf", "channel")
        control("enable-event", "--userspace", "--session=bench", "--channel=channel", "ptweave_bench:insertion")
        control("start", "bench")
        out = subprocess.run([program, kind, str(PRODUCERS), str(EVENTS)], env=environment, check=True,
                             capture_output=True, text=True).stdout
        control("stop", "bench")
        bytes_stored = sum(file.stat().st_size for file in output.rglob("channel_*"))
        if bytes_stored < PRODUCERS * EVENTS * 40:
            raise SystemExit(f"bench-vector: LTTng stored {bytes_stored} bytes only")
    finally:
        control("destroy", "bench")
        shutil.rmtree(output, ignore_errors=True)
    return Timing(float(out), None)


def _ns(timings: list[Timing]) -> float:
    return statistics.median(one.inserted for one in timings) / (PRODUCERS * EVENTS) * 1e9


def measure(folder: Path, vector_program: Path, peer: Callable[[str, int], Timing] | None) -> list[Figure]:
    """All figures: vector and peer in turns."""
    figures = []
    for size, (list_bytes, buffer_bytes) in SIZES.items():
        for kind in ("threads", "processes"):
            ours, theirs = [], []
            for _ in range(RUNS):
                ours.append(vector(vector_program, kind, list_bytes, folder))
                if peer is not None:
                    theirs.append(peer(kind, buffer_bytes))
            ns, beside = _ns(ours), _ns(theirs) if theirs else None
            name = f"{kind}, lists of {size}"
            figures.append(Figure(f"{name}: event", ns, "ns", "LTTng-UST", ns / beside if beside else None,
                                  wanted=1 / 1.3))
            if beside:
                figures.append(Figure(f"{name}: event, LTTng-UST", beside, "ns", "", None))
            stored = statistics.median(one.stored or 0.0 for one in ours)
            published = PUBLISHED_SECONDS[size]
            figures.append(Figure(f"{name}: 4,000,000 stored", stored, "s", "source document", stored / published,
                                  wanted=WANTED_SECONDS / published))
    return figures


def main() -> int:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder = Path(name)
        program, peer_program = compile_vector(folder), compile_lttng(folder)
        if peer_program is None:
            print("LTTng-UST: absent (lttng-tools, liblttng-ust-dev)")
            figures = measure(folder, program, None)
        else:
            with session_daemon(folder) as environment:
                figures = measure(folder, program,
                                  lambda kind, size: lttng(peer_program, kind, size, folder, environment))
        write("vector", figures)
        slow = [one.metric for one in figures if one.metric.endswith(": event") and one.value > WANTED_NS]
        for metric in slow:
            print(f"{metric}: more than {WANTED_NS:.0f} ns wanted", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
