# SPDX-License-Identifier: MIT
"""Bytes that are no packets, in mid-stream."""

import sys

from labtools import Gated, module

target = Gated()
target.done()
module(inject="ff" * 32)
target.again()
target.again()
sys.exit(target.end())
