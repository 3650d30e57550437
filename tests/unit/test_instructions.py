# SPDX-License-Identifier: MIT
"""Where the instructions of blocks are; where code is missing, what is known of them without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ptweave.decode.instructions import offsets_in_blocks

CODE = bytes.fromhex("90 4889c8 e800000000" "31c0 40 c3")
"""nop; mov rax, rcx; call; xor eax, eax; 40 c3: ret with a prefix, in 32-bit code inc eax and ret"""


def blocks(*rows: tuple[int, int, int, int, int, int]) -> dict[str, pa.Array]:
    """image, offset, size, instructions, bytes up to the last one, mode."""
    image, offset, size, instructions, last, mode = (np.array(column) for column in zip(*rows, strict=True))
    ip = offset.astype(np.uint64) + np.uint64(0x400000)
    return {"image": pa.array(image, pa.int32()), "offset": pa.array(offset, pa.int64()), "ip": pa.array(ip),
            "size": pa.array(size, pa.int32()), "instructions": pa.array(instructions, pa.int32()),
            "last_ip": pa.array(ip + last.astype(np.uint64)), "mode": pa.array(mode, pa.int8())}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "code"
    path.write_bytes(CODE)
    return path


def found(columns: dict[str, pa.Array], rows: list[int], *files: Path | None) -> list[list[int]]:
    offsets, of = offsets_in_blocks(columns, np.array(rows, np.int64), files)
    assert list(of) == sorted(of)
    return [offsets[of == row].tolist() for row in range(len(rows))]


def test_instructions_begin_where_the_one_before_ends(file: Path) -> None:
    columns = blocks((0, 0, 9, 3, 4, 64), (0, 9, 4, 2, 2, 64), (0, 9, 4, 3, 3, 32), (0, 9, 2, 1, 0, 0))
    assert found(columns, [0, 1, 2, 3], file) == [[0, 1, 4], [0, 2], [0, 2, 3], [0]]
    assert found(columns, [2, 0], file) == [[0, 2, 3], [0, 1, 4]]
    assert found(columns, [], file) == []


def test_of_code_that_is_not_there_or_other_code_the_first_and_the_last_are_known(file: Path, tmp_path: Path) -> None:
    """Missing; beyond the file's end; code whose instructions are not those that were decoded."""
    columns = blocks((1, 0, 9, 3, 4, 64), (0, 100, 9, 3, 4, 64), (0, 0, 9, 3, 2, 64), (2, 0, 9, 3, 4, 64),
                     (0, 0, 9, 3, 4, 64), (1, 0, 1, 1, 0, 64))
    assert found(columns, [0, 1, 2, 3, 4, 5], file, None, tmp_path / "none") == [
        [0, 4], [0, 4], [0, 2], [0, 4], [0, 1, 4], [0]]
