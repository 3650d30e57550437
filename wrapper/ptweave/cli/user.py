# SPDX-License-Identifier: MIT
"""Started as root, go on as the user whose program is recorded: what `events`, `wrap` and `record` do for it.

Who it becomes need not be able to read our own files: what is needed of them is read before.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ptweave.data import BadInput, MachineLacks
from ptweave.data.lean_arrow import load_lean_arrow
from ptweave.wrapper.means import Means
from ptweave.wrapper.perf.pmu import INTEL_PT
from ptweave.wrapper.signals import SignalRelay
from ptweave.wrapper.target import Held, Spawn

if TYPE_CHECKING:
    from ptweave.wrapper.privileges import Capability, Identity

RECORDING = ("ptweave.cli.probing", "ptweave.cli.session", "ptweave.wrapper.supervisor", "multiprocessing.connection",
             "ptweave.decode.syscall_columns", "pyarrow.compute")
DECODING = ("ptweave.decode.debuginfod", "ptweave.decode.debug_files", "ptweave.decode.flow",
            "ptweave.decode.syscalls", "ptweave.decode.tags", "ptweave.decode.thunks", "ptweave.decode.watches",
            "ptweave.decode.probes", "ptweave.decode.workers", "ptweave.decode.plan", "ptweave.merge.stage",
            "ptweave.merge.render", "pyarrow.dataset", "pyarrow.parquet", "duckdb")


def add_user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="USER", help="as root: run the command, and record it, as this user "
                        "(default: who called sudo, else root)")


def load(modules: Iterable[str], *, own_process: bool) -> None:
    """Import these, and read what recorders need of our own files. They make threads. `own_process`:
    nobody in this process will want pandas of pyarrow."""
    if own_process:
        load_lean_arrow()
    for name in modules:
        importlib.import_module(name)
    from ptweave.wrapper import bpf_checks, kernel_events
    from ptweave.wrapper.version import ptweave_version

    ptweave_version()
    try:
        bpf_checks.load_extension()
        kernel_events.programs()
    except MachineLacks:
        return  # said where they are used


def look_up_tracepoints() -> None:
    """While we may: tracefs may have to be mounted for it."""
    from ptweave.wrapper.tracefs import tracepoint_number

    try:
        tracepoint_number("raw_syscalls/sys_enter"), tracepoint_number("raw_syscalls/sys_exit")
    except MachineLacks:
        return  # said where they are used


@dataclass
class Start:
    """How a recording begins once it has become who its target is."""

    made: bool = False
    """The bundle's folder was made."""
    held: Held | None = None
    """Who is to become the target, where it was forked before."""

    def undo(self, output: Path) -> None:
        """Take back what was not used. Call it when nothing ran."""
        if self.held is not None:
            self.held.child.cancel()
        if self.made:
            with contextlib.suppress(OSError):  # it is gone already, or only root, who we are no more, can remove it
                output.rmdir()


def become_target_user(args: argparse.Namespace, output: Path, modules: Iterable[str], stack: ExitStack) -> Start:
    """Before `wrap` and `record` run a command as root: become who it shall run as, and keep of root's capabilities
    those that recording needs. The bundle's folder is made for that user. A target that is root is forked here, and
    signals are held back until `stack` ends.

    In a process that is not ours alone, and without root, nothing changes but for a user that is named.
    Raises BadInput for a user or folder that cannot be, MachineLacks when what is loaded into the target is closed to
    that user.
    """
    from ptweave.wrapper import privileges

    identity = privileges.target_identity(args.user, os.environ)
    another = identity is not None and privileges.changes(identity)
    if os.geteuid() != 0 or not (another or args.own_process):
        return Start()
    if output.exists() or output.is_symlink():  # before any work; Bundle.create says the same of what is ours
        raise BadInput("exists already", where=str(output), remedy="remove it, or choose another name with -o")
    if identity is not None and another:
        return Start(_become(identity, args, output, modules))
    look_up_tracepoints()
    start = Start(privileges.make_folder(output, identity))
    try:
        relay = stack.enter_context(SignalRelay())
        start.held = Held(Spawn(relay.held), relay)
        privileges.reduce(identity, privileges.OF_ROOT_S_PROGRAM | _for_rings(args, may_have_pt=INTEL_PT.exists()))
    except BaseException:
        start.undo(output)
        raise
    return start


def _become(identity: Identity, args: argparse.Namespace, output: Path, modules: Iterable[str]) -> bool:
    """Become another user; returns whether the bundle's folder was made."""
    from ptweave.wrapper import privileges
    from ptweave.wrapper.engines import Engine, choose

    rings = _for_rings(args, may_have_pt=choose(Engine(args.engine)) is Engine.INTEL_PT)
    load(modules, own_process=args.own_process)
    look_up_tracepoints()
    made = privileges.make_folder(output, identity)
    try:
        _check_readable(identity.uid, privileges.readable_by(_target_files(args), identity))
        privileges.reduce(identity, rings)
    except BaseException:
        if made:
            output.rmdir()
        raise
    return made


def _for_rings(args: argparse.Namespace, *, may_have_pt: bool) -> frozenset[Capability]:
    """What perf's rings need, where there may be some."""
    from ptweave.wrapper.privileges import Capability

    perf = Means(args.syscalls_with) is Means.PERF
    return frozenset({Capability.IPC_LOCK} if perf or (may_have_pt and args.engine != "soft") else ())


def _target_files(args: argparse.Namespace) -> list[Path]:
    from ptweave.preload import library_path
    from ptweave.wrapper.engines import Engine, choose
    from ptweave.wrapper.soft import ENGINE, TOOL

    return [library_path()] + ([ENGINE / TOOL] if choose(Engine(args.engine)) is Engine.SOFT else [])


def _check_readable(uid: int, readable: dict[Path, bool]) -> None:
    for path, good in readable.items():
        if not good:
            raise MachineLacks(f"cannot be read by the user the program runs as (uid {uid})", where=str(path),
                               remedy="install ptweave where that user can read it, such as in /opt")


def can_start_ourselves() -> bool:
    """Whether processes of our interpreter can be started, as decoding with several does."""
    return os.access(sys.executable, os.X_OK)
