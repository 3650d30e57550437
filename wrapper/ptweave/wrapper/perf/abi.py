# SPDX-License-Identifier: MIT
"""The kernel's structures and numbers, as in `linux/perf_event.h` (a test holds them to the C compiler's)."""

from __future__ import annotations

import ctypes
from enum import IntEnum, IntFlag

SYSCALL_PERF_EVENT_OPEN = 298  # x86-64
PERF_FLAG_FD_CLOEXEC = 8

_FLAGS = (
    ("disabled", 1), ("inherit", 1), ("pinned", 1), ("exclusive", 1), ("exclude_user", 1), ("exclude_kernel", 1),
    ("exclude_hv", 1), ("exclude_idle", 1), ("mmap", 1), ("comm", 1), ("freq", 1), ("inherit_stat", 1),
    ("enable_on_exec", 1), ("task", 1), ("watermark", 1), ("precise_ip", 2), ("mmap_data", 1), ("sample_id_all", 1),
    ("exclude_host", 1), ("exclude_guest", 1), ("exclude_callchain_kernel", 1), ("exclude_callchain_user", 1),
    ("mmap2", 1), ("comm_exec", 1), ("use_clockid", 1), ("context_switch", 1), ("write_backward", 1),
    ("namespaces", 1), ("ksymbol", 1), ("bpf_event", 1), ("aux_output", 1), ("cgroup", 1), ("text_poke", 1),
    ("build_id", 1), ("inherit_thread", 1), ("remove_on_exec", 1), ("sigtrap", 1), ("__reserved_1", 26),
)


class PerfEventAttr(ctypes.Structure):
    """`struct perf_event_attr` up to PERF_ATTR_SIZE_VER8 (Linux 6.3). Unions go by their first name."""

    _fields_ = (
        ("type", ctypes.c_uint32), ("size", ctypes.c_uint32), ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64), ("sample_type", ctypes.c_uint64), ("read_format", ctypes.c_uint64),
        *((name, ctypes.c_uint64, bits) for name, bits in _FLAGS),
        ("wakeup_watermark", ctypes.c_uint32), ("bp_type", ctypes.c_uint32), ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64), ("branch_sample_type", ctypes.c_uint64), ("sample_regs_user", ctypes.c_uint64),
        ("sample_stack_user", ctypes.c_uint32), ("clockid", ctypes.c_int32), ("sample_regs_intr", ctypes.c_uint64),
        ("aux_watermark", ctypes.c_uint32), ("sample_max_stack", ctypes.c_uint16), ("__reserved_2", ctypes.c_uint16),
        ("aux_sample_size", ctypes.c_uint32), ("__reserved_3", ctypes.c_uint32), ("sig_data", ctypes.c_uint64),
        ("config3", ctypes.c_uint64),
    )


class AttrSize(IntEnum):
    """Published sizes, newest first tried: a kernel takes those it knows, and larger ones whose rest is zero."""

    VER0 = 64
    VER1 = 72
    VER2 = 80
    VER3 = 96
    VER4 = 104
    VER5 = 112
    VER6 = 120
    VER7 = 128
    VER8 = 136


class MmapPage(ctypes.Structure):
    """`struct perf_event_mmap_page`: the first page of an event's mapping."""

    _fields_ = (
        ("version", ctypes.c_uint32), ("compat_version", ctypes.c_uint32), ("lock", ctypes.c_uint32),
        ("index", ctypes.c_uint32), ("offset", ctypes.c_int64), ("time_enabled", ctypes.c_uint64),
        ("time_running", ctypes.c_uint64), ("capabilities", ctypes.c_uint64), ("pmc_width", ctypes.c_uint16),
        ("time_shift", ctypes.c_uint16), ("time_mult", ctypes.c_uint32), ("time_offset", ctypes.c_uint64),
        ("time_zero", ctypes.c_uint64), ("size", ctypes.c_uint32), ("__reserved_1", ctypes.c_uint32),
        ("time_cycles", ctypes.c_uint64), ("time_mask", ctypes.c_uint64), ("__reserved", ctypes.c_uint8 * 928),
        ("data_head", ctypes.c_uint64), ("data_tail", ctypes.c_uint64), ("data_offset", ctypes.c_uint64),
        ("data_size", ctypes.c_uint64), ("aux_head", ctypes.c_uint64), ("aux_tail", ctypes.c_uint64),
        ("aux_offset", ctypes.c_uint64), ("aux_size", ctypes.c_uint64),
    )


PERF_TYPE_BREAKPOINT = 5
HW_BREAKPOINT_X = 4
"""`bp_type`; `bp_len` is then the size of a long (arch/x86/kernel/hw_breakpoint.c)."""


class Capability(IntFlag):
    """Bits of MmapPage.capabilities."""

    USER_TIME = 1 << 3
    USER_TIME_ZERO = 1 << 4


class Ioctl(IntEnum):
    """`PERF_EVENT_IOC_*`."""

    ENABLE = 0x2400
    DISABLE = 0x2401
    REFRESH = 0x2402
    RESET = 0x2403
    SET_OUTPUT = 0x2405
    SET_FILTER = 0x40082406
    ID = 0x80082407
