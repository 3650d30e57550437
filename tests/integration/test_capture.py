# SPDX-License-Identifier: MIT
"""`ptweave capture`: the steps of a program whose steps are known."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ptweave.merge import Run
from ptweave.merge.capture import Block, Cut, Enter, Folded, Leave, Step, capture, executions
from support.command import Done, ptweave

ROOT = Path(__file__).resolve().parents[2]
CALLS_OF_WORK = ["twice", "twice", *["compare"] * 5, "down", "down", "down", "down"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("capture") / "captured"
    subprocess.run(["gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", out,
                    ROOT / "tests/programs/captured.c"], check=True)
    return out


@pytest.fixture(scope="module")
def bundle(program: Path) -> Path:
    path = program.parent / "run.ptw"
    done = ptweave("wrap", "--threads", "native", "-o", path, "--", program)
    assert done.status == 0, done.err
    return path


@pytest.fixture(scope="module")
def run(bundle: Path) -> Run:
    return Run(bundle)


def steps(run: Run, nth: int = 0, *, unfold: bool = False) -> list[Step]:
    return list(capture(run, executions(run, "work")[nth], unfold=unfold))


def show(bundle: Path, *words: str) -> Done:
    return ptweave("capture", bundle, *words)


def test_what_was_called_is_entered_and_left_in_order(run: Run) -> None:
    found = steps(run)
    entered = [step.function for step in found if isinstance(step, Enter)]
    assert entered == ["work", *CALLS_OF_WORK]
    assert isinstance(found[-1], Leave) and found[-1].function == "work" and found[-1].depth == 0
    depth = 0
    for step in found:
        if isinstance(step, Enter):
            assert step.depth <= depth + 1  # compare is called from within a folded call
        depth = step.depth if isinstance(step, Enter | Leave | Block | Folded) else depth


def test_each_function_comes_with_its_callers(run: Run) -> None:
    found = [step for step in steps(run) if isinstance(step, Enter)]
    downs = [step for step in found if step.function == "down"]
    assert [step.stack for step in downs] == [("down",) * n + ("work",) for n in range(1, 5)]
    compare = next(step for step in found if step.function == "compare")
    assert compare.stack[0] == "compare" and compare.stack[-1] == "work" and "qsort" in compare.stack


def test_libraries_are_one_step_with_their_system_calls(run: Run) -> None:
    folds = [step for step in steps(run) if isinstance(step, Folded) and not step.begins]
    assert [re.sub("_.*", "", step.function) for step in folds] == ["qsort", "write", "open"]
    made = [(call.name, call.errno) for step in folds for call in step.calls]
    assert made == [("write", "EBADF"), ("openat", "ENOENT")]
    begun = [step.function for step in steps(run) if isinstance(step, Folded) and step.begins]
    assert begun == ["qsort"], "only what calls back is told at its begin"


@pytest.mark.parametrize("nth", [0, 2])
def test_no_instruction_is_left_out(run: Run, nth: int) -> None:
    execution = executions(run, "work")[nth]
    folded, unfolded = steps(run, nth), steps(run, nth, unfold=True)
    end = folded[-1]
    assert isinstance(end, Leave)
    (wanted, blocks), = run.sql(
        "select sum(instructions), count(*) from flow_blocks join blocks using (block) "
        "where thread = ? and seq >= ? and seq < ?", execution.thread, execution.seq, end.seq).rows()
    assert sum(step.instructions for step in folded if isinstance(step, Block | Folded)) == wanted
    assert sum(step.instructions for step in unfolded if isinstance(step, Block)) == wanted
    assert sum(1 for step in unfolded if isinstance(step, Block)) == blocks
    assert not any(isinstance(step, Folded) for step in unfolded)


def test_the_text_has_the_instructions_objdump_has(program: Path, bundle: Path) -> None:
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--disassemble=twice", program],
                             capture_output=True, text=True, check=True).stdout
    wanted = re.findall(r"^ +[0-9a-f]+:\t(\w+)", listing, re.M)
    lines = show(bundle, "--function", "twice").out.decode().splitlines()
    shown = [line.split()[2] for line in lines if line.split()[0].isdecimal()]
    assert shown == wanted and len(shown) > 1
    assert lines[0] == "> twice" and lines[-1] == "< twice"
    assert "captured.c:" in lines[1]


def test_the_text_shows_steps_and_results(bundle: Path) -> None:
    lines = show(bundle, "--function", "work", "--no-instructions").out.decode().splitlines()
    assert [line.split()[1] for line in lines if line.lstrip().startswith(">")] == ["work", *CALLS_OF_WORK]
    assert any(re.fullmatch(r"  \+ \w+ \(\S+\): \d+ instructions; write\(.*\) = EBADF", line) for line in lines)
    assert "        > down  [down < down < down < work]" in lines


def test_executions_are_chosen_by_thread_and_number(run: Run, bundle: Path) -> None:
    all_of_them = executions(run, "work")
    assert len(all_of_them) == 3
    assert len({one.thread for one in all_of_them}) == 2
    other = executions(run, "work", all_of_them[-1].thread)
    assert other == [all_of_them[-1]]
    listed = [line.split() for line in show(bundle, "--function", "work", "--list").out.decode().splitlines()]
    assert [words[:2] for words in listed] == [[str(one.thread), str(one.seq)] for one in all_of_them]
    third = show(bundle, "--function", "twice", "--nth", "3")
    assert third.status == 0


def test_the_list_has_the_times_that_dump_has_at_these_blocks(bundle: Path) -> None:
    listed = [line.split() for line in show(bundle, "--function", "work", "--list").out.decode().splitlines()]
    assert len(listed) == 3 and len({words[2] for words in listed}) > 1
    for thread, seq, when in listed:
        dumped = ptweave("dump", bundle, "--blocks", "--thread", thread, "--from", seq, "--to", str(int(seq) + 1))
        block, time, *_ = dumped.out.decode().splitlines()[-1].split()
        assert (block, time) == (seq, when)


@pytest.mark.parametrize(("words", "says"), [
    (("--function", "wor"), "no function 'wor' ran"),
    (("--function", "work", "--thread", "77"), "in thread 77"),
    (("--function", "work", "--nth", "4"), "work ran 3 times"),
    (("--function", "work", "--nth", "0"), "must be at least 1"),
])
def test_what_cannot_be_is_one_line(bundle: Path, words: tuple[str, ...], says: str) -> None:
    done = show(bundle, *words)
    assert done.status == 2 and len(done.lines) == 1 and says in done.lines[0], done.err


def test_what_is_too_long_is_cut_and_says_so(bundle: Path) -> None:
    done = show(bundle, "--function", "work", "--limit", "5")
    assert done.status == 1
    assert re.fullmatch("-- cut at block [0-9]+: more than 5 blocks", done.out.decode().splitlines()[-1])


def test_a_function_that_never_returns_ends_with_the_flow(run: Run) -> None:
    last = list(capture(run, executions(run, "_exit")[-1], unfold=True))[-1]
    assert isinstance(last, Cut) and "flow ends here" in last.why
    (end, thread), = run.sql("select max(seq), thread from flow_blocks where thread = 0 group by thread").rows()
    assert (last.seq, thread) == (end + 1, 0)
