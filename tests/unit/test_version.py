# SPDX-License-Identifier: MIT
"""`ptweave --version`: the package's, at once."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

_ASK = "import sys; from ptweave.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n" \
       "print(*sorted({'pyarrow', 'duckdb', 'numpy'} & set(sys.modules)))"


def asked(option: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", _ASK, option], check=True, capture_output=True,
                          text=True).stdout.splitlines()


def test_the_version_is_said_without_loading_what_commands_need() -> None:
    assert asked("--version") == [f"ptweave {version('ptweave')}", ""]


def test_control_help_loads_the_commands() -> None:
    assert asked("--help")[-1] == "duckdb numpy pyarrow"
