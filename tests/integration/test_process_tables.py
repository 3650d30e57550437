# SPDX-License-Identifier: MIT
"""The tables of a program whose threads run as processes: what it is known to do is the oracle, and strace."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ptweave.merge import Run
from support.command import ptweave
from support.programs import compile_program
from support.strace import counted

PAGE = 4096
THREADS = ("_start", "first", "second", "inner")
ELSEWHERE = {"mmap", "munmap", "mprotect", "brk", "madvise", "getrandom", "futex"}
"""Process mode has an allocator of its own and puts stacks elsewhere; who waits for a lock is chance."""

# name → (calls more than natively, why); a difference that is not listed fails the test
EXPLAINED: dict[str, tuple[int, str]] = {
    "execve": (-1, "strace sees its own child become the program; the record begins behind that exec"),
    "exit_group": (2, "strace -c counts calls when they return, and this one does not"),
    "exit": (3, "the same"),
    "clone": (3, "the engine knows no clone3: glibc then makes each thread with clone"),
    "rseq": (-3, "the engine knows no rseq: glibc asks once"),
    "rt_sigaction": (-1, "glibc's for its first thread, which is one that libtthread makes"),
    "rt_sigprocmask": (-3, "glibc's in fork; libtthread says with two where it works for itself"),
    "set_robust_list": (-1, "glibc's in the fork's child"),
}


@dataclass(frozen=True)
class Known:
    """A run, and the addresses the program printed."""

    run: Run
    block: int
    sum: int

    def rows(self, query: str, *params: object) -> list[tuple[object, ...]]:
        return self.run.sql(query, *params).rows()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("tables"), "process_tables")


@pytest.fixture(scope="module", params=["held", "exact"])
def known(request: pytest.FixtureRequest, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    bundle = tmp_path_factory.mktemp("tables") / f"{request.param}.ptw"
    done = ptweave("wrap", "--threads", "process", "--access", request.param, "-o", bundle, "--", program)
    assert done.status == 0 and done.lines == [f"ptweave: {bundle}: nothing lost"], done.err
    with Run(bundle) as run:
        yield Known(run, *(int(word, 16) for word in done.out.split()))


def numbers(known: Known) -> dict[str, int]:
    """Thread numbers by start function."""
    return dict(known.rows("select start_function, thread from threads where not own and start_function != 'main'"
                           ))  # type: ignore[arg-type]


# --- threads, processes, clocks ---

def test_each_thread_is_one_row_with_its_function_and_creator(known: Known) -> None:
    found = known.rows("""select threads.start_function, parents.start_function from threads
                          left join threads as parents on parents.thread = threads.parent
                          where not threads.own and threads.pid = (select pid from threads where thread = 0)
                          order by threads.thread""")
    assert found == [("_start", None), ("first", "_start"), ("second", "_start"), ("inner", "second")]


def test_the_program_and_its_fork_are_the_processes(known: Known) -> None:
    rows = known.rows("select began_by, pid, parent, exit_status from processes order by space")
    assert [row[0] for row in rows] == ["start", "fork"] and rows[1][2] == rows[0][1] and rows[0][3] == rows[1][3] == 0
    assert known.rows("select count(distinct pid), count(distinct tid), count(*) from threads where not own") == [
        (2, 5, 5)]


def test_clocks_follow_create_and_join(known: Known) -> None:
    thread = numbers(known)

    def clock(of: str, operation: str, nth: int = 0) -> list[int]:
        rows = known.rows("select clock from thunks where thread = ? and operation = ? order by thunk",
                          thread[of], operation)
        return rows[nth][0]  # type: ignore[return-value]

    def last_thunk(of: str) -> int:
        return known.rows("select max(thunk) from thunks where thread = ?", thread[of])[0][0]  # type: ignore[return-value]

    assert clock("inner", "start")[thread["second"]] > 0 and clock("first", "start")[thread["_start"]] > 0
    assert len(clock("second", "start")) <= thread["second"] + 1
    assert clock("second", "join")[thread["inner"]] == last_thunk("inner") + 1
    joined = clock("_start", "join", 1)
    assert [joined[thread[name]] for name in THREADS[1:]] == [last_thunk(name) + 1 for name in THREADS[1:]]


# --- accesses ---

def test_every_access_is_placed_on_the_block_that_made_it(known: Known) -> None:
    assert known.rows("select distinct placed from accesses") == [("exact",)]
    assert known.rows("""select count(*) from accesses join flow_blocks using (thread, seq) join blocks using (block)
                         where accesses.ip != blocks.ip and blocks.function != 'ptweave_mark_access'""") == [(0,)]
    assert known.rows("""select count(*) > 20 from accesses join flow_blocks using (thread, seq)
                         join blocks using (block) where accesses.ip = blocks.ip""") == [(True,)]


def test_threads_write_their_own_page_where_the_program_says(known: Known) -> None:
    for number, name in ((1, "first"), (2, "second"), (3, "inner")):
        rows = known.rows("""select accesses.thread, address, function, caller, region from accesses
                             join thunks using (thread, thunk) where page = ? and accesses."write"
                               and "window" = 0 and accesses.thread != 0""", known.block + number * PAGE)
        assert [row[:3] for row in rows] == [(numbers(known)[name], known.block + number * PAGE + 40, "own_page")]
        assert rows[0][4] == "heap"


def test_the_stack_is_the_one_that_led_there(known: Known) -> None:
    rows = known.rows("select stack from accesses where function = 'own_page' and thread = ?", numbers(known)["inner"])
    functions = [row[0] for row in known.rows("select function from frames(?)", rows[0][0])]
    assert functions[:3] == ["own_page", "do_all", "inner"] and functions[-2:] == ["start_thread", "__clone"]


def test_lines_are_those_of_the_accesses(known: Known) -> None:
    source = (Path(__file__).resolve().parents[1] / "programs" / "process_tables.c").read_text().splitlines()
    rows = known.rows("select distinct function, file, line from accesses where function in ('own_page', 'add')")
    assert {row[0] for row in rows} == {"own_page", "add"}
    assert all(str(row[1]).endswith("process_tables.c") for row in rows)
    texts = {(row[0], source[int(str(row[2])) - 1].strip()) for row in rows}
    assert ("own_page", source[24].strip()) in texts or any("block[number * PAGE + 40]" in text for _, text in texts)
    assert ("add", "sum += what;") in texts


def test_main_depends_on_what_the_threads_wrote(known: Known) -> None:
    """Which thunks wrote what main read after the joins, by page and clock."""
    rows = known.rows("""
        select distinct writer.thread from page_sets as reader
        join page_sets as writer on writer.page = reader.page and writer."write" and writer.thread != reader.thread
        join thunks as r on r.thread = reader.thread and r.thunk = reader.thunk
        where reader.thread = 0 and reader.page > ? and reader.page <= ? and r.clock[writer.thread + 1] > writer.thunk
        order by 1""", known.block, known.block + 3 * PAGE)
    assert [row[0] for row in rows] == sorted(numbers(known)[name] for name in THREADS[1:])


def test_the_sum_is_written_by_all_under_the_lock(known: Known) -> None:
    rows = known.rows("""select accesses.thread, operation from accesses join thunks using (thread, thunk)
                         where page = ? and "write" and accesses.thread != 0""", known.sum)
    assert {row[0] for row in rows} == {numbers(known)[name] for name in THREADS[1:]}
    assert {row[1] for row in rows} == {"mutex_lock"}


def test_sets_are_those_of_the_rows(known: Known) -> None:
    """The macros against an expansion by hand."""
    pages: dict[tuple[int, int], set[tuple[int, bool]]] = {}
    for thread, thunk, until, page, write in known.rows(
            'select thread, thunk, until_thunk, page, "write" from accesses'):
        for one in range(int(str(thunk)), int(str(until)) + 1):
            pages.setdefault((int(str(thread)), one), set()).add((int(str(page)), bool(write)))
    assert len(pages) > 10
    for (thread, thunk), expected in pages.items():
        assert {row[0] for row in known.rows("from read_set(?, ?)", thread, thunk)} == {page for page, _ in expected}
        assert {row[0] for row in known.rows("from write_set(?, ?)", thread, thunk)} == {
            page for page, write in expected if write}
    joined = known.rows('select thread, thunk, page, "write" from page_sets')
    assert {(row[0], row[1]) for row in joined} == set(pages) and len(joined) == sum(
        len({page for page, _ in one}) for one in pages.values())


def test_pages_of_the_heap_have_their_allocation(known: Known) -> None:
    rows = known.rows("""select accesses.thread, allocations.thread, allocations.function from accesses
                         left join allocations using (allocation) where region = 'heap' and accesses.function != 'main'
                           and page between ? and ?""", known.block, known.block + 4 * PAGE)
    assert rows and {row[1:] for row in rows} == {(0, "main")}
    rows = known.rows("""select accesses.thread, allocations.thread, allocations.function, size from accesses
                         left join allocations using (allocation)
                         where accesses.function like '%memset%' and region = 'heap'""")
    assert {row[0] for row in rows} == {numbers(known)[name] for name in THREADS[1:]}
    assert all(row[0] == row[1] and row[2:] == ("allocate", 3 * PAGE + 100000) for row in rows)


def test_exact_sets_are_of_one_thunk_each(known: Known) -> None:
    spread = known.rows("select count(*) from accesses where until_thunk > thunk")[0][0]
    assert (spread == 0) == known.run.path.name.startswith("exact")


# --- system calls ---

@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_system_calls_are_the_programs_own(known: Known, program: Path, tmp_path: Path) -> None:
    expected = counted([program], tmp_path)
    seen = Counter(dict(known.rows("select name, count(*) from syscalls group by name")))  # type: ignore[arg-type]
    differences = {name: seen[name] - expected[name] for name in seen | expected if seen[name] != expected[name]}
    assert {name: more for name, more in differences.items() if name not in ELSEWHERE} == {
        name: more for name, (more, _) in EXPLAINED.items()}
    assert seen["read"] > 9 and seen["wait4"] == 1


def test_calls_have_the_programs_pid(known: Known) -> None:
    pids = known.rows("select distinct syscalls.pid from syscalls join threads using (thread) where not own order by 1")
    assert [row[0] for row in pids] == sorted(
        row[0] for row in known.rows("select pid from processes"))  # type: ignore[type-var]


# --- the documentation ---

def examples() -> list[str]:
    text = (Path(__file__).resolve().parents[2] / "docs" / "accesses.md").read_text()
    return re.findall(r"```sql\n(.*?);\n```", text, re.DOTALL)


@pytest.mark.parametrize("number", range(len(examples())))
def test_the_documentations_queries_answer(known: Known, number: int) -> None:
    query = examples()[number]
    rows = known.rows(query)
    assert rows or "bytes is not null" in query or "ta.clock" in query, query


def test_documented_dependences_are_the_programs(known: Known) -> None:
    """Main after its joins depends on every thread; `inner` depends on `second`, which made it."""
    thread = numbers(known)
    query = next(query for query in examples() if "from_thunk" in query)
    found = {(row[0], row[2]) for row in known.rows(query)}
    assert {(thread[name], 0) for name in THREADS[1:]} <= found
    assert all(row[0] != row[2] for row in known.rows(query))


def stacks_of_binding(folder: Path, binding: str) -> list[list[str]]:
    program = compile_program(folder, "bound_late", flags=[f"-Wl,-z,{binding}"])
    done = ptweave("wrap", "--access", "exact", "-o", folder / "run.ptw", "--", program, cwd=folder)
    assert done.status == 0, done.err
    with Run(folder / "run.ptw") as run:
        return [stack for stack, in run.sql("select functions_of(stack) from accesses where function = '_dl_fixup'")]


def test_who_had_the_loader_bind_a_function_is_in_the_stacks_of_its_accesses(tmp_path: Path) -> None:
    stacks = stacks_of_binding(tmp_path, "lazy")
    assert {stack[0] for stack in stacks} == {"_dl_fixup"}
    assert {stack[1].startswith("_dl_runtime_resolve") for stack in stacks} == {True}
    assert {tuple(stack[2:4]) for stack in stacks} >= {("binds_in_the_thread", "work")}
    assert {stack[2] for stack in stacks} == {"binds_in_the_thread", "main"}


def test_control_functions_that_are_bound_before_have_no_such_accesses(tmp_path: Path) -> None:
    assert stacks_of_binding(tmp_path, "now") == []


def test_a_mapped_file_is_one_transfer_a_way_of_the_programs_own_descriptor(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "mapped")
    done = ptweave("wrap", "--access", "exact", "-o", tmp_path / "run.ptw", "--", program, cwd=tmp_path)
    assert done.status == 0, done.err
    with Run(tmp_path / "run.ptw") as run:
        rows = run.sql('select input, descriptor, "offset", size from transfers '
                       "where kind = 'map' and path = 'pages' order by transfer").rows()
        reached = run.sql("select edges.kind, edges.to_thread is null from edges join transfers using (transfer) "
                          "where transfers.kind = 'map' and path = 'pages' and 3 in (from_thread, to_thread) "
                          "order by all").rows()
    file = int(done.out)
    assert rows == [(True, file, 0, PAGE), (False, file, 0, PAGE), (True, file, PAGE, PAGE)]
    assert reached == [("input", False), ("input", False), ("output", True)]
