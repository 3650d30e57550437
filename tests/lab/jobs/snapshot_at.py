# SPDX-License-Identifier: MIT
"""Flight recorders of a program that reaches a function and crashes, of one to which nothing happens; the first beside
a whole recording of the same addresses."""

import ctypes
import signal

from labtools import ORACLE, note, ptweave, record

ADDR_NO_RANDOMIZE = 0x0040000
NATIVE = ("--threads=native", "--")
SMALL = ("--snapshot", "--aux-size=8K")
REST, NO_REST = "500", "000"
"""Milliseconds: a snapshot taken because of what was reached is of what ran before, however slow the recorder is."""
ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)

for kind, program in (("dynamic", "late"), ("static", "late-static")):
    resting, not_resting = ((*NATIVE, program, "3000", rest, "crash") for rest in (REST, NO_REST))
    ORACLE.write_text("0")
    note(f"{kind}_whole", record(*not_resting, name=f"{kind}_whole"))
    note(f"{kind}_oracle", ORACLE.read_text())
    note(f"{kind}_at", record(*SMALL, "--snapshot-at", "reached", *resting, name=f"{kind}_at"))
    ORACLE.write_text("0")
    note(f"{kind}_crashed", record(*SMALL, *not_resting, name=f"{kind}_crashed"))
    note(f"{kind}_crashed_oracle", ORACLE.read_text())
note("nothing", record(*SMALL, *NATIVE, "late-static", "100", NO_REST, name="nothing"))
for number, words in enumerate((["--snapshot-at", "none"], ["--snapshot-at", "main@/in/bin/none"],
                                ["--snapshot-at", "@/in/bin/late"], ["--snapshot-at", "main"] * 5)):
    note(f"bad{number}", ptweave("record", "--engine", "intel_pt", "-o", "bad.ptw", *words, "--", "late"))
note("segv", -int(signal.SIGSEGV))
