# SPDX-License-Identifier: MIT
"""Options that several commands share, spelled the same everywhere."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ptweave.cli.user import add_user
from ptweave.data import BadInput
from ptweave.data.bundle import SUFFIX

if TYPE_CHECKING:
    from ptweave.decode.debug_files import DebugFiles
    from ptweave.decode.debuginfod import Debuginfod

MAX_JOBS = 1024
RING_MIN, RING_MAX = 16 << 20, 1024 << 30
"""Sizes of a ring of events."""


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="RUN", type=Path, help="a run bundle (NAME.ptw)")


def add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="a run bundle (NAME.ptw); with --cluster any number")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors and what is missing")


def add_verbose(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("-v", "--verbose", action="store_true", help="say what each step did and how long it took")


def add_jobs(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("-j", "--jobs", metavar="N", type=_count, default=usable_cpus(),
                        help="decode with N processes, merge N threads of the program at a time (8 at most; default: "
                        "as many as there are usable processors, %(default)s here); the tables are the same whatever N "
                        "is")


def add_decoding(parser: argparse._ActionsContainer) -> None:
    """The options of what decodes: `decode`, `wrap`, and `merge` of what is not decoded."""
    parser.add_argument("--decoder", choices=["auto", "libipt", "paths"], default="auto",
                        help="what decodes: auto (default), libipt (the reference), paths (faster)")
    parser.add_argument("--times", choices=["full", "tsc"], default="full",
                        help="which packets times are taken from: full (default), all of them; tsc, TSC packets only: "
                        "coarser, and faster only where libipt would have to estimate with the others "
                        "(docs/decoding.md)")


def add_debug(parser: argparse._ActionsContainer) -> None:
    """Where separate debug files are looked for: options of what decodes."""
    parser.add_argument("--debug-dir", metavar="DIR", type=Path, action="append", default=[],
                        help="look for separate debug files below DIR, too (more than once; before /usr/lib/debug)")
    parser.add_argument("--debuginfod", action="store_true",
                        help="ask the servers in $DEBUGINFOD_URLS for debug files (never done without this)")


def check_debug(args: argparse.Namespace) -> None:
    """Raises BadInput for a folder or a server that cannot be."""
    from ptweave.decode.debug_servers import servers_of

    for folder in args.debug_dir:
        if not folder.is_dir():
            raise BadInput("is not a folder", where=str(folder), remedy="give a folder with debug files")
    if args.debuginfod:
        servers_of(os.environ)


def debug_files(args: argparse.Namespace) -> DebugFiles:
    """What these options mean. Raises BadInput as `check_debug` does."""
    from ptweave.decode.debug_files import DebugFiles

    check_debug(args)
    return DebugFiles(args.debug_dir, _server() if args.debuginfod else None)


def _server() -> Debuginfod:
    """The servers of the environment. What is needed to ask them is loaded only then."""
    from ptweave.decode.debug_servers import servers_of
    from ptweave.decode.debuginfod import Debuginfod, cache_folder

    return Debuginfod(servers_of(os.environ), cache_folder(os.environ))


def usable_cpus() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0))


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 0 < value <= MAX_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {MAX_JOBS}")
    return value


def _size(text: str) -> int:
    """Bytes, with K, M or G behind or not."""
    from ptweave.wrapper.perf.settings import AUX_SIZE_MAX, AUX_SIZE_MIN  # not from what makes threads

    found = re.fullmatch(r"(\d{1,12})([KMG]?)", text)
    size = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else 0
    if not AUX_SIZE_MIN <= size <= AUX_SIZE_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no size from {AUX_SIZE_MIN >> 10}K to {AUX_SIZE_MAX >> 30}G")
    return size


def _ring(text: str) -> int:
    """Bytes of a ring of events."""
    found = re.fullmatch(r"(\d{1,12})([KMG]?)", text)
    size = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else 0
    if not RING_MIN <= size <= RING_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no size from {RING_MIN >> 20}M to {RING_MAX >> 30}G")
    return size


def add_target(parser: argparse.ArgumentParser) -> None:
    """The options of `wrap` and `record`."""
    parser.add_argument("-o", "--output", metavar="RUN", type=Path,
                        help="the bundle to make (default: NAME.ptw in the current folder)")
    add_user(parser)
    parser.add_argument("--engine", choices=["auto", "intel_pt", "soft"], default="auto",
                        help="what makes the packets: auto (default), intel_pt (the processor), soft (software)")
    parser.add_argument("--threads", choices=["process", "native"], default="process",
                        help="process (default): threads become processes, whose accesses of pages are logged, where "
                             "the program can be carried so (docs/libtthread.md); native: threads stay threads")
    parser.add_argument("--access", choices=["held", "exact"], default="held",
                        help="with --threads process: log a page as held until another thread's access conflicts "
                             "(default), or every thunk's own accesses")
    parser.add_argument("--view", choices=["shared", "private"], default="shared",
                        help="with --threads process: a thread's writes are seen by others at once (default), or each "
                             "thread writes to copies of its own and others see the changed bytes after its next "
                             "release: no false sharing, writes known to the byte")
    parser.add_argument("--shared", metavar="SYMBOL|PAGE", action="append", default=[],
                        help="with --threads process: pass a variable (by its name), the page at 0xADDRESS or the "
                             "pages from 0xFROM to 0xTO through to all threads, neither logged nor isolated (more "
                             "than once)")
    parser.add_argument("--aux-size", metavar="SIZE", type=_size, default=0,
                        help="with --engine intel_pt: bytes of packets that a thread's ring holds, a power of two such "
                             "as 64K or 16M (default: up to 4M, as the limits of locked memory allow)")
    parser.add_argument("--filter", metavar="'ACTION SYMBOL@FILE'", action="append", default=[], dest="filters",
                        help="with --engine intel_pt: have the processor trace inside a function only (filter) or "
                             "until it is reached (stop); more than once, as many as it has address ranges")
    parser.add_argument("--pt", metavar="NAME[=N],…", action="append", default=[],
                        help="with --engine intel_pt: settings by the names below /sys/bus/event_source/devices/"
                             "intel_pt/format, such as mtc,mtc_period=3 or psb_period=5; a name alone is 1")
    parser.add_argument("--snapshot", action="store_true",
                        help="with --engine intel_pt: a flight recorder. Of the packets only the newest of each thread "
                             "(--aux-size) are kept, when ptweave gets SIGUSR2, and when a process crashes")
    parser.add_argument("--snapshot-at", metavar="SYMBOL[@FILE]", action="append", default=[],
                        help="a flight recorder that also keeps them when this function is reached first (up to 4, "
                             "more than once; FILE: the program)")
    parser.add_argument("--syscalls-with", choices=["auto", "ebpf", "perf", "ptrace"], default="auto",
                        help="record what the kernel sees of system calls with eBPF, with perf (arguments and results "
                             "only), or with the first that works here (default); ptrace cannot be combined with an "
                             "engine")
    add_probes(parser)
    parser.add_argument("--watch", metavar="VAR|ADDRESS:LENGTH", action="append", default=[], dest="watches",
                        help="log who touches a variable of the program or a library, with the value before and "
                             "after, registers and call stack: VAR, VAR.field, VAR[n], FILE:VAR or bytes at an "
                             "address; :w behind it (default) for writes, :rw for both, :r for reads. More than once, "
                             "as far as four debug registers go (docs/watchpoints.md)")
    parser.add_argument("--ring", metavar="SIZE", type=_ring, default=0,
                        help="keep the newest SIZE bytes (such as 2G) of each process's tags and hits of probes; what "
                             "is overwritten is counted (default: keep all)")
    add_quiet(parser)
    parser.usage = "%(prog)s [options] -- COMMAND…"
    parser.set_defaults(command_words=[])


class _Probe(argparse.Action):
    """Keeps --probe and --handler in their order: a handler is for the probes behind it."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object,
                 option_string: str | None = None) -> None:
        namespace.probes = [*namespace.probes, (option_string, values)]


def add_probes(parser: argparse.ArgumentParser) -> None:
    """--probe and --handler."""
    parser.add_argument("--probe", metavar="SPEC", action=_Probe, dest="probes", default=[],
                        help="call a handler wherever SPEC is executed: a function (malloc, libz.so:deflate, str*), "
                             "FUNCTION+N, FILE+OFFSET, SOURCE.c:LINE, bytes (e8 ?? ?? ?? ?? 85 c0) or instructions "
                             "(mov rax, [rdi+?]; call ?) in the program and its libraries, or in one of them (FILE:…); "
                             "@LIST reads SPECs from a file. More than once (docs/probes.md)")
    parser.add_argument("--handler", metavar="NAME|FILE.c:FUNCTION", action=_Probe, dest="probes",
                        help="what the probes behind it do: log (default), args, stack, time, return, or call a "
                             "function of a C file (#include <ptweave/probe.h>)")


def target_words(args: argparse.Namespace) -> list[str]:
    """The target's words; raises BadInput when there are none."""
    words: list[str] = list(args.command_words)
    if not words:
        raise BadInput("no command given", remedy="put it after --, as in: ptweave wrap -- ls -l")
    return words


def output_path(args: argparse.Namespace, words: list[str]) -> Path:
    """Where the bundle goes."""
    if args.output is not None:
        return Path(args.output)
    return Path(Path(words[0]).name + SUFFIX)


def nothing_between(begin: object, end: object, remedy: str) -> BadInput:
    """The error of a --from and --to (None: not given) with nothing of the run between them."""
    given = " ".join(f"{option} {text}" for option, text in (("--from", begin), ("--to", end)) if text is not None)
    return BadInput("there is nothing of the run", where=given, remedy=remedy)
