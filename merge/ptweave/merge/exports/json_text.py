# SPDX-License-Identifier: MIT
"""JSON that is written piece by piece, so that no document need fit into memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, Any

_ENCODER = json.JSONEncoder(separators=(",", ":"))  # `json.dumps` would make one for each value


def dumps(value: Any) -> bytes:
    """A value as JSON in ASCII: every name from a recorded program is a string and nothing else."""
    return _ENCODER.encode(value).encode()


def items(out: IO[bytes], values: Iterable[bytes]) -> None:
    """Write what is already JSON, a line each, with commas between."""
    first = True
    for value in values:
        out.write(b"\n" if first else b",\n")
        out.write(value)
        first = False
