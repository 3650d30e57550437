# SPDX-License-Identifier: MIT
"""Variables: which ones an ELF file has, where they are in a run, and what an address in one is called."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import MAPS, VARIABLES
from ptweave.decode.elf import Elf
from ptweave.decode.variables import variable_rows, variables_of
from ptweave.merge import Run, merge_run
from ptweave.merge.addresses import Addresses
from ptweave.merge.program import Program
from ptweave.merge.tables import open_parquet
from ptweave.merge.tasks import load_tasks
from ptweave.merge.variables import Variables
from support.assembler import compile_c
from support.bundle_writer import BASE, IMAGE_STRIDE, BundleWriter, put
from support.elf_writer import ElfWriter

OBJECT, COMMON, FUNC, TLS, LOCAL_OBJECT = 0x11, 0x15, 0x12, 0x16, 0x01
CODE, DATA = 0x1000, 0x8000  # where a file's segments are linked
READ_WRITE = 6

PROGRAM = """
#include <stdio.h>
struct pair { long a, b; } table[3];
static int counter = 5;
static const char text[] = "hello";
__thread int own;
int main(void) { own = counter++; table[1].b = own; printf("%p %p %p\\n", (void *)table, (void *)&counter, text);
                 return !text[own]; }
"""


def file_with(symbols: list[tuple[str, int, int, int]], *, offset: int = 0x400, more: int = 0) -> Elf:
    """Code at `offset` of the file, linked at CODE; `more`: another executable segment, as far from there."""
    writer = ElfWriter().segment(offset, CODE, 0x1000).segment(0x2000, DATA, 0x1000, READ_WRITE).symbols(symbols)
    return Elf((writer.segment(0x5000, 0x5000 - offset + CODE + more, 16) if more else writer).data())


def listed(elf: Elf, debug: Elf | None = None) -> list[tuple[int, int, str]]:
    tables = list(variable_rows(7, elf, variables_of(elf, debug)))
    assert all(row["image"] == 7 for table in tables for row in table.to_pylist())
    return [(row["offset"], row["size"], row["name"]) for table in tables for row in table.to_pylist()]


def test_data_with_a_size_in_a_segment_is_a_variable_and_nothing_else() -> None:
    found = listed(file_with([
        ("late", DATA + 0x80, 4, LOCAL_OBJECT), ("early", DATA, 8, OBJECT), ("shared", DATA + 0x40, 2, COMMON),
        ("function", CODE, 16, FUNC), ("each_has_one", DATA + 0x50, 4, TLS), ("no_size", DATA + 0x60, 0, OBJECT),
        ("nowhere", 0x90000, 8, OBJECT), ("undefined", 0, 8, OBJECT), ("in_code", CODE + 32, 4, OBJECT)]))
    distance = CODE - 0x400
    assert found == [(CODE + 32 - distance, 4, "in_code"), (DATA - distance, 8, "early"),
                     (DATA + 0x40 - distance, 2, "shared"), (DATA + 0x80 - distance, 4, "late")]


def test_names_are_demangled_and_of_two_the_global_one_is_taken() -> None:
    found = listed(file_with([("_hidden", DATA, 8, LOCAL_OBJECT), ("_ZN3foo3barE", DATA, 8, OBJECT)]))
    assert [name for _, _, name in found] == ["foo::bar"]


def test_a_debug_file_names_what_the_stripped_one_does_not() -> None:
    debug = file_with([("here", DATA, 8, OBJECT)])
    assert listed(file_with([]), debug) == listed(debug) != []


def test_code_that_is_not_all_as_far_from_the_file_has_no_places_for_variables() -> None:
    symbols = [("here", DATA, 8, OBJECT)]
    assert listed(file_with(symbols, more=0)) and not listed(file_with(symbols, more=0x1000))


@pytest.mark.parametrize("address", [0xffff_ffff_8000_0000, 0xffff_ffff_ffff_f000], ids=["kernel", "last page"])
def test_a_file_that_is_linked_far_up_has_its_variables_as_far_from_its_code(address: int) -> None:
    elf = Elf(ElfWriter().segment(0x400, address, 0x1000).symbols([("here", address + 0x20, 8, OBJECT)]).data())
    assert listed(elf) == [(0x420, 8, "here")]


@pytest.mark.parametrize("size", [0xf81, 1 << 47, (1 << 64) - 1])
def test_what_reaches_beyond_its_segment_is_no_variable(size: int) -> None:
    fits, too_large = ("fits", DATA + 0x80, 0xf80, OBJECT), ("too_large", DATA + 0x80, size, OBJECT)
    assert [name for _, _, name in listed(file_with([fits]))] == ["fits"]
    assert listed(file_with([too_large])) == []


@pytest.mark.parametrize(("offset", "size"), [(-(1 << 63), 8), ((1 << 63) - 1, 8), (0x420, (1 << 64) - 1)])
def test_places_that_no_address_has_hide_no_others(tmp_path: Path, offset: int, size: int) -> None:
    bundle = written(tmp_path / "run.ptw", [(0, 0x420, 8, "here"), (1, offset, size, "far")])
    assert looked_up(bundle, BASE + 0x420, BASE + 0x421) == ["here", "here+0x1"]


def test_a_malformed_symbol_table_names_nothing() -> None:
    whole = ElfWriter().segment(0x400, CODE, 0x1000).symbols([("here", CODE + 8, 8, OBJECT)])
    assert listed(Elf(whole.data()))
    whole.sections[-1].link = ".nowhere"
    assert not listed(Elf(ElfWriter(whole.sections[1:], whole.segments).data()))


@pytest.mark.parametrize("flags", [("-no-pie",), ("-pie", "-fPIE")], ids=["fixed", "pie"])
def test_variables_of_a_real_program_are_those_of_nm(tmp_path: Path, flags: tuple[str, ...]) -> None:
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    program = compile_c(source, tmp_path / "program", *flags)
    elf = Elf.open(program)
    assert elf.distance is not None
    ours = {(offset + elf.distance, size, name) for offset, size, name in listed(elf)}
    told = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout.splitlines()
    theirs = {(int(value, 16), int(size, 16), name)
              for value, size, kind, name in (line.split() for line in told if len(line.split()) == 4)
              if kind in "bBdDrR" and name != "own"}
    assert {"table", "counter", "text"} <= {name for _, _, name in ours}
    assert {row for row in ours if row[2] in ("table", "counter", "text")} <= theirs
    assert ours <= theirs | {row for row in ours if row[2].startswith("_")}


# --- in a run ---------------------------------------------------------------------------------------------------


def written(path: Path, rows: list[tuple[int, int, int, str]], *, objects: int = 1) -> Bundle:
    """One process with the code of images 0 and 1, that has the variables (image, offset, size, name). `objects`:
    how many of its operations have one."""
    writer = BundleWriter(path)
    writer.task(0, begin=0, end=1000)
    writer.run(0, [writer.block("main", "jump"), writer.block("other", "jump", image=1)])
    writer.thunk(0, t=5, marker=0)
    writer.thunks[0] |= {"object": BASE + 0x9008 if objects else None, "operation": "mutex_lock", "acquire": True}  # type: ignore[index]
    bundle = writer.write()
    put(bundle, VARIABLES, [dict(zip(("image", "offset", "size", "name"), row, strict=True)) for row in sorted(rows)])
    return bundle


def looked_up(bundle: Bundle, *addresses: int, times: Sequence[int] = ()) -> list[str | None]:
    with Program(bundle) as program:
        variables = Variables(bundle, Addresses(bundle, program, load_tasks(bundle)))
        values = np.array(addresses, np.uint64)
        found: list[str | None] = variables.of(np.zeros(len(values), np.int64),
                                               np.array(times or [0] * len(values), np.int64), values).to_pylist()
    return found


def test_an_address_is_named_by_the_variable_it_is_in_and_how_far(tmp_path: Path) -> None:
    bundle = written(tmp_path / "run.ptw", [(0, 0x9000, 0x40, "server"), (0, 0x9010, 8, "inner"), (1, 0x2000, 4, "x")])
    other = BASE + IMAGE_STRIDE
    assert looked_up(bundle, BASE + 0x8fff, BASE + 0x9000, BASE + 0x9008, BASE + 0x9010, BASE + 0x9017, BASE + 0x9018,
                     BASE + 0x9040, other + 0x2003, other + 0x2004, 0, (1 << 64) - 1) == [
        None, "server", "server+0x8", "inner", "inner+0x7", "server+0x18", None, "x+0x3", None, None, None]


def test_addresses_that_are_all_near_variables_of_one_thread_are_named_as_among_others(tmp_path: Path) -> None:
    """Those are looked up all at once."""
    bundle = written(tmp_path / "run.ptw", [(0, 0x9000, 0x40, "server"), (0, 0x9010, 8, "inner"), (1, 0x2000, 4, "x")])
    near = [BASE + at for at in (0x9000, 0x9008, 0x9010, 0x9018, 0x9040, IMAGE_STRIDE + 0x2003)]
    names = looked_up(bundle, *near)
    assert names == ["server", "server+0x8", "inner", "server+0x18", None, "x+0x3"]
    assert looked_up(bundle, *near, 0, 1)[:-2] == names


def test_behind_the_innermost_of_three_variables_the_middle_one_goes_on(tmp_path: Path) -> None:
    bundle = written(tmp_path / "run.ptw", [(0, 0x9000, 0x100, "outer"), (0, 0x9020, 0x80, "middle"),
                                            (0, 0x9040, 0x10, "inner")])
    assert looked_up(bundle, *(BASE + at for at in (0x904f, 0x9050, 0x909f, 0x90a0))) == [
        "inner+0xf", "middle+0x30", "middle+0x7f", "outer+0xa0"]


def test_tables_and_answers_have_the_names(tmp_path: Path) -> None:
    bundle = written(tmp_path / "run.ptw", [(0, 0x9000, 0x40, "server")])
    merge_run(bundle)
    with Run(bundle.path) as run:
        assert run.sql("select object, variable from thunks").rows() == [(BASE + 0x9008, "server+0x8")]
        (lock,) = run.contention().arrow().to_pylist()
        assert (lock["object"], lock["variable"], lock["operation"]) == (BASE + 0x9008, "server+0x8", "mutex_lock")


def test_a_run_that_was_decoded_without_variables_has_none(tmp_path: Path) -> None:
    bundle = written(tmp_path / "run.ptw", [])
    for file in (bundle.tables / VARIABLES.name).iterdir():
        file.unlink()
    merge_run(bundle)
    with Run(bundle.path) as run:
        assert run.sql("select variable from thunks").rows() == [(None,)]


def test_tables_of_places_are_read_once_and_names_where_one_is_asked_for(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def noting(path: Path, *args: Any) -> pq.ParquetFile:
        opened.append(path.parent.name)
        return open_parquet(path, *args)

    monkeypatch.setattr("ptweave.merge.tables.open_parquet", noting)
    for objects in (1, 0):
        bundle = written(tmp_path / f"{objects}.ptw", [(0, 0x9000, 0x40, "server")], objects=objects)
        opened.clear()
        merge_run(bundle)
        assert (opened.count(MAPS.name), opened.count(VARIABLES.name)) == (1, objects)


def test_a_thread_has_the_variables_of_the_program_it_is_at_the_time(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    writer.task(0, begin=0, end=1000)
    writer.sideband.append({"kind": "process", "tsc": 500, "pid": 100, "space": 1, "detail": "exec", "path": "/bin/b"})
    writer.run(0, [writer.block("main", "jump"), writer.block("other", "jump", image=1)])
    bundle = writer.write()
    put(bundle, VARIABLES, [{"image": image, "offset": 0x9000, "size": 8, "name": name}
                            for image, name in enumerate(("before", "after"))])
    put(bundle, MAPS, [{"space": image, "pid": 100, "start": BASE, "end": BASE + 0x1000, "offset": 0, "image": image,
                        "since": 0, "until": None} for image in (0, 1)])
    addresses = [BASE + 0x9000] * 4
    assert looked_up(bundle, *addresses, times=[600, 0, 499, 500]) == ["after", "before", "before", "after"]
    bundle.sideband.unlink()  # which of the two it was is not known
    assert looked_up(bundle, *addresses) == [None] * 4


def test_where_two_images_were_one_after_the_other_nothing_is_named(tmp_path: Path) -> None:
    bundle = written(tmp_path / "run.ptw", [(0, 0x9000, 8, "a"), (0, 0xa000, 8, "b"), (1, 0x9004, 8, "c")])
    assert looked_up(bundle, BASE + 0x9000, BASE + 0xa000) == ["a", "b"]
    put(bundle, MAPS, [{"space": 0, "pid": 100, "start": BASE, "end": BASE + 0x1000, "offset": 0, "image": image,
                        "since": image, "until": None} for image in (0, 1)])
    assert looked_up(bundle, BASE + 0x9000, BASE + 0x9004, BASE + 0xa000) == [None, None, None]


@given(edges=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.lists(st.tuples(
    st.integers(0, 11), st.integers(1, 4)), max_size=2)), max_size=5), at=st.lists(st.integers(0, 80), max_size=30))
def test_of_variables_in_others_the_inner_one_is_named(
        tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[int, int, list[tuple[int, int]]]],
        at: list[int]) -> None:
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    for begin, size, parts in edges:
        if any(begin < other + length and other < begin + size for other, length in outer.items()):
            continue
        outer[begin] = size
        for into, length in parts:
            if into > 0 and into + length <= size and not any(
                    begin + into < other + known and other < begin + into + length for other, known in inner.items()):
                inner[begin + into] = length

    def expected(offset: int) -> str | None:
        for kept in (inner, outer):
            for begin, size in kept.items():
                if begin <= offset < begin + size:
                    return f"v{begin}" + (f"+{offset - begin:#x}" if offset > begin else "")
        return None

    bundle = written(tmp_path_factory.mktemp("run") / "run.ptw",
                     [(0, 0x9000 + begin, size, f"v{begin}") for begin, size in (outer | inner).items()])
    assert looked_up(bundle, *(BASE + 0x9000 + offset for offset in at)) == [expected(offset) for offset in at]


def test_variables_are_a_table_of_their_own(tmp_path: Path) -> None:
    bundle = written(tmp_path / "run.ptw", [(0, 0x9000, 8, "a")])
    with Run(bundle.path) as run:
        assert run.sql("select name, start + variables.\"offset\" - maps.\"offset\" from variables "
                       "join maps using (image)").rows() == [("a", BASE + 0x9000)]
    assert pa.types.is_string(VARIABLES.schema.field("name").type)
