# SPDX-License-Identifier: MIT
"""The event vector and its consumer on their own: cases in C with sanitizers, and under stress."""

from __future__ import annotations

import re
import subprocess

import pytest

from support.ctests import build, case_names, run_case

SOURCES = ("preload/src/vector.c", "preload/src/vector_names.c", "wrapper/src/vector_consumer.c",
           "wrapper/src/vector_file.c")
LIST_BYTES = "131072"
_LINE = re.compile(r"events (\d+) producers (\d+) errors (\d+) .*")


def stress(sanitizer: str, *words: str) -> tuple[int, int, int, int]:
    """(exit status, events, producers, errors) of vector_stress."""
    program = build("vector_stress", SOURCES, sanitizer, ("-O2",))
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=300, check=False)
    match = _LINE.match(done.stdout)
    assert match, done.stderr[-4000:]
    return done.returncode, int(match[1]), int(match[2]), int(match[3])


@pytest.mark.parametrize("case", case_names("vector_test"))
def test_vector(case: str) -> None:
    run_case(build("vector_test", SOURCES, "asan"), case)


@pytest.mark.parametrize("case", [name for name in case_names("vector_test") if "handler" in name])
def test_vector_with_the_timing_of_code_as_it_is_shipped(case: str) -> None:
    run_case(build("vector_test", SOURCES, "", ("-O2",)), case)


def test_threads_and_their_consumer_have_no_data_race() -> None:
    status, events, _, errors = stress("tsan", "threads", "400000", "4", LIST_BYTES, "1")
    assert (status, events, errors) == (0, 400000, 0)


@pytest.mark.parametrize("seed", ["1", "2"])
def test_killed_producers_cost_nobody_else_an_event(seed: str) -> None:
    status, events, producers, errors = stress("", "kill", "3000000", "4", LIST_BYTES, seed)
    assert (status, errors) == (0, 0)
    assert events >= 3000000 and producers >= 44


def test_one_wrong_bit_is_found() -> None:
    status, _, _, errors = stress("", "damage", "1000000", "4", LIST_BYTES, "1")
    assert status == 1 and errors > 0
