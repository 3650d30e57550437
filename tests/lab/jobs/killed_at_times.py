# SPDX-License-Identifier: MIT
"""Recorders are killed at random times, many of them while they begin."""

import random
import time

from killing import Recorder, kill


def wait(recorder: Recorder, took: float, size: int) -> None:
    time.sleep(random.uniform(took / 3, took))


kill(wait)
