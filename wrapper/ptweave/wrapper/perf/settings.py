# SPDX-License-Identifier: MIT
"""Settings of Intel PT that the user chooses (`--pt NAME[=N],…`), by the names sysfs has for them.

The kernel lists a setting's bits whether or not the processor has it: what it has is said below `caps/`
(arch/x86/events/intel/pt.c, `pt_caps`). Source of what they mean: SDM vol. 3, 33.2.7.2 (IA32_RTIT_CTL).
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping

from ptweave.data import BadInput, MachineLacks
from ptweave.wrapper.perf.pmu import Pmu

DEFAULTS = {"tsc": 1, "pt": 1, "branch": 1}
"""Without them there is nothing to decode."""

AUX_SIZE_MIN, AUX_SIZE_MAX = mmap.PAGESIZE, 1 << 30
"""Bytes of packets that the user may have a ring hold (`--aux-size`)."""

_NEEDS = {"mtc": "mtc", "mtc_period": "mtc", "cyc": "psb_cyc", "cyc_thresh": "psb_cyc", "psb_period": "psb_cyc",
          "ptw": "ptwrite", "fup_on_ptw": "ptwrite", "pwr_evt": "power_event_trace", "event": "event_trace",
          "notnt": "tnt_disable"}
"""Setting → the capability it needs."""

_VALUES = {"mtc_period": "mtc_periods", "cyc_thresh": "cycle_thresholds", "psb_period": "psb_periods"}
"""Setting → the capability whose bits are the values the processor takes."""

_SPELLED = re.compile(r"(\w+)(?:=(0[xX][0-9a-fA-F]{1,16}|\d{1,19}))?")


def parse_settings(texts: list[str]) -> dict[str, int]:
    """What the user wrote; a name alone is 1. Raises BadInput."""
    found: dict[str, int] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        match = _SPELLED.fullmatch(part)
        if match is None:
            raise BadInput("is not NAME or NAME=NUMBER", where=f"--pt {part!r}",
                           remedy="as in: --pt mtc,mtc_period=3,psb_period=5")
        found[match[1]] = int(match[2], 0) if match[2] else 1
    for name in DEFAULTS.keys() & found.keys():
        if found[name] != 1:
            raise BadInput(f"without {name} there is nothing to decode", where=f"--pt {name}={found[name]}",
                           remedy=f"leave {name} out")
    if found.get("notnt"):
        raise BadInput("without TNT packets there is no path to decode", where="--pt notnt", remedy="leave notnt out")
    return found


def check_settings(pmu: Pmu, settings: Mapping[str, int]) -> None:
    """Raises MachineLacks for what this processor has not, with what it has. A kernel that says nothing of a capability
    has none."""
    for name, value in settings.items():
        if not value or name in DEFAULTS:
            continue
        if name not in pmu.formats or not pmu.caps.get(_NEEDS.get(name, ""), name not in _NEEDS):
            has = sorted(one for one in pmu.formats if pmu.caps.get(_NEEDS.get(one, ""), one not in _NEEDS))
            raise MachineLacks(f"this processor's Intel PT has no {name}", where=f"--pt {name}",
                               remedy=f"leave it out; there is {', '.join(has)}")
        mask = pmu.caps.get(_VALUES.get(name, ""))
        if mask is not None and not mask >> value & 1:
            values = ", ".join(str(bit) for bit in range(64) if mask >> bit & 1) or "none"
            raise MachineLacks(f"this processor's Intel PT takes no {name} of {value}", where=f"--pt {name}={value}",
                               remedy=f"choose one of {values}")
