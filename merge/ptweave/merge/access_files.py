# SPDX-License-Identifier: MIT
"""The decoded files of accesses: records, and the pages that they opened. Where they are few they are held; DuckDB,
which takes a twelfth of a second to be there, joins and sorts what may not fit into memory. What it is asked is the
definition: what is held gives the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ptweave.data import layout
from ptweave.data.evl import Operation
from ptweave.data.schemas import DECODED_ACCESSES, DECODED_PAGES
from ptweave.merge.in_order import is_little
from ptweave.merge.scratch import Queries, Scratch
from ptweave.merge.tables import BATCH_ROWS, I64, corrupt, numbers, open_parquet, read_open

FILE = "accesses.parquet"
PAGES = "pages.parquet"

_ALLOCATION = Operation.ALLOCATION.name.lower()

_NONE = (1 << 31) - 1
"""Stands for a thread that is not known: those come last, and have no pages."""

Batches = Iterator[pa.RecordBatch]


class AccessFiles(Protocol):
    """Both files. `ip`: of the instruction that made an access; null unknown."""

    def stacks(self) -> Batches:
        """Of each record thread, t and stack, by thread and record."""

    def records(self, thread: int) -> pa.Table:
        """Of a thread's records, in their order, t, thunk, ip, and `elsewhere`: it is no access by an instruction."""

    def allocations(self) -> pa.Table:
        """Records of allocations, by thread and record: thread, record, thunk, address, size, t, ip."""

    def pages(self) -> Batches:
        """Pages, with what is known of the records that opened them, by thread, record, page and write."""

    def spans(self, programs: pa.Table) -> Batches:
        """Pages, by program, page, thread and thunk; programs by thread and `since`, 0 where none is known."""


def open_access_files(queries: Queries) -> AccessFiles:
    """The files in the folder of `queries`. Raises BadInput when they are corrupt."""
    paths = queries.folder / FILE, queries.folder / PAGES
    with open_parquet(paths[0], DECODED_ACCESSES) as records, open_parquet(paths[1], DECODED_PAGES) as pages:
        if not is_little(records.metadata, DECODED_ACCESSES) or not is_little(pages.metadata, DECODED_PAGES):
            return Queried(queries)
        return Held(read_open(records, paths[0], DECODED_ACCESSES.names),
                    read_open(pages, paths[1], DECODED_PAGES.names))


@contextmanager
def another(files: AccessFiles, scratch: Scratch) -> Iterator[AccessFiles]:
    """The same files for another thread."""
    if not isinstance(files, Queried):
        yield files
        return
    with scratch.another() as queries:
        yield Queried(queries)


def have_mapped_files(folder: Path) -> bool:
    """Whether pages of mapped files were opened. Raises BadInput when the file is corrupt."""
    path = folder / PAGES
    with open_parquet(path, DECODED_PAGES) as file:
        try:
            for batch in file.iter_batches(BATCH_ROWS, columns=["page"], use_threads=False):
                page = numbers(batch, "page")
                if ((page >= layout.FILES) & (page < layout.FILES_END)).any():
                    return True
        except (OSError, pa.ArrowException, ValueError) as error:
            raise corrupt(path, error) from error
    return False


class Queried:
    """Through DuckDB."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def stacks(self) -> Batches:
        return self._queries.batches(FILE, "select thread, t, stack from source order by thread, record")

    def records(self, thread: int) -> pa.Table:
        return self._queries.table(FILE, (
            f"select t, thunk, len(stack) = 0 or operation = '{_ALLOCATION}' as elsewhere, stack[1] - 1 as ip "
            f"from source where thread = {int(thread)} order by record"))

    def allocations(self) -> pa.Table:
        return self._queries.table(FILE, (
            "select thread, record, thunk, address, argument as size, t, stack[1] - 1 as ip from source "
            f"where operation = '{_ALLOCATION}' order by thread, record"))

    def pages(self) -> Batches:
        self._queries.view("pages", PAGES)
        return self._queries.batches(FILE, (
            "select pages.thread, pages.thunk, until_thunk, page, write, record, address, t, stack[1] - 1 as ip, "
            "bytes, (result = 1 and bytes is null) as shared "
            "from pages join source using (thread, record) order by thread, record, page, write"))

    def spans(self, programs: pa.Table) -> Batches:
        self._queries.view("pages", PAGES)
        return self._queries.batches(FILE, """
            select coalesce(program, 0) as program, pages.thread, pages.page, pages.thunk as "first",
                   pages.until_thunk as "until", pages.write, address, coalesce(stack[1] - 1, 0) as site, bytes,
                   result = 1 as shared
            from pages join source using (thread, record)
            asof left join programs on source.thread = programs.thread and source.t >= programs.since
            order by program, page, thread, "first", pages.write, record""", programs=programs)


class Held:
    """In memory. Any thread may ask."""

    def __init__(self, records: pa.Table, pages: pa.Table) -> None:
        order = np.lexsort([numbers(records, key, _NONE) for key in ("record", "thread")])
        records = records.take(pa.array(order)).combine_chunks()
        self._records = records.append_column("ip", _innermost(records.column("stack")))
        self._pages = pages.filter(pc.and_(pages.column("thread").is_valid(), pages.column("record").is_valid()))

    def stacks(self) -> Batches:
        yield from self._records.select(["thread", "t", "stack"]).to_batches()

    def records(self, thread: int) -> pa.Table:
        rows = self._records.filter(pc.equal(self._records.column("thread"), thread))
        elsewhere = pc.or_(pc.equal(pc.list_value_length(rows.column("stack")), 0),
                           pc.equal(rows.column("operation"), _ALLOCATION))
        return rows.select(["t", "thunk", "ip"]).append_column("elsewhere", elsewhere)

    def allocations(self) -> pa.Table:
        names = ["thread", "record", "thunk", "address", "argument", "t", "ip"]
        rows = self._records.filter(pc.equal(self._records.column("operation"), _ALLOCATION)).select(names)
        return rows.rename_columns([name if name != "argument" else "size" for name in names])

    @cached_property
    def _opened(self) -> pa.Table:
        """The pages with their records."""
        mine, its = _ranks(self._pages, self._records, "thread", "record")
        at = np.searchsorted(its, mine)  # records are sorted
        known = np.flatnonzero(np.append(its, -1)[at] == mine)
        pages = self._pages.take(pa.array(known))
        records = self._records.select(["address", "t", "ip", "bytes", "result"]).take(pa.array(at[known]))
        for column in records.column_names:
            pages = pages.append_column(column, records.column(column))
        return pages

    def pages(self) -> Batches:
        rows = _sorted(self._opened, "thread", "record", "page", "write")
        shared = pc.and_kleene(pc.equal(rows.column("result"), 1), pc.is_null(rows.column("bytes")))
        yield from rows.drop_columns(["result"]).append_column("shared", shared).to_batches()

    def spans(self, programs: pa.Table) -> Batches:
        rows = self._opened.append_column("program", pa.array(_programs_at(self._opened, programs)))
        rows = _sorted(rows, "program", "page", "thread", "thunk", "write", "record")
        shared, site = pc.equal(rows.column("result"), 1), rows.column("ip").fill_null(0)
        names = {"thunk": "first", "until_thunk": "until"}
        rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
        yield from rows.append_column("shared", shared).append_column("site", site).to_batches()


def _innermost(stacks: pa.ChunkedArray) -> pa.Array:
    """Where the call of each stack's first return address ends; null where there is no stack."""
    lists = stacks.combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    none = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False) == 0
    first = lists.values.take(pa.array(np.where(none, 0, lists.offsets.to_numpy()[:-1]), mask=none))
    return pc.subtract(first, pa.scalar(1, pa.uint64()))


def _ranks(one: pa.Table, other: pa.Table, *names: str) -> tuple[I64, I64]:
    """A number for each row of both tables, by the columns `names`, as the rows would be sorted."""
    ranks = np.zeros(len(one) + len(other), np.int64)
    for name in names:
        keys = np.concatenate([numbers(one, name, _NONE), numbers(other, name, _NONE)])
        distinct, which = np.unique(keys, return_inverse=True)
        ranks = ranks * len(distinct) + which
    return ranks[:len(one)], ranks[len(one):]


def _sorted(table: pa.Table, *keys: str) -> pa.Table:
    return table.take(pa.array(np.lexsort([_key(table, key) for key in reversed(keys)])))


def _key(table: pa.Table, name: str) -> I64:
    column = table.column(name)
    return numbers(pa.table({name: column.cast(pa.int8())}) if pa.types.is_boolean(column.type) else table, name)


def _programs_at(rows: pa.Table, programs: pa.Table) -> I64:
    """The program that each row's thread was in at its time; 0 where none is known."""
    thread, time = numbers(rows, "thread", -1), numbers(rows, "t")
    of, since, program = (numbers(programs, name) for name in ("thread", "since", "program"))
    found = np.zeros(len(thread), np.int64)
    for number in np.unique(thread).tolist():
        mine = np.flatnonzero(of == number)
        mine = mine[np.argsort(since[mine], kind="stable")]
        here = np.flatnonzero(thread == number)
        at = np.searchsorted(since[mine], time[here], side="right") - 1
        found[here[at >= 0]] = program[mine][at[at >= 0]]
    return found
