# SPDX-License-Identifier: MIT
"""Sidebands of every kind of nonsense: decoding ends, and its account is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptweave.data.sideband import SidebandKind
from ptweave.decode.elf import Elf
from ptweave.decode.symbols import functions_of
from support.assembler import Code, assemble, compile_c
from support.pt_writer import PtWriter
from support.trace_bundle import TraceBundle

AT = 0x500000
NUMBER = st.one_of(st.integers(0, 200), st.integers(AT - 8, AT + 40), st.integers(0, (1 << 64) - 1), st.none())
ROW = st.fixed_dictionaries({
    "kind": st.sampled_from([SidebandKind.MAP, SidebandKind.CODE, SidebandKind.UNMAP, SidebandKind.SLICE,
                             SidebandKind.LOST, SidebandKind.FINISH, SidebandKind.THREAD, SidebandKind.PROCESS]),
    "space": st.integers(0, 3), "thread": st.one_of(st.integers(-1, 2), st.none()),
    "epoch": st.one_of(st.integers(0, 3), st.none()), "addr": NUMBER, "size": NUMBER, "offset": NUMBER,
    "image": st.sampled_from([None, "code", "absent", "../code", ""]), "path": st.sampled_from([None, "/bin/code"]),
})


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    return assemble("nop\nsyscall\nnop\nsyscall", tmp_path_factory.mktemp("code"), AT)


@settings(max_examples=120, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, max_size=12))
def test_no_sideband_breaks_the_decoder(rows: list[dict[str, object]], code: Code,
                                        tmp_path_factory: pytest.TempPathFactory) -> None:
    packets = bytes(PtWriter().psb_plus().mode_exec().pge(AT).pgd().pge(AT + 3).pgd().data)
    bundle = TraceBundle(tmp_path_factory.mktemp("run") / "run.ptw").map(code.data, AT)
    bundle.thread(packets * 2, finished=False)
    for row in rows:
        bundle.row(**row)  # type: ignore[arg-type]
    bundle.decode().check()


def test_blocks_of_a_compiled_program_have_functions_and_lines(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text("int twice(int x)\n{\n    return x * 2;\n}\nint main(int c, char **v)\n{\n"
                      "    (void)v;\n    return twice(c);\n}\n")
    program = compile_c(source, tmp_path / "program", "-g", "-O0")
    elf = Elf.open(program)
    functions = functions_of(elf)
    start = {functions.name(i): int(functions.starts[i]) for i in range(len(functions))}
    base = 0x7F0000000000
    text = next(segment for segment in elf.segments if segment.flags & 1)
    bundle = TraceBundle(tmp_path / "run.ptw").map(program.read_bytes(), base + text.address, offset=text.offset,
                                                   size=text.size, path=str(program))
    packets = PtWriter().psb_plus().mode_exec().pge(base + start["main"]).tnt("!").pgd()
    decoded = bundle.thread(packets.data).decode()
    decoded.check()
    rows = decoded.rows("blocks")
    assert [(row["function"], row["function_offset"] == 0) for row in rows] == [
        ("main", True), ("twice", True), ("main", False)]
    assert [row["line"] for row in rows] == [6, 2, 9]
    assert {row["file"] for row in rows} == {str(source)}
    assert decoded.rows("images")[0]["build_id"] == elf.build_id
