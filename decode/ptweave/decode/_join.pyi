# SPDX-License-Identifier: MIT
"""The join in C, as Python sees it. `decode/src/join.h` is its reference manual."""

from typing import Any

class _Lib:
    PTW_CALL_ANSWERED: int
    PTW_CALL_RESTARTED: int
    PTW_ROW_RETURNED: int

    def ptw_join_calls(self, join: Any, calls: Any, count: int, next: Any, rows: Any, row_count: int, cursor: Any,
                       match: Any) -> int: ...
    def ptw_join_times(self, clock: Any, calls: Any, count: int, t_enter: Any, t_exit: Any) -> None: ...

class _FFI:
    NULL: Any

    def new(self, kind: str, value: Any = ...) -> Any: ...
    def cast(self, kind: str, value: Any) -> Any: ...
    def from_buffer(self, kind: str, value: Any) -> Any: ...
    def sizeof(self, kind: str) -> int: ...

ffi: _FFI
lib: _Lib
