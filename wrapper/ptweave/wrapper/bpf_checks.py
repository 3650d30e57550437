# SPDX-License-Identifier: MIT
"""Whether this machine lets us record system calls with eBPF, and if not, what is missing and what to do."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ptweave.data.errors import MachineLacks
from ptweave.wrapper import tracefs

_BTF = Path("/sys/kernel/btf/vmlinux")
_LOCKDOWN = Path("/sys/kernel/security/lockdown")
_SYS_BPF = 321  # x86-64
_BPF_MAP_CREATE = 0
_BPF_MAP_TYPE_ARRAY = 2
_NEEDED_CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}


@dataclass(frozen=True)
class Check:
    """One thing a machine has or lacks: a line of `ptweave doctor`."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def load_extension() -> ModuleType:
    """The recorder's C part. Raises MachineLacks when it is not built, or libbpf is missing."""
    try:
        from ptweave.wrapper import _events
    except ImportError as error:
        raise MachineLacks(f"the recorder of system calls cannot be loaded ({error})",
                           remedy="apt-get install libbpf1, or build ptweave again") from error
    return _events


def probe() -> list[Check]:
    """What recording with eBPF needs: the built recorder, BTF, the bpf system call, capabilities; and tracefs."""
    return [_check_extension(), _check_btf(), _check_permission(), _check_lockdown(), _check_tracefs()]


def explain_failure(error: int, words: str) -> MachineLacks:
    """The error for a loader that failed with this errno and these last words."""
    for check in (_check_btf(), _check_permission(), _check_lockdown()):
        if not check.ok:
            return MachineLacks(f"system calls cannot be recorded: {check.detail}", where=check.name,
                                remedy=check.remedy)
    last = words.strip().splitlines()[-1].strip() if words.strip() else "no further word"
    return MachineLacks(f"the kernel refused the BPF programs ({os.strerror(error)}; {last})",
                        where=f"Linux {platform.release()}", remedy="Linux 5.13 or later is needed")


def _check_extension() -> Check:
    name = "eBPF recorder"
    try:
        load_extension()
    except MachineLacks as error:
        return Check(name, False, error.what, error.remedy)
    if not (Path(__file__).parent / "_bpf" / "syscalls.bpf.o").exists():
        return Check(name, False, "the BPF programs are not built",
                     "install clang and libbpf-dev, and build ptweave again")
    return Check(name, True, "built")


def _check_btf() -> Check:
    if os.access(_BTF, os.R_OK):
        return Check("BTF", True, str(_BTF))
    why = "cannot be read" if _BTF.exists() else "does not exist"
    return Check("BTF", False, f"{_BTF} {why}: the programs cannot be fitted to this kernel",
                 "use a kernel built with CONFIG_DEBUG_INFO_BTF (Debian's are), with /sys mounted")


def _bpf_errno() -> int:
    """Try the least the recorder does, to make a map; 0, or the errno it failed with."""
    attributes = (ctypes.c_uint32 * 32)(_BPF_MAP_TYPE_ARRAY, 4, 8, 1)  # type, key size, value size, entries
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(ctypes.c_long(_SYS_BPF), ctypes.c_int(_BPF_MAP_CREATE), ctypes.byref(attributes),
                      ctypes.c_uint(ctypes.sizeof(attributes)))
    if fd < 0:
        return ctypes.get_errno()
    os.close(fd)
    return 0


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _check_permission() -> Check:
    name = "bpf system call"
    has = {one for one, bit in _NEEDED_CAPABILITIES.items() if _effective_capabilities() >> bit & 1}
    if "CAP_SYS_ADMIN" not in has and not {"CAP_BPF", "CAP_PERFMON"} <= has:
        return Check(name, False, "not permitted: this process has neither root's capabilities nor CAP_BPF and "
                     "CAP_PERFMON", "run as root, with sudo, or with these two capabilities")
    error = _bpf_errno()
    if error in (errno.EPERM, errno.EACCES):
        return Check(name, False, "refused although the capabilities are there (a container's seccomp filter?)",
                     "allow the bpf system call, or run outside the container")
    if error:
        return Check(name, False, f"does not work ({os.strerror(error)})", "use a kernel with CONFIG_BPF_SYSCALL")
    return Check(name, True, "permitted")


def _check_lockdown() -> Check:
    name = "kernel lockdown"
    try:
        text = _LOCKDOWN.read_text().strip()
    except OSError:
        return Check(name, True, "none")
    if "[confidentiality]" in text:
        return Check(name, False, "BPF may not read memory in confidentiality mode", "boot with lockdown=integrity")
    return Check(name, True, text)


def _check_tracefs() -> Check:
    where = tracefs.mounted()
    if where is not None:
        return Check("tracefs", True, str(where))
    try:
        with tracefs.unseen_mount():
            return Check("tracefs", True, "not mounted, and mounted for ptweave alone where it is needed")
    except OSError as error:
        return Check("tracefs", False, f"not mounted, and not by us ({error.strerror}): perf knows no tracepoint",
                     tracefs.REMEDY)
