# SPDX-License-Identifier: MIT
"""Tables are written whole or not at all, in the layout that the schemas promise."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data.schemas import CALL_STACKS, FLOW, PATHS, TABLES
from ptweave.data.table_writer import ENCODED, ROW_GROUP, TableWriter, write_table


def flow(rows: int) -> pa.Table:
    return pa.table({"thread": pa.array([0] * rows, pa.int32()), "seq": pa.array(range(rows), pa.int64()),
                     "path": pa.array([i % 7 for i in range(rows)], pa.int32())})


def test_rows_come_back_in_order_and_row_groups_are_bounded(tmp_path: Path) -> None:
    with TableWriter(tmp_path, FLOW) as writer:
        for _ in range(3):
            writer.write(flow(ROW_GROUP // 2))
    file = pq.ParquetFile(tmp_path / "flow" / "0.parquet")
    assert file.metadata.num_rows == 3 * (ROW_GROUP // 2)
    assert file.metadata.num_row_groups == 2
    assert writer.rows == 3 * (ROW_GROUP // 2)


def test_sorted_columns_are_delta_packed_and_path_ids_byte_streams(tmp_path: Path) -> None:
    write_table(tmp_path, FLOW, flow(1000))
    group = pq.ParquetFile(tmp_path / "flow" / "0.parquet").metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in encodings["seq"]
    assert "BYTE_STREAM_SPLIT" in encodings["path"] and "RLE_DICTIONARY" not in encodings["path"]
    assert "PLAIN" in encodings["thread"] and "RLE_DICTIONARY" not in encodings["thread"]
    assert group.column(0).compression == "ZSTD"


def test_row_groups_tell_bounds_of_columns_in_order_and_of_those_they_are_asked_for(tmp_path: Path) -> None:
    row = {"path": 3, "blocks": [1, 2], "length": 2, "instructions": 9}
    for table, rows in ((FLOW, flow(10).to_pylist()), (PATHS, [row]), (TABLES["writes"], [{"t": 1, "pid": 2}])):
        write_table(tmp_path, table, rows)
    told = {}
    for name in ("flow", "paths", "writes"):
        group = pq.ParquetFile(tmp_path / name / "0.parquet").metadata.row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        told[name] = {column.path_in_schema for column in columns
                      if column.statistics and column.statistics.has_min_max}
    assert (told["flow"], told["paths"]) == ({"thread", "seq"}, {"path", "length"})
    assert {"t", "pid"} <= told["writes"], "its rows are in no order: all are told"


def test_lists_that_come_as_dictionaries_are_stored_so_and_read_as_lists_of_text(tmp_path: Path) -> None:
    names = [["f", None, "main"], [], None, ["g", "main"]]
    dictionary = pa.array(names, pa.list_(pa.string()))
    plain = pa.table({column.name: dictionary if column.name == "functions" else pa.nulls(4, column.type)
                      for column in CALL_STACKS.columns})
    codes = {"f": 0, "g": 1, "main": 2}
    values = pa.DictionaryArray.from_arrays(
        pa.array([name if name is None else codes[name] for some in names for name in some or ()], pa.int32()),
        pa.array(codes, pa.string()))
    encoded = pa.ListArray.from_arrays(pa.array([0, 3, 3, 3, 5], pa.int32()), values,
                                       mask=pa.array([False, False, True, False]))
    rows = plain.set_column(plain.schema.get_field_index("functions"), "functions", encoded)
    for name, given in {"plain.parquet": plain, "encoded.parquet": rows}.items():
        with TableWriter(tmp_path, CALL_STACKS, name, encoded=["functions"] if given is rows else ()) as writer:
            writer.write(given)
        file = tmp_path / "call_stacks" / name
        group = pq.ParquetFile(file).metadata.row_group(0)
        stored = {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}
        assert "RLE_DICTIONARY" in stored["functions.list.element"]
        assert pq.read_table(file).schema.field("functions").type == pa.list_(pa.string()) != pa.list_(ENCODED)
        assert duckdb.connect().execute("select functions from read_parquet(?)", [str(file)]).fetchall() == [
            (some,) for some in names]


def test_flow_is_read_by_duckdb_pandas_and_polars(tmp_path: Path) -> None:
    rows = flow(1000)
    write_table(tmp_path, FLOW, rows)
    file = str(tmp_path / "flow" / "0.parquet")
    expected = rows.to_pydict()
    found = duckdb.connect().execute("select thread, seq, path from read_parquet(?)", [file]).fetchall()
    assert found == list(zip(*(expected[name] for name in ("thread", "seq", "path")), strict=True))
    assert pandas.read_parquet(file).to_dict("list") == expected
    assert polars.read_parquet(file).to_dict(as_series=False) == expected


def test_a_writer_that_fails_leaves_no_table(tmp_path: Path) -> None:
    def interrupted() -> None:
        with TableWriter(tmp_path, FLOW) as writer:
            writer.write(flow(10))
            raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        interrupted()
    assert list((tmp_path / "flow").iterdir()) == []


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_column_is_documented_and_sort_keys_exist(name: str) -> None:
    table = TABLES[name]
    assert table.doc
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert set(table.sort) <= set(names)
    assert all(column.doc for column in table.columns)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_can_be_written_empty(tmp_path: Path, name: str) -> None:
    assert write_table(tmp_path, TABLES[name], []) == 0
    assert pq.read_table(tmp_path / name).num_rows == 0


def test_the_documentation_page_is_made_from_these_schemas() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    space: dict[str, object] = {"__file__": str(docs / "make_tables.py"), "__name__": "make_tables"}
    exec((docs / "make_tables.py").read_text(), space)
    made = space["page"]
    assert callable(made)
    assert (docs / "tables.md").read_text() == made(), "run: python docs/make_tables.py"
