# SPDX-License-Identifier: MIT
"""What cannot be: a ring of three pages, and a PMU that somebody else has."""

import os

from labtools import note, ptweave

from ptweave.wrapper.perf.abi import PerfEventAttr
from ptweave.wrapper.perf.event import perf_event_open
from ptweave.wrapper.pt import intel_pt

note("three_pages", ptweave("record", "--engine", "intel_pt", "-o", "three.ptw", "--aux-size=12K", "--", "true"))
note("left_three", os.path.exists("three.ptw"))

attr = PerfEventAttr()
intel_pt().set(attr, {"tsc": 1})
attr.disabled = 1
others = [perf_event_open(attr, -1, cpu) for cpu in range(2)]  # whole CPUs: nobody may trace tasks then
note("busy", ptweave("record", "--engine", "intel_pt", "-o", "busy.ptw", "--", "true"))
note("left_busy", os.path.exists("busy.ptw"))
for descriptor in others:
    os.close(descriptor)
note("free", ptweave("record", "--engine", "intel_pt", "-q", "-o", "free.ptw", "--", "true"))
