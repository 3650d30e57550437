# SPDX-License-Identifier: MIT
"""A run exported as perf.data: `perf script` finds the instructions that we do, and so do we when it is imported."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from ptweave.cli import main
from ptweave.data import Bundle, Clocks
from ptweave.data.sideband import SidebandKind, read_sideband
from ptweave.decode.dump import Form
from ptweave.decode.expand import instruction_hash
from ptweave.decode.export_perf import export_perf
from ptweave.decode.exported import Exported
from ptweave.decode.flow import decode_flow
from ptweave.decode.perfimport import Options, import_perf
from support import perf_script
from support.command import ptweave
from support.dumping import flow_lines
from support.engine import compile_c, record

pytestmark = pytest.mark.skipif(not perf_script.available(), reason="no perf here (Debian package linux-perf)")


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Processes that fork, and run other programs."""
    folder = tmp_path_factory.mktemp("forks")
    bundle = record([str(compile_c("forks.c", folder))], folder)
    bundle.manifest.clocks = Clocks(0, 0, 2_600_000_000, 1_000_000_000)
    bundle.save_manifest()
    decode_flow(bundle)
    return bundle


@pytest.fixture(scope="module")
def exported(forks: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_perf(forks, tmp_path_factory.mktemp("exported") / "forks.perf")


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Threads that run as processes: each begins in the process of the first, and goes on as another."""
    folder = tmp_path_factory.mktemp("threads")
    done = ptweave("wrap", "--threads", "process", "-o", folder / "run.ptw", "--", compile_c("variables.c", folder))
    assert done.status == 0, done.err
    return Bundle.open(folder / "run.ptw")


def tids(bundle: Bundle) -> dict[int, int]:
    return {row["thread"]: row["tid"] for row in read_sideband(bundle.sideband).to_pylist()
            if row["kind"] == SidebandKind.THREAD}


def ours(bundle: Bundle) -> dict[int, list[int]]:
    """Addresses of all instructions, by tid."""
    return {tid: [int(line, 16) for line in flow_lines(bundle, Form.IPS, threads=[str(thread)])[0]]
            for thread, tid in tids(bundle).items()}


def perfs(made: Exported) -> tuple[dict[int, list[int]], list[str]]:
    ran, errors = perf_script.script(made.path / "perf.data", made.path / "symfs")
    found: dict[int, list[int]] = defaultdict(list)
    for one in ran:
        found[one.tid].append(one.ip)
    return dict(found), errors


def test_perf_script_finds_the_same_instructions_in_every_process(forks: Bundle, exported: Exported) -> None:
    assert exported.lacks == []
    expected = ours(forks)
    assert len(expected) > 3
    assert perfs(exported) == (expected, [])


def test_perf_script_finds_all_of_a_thread_that_runs_as_a_process_under_the_number_of_that(threads: Bundle,
                                                                                         tmp_path: Path) -> None:
    rows = [row for row in read_sideband(threads.sideband).to_pylist() if row["kind"] == SidebandKind.THREAD]
    assert len(rows) > len(tids(threads)), "no thread went on as another task"
    made = export_perf(threads, tmp_path / "threads.perf")
    assert (perfs(made), made.lacks) == ((ours(threads), []), [])


def test_threads_that_run_as_processes_import_as_the_same(threads: Bundle, tmp_path: Path) -> None:
    made = export_perf(threads, tmp_path / "threads.perf")
    again = import_perf(Options(made.path / "perf.data", tmp_path / "again.ptw", symfs=made.path / "symfs")).bundle
    decode_flow(again)
    assert {tid: instruction_hash(again, thread) for thread, tid in tids(again).items()} \
        == {tid: instruction_hash(threads, thread) for thread, tid in tids(threads).items()}


def test_perf_script_follows_returns_where_signals_interrupted_their_calls(tmp_path: Path) -> None:
    """A handler returns to what nobody called."""
    bundle = record([str(compile_c("interrupted.c", tmp_path))], tmp_path)
    decode_flow(bundle)
    assert perfs(export_perf(bundle, tmp_path / "interrupted.perf")) == (ours(bundle), [])


def test_code_of_another_program_is_noticed(forks: Bundle, tmp_path: Path) -> None:
    """The control: the comparison can fail."""
    made = export_perf(forks, tmp_path / "other.perf")
    (program,) = made.path.rglob("forks")
    data = bytearray(program.read_bytes())
    data[4096:] = b"\x90" * (len(data) - 4096)
    program.write_bytes(data)
    found, errors = perfs(made)
    assert errors or found != ours(forks)


def test_what_is_exported_imports_as_the_same_run(forks: Bundle, exported: Exported, tmp_path: Path) -> None:
    made = import_perf(Options(exported.path / "perf.data", tmp_path / "again.ptw", symfs=exported.path / "symfs"))
    decode_flow(made.bundle)
    again = {tid: instruction_hash(made.bundle, thread) for thread, tid in tids(made.bundle).items()}
    assert again == {tid: instruction_hash(forks, thread) for thread, tid in tids(forks).items()}
    assert made.bundle.manifest.lacks == []
    assert made.bundle.manifest.command == forks.manifest.command


def test_perf_report_names_the_functions(exported: Exported) -> None:
    done = subprocess.run(
        ["perf", "report", "-i", exported.path / "perf.data", "--symfs", exported.path / "symfs", "--itrace=i1000i",
         "--stdio", "--sort", "dso,sym"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "libc.so.6" in done.stdout and "ld-linux-x86-64.so.2" in done.stdout


def test_the_command_says_how_to_read_it_and_keeps_what_is_there(forks: Bundle, tmp_path: Path,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "perf", str(forks.path), "-o", str(tmp_path / "a.perf")]
    assert main(words) == 0
    assert f"perf script -i {tmp_path}/a.perf/perf.data --symfs" in capsys.readouterr().err
    assert main(words) == 2
    assert "a.perf: exists already" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "a.perf").iterdir()) == ["perf.data", "symfs"]


def test_code_that_took_other_codes_place_is_said(tmp_path: Path) -> None:
    bundle = record([str(compile_c("jit.c", tmp_path, "-pthread"))], tmp_path)
    made = export_perf(bundle, tmp_path / "jit.perf")
    assert "to the instruction when code took other code's place" in made.lacks
    assert any(line.startswith("nanoseconds: ") for line in made.lacks)
