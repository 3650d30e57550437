# SPDX-License-Identifier: MIT
"""What a run is, in a few lines: command, end, engine, threads, and what is lost, lacking or missing of it."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Manifest, State
from ptweave.merge.not_made import ON_REQUEST

WARNINGS = ("lost", "lacks", "notice", "missing")
"""Names of facts that say what is not there, or not as one may expect."""

Fact = tuple[str, str]
"""A name and a text."""


@dataclass(frozen=True)
class Threads:
    """How many threads a run has; whether, of programs with more than one, some had them as processes, some as threads.
    """

    count: int
    processes: bool = False
    native: bool = False


HOW_THREADS_RAN = """
select coalesce(bool_or(carried), false), coalesce(bool_or(threads > 1 and not carried), false)
from (select bool_or(own) as carried, count(*) as threads from threads group by pid)"""
"""`processes` and `native` of Threads: where threads run as processes, libtthread has some of its own."""


def facts_of(manifest: Manifest, ledger: Ledger, threads: Threads | None, missing: Mapping[str, str]) -> list[Fact]:
    """What is known of a run. `threads`: None without such a table; `missing`: table → why it cannot be read."""
    return [*_recording(manifest),
            *([("threads", f"{threads.count}{_how(manifest, threads)}")] if threads and threads.count else []),
            *((("lost", f"{count} {unit} of {stream}: {why}") for stream, why, count, unit in ledger.losses)),
            *(("lacks", line) for line in manifest.lacks),
            *(("notice", notice.line()) for notice in manifest.notices),
            *(("missing", f"{name}: {why}") for name, why in missing.items() if name not in ON_REQUEST)]


def _recording(manifest: Manifest) -> list[Fact]:
    clocks = manifest.clocks
    found = [("command", shlex.join(manifest.command))]
    found += [(name, text) for name, text in (("recorded", _when(manifest)), ("ended", _end(manifest.status))) if text]
    found.append(("engine", f"{manifest.engine} {manifest.engine_version}".strip()))
    if manifest.state is not State.COMPLETE:
        found.append(("state", f"{manifest.state.value}: the recording did not end orderly; what is here is right"))
    if clocks.t1_ns > clocks.t0_ns:
        found.append(("time", f"{(clocks.t1_ns - clocks.t0_ns) / 1e9:.3f} s"))
    return found


def _when(manifest: Manifest) -> str:
    """Date and time as of here, and the machine; "" not known."""
    if not manifest.clocks.realtime_ns:
        return ""
    try:
        began = datetime.fromtimestamp(manifest.clocks.realtime_ns // 10**9).astimezone()
    except (OverflowError, OSError, ValueError):  # no year has that: another tool's clock, or made up
        return ""
    return began.isoformat(" ") + (f" on {manifest.host}" if manifest.host else "")


def _end(status: int | None) -> str:
    """What a wait status says (waitpid(2)); "" nothing."""
    if status is None:
        return ""
    if os.WIFEXITED(status):
        return f"status {os.WEXITSTATUS(status)}"
    if not os.WIFSIGNALED(status):
        return ""
    number = os.WTERMSIG(status)
    known = number in set(signal.Signals)
    return f"by {signal.Signals(number).name}" if known else f"by signal {number}"


def _how(manifest: Manifest, threads: Threads) -> str:
    """What was made of threads, where they were to be processes."""
    if manifest.threads_mode != "process" or not (threads.processes or threads.native):
        return ""
    if not threads.processes:
        return ", as threads"
    view = f" ({manifest.view} view)" if manifest.view else ""
    return f", as processes{view}" + (", those of some programs as threads" if threads.native else "")
