# SPDX-License-Identifier: MIT
"""The engine's packet encoder, read back with libipt: sanitised, and as the engine is compiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "wrapper/engine"
BUILDS = {
    "sanitised": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "optimised": ["-O2", "-fno-strict-aliasing", "-fno-builtin"],
}
TESTS = (
    "branches_of_every_length", "targets_at_every_distance", "returns_are_compressed",
    "returns_to_calls_before_one_that_went_elsewhere_are_tips", "events_turn_tracing_off_and_on", "psbs_come_in_time",
    "small_buffers_are_refilled",
    "killed_anywhere_leaves_a_prefix", "control_counting_branches_twice_is_noticed",
)


@pytest.fixture(scope="module", params=list(BUILDS))
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param) / "packet_check"
    subprocess.run(["gcc", "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", *BUILDS[request.param], f"-I{ENGINE}",
                    "-o", path, ROOT / "tests/programs/packet_check.c", ENGINE / "pt_packet.c", "-lipt"], check=True)
    return path


@pytest.mark.parametrize("name", TESTS)
def test_encoder(program: Path, name: str) -> None:
    done = subprocess.run([program, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_test_of_the_program_is_run(program: Path) -> None:
    listed = subprocess.run([program, "list"], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(listed) == sorted(TESTS)
