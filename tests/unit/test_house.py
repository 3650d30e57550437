# SPDX-License-Identifier: MIT
"""The house rules that a machine can check: licences, layering, no namespace breaker."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LICENCES = {"MIT", "GPL-2.0-or-later", "MIT OR GPL-2.0-only"}
SOURCE = {".py", ".pyi", ".c", ".h", ".sh", ".toml", ".S", ".map"}
ROOMS = {"wrapper": {"data", "preload", "wrapper"}, "decode": {"data", "decode"}, "merge": {"data", "merge"},
         "data": {"data"}, "preload": {"data", "preload"}}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: the list of files is not known")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_every_source_file_says_its_licence() -> None:
    silent = []
    for path in tracked():
        if path.suffix in SOURCE or path.name in ("Makefile", "setup", "run"):
            found = re.search(r"SPDX-License-Identifier: ([^*\n]+)", path.read_text(errors="replace")[:500])
            if not found or found.group(1).strip() not in LICENCES:
                silent.append(path.relative_to(ROOT))
    assert silent == []


def test_only_the_engine_tool_and_the_kernel_module_are_gpl() -> None:
    gpl = {path.relative_to(ROOT).parts[:2] for path in tracked()
           if path.suffix in SOURCE and "SPDX-License-Identifier: GPL" in path.read_text(errors="replace")[:500]}
    assert gpl <= {("wrapper", "engine"), ("tests", "programs"), ("tests", "lab")}, \
        "tests of the tool are built from its sources; the laboratory has a kernel module"


def _imports(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
        rooms |= {name.split(".")[1] for name in names if name.startswith("ptweave.")}
    return rooms


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_rooms_import_only_what_stands_before_them(room: str) -> None:
    folder = ROOT / room / "ptweave" / room
    wrong = {str(path.relative_to(ROOT)): sorted(_imports(path) - ROOMS[room])
             for path in folder.rglob("*.py") if _imports(path) - ROOMS[room]}
    assert wrong == {}


def test_the_namespace_has_no_init() -> None:
    assert list(ROOT.glob("*/ptweave/__init__.py")) == []
