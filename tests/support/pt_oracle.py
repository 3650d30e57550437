# SPDX-License-Identifier: MIT
"""libipt's instruction decoder in a program of its own (tests/programs/pt_oracle.c), to compare with."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.assembler import PROGRAMS, compile_c


@dataclass(frozen=True)
class OracleRun:
    count: int
    hash: int
    errors: int


class Oracle:
    """The compiled oracle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = compile_c(PROGRAMS / "pt_oracle.c", folder / "pt_oracle", "-lipt")

    def run(self, packets: bytes | bytearray, code: Sequence[tuple[bytes, int]]) -> OracleRun:
        """Decode packets over pieces of code at addresses."""
        trace = self.folder / "trace.pt"
        trace.write_bytes(packets)
        arguments: list[str] = []
        for number, (data, address) in enumerate(code):
            file = self.folder / f"code-{number}"
            file.write_bytes(data)
            arguments += [str(file), hex(address)]
        done = subprocess.run([self.program, trace, *arguments], capture_output=True, text=True, check=True)
        return OracleRun(*map(int, done.stdout.split()))
