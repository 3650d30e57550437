# SPDX-License-Identifier: MIT
"""The whole way in the machine that has the PMU: recorded, decoded, merged by one command."""

from labtools import note, ptweave

WORDS = ("--threads=process", "--", "four", "5")

note("wrap", ptweave("wrap", "--engine", "intel_pt", "-q", "-j", "1", "-o", "run.ptw", *WORDS))
