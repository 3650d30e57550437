# SPDX-License-Identifier: MIT
"""Programs that spawn others with vfork, under the soft engine, whose Valgrind makes forks of them. The native run is
the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import native, ptweave
from support.programs import compile_program

SPAWNS_IN_THREADS = """
import subprocess, threading
def spawn(number, said):
    for _ in range(3):
        said.append(subprocess.run(["/bin/echo", str(number)], capture_output=True, text=True).stdout)
said = [[] for _ in range(4)]
threads = [threading.Thread(target=spawn, args=(number, said[number])) for number in range(1, 4)]
for thread in threads: thread.start()
spawn(0, said[0])
for thread in threads: thread.join()
spawn(0, said[0])
print(said)
try:
    subprocess.run(["/nowhere/none"])
except FileNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize("words", [[], ["thread"]], ids=["alone", "thread"])
def test_a_parent_waits_and_shares_memory_as_it_does_natively(words: list[str], tmp_path: Path) -> None:
    program = compile_program(tmp_path, "vforks")
    expected = native([program, *words])
    assert b"first: waited 1\nfirst: shared 1 written\n" in expected.out and b"No such file" in expected.out
    done = ptweave("record", "-q", "--threads=process", "-o", tmp_path / "run.ptw", "--", program, *words)
    # another thread's posix_spawn is made by a helper, on a stack of which its child has a copy (docs/libtthread.md)
    wanted = expected.out.replace(b"second: spawned No such file or directory", b"second: spawned well")
    assert (done.status, done.out, done.err) == (expected.status, wanted, expected.err)


def test_natively_threaded_the_parent_waits_for_a_copy(tmp_path: Path) -> None:
    """The control, too: what is not shared is told from what is."""
    program = compile_program(tmp_path, "vforks")
    done = ptweave("record", "-q", "--threads=native", "-o", tmp_path / "run.ptw", "--", program)
    assert done.status == 0
    assert b"first: waited 1\nfirst: shared 0 untouched\nfirst: ended 3\n" in done.out


@pytest.mark.parametrize("threads", ["default", "process", "native"])
def test_python_s_subprocesses_run_from_any_thread(threads: str, tmp_path: Path) -> None:
    python = ["/usr/bin/python3", "-c", SPAWNS_IN_THREADS]
    expected = native(python)
    assert b"['0\\n', '0\\n'" in expected.out and b"/nowhere/none" in expected.out
    mode = [] if threads == "default" else [f"--threads={threads}"]
    done = ptweave("record", *mode, "-o", tmp_path / "run.ptw", "--", *python)
    assert (done.status, done.out) == (expected.status, expected.out)
    assert done.lines[-1] == f"ptweave: {tmp_path / 'run.ptw'}: nothing lost"
