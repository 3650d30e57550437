# SPDX-License-Identifier: MIT
"""Linux's perf events: attributes, the system call and its ioctls, the PMU's own description, rings.

Pure ctypes but for the ring's drain (`_perf_ring`). What the records say is `ptweave.data.perf`. Source:
`include/uapi/linux/perf_event.h` and perf_event_open(2).
"""
