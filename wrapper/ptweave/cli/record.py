# SPDX-License-Identifier: MIT
"""`ptweave record`: run a program and keep the raw record of what it did."""

from __future__ import annotations

import argparse
import os

from ptweave.cli.options import add_target, target_words

SUMMARY = "run a program and record it, without decoding"
EXAMPLES = """\
  ptweave record -- ./prog arg            # leaves prog.ptw/
  ptweave record -o a.ptw -- sh -c 'ls | wc -l'
  sudo ptweave record --user nobody -o /tmp/a.ptw -- ./prog   # prog, recorder and bundle are nobody's
  ptweave record --pid 4711               # a process that runs, until it ends or Ctrl-C (needs Intel PT)
  ptweave record --pt mtc,mtc_period=3 -- ./prog      # settings of Intel PT, by sysfs's names
  ptweave record --snapshot -- ./server               # a flight recorder: kill -USR2 PID keeps the last moments
  ptweave record --snapshot-at failed@./libx.so -- ./prog   # and so does reaching failed, and a crash
  ptweave decode prog.ptw && ptweave merge prog.ptw   # later, or on another machine
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--pid", metavar="PID", type=int,
                        help="record a process that runs already, and what it forks, until it ends or Ctrl-C; it is "
                             "not harmed. With Intel PT only, and without thunks")


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.recording import attach_to, run_target
    from ptweave.cli.session import report_losses
    from ptweave.data import BadInput

    if args.pid is not None:
        if args.user is not None:
            raise BadInput("a process that runs has its user already", where=f"--user {args.user}",
                           remedy="leave --user out, or --pid")
        if args.command_words:
            raise BadInput("takes no command beside it", where=f"--pid {args.pid}",
                           remedy="leave -- and what follows out")
        recording = attach_to(args)
        report_losses(recording.bundle, quiet=args.quiet)
        return 0
    recording = run_target(args, target_words(args))
    report_losses(recording.bundle, quiet=args.quiet)
    return leave(recording.status)


def leave(status: int) -> int:
    """The exit status for a wait status: the target's own; ends by the target's signal if one ended it."""
    if os.WIFSIGNALED(status):
        from ptweave.wrapper.signals import die_by

        die_by(os.WTERMSIG(status))
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


