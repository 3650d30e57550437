# SPDX-License-Identifier: MIT
"""`ptweave events` started as root: which privileges recorder and target have, as /proc tells them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptweave.merge import Run
from ptweave.wrapper.privileges import Capability, permitted
from support.bpf import needs_bpf
from support.command import ptweave, words

pytestmark = [pytest.mark.root, needs_bpf]

NOBODY = 65534
KEPT = sum(1 << one for one in (Capability.BPF, Capability.PERFMON, Capability.SYS_NICE))
TELL = "cat /proc/self/status; for task in /proc/$PPID/task/*; do echo task; cat $task/status; done"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder where only root can write and others can pass through. pytest closes the ones above its own to others
    whenever another run of it begins."""
    with tempfile.TemporaryDirectory(prefix="ptweave-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def told(out: bytes) -> list[dict[str, str]]:
    """Status files of the target and of each thread of its recorder."""
    return [dict(re.findall(r"^(\w+):\s*(.*)$", one, re.MULTILINE)) for one in out.decode().split("task\n")]


def test_root_s_recorder_keeps_three_capabilities_in_every_thread_and_its_target_is_root(folder: Path) -> None:
    done = ptweave("events", "-q", "-o", folder / "run.ptw", "--", "/bin/sh", "-c", TELL, env={"SUDO_UID": ""})
    assert done.status == 0, done.err
    target, *threads = told(done.out)
    assert int(target["CapEff"], 16) == permitted()  # ours: all that root has here
    assert len(threads) > 1
    for thread in threads:
        assert int(thread["CapPrm"], 16) == int(thread["CapEff"], 16) == KEPT & permitted()
        assert int(thread["CapInh"], 16) == int(thread["CapAmb"], 16) == 0


def test_target_and_recorder_run_as_the_user_that_is_named_and_the_bundle_is_theirs(folder: Path) -> None:
    bundle = folder / "run.ptw"  # in a folder where only root can write
    done = ptweave("events", "-q", "--user", "nobody", "-o", bundle, "--", "/bin/sh", "-c", TELL + "; env")
    assert done.status == 0, done.err
    target, *threads = told(done.out)
    for one in (target, *threads):
        assert set(one["Uid"].split()) == set(one["Gid"].split()) == {str(NOBODY)}
    assert int(target["CapPrm"], 16) == int(target["CapAmb"], 16) == 0
    assert target["Groups"].split() == [str(NOBODY)]
    assert all(int(one["CapPrm"], 16) in (0, KEPT) for one in threads)
    assert any(int(one["CapEff"], 16) == KEPT for one in threads)
    assert b"\nUSER=nobody\n" in done.out
    assert {path.stat().st_uid for path in (bundle, *bundle.rglob("*"))} == {NOBODY}
    with Run(bundle) as run:
        assert run.ledger.losses == []
        assert run.sql("select count(*) > 0 from syscalls where name = 'openat' and paths[1] = '/proc/self/status'"
                       ).rows() == [(True,)]


def test_under_sudo_the_target_is_who_called_it_groups_and_all(folder: Path) -> None:
    done = ptweave("events", "-q", "-o", folder / "run.ptw", "--", "/bin/sh", "-c", TELL,
                   env={"SUDO_UID": "12345", "SUDO_GID": "54321"})
    assert done.status == 0, done.err
    target, *_ = told(done.out)
    assert set(target["Uid"].split()) == {"12345"} and set(target["Gid"].split()) == {"54321"}
    assert target["Groups"].split() == ["54321"]


def test_a_recorder_without_root_s_privileges_still_ends_its_target_and_keeps_what_was_recorded(folder: Path) -> None:
    bundle = folder / "run.ptw"
    process = subprocess.Popen(words("events", "--user", "nobody", "-o", bundle, "--", "/bin/sh", "-c",
                                     "echo ready; exec sleep 1000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM, err
    with Run(bundle) as run:
        assert run.manifest.status == signal.SIGTERM
        # as the kernel tells a fatal signal
        assert run.sql("select name, operation, pid from signals order by t").rows() == [
            ("SIGKILL", "delivered", run.manifest.pid), ("SIGCHLD", "sent", run.manifest.pid)]


@pytest.mark.parametrize(("user", "what"), [("no such user", "there is no such user"),
                                            ("4294967295", "there is no such user"), ("-1", "there is no such user")])
def test_a_user_that_does_not_exist_is_one_clear_line(user: str, what: str, tmp_path: Path) -> None:
    done = ptweave("events", f"--user={user}", "--", "/bin/true", cwd=tmp_path)
    assert done.status == 2
    assert what in done.err and len(done.err.splitlines()) == 1, done.err
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_the_user_cannot_reach_is_refused_before_anything_runs(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    done = ptweave("events", "--user", "nobody", "-o", closed / "run.ptw", "--", "/bin/touch", tmp_path / "ran")
    assert done.status == 2
    assert "cannot be reached by the user" in done.err and len(done.err.splitlines()) == 1, done.err
    assert list(closed.iterdir()) == [] and not (tmp_path / "ran").exists()


def test_without_root_another_user_is_refused_and_ourselves_allowed(folder: Path) -> None:
    """Asked of the function: as nobody, the interpreter of this environment need not be readable."""
    script = """
import os, sys
from ptweave.data.errors import BadInput
from ptweave.wrapper.privileges import changes, reduce, target_identity
os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
try: target_identity("root", {})
except BadInput as error: print(error.line())
print(changes(target_identity("nobody", {})), target_identity(None, {"SUDO_UID": "1", "SUDO_GID": "1"}))
reduce(None); print(os.getresuid())
"""
    done = subprocess.run([words("x")[0], "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "--user root: only root can run a program as another user: run it with sudo, or leave --user out",
        "False None", "(65534, 65534, 65534)"]
