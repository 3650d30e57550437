# SPDX-License-Identifier: MIT
"""The decoder's processes: killed, interrupted or starved, what was finished is kept and the tables are the same."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ptweave.data import Clocks, MachineLacks
from ptweave.data.bundle import Bundle
from ptweave.data.sideband import read_sideband
from ptweave.decode.expand import instruction_hash, table_files
from ptweave.decode.flow import decode_flow
from ptweave.decode.plan import plan
from ptweave.decode.task import Decoder, tasks
from ptweave.decode.workers import Pool
from support.engine import Ran, record_all
from support.random_program import random_run
from support.trace_bundle import Decoded, TraceBundle

NAMES = ("images", "maps", "blocks", "paths", "flow", "clock", "pt_events", "gaps")
PSB = b"\x02\x82" * 8

DRIVER = """
import sys
from pathlib import Path
from ptweave.cli import say
from ptweave.data import PtweaveError
from ptweave.data.bundle import Bundle
from ptweave.decode.flow import decode_flow
if __name__ == "__main__":
    try:
        decode_flow(Bundle.open(Path(sys.argv[1])), jobs=int(sys.argv[2]), size=int(sys.argv[3]))
    except PtweaveError as error:
        say(error.line())
        sys.exit(int(error.status))
"""


def contents(bundle: Bundle) -> list[pa.Table]:
    return [Decoded(bundle).table(name) for name in NAMES]


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Many ranges: a random program's trace, again and again."""
    folder = tmp_path_factory.mktemp("long")
    machine = random_run(2003, folder, steps=4000)
    bundle = TraceBundle(folder / "run.ptw").map(machine.code.data, machine.code.base)
    return bundle.thread(machine.packets.data * 60).write()


@pytest.fixture
def run(long_run: Bundle, tmp_path: Path) -> Bundle:
    shutil.copytree(long_run.path, tmp_path / "run.ptw")
    return Bundle.open(tmp_path / "run.ptw")


def start(bundle: Bundle, jobs: int, tmp_path: Path, size: int = 1000) -> subprocess.Popen[str]:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    return subprocess.Popen([sys.executable, script, str(bundle.path), str(jobs), str(size)], stderr=subprocess.PIPE,
                            text=True, start_new_session=True,
                            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def wait_for_results(bundle: Bundle, count: int, child: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while len(list((bundle.decoded / "tasks").glob("*.arrow"))) < count:
        assert child.poll() is None, "it was to be still at work"
        assert time.monotonic() < end
        time.sleep(0.002)


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from descendants(int(child))


def gone(pids: list[int]) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        alive = [pid for pid in pids if Path(f"/proc/{pid}/stat").exists()
                 and not re.search(r"\) [ZX] ", Path(f"/proc/{pid}/stat").read_text())]
        if not alive:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_decode_that_was_killed_goes_on_where_it_was(run: Bundle, tmp_path: Path, jobs: int) -> None:
    child = start(run, jobs, tmp_path)
    wait_for_results(run, 20, child)
    workers = list(descendants(child.pid))
    child.kill()
    child.communicate()
    assert gone(workers)
    kept = {path.name: path.stat().st_ino for path in (run.decoded / "tasks").glob("*.arrow")}
    assert not (run.tables / "flow").exists()
    seen: set[str] = set()

    def progress(done: int, total: int) -> None:
        for path in (run.decoded / "tasks").glob("*.arrow"):
            if kept.get(path.name) == path.stat().st_ino:
                seen.add(path.name)

    report = decode_flow(run, progress, size=1000)
    assert report.found == len(kept) >= 20
    assert report.found < report.tasks
    assert seen == kept.keys(), "they were not written again"
    resumed = contents(run)
    fresh = decode_flow(run, size=1000)
    assert fresh.found == 0
    assert contents(run) == resumed


def test_a_worker_that_is_killed_is_one_clear_error(run: Bundle, tmp_path: Path) -> None:
    child = start(run, 2, tmp_path)
    wait_for_results(run, 3, child)
    workers = [pid for pid in descendants(child.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 3
    assert errors.count("\n") == 1, errors
    assert "was killed" in errors
    assert gone(workers)
    assert decode_flow(run, size=1000).found >= 3


def test_work_given_to_a_pool_whose_process_was_killed_is_the_same_error(run: Bundle, tmp_path: Path) -> None:
    """It may be killed while nobody waits for it: then handing over the next task is what fails."""
    (thread,) = plan(run, read_sideband(run.sideband))
    task = tasks(thread, 1000)[0]
    strangers = {process.pid for process in multiprocessing.active_children()}
    with pytest.raises(MachineLacks, match="was killed"), Pool(run, Decoder.AUTO, 2) as pool:
        assert pool.wait({pool.decode(task, tmp_path / "0.arrow", lambda size: None)})
        (victim, *_) = {process.pid for process in multiprocessing.active_children()} - strangers
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        for attempt in range(10_000):
            pool.decode(task, tmp_path / f"{attempt}.arrow", lambda size: None)
            time.sleep(0.002)


@pytest.mark.parametrize("to", [os.killpg, os.kill], ids=["all", "the first"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_end_by_a_signal_all_processes_end_and_one_line_says_so(
        number: signal.Signals, to: Callable[[int, int], None], run: Bundle, tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text("import sys\nfrom ptweave.cli import main\nfrom ptweave.decode import flow, ranges\n"
                      "if __name__ == '__main__':\n"
                      "    flow.decode_flow.__kwdefaults__['size'] = 1000\n"
                      f"    sys.exit(main(['decode', '-j', '2', {str(run.path)!r}], own_process=True))\n")
    child = subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, text=True, start_new_session=True,
                             env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    wait_for_results(run, 3, child)
    workers = list(descendants(child.pid))
    to(child.pid, number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == -number
    assert errors == "ptweave: stopped; what was finished is kept\n"
    assert gone(workers)


def test_a_recorded_run_is_the_same_cut_at_every_psb(tmp_path: Path) -> None:
    """The engine's own log of what it executed is the oracle; a PSB every kilobyte gives many ranges."""
    recording = record_all(["ls", "-lR", "/usr/share/doc/valgrind"], tmp_path, log=True,
                           options=("--pt-psb-kb=1",))
    bundle = recording.bundle
    bundle.manifest.clocks = Clocks(0, 0, 1 << 40, 1 << 40)
    (ran,) = (one for _, _, one in recording.logs)
    assert isinstance(ran, Ran)
    data = (bundle.trace / "0.pt").read_bytes()
    assert data.count(PSB) > 5
    kinds = []
    for size in (1 << 60, 1):
        report = decode_flow(bundle, jobs=1 if size > 1 else 2, size=size)
        assert instruction_hash(bundle, 0) == (ran.count, ran.hash)
        gaps = pa.concat_tables(pq.read_table(file) for file in table_files(bundle.tables / "gaps"))
        assert gaps.num_rows == 0
        events = pa.concat_tables(pq.read_table(file) for file in table_files(bundle.tables / "pt_events"))
        kinds.append([events[name].to_pylist() for name in ("kind", "ip", "target", "detail")])
    assert report.tasks > 5
    assert kinds[0] == kinds[1]


def processes_memory(pid: int) -> int:
    """Bytes of memory that no file backs, of a process and all below it."""
    total = 0
    for each in (pid, *descendants(pid)):
        try:
            status = Path(f"/proc/{each}/status").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon:"))
    return total


@pytest.mark.parametrize("jobs", [1, 2])
def test_memory_is_bounded_whatever_the_number_of_processes(long_run: Bundle, tmp_path: Path, jobs: int) -> None:
    """A trace of 60 MB in ranges of a megabyte: 25 M blocks and more, which would be hundreds of MB as rows."""
    machine = (long_run.trace / "0.pt").read_bytes()
    shutil.copytree(long_run.path, tmp_path / "run.ptw")
    run = Bundle.open(tmp_path / "run.ptw")
    times = 60_000_000 // len(machine)
    (run.trace / "0.pt").write_bytes(machine * times)
    table = pa.ipc.open_file(run.sideband).read_all()
    rows = [{**row, "offset": len(machine) * times if row["kind"] == "finish" else row["offset"]}
            for row in table.to_pylist()]
    with pa.ipc.new_file(run.sideband, table.schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=table.schema))
    child = start(run, jobs, tmp_path, 1 << 20)
    peak = 0
    while child.poll() is None:
        peak = max(peak, processes_memory(child.pid))
        time.sleep(0.02)
    assert child.returncode == 0, child.communicate()[1]
    assert len(table_files(run.tables / "flow")) > 1
    assert peak < jobs * 360 << 20
