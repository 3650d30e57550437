# SPDX-License-Identifier: MIT
"""Variables of a real program: it tells their addresses itself, which is the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.merge import Run
from support.command import compile_c, ptweave
from support.engine import PROGRAMS


@pytest.mark.parametrize("flags", [("-no-pie",), ("-pie", "-fPIE")], ids=["fixed", "pie"])
@pytest.mark.parametrize("threads", ["native", "process"])
def test_locks_and_data_have_the_names_of_their_variables(tmp_path: Path, threads: str, flags: tuple[str, ...]) -> None:
    program = compile_c(PROGRAMS / "variables.c", tmp_path / "variables", "-g", *flags)
    bundle = tmp_path / "run.ptw"
    done = ptweave("wrap", "--threads", threads, "-o", bundle, "--", program)
    assert done.status == 0, done.err
    said = {name: int(address, 16) for name, address in map(str.split, done.out.decode().splitlines())}
    with Run(bundle) as run:
        locks = {row["variable"]: row["object"] for row in run.contention().arrow().to_pylist() if row["variable"]}
        assert locks == {name: said[name] for name in ("table_lock", "pool+0x8")}
        path = {row["variable"]: row["object"] for row in run.critical_path().arrow().to_pylist() if row["variable"]}
        assert "table_lock" in path
        assert path.items() <= locks.items()
        if threads == "process":
            accesses = run.sql("select distinct variable, address from accesses where variable like 'total%'").rows()
            assert accesses == [("total+0x12c0", said["total+0x12c0"])]
