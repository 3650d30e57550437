# SPDX-License-Identifier: MIT
"""What the commands load: each module is time that the user waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def loaded(*words: str | Path) -> set[str]:
    """The modules that a Python process given `words` loads."""
    done = subprocess.run([sys.executable, "-X", "importtime", *words], capture_output=True, text=True,
                          timeout=120, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_pandas_is_not_loaded_to_wrap_a_run_and_to_ask_it(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    for words in (("wrap", "-q", "-o", bundle, "--", "/bin/true"), ("query", bundle, "select count(*) from flow")):
        modules = loaded("-m", "ptweave.cli", *words)
        assert "pyarrow" in modules
        assert "pandas.core" not in modules


def test_pyarrow_by_itself_loads_pandas() -> None:
    assert "pandas.core" in loaded("-c", "import pyarrow; pyarrow.array([0])")


def test_pandas_can_be_imported_after_it_was_hidden() -> None:
    loaded("-c", "from ptweave.data.without_pandas import hide_pandas; hide_pandas(); import pandas; "
                 "assert len(pandas.DataFrame({'a': [1]})) == 1")
