# SPDX-License-Identifier: MIT
"""`ptweave doctor`: what this machine can record with."""

from __future__ import annotations

import argparse

from ptweave.data import Exit

SUMMARY = "say what this machine can record with, and what to do about the rest"
EXAMPLES = """\
  ptweave doctor                          # status 0: all there; 1: a part is missing; 3: cannot record
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def run(args: argparse.Namespace) -> int:
    from ptweave.wrapper.doctor import Need, examine

    checks = examine()
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = "ok" if check.good else "--" if check.need is Need.MAY else "no"
        print(f"{mark}  {check.name:<{width}}  {check.found}")
        if not check.good:
            print(f"    {'':<{width}}  {check.need.value}: {check.remedy}")
    failed = {check.need for check in checks if not check.good}
    if Need.MUST in failed:
        return int(Exit.MACHINE)
    return int(Exit.INCOMPLETE if Need.SHOULD in failed else Exit.DONE)
