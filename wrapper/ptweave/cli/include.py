# SPDX-License-Identifier: MIT
"""`ptweave include`: where ptweave's headers for C and C++ programs are."""

from __future__ import annotations

import argparse

from ptweave.data.errors import Exit
from ptweave.preload import include_path

SUMMARY = "print the folder of ptweave's headers for C and C++ programs (ptweave/tag.h)"
EXAMPLES = """\
  cc -I"$(ptweave include)" -o prog prog.c        then, in prog.c: #include <ptweave/tag.h>
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """No options."""


def run(args: argparse.Namespace) -> int:
    print(include_path())
    return int(Exit.DONE)
