# SPDX-License-Identifier: MIT
"""What decoding leaves in memory for merging: the rows of the file, as long as the file is the one that was written."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import PATHS
from ptweave.data.written import Written
from ptweave.decode import flow
from ptweave.decode.flow import decode_flow
from ptweave.merge import merge_run, program
from ptweave.merge.program import Program
from support.random_program import random_run
from support.trace_bundle import TraceBundle


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    machine = random_run(2011, tmp_path, steps=4000)
    made = TraceBundle(tmp_path / "run.ptw")
    made.map(machine.code.data, machine.code.base, name="code", space=0)
    made.thread(machine.packets.data, slices=((0, 0, 0),))
    return made.write()


def paths_file(bundle: Bundle) -> Path:
    return bundle.tables / PATHS.name / "0.parquet"


def tables(bundle: Bundle) -> dict[str, bytes]:
    return {str(path.relative_to(bundle.path)): path.read_bytes() for path in bundle.tables.rglob("*.parquet")}


def changed(known: Written, bundle: Bundle) -> Written:
    """The same rows, of which the first path has one block more; of the file that is there."""
    first = known.rows[0]
    lists = first.column("blocks").to_pylist()
    rows = pa.table({"path": first.column("path"), "blocks": [lists[0] + lists[0][:1], *lists[1:]]},
                    schema=first.schema)
    return Written.to(paths_file(bundle), [rows, *known.rows[1:]])


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_kept_is_what_the_file_has(bundle: Bundle, jobs: int) -> None:
    known = decode_flow(bundle, jobs=jobs, keep=True).paths
    assert known
    assert known.are_in([paths_file(bundle)])
    assert pa.concat_tables(known.rows).equals(pq.read_table(paths_file(bundle), columns=["path", "blocks"]))


def test_nothing_is_kept_unless_somebody_asks_or_when_it_is_much(bundle: Bundle,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_flow(bundle).paths is None
    monkeypatch.setattr(flow, "KEPT_BYTES", 100)
    assert decode_flow(bundle, keep=True).paths is None


def test_merging_with_it_makes_the_same_tables_and_does_not_read_the_file(bundle: Bundle,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    known = decode_flow(bundle, keep=True).paths
    merge_run(bundle)
    read = tables(bundle)
    monkeypatch.setattr(program, "row_groups", None)  # who calls it fails
    merge_run(bundle, paths=known)
    assert tables(bundle) == read


def test_control_rows_that_are_not_the_files_are_taken_as_they_are(bundle: Bundle) -> None:
    """So it is what is in memory that is used, and a difference would be seen."""
    known = decode_flow(bundle, keep=True).paths
    assert known
    with Program(bundle) as read, Program(bundle, changed(known, bundle)) as kept:
        assert read.after(0, 0) + 1 == kept.after(0, 0)


@pytest.mark.parametrize("way", ["written anew", "touched", "replaced by a link", "joined by another", "gone"])
def test_a_file_that_changed_is_read_again(bundle: Bundle, way: str) -> None:
    known = decode_flow(bundle, keep=True).paths
    assert known
    file = paths_file(bundle)
    false = changed(known, bundle)
    if way == "written anew":
        decode_flow(bundle)
    elif way == "touched":
        file.touch()
    elif way == "replaced by a link":
        file.symlink_to(shutil.move(file, file.with_name("there")))
    elif way == "joined by another":
        shutil.copy(file, file.with_name("1.parquet"))
    else:
        file.unlink()
    files = [file] if way != "joined by another" else [file, file.with_name("1.parquet")]
    assert not false.are_in(files)
    if way in ("written anew", "touched"):
        with Program(bundle) as read, Program(bundle, false) as again:
            lengths = [[one.after(0, path) for path in range(one.path_count)] for one in (read, again)]
        assert np.array_equal(*lengths)
