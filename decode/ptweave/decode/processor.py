# SPDX-License-Identifier: MIT
"""The processor of a recording in the terms of libipt's configuration."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ptweave.data.errors import BadInput
from ptweave.data.manifest import MAX_FILTERS, FilterKind, Manifest, Times
from ptweave.decode._ipt import ffi, lib

FILTERS = {FilterKind.FILTER: lib.PTD_FILTER_FILTER, FilterKind.STOP: lib.PTD_FILTER_STOP}


def processor(manifest: Manifest) -> Any:
    """`struct ptd_cpu`: identity (errata), timing, address filters, flags.

    Raises BadInput for numbers no processor has. The soft engine's packets have no errata, whatever made them.
    """
    cpu = ffi.new("struct ptd_cpu *")
    known = manifest.cpu
    if len(manifest.filters) > MAX_FILTERS:
        raise BadInput(f"has more than {MAX_FILTERS} address filters", where="run.json", remedy="record the run again")
    try:
        if manifest.engine == "intel_pt" and known.vendor == "GenuineIntel":
            cpu.intel = 1
            cpu.family, cpu.model, cpu.stepping = known.family, known.model, known.stepping
        if manifest.times is Times.FULL:
            cpu.exact_time = manifest.exact_time
            cpu.mtc_freq, cpu.nom_freq = known.mtc_freq, known.nom_freq
            cpu.cpuid_0x15_ebx, cpu.cpuid_0x15_eax = known.tsc_ratio
        cpu.ticks = manifest.ticks
        for number, entry in enumerate(manifest.filters):
            cpu.filter_kind[number] = FILTERS[entry.kind]
            cpu.filter_first[number], cpu.filter_last[number] = entry.first, entry.last
    except (OverflowError, TypeError) as error:
        raise BadInput(f"describes no processor ({error})", where="run.json", remedy="record the run again") from error
    return cpu


def described(manifest: Manifest) -> dict[str, Any]:
    """All of a manifest that `processor` looks at."""
    return asdict(manifest.cpu) | {
        "engine": manifest.engine, "exact_time": manifest.exact_time, "times": manifest.times.value,
        "ticks": manifest.ticks,
        "filters": [asdict(entry) for entry in manifest.filters]}
