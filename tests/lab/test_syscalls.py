# SPDX-License-Identifier: MIT
"""Debian 12's own kernel takes the programs that record system calls, and they see each that the packets show."""

from __future__ import annotations

import re

import pyarrow.parquet as pq
import pytest

from lab.exact import decoded, gaps
from lab.machine import Job
from ptweave.decode.dump import Form
from ptweave.decode.syscalls import decode_syscalls
from support.dumping import flow_lines


@pytest.mark.lab("syscalls")
def test_every_system_call_in_the_packets_is_recorded_by_the_kernel(job: Job) -> None:
    bundle = decoded(job)
    assert gaps(bundle) == []
    decode_syscalls(bundle)
    rows = pq.read_table(bundle.decoded / "syscalls.parquet").sort_by("t_enter").to_pylist()
    names = [row["name"] for row in rows]
    lines = flow_lines(bundle, Form.INSTRUCTIONS)[0]
    executed = sum(1 for line in lines if "syscall" in line and re.search(r"\bsyscall\b", line))
    assert bundle.manifest.events == "ebpf"
    assert executed > 10
    assert len(names[names.index("execve") + 1:]) == executed
    assert names[-1] == "exit_group"
