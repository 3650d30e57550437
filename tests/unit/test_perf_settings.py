# SPDX-License-Identifier: MIT
"""Settings of Intel PT: as the user writes them, and only those the processor has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data import BadInput, Cpu, MachineLacks
from ptweave.wrapper.perf.pmu import Pmu, parse_format
from ptweave.wrapper.perf.settings import check_settings, parse_settings
from ptweave.wrapper.pt import timing

FORMATS = {name: parse_format(f"config:{bits}") for name, bits in {
    "pt": "0", "cyc": "1", "mtc": "9", "tsc": "10", "noretcomp": "11", "ptw": "12", "branch": "13",
    "mtc_period": "14-17", "cyc_thresh": "19-22", "psb_period": "24-27"}.items()}
ALL = {"mtc": 1, "psb_cyc": 1, "ptwrite": 1, "mtc_periods": 0x249, "cycle_thresholds": 0x3FFF, "psb_periods": 0x3F}


def pmu(**caps: int) -> Pmu:
    return Pmu("intel_pt", 8, FORMATS, {**ALL, **caps})


def test_names_and_numbers_are_taken_in_one_option_or_several() -> None:
    assert parse_settings(["mtc,mtc_period=3", " psb_period=0x5"]) == {"mtc": 1, "mtc_period": 3, "psb_period": 5}
    assert parse_settings([]) == {}


@pytest.mark.parametrize("text", ["", ",", "mtc=", "=3", "mtc=x", "mtc=-1", "mtc 3", "mtc,,cyc", "mtc=1=2"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="NAME or NAME=NUMBER"):
        parse_settings([text])


@pytest.mark.parametrize("text", ["tsc=0", "pt=0", "branch=0", "branch=2", "notnt"])
def test_what_could_not_be_decoded_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="decode"):
        parse_settings([text])


def test_a_processor_takes_what_it_has() -> None:
    check_settings(pmu(), {"mtc": 1, "mtc_period": 3, "cyc": 1, "cyc_thresh": 13, "ptw": 1, "noretcomp": 1, "tsc": 1,
                           "psb_period": 5})


@pytest.mark.parametrize(("settings", "lacking"), [
    ({"mtc": 1}, {"mtc": 0}), ({"mtc_period": 3}, {"mtc": 0}), ({"cyc": 1}, {"psb_cyc": 0}),
    ({"ptw": 1}, {"ptwrite": 0}),
    ({"event": 1}, {}), ({"nothing": 1}, {})])
def test_what_it_has_not_is_said_with_what_it_has(settings: dict[str, int], lacking: dict[str, int]) -> None:
    (name,) = settings
    with pytest.raises(MachineLacks, match=f"has no {name}") as error:
        check_settings(pmu(**lacking), settings)
    assert "noretcomp" in error.value.remedy
    assert name not in error.value.remedy.replace("noretcomp", "").split("there is ")[1].split(", ")


def test_a_value_it_does_not_take_is_said_with_those_it_takes() -> None:
    with pytest.raises(MachineLacks, match="takes no mtc_period of 1") as error:
        check_settings(pmu(), {"mtc_period": 1})
    assert error.value.remedy == "choose one of 0, 3, 6, 9"


def test_the_decoder_is_told_how_often_mtc_packets_come() -> None:
    cpu = Cpu()
    timing(cpu, Pmu("intel_pt", 8, {}, {}, 0, 0x1C, (176, 2)), {"mtc": 1, "mtc_period": 6})
    assert (cpu.mtc_freq, cpu.nom_freq, cpu.tsc_ratio) == (6, 28, (176, 2))


@given(st.text(max_size=40))
def test_any_text_is_settings_or_an_error(text: str) -> None:
    try:
        found = parse_settings([text])
    except BadInput:
        return
    assert all(name and value >= 0 for name, value in found.items())
