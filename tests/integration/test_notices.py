# SPDX-License-Identifier: MIT
"""What threads as processes cannot carry is told by the place it happens at; what they carry is not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ptweave.data.evl import EVL_HEADER
from ptweave.data.notices import Notice, NoticeKind
from support.modes import NATIVE, TRACED, Mode, Ran, process_mode, run

ROOT = Path(__file__).resolve().parents[2]
HELD = process_mode("held", "shared")


def compile_program(folder: Path, source: Path, *flags: str) -> Path:
    out = folder / source.stem
    subprocess.run(["gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", out, source,
                    *flags], check=True)
    return out


@pytest.fixture(scope="module")
def hazards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("hazards"), ROOT / "tests/programs/hazards.c")


def notices_of(mode: Mode, folder: Path, argv: list[str | Path]) -> list[Notice]:
    """Run to a good end; natively the same comes out."""
    folder.mkdir(exist_ok=True)
    native, ran = run(NATIVE, folder, argv, name="native"), run(mode, folder, argv)
    assert (ran.status, ran.out, ran.err) == (native.status, native.out, native.err)
    assert ran.traced is not None
    return ran.traced.server.notices.all


@pytest.mark.parametrize(("word", "kind", "function"), [
    ("clone", NoticeKind.CLONE, "clones_a_thread"), ("ptrace", NoticeKind.TRACER, "asks_to_be_traced"),
    ("io_uring", NoticeKind.IO_URING, "sets_up_a_ring"), ("userfaultfd", NoticeKind.FAULTS, "takes_faults"),
    ("futex", NoticeKind.FUTEX, "waits_alone"), ("there", NoticeKind.LIMIT, "maps_there"),
])
def test_what_cannot_be_carried_is_told_once_by_symbol(word: str, kind: NoticeKind, function: str, hazards: Path,
                                                       tmp_path: Path) -> None:
    notice, = notices_of(HELD, tmp_path, [hazards, word])
    assert notice.kind is kind and notice.where.startswith(f"{function}+") and "(hazards)" in notice.where
    assert notice.text and notice.remedy


@pytest.mark.parametrize("word", ["shared", "fork"])
def test_what_is_carried_is_not_told(word: str, hazards: Path, tmp_path: Path) -> None:
    assert notices_of(HELD, tmp_path, [hazards, word]) == []


def test_native_threads_have_nothing_to_be_told(hazards: Path, tmp_path: Path) -> None:
    assert notices_of(TRACED, tmp_path, [hazards, "clone"]) == []


# --- system calls by instructions, which private copies cannot carry ---

SEQUENCES = {
    "number alone": (True, "mov $39, %eax\n syscall"),
    "arguments behind it": (True, "mov $1, %eax\n mov %rbx, %rdi\n lea 8(%rsp,%rcx,4), %rsi\n xor %edx, %edx\n"
                                  "mov $-1, %r8\n movabs $5, %r9\n mov 4(%rsp), %r10\n movq $0, (%rsp)\n syscall"),
    "constant of a test": (False, "mov $1, %eax\n shl %cl, %rax\n test $0x050ffffc, %eax\n jne 1f\n 1:"),
    "constant of a move": (False, "mov $1, %eax\n mov $0x050f0000, %edi"),
    "number behind a jump": (False, "mov $1, %eax\n jmp 1f\n syscall\n 1:"),
}
"""Whether code that is never executed looks like a system call."""


@pytest.mark.parametrize("name", SEQUENCES)
def test_system_call_instructions_are_told_where_private_copies_cannot_carry_them(name: str, tmp_path: Path) -> None:
    told, code = SEQUENCES[name]
    lines = "\n".join(f'"{line}\\n"' for line in code.splitlines())
    text = THREADS + f'__attribute__((used, naked)) void hidden(void) {{ __asm__({lines} "ret"); }}\n'
    argv = [program(tmp_path, "calls", text + "int main(void) { return make(); }")]
    notices = notices_of(process_mode("held", "private"), tmp_path / "run", argv)
    assert [(one.kind, one.where.split("+")[0]) for one in notices] == [(NoticeKind.CALL, "hidden")] * told


# --- what is known before main() ---

THREADS = """
#include <pthread.h>
#include <stdio.h>
static void *body(void *value) { return value; }
static int one;
int make(void) { pthread_t t; void *r; return pthread_create(&t, 0, body, &one) || pthread_join(t, &r) || r != &one; }
"""


GO_NOTE = (r'__asm__(".pushsection .note.go.buildid,\"a\",@note; .long 4,4,4; .asciz \"Go\"; .byte 0; .long 1;'
           r' .popsection");')


def program(folder: Path, name: str, text: str, *flags: str) -> Path:
    (folder / f"{name}.c").write_text(text)
    return compile_program(folder, folder / f"{name}.c", *flags)


def processes(mode: Mode, folder: Path, argv: list[str | Path]) -> tuple[int, list[Notice]]:
    """How many processes had threads that logged, and what was told."""
    ran = run(mode, folder, argv, name=f"{mode}.ptw")
    assert ran.status == 0 and ran.err == ""
    return traced(ran)


def traced(ran: Ran) -> tuple[int, list[Notice]]:
    assert ran.traced is not None
    headers = [path.read_bytes()[:EVL_HEADER.size] for path in ran.traced.bundle.dependence.glob("*.evl")]
    return len({EVL_HEADER.unpack(header)[1] for header in headers}), ran.traced.server.notices.all


def test_a_program_that_makes_threads_has_processes(tmp_path: Path) -> None:
    plain = program(tmp_path, "plain", THREADS + "int main(void) { return make(); }")
    assert processes(HELD, tmp_path, [plain]) == (2, [])
    assert processes(TRACED, tmp_path, [plain])[0] == 1


@pytest.mark.parametrize(("name", "more", "word"), [
    ("tracer", "#include <sys/ptrace.h>\nlong unused(void) { return ptrace(PTRACE_TRACEME, 0, 0, 0); }", "ptrace"),
    ("go", GO_NOTE, "Go runtime"),
])
def test_a_program_that_cannot_be_carried_keeps_its_threads(name: str, more: str, word: str, tmp_path: Path) -> None:
    made = program(tmp_path, name, f"{THREADS}\n{more}\nint main(void) {{ return make(); }}")
    count, told = processes(HELD, tmp_path, [made])
    assert count == 1 and [one.kind for one in told] == [NoticeKind.FALLBACK] and word in told[0].text


def test_a_library_of_a_kind_that_cannot_be_carried_is_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "ring.c").write_text("int ring(void) { return 0; }\n")
    library = tmp_path / "liburing.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "ring.c"], check=True)
    made = program(tmp_path, "ringer", THREADS + "int ring(void); int main(void) { return make() + ring(); }",
                   str(library))
    count, told = processes(HELD, tmp_path, [made])
    assert count == 1 and [one.kind for one in told] == [NoticeKind.FALLBACK] and "io_uring" in told[0].text


@pytest.mark.parametrize(("exported", "count", "kinds"), [
    ("mono_jit_init", 1, [NoticeKind.FALLBACK]), ("mono_jit_other", 2, []),
    ("gc_stop_the_world", 1, [NoticeKind.FALLBACK])])
def test_mono_and_sbcl_are_known_by_what_they_export_wherever_that_is(
        exported: str, count: int, kinds: list[NoticeKind], tmp_path: Path) -> None:
    """They ask for memory at addresses of their choice, and end the program where they get other memory."""
    (tmp_path / "runtime.c").write_text("int before(void) { return 0; }\n" + "".join(
        f"int {name}(void) {{ return 0; }}\n" for name in ("mono_jit", exported, "mono_jit_init_more")))
    library = tmp_path / "libruntime.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "runtime.c"], check=True)
    made = program(tmp_path, "embedder", THREADS + f"int {exported}(void); int main(void) {{ return make() + "
                   f"{exported}(); }}", str(library))
    made_processes, told = processes(HELD, tmp_path, [made])
    assert made_processes == count and [one.kind for one in told] == kinds


ASYNCHRONOUS = '''
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
static int work(void)
{
	struct aiocb *one = calloc(1, sizeof *one);
	const struct aiocb *all[] = {one};
	one->aio_fildes = open("/proc/self/exe", O_RDONLY);
	one->aio_buf = malloc(1 << 20);
	one->aio_nbytes = 10000;
	if (aio_read(one))
		return 1;
	while (aio_error(one) == EINPROGRESS)
		aio_suspend(all, 1, NULL);
	return aio_return(one) != 10000;
}
'''

LOOKED_UP = '''
#include <netdb.h>
static int work(void)
{
	struct gaicb one = {.ar_name = "127.0.0.1"}, *all[] = {&one};
	return getaddrinfo_a(GAI_WAIT, all, 1, 0) || gai_error(&one);
}
'''


@pytest.mark.parametrize("work", [ASYNCHRONOUS, LOOKED_UP], ids=["aio", "getaddrinfo_a"])
def test_a_program_that_the_c_library_works_for_in_threads_of_its_own_keeps_its_threads(
        work: str, tmp_path: Path) -> None:
    """These threads have all signals blocked: a closed page was EFAULT to one, and the end to the other."""
    made = program(tmp_path, "helped", f"{work}\n{THREADS}\nint main(void) {{ return make() + work(); }}",
                   "-D_GNU_SOURCE")
    count, told = processes(HELD, tmp_path, [made])
    assert count == 1 and [one.kind for one in told] == [NoticeKind.FALLBACK] and "of its own" in told[0].text


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    """A program with a thread, that loads a library with OpenMP when that is over."""
    folder = tmp_path_factory.mktemp("late")
    library = folder / "work.so"
    subprocess.run(["gcc", "-O1", "-g", "-Wall", "-shared", "-fPIC", "-fopenmp", "-o", library,
                    ROOT / "tests/programs/late_openmp.c"], check=True)
    made = program(folder, "late", f"#include <dlfcn.h>\n{THREADS}\n"
                   "int main(int n, char **v) { int bad = make(); void *l = dlopen(v[n - 1], RTLD_NOW);"
                   " return bad + ((int (*)(int))dlsym(l, \"work\"))(30); }")
    return [made, library]


@pytest.mark.parametrize("access", ["held", "exact"])
def test_openmp_that_is_loaded_later_is_carried(late: list[str | Path], access: str, tmp_path: Path) -> None:
    """With XGBoost, LightGBM or PyTorch, Python has it so: threads waited for ever."""
    assert run(NATIVE, tmp_path, late, name="native").out == b"14985000 90 600\n"
    ran = run(process_mode(access, "shared"), tmp_path, late)
    assert (ran.status, ran.out, ran.err) == (0, b"14985000 90 600\n", "")
    count, told = traced(ran)
    assert count == 4 and told == []  # main's, the first thread's, and two of OpenMP's


def test_control_openmp_that_is_loaded_later_is_told_where_it_is_not_carried(late: list[str | Path],
                                                                             tmp_path: Path) -> None:
    """In the private view: of its futexes each process has its own copy. Nothing of it is executed."""
    made = program(tmp_path, "loader", f"#include <dlfcn.h>\n{THREADS}\n"
                   "int main(int n, char **v) { return make() + !dlopen(v[n - 1], RTLD_NOW); }")
    count, told = processes(process_mode("held", "private"), tmp_path, [made, late[1]])
    assert count == 2 and [one.kind for one in told] == [NoticeKind.CALL] and "wait for ever" in told[0].text


@pytest.mark.parametrize(("name", "kinds"), [
    ("liburing.so", [NoticeKind.CALL]), ("liburing.so.2", [NoticeKind.CALL]),
    ("libgomp-e985bcbb.so.1.0.0", [NoticeKind.CALL]),  # as packages of Python's bring it along
    ("libother.so", []), ("libgompa.so", []), ("libgomp-1/libother.so", [])])
def test_a_library_that_cannot_be_carried_is_told_when_it_is_loaded_later(name: str, kinds: list[NoticeKind],
                                                                          tmp_path: Path) -> None:
    (tmp_path / "ring.c").write_text("int ring(void) { return 0; }\n")
    library = tmp_path / name
    library.parent.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "ring.c"], check=True)
    made = program(tmp_path, "opener", f"#include <dlfcn.h>\n{THREADS}\n"
                   "int main(int n, char **v) { return make() + !dlopen(v[n - 1], RTLD_NOW); }")
    count, told = processes(HELD, tmp_path, [made, library])
    assert count == 2 and [one.kind for one in told] == kinds
    assert all(f"({name}" in one.where or one.where.startswith(name) for one in told)


def test_threads_that_a_library_makes_that_came_later_stay_threads(tmp_path: Path) -> None:
    (tmp_path / "late.c").write_text(THREADS)
    library = tmp_path / "liblate.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-pthread", "-o", library, tmp_path / "late.c"], check=True)
    made = program(tmp_path, "loader", "#include <dlfcn.h>\nint main(int n, char **v) { void *l = dlopen(v[n - 1], 1);"
                   " return ((int (*)(void))dlsym(l, \"make\"))(); }")
    count, told = processes(HELD, tmp_path, [made, library])
    assert count == 1
    notice, = told
    assert notice.kind is NoticeKind.FALLBACK and notice.where.startswith("make+") and "liblate.so" in notice.where


def test_a_program_without_threads_is_left_alone(tmp_path: Path) -> None:
    alone = program(tmp_path, "alone", "#include <stdlib.h>\n#include <stdint.h>\n"
                    "int main(void) { return (uintptr_t)malloc(100) >> 40 == 1; }")  # the shared heap is at 1 TB
    assert processes(HELD, tmp_path, [alone]) == (1, [])
