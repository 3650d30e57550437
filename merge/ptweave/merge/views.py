# SPDX-License-Identifier: MIT
"""The SQL of a run: a view for every table, and macros that answer without expanding paths they need not.

`flow` says which paths ran; a block's ordinal is its path's `seq` plus its place in the path. Blocks are counted by
counting paths first; a range of the flow, or the executions of a function, is found in `flow` before anything is
expanded.
"""

from __future__ import annotations

import re

import pyarrow as pa

from ptweave.data.schemas import Table

_TYPES = {
    pa.int8(): "TINYINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT",
    pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.binary(): "BLOB",
}


def sql_type(column: pa.DataType) -> str:
    """A column's type in SQL."""
    if pa.types.is_list(column):
        return sql_type(column.value_type) + "[]"
    if pa.types.is_map(column):
        return f"MAP({sql_type(column.key_type)}, {sql_type(column.item_type)})"
    if pa.types.is_struct(column):
        return "STRUCT(" + ", ".join(f"{name(field.name)} {sql_type(field.type)}" for field in column) + ")"
    return _TYPES[column]


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def name(identifier: str) -> str:
    """A quoted identifier."""
    return '"' + identifier.replace('"', '""') + '"'


def table_view(table: Table, files: list[str]) -> str:
    """The view of a table that is there. `files` must hold no pattern characters."""
    columns = ", ".join(name(column.name) for column in table.columns)
    listed = ", ".join(quoted(file) for file in files)
    return f"create view {name(table.name)} as select {columns} from read_parquet([{listed}])"


def empty_view(table: Table) -> str:
    """The view of a table that was never made: its columns, no rows."""
    columns = ", ".join(f"null::{sql_type(column.type)} as {name(column.name)}" for column in table.columns)
    return f"create view {name(table.name)} as select {columns} where false"


BROKEN = "table that cannot be read: "
"""Begins the message of a query that asks a broken view."""


def broken_view(table: Table, why: str) -> str:
    """The view of a table that cannot be read: it has its columns, and asking it for rows says why."""
    why = BROKEN + why
    columns = ", ".join(f"error({quoted(why)})::{sql_type(column.type)} as {name(column.name)}"
                        for column in table.columns)
    return f"create view {name(table.name)} as select {columns} where error({quoted(why)})::boolean"


def macros(longest: int) -> list[str]:
    """The view `flow_blocks` and the macros. `longest` is the number of blocks in the longest path."""
    return [statement.format(longest=int(longest)) for statement in _STATEMENTS]


_STATEMENTS = (
    # each block of each path, with its place in it
    """create view path_blocks as
       select path, unnest(blocks) as block, (unnest(range(len(blocks))))::integer as place from paths""",
    """create view flow_blocks as
       select flow.thread, flow.seq + path_blocks.place as seq, path_blocks.block, flow.path
       from flow join path_blocks using (path)""",
    # the paths that can reach into [a, b) are found by their own seq, which Parquet's statistics know
    """create macro flow_range(in_thread, a, b) as table
       select near.thread, near.seq + path_blocks.place as seq, path_blocks.block, near.path
       from (select thread, seq, path from flow
             where thread = in_thread and seq > a - {longest} and seq < b) as near
       join path_blocks using (path)
       where near.seq + path_blocks.place >= a and near.seq + path_blocks.place < b
       order by 2""",
    # a function is executed when a block runs that begins at its first instruction
    """create macro executions(of_function) as table
       select flow.thread, flow.seq + entered.place as seq, entered.block
       from flow join (select path, place, block from path_blocks
                       where block in (select block from blocks
                                       where function = of_function and function_offset = 0)) as entered
       using (path) order by 1, 2""",
    """create macro block_counts() as table
       select block, sum(executed)::bigint as executions
       from (select path, count(*) as executed from flow group by path) join path_blocks using (path)
       group by block order by 2 desc, 1""",
    # paths that lie inside are counted, the two that may reach over an end are expanded
    """create macro block_counts_in(in_thread, a, b) as table
       with near as (
         select seq, path, length from flow join paths using (path)
         where thread = in_thread and seq > a - {longest} and seq < b and seq + length > a),
       counted as (
         select path, count(*) as executed from near where seq >= a and seq + length <= b group by path),
       every as (
         select block, executed from counted join path_blocks using (path)
         union all
         select block, 1 from near join path_blocks using (path)
         where (seq < a or seq + length > b) and seq + place >= a and seq + place < b)
       select block, sum(executed)::bigint as executions from every group by block order by 2 desc, 1""",
    # inside paths: as often as the path ran; between paths: pairs that follow each other without a gap. `flow` is
    # stored in the order of threads and ordinals: put beside itself, one row on, it need not be sorted for that
    """create macro edge_counts() as table
       with inside as (
         select path, block as from_block, lead(block) over (partition by path order by place) as to_block
         from path_blocks),
       ends as (select path, blocks[1] as first, blocks[len(blocks)] as last, length from paths),
       pairs as (
         select path, next, next_seq - seq as apart, thread, next_seq
         from flow positional join
           (select thread as next_thread, seq as next_seq, path as next from flow offset 1)
         where next_thread = thread),
       whole as (
         select path, next, count(*) as executed from pairs
         join ends using (path)
         left join (select distinct thread, seq from gaps) as broken
           on broken.thread = pairs.thread and broken.seq = pairs.next_seq
         where apart = length and broken.seq is null
         group by path, next),
       every as (
         select from_block, to_block, executed
         from inside join (select path, count(*) as executed from flow group by path) using (path)
         where to_block is not null
         union all
         select before.last, after.first, executed from whole
         join ends as before on before.path = whole.path join ends as after on after.path = whole.next)
       select from_block, to_block, sum(executed)::bigint as executions
       from every group by from_block, to_block order by 3 desc, 1, 2""",
    # innermost frame first
    """create macro frames(of_stack) as table
       with recursive walk(stack, parent, depth, function, block) as (
         select stack, parent, depth, function, block from stacks where stack = of_stack
         union all
         select stacks.stack, stacks.parent, stacks.depth, stacks.function, stacks.block
         from walk join stacks on stacks.stack = walk.parent)
       select depth, function, block, stack from walk order by depth desc""",
    # the same as a list, of a stack that was logged; a caller's column `stack` must not be taken for the table's
    """create macro functions_of(of_stack) as (
       select named from (select stack as numbered, functions as named from call_stacks) where numbered = of_stack)""",
    # what a thunk could read: every page that was open to it, for reading or writing
    """create macro read_set(in_thread, in_thunk) as table
       select distinct page from accesses
       where thread = in_thread and thunk <= in_thunk and until_thunk >= in_thunk order by 1""",
    """create macro write_set(in_thread, in_thunk) as table
       select distinct page from accesses
       where thread = in_thread and thunk <= in_thunk and until_thunk >= in_thunk and write order by 1""",
    # the same for all thunks; DuckDB joins ranges without comparing every pair
    """create view page_sets as
       select thunks.thread, thunks.thunk, accesses.page, bool_or(accesses.write) as write
       from thunks join accesses on accesses.thread = thunks.thread
         and accesses.thunk <= thunks.thunk and accesses.until_thunk >= thunks.thunk
       group by all""",
)

NAMES = frozenset(re.findall(r"create (?:view|macro) (\w+)", " ".join(_STATEMENTS)))
"""Views and macros that are no tables."""
