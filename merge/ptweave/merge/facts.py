# SPDX-License-Identifier: MIT
"""What a run is, in a few lines: command, end, engine, threads, and what is lost, lacking or missing of it."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Mapping
from datetime import datetime

from ptweave.data.ledger import Ledger
from ptweave.data.manifest import Manifest, State
from ptweave.merge.not_made import ON_REQUEST

WARNINGS = ("lost", "lacks", "notice", "missing")
"""Names of facts that say what is not there, or not as one may expect."""

Fact = tuple[str, str]
"""A name and a text."""


def facts_of(manifest: Manifest, ledger: Ledger, threads: int | None, missing: Mapping[str, str]) -> list[Fact]:
    """What is known of a run. `threads`: rows of that table; `missing`: table → why it cannot be read."""
    return [*_recording(manifest), *([("threads", f"{threads}{_mode(manifest)}")] if threads else []),
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


def _mode(manifest: Manifest) -> str:
    """What was made of threads, where anything was."""
    if manifest.threads_mode != "process":
        return ""
    return f", as processes ({manifest.view} view)" if manifest.view else ", as processes"
