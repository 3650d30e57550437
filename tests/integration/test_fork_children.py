# SPDX-License-Identifier: MIT
"""The threads that fork children begin with: who made them, and in which function, as the program is known to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptweave.merge import Run
from support.command import ptweave
from support.programs import compile_program


@pytest.mark.parametrize("threads", ["native", "process"])
def test_a_fork_child_is_named_by_the_function_that_forked_and_belongs_to_its_thread(tmp_path: Path,
                                                                                     threads: str) -> None:
    """In process mode a process of libtthread's stands between a thread and its child: it is nobody's."""
    program, bundle = compile_program(tmp_path, "forks_by_function"), tmp_path / "run.ptw"
    done = ptweave("wrap", "-q", "--engine", "soft", "--threads", threads, "-o", bundle, "--", program)
    assert done.status == 0, done.err
    with Run(bundle) as run:
        rows = run.sql("""select child.start_function, parents.start_function, child.exit_status >> 8
                          from threads as child left join threads as parents on parents.thread = child.parent
                          where not child.own order by child.thread""").rows()
        assert rows == [("_start", None, 0), ("fork_by_main", "_start", 3), ("run", "_start", 0),
                        ("fork_by_thread", "run", 4)]
        own = run.sql("select start_function from threads where own order by all").rows()
        assert own == ([] if threads == "native" else [("__clone",)] * 3 + [("go_between",)])
