# SPDX-License-Identifier: MIT
"""A PMU as sysfs describes it: its type, where in an attribute its settings are, what it can do.

Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-format: `config:0-3,8` says that a value's bits 0 to 3
are the config's bits 0 to 3, and its bit 4 is the config's bit 8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ptweave.data import BadInput, MachineLacks
from ptweave.wrapper.perf.abi import PerfEventAttr

DEVICES = Path("/sys/bus/event_source/devices")
INTEL_PT = DEVICES / "intel_pt"
_FORMAT = re.compile(r"(config[123]?):(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")


@dataclass(frozen=True)
class Field:
    """Where a setting is: `word` of the attribute, and its bits, lowest first."""

    word: str
    bits: tuple[int, ...]

    def place(self, value: int) -> int:
        """The value's bits where they belong."""
        return sum(1 << bit for index, bit in enumerate(self.bits) if value >> index & 1)

    @property
    def most(self) -> int:
        return (1 << len(self.bits)) - 1

    @property
    def mask(self) -> int:
        return self.place(self.most)


def parse_format(text: str) -> Field:
    """One file below format/. Raises ValueError for what is none."""
    found = _FORMAT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no format of a PMU's setting")
    bits: list[int] = []
    for part in found[2].split(","):
        first, _, last = part.partition("-")
        bits += range(int(first), int(last or first) + 1)
    if not bits or max(bits) > 63:
        raise ValueError(f"{text!r} names bits that are not there")
    return Field(found[1], tuple(bits))


@dataclass(frozen=True)
class Pmu:
    """`caps` are numbers as sysfs has them (hexadecimal there)."""

    name: str
    type: int
    formats: Mapping[str, Field]
    caps: Mapping[str, int]
    filters: int = 0
    max_nonturbo_ratio: int = 0
    tsc_art_ratio: tuple[int, int] = (0, 0)  # TSC ticks, per ticks of the crystal

    def set(self, attr: PerfEventAttr, settings: Mapping[str, int]) -> None:
        """Set the attribute's type and settings. Raises MachineLacks for one this PMU has not, BadInput for a value
        that does not fit."""
        attr.type = self.type
        for name, value in settings.items():
            field = self.formats.get(name)
            if field is None:
                raise MachineLacks(f"this processor's Intel PT has no {name}", where=self.name,
                                   remedy=f"leave {name} out; it has {', '.join(sorted(self.formats))}")
            if not 0 <= value <= field.most:
                raise BadInput(f"is not between 0 and {field.most}", where=f"{self.name} {name}={value}",
                               remedy="choose a value that fits")
            setattr(attr, field.word, getattr(attr, field.word) & ~field.mask | field.place(value))


def read_pmu(name: str, devices: Path = DEVICES) -> Pmu | None:
    """The PMU; None where there is none. Raises MachineLacks for one whose description cannot be understood."""
    folder = devices / name
    if not (folder / "type").exists():
        return None
    try:
        formats = {file.name: parse_format(file.read_text()) for file in sorted((folder / "format").iterdir())}
        caps = {file.name: int(file.read_text(), 16) for file in sorted((folder / "caps").iterdir())} \
            if (folder / "caps").is_dir() else {}
        ticks, _, crystal = _text(folder / "tsc_art_ratio", "0:0").partition(":")
        return Pmu(name, int(_text(folder / "type", "")), formats, caps, int(_text(folder / "nr_addr_filters", "0")),
                   int(_text(folder / "max_nonturbo_ratio", "0")), (int(ticks), int(crystal or 0)))
    except (OSError, ValueError) as error:
        raise MachineLacks(f"its description cannot be understood ({error})", where=str(folder),
                           remedy="report it, with the files of that folder; --engine soft needs no PMU") from error


def _text(path: Path, default: str) -> str:
    return path.read_text().strip() if path.exists() else default
