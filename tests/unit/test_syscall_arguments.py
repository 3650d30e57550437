# SPDX-License-Identifier: MIT
"""What is said of arguments, held to the running kernel's formats and to the headers of this system."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ptweave.data import syscall_arguments as arguments
from ptweave.data.syscall_arguments import NUMBERS, SIGNATURES, STRUCTURES, Argument, Capture, Count, descriptions
from ptweave.data.syscall_flags import SETS, FlagSet, signal_name
from ptweave.data.syscall_table import SYSCALLS
from support.programs import ROOT
from support.tracefs import kernel_signatures

NUMBER_KINDS = {"d", "u", "x", "o", "l", "fd", "dirfd", "pid", "sig", "uid", "*"}

# name of a structure here → its name in C, where that is another; those that only another argument sizes have none
C_NAMES = {
    "statfs": "struct statfs", "pair": "int[2]", "i32": "int", "u32": "unsigned int", "u64": "unsigned long",
    "timeval2": "struct timeval[2]", "timespec2": "struct timespec[2]", "sigset": "unsigned long",
    "stack": "stack_t", "siginfo": "siginfo_t", "cap_header": "struct __user_cap_header_struct",
    "cap_data": "struct __user_cap_data_struct[2]", "sigaction": "struct { void *h; unsigned long f; void *r, *m; }",
    "sigset_size": "struct { void *p; size_t n; }", "mq_attr": "struct mq_attr", "sigevent": "struct sigevent",
}
HEADERS = (
    "stddef.h", "sys/stat.h", "sys/statfs.h", "sys/select.h", "sys/time.h", "sys/resource.h", "sys/utsname.h",
    "sys/sysinfo.h", "sys/times.h", "sys/sem.h", "sys/shm.h", "sys/msg.h", "sys/epoll.h", "sys/uio.h",
    "sys/timex.h", "sys/socket.h", "sys/poll.h", "sys/ustat.h", "mqueue.h", "signal.h", "utime.h",
    "linux/capability.h", "linux/aio_abi.h", "linux/futex.h", "linux/io_uring.h", "linux/openat2.h",
    "linux/perf_event.h", "asm/ldt.h", "sched.h", "fcntl.h", "sys/mman.h", "sys/wait.h", "sys/prctl.h",
    "sys/mount.h", "sys/xattr.h", "sys/inotify.h", "sys/file.h", "sys/random.h", "sys/ptrace.h", "sys/ioctl.h",
    "netinet/in.h", "linux/bpf.h", "linux/membarrier.h", "linux/seccomp.h", "linux/falloc.h", "linux/mempolicy.h",
    "linux/close_range.h", "linux/sockios.h", "linux/fs.h", "asm/prctl.h", "sys/timerfd.h", "sys/eventfd.h",
    "sys/signalfd.h", "linux/fcntl.h", "time.h", "unistd.h")


def compile_and_run(folder: Path, body: str) -> list[str]:
    """Lines a C program prints that has the system's headers; headers that are not here are left out."""
    source = folder / "values.c"
    includes = "".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in HEADERS
                       if name not in ("linux/fcntl.h", "linux/fs.h"))
    source.write_text(f"#define _GNU_SOURCE\n#include <stdio.h>\n{includes}int main(void)\n{{\n{body}return 0;\n}}\n")
    subprocess.run(["gcc", "-w", "-o", folder / "values", source], check=True)
    return subprocess.run([folder / "values"], check=True, capture_output=True, text=True).stdout.splitlines()


def test_every_call_has_as_many_arguments_and_the_paths_the_table_says() -> None:
    assert set(SIGNATURES) == set(SYSCALLS)
    for number, signature in SIGNATURES.items():
        call = SYSCALLS[number]
        assert len(signature.arguments) == call.nargs, call.name
        paths = tuple(at for at, one in enumerate(signature.arguments) if one.kind == "path")
        assert paths == call.paths, call.name


def test_every_kind_is_one_that_is_known() -> None:
    for signature in SIGNATURES.values():
        for one in signature.arguments:
            known = one.kind in NUMBER_KINDS or one.kind.removeprefix("@") in SETS or one.capture
            assert known, (signature.name, one)
            if one.capture is Capture.STRUCT:
                assert one.at_enter or one.at_exit
                assert one.unit == STRUCTURES[one.kind] or one.count is Count.ONE, (signature.name, one)
            if one.count in (Count.ARGUMENT, Count.POINTED, Count.BITS):
                assert one.which < len(signature.arguments), (signature.name, one)


def test_what_is_a_pointer_to_the_kernel_is_no_number_here_and_the_other_way_round() -> None:
    """tracefs tells the C type of each argument."""
    seen = 0
    for name, kernel in kernel_signatures().items():
        signature = SIGNATURES[next(number for number, call in SYSCALLS.items() if call.name == name)]
        for one, (kind, _) in zip(signature.arguments, kernel, strict=True):
            if one.capture or one.kind == "*":
                assert "*" in kind or kind == "unsigned long" or "cap_user_" in kind, (name, one, kind)
            elif "*" in kind:
                assert one.kind == "x", (name, one, kind)  # an address on purpose: futexes, detached memory
            if one.kind in ("fd", "dirfd"):
                assert kind in ("int", "unsigned int", "unsigned long", "mqd_t", "const int"), (name, one, kind)
            if one.kind == "sig":
                assert kind == "int", (name, one, kind)
            seen += 1
    assert seen > 900


def test_structures_have_the_sizes_of_the_headers(tmp_path: Path) -> None:
    sized = {name: C_NAMES.get(name, f"struct {name}") for name, size in STRUCTURES.items()
             if size > 1 and name not in ("statx", "mnt_id_req", "cachestat", "cachestat_range", "rseq", "sockaddr",
                                          "timezone", "ustat", "timex", "file_handle", "mmsghdr", "user_desc",
                                          "perf_event_attr", "futex_waitv", "linux_dirent", "robust_list_head")}
    lines = compile_and_run(tmp_path, "".join(
        f'printf("{name} %zu\\n", sizeof({kind}));\n' for name, kind in sized.items()))
    assert {name: int(size) for name, size in (line.split() for line in lines)} == {
        name: STRUCTURES[name] for name in sized}
    assert len(lines) > 30


def test_flags_have_the_values_of_the_headers(tmp_path: Path) -> None:
    wanted = {name: value for one in SETS.values() for table in (one.values, one.bits)
              for value, name in table.items()}
    body = "".join(f'#ifdef {name}\nprintf("{name} %lld\\n", (long long)({name}));\n#endif\n' for name in wanted)
    found = {name: int(value) for name, value in (line.split() for line in compile_and_run(tmp_path, body))}
    other = {"O_LARGEFILE", "SIG_BLOCK"}  # glibc says 0 on x86-64; the kernel's is 0100000
    wrong = {name: (hex(wanted[name] & 0xFFFFFFFF), hex(value & 0xFFFFFFFF)) for name, value in found.items()
             if name not in other and wanted[name] & 0xFFFFFFFF != value & 0xFFFFFFFF}
    assert not wrong
    assert len(found) > 350


@pytest.mark.parametrize(("name", "value", "text"), [
    ("open", 0o2101101, "O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE|O_CLOEXEC"), ("open", 0, "O_RDONLY"),
    ("prot", 0, "PROT_NONE"), ("prot", 5, "PROT_READ|PROT_EXEC"), ("access", 4, "R_OK"), ("access", 0, "F_OK"),
    ("mmap", 0x40022, "MAP_PRIVATE|MAP_ANONYMOUS|MAP_HUGETLB"), ("futex", 0x189, "FUTEX_WAIT_BITSET|"
     "FUTEX_PRIVATE_FLAG|FUTEX_CLOCK_REALTIME"), ("flock", 6, "LOCK_EX|LOCK_NB"), ("rusage_who", 2**64 - 1,
     "RUSAGE_CHILDREN"), ("whence", 9, "0x9"), ("at", 0x80000000, "0x80000000"), ("at", 0, "0"),
    ("statx", 0xFFF, "STATX_ALL"), ("socket_type", 0x80001, "SOCK_STREAM|SOCK_CLOEXEC")])
def test_flags_are_named(name: str, value: int, text: str) -> None:
    assert SETS[name].text(value) == text


def test_a_set_of_one_value_has_no_bits() -> None:
    assert FlagSet({1: "ONE"}, {}, 0).text(1 << 32 | 1) == "ONE"  # the kernel looks at 32 bits
    assert [signal_name(number) for number in (0, 9, 32, 64, 65, -1)] == ["0", "SIGKILL", "SIGRT_0", "SIGRT_32", "65",
                                                                         "-1"]


def test_descriptions_are_laid_out_as_the_programs_have_them(tmp_path: Path) -> None:
    """Read back by C, through the header the programs are compiled from."""
    raw = tmp_path / "descriptions"
    raw.write_bytes(descriptions())
    source = tmp_path / "read.c"
    source.write_text(f"""#include <stdio.h>
#include "{ROOT}/wrapper/bpf/record.h"
static struct ptw_description all[PTW_NUMBERS];
int main(int argc, char **argv)
{{
	FILE *file = fopen(argv[1], "rb");
	if (!file || fread(all, sizeof(all), 1, file) != 1 || fgetc(file) != EOF)
		return 1;
	for (int n = 0; n < PTW_NUMBERS; n++)
		for (int i = 0; i < PTW_ARGUMENTS; i++) {{
			const struct ptw_argument *one = &all[n].argument[i];
			if (one->kind)
				printf("%d %d %d %d %d %d %d %d %d\\n", n, i, one->kind, one->count, one->which, one->unit,
					all[n].at_enter >> i & 1, all[n].at_exit >> i & 1, all[n].at_failure >> i & 1);
			if (all[n].fds >> i & 1)
				printf("%d %d fd\\n", n, i);
		}}
}}
""")
    subprocess.run(["gcc", "-o", tmp_path / "read", source], check=True)
    lines = subprocess.run([tmp_path / "read", raw], check=True, capture_output=True, text=True).stdout.splitlines()
    expected: list[str] = []
    for number in range(NUMBERS):
        for at, one in enumerate(SIGNATURES[number].arguments if number in SIGNATURES else ()):
            expected += _described(number, at, one)
    assert lines == expected
    assert len(lines) > 450


def _described(number: int, at: int, one: Argument) -> list[str]:
    lines = []
    if one.capture:
        lines.append(f"{number} {at} {one.capture:d} {one.count:d} {one.which} {one.unit} {one.at_enter:d} "
                     f"{one.at_exit:d} {one.at_failure:d}")
    if one.kind in ("fd", "dirfd"):
        lines.append(f"{number} {at} fd")
    return lines


def test_the_enumerations_are_those_of_the_header() -> None:
    header = (ROOT / "wrapper/bpf/record.h").read_text()
    values = {name: int(value) for name, value in re.findall(r"\b(PTW_\w+) = (\d+)", header)}
    for prefix, enumeration in (("PTW_CAPTURE_", Capture), ("PTW_COUNT_", Count), ("PTW_PART_", arguments.Part),
                                ("PTW_AT_", arguments.When)):
        for one in enumeration:
            assert values[prefix + one.name] == one


def test_calls_are_quick_whose_captures_fit_beside_the_task_s_state() -> None:
    """`quick` of each description, against the room that record.h gives (PTW_QUICK captures of PTW_STRUCT_LIMIT)."""
    header = (ROOT / "wrapper/bpf/record.h").read_text()
    limits = {name: int(value) for name, value in
              re.findall(r"(PTW_QUICK|PTW_QUICK_ROOM|PTW_STRUCT_LIMIT) = (\d+)", header)}
    chunk = 16  # struct ptw_chunk
    assert limits["PTW_QUICK_ROOM"] >= limits["PTW_QUICK"] * (chunk + limits["PTW_STRUCT_LIMIT"])
    packed = descriptions()
    size = len(packed) // NUMBERS
    quick = {signature.name for number, signature in SIGNATURES.items() if packed[number * size + 7]}
    assert {"read", "write", "pread64", "fstat", "nanosleep", "pipe2"} <= quick
    assert not {"getppid", "openat", "execve", "readv", "sendmsg", "newfstatat"} & quick
    for number, signature in SIGNATURES.items():
        at_enter, at_exit = packed[number * size], packed[number * size + 1]
        kinds = {one.capture for one in signature.arguments if one.at_enter or one.at_exit}
        fits = at_enter.bit_count() + at_exit.bit_count() <= limits["PTW_QUICK"]
        assert (signature.name in quick) == (bool(kinds) and fits and kinds <= {Capture.STRUCT, Capture.BUFFER})
