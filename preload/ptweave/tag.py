# SPDX-License-Identifier: MIT
"""Tags from Python programs: `import ptweave.tag`, then `ptweave.tag("request begins", path=path)`.

A tag is a row of the table `tags` of a recording: text, data, time, call stack. Where the program is not recorded it
does nothing. The row's stack is the interpreter's; the data has the Python frames under `python`, innermost first.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any

FRAMES_MAX = 64


def _find() -> Any:
    try:
        record = ctypes.CDLL(None).ptweave_tag_record
    except (AttributeError, OSError):
        return None
    record.restype = None
    record.argtypes = [ctypes.c_char_p, ctypes.c_ulong, ctypes.c_uint, ctypes.POINTER(ctypes.c_char_p),
                       ctypes.POINTER(ctypes.c_char_p)]
    return record


_record = _find()


def _frames(depth: int) -> str:
    """The caller's Python stack as `function (file:line)`, innermost first."""
    parts: list[str] = []
    frame = sys._getframe(depth)
    while frame is not None and len(parts) < FRAMES_MAX:
        code = frame.f_code
        parts.append(f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back  # type: ignore[assignment]
    return "\n".join(parts)


def _bytes(value: object) -> bytes:
    """What C takes: UTF-8, and no NUL in it."""
    return str(value).encode(errors="surrogateescape").replace(b"\0", b"\\x00")


def tag(text: str, /, **data: object) -> None:
    """Tag this moment. `data` are further keys; their values are kept as text (`str`)."""
    if _record is None:
        return
    _send(text, {**data, "python": _frames(2)})


def _send(text: str, data: dict[str, object]) -> None:
    said = _bytes(text)
    keys = (ctypes.c_char_p * len(data))(*(_bytes(key) for key in data))
    values = (ctypes.c_char_p * len(data))(*(_bytes(value) for value in data.values()))
    _record(said, len(said), len(data), keys, values)


class _Callable(ModuleType):
    """So that the module is what its name says: `ptweave.tag("…")`."""

    def __call__(self, text: str, /, **data: object) -> None:
        if _record is not None:
            _send(text, {**data, "python": _frames(2)})


sys.modules[__name__].__class__ = _Callable
