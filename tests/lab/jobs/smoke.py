# SPDX-License-Identifier: MIT
"""What the PMU says of itself."""

from labtools import note

from ptweave.wrapper import host

for name in ("type", "format/tsc", "caps/psb_periods"):
    with open(f"/sys/bus/event_source/devices/intel_pt/{name}") as file:
        note(name.replace("/", "-"), file.read().strip())
note("vendor", host.cpu().vendor)
