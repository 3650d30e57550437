# SPDX-License-Identifier: MIT
"""--shared: what it names is open to all threads and in no log; what lies elsewhere is logged as ever."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptweave.data import BadInput
from ptweave.data.evl import EVL_HEADER_SIZE, EVL_RECORD, Operation
from ptweave.data.notices import NoticeKind
from ptweave.wrapper.threads import check_shared
from support.control import Traced, run_traced
from support.programs import compile_program

PAGE = 4096
OPENED = (Operation.ACCESS_READ, Operation.ACCESS_WRITE)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("passed"), "passed")


def pages_logged(traced: Traced) -> set[int]:
    """Pages that accesses were logged of, in any thread."""
    found: set[int] = set()
    for path in traced.bundle.dependence.glob("*.evl"):
        data, at = path.read_bytes(), EVL_HEADER_SIZE
        while at < len(data):
            size, operation, _, _, _, address, _, _, count = EVL_RECORD.unpack_from(data, at)
            if operation in OPENED:
                found |= {address // PAGE * PAGE + i * PAGE for i in range(count)}
            at += size
    return found


def run(folder: Path, program: Path, shared: str, access: str, view: str = "shared") -> Traced:
    traced = run_traced(folder, [program], name=f"{access}{view}.ptw", env={
        "PTWEAVE_THREADS": "process", "PTWEAVE_ACCESS": access, "PTWEAVE_VIEW": view, "PTWEAVE_SHARED": shared})
    assert traced.status == 0, traced.err
    return traced


def addresses(traced: Traced) -> list[int]:
    return [int(word, 16) for word in traced.out.split()]


@pytest.mark.parametrize("view", ["shared", "private"])
@pytest.mark.parametrize("access", ["held", "exact"])
def test_a_variable_is_passed_through_and_its_neighbour_is_not(access: str, view: str, program: Path,
                                                               tmp_path: Path) -> None:
    traced = run(tmp_path, program, "quiet", access, view)
    quiet, loud, _ = addresses(traced)
    logged = pages_logged(traced)
    assert not {quiet, quiet + PAGE} & logged and {loud, loud + PAGE} <= logged
    assert traced.server.notices.all == []


def test_without_it_both_are_logged(program: Path, tmp_path: Path) -> None:
    traced = run(tmp_path, program, "", "held")
    quiet, loud, block = addresses(traced)
    assert {quiet, quiet + PAGE, loud, loud + PAGE, block} <= pages_logged(traced)


def test_pages_are_named_by_address_and_range(program: Path, tmp_path: Path) -> None:
    block = addresses(run(tmp_path, program, "", "held"))[2]  # the heap begins at the same place each time
    for name, shared in (("page", f"{block:#x}"), ("range", f"{block - PAGE:#x}-{block + 1:#x}")):
        folder = tmp_path / name
        folder.mkdir()
        traced = run(folder, program, f"{shared},quiet", "exact")
        assert addresses(traced)[2] == block
        assert not {block, addresses(traced)[0]} & pages_logged(traced)


def test_a_name_that_is_none_is_told(program: Path, tmp_path: Path) -> None:
    traced = run(tmp_path, program, "quiet,nobody,neither", "held")
    told = traced.server.notices.all
    assert [one.kind for one in told] == [NoticeKind.SHARED] * 2
    assert [re.findall('"(.*)"', one.text) for one in told] == [["nobody"], ["neither"]]


@pytest.mark.parametrize("good", ["x", "_ZN3foo3barE", "0x1000", "0x1000-0x3000", "counter.0"])
def test_names_and_addresses_are_taken(good: str) -> None:
    check_shared([good])


@pytest.mark.parametrize("bad", ["", "a,b", "1x", "0x", "0x1-", "a b", "0x1000-3000", "\n"])
def test_what_is_neither_is_refused(bad: str) -> None:
    with pytest.raises(BadInput, match="--shared"):
        check_shared([bad])
