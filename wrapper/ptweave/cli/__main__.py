# SPDX-License-Identifier: MIT
"""The program `ptweave`, and `python -m ptweave.cli`: `main` in a process of its own."""

import gc
import sys

from ptweave.cli import COMMANDS, main
from ptweave.data.lean_arrow import load_lean_arrow

# events, record, wrap: pyarrow makes threads, and root's privileges are given up before there are any
_WITHOUT_ARROW = ("doctor", "events", "include", "record", "wrap")

_YOUNG = 50_000
"""Objects made before Python looks for circles among them: it would a hundred times while modules are loaded, whose
objects stay."""


def command() -> int:
    """`main`, begun quickly. Returns the exit status."""
    gc.set_threshold(_YOUNG)
    asked = sys.argv[1:2]
    if asked and asked[0] in COMMANDS and asked[0] not in _WITHOUT_ARROW and not {"-h", "--help"} & set(sys.argv[2:3]):
        load_lean_arrow()
    return main(own_process=True)


if __name__ == "__main__":
    sys.exit(command())
