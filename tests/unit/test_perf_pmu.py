# SPDX-License-Identifier: MIT
"""A PMU's description is read from sysfs: where a setting's bits go is what the files say, whatever they say."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data import BadInput, MachineLacks
from ptweave.wrapper.perf.abi import PerfEventAttr
from ptweave.wrapper.perf.event import explain_map, explain_open
from ptweave.wrapper.perf.pmu import Field, parse_format, read_pmu


def pmu_folder(root: Path, **formats: str) -> Path:
    folder = root / "intel_pt"
    (folder / "format").mkdir(parents=True)
    (folder / "caps").mkdir()
    for name, text in formats.items():
        (folder / "format" / name).write_text(text + "\n")
    (folder / "type").write_text("9\n")
    (folder / "caps/psb_periods").write_text("3f\n")
    (folder / "tsc_art_ratio").write_text("176:2\n")
    (folder / "max_nonturbo_ratio").write_text("28\n")
    (folder / "nr_addr_filters").write_text("2\n")
    return root


def test_settings_go_where_the_files_say_also_when_bits_are_scattered(tmp_path: Path) -> None:
    folder = pmu_folder(tmp_path, tsc="config:10", psb_period="config:24-27", odd="config1:0-1,5,9-10")
    pmu = read_pmu("intel_pt", folder)
    assert pmu is not None
    attr = PerfEventAttr()
    pmu.set(attr, {"tsc": 1, "psb_period": 5, "odd": 0b11101})
    assert (attr.type, attr.config, attr.config1) == (9, 1 << 10 | 5 << 24, 1 | 1 << 5 | 1 << 9 | 1 << 10)
    pmu.set(attr, {"psb_period": 2})
    assert attr.config == 1 << 10 | 2 << 24
    assert (pmu.caps["psb_periods"], pmu.tsc_art_ratio, pmu.max_nonturbo_ratio) == (0x3F, (176, 2), 28)
    assert pmu.filters == 2


def test_a_setting_the_processor_has_not_is_said_and_one_that_does_not_fit(tmp_path: Path) -> None:
    pmu = read_pmu("intel_pt", pmu_folder(tmp_path, tsc="config:10"))
    assert pmu is not None
    with pytest.raises(MachineLacks, match="has no ptw"):
        pmu.set(PerfEventAttr(), {"ptw": 1})
    with pytest.raises(BadInput, match="not between 0 and 1"):
        pmu.set(PerfEventAttr(), {"tsc": 2})


def test_a_machine_without_the_pmu_has_none(tmp_path: Path) -> None:
    assert read_pmu("intel_pt", tmp_path) is None


@pytest.mark.parametrize("text", ["", "config", "config:", "config4:1", "config:5-3", "config:64", "config:1;2", "x:1"])
def test_a_description_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"PMU|bits"):
        parse_format(text)
    with pytest.raises(MachineLacks, match="cannot be understood"):
        read_pmu("intel_pt", pmu_folder(tmp_path, tsc=text))


@given(st.lists(st.integers(0, 63), min_size=1, max_size=20, unique=True), st.integers(0, 1 << 20))
def test_placed_bits_can_be_read_back(bits: list[int], value: int) -> None:
    field = Field("config", tuple(bits))
    placed = field.place(value)
    assert placed & ~field.mask == 0
    assert sum((placed >> bit & 1) << index for index, bit in enumerate(bits)) == value & field.most


@pytest.mark.parametrize(("number", "words"), [
    (errno.EACCES, "perf_event_paranoid"), (errno.EBUSY, "in use by somebody else"), (errno.ESRCH, "no such process"),
    (errno.EMFILE, "ulimit -n"), (errno.ENODEV, "--engine soft"), (errno.EINVAL, "caps"),
    (errno.EIO, "ptweave doctor")])
def test_every_way_opening_fails_has_a_remedy(number: int, words: str) -> None:
    assert words in explain_open(OSError(number, "no"), 7).line()


@pytest.mark.parametrize(("number", "words"), [
    (errno.EPERM, "perf_event_mlock_kb is"), (errno.ENOMEM, "no memory"), (errno.EINVAL, "power of two"),
    (errno.EBUSY, "in use by somebody else"), (errno.EIO, "cannot be mapped")])
def test_every_way_mapping_fails_says_the_numbers(number: int, words: str) -> None:
    line = explain_map(OSError(number, "no"), 64 << 10, 4 << 20).line()
    assert words in line
    assert "KiB" in line or "bytes" in line or "in use" in line
