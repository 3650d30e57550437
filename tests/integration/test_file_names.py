# SPDX-License-Identifier: MIT
"""Files that come and go: the kernel gives a new one the memory, and the number, of one that was deleted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.bpf import needs_bpf, record

pytestmark = [pytest.mark.root, needs_bpf]

FILES = 20_000
REPLACE = f"""
import os
inodes = set()
for number in range({FILES}):
    name = f"file{{number}}"
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    inodes.add(os.fstat(descriptor).st_ino)
    os.close(descriptor)
    os.rename(name, "kept")
with open("inodes", "w") as told:
    told.write(str(len(inodes)))
"""
"""As with git's locks. What was replaced is gone at once; of what is unlinked the kernel keeps the name for a while."""


def test_a_file_has_its_own_name_and_not_that_of_one_that_was_replaced_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    recorded = record([sys.executable, "-c", REPLACE], tmp_path, cwd=folder)
    made = [row for row in recorded.of("openat") if row.paths[0] and row.paths[0].startswith(b"file")]
    assert len(made) == FILES
    assert int((folder / "inodes").read_text()) < FILES / 2  # or nothing is used again, and this shows nothing
    others = {number: row.files[2] for number, row in enumerate(made) if row.files[2] != f"{folder}/file{number}"}
    assert others == {}
