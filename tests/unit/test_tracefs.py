# SPDX-License-Identifier: MIT
"""The numbers of tracepoints, with tracefs mounted and not, beside what a mount in a namespace of its own says."""

import os
import shlex
import subprocess
import sys

import pytest

from ptweave.data.errors import MachineLacks
from ptweave.wrapper import tracefs

ENTER = "raw_syscalls/sys_enter"
IMPORT = "from ptweave.wrapper.tracefs import tracepoint_number"
PRINT = f"print(tracepoint_number({ENTER!r}))"
ASK = shlex.join([sys.executable, "-c", f"{IMPORT}; {PRINT}"])
ASK_UNPRIVILEGED = shlex.join([sys.executable, "-c", f"{IMPORT}; import os; os.setuid(65534); {PRINT}"])


def in_namespace(script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script where mounts are its own and tracefs is mounted nowhere before."""
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts in a namespace of its own")
    bare = "umount -q /sys/kernel/tracing /sys/kernel/debug/tracing 2>/dev/null; "
    return subprocess.run(["unshare", "-m", "sh", "-c", bare + script], capture_output=True, text=True, check=False)


def number_by_mount() -> int:
    done = in_namespace(f"mount -t tracefs tracefs /mnt && cat /mnt/events/{ENTER}/id")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_where_tracefs_is_not_mounted_the_number_is_the_kernel_s_and_nothing_stays_mounted() -> None:
    done = in_namespace(f"test ! -e {tracefs.MOUNT_POINTS[0]}/events && {ASK}; mount")
    number, *mounts = done.stdout.splitlines()
    assert int(number) == number_by_mount(), done.stderr
    assert not [line for line in mounts if "tracefs" in line]


def test_where_tracefs_is_mounted_the_number_is_read_from_there() -> None:
    done = in_namespace(f"mount -t tracefs tracefs {tracefs.MOUNT_POINTS[0]} && {ASK}")
    assert int(done.stdout) == number_by_mount(), done.stderr


def test_a_tracepoint_that_the_kernel_has_not_is_an_error_with_a_remedy() -> None:
    with pytest.raises(MachineLacks) as caught:
        tracefs.tracepoint_number("raw_syscalls/no_such")
    assert "no_such" in str(caught.value) and "mount" in str(caught.value)


def test_without_privileges_the_error_says_why_it_cannot_be_mounted() -> None:
    done = in_namespace(f"test ! -e {tracefs.MOUNT_POINTS[0]}/events && {ASK_UNPRIVILEGED}")
    assert done.returncode != 0 and "Operation not permitted" in done.stderr
