# SPDX-License-Identifier: MIT
"""Started as root, go on as the user whose program is recorded: what `events`, `wrap` and `record` do for it.

Who it becomes need not be able to read our own files: what is needed of them is read before.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from ptweave.data import BadInput, MachineLacks

RECORDING = ("ptweave.cli.probing", "ptweave.cli.session", "ptweave.wrapper.supervisor", "multiprocessing.connection",
             "ptweave.decode.syscall_columns", "pyarrow.compute")
DECODING = ("ptweave.decode.flow", "ptweave.decode.syscalls", "ptweave.decode.tags", "ptweave.decode.thunks",
            "ptweave.decode.watches", "ptweave.decode.probes", "ptweave.decode.workers", "ptweave.decode.plan",
            "ptweave.merge.stage", "ptweave.merge.render", "pyarrow.dataset", "pyarrow.parquet", "duckdb")


def add_user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="USER", help="as root: run the command, and record it, as this user "
                        "(default: who called sudo, else root)")


def load(modules: Iterable[str]) -> None:
    """Import these, and read what recorders of system calls need of our own files."""
    for name in modules:
        importlib.import_module(name)
    from ptweave.wrapper import bpf_checks, kernel_events

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


def become_target_user(args: argparse.Namespace, output: Path, modules: Iterable[str]) -> bool:
    """Before `wrap` and `record` run a command: become who it shall run as, where that is not who we are. The bundle's
    folder is made for that user; returns whether it was. For one that stays root nothing changes: it may have to read
    and write what root's file permissions are needed for.

    Raises BadInput for a user or folder that cannot be, MachineLacks when what is loaded into the target is closed to
    that user.
    """
    from ptweave.wrapper import privileges
    from ptweave.wrapper.engines import Engine, choose
    from ptweave.wrapper.means import Means

    identity = privileges.target_identity(args.user, os.environ)
    if identity is None or not privileges.changes(identity):
        return False
    if output.exists() or output.is_symlink():  # before any work; Bundle.create says the same of what is ours
        raise BadInput("exists already", where=str(output), remedy="remove it, or choose another name with -o")
    rings = choose(Engine(args.engine)) is Engine.INTEL_PT or Means(args.syscalls_with) is Means.PERF
    load(modules)
    look_up_tracepoints()
    made = privileges.make_folder(output, identity)
    try:
        _check_readable(identity.uid, privileges.readable_by(_target_files(args), identity))
        privileges.reduce(identity, frozenset({privileges.Capability.IPC_LOCK} if rings else ()))
    except BaseException:
        if made:
            output.rmdir()
        raise
    return made


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
