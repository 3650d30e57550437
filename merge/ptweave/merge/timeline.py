# SPDX-License-Identifier: MIT
"""The question what happened when: one statement of SQL, as those of `questions`."""

from __future__ import annotations

from collections.abc import Collection

from ptweave.merge.questions import Question

_NEAR = """(
  select thunks.* from thunks join (
    select thread, coalesce(max(thunk) filter (t < $begin), 0) as low,
           coalesce(min(thunk) filter (t > $end), max(thunk)) as high
    from thunks where $thread is null or thread = $thread group by thread) as part
  on part.thread = thunks.thread and thunks.thunk between part.low and part.high)"""
"""Thunks of a span of time, and one more on either side."""

_SPANS = {
    "thunks": """
  select thread, t as t_begin, returned as t_end,
         (case when thunk = 0 then 'begin' else 'operation' end)::{names} as what,
         operation as detail, thunk, object, variable, function from boundaries
  union all
  select thread, returned, greatest(returned, following), 'run'::{names}, null, thunk, null, null, function
  from boundaries where following is not null
  union all
  select boundaries.thread, returned, greatest(returned, threads.t_end), 'run'::{names}, null, thunk, null, null,
         function
  from boundaries left join threads using (thread) where following is null""",
    "syscalls": """
  select thread, t_enter as t_begin, t_exit as t_end, 'system call'::{names} as what, name::{names} as detail,
         null::integer as thunk, null::ubigint as object, null::{names} as variable, null::{names} as function
  from syscalls where t_exit is not null""",
    "gaps": """
  select thread, t as t_begin, t as t_end, 'gap'::{names} as what, kind::{names} as detail,
         null::integer as thunk, null::ubigint as object, null::{names} as variable, null::{names} as function
  from gaps""",
}
PARTS = tuple(_SPANS)
"""Tables that the timeline is made of."""

_OTHERS = """
select t_begin, t_end, thread, what, detail from ({spans})
order by t_begin, thread, t_end desc, what, detail"""

_BOUNDARIES = """
with began as (
  select thread, thunk, operation::{names} as operation, object, t, coalesce(wait, 0) as wait,
         {variable}::{names} as variable, {function}::{names} as function,
         {following} as following
  from {thunks}),
boundaries as (select *, t + greatest(least(wait, following - t), 0) as returned from began)"""
"""Thunks, when each one's operation was over, and when the next began. A wait for a condition or at a barrier is two
thunks whose operations were called at once, by one call: the first, which gives the lock back or arrives, is over where
the second begins, however long the call took.
"""

_NEAR_FOLLOWED = {"thunks": _NEAR, "following": "lead(t) over (partition by thread order by thunk)"}
_ALL_FOLLOWED = {"thunks": "thunks positional join (select thread as next_thread, t as next_t from thunks offset 1)",
                 "following": "case when next_thread = thread then next_t end"}
"""The table is stored in the order of threads and thunks: put beside itself, one row on, it need not be sorted for
that."""

_TIMELINE = """{boundaries},
spans as ({spans})
select t_begin, t_end, t_end - t_begin as ns, thread, what::varchar as what, detail::varchar as detail, thunk, object,
       variable::varchar as variable, function::varchar as function
from (from spans where ($thread is null or thread = $thread) and ($begin is null or t_end >= $begin)
  and ($end is null or t_begin <= $end)
order by t_begin, thread, t_end desc, thunk, what, detail)"""

_FOLDED = """{boundaries},
spans as ({spans}),
inside as (
  select *, t_end - t_begin as ns from spans where ($thread is null or thread = $thread)
    and ($begin is null or t_end >= $begin) and ($end is null or t_begin <= $end)),
long as (from inside where ns is null or ns >= $resolution or what = 'gap'),
short as (
  select min(t_begin) as t_begin, max(t_end) as t_end, sum(ns)::bigint as ns, thread, what, count(*) as spans
  from inside where ns < $resolution and what <> 'gap' group by thread, what, t_begin // $resolution)
select t_begin, t_end, ns, thread, what::varchar as what, detail::varchar as detail, thunk, object,
       {variable} as variable, {function} as function, 1::bigint as spans
from long {named}
union all
select t_begin, t_end, ns, thread, what::varchar, null, null, null, null, null, spans from short
order by t_begin, thread, t_end desc, thunk, what, detail"""
"""Functions and variables are looked up of what is shown one by one alone: they are most of what there is to read."""

_NAMED = """left join (
  select thread, thunk, caller as named, variable as of_object from thunks
  where (thread, thunk) in (select (thread, thunk) from long)) as names using (thread, thunk)"""


_NAMES = {
    "thunks": "select operation as name from thunks union select caller from thunks union select variable from thunks",
    "syscalls": "select name from syscalls",
    "gaps": "select kind as name from gaps",
}

KINDS = ("begin", "operation", "run", "system call", "gap")
"""What spans are."""


def names(parts: Collection[str] = PARTS) -> str:
    """The statement that gives every text that the timeline of these parts has, sorted, in a column `name`.

    Rows are sorted with texts as numbers, of an enumeration of them: it takes a third of the time.
    """
    kinds = ", ".join(f"'{kind}'" for kind in KINDS)
    return " union ".join(["select unnest([" + kinds + "]) as name", *(_NAMES[name] for name in parts)]).join(
        ("select name from (", ") where name is not null order by name"))


def question(names_type: str, *, thread: int | None = None, begin: int | None = None, end: int | None = None,
             parts: Collection[str] = PARTS, resolution: int | None = None) -> Question:
    """What threads did, in order of time: operations, running, system calls, gaps. `begin`, `end`: ns.

    `parts` are those of PARTS that are to be in it, none: no row. With a `resolution` (ns, at least 1), spans
    that are shorter are folded: one row for those of a thread and kind that begin in the same stretch of that length,
    with the sum of their ns and their number in a column `spans`. Gaps never are. `names_type` is the name of an
    enumeration of what `names` gives.
    """
    boundaries = _BOUNDARIES.format(**_ALL_FOLLOWED if begin is None and end is None else _NEAR_FOLLOWED,
                                    variable="variable" if resolution is None else "null",
                                    function="caller" if resolution is None else "null", names=names_type)
    chosen = ("\n  union all".join(_SPANS[name] for name in parts) or f"{_SPANS['gaps']} where false").format(
        names=names_type)
    named = "thunks" in parts
    sql = _TIMELINE.format(boundaries=boundaries, spans=chosen) if resolution is None else _FOLDED.format(
        boundaries=boundaries, spans=chosen, function="named" if named else "null", named=_NAMED if named else "",
        variable="case when object is not null then of_object end" if named else "null")
    for number, name in enumerate(("$thread", "$begin", "$end", "$resolution"), 1):
        sql = sql.replace(name, f"${number}")
    return Question(sql, (thread, begin, end) if resolution is None else (thread, begin, end, resolution))


def others(parts: Collection[str]) -> str:
    """The statement that gives what of these parts is no thunk's: t_begin, t_end, thread, what, detail, in order."""
    chosen = [_SPANS[name] for name in parts if name != "thunks"] or [f"{_SPANS['gaps']} where false"]
    return _OTHERS.format(spans="\n  union all".join(chosen).format(names="varchar"))
