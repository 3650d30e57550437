# SPDX-License-Identifier: MIT
"""System calls between those with which libtthread says that it works for itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ptweave.merge.own_calls import BEGINS, ENDS, SIGN, makes_between, signs_of

MMAP = 9
SIGNS = {"b": BEGINS, "e": ENDS, "-": 0x1234}


def found(text: str, own: str | None = None) -> str:
    """Of calls, a character each: those of SIGNS as SIGN's first argument, `m` for mmap with BEGINS."""
    calls = np.array([MMAP if one == "m" else SIGN for one in text], np.int64)
    firsts = np.array([SIGNS.get(one, BEGINS) for one in text], np.int64)
    by_library = np.array([one == "x" for one in own or "x" * len(text)], np.bool_)
    return "".join("o" if one else "." for one in makes_between(by_library, signs_of(calls, firsts)))


@pytest.mark.parametrize(("calls", "between"), [
    ("", ""), ("m--", "..."), ("mb-m-em", ".ooooo."), ("be-be", "oo.oo"), ("mbmbmemem", ".ooooooo."),
    ("m-e-", "...."), ("mb--", "...."), ("b-b-e-", "..ooo."), ("be-e-", "oo...")])
def test_from_a_beginning_to_the_end_that_belongs_to_it(calls: str, between: str) -> None:
    assert found(calls) == between


def test_the_programs_own_calls_that_look_like_signs_say_nothing() -> None:
    assert found("mb-em", own=".....") == "....."
    assert found("bb-em", own="x.xx.") == "oooo."


def test_the_signs_are_those_of_the_library() -> None:
    text = (Path(__file__).resolve().parents[2] / "preload/src/own_work.h").read_text()
    assert [int(one, 16) for one in re.findall(r"PTW_OWN_WORK_(?:BEGINS|ENDS) = (\w+)", text)] == [BEGINS, ENDS]
