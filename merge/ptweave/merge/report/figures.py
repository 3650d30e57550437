# SPDX-License-Identifier: MIT
"""Figures as people read them."""

from __future__ import annotations

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_LARGE = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**4, "k"))


def duration(ns: int | float | None) -> str:
    """A time with three digits and a unit; empty when unknown."""
    if ns is None:
        return ""
    for size, unit in _UNITS:
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}" if abs(ns) < 1000 * size else f"{ns / size:,.0f} {unit}"
    return "0"


def count(number: int | None) -> str:
    """A count: exact below ten thousand, else three digits and k, M, G or T; empty when unknown."""
    if number is None:
        return ""
    for size, letter in _LARGE:
        if abs(number) >= size:
            size = 1000 if letter == "k" else size
            return f"{number / size:.3g} {letter}" if abs(number) < 1000 * size else f"{number / size:,.0f} {letter}"
    return f"{number:,}"
