# SPDX-License-Identifier: MIT
"""The program `ptweave`, and `python -m ptweave.cli`: `main` in a process of its own."""

import gc
import os
import signal
import sys

from ptweave.cli import COMMANDS, main
from ptweave.data.lean_arrow import load_lean_arrow

# events, record, wrap: pyarrow makes threads, and root's privileges are given up before there are any
_WITHOUT_ARROW = ("doctor", "events", "include", "record", "wrap")

_YOUNG = 50_000
"""Objects made before Python looks for circles among them: it would a hundred times while modules are loaded, whose
objects stay."""


_OF_TARGETS = ("events", "record", "wrap")
"""Commands whose target has our standard streams: what is closed for us is closed for it."""


def _stand_in(*, inherited: bool) -> None:
    """Nothing to read and nowhere to write, in place of standard streams that were closed: Python has None for them,
    and the next file that is opened would get their number. `inherited`: programs we start have it too."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, inherited)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def command() -> int:
    """`main`, begun quickly. Returns the exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # while modules are loaded there is nothing to keep, or to tell
    gc.set_threshold(_YOUNG)
    asked = sys.argv[1:2]
    if asked:
        _stand_in(inherited=asked[0] not in _OF_TARGETS)
    if asked and asked[0] in COMMANDS and asked[0] not in _WITHOUT_ARROW and not {"-h", "--help"} & set(sys.argv[2:3]):
        load_lean_arrow()
    try:
        return main(own_process=True)
    finally:
        gc.freeze()  # what is left is not looked through once more: the process ends


if __name__ == "__main__":
    sys.exit(command())
