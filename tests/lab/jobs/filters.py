# SPDX-License-Identifier: MIT
"""Only one function is traced; or everything until one is reached; and what cannot be filtered."""

from labtools import ORACLE, counter, note, ptweave, record

WORDS = ("--threads=native", "--", "deterministic", "2000")

note("one", record("--filter", "filter deep@/in/bin/deterministic", *WORDS, name="one"))
note("oracle_one", ORACLE.read_text())
ORACLE.write_text("0")
first = counter("bytes")
note("stopped", record("--filter", "stop choose @ /in/bin/deterministic", *WORDS, name="stopped"))
note("oracle_stopped", ORACLE.read_text())
note("bytes", counter("bytes") - first)
for number, text in enumerate(("start main@/in/bin/deterministic", "filter none@/in/bin/deterministic",
                               "filter main@/in/bin/none", "main", "filter main@/in/path")):
    note(f"bad{number}", ptweave("record", "--engine", "intel_pt", "-o", "bad.ptw", "--filter", text, "--", "true"))
three = ["--filter", "filter main@/in/bin/deterministic"] * 3
note("three", ptweave("record", "--engine", "intel_pt", "-o", "bad.ptw", *three, "--", "true"))
