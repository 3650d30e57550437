# SPDX-License-Identifier: MIT
"""Settings of Intel PT: PSBs as often as can be and returns with addresses; and what this processor has not."""

from labtools import ORACLE, note, ptweave, record

WORDS = ("--", "deterministic-static", "5000")

note("plain", record(*WORDS, name="plain"))
ORACLE.write_text("0")
note("run", record("--pt", "psb_period=0,noretcomp", *WORDS))
for number, text in enumerate(("pwr_evt", "mtc_period=99", "psb_period=9", "psb_period=99", "sleep", "tsc=0")):
    note(f"bad{number}", ptweave("record", "--engine", "intel_pt", "-o", "bad.ptw", "--pt", text, "--", "true"))
