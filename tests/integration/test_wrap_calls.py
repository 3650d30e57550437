# SPDX-License-Identifier: MIT
"""`wrap --syscalls-with`: what the kernel sees of system calls beside a trace, by eBPF and by perf."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ptweave.merge import Run
from support.bpf import needs_bpf
from support.command import ptweave, words

pytestmark = [pytest.mark.root, needs_bpf]

COMMAND = ("/bin/cat", "/etc/hostname")
OPTIONS = ("wrap", "-q", "--engine", "soft", "--threads", "native")


def wrapped(folder: Path, means: str) -> Run:
    done = ptweave(*OPTIONS, "--syscalls-with", means, "-o", folder / f"{means}.ptw", "--", *COMMAND)
    assert done.status == 0, done.err
    assert done.out == Path("/etc/hostname").read_bytes()
    run = Run(folder / f"{means}.ptw")
    assert run.ledger.check() == [] and run.manifest.events == means
    return run


def calls(run: Run) -> list[tuple[object, ...]]:
    return list(run.sql("select name, source, errno, t_enter is null, t_exit is null from syscalls "
                        "order by seq").rows())


def test_perf_s_calls_join_the_engine_s_log_as_those_of_ebpf_do(tmp_path: Path) -> None:
    with wrapped(tmp_path, "ebpf") as ebpf, wrapped(tmp_path, "perf") as perf:
        assert calls(perf) == calls(ebpf)
        assert Counter(row[1] for row in calls(perf))["both"] > 20
        assert ebpf.manifest.lacks == []
        assert any("perf tells arguments only" in line for line in perf.manifest.lacks)
        opened = "select count(*) from syscalls where name = 'openat' and paths[1] is not null"
        assert ebpf.sql(opened).rows()[0][0] > 0  # the control: the two are not the same recorder
        assert perf.sql(opened).rows() == [(0,)]


def test_ptrace_cannot_be_combined_with_an_engine(tmp_path: Path) -> None:
    done = ptweave(*OPTIONS, "--syscalls-with", "ptrace", "-o", tmp_path / "run.ptw", "--", *COMMAND)
    assert done.status == 2 and done.out == b""
    assert len(done.err.splitlines()) == 1 and "cannot be combined with a trace of branches" in done.err
    assert list(tmp_path.iterdir()) == []


def test_without_the_privilege_for_ebpf_the_manifest_says_what_the_calls_are_from(tmp_path: Path) -> None:
    drop = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-all"]
    command = [*drop, *words(*OPTIONS, "-o", tmp_path / "run.ptw", "--", *COMMAND)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    with Run(tmp_path / "run.ptw") as run:
        assert run.manifest.events in ("perf", "engine")
        assert len(run.manifest.lacks) == 1
        assert run.sql("select count(*) from syscalls where name = 'exit_group'").rows() == [(1,)]
    asked = subprocess.run([*drop, *words(*OPTIONS, "--syscalls-with", "ebpf", "-o", tmp_path / "b.ptw", "--",
                                          *COMMAND)], capture_output=True, check=False, text=True)
    assert asked.returncode not in (0, 1) and asked.stdout == "" and len(asked.stderr.splitlines()) == 1
