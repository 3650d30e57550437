# SPDX-License-Identifier: MIT
"""Reads perf.data: what `perf record` writes, into a file or a pipe (`reader.PerfData`).

Sources of the format: the Linux kernel's `tools/perf/Documentation/perf.data-file-format.txt`,
`include/uapi/linux/perf_event.h` (records up to 63, samples, attributes) and `tools/lib/perf/include/perf/event.h`
(records from 64 on). Everything in the file is checked before it is used: sizes, counts and offsets.
"""
