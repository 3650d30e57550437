# SPDX-License-Identifier: MIT
"""`ptweave wrap`: record, decode and merge in one go."""

from __future__ import annotations

import argparse

from ptweave.cli.merge import add_calls
from ptweave.cli.options import (
    add_debug,
    add_decoding,
    add_jobs,
    add_target,
    add_verbose,
    check_debug,
    debug_files,
    target_words,
)

SUMMARY = "run a program, record it, decode and merge: leaves NAME.ptw, ready to query"
EXAMPLES = """\
  ptweave wrap -- ./prog arg              # leaves prog.ptw/
  ptweave wrap -o a.ptw -- pigz -p 4 file
  ptweave wrap --watch counter --watch 'config.limits[2]:rw' -- ./prog
  sudo ptweave wrap --user www-data -o /tmp/a.ptw -- ./server   # server, recorder and bundle are www-data's
  ptweave query a.ptw "select name, count(*) from syscalls group by name"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_calls(parser)
    add_jobs(parser)
    add_decoding(parser)
    add_debug(parser)
    add_verbose(parser)


def run(args: argparse.Namespace) -> int:
    from ptweave.cli import explain, say
    from ptweave.cli.record import leave
    from ptweave.cli.recording import run_target
    from ptweave.cli.scarce import KINDS, scarcity
    from ptweave.cli.session import decode, merge, report_losses
    from ptweave.cli.user import can_start_ourselves
    from ptweave.data import PtweaveError

    check_debug(args)  # what is wrong with them is said before the command runs
    recording = run_target(args, target_words(args), decodes=True)
    bundle, missing = recording.bundle, list[str]()
    if recording.ended:
        names = ", ".join(sorted(signal.name for signal in recording.ended))
        say(f"{bundle.path}: recorded until {names}; go on with: ptweave merge {bundle.path}")
    else:
        try:
            if args.jobs > 1 and not can_start_ourselves():
                args.jobs = 1  # we became a user who cannot read our interpreter
            # their cache is in the home of who we are now
            paths = decode(bundle, args, debug_files(args), merges=True)
            merge(bundle, calls=args.calls, quiet=args.quiet, jobs=args.jobs, paths=paths)
        except (PtweaveError, OSError, *KINDS) as error:
            # the target has run: its status is what the caller waits for
            told = error if isinstance(error, (PtweaveError, OSError)) else scarcity(error)
            if told is None:
                raise
            say(f"{explain(told)}; the recording is kept")
            missing.append(f"tables: go on with ptweave merge {bundle.path}")
    report_losses(bundle, quiet=args.quiet, more=missing)
    return leave(recording.status)
