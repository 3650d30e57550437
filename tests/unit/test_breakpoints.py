# SPDX-License-Identifier: MIT
"""Breakpoints through perf: the place a user names is found, and a thread that comes there is noticed, once."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptweave.data import BadInput, MachineLacks
from ptweave.data.perf.format import RecordType
from ptweave.data.perf.records import Mmap
from ptweave.data.perf.samples import SampleId
from ptweave.wrapper import processes
from ptweave.wrapper.perf import synthesis
from ptweave.wrapper.perf.abi import PerfEventAttr
from ptweave.wrapper.perf.breakpoints import Breakpoints, Place, Watched, parse_places
from ptweave.wrapper.perf.event import Event
from support.command import compile_c

SOURCE = """
#include <unistd.h>
__attribute__((noinline)) void reached(void) { __asm__ volatile(""); }
__attribute__((noinline)) void missed(void) { __asm__ volatile(""); }
int main(int argc, char **argv)
{
    char byte = 'r';
    (void)argv;
    do {
        if (argc > 5)
            missed();
        if (byte == 'g')
            reached();
        if (write(1, &byte, 1) != 1)
            return 1;
    } while (read(0, &byte, 1) == 1);
    return 0;
}
"""
PERF_TYPE_SOFTWARE, DUMMY = 1, 9


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("places")
    source = folder / "places.c"
    source.write_text(SOURCE)
    return compile_c(source, folder / "places")


@pytest.fixture
def running(program: Path) -> Iterator[subprocess.Popen[bytes]]:
    target = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert target.stdout is not None and target.stdin is not None
    assert target.stdout.read(1) == b"r"
    yield target
    target.stdin.close()
    target.wait(10)
    target.stdout.close()


def tell(target: subprocess.Popen[bytes], byte: bytes) -> None:
    assert target.stdout is not None and target.stdin is not None
    target.stdin.write(byte)
    assert target.stdout.read(1) == byte


def watch(pid: int, places: tuple[Place, ...]) -> tuple[Event, Breakpoints]:
    """The places, in the process as it is mapped; skips where perf may not be used."""
    attr = PerfEventAttr()
    attr.type, attr.config, attr.sample_type = PERF_TYPE_SOFTWARE, DUMMY, synthesis.TRAILER
    attr.exclude_kernel = attr.exclude_hv = attr.sample_id_all = 1
    try:
        event = Event(attr, pid, -1, data=64 << 10, aux=0, file=-1)
    except MachineLacks as error:
        pytest.skip(f"no perf events here: {error.line()}")
    found = Breakpoints(places)
    for start, size, offset, _, _, path in processes.code_maps(pid):
        found.mapped(Mmap(RecordType.MMAP2, 0, SampleId(), pid=pid, tid=pid, start=start, size=size, offset=offset,
                          path=path.decode()))
    found.watch([Watched(event, pid, pid)])
    if any("Operation not supported" in line or "No such" in line for line in found.refused):
        pytest.skip(f"no hardware breakpoints here: {found.refused}")
    return event, found


def taken(event: Event) -> bytes:
    time.sleep(0.01)
    return event.records()


def test_a_thread_that_comes_to_a_place_is_noticed_the_first_time_only(
        running: subprocess.Popen[bytes], program: Path) -> None:
    event, found = watch(running.pid, parse_places(["reached", "missed"], str(program)))
    assert found.refused == []
    tell(running, b"n")
    assert found.hits(taken(event)) == []
    tell(running, b"g")
    assert found.hits(taken(event)) == ["reached"]
    tell(running, b"g")
    assert found.hits(taken(event)) == []
    assert found.any  # missed is still watched
    found.close()
    event.close()


def test_a_program_that_is_replaced_is_watched_where_it_is_now(
        running: subprocess.Popen[bytes], program: Path) -> None:
    event, found = watch(running.pid, parse_places(["reached"], str(program)))
    found.execed(running.pid)
    found.watch([Watched(event, running.pid, running.pid)])
    tell(running, b"g")
    assert found.hits(taken(event)) == []
    found.close()
    event.close()


def test_more_places_than_registers_are_said_and_the_others_work(
        running: subprocess.Popen[bytes], program: Path) -> None:
    (place,) = parse_places(["reached"], str(program))
    others = tuple(Place(f"other{at}", place.path, place.offset + at) for at in range(1, 5))
    event, found = watch(running.pid, (place, *others))
    assert len(found.refused) == 1
    assert "not watched in thread" in found.refused[0]
    tell(running, b"g")
    assert "reached" in found.hits(taken(event))
    found.close()
    event.close()


@pytest.mark.parametrize(("text", "words"), [
    ("none", "there is no function none"), ("reached@/no/such/file", "cannot be read"),
    ("@/bin/true", "is not SYMBOL"), ("reached@", "is not SYMBOL")])
def test_a_place_that_is_none_is_an_error(program: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_places([text], str(program))


def test_a_program_with_fixed_addresses_says_its_own(tmp_path: Path) -> None:
    source = tmp_path / "fixed.c"
    source.write_text(SOURCE)
    fixed = compile_c(source, tmp_path / "fixed", "-no-pie")
    (place,) = parse_places([f"reached@{fixed}"], None)
    listed = subprocess.run(["nm", fixed], capture_output=True, text=True, check=True).stdout
    assert f"{place.fixed:016x} T reached" in listed
    assert parse_places([f"reached@{compile_c(source, tmp_path / 'moved', '-pie')}"], None)[0].fixed == 0
