# SPDX-License-Identifier: MIT
"""Questions to a run that are one statement of SQL: what ran most, who waited for whom, what raced.

Each gives the statement and its parameters; `Run` has a method for each. Paths are counted before they are expanded,
and of a part of a flow only the paths that reach into it are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ptweave.data.errors import BadInput


class By(StrEnum):
    """What `hot` sums up by."""

    FUNCTION = "function"
    LINE = "line"
    BLOCK = "block"
    IMAGE = "image"


@dataclass(frozen=True)
class Question:
    """SQL and what fills its `?`."""

    sql: str
    params: tuple[object, ...] = ()


@dataclass(frozen=True)
class Part:
    """Part of one thread's flow: blocks from ordinal `begin` up to `end`."""

    thread: int
    begin: int
    end: int


@dataclass(frozen=True)
class _Keys:
    """What rows are summed up by, as they are shown, in tables that have functions and are joined with `images`."""

    shown: str
    summed: str


_KEYS = {
    By.FUNCTION: _Keys("function, parse_filename(images.path) as image", "function, images.path"),
    By.BLOCK: _Keys("block, function, parse_filename(images.path) as image, file, line",
                    "block, function, images.path, file, line"),
    By.IMAGE: _Keys("images.path as image", "images.path"),
}
"""Files that are replaced while the program runs are one: what was built anew is the same program."""

_PROFILE = """
select {keys.shown}, sum(instructions)::bigint as instructions,
       round(100 * sum(instructions) / sum(sum(instructions)) over (), 2) as percent,
       sum(blocks)::bigint as blocks, sum(calls)::bigint as calls, sum(time)::bigint as ns
from profile join stacks using (stack) left join images using (image) {where}
group by {keys.summed} order by instructions desc, {keys.summed}"""

_COUNTED = """
with counted as ({counted})
select {keys.shown}, sum(executions * blocks.instructions)::bigint as instructions,
       round(100 * sum(executions * blocks.instructions) / sum(sum(executions * blocks.instructions)) over (), 2)
         as percent, sum(executions)::bigint as blocks
from counted join blocks using (block) left join images on images.image = blocks.image
group by {keys.summed} order by instructions desc, {keys.summed}"""

_LINES = """
with counted as ({counted}),
runs as (
  select block, blocks.function, executions, unnest(coalesce(lines, [{{'file': blocks.file, 'line': blocks.line,
    'instructions': blocks.instructions}}]), recursive := true) from counted join blocks using (block)),
parts as (
  select function, file, line, executions, sum(instructions) as instructions from runs
  group by block, function, file, line, executions)
select function, file, line, sum(executions * instructions)::bigint as instructions,
       round(100 * sum(executions * instructions) / sum(sum(executions * instructions)) over (), 2) as percent,
       sum(executions)::bigint as blocks, max(executions)::bigint as times
from parts group by function, file, line order by instructions desc, function, file, line"""
"""A line is of several blocks, and a block of several lines. Where a line calls, all its blocks run each time: it ran
about as often as the one that ran most."""

_ALL = """select block, sum(executed)::bigint as executions
  from (select path, count(*) as executed from flow {where} group by path) join path_blocks using (path)
  group by block"""


def hot(by: By = By.FUNCTION, *, thread: int | None = None, part: Part | None = None) -> Question:
    """Where instructions were executed: functions or images (own instructions, calls and time), lines or blocks; most
    first.

    Of all threads, one, or part of one's flow (of a part, calls and time are not known; else, the image of code without
    functions is not). `blocks` of a line are those with instructions of it, `times` is how often the one ran that ran
    most.
    """
    params: tuple[int, ...] = () if thread is None else (thread,)
    where = "" if thread is None else "where thread = ?"
    if part is None and by in (By.FUNCTION, By.IMAGE):
        return Question(_PROFILE.format(keys=_KEYS[by], where=where), params)
    counted = _ALL.format(where=where)
    if part is not None:
        counted, params = "select block, executions from block_counts_in(?, ?, ?)", (part.thread, part.begin, part.end)
    if by is By.LINE:
        return Question(_LINES.format(counted=counted), params)
    return Question(_COUNTED.format(counted=counted, keys=_KEYS[by]), params)


LOCKS = ("mutex_lock", "mutex_trylock", "mutex_timedlock", "cond_relock", "rdlock", "tryrdlock", "timedrdlock",
         "wrlock", "trywrlock", "timedwrlock")
"""Operations on what a thread may take again while it has it."""

_WAITS = """
with waits as (
  select thread, thunk, operation, object, variable, t, wait from thunks
  where acquire and object is not null and operation not in ('start', 'join')),
released as (
  select edges.to_thread as thread, edges.to_thunk as thunk, edges.from_thread as holder,
         edges.from_thunk as last, release.t as released
  from edges join thunks as release on release.thread = edges.from_thread and release.thunk = edges.from_thunk + 1
  where edges.kind = 'sync'),
latest as (
  select thread, thunk, arg_max(holder, released) as holder, arg_max(last, released) as last,
         max(released) as released from released group by thread, thunk),
relocked as (
  select waits.thread, waits.thunk, latest.released as signalled
  from waits join latest on latest.thread = waits.thread and latest.thunk = waits.thunk - 1
  where operation = 'cond_relock'),
joined as (
  select thread, thunk, operation, object, variable, coalesce(signalled, t) as t,
         case when released > signalled then released - signalled else wait end as wait,
         holder, last, released, coalesce(released > coalesce(signalled, t), false) as contended, pid
  from waits left join latest using (thread, thunk) left join relocked using (thread, thunk)
  left join threads using (thread)),
waited as (from joined where contended),
recursive as (
  select distinct pid, waited.object from waited
  asof join (select thread, thunk, object, acquire from thunks where acquire or release) as step
    on step.thread = waited.holder and step.object = waited.object and waited.last >= step.thunk
  where not step.acquire and operation in ({locks})),
steps as (
  select thread, thunk, pid, object, acquire, t + coalesce(wait, 0) * acquire::integer as moment
  from thunks join threads using (thread) semi join recursive using (pid, object)
  where (acquire or release) and operation not in ('start', 'join')),
turned as (
  select *, thread is distinct from lag(thread) over (partition by pid, object order by moment, thread, thunk) as turn
  from steps),
turns as (
  select *, sum(turn::integer) over (partition by pid, object order by moment, thread, thunk) as turns from turned),
depths as (
  select thread, thunk, acquire, sum(case when acquire then 1 else -1 end) over (
    partition by pid, object, turns order by moment, thunk rows between unbounded preceding and 1 preceding) as depth
  from turns),
taken as (
  select thread as holder, thunk, object from waits
  anti join (from depths where acquire and depth > 0) as inner_ones using (thread, thunk)),
taking as (
  select waited.*, taken.thunk as held_since
  from waited asof left join taken
    on taken.holder = waited.holder and taken.object = waited.object and waited.last >= taken.thunk),
named as (
  select thread, thunk, caller as function from thunks
  where (thread, thunk) in (select (thread, thunk) from taking union select (holder, held_since) from taking)),
held as (
  select taking.*, waiting.function, holding.function as holder_function
  from taking left join named as waiting using (thread, thunk)
  left join named as holding on holding.thread = taking.holder and holding.thunk = taking.held_since)
""".format(locks=", ".join(f"'{operation}'" for operation in LOCKS))
"""Names are looked up, and holders looked for, only of operations that waited: most did not.

After a condition wait the mutex is waited for from the signal on, as long as it was held. A lock that its holder took
again it holds since the first time (`depth`: how often it has it, since another thread last took or gave it back). Such
locks are `recursive`: before the release that was waited for, their holder had released them already.
"""

_CONTENTION = _WAITS + """
select counted.object, variable, counted.operation, operations, contended, wait_ns, longest_ns, threads, waiter, holder,
       counted.pid
from (select pid, object, operation, count(*) as operations, count(*) filter (contended) as contended,
             coalesce(sum(wait) filter (contended), 0)::bigint as wait_ns, max(wait) filter (contended) as longest_ns,
             count(distinct thread) as threads, any_value(variable) as variable
      from joined group by pid, object, operation) as counted
left join (select pid, object, operation, arg_max(function, wait) as waiter, arg_max(holder_function, wait) as holder
           from held group by pid, object, operation) as names
  on names.object = counted.object and names.operation = counted.operation
    and names.pid is not distinct from counted.pid
order by wait_ns desc, operations desc, counted.pid, counted.object, counted.operation"""
"""An address is another object in another process."""

_WAITERS = _WAITS + """
select object, variable, operation, thread, thunk, t, wait as wait_ns, function, holder as holder_thread,
       held_since as holder_thunk, holder_function, released
from held order by wait desc, thread, thunk"""


def contention(*, each: bool = False) -> Question:
    """Objects of each process by how long threads waited for them, and who held them; with `each`, every single wait,
    longest first.

    An operation waited (is contended) when what it acquired was released after it had begun.
    """
    return Question(_WAITERS if each else _CONTENTION)


def races() -> Question:
    """Accesses that conflict and have no order, surest first: the same bytes, the same word, the same page, atomic
    ones."""
    return Question("from races order by case overlap when 'bytes' then 0 when 'address' then 1 when 'page' then 2 "
                    "else 3 end, pairs desc, page, thread, other_thread")


_CALLS = """
select "call", parent, depth, function, seq, seq_end, t_enter, t_exit, t_exit - t_enter as ns
from calls where thread = ? and seq_end > ? and seq < ? order by "call" """


def calls(part: Part) -> Question:
    """The calls that reach into part of a thread's flow, in order. Needs the table `calls`."""
    return Question(_CALLS, (part.thread, part.begin, part.end))


def thunk_number(text: str) -> tuple[int, int]:
    """Thread and thunk out of "3.17". Raises BadInput."""
    thread, dot, thunk = text.partition(".")
    if not (dot and thread.isdecimal() and thunk.isdecimal() and int(thread) < 1 << 31 and int(thunk) < 1 << 31):
        raise BadInput("is no thunk", where=text, remedy="write THREAD.THUNK, as in 3.17")
    return int(thread), int(thunk)


def part_of(rows: list[tuple[Any, ...]], text: str) -> Part:
    """Part of the flow that a thunk is: from the row (thread, seq, seq_end) of it. Raises BadInput."""
    if not rows:
        raise BadInput("is no thunk of this run", where=text, remedy='ptweave query RUN "select thread, '
                       'max(thunk) from thunks group by thread" shows which there are')
    thread, begin, end = rows[0]
    if begin is None or end is None:
        raise BadInput("has no known place in the flow", where=text, remedy="see gaps, and placed in thunks")
    return Part(thread, begin, end)
