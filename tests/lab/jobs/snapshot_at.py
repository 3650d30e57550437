# SPDX-License-Identifier: MIT
"""Flight recorders of a program that reaches a function and crashes, of one to which nothing happens; the first beside
a whole recording of the same addresses."""

import ctypes
import signal

from labtools import ORACLE, note, ptweave, record

ADDR_NO_RANDOMIZE = 0x0040000
NATIVE = ("--threads=native", "--")
SMALL = ("--snapshot", "--aux-size=8K")
ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)

for kind, program in (("dynamic", "late"), ("static", "late-static")):
    words = (*NATIVE, program, "3000", "crash")
    ORACLE.write_text("0")
    note(f"{kind}_whole", record(*words, name=f"{kind}_whole"))
    note(f"{kind}_oracle", ORACLE.read_text())
    note(f"{kind}_at", record(*SMALL, "--snapshot-at", "reached", *words, name=f"{kind}_at"))
    ORACLE.write_text("0")
    note(f"{kind}_crashed", record(*SMALL, *words, name=f"{kind}_crashed"))
    note(f"{kind}_crashed_oracle", ORACLE.read_text())
note("nothing", record(*SMALL, *NATIVE, "late-static", "100", name="nothing"))
for number, words in enumerate((["--snapshot-at", "none"], ["--snapshot-at", "main@/in/bin/none"],
                                ["--snapshot-at", "@/in/bin/late"], ["--snapshot-at", "main"] * 5)):
    note(f"bad{number}", ptweave("record", "--engine", "intel_pt", "-o", "bad.ptw", *words, "--", "late"))
note("segv", -int(signal.SIGSEGV))
