# SPDX-License-Identifier: MIT
"""The target is killed when its second thread has shaken hands, before the recorder gets to trace that."""

import os
import signal
import time
from pathlib import Path

from labtools import note, record

from ptweave.data.handshake import Hello
from ptweave.wrapper.pt import PtRecorder

observe = PtRecorder.observe


def late(recorder: PtRecorder, kind: Hello, pid: int, tid: int, owner: int) -> None:
    if kind is Hello.THREAD:
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/task/{tid}").exists():
            time.sleep(0.001)
    observe(recorder, kind, pid, tid, owner)


PtRecorder.observe = late  # type: ignore[method-assign]
note("ended", record("--threads=native", "--", "four", "20"))
