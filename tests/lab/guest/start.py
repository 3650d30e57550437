# SPDX-License-Identifier: MIT
"""The first of Python in the guest: loads what takes long and is not the project's, waits until the machine has the
project, and goes on in there. While it waits the machine's state is saved: docs/hardware.md, "The laboratory"."""

from __future__ import annotations

import runpy

import cffi  # noqa: F401
import duckdb  # noqa: F401
import elftools.elf.elffile  # noqa: F401
import numpy.ma  # noqa: F401
import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet  # noqa: F401
from disks import PROJECT, receive

print("LAB: booted", flush=True)
receive(PROJECT, "/in")
runpy.run_path("/in/runner.py", run_name="__main__")
