# SPDX-License-Identifier: MIT
"""Numbers of the perf.data format: record types, flags, sample fields, header features."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class RecordType(IntEnum):
    """`perf_event_header.type`: the kernel's below 64, `perf record`'s own from 64 on."""

    MMAP = 1
    LOST = 2
    COMM = 3
    EXIT = 4
    THROTTLE = 5
    UNTHROTTLE = 6
    FORK = 7
    READ = 8
    SAMPLE = 9
    MMAP2 = 10
    AUX = 11
    ITRACE_START = 12
    LOST_SAMPLES = 13
    SWITCH = 14
    SWITCH_CPU_WIDE = 15
    NAMESPACES = 16
    KSYMBOL = 17
    BPF_EVENT = 18
    CGROUP = 19
    TEXT_POKE = 20
    AUX_OUTPUT_HW_ID = 21
    CALLCHAIN_DEFERRED = 22
    HEADER_ATTR = 64
    HEADER_EVENT_TYPE = 65
    TRACING_DATA = 66
    BUILD_ID = 67
    FINISHED_ROUND = 68
    ID_INDEX = 69
    AUXTRACE_INFO = 70
    AUXTRACE = 71
    AUXTRACE_ERROR = 72
    THREAD_MAP = 73
    CPU_MAP = 74
    STAT_CONFIG = 75
    STAT = 76
    STAT_ROUND = 77
    EVENT_UPDATE = 78
    TIME_CONV = 79
    HEADER_FEATURE = 80
    COMPRESSED = 81
    FINISHED_INIT = 82
    COMPRESSED2 = 83
    BPF_METADATA = 84
    SCHEDSTAT_CPU = 85
    SCHEDSTAT_DOMAIN = 86


FIRST_USER_TYPE = 64


class Misc(IntFlag):
    """`perf_event_header.misc`; bits 13 and 14 mean different things in different records."""

    CPUMODE_MASK = 7
    MMAP_DATA = 1 << 13
    COMM_EXEC = 1 << 13
    FORK_EXEC = 1 << 13
    SWITCH_OUT = 1 << 13
    SWITCH_OUT_PREEMPT = 1 << 14
    MMAP_BUILD_ID = 1 << 14
    BUILD_ID_SIZE = 1 << 15


class CpuMode(IntEnum):
    """`misc & Misc.CPUMODE_MASK`."""

    UNKNOWN = 0
    KERNEL = 1
    USER = 2
    HYPERVISOR = 3
    GUEST_KERNEL = 4
    GUEST_USER = 5


class SampleType(IntFlag):
    """`perf_event_attr.sample_type`: which fields a sample, and the trailer of every other record, has."""

    IP = 1 << 0
    TID = 1 << 1
    TIME = 1 << 2
    ADDR = 1 << 3
    READ = 1 << 4
    CALLCHAIN = 1 << 5
    ID = 1 << 6
    CPU = 1 << 7
    PERIOD = 1 << 8
    STREAM_ID = 1 << 9
    RAW = 1 << 10
    BRANCH_STACK = 1 << 11
    REGS_USER = 1 << 12
    STACK_USER = 1 << 13
    WEIGHT = 1 << 14
    DATA_SRC = 1 << 15
    IDENTIFIER = 1 << 16
    TRANSACTION = 1 << 17
    REGS_INTR = 1 << 18
    PHYS_ADDR = 1 << 19
    AUX = 1 << 20
    CGROUP = 1 << 21
    DATA_PAGE_SIZE = 1 << 22
    CODE_PAGE_SIZE = 1 << 23
    WEIGHT_STRUCT = 1 << 24


class ReadFormat(IntFlag):
    """`perf_event_attr.read_format`."""

    TOTAL_TIME_ENABLED = 1
    TOTAL_TIME_RUNNING = 2
    ID = 4
    GROUP = 8
    LOST = 16


class AttrFlag(IntFlag):
    """Bits of `perf_event_attr` after `read_format` that matter here."""

    INHERIT = 1 << 1
    EXCLUDE_USER = 1 << 4
    EXCLUDE_KERNEL = 1 << 5
    ENABLE_ON_EXEC = 1 << 12
    SAMPLE_ID_ALL = 1 << 18
    CONTEXT_SWITCH = 1 << 26


class AuxFlag(IntFlag):
    """`flags` of an AUX record."""

    TRUNCATED = 1
    OVERWRITE = 2
    PARTIAL = 4
    COLLISION = 8


class Feature(IntEnum):
    """Bits of the header's feature bitmap, and `feat_id` of HEADER_FEATURE records."""

    TRACING_DATA = 1
    BUILD_ID = 2
    HOSTNAME = 3
    OSRELEASE = 4
    VERSION = 5
    ARCH = 6
    NRCPUS = 7
    CPUDESC = 8
    CPUID = 9
    TOTAL_MEM = 10
    CMDLINE = 11
    EVENT_DESC = 12
    AUXTRACE = 18
    CLOCKID = 23
    DIR_FORMAT = 24
    COMPRESSED = 27
    CLOCK_DATA = 29


FEATURE_BITS = 256

INTEL_PT = 1
"""`type` of an AUXTRACE_INFO record for Intel PT (`PERF_AUXTRACE_INTEL_PT`)."""

NO_TASK = -1
"""tid or cpu that a record does not have."""
