# SPDX-License-Identifier: MIT
"""Packets of time and of values: MTC, CYC, PTWRITE; and none of them, of the same program."""

from labtools import ORACLE, note, record

for name, words in (("plain", ()), ("mtc", ("--pt", "mtc=1,mtc_period=9,ptw=1")),
                    ("all", ("--pt", "mtc=1,mtc_period=6,cyc=1,ptw=1,fup_on_ptw=1"))):
    ORACLE.write_text("0")
    note(name, record(*words, "--", "values-static", "150", name=name))
    note(f"oracle_{name}", ORACLE.read_text())
