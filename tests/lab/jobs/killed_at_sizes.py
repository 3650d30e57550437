# SPDX-License-Identifier: MIT
"""Recorders are killed when they have stored so many bytes, at random."""

import random
import time

from killing import Recorder, kill


def wait(recorder: Recorder, took: float, size: int) -> None:
    wanted = random.uniform(0, size * 0.8)
    while recorder.stored < wanted and not recorder.over:
        time.sleep(0.01)  # on the processor that the target has as well


kill(wait)
