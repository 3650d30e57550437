# SPDX-License-Identifier: MIT
"""The command line: one subcommand a module, each with SUMMARY, EXAMPLES, configure(parser) and run(args)."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword
from types import FrameType
from typing import Any, NoReturn

from ptweave.cli.scarce import KINDS, scarcity
from ptweave.data.errors import Exit, PtweaveError

COMMANDS = ("wrap", "record", "events", "import", "decode", "merge", "dump", "info", "query", "hot", "contention",
            "races", "timeline", "calls", "critical-path", "lineage", "diff", "similar",
            "capture", "probe", "report", "notebook", "export", "include", "doctor")

_STATUSES = """\
exit status:
  wrap, record, events COMMAND   the target's own (ptweave ends by the same signal as the target did)
  others                         0 done; 1 done, with known losses or gaps
  all                            2 wrong use or bad input; 3 the machine lacks something (the line says what, and
                                 the remedy)
"""


_VERSION = "--version"


class _Version(argparse.Action):
    """Tells the version. What is needed to find it out is loaded only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from ptweave.cli.version import version_line

        print(version_line())
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Wrong use is one line, without the usage: where that is to be had the line says."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.partition(" ")[2]
        say(f"{command and command + ': '}{' '.join(message.split())}: see {self.prog} --help")
        self.exit(int(Exit.USAGE))


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser of all commands; with one (or the version) chosen already the modules of the others are not loaded:
    it starts sooner."""
    parser = _Parser(
        prog="ptweave", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_STATUSES,
        description="Record what a program really did: every branch, every system call, every dependence between "
        "its threads; then ask with SQL.")
    parser.add_argument(_VERSION, action=_Version, nargs=0, default=argparse.SUPPRESS,
                        help="show program's version number and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        if chosen is not None and name != chosen:
            commands.add_parser(name)
            continue
        own = name.replace("-", "_")
        module: Any = import_module(f"ptweave.cli.{own}_" if iskeyword(own) else f"ptweave.cli.{own}")
        sub = commands.add_parser(
            name, help=module.SUMMARY, description=module.SUMMARY, epilog="examples:\n" + module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter)
        module.configure(sub)
        sub.set_defaults(handler=module.run, parser=sub)
    return parser


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Our words, and the target's: everything after the first `--` (None when there is none)."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1:]


def say(line: str) -> None:
    """One line for the user, on stderr. A user who closed stderr hears nothing, and that is their choice."""
    try:
        print(f"ptweave: {line}", file=sys.stderr, flush=True)
    except OSError:
        return


_REMEDIES = {
    errno.ENOSPC: "make room", errno.EDQUOT: "make room", errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EACCES: "give access", errno.EPERM: "give access", errno.EROFS: "write elsewhere",
    errno.EMFILE: "raise the limit of open files (ulimit -n)", errno.ENFILE: "too many files are open: close some",
    errno.ENOMEM: "free some memory", errno.EAGAIN: "raise the limit of processes (ulimit -u)",
    errno.ENOENT: "it was there before: leave it in its place", errno.EIO: "look after the disk",
}
_ANY_REMEDY = "see what the machine lacks with ptweave doctor"


def explain(error: PtweaveError | OSError) -> str:
    """An error as one line: what, where, what to do."""
    if isinstance(error, PtweaveError):
        return error.line()
    what = error.strerror or " ".join(str(error).split())
    remedy = _REMEDIES.get(error.errno or 0, _ANY_REMEDY)
    return f"{error.filename}: {what}: {remedy}" if error.filename else f"{what}: {remedy}"


class Stopped(KeyboardInterrupt):
    """Somebody asks this process to end, as Ctrl-C does: by the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise Stopped(number)


def _end_in_order() -> None:
    """What asks this process to end is an exception, but where who started us wants it ignored: what was made for the
    time being is removed, and processes of ours end first."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _stop, signal.SIGHUP: _stop}
    for number, handler in handlers.items():
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, handler)


def main(argv: Sequence[str] | None = None, *, own_process: bool = False) -> int:
    """Run one command; returns its exit status (see `ptweave --help`). `own_process`: nothing but this command runs
    in the process, so what `wrap` and `record` do not need of root's privileges may be given up for good."""
    words = list(sys.argv[1:] if argv is None else argv)
    ours, theirs = _split(words)
    args, unknown = _parser(ours[0] if ours and ours[0] in (*COMMANDS, _VERSION) else None).parse_known_args(ours)
    if unknown and theirs is None and hasattr(args, "command_words") and not unknown[0].startswith("-"):
        say(f"{unknown[0]}: is no option: put the command after --, as in: ptweave {args.command} -- {unknown[0]}")
        return int(Exit.USAGE)
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.own_process = own_process
    if theirs is not None:
        if not hasattr(args, "command_words"):
            say(f"{args.command} runs no command: leave -- and what follows out")
            return int(Exit.USAGE)
        args.command_words = theirs
    run: Callable[[argparse.Namespace], int] = args.handler
    if own_process:
        _end_in_order()
    try:
        return run(args)
    except PtweaveError as error:
        say(error.line())
        return int(error.status)
    except KeyboardInterrupt as stopped:
        number = stopped.number if isinstance(stopped, Stopped) else signal.SIGINT
        say("stopped; what was finished is kept")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return 128 + number
    except BrokenPipeError:
        # the reader has seen enough; nothing more may be written when the interpreter closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return int(Exit.DONE)
    except OSError as error:
        say(explain(error))
        return int(Exit.MACHINE)
    except KINDS as error:
        lacking = scarcity(error)
        if lacking is None:
            raise
        say(lacking.line())
        return int(lacking.status)
