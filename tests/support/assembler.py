# SPDX-License-Identifier: MIT
"""Code for tests: AT&T assembly in, bytes and the addresses of labels out (binutils), and C programs compiled."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"


@dataclass(frozen=True)
class Code:
    """Assembled code: `labels` are absolute, the first byte is at `base`."""

    data: bytes
    base: int
    labels: dict[str, int]

    def __getitem__(self, label: str) -> int:
        return self.labels[label]


def assemble(text: str, folder: Path, base: int = 0x401000, name: str = "code") -> Code:
    """Assemble and link `text` to run at `base`."""
    folder.mkdir(parents=True, exist_ok=True)
    source, thing, linked, flat = (folder / f"{name}{suffix}" for suffix in (".s", ".o", ".elf", ".bin"))
    source.write_text(".text\n.globl _start\n_start:\n" + text + "\n")
    run_tool("as", "-o", thing, source)
    run_tool("ld", "-e", "_start", f"-Ttext={base:#x}", "-o", linked, thing)
    run_tool("objcopy", "-O", "binary", "-j", ".text", linked, flat)
    listed = run_tool("nm", linked)
    labels = {fields[2]: int(fields[0], 16) for fields in map(str.split, listed.splitlines()) if len(fields) == 3}
    return Code(flat.read_bytes(), base, labels)


def compile_c(source: Path, output: Path, *flags: str) -> Path:
    """Compile one C file of the tests."""
    run_tool("gcc", "-O1", "-Wall", "-Wextra", "-o", output, source, *flags)
    return output


def run_tool(*command: str | Path) -> str:
    """What a tool of binutils or gcc printed; an assertion with its errors when it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
