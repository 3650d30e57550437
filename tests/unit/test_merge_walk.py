# SPDX-License-Identifier: MIT
"""The walk: call stacks, counts and times of flows whose answers are worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput
from ptweave.data.schemas import CALLS, FLOW, PROFILE, STACKS, TABLES, THREADS
from ptweave.merge import merge_run
from support.bundle_writer import BundleWriter, rows_of

Stack = tuple[str | None, ...]


@pytest.fixture(params=[1, 2, 3, 64], ids=lambda cut: f"paths of {cut}")
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> BundleWriter:
    """The same flow, cut into paths in four ways: no answer may depend on it."""
    made = BundleWriter(tmp_path / "run.ptw", cut=request.param)
    made.task(0, begin=0)
    return made


def stack_names(bundle: Bundle) -> dict[int, Stack]:
    """Stack number → its functions, outermost first."""
    names: dict[int, Stack] = {}
    for row in sorted(rows_of(bundle, STACKS), key=lambda row: row["depth"]):
        names[row["stack"]] = (*names.get(row["parent"], ()), row["function"])
        assert row["depth"] == len(names[row["stack"]])
    return names


def profile(bundle: Bundle, thread: int = 0) -> dict[Stack, tuple[int, int]]:
    """Stack → (calls, blocks), callers' blocks taken together."""
    names, found = stack_names(bundle), {}
    for row in rows_of(bundle, PROFILE):
        if row["thread"] == thread:
            calls, blocks = found.get(names[row["stack"]], (0, 0))
            found[names[row["stack"]]] = (calls + row["calls"], blocks + row["blocks"])
    return found


def times(bundle: Bundle) -> dict[Stack, int]:
    names, found = stack_names(bundle), {}
    for row in rows_of(bundle, PROFILE):
        found[names[row["stack"]]] = found.get(names[row["stack"]], 0) + row["time"]
    return found


def calls(bundle: Bundle) -> list[tuple[object, ...]]:
    return [(row["call"], row["parent"], row["function"], row["depth"], row["seq"], row["seq_end"])
            for row in rows_of(bundle, CALLS)]


class Code:
    """main calls f (from two places) and g; f tail-jumps to g; g is a leaf; r calls itself."""

    def __init__(self, writer: BundleWriter) -> None:
        block = writer.block
        self.main_call_f = block("main", "call")
        self.main_call_f2 = block("main", "call")
        self.main_call_r = block("main", "call")
        self.main_syscall = block("main", "syscall")
        self.main_end = block("main", "jump")
        self.f_entry = block("f", "cond_jump")
        self.f_return = block("f", "return")
        self.f_jump_g = block("f", "jump")
        self.f_call_g = block("f", "ind_call")
        self.f_behind_g = block("f", "return")
        self.g_entry = block("g", "jump")
        self.g_return = block("g", "return")
        self.r_call_r = block("r", "call")
        self.r_behind = block("r", "return")
        self.r_return = block("r", "return")
        self.stub = block("f@plt", "ind_jump")
        self.handler = block("handler", "return")
        self.restorer = block("__restore_rt", "syscall")
        self.longjmp = block("__longjmp", "ind_jump")


def test_calls_and_returns_make_stacks_by_call_site(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_entry, code.f_return, code.main_call_f2, code.f_entry, code.f_entry,
                   code.f_return, code.main_call_r])
    bundle = writer.write()
    merge_run(bundle, calls=True)
    assert profile(bundle) == {("main",): (1, 3), ("main", "f"): (2, 5)}
    sites = {row["block"] for row in rows_of(bundle, STACKS) if row["function"] == "f"}
    assert sites == {code.main_call_f, code.main_call_f2}
    assert calls(bundle) == [(0, None, "main", 1, 0, 8), (1, 0, "f", 2, 1, 3), (2, 0, "f", 2, 4, 7)]


def test_recursion_is_a_frame_a_level(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_r, code.r_call_r, code.r_call_r, code.r_return, code.r_behind, code.r_behind,
                   code.main_syscall])
    bundle = writer.write()
    merge_run(bundle, calls=True)
    assert profile(bundle) == {("main",): (1, 2), ("main", "r"): (1, 2), ("main", "r", "r"): (1, 2),
                               ("main", "r", "r", "r"): (1, 1)}
    assert calls(bundle) == [(0, None, "main", 1, 0, 7), (1, 0, "r", 2, 1, 6), (2, 1, "r", 3, 2, 5),
                             (3, 2, "r", 4, 3, 4)]


def test_a_tail_jump_replaces_the_frame(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_entry, code.f_jump_g, code.g_entry, code.g_return, code.main_call_f2])
    bundle = writer.write()
    merge_run(bundle, calls=True)
    assert profile(bundle) == {("main",): (1, 2), ("main", "f"): (1, 2), ("main", "g"): (1, 2)}
    assert calls(bundle) == [(0, None, "main", 1, 0, 6), (1, 0, "f", 2, 1, 3), (2, 0, "g", 2, 3, 5)]


def test_a_plt_stub_is_a_frame_that_its_function_replaces(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.stub, code.f_entry, code.f_return, code.main_call_f2])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 2), ("main", "f@plt"): (1, 1), ("main", "f"): (1, 2)}


def test_a_jump_inside_a_function_is_no_call(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_entry, code.f_entry, code.f_entry, code.f_return, code.main_call_f2])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 2), ("main", "f"): (1, 4)}


def test_a_call_to_the_next_instruction_is_no_call(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.main_call_f2, code.f_entry, code.f_return, code.main_call_r])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 3), ("main", "f"): (1, 2)}


def test_longjmp_drops_the_frames_it_skips(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_call_g, code.g_entry, code.longjmp, code.main_call_f2, code.f_entry,
                   code.f_return, code.main_call_r])
    bundle = writer.write()
    merge_run(bundle, calls=True)
    found = profile(bundle)
    assert found[("main",)] == (1, 3)
    assert found[("main", "f")] == (2, 3)
    assert found[("main", "f", "__longjmp")] == (1, 1)  # g's frame, replaced: a tail jump
    assert calls(bundle)[-1] == (4, 0, "f", 2, 5, 7)
    assert [row[5] for row in calls(bundle)[1:4]] == [4, 3, 4]


def test_a_return_to_an_outer_frame_drops_those_between(writer: BundleWriter) -> None:
    code = Code(writer)
    # g returns to where f was to return: an unwinder skipped f
    writer.run(0, [code.main_call_f, code.f_call_g, code.g_return, code.main_call_f2])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 2), ("main", "f"): (1, 1), ("main", "f", "g"): (1, 1)}


def signal(writer: BundleWriter, code: Code, seq: int, source: int, handler: int) -> None:
    writer.event(0, seq, "async_disabled", ip=source)
    writer.event(0, seq, "enabled", ip=writer.blocks[handler].ip)


def test_a_signal_is_a_frame_until_execution_is_back(writer: BundleWriter) -> None:
    code = Code(writer)
    # the first half of f_entry, the handler, the second half
    first = writer.block("f", "other", at=0, size=4)
    second = writer.block("f", "cond_jump", at=4, size=4)
    writer.run(0, [code.main_call_f, first, code.handler, code.restorer, second, code.f_return, code.main_call_f2])
    signal(writer, code, 2, writer.blocks[second].ip, code.handler)
    writer.event(0, 4, "disabled", ip=writer.blocks[code.restorer].last_ip)
    writer.event(0, 4, "enabled", ip=writer.blocks[second].ip)
    bundle = writer.write()
    merge_run(bundle, calls=True)
    assert profile(bundle) == {
        ("main",): (1, 2), ("main", "f"): (1, 3), ("main", "f", "[signal]"): (1, 0),
        ("main", "f", "[signal]", "handler"): (1, 1), ("main", "f", "[signal]", "__restore_rt"): (1, 1)}
    assert (2, 1, "[signal]", 3, 2, 4) in calls(bundle)


def test_a_signal_between_a_call_and_the_callee(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.handler, code.restorer, code.f_entry, code.f_return, code.main_call_f2])
    signal(writer, code, 1, writer.blocks[code.f_entry].ip, code.handler)
    bundle = writer.write()
    merge_run(bundle)
    found = profile(bundle)
    assert found[("main", "f")] == (1, 2)
    assert found[("main", "f", "[signal]", "handler")] == (1, 1)
    assert found[("main",)] == (1, 2)


def test_a_signal_behind_a_system_call(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_syscall, code.handler, code.restorer, code.main_end, code.main_syscall])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 3), ("main", "[signal]"): (1, 0), ("main", "[signal]", "handler"): (1, 1),
                               ("main", "[signal]", "__restore_rt"): (1, 1)}


def test_a_restarted_system_call_is_no_signal(writer: BundleWriter) -> None:
    code = Code(writer)
    again = writer.block("main", "syscall", at=30, size=2)  # from the instruction itself
    assert writer.blocks[again].ip == writer.blocks[code.main_syscall].last_ip
    writer.run(0, [code.main_syscall, again, code.main_end])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 3)}


def test_an_interruption_that_is_resumed_changes_nothing(writer: BundleWriter) -> None:
    code = Code(writer)
    first = writer.block("f", "other", at=0, size=4)
    second = writer.block("f", "cond_jump", at=4, size=4)
    writer.run(0, [code.main_call_f, first, second, code.f_return, code.main_call_f2])
    writer.event(0, 2, "async_disabled", ip=writer.blocks[second].ip)
    writer.event(0, 2, "enabled", ip=writer.blocks[second].ip)
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 2), ("main", "f"): (1, 3)}


def test_siglongjmp_leaves_the_handler(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_entry, code.handler, code.longjmp, code.main_call_f2, code.f_entry,
                   code.f_return, code.main_call_r])
    signal(writer, code, 2, writer.blocks[code.f_return].ip, code.handler)
    bundle = writer.write()
    merge_run(bundle)
    found = profile(bundle)
    assert found[("main",)] == (1, 3)
    assert found[("main", "f")] == (2, 3)


def test_sigreturn_to_a_changed_address_leaves_the_handler(writer: BundleWriter) -> None:
    code = Code(writer)
    # the handler moves the interrupted context on: only the call's number tells
    writer.run(0, [code.main_call_f, code.f_entry, code.handler, code.restorer, code.f_jump_g, code.g_entry,
                   code.g_return, code.main_call_f2])
    signal(writer, code, 2, writer.blocks[code.f_return].ip, code.handler)
    writer.syscall(0, 0, enter=10, leave=20, number=15, ip=writer.blocks[code.restorer].last_ip)
    bundle = writer.write()
    merge_run(bundle)
    found = profile(bundle)
    assert found[("main", "f")] == (1, 2)
    assert found[("main", "g")] == (1, 2)
    assert found[("main",)] == (1, 2)


def test_a_gap_starts_the_stack_anew(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_call_g, code.g_entry])
    writer.gap(0, 3)
    writer.run(0, [code.g_return, code.f_behind_g, code.main_call_f2, code.f_entry])
    bundle = writer.write()
    merge_run(bundle, calls=True)
    assert profile(bundle) == {
        ("main",): (1, 2), ("main", "f"): (2, 2), ("main", "f", "g"): (1, 1), ("g",): (0, 1), ("f",): (0, 1)}
    assert [(row[2], row[4], row[5]) for row in calls(bundle) if row[1] is None] == [
        ("main", 0, 3), ("g", 3, 4), ("f", 4, 5), ("main", 5, 7)]


def test_exec_starts_the_stack_anew_and_counts_a_call(writer: BundleWriter) -> None:
    code = Code(writer)
    start = writer.block("_start", "call", image=1)
    writer.run(0, [code.main_call_f, code.f_entry, code.main_syscall, start, code.g_entry])
    writer.syscall(0, 0, enter=10, leave=None, number=59, ip=writer.blocks[code.main_syscall].last_ip, result=None)
    bundle = writer.write()
    merge_run(bundle)
    found = profile(bundle)
    assert found[("_start",)] == (1, 1)
    assert found[("_start", "g")] == (1, 1)


def test_parts_moved_away_belong_to_their_function(writer: BundleWriter) -> None:
    code = Code(writer)
    cold = writer.block("f.cold", "jump")
    writer.run(0, [code.main_call_f, code.f_entry, cold, code.f_return, code.main_call_f2])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 2), ("main", "f"): (1, 3)}


def test_code_without_a_name_has_frames_too(writer: BundleWriter) -> None:
    code = Code(writer)
    nameless = writer.block(None, "cond_jump")
    back = writer.block(None, "return")
    writer.run(0, [code.main_call_f, nameless, back, code.main_call_f2])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 2), ("main", None): (1, 2)}


def test_code_without_a_name_may_return_by_a_jump_behind_a_call(writer: BundleWriter) -> None:
    """As interpreters do that are made while a program runs. A jump to such a place from where it was not called is one
    inside its frame (the control)."""
    code = Code(writer)
    call, behind = writer.block(None, "call"), writer.block(None, "cond_jump")
    back = writer.block(None, "return")
    entry, jump = writer.block(None, "cond_jump", image=1), writer.block(None, "ind_jump", image=1)
    writer.run(0, [code.main_call_f, *[call, entry, jump, behind] * 3, back, code.main_call_f2])
    writer.task(1, begin=0)
    writer.run(1, [code.main_call_f, entry, jump, behind, back, code.main_call_f2])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 2), ("main", None): (1, 7), ("main", None, None): (3, 6)}
    assert profile(bundle, thread=1) == {("main",): (1, 2), ("main", None): (1, 4)}


def test_where_functions_are_known_a_jump_behind_a_call_is_one_inside_its_frame(writer: BundleWriter) -> None:
    """Here a function that called itself goes on where the outer one is to go on, before it returns."""
    code = Code(writer)
    dispatch = writer.block("r", "ind_jump")
    writer.run(0, [code.main_call_r, code.r_call_r, dispatch, code.r_behind, code.r_behind, code.main_end])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle) == {("main",): (1, 2), ("main", "r"): (1, 2), ("main", "r", "r"): (1, 2)}


def test_time_is_interpolated_and_a_system_call_s_time_is_its_function_s(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_entry, code.f_return,  # 0 to 2: 100 ns a block
                   code.main_call_f2, code.f_entry, code.f_return,  # 3 to 8: 100 ns a block
                   code.main_call_r, code.r_return, code.main_syscall,
                   code.main_end])  # 9: 1000 ns
    writer.moment(0, 0, 1000)
    writer.moment(0, 3, 1300)
    writer.moment(0, 10, 9000)
    writer.syscall(0, 0, enter=1900, leave=8000, ip=writer.blocks[code.main_syscall].last_ip)
    bundle = writer.write()
    merge_run(bundle)
    assert times(bundle) == {("main",): 400 + (8000 - 1900) + 1000, ("main", "f"): 400, ("main", "r"): 100}


def test_time_in_a_gap_is_nobody_s(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_entry])
    writer.gap(0, 2)
    writer.run(0, [code.g_entry, code.g_return])
    for seq, t in ((0, 1000), (2, 1200), (2, 5000), (4, 5400)):
        writer.moment(0, seq, t)
    bundle = writer.write()
    merge_run(bundle)
    assert times(bundle) == {("main",): 100, ("main", "f"): 100, ("g",): 400}


def test_a_stack_too_deep_keeps_its_ends_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptweave.merge.walk.MAX_DEPTH", 4)
    writer = BundleWriter(tmp_path / "run.ptw")
    code = Code(writer)
    writer.run(0, [code.main_call_r, *[code.r_call_r] * 9, code.r_return, *[code.r_behind] * 9, code.main_syscall])
    bundle = writer.write()
    merge_run(bundle)
    found = profile(bundle)
    assert max(len(stack) for stack in found) == 4
    assert found[("main", "r", "r", "r")] == (8, 15)
    stream = bundle.ledger()["profile"]
    assert (stream.stored, stream.lost) == (4, {"stack too deep": 7})
    assert sum(calls for calls, _ in found.values()) == stream.produced


def test_beyond_the_cap_shallow_stacks_are_kept_and_deep_ones_are_folded_below_their_outermost_frames(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 stacks; two more for what folds behind 24 frames, two more for shallow ones; then all folds at the bottom."""
    monkeypatch.setattr("ptweave.merge.walk.MAX_STACKS", 32)
    writer = BundleWriter(tmp_path / "run.ptw")
    code = Code(writer)
    writer.run(0, [code.main_call_r, *[code.r_call_r] * 39, code.r_return, *[code.r_behind] * 39,
                   code.main_end, code.main_call_f, code.f_entry, code.f_call_g, code.g_entry, code.g_return,
                   code.f_behind_g,
                   code.main_call_f2, code.f_entry, code.f_return, code.main_syscall])
    bundle = writer.write()
    merge_run(bundle)
    found = profile(bundle)
    assert max(len(stack) for stack in found if "[folded]" not in stack) == 32
    assert found[("main", *["r"] * 23, "[folded]", "r")] == (9, 17)
    assert found[("main", "f", "g")] == (1, 2)
    assert found[("[folded]", "f")] == (1, 2)
    assert bundle.ledger()["profile"].lost == {"too many stacks": 10}
    assert sum(blocks for stack, (_, blocks) in found.items() if stack[-1] == "r") == 79


def test_stacks_beyond_the_cap_are_folded_but_functions_stay_true(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptweave.merge.walk.MAX_STACKS", 3)
    writer = BundleWriter(tmp_path / "run.ptw")
    code = Code(writer)
    writer.run(0, [code.main_call_r, code.r_call_r, code.r_call_r, code.r_return, code.r_behind, code.r_behind,
                   code.main_syscall])
    bundle = writer.write()
    merge_run(bundle)
    found = profile(bundle)
    assert found[("[folded]", "r")] == (1, 1)
    assert bundle.ledger()["profile"].lost == {"too many stacks": 1}
    assert sum(blocks for stack, (_, blocks) in found.items() if stack[-1] == "r") == 5


def test_threads_have_profiles_of_their_own(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.task(1, tid=101)
    writer.run(0, [code.main_call_f, code.f_entry, code.f_return, code.main_call_f2])
    writer.run(1, [code.g_entry, code.g_return])
    bundle = writer.write()
    merge_run(bundle)
    assert profile(bundle, 0) == {("main",): (1, 2), ("main", "f"): (1, 2)}
    assert profile(bundle, 1) == {("g",): (1, 2)}
    assert [row["thread"] for row in rows_of(bundle, THREADS)] == [0, 1]


def test_merging_again_gives_the_same(writer: BundleWriter) -> None:
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_entry, code.f_return, code.main_syscall])
    writer.syscall(0, 0, enter=1, leave=2, ip=writer.blocks[code.main_syscall].last_ip)
    bundle = writer.write()
    merge_run(bundle, calls=True)
    first = {name: rows_of(bundle, table) for name, table in TABLES.items()}, bundle.ledger().to_json()
    merge_run(Bundle.open(bundle.path), calls=True)
    assert ({name: rows_of(bundle, table) for name, table in TABLES.items()}, bundle.ledger().to_json()) == first
    merge_run(Bundle.open(bundle.path))
    assert not (bundle.tables / CALLS.name).exists()
    assert not [path for path in bundle.decoded.iterdir() if path.name.startswith((".", "calls"))]


def test_a_run_without_anything_decoded_merges_to_empty_tables(tmp_path: Path) -> None:
    bundle = BundleWriter(tmp_path / "run.ptw").write()
    (bundle.decoded / "threads.parquet").unlink()
    for table in TABLES:
        for file in (bundle.tables / table).glob("*"):
            file.unlink()
    merge_run(bundle)
    assert rows_of(bundle, PROFILE) == []
    assert any("no flow" in line for line in Bundle.open(bundle.path).manifest.lacks)


def test_flow_naming_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_entry])
    writer.flow.append((0, 2, 99))
    bundle = writer.write()
    with pytest.raises(BadInput, match="decode the run again"):
        merge_run(bundle)
    assert not list((bundle.tables / PROFILE.name).glob("*.parquet"))


def test_flow_that_goes_back_is_refused(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw", cut=1)
    code = Code(writer)
    writer.run(0, [code.main_call_f, code.f_entry, code.f_entry])
    writer.flow[-1] = (0, 1, writer.flow[-1][2])
    with pytest.raises(BadInput, match="goes back"):
        merge_run(writer.write())


@pytest.mark.parametrize("folder", ["tables", "decoded"])
def test_nothing_is_written_through_a_link(tmp_path: Path, folder: str) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    writer.run(0, [Code(writer).main_call_f])
    bundle = writer.write()
    (bundle.path / folder).rename(tmp_path / "elsewhere")
    (bundle.path / folder).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "threads").mkdir()
    with pytest.raises(BadInput, match="is a link"):
        merge_run(bundle)
    assert (tmp_path / "elsewhere" / "threads").is_dir()


def test_a_corrupt_table_is_named(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "run.ptw")
    writer.run(0, [Code(writer).main_call_f])
    bundle = writer.write()
    file = bundle.tables / FLOW.name / "0.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(BadInput, match=r"flow/0\.parquet: is corrupt"):
        merge_run(bundle)
