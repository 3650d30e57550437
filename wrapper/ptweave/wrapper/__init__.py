# SPDX-License-Identifier: MIT
"""Recording: launch a program, trace it with an engine, and leave a run bundle."""
