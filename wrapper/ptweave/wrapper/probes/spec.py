# SPDX-License-Identifier: MIT
"""What the user writes to say where a probe is to be (`--probe SPEC`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from ptweave.data import BadInput

_BYTES = re.compile(r"(?:[0-9a-fA-F]{2}|\?\?)(?:\s+(?:[0-9a-fA-F]{2}|\?\?))+")
_SYMBOL = re.compile(r"([^\s+;\[\]]+?)(?:\+(0[xX][0-9a-fA-F]{1,16}|\d{1,19}))?")
_LINE = re.compile(r"([^:\s]+):(\d{1,9})")
REMEDY = "see ptweave probe --help"


class Form(Enum):
    """How a place is named."""

    SYMBOL = auto()
    OFFSET = auto()
    LINE = auto()
    BYTES = auto()
    ASSEMBLY = auto()


@dataclass(frozen=True)
class Spec:
    """A parsed SPEC. `file` is None where the executable and its libraries are meant.

    `name`: symbol or source file; `number`: bytes from the symbol or of the file, or the line; `pattern`: of bytes or
    instructions; `after`: the place behind the pattern is meant.
    """

    text: str
    form: Form
    file: str | None = None
    name: str = ""
    number: int = 0
    pattern: str = ""
    after: bool = False


def parse_spec(text: str) -> Spec:
    """Raises BadInput for what is no place."""
    after, rest = text.startswith("after "), text.removeprefix("after ").strip()
    file, rest = _split_file(rest)
    if _BYTES.fullmatch(rest):
        return Spec(text, Form.BYTES, file, pattern=rest.lower(), after=after)
    if ";" in rest or re.search(r"[a-z]\s", rest):
        return Spec(text, Form.ASSEMBLY, file, pattern=rest, after=after)
    if after:
        raise BadInput("goes with instructions or bytes only", where=f"--probe '{text}'", remedy=REMEDY)
    line = _LINE.fullmatch(rest)
    if line:
        return Spec(text, Form.LINE, file, line[1], int(line[2]))
    found = _SYMBOL.fullmatch(rest)
    if not found or not rest:
        raise BadInput("is no place for a probe", where=f"--probe '{text}'", remedy=REMEDY)
    number = int(found[2] or "0", 0) if not re.fullmatch(r"0\d+", found[2] or "") else int(found[2])
    if file is None and found[2] and _is_file(found[1]):
        return Spec(text, Form.OFFSET, found[1], number=number)
    return Spec(text, Form.SYMBOL, file, found[1], number)


def _split_file(text: str) -> tuple[str | None, str]:
    """`FILE:rest`; a source line has a number behind its last colon, and is no file."""
    head, colon, rest = text.partition(":")
    if not colon or rest.startswith(":") or re.search(r"\s", head) or not rest:
        return None, text  # no file: or a C++ name
    if rest.isdecimal() and not re.search(r"\.so(\.\d+)*$", head):
        return None, text
    return head, rest.strip()


def _is_file(name: str) -> bool:
    return "/" in name or bool(re.search(r"\.so(\.\d+)*$", name))
