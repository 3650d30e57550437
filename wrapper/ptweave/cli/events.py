# SPDX-License-Identifier: MIT
"""`ptweave events`: system calls and kernel events on their own, without a trace of branches."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ptweave.cli.options import add_quiet, output_path
from ptweave.cli.user import add_user, load, look_up_tracepoints
from ptweave.data import BadInput
from ptweave.data.errors import Exit

if TYPE_CHECKING:
    from ptweave.wrapper.filters import Kind
    from ptweave.wrapper.kernel_events import Options
    from ptweave.wrapper.privileges import Capability
    from ptweave.wrapper.signals import SignalRelay
    from ptweave.wrapper.uprobes import Probe

SUMMARY = "record system calls and kernel events of a command, of processes, or of the machine"
EXAMPLES = """\
  ptweave events -- make                       # leaves make.ptw/: ptweave query make.ptw "from syscalls"
  ptweave events --follow -- ls                # a line for each call, as strace has it; stores nothing
  ptweave events --pid 1234 --kinds write,signal -o a.ptw
  ptweave events --all --accept comm=nginx:syscall,write --reject pid=12 -o web.ptw
  ptweave events --uprobe '/opt/lib/libhidden.so:api_open%jump name=arg0:string' -- ./client
  ptweave events --capture 256 --filter rules.toml -o a.ptw -- ./server
  sudo ptweave events --user www-data -o /tmp/a.ptw -- ./server   # recorder and server run as www-data

filter rules are KEY=VALUE[:KIND,...] with a key of pid, tid, comm, exe (the path), cmdline (words separated by one
space each). A reject beats an accept; filters of different keys must all agree. Where a key has no rule for a task,
it rejects kinds of which it accepts others, and accepts the rest; --default KEY=accept|reject says otherwise.
A file for --filter has the same, and is read again whenever it changes:

  [filter]
  accept = ["comm=nginx:syscall,write"]
  reject = ["pid=12"]
  default = ["comm=reject"]
  kinds = ["syscall", "write"]
"""

_MODULES = ("pyarrow.compute", "ptweave.cli.record", "ptweave.cli.session", "ptweave.wrapper.event_session")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="RUN", type=Path,
                        help="the bundle to make (default: NAME.ptw in the current folder for a command; with --follow "
                             "none)")
    parser.add_argument("--follow", action="store_true", help="show a line for each event, on stderr")
    parser.add_argument("--pid", metavar="PID", type=int, action="append", default=[],
                        help="record a process that runs, and all it will create (more than once)")
    parser.add_argument("--all", action="store_true", dest="everybody", help="record every process of the machine")
    add_user(parser)
    parser.add_argument("--kinds", metavar="KIND,...", help="kinds of event to record (default: the first five; with "
                        "--follow syscall,signal): syscall, blocking, file_descriptor_change, signal, write; "
                        "garbage_collect, jni_reference (of Java and CPython, only when named here)")
    parser.add_argument("--uprobe", metavar="PROBE", action="append", default=[],
                        help="record when a place in a program is reached (kind uprobe), and values there: "
                             "'BINARY:SYMBOL[%%jump][+OFFSET][%%return] NAME=PLACE[:TYPE] …', places are arg0 to "
                             "arg5, ret, %%REG and OFFSET(%%REG), types u8 to s64 and string; %%jump: where SYMBOL "
                             "ends in a jump to, a hidden function of a stripped library")
    parser.add_argument("--runtime", metavar="FILE", type=Path, action="append", default=[],
                        help="a libjvm.so, python or libpython whose events garbage_collect and jni_reference are "
                             "wanted, beside those that are found by themselves")
    parser.add_argument("--accept", metavar="RULE", action="append", default=[], help="record what fits (see below)")
    parser.add_argument("--reject", metavar="RULE", action="append", default=[], help="leave out what fits")
    parser.add_argument("--default", metavar="KEY=WHAT", action="append", default=[],
                        help="accept or reject what no rule of a key fits")
    parser.add_argument("--filter", metavar="FILE", type=Path, help="read rules from a TOML file, again and again")
    parser.add_argument("--syscalls-with", choices=["auto", "ebpf", "perf", "ptrace"], default="auto",
                        help="record system calls with eBPF, with perf (arguments only), with ptrace (slow), or with "
                             "the first that works here (default); other events and filter rules need eBPF")
    parser.add_argument("--capture", metavar="N", type=int, default=32,
                        help="keep N bytes of each buffer, 0 to 4096 (default: %(default)s)")
    parser.add_argument("--stack", metavar="N", type=int, default=0,
                        help="keep N return addresses of each call's stack, found by frame pointers (default: none)")
    parser.add_argument("--ring", metavar="BYTES", type=_size, default=32 << 20,
                        help="size of the ring between kernel and recorder, a power of two; K and M are understood "
                             "(default: 32M)")
    parser.add_argument("--wake", metavar="BYTES", type=_size, default=0,
                        help="hand over when so much is in the ring, or 20 ms have passed (default: a quarter of the "
                             "ring, at most 1M)")
    add_quiet(parser)
    parser.usage = "%(prog)s [options] (-- COMMAND… | --pid PID | --all)"
    parser.set_defaults(command_words=[])


def _size(text: str) -> int:
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if unit else text
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is no size in bytes")
    return int(digits) << unit


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.record import leave
    from ptweave.wrapper.signals import SignalRelay

    with SignalRelay() as relay:  # before the libraries below make threads
        outcome, status = _record(args, relay)
    return outcome if status is None else leave(status)


def _options(args: argparse.Namespace) -> Options:
    """What the options say is recorded. Raises BadInput."""
    from ptweave.wrapper import filters
    from ptweave.wrapper.kernel_events import Options

    if bool(args.command_words) + bool(args.pid) + args.everybody != 1:
        raise BadInput("one of a command after --, --pid and --all says whose events", remedy="give exactly one")
    usual = "syscall,signal" if args.follow else ",".join(kind.word for kind in filters.USUAL)
    kinds = filters.parse_kinds(usual if args.kinds is None else args.kinds, "--kinds")
    if args.uprobe:
        kinds |= {filters.Kind.UPROBE}
    rules = filters.choose(filters.from_options(args.accept, args.reject, args.default, kinds), args.filter)
    options = Options(ring_bytes=args.ring, wake_bytes=args.wake, capture=args.capture, frames=args.stack,
                      everybody=args.everybody, rules=rules, probes=_probes(args, rules.kinds))
    options.check()
    return options


def _probes(args: argparse.Namespace, kinds: frozenset[Kind]) -> tuple[Probe, ...]:
    """The places in programs that these kinds need. Raises BadInput."""
    from ptweave.wrapper import runtimes, uprobes

    own = tuple(uprobes.parse(text) for text in args.uprobe)
    return own + runtimes.find(kinds, list(args.command_words), args.pid, args.runtime)


def _also(args: argparse.Namespace, options: Options) -> frozenset[Capability]:
    """What this recording needs of root's privileges beside what any does: the kernel wants CAP_SYS_ADMIN for probes
    in programs."""
    from ptweave.wrapper.privileges import Capability

    needed = {"perf": Capability.IPC_LOCK, "ptrace": Capability.SYS_PTRACE}
    found = {needed[args.syscalls_with]} if args.syscalls_with in needed else set()
    return frozenset(found | ({Capability.SYS_ADMIN} if options.probes else set()))


def _record(args: argparse.Namespace, relay: SignalRelay) -> tuple[int, int | None]:
    """Our exit status, and the target's wait status where there was a command."""
    from ptweave.cli import say
    from ptweave.wrapper import privileges
    from ptweave.wrapper.target import Spawn, examine

    words: list[str] = list(args.command_words)
    options, output = _options(args), _output(args, words)
    if words:
        examine(words)
    identity = privileges.target_identity(args.user, os.environ)
    made = output is not None and privileges.make_folder(output, identity)
    child = None
    if privileges.changes(identity):  # who it becomes need not be able to read our files
        load(_MODULES, own_process=args.own_process)
    elif words:
        child = Spawn(relay.held, traceable=True)
    look_up_tracepoints()
    try:
        privileges.reduce(identity, _also(args, options))
        load(_MODULES, own_process=args.own_process)
    except BaseException:
        if child is not None:
            child.cancel()
        raise
    from ptweave.cli.session import report_losses
    from ptweave.wrapper.event_session import Session, record
    from ptweave.wrapper.fallback_recorder import Means

    recorded = record(Session(options, words, child, args.pid, output, made, Means(args.syscalls_with), args.filter,
                              _show if args.follow else None, say), relay)
    if recorded.bundle is not None:
        report_losses(recorded.bundle, quiet=args.quiet)
    else:
        for stream, why, count, unit in recorded.ledger.losses:
            say(f"lost: {count} {unit} of {stream} ({why})")
    return int(Exit.INCOMPLETE if recorded.ledger.losses or recorded.lacks else Exit.DONE), recorded.status


def _show(line: str) -> None:
    try:
        os.write(sys.stderr.fileno(), line.encode(errors="backslashreplace") + b"\n")
    except OSError:
        return  # whoever read it has seen enough; the recording goes on


def _output(args: argparse.Namespace, words: list[str]) -> Path | None:
    if args.output is None and args.follow:
        return None
    if args.output is None and not words:
        raise BadInput("no bundle is named", remedy="give one with -o, or --follow to see events without storing them")
    return output_path(args, words)
