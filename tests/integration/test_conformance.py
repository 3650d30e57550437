# SPDX-License-Identifier: MIT
"""Small programs, one a promise that threads keep, in every mode. The oracle is glibc: each passes as it is."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ptweave.data.notices import NoticeKind
from support.command import ptweave
from support.modes import MODES, NATIVE, NOT_BUILT, TRACED, Mode, Ran, TimedOut, process_mode, run

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "conformance"
PROGRAMS = sorted(path for path in FOLDER.glob("*.c*") if ".library" not in path.name)
LEAST = 90
TIMEOUT = 30  # seconds; the slowest takes about one natively

NOT_KEPT: dict[str, str] = {}
"""Promises (names of programs, with the accesses where it is one kind alone) that threads as processes do not keep, and
why. Each of them has to be broken there: what is kept must not stand here."""

NOT_KEPT_PRIVATE: dict[str, str] = {
    "call_raw": "system calls by instructions of the program's own are not carried",
    "call_instruction": "system calls by instructions of the program's own are not carried",
}
"""The same for the private view."""

TOLD_PRIVATE = {
    "atomic_mutual_exclusion": "memory is ordered by atomics alone: what is not theirs is seen at the next commit only",
}
"""Promises that no release consistency can keep, whatever comes of them in one run: it says that it met atomics."""

_ENDS = re.compile(r"^ \* Ends: (?:exit (?P<status>\d+)|(?P<signal>SIG\w+)) \*/$|Ends:", re.M)


def expected_status(source: Path) -> int:
    """What the first comment says, as subprocess gives it; 0 when it says nothing."""
    found = _ENDS.search(source.read_text())
    if found is None:
        return 0
    assert found["status"] or found["signal"], f"{source.name}: Ends: exit N or Ends: SIGNAME"
    return int(found["status"]) if found["status"] else -getattr(signal, found["signal"])


def compile_promise(source: Path, folder: Path) -> Path:
    """The program in `folder`, with its library beside it if it has one."""
    out = folder / source.stem
    if out.exists():
        return out
    compiler = ["g++", "-std=c++17"] if source.suffix == ".cpp" else ["gcc", "-std=gnu11"]
    library = source.with_name(f"{source.stem}.library.c")
    if library.exists():
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", f"{out}.library.so", library],
                       check=True)
    subprocess.run([*compiler, "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", FOLDER, "-o", out, source,
                    "-lm"], check=True)
    return out


class Oracle:
    """Compiles each program once and runs it once as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ran: dict[Path, Ran] = {}

    def program(self, source: Path) -> Path:
        return compile_promise(source, self.folder)

    def native(self, source: Path) -> Ran:
        if source not in self._ran:
            self._ran[source] = run(NATIVE, self.folder, [self.program(source)], timeout=TIMEOUT, name="native")
        return self._ran[source]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return Oracle(tmp_path_factory.mktemp("conformance"))


def test_there_are_enough_promises() -> None:
    assert len(PROGRAMS) >= LEAST


def test_every_mode_is_run_or_has_a_reason_not_to_be() -> None:
    ways = {process_mode(access, view) for access in ("held", "exact") for view in ("shared", "private")}
    assert {NATIVE, TRACED} | ways == {*MODES, *NOT_BUILT} and not {*MODES} & {*NOT_BUILT}
    assert all(NOT_BUILT.values())


def test_each_program_says_which_promise_it_keeps() -> None:
    for source in PROGRAMS:
        first, second = source.read_text().splitlines()[:2]
        assert first == "/* SPDX-License-Identifier: MIT */" and second.startswith("/* "), source.name
        assert '#include "promise.h"' in source.read_text() or '#include "fresh.h"' in source.read_text(), source.name


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.stem)
def test_promise_is_kept(source: Path, mode: Mode, oracle: Oracle, tmp_path: Path,
                         request: pytest.FixtureRequest) -> None:
    not_kept = NOT_KEPT_PRIVATE if mode.view == "private" else NOT_KEPT
    broken = not_kept.get(source.stem) or not_kept.get(f"{source.stem} {mode.access}")
    if mode.access and broken:
        request.applymarker(pytest.mark.xfail(reason=broken, raises=AssertionError, strict=True))
    native = oracle.native(source)
    assert (native.status, native.err) == (expected_status(source), "")
    if mode is not NATIVE:
        ran = run(mode, tmp_path, [oracle.program(source)], timeout=TIMEOUT)
        if mode.view == "private" and source.stem in TOLD_PRIVATE:
            assert ran.traced and NoticeKind.ATOMIC in {one.kind for one in ran.traced.server.notices.all}
            return
        assert (ran.status, ran.out, ran.err) == (native.status, native.out, "")


NOT_KEPT_UNDER_ENGINE = {
    "call_raw": "system calls by instructions of the program's own are not carried",
    "call_instruction": "system calls by instructions of the program's own are not carried",
}
"""The same under the soft engine, of the programs below."""

TOLD_UNDER_ENGINE = {
    "call_exec_arguments": "lacks 16 programs of libtthread (not in them: no thunks)\n",  # their environment is its own
}
"""What is said of programs below, though they keep their promise."""

UNDER_ENGINE = [path for path in PROGRAMS if path.stem.startswith(("call_", "code_", "generated_"))]
"""Where an engine makes a difference: it has no vDSO, so that more calls find the kernel's view of memory, and it reads
code that a processor executes."""


@pytest.mark.parametrize("source", UNDER_ENGINE, ids=lambda path: path.stem)
def test_promise_is_kept_under_the_engine(source: Path, oracle: Oracle, tmp_path: Path,
                                          request: pytest.FixtureRequest) -> None:
    if source.stem in NOT_KEPT_UNDER_ENGINE:
        reason = NOT_KEPT_UNDER_ENGINE[source.stem]
        request.applymarker(pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True))
    native = oracle.native(source)
    done = ptweave("record", "-q", "-o", tmp_path / "run.ptw", "--", oracle.program(source))
    assert (done.status, done.out) == (native.status, native.out)
    assert done.err.endswith(TOLD_UNDER_ENGINE[source.stem]) if source.stem in TOLD_UNDER_ENGINE else not done.err


# --- controls: a promise that is not kept is noticed ---

BROKEN = {
    "int pthread_mutex_trylock(pthread_mutex_t *m) { (void)m; return 0; }": "mutex_normal",
    "int pthread_setname_np(pthread_t t, const char *n) { (void)t, (void)n; return 0; }": "names",
    "pid_t getpid(void) { return gettid(); }": "getpid_equality",
    "int pthread_key_create(pthread_key_t *k, void (*d)(void *)) {"
    " static int (*real)(pthread_key_t *, void (*)(void *));"
    " if (!real) real = (int (*)(pthread_key_t *, void (*)(void *)))dlsym(RTLD_NEXT, \"pthread_key_create\");"
    " (void)d; return real(k, NULL); }": "key_destructors",
    "size_t malloc_usable_size(void *p) { (void)p; return 0; }": "malloc_usable_size",
    "int pthread_sigmask(int h, const sigset_t *s, sigset_t *o) {"
    " (void)h, (void)s; if (o) sigemptyset(o); return 0; }": "sigmask",
    "ssize_t read(int f, void *b, size_t n) { (void)f, (void)b, (void)n; errno = EFAULT; return -1; }": "call_read",
    "void exit(int s) { (void)s; _exit(0); }": "exit_in_thread",
    "int pthread_join(pthread_t t, void **v) { (void)t; if (v) *v = NULL; return 0; }": "return_values",
}


@pytest.mark.parametrize("code", BROKEN, ids=BROKEN.values())
def test_a_broken_promise_is_noticed(code: str, oracle: Oracle, tmp_path: Path) -> None:
    """A preloaded library that breaks one promise; the program for that promise does not end as it should."""
    library = tmp_path / "broken.so"
    (tmp_path / "broken.c").write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n#include <pthread.h>\n#include <signal.h>\n"
        f"#include <unistd.h>\n{code}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", library, tmp_path / "broken.c"], check=True)
    source = FOLDER / f"{BROKEN[code]}.c"
    native = oracle.native(source)
    broken = run(NATIVE, tmp_path, ["env", f"LD_PRELOAD={library}", oracle.program(source)], timeout=TIMEOUT)
    assert (broken.status, broken.out, broken.err) != (native.status, native.out, native.err)


def test_a_program_that_does_not_end_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    with pytest.raises(TimedOut):
        run(NATIVE, tmp_path, ["sh", "-c", f"sleep 77 & echo $! > {tmp_path}/pid; wait"], timeout=0.5)
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 10
    while is_running(pid):  # it was killed; being gone takes a moment
        assert time.monotonic() < end
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except (FileNotFoundError, ProcessLookupError):
        return False
