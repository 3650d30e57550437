# SPDX-License-Identifier: MIT
"""No system call that takes pointers is forgotten, of the kernel's and of the C library's functions that make them.

Oracles: the kernel's table of system calls, and the instructions of the C library that is installed."""

from __future__ import annotations

import bisect
import re
import subprocess
from functools import cache

import pytest

from ptweave.data.syscall_table import SYSCALLS
from ptweave.preload import library_path

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


WITHOUT_POINTERS = _names("""
close lseek brk rt_sigreturn sched_yield shmget dup dup2 pause alarm getpid socket shutdown listen fork vfork exit kill
semget msgget flock fsync fdatasync ftruncate fchdir fchmod fchown umask getuid getgid setuid setgid geteuid getegid
setpgid getppid getpgrp setsid setreuid setregid setresuid setresgid getpgid setfsuid setfsgid getsid personality
getpriority setpriority sched_getscheduler sched_get_priority_max sched_get_priority_min vhangup sync iopl ioperm gettid
readahead tkill restart_syscall fadvise64 timer_getoverrun timer_delete exit_group epoll_create epoll_create1 tgkill
ioprio_set ioprio_get inotify_init inotify_init1 inotify_rm_watch unshare tee sync_file_range eventfd
eventfd2 timerfd_create fallocate dup3 setns syncfs kcmp userfaultfd membarrier pkey_alloc pkey_free
fanotify_init pidfd_open pidfd_getfd close_range process_mrelease io_destroy fsmount memfd_secret landlock_restrict_self
set_mempolicy_home_node map_shadow_stack
""")
"""No argument of these is an address."""

OF_ADDRESSES = _names("""
mmap mprotect munmap mremap msync madvise shmat shmdt mlock munlock mlockall munlockall mlock2 remap_file_pages
pkey_mprotect mseal cachestat mbind migrate_pages
""")
"""These are about addresses: what they point to is not read or written (masks of memory nodes apart)."""

OF_THREADS = _names("""
clone clone3 set_tid_address set_robust_list get_robust_list rseq rt_sigaction rt_sigprocmask rt_sigsuspend sigaltstack
futex futex_wait futex_wake futex_requeue futex_waitv execve execveat sched_getattr sched_setattr get_thread_area
set_thread_area
""")
"""libtthread does these itself, or the C library with memory that is always open: control blocks, its own stack."""

NOT_WRAPPED = {
    "abort": "its mask is on the stack",
    "kill sigqueue pthread_sigqueue timer_create": "what the kernel reads is on the stack",
    "mq_close": "a number",
    "tcsetattr tcgetattr tcdrain": "the kernel's structure is on the stack",
    "herror": "its vector is on the stack and constant",
    "__clone clone": "raw: the child is not ours",
    "fexecve execveat": "what is executed replaces the thread's process",
    "posix_madvise msync remap_file_pages munlockall pkey_mprotect": "addresses only",
    "__open64_nocancel __open_nocancel __read_nocancel __pread64_nocancel __write_nocancel": "the C library's own",
    "__lll_lock_wait_private __lll_lock_wake_private pthread_mutex_setprioceiling":
        "locks are used where they are always open",
    "clock_getcpuclockid sched_getcpu": "what the kernel writes is on the stack",
    "setgroups": "done for each thread's process by libtthread",
    "ustat uselib nfsservctl create_module get_kernel_syms query_module": "no longer in the kernel",
    "reboot": "a constant",
    "__libc_sigaction": "signal actions are libtthread's",
}
"""Functions that make a system call with pointers and need nobody in front of them, and why."""

OLDER = _names("""
open mknod nanosleep select semop signalfd time adjtimex utime utimes futimesat getrlimit setrlimit gettimeofday
settimeofday getdents epoll_ctl_old epoll_wait_old _sysctl sysfs
""")
"""The function of that name, where there is one, makes a newer call."""

THROUGH_SYSCALL = _names("""
add_key afs_syscall bpf fchmodat2 file_getattr file_setattr finit_module get_mempolicy getpmsg getxattrat io_cancel
io_getevents io_pgetevents io_setup io_submit io_uring_enter io_uring_register io_uring_setup kexec_file_load
kexec_load keyctl landlock_add_rule landlock_create_ruleset listmount listxattrat lookup_dcookie lsm_get_self_attr
lsm_list_modules lsm_set_self_attr move_pages open_tree_attr openat2 perf_event_open putpmsg quotactl_fd removexattrat
request_key seccomp security set_mempolicy setxattrat statmount tuxcall uprobe uretprobe vserver
""")
"""No function of the C library makes these: programs do through syscall(), which opens what the arguments point to and
asks again when the kernel says EFAULT."""


@cache
def exported(library: str) -> dict[str, int]:
    """Functions a library offers: name → address."""
    rows = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {name.partition("@")[0]: int(at, 16) for at, kind, name in map(str.split, rows.splitlines())
            if kind in "TtWwi"}


@cache
def made_by() -> dict[int, frozenset[int]]:
    """Address of an exported function of the C library → numbers of the system calls its instructions make."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-j", ".text", LIBC], capture_output=True, text=True,
                          check=True).stdout
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", LIBC], capture_output=True, text=True, check=True).stdout
    sizes = {int(row[1], 16): int(row[2], 0) for row in map(str.split, symbols.splitlines())
             if len(row) > 7 and row[3] in ("FUNC", "IFUNC")}
    starts, found, eax = sorted(sizes), {}, -1
    for at, code in re.findall(r"^ +([0-9a-f]+):\t(syscall|mov +\$0x[0-9a-f]+,%eax|xor +%eax,%eax)\b", text, re.M):
        if code.startswith("mov"):
            eax = int(re.search(r"\$(0x[0-9a-f]+)", code)[1], 16)
        elif code.startswith("xor"):
            eax = 0
        else:
            start = starts[bisect.bisect_right(starts, int(at, 16)) - 1]
            if int(at, 16) < start + sizes[start]:
                found.setdefault(start, set()).add(eax)
    return {start: frozenset(numbers) for start, numbers in found.items()}


def harmless(number: int) -> bool:
    name = SYSCALLS[number].name if number in SYSCALLS else ""
    return name in WITHOUT_POINTERS or name in OF_ADDRESSES or name in OF_THREADS


def forgotten(wrapped: set[str]) -> set[str]:
    """Functions of the C library that hand pointers to the kernel, nobody being in front of them."""
    reasons = {name for names in NOT_WRAPPED for name in names.split()}
    names: dict[int, set[str]] = {}
    for name, at in exported(LIBC).items():
        names.setdefault(at, set()).add(name)
    return {min(names[start]) for start, numbers in made_by().items()
            if start in names and not names[start] & (wrapped | reasons) and not all(map(harmless, numbers))}


def test_the_c_library_was_read() -> None:
    calls = {SYSCALLS[number].name for numbers in made_by().values() for number in numbers if number in SYSCALLS}
    assert {"read", "write", "openat", "newfstatat", "epoll_wait", "recvmsg", "getrandom", "io_destroy"} - calls == {
        "io_destroy"}


def test_no_function_that_hands_pointers_to_the_kernel_is_forgotten() -> None:
    assert forgotten(set(exported(str(library_path())))) == set()


@pytest.mark.parametrize("name", ["readv", "statx", "getxattr", "mq_notify", "prctl"])
def test_a_forgotten_function_is_noticed(name: str) -> None:
    assert forgotten(set(exported(str(library_path()))) - {name}) == {name}


def test_each_excuse_is_for_a_function_there_is() -> None:
    """What the table excuses exists."""
    for names, why in NOT_WRAPPED.items():
        for name in names.split():
            assert name in exported(LIBC) or "no longer" in why, name


def test_each_system_call_is_of_one_kind() -> None:
    kinds = [WITHOUT_POINTERS, OF_ADDRESSES, OF_THREADS]
    assert not WITHOUT_POINTERS & OF_ADDRESSES and not OF_ADDRESSES & OF_THREADS and not WITHOUT_POINTERS & OF_THREADS
    known = frozenset.union(*kinds)
    assert known | THROUGH_SYSCALL | OLDER <= {call.name for call in SYSCALLS.values()}
    through_functions = {SYSCALLS[number].name for numbers in made_by().values() for number in numbers
                         if number in SYSCALLS}
    assert {call.name for call in SYSCALLS.values()} - known - through_functions == THROUGH_SYSCALL | OLDER
    assert not THROUGH_SYSCALL & OLDER
