# SPDX-License-Identifier: MIT
"""The table of system calls against the kernel's own headers and formats."""

from __future__ import annotations

import errno
import re
import subprocess
from pathlib import Path

import pytest

from ptweave.data import syscall_table

HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h"))
FORMATS = (Path("/sys/kernel/tracing/events/syscalls"), Path("/sys/kernel/debug/tracing/events/syscalls"))
TRACEFS_NAMES = {"newstat": "stat", "newfstat": "fstat", "newlstat": "lstat", "newuname": "uname", "umount": "umount2",
                 "sendfile64": "sendfile"}


def header_numbers() -> dict[str, int]:
    header = next((path for path in HEADERS if path.exists()), None)
    if header is None:
        pytest.skip("linux-libc-dev is not installed: no asm/unistd_64.h")
    return {name: int(number) for name, number in
            re.findall(r"^#define __NR_(\w+)\s+(\d+)", header.read_text(), re.MULTILINE)}


def test_every_call_of_the_header_is_in_the_table_with_its_number() -> None:
    wrong = {name: number for name, number in header_numbers().items() if syscall_table.NUMBERS.get(name) != number}
    assert not wrong


def test_the_table_knows_the_calls_up_to_462_without_a_hole_but_the_reserved_numbers() -> None:
    missing = set(range(463)) - set(syscall_table.SYSCALLS) - set(range(337, 424))
    assert not missing  # 337 to 423 are in no 64-bit table


def test_names_and_numbers_are_one_to_one() -> None:
    assert len(syscall_table.NUMBERS) == len(syscall_table.SYSCALLS)


def test_path_arguments_are_arguments_and_no_more_than_the_recorder_keeps() -> None:
    for call in syscall_table.SYSCALLS.values():
        assert call.nargs <= 6
        assert len(call.paths) <= syscall_table.MAX_PATHS
        assert all(argument < call.nargs for argument in call.paths), call


def kernel_formats() -> str:
    """The formats of all sys_enter events one behind the other; tracefs is mounted for this alone if it is not."""
    script = "cd {} && tail -n +1 sys_enter_*/format"
    for folder in FORMATS:
        if folder.is_dir():
            words = ["sh", "-c", script.format(folder)]
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout
    mounting = "mount -t tracefs tracefs /mnt && " + script.format("/mnt/events/syscalls")
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mounting], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"tracefs is not mounted and cannot be: {done.stderr.strip()}")
    return done.stdout


def test_argument_counts_and_paths_agree_with_the_running_kernel() -> None:
    seen = 0
    for text in kernel_formats().split("==> sys_enter_")[1:]:
        name = text.split("/", 1)[0]
        call = syscall_table.SYSCALLS[syscall_table.NUMBERS[TRACEFS_NAMES.get(name, name)]]
        fields = re.findall(r"field:(.*?)\s*(\w+);\toffset:(\d+)", text)
        arguments = [kind for kind, _, offset in fields if int(offset) >= 16]
        assert call.nargs == len(arguments), name
        assert all("char *" in arguments[argument] for argument in call.paths), name
        seen += 1
    assert seen > 300


def test_errors_have_the_names_this_system_gives_them() -> None:
    for number, name in errno.errorcode.items():
        assert getattr(errno, syscall_table.ERRNOS[number]) == getattr(errno, name)


@pytest.mark.parametrize(("result", "name"), [
    (-2, "ENOENT"), (-512, "ERESTARTSYS"), (0, None), (3, None), (-4096, None), (-4095, "errno_4095"), (2**40, None)])
def test_results_from_minus_4095_to_minus_1_are_errors(result: int, name: str | None) -> None:
    assert syscall_table.errno_name(result) == name


def test_numbers_in_no_table_are_named_by_number_and_keep_all_arguments() -> None:
    assert syscall_table.name_of(9999) == "syscall_9999"
    assert syscall_table.nargs_of(9999) == 6
