# SPDX-License-Identifier: MIT
"""A variable is watched, of threads and of threads that are processes."""

from labtools import ORACLE, note, record

for mode in ("native", "process"):
    ORACLE.write_text("0")
    note(mode, record(f"--threads={mode}", "--watch", "counter:w", "--", "watched", "3", name=mode))
    note(f"oracle_{mode}", ORACLE.read_text())
