# SPDX-License-Identifier: MIT
"""The recorder in C, as Python sees it. `wrapper/src/events.h` is its reference manual."""

from typing import Any

class _Batch:
    rows: int
    paths: int
    captures: int
    returned: int
    readable: int
    truncated: int
    missed: int
    captured: int
    unread: int
    no_room: int
    left_out: int
    t_enter: Any
    t_exit: Any
    result: Any
    ip: Any
    args: Any
    file: Any
    pid: Any
    tid: Any
    number: Any
    has_exit: Any
    path_first: Any
    path_begin: Any
    has_path: Any
    text: Any
    capture_first: Any
    capture_argument: Any
    capture_kind: Any
    capture_part: Any
    capture_when: Any
    capture_size: Any
    capture_begin: Any
    has_capture: Any
    data: Any
    event_rows: Any
    events: Any
    file_bytes: int
    file_text: Any

class _Totals:
    produced: Any
    submitted: Any
    taken: Any
    lost: Any
    malformed: int
    compat: int
    io_uring: int
    tasks: int
    wakeups: int
    starved: int

class _Lib:
    PTW_VARIANT_TYPED: int
    PTW_VARIANT_RAW: int
    PTW_LOSS_RING_FULL: int
    PTW_LOSS_NO_MEMORY: int
    PTW_LOSS_NO_EXIT: int

    def ptw_batch_record_size(self, kind: int) -> int: ...
    def ptw_recorder_create(self, config: Any, ret: Any) -> int: ...
    def ptw_recorder_destroy(self, recorder: Any) -> None: ...
    def ptw_recorder_trouble(self) -> Any: ...
    def ptw_recorder_start(self, recorder: Any, config: Any) -> int: ...
    def ptw_recorder_stop(self, recorder: Any) -> int: ...
    def ptw_recorder_follow(self, recorder: Any, tid: int) -> int: ...
    def ptw_recorder_killed(self, recorder: Any, pid: int) -> int: ...
    def ptw_recorder_filter(self, recorder: Any, rules: Any) -> int: ...
    def ptw_recorder_fd(self, recorder: Any) -> int: ...
    def ptw_recorder_take(self, recorder: Any, all: int, ret: Any) -> int: ...
    def ptw_recorder_release(self, recorder: Any, batch: Any) -> int: ...
    def ptw_recorder_backlog(self, recorder: Any) -> int: ...
    def ptw_recorder_totals(self, recorder: Any, ret: Any) -> int: ...
    def ptw_recorder_lost(self, recorder: Any, loss: int, number: int) -> int: ...

class _FFI:
    NULL: Any

    def new(self, kind: str, value: Any = ...) -> Any: ...
    def buffer(self, pointer: Any, size: int) -> Any: ...
    def string(self, pointer: Any) -> bytes: ...

ffi: _FFI
lib: _Lib
