# SPDX-License-Identifier: MIT
"""The table of system calls against the kernel's own headers and formats."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from ptweave.data import syscall_table
from support.tracefs import kernel_signatures

HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h"))


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


def test_argument_counts_and_paths_agree_with_the_running_kernel() -> None:
    signatures = kernel_signatures()
    for name, arguments in signatures.items():
        call = syscall_table.SYSCALLS[syscall_table.NUMBERS[name]]
        assert call.nargs == len(arguments), name
        assert all("char *" in arguments[argument][0] for argument in call.paths), name
    assert len(signatures) > 300


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
