# SPDX-License-Identifier: MIT
"""Threads as processes that load many libraries, with long names, or with many others: all threads have them and their
data, and where there is no room for more that is told."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ptweave.data.notices import NoticeKind
from support.command import ptweave
from support.modes import NATIVE, UNDER_LIBTTHREAD, Mode, process_mode, run
from support.programs import compile_program

ROOT = Path(__file__).resolve().parents[2]
MODE = process_mode("held", "shared")
EACH_MODE = pytest.mark.parametrize("mode", [MODE, process_mode("exact", "shared"), process_mode("held", "private")],
                                    ids=str)
NAME = b"libmember0000.so"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The program, and a library with one counter."""
    folder = tmp_path_factory.mktemp("many")
    program, library = folder / "many_libraries", folder / NAME.decode()
    flags = ("-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["gcc", *flags, "-o", program, ROOT / "tests/programs/many_libraries.c", "-pthread"], check=True)
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", f"-Wl,-soname,{NAME.decode()}", "-o", library, "-x", "c", "-"],
                   input=b"static int count; int bump(void) { return ++count; }", check=True)
    return program, library


def copies(library: Path, folder: Path, count: int) -> str:
    """So many of it, each with a name of its own; the pattern of their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    text = library.read_bytes()
    assert text.count(NAME) == 1
    for i in range(count):
        name = b"libmember%04d.so" % i
        (folder / name.decode()).write_bytes(text.replace(NAME, name))
    return f"{folder}/libmember%04d.so"


@EACH_MODE
@pytest.mark.parametrize("count", [100, 2300])
def test_all_threads_share_the_libraries_that_one_loads(built: tuple[Path, Path], tmp_path: Path, count: int,
                                                        mode: Mode) -> None:
    program, library = built
    pattern = copies(library, tmp_path / "libraries", count)
    ran = run(mode, tmp_path, [program, str(count), pattern])
    assert (ran.status, ran.out, ran.err) == (0, b"0 0 0\n", "")
    assert ran.traced is not None and not ran.traced.server.notices.all


def test_a_library_that_comes_with_hundreds_of_others_is_shared_with_all_of_them(built: tuple[Path, Path],
                                                                                tmp_path: Path) -> None:
    program, library = built
    pattern = copies(library, tmp_path / "libraries", 300)
    top = tmp_path / "libtop.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", top, "-Wl,--no-as-needed", "-x", "c", "/dev/null", "-x", "none",
                    *[pattern % i for i in range(300)], f"-Wl,-rpath,{tmp_path}/libraries"], check=True)
    ran = run(MODE, tmp_path, [program, "300", pattern, top])
    assert (ran.status, ran.out, ran.err) == (0, b"0 0 0\n", "")
    assert ran.traced is not None and not ran.traced.server.notices.all


@EACH_MODE
@pytest.mark.parametrize("shared", ["", "no_such_variable"])
def test_another_thread_may_have_the_environment_and_the_names_of_libraries(built: tuple[Path, Path], tmp_path: Path,
                                                                          mode: Mode, shared: str) -> None:
    """Both are in the program's heap: closed to the thread that loads."""
    program = compile_program(tmp_path, "environment_taken")
    pattern = copies(built[1], tmp_path / "libraries", 3)
    ran = run(mode, tmp_path, [program, *[pattern % i for i in range(3)]],
              env={"PTWEAVE_SHARED": shared} if shared else {})
    assert (ran.status, ran.out) == (0, b"1 1 1 to the heap\n")


@pytest.fixture(scope="module")
def private_libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two libraries with a counter each, of more than a stack's size: they lie where a stack would lie."""
    folder = tmp_path_factory.mktemp("private")
    libraries = [folder / "first.so", folder / "second.so"]
    for library in libraries:
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], check=True, input=b"""
            static int count; int bump(void) { return ++count; } const char large[200000] = {1};""")
    return libraries


def arguments_of(name: str, folder: Path, libraries: list[Path]) -> list[str | Path]:
    return [compile_program(folder, name), *(libraries if name == "loaded_by_a_thread" else [])]


EACH_PROGRAM = pytest.mark.parametrize("name", ["loaded_by_a_thread", "loads_by_itself", "locales_at_once"])
"""The first loads libraries in a thread, and others fork that have never called them; for the second the C library
loads some for two threads at a time, which wait for one another in it, as those of the third do."""


@EACH_PROGRAM
@EACH_MODE
def test_what_one_thread_loads_all_have_and_their_fork_children(name: str, private_libraries: list[Path],
                                                                tmp_path: Path, mode: Mode) -> None:
    arguments = arguments_of(name, tmp_path, private_libraries)
    native = run(NATIVE, tmp_path, arguments)
    assert native.status == 0 and native.out
    ran = run(mode, tmp_path, arguments)
    assert (ran.status, ran.out, ran.err) == (0, native.out, "")


@EACH_PROGRAM
@EACH_MODE
def test_the_same_under_the_engine_which_chooses_addresses_itself(name: str, private_libraries: list[Path],
                                                                  tmp_path: Path, mode: Mode) -> None:
    arguments = arguments_of(name, tmp_path, private_libraries)
    bundle = tmp_path / "run.ptw"
    ran = ptweave("record", "-q", "-o", bundle, "--engine", "soft", "--threads", "process", *mode.options(), "--",
                  *arguments)
    assert (ran.status, ran.out) == (0, run(NATIVE, tmp_path, arguments).out), ran.err


@pytest.fixture(scope="module")
def far_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Linked to lie 60 GiB up, where the engine puts it, near the end of what it gives programs."""
    library = tmp_path_factory.mktemp("far") / "libfar.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-Ttext-segment=0xf00000000", "-o", library, "-x", "c", "-"],
                   check=True, input=b"int far_away(void) { return 1; }")
    return library


@EACH_PROGRAM
def test_the_same_under_the_engine_with_a_library_that_lies_far_up(name: str, private_libraries: list[Path],
                                                                   far_library: Path, tmp_path: Path) -> None:
    flags = ("-Wl,--no-as-needed", str(far_library), f"-Wl,-rpath,{far_library.parent}")
    program = compile_program(tmp_path, name, flags=flags)
    arguments = [program, *(private_libraries if name == "loaded_by_a_thread" else [])]
    bundle = tmp_path / "run.ptw"
    ran = ptweave("record", "-q", "-o", bundle, "--engine", "soft", "--threads", "process", "--", *arguments)
    assert (ran.status, ran.out) == (0, run(NATIVE, tmp_path, arguments).out), ran.err


@EACH_PROGRAM
@EACH_MODE
@pytest.mark.parametrize("layout", [("setarch", "-L"), ("prlimit", "--stack=unlimited:unlimited")],
                         ids=["personality", "no limit of the stack"])
def test_the_same_where_the_kernel_looks_for_room_elsewhere(name: str, private_libraries: list[Path], tmp_path: Path,
                                                             mode: Mode, layout: tuple[str, str]) -> None:
    arguments = arguments_of(name, tmp_path, private_libraries)
    tool = shutil.which(layout[0])
    assert tool
    places = run(NATIVE, tmp_path, [tool, layout[1], "cat", "/proc/self/maps"]).out.decode()
    libc = next(line for line in places.splitlines() if "libc.so" in line)
    assert int(libc.partition("-")[0], 16) < 1 << 46  # it does: mostly they lie at the end
    ran = run(mode, tmp_path, [tool, layout[1], *arguments])
    assert (ran.status, ran.out, ran.err) == (0, run(NATIVE, tmp_path, arguments).out, "")


def test_libraries_with_long_paths_are_there_in_all_threads(built: tuple[Path, Path], tmp_path: Path) -> None:
    program, library = built
    folder = tmp_path.joinpath(*[letter * 200 for letter in "abcd"])
    ran = run(MODE, tmp_path, [program, "2", copies(library, folder, 2)])
    assert (ran.status, ran.out, ran.err) == (0, b"0 0 0\n", "")
    assert ran.traced is not None and not ran.traced.server.notices.all


@EACH_MODE
def test_a_library_whose_tables_lie_with_its_data_can_be_loaded(built: tuple[Path, Path], tmp_path: Path,
                                                                mode: Mode) -> None:
    """Without RELRO the dynamic section is in pages whose accesses are tracked."""
    program, _ = built
    library = tmp_path / "lib0.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-z,norelro", "-o", library, "-x", "c", "-"],
                   input=b"static int count; int bump(void) { return ++count; }", check=True)
    ran = run(mode, tmp_path, [program, "1", tmp_path / "lib%d.so"])
    assert (ran.status, ran.out, ran.err) == (0, b"0 0 0\n", "")


def test_more_libraries_than_there_is_room_for_are_refused_and_told(built: tuple[Path, Path], tmp_path: Path) -> None:
    """The control is above: 2300 have room. They are as small as can be, and have two mappings each."""
    program, _ = built
    folder, small = tmp_path / "libraries", tmp_path / "small.so"
    folder.mkdir()
    subprocess.run(["gcc", "-Os", "-s", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,noseparate-code,-z,norelro",
                    f"-Wl,-soname,{NAME.decode()}", "-o", small, "-x", "c", "-"],
                   input=b"static int count; int bump(void) { return ++count; }", check=True)
    text = small.read_bytes()
    for i in range(14500):
        (folder / f"{i}.so").write_bytes(text.replace(NAME, b"libmemb%05d.so" % i + b"\0"))
    ran = run(MODE, tmp_path, [program, "14500", f"{folder}/%d.so"], timeout=300)
    assert ran.status == 3 and "no room for more libraries" in ran.err
    assert ran.traced is not None
    assert [(one.kind, one.text) for one in ran.traced.server.notices.all] == [
        (NoticeKind.LIMIT, "no room for more libraries: dlopen fails")]


DEEP_LIBRARY = b"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int count;
void *add(void *unused) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        count++;
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}
char *change(char *text) {
    char *made = realloc(strdup(text), 100000);
    free(text);
    made[0] += count == 2000;
    return made;
}
"""
DEEP_PROGRAM = b"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[argc - 1], RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND);
    char *(*change)(char *) = library ? (char *(*)(char *))dlsym(library, "change") : NULL;
    void *(*add)(void *) = library ? (void *(*)(void *))dlsym(library, "add") : NULL;
    pthread_t threads[2];
    for (int i = 0; add && i < 2; i++) if (pthread_create(&threads[i], NULL, add, NULL)) return 2;
    for (int i = 0; add && i < 2; i++) if (pthread_join(threads[i], NULL)) return 3;
    char *text = strdup("aye");
    for (int i = 0; change && text && i < 3; i++) text = change(text);
    puts(text ? text : "none");
    free(text);
    return !change;
}
"""


def test_a_library_that_prefers_the_names_of_what_it_needs_has_those_of_libtthread(tmp_path: Path) -> None:
    """Which is told; natively the C library's functions are found either way."""
    program, library = tmp_path / "deep", tmp_path / "libdeep.so"
    subprocess.run(["gcc", "-o", program, "-x", "c", "-", "-pthread"], input=DEEP_PROGRAM, check=True)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, "-x", "c", "-", "-pthread"], input=DEEP_LIBRARY,
                   check=True)
    native = run(NATIVE, tmp_path, [program, library])
    assert (native.status, native.out) == (0, b"dye\n")
    for mode in UNDER_LIBTTHREAD:
        ran = run(mode, tmp_path, [program, library], name=mode.name.replace(" ", "-"))
        assert (ran.status, ran.out, ran.err) == (0, b"dye\n", ""), mode
        assert ran.traced is not None
        told, = ran.traced.server.notices.all
        assert told.kind is NoticeKind.SCOPE and told.text.startswith("RTLD_DEEPBIND is left out"), mode


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A program that loads a library by its name alone, from where its own search path (RUNPATH) says."""
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libkept.so", "-x", "c", "-"], check=True,
                   input=b"static int sum; int add(int number) { return sum += number; }")
    return compile_program(tmp_path, "used_before_it_is_shared", flags=[f"-Wl,-rpath,{tmp_path}"])


@pytest.mark.parametrize("mode", [Mode("native", traced=True), process_mode("held", "shared"),
                                  process_mode("exact", "shared")], ids=str)
def test_a_library_is_found_by_its_callers_search_path_and_its_data_seen_by_who_used_it_early(mode: Mode, kept: Path,
                                                                                              tmp_path: Path) -> None:
    """The process of who used it before it was shared had a copy of the data as they were then. (In the private view
    the two would wait for ever.)"""
    ran = run(mode, tmp_path, [kept])
    assert (ran.status, ran.out, ran.err) == (0, b"before 1\nafter 6\n", "")
    assert run(NATIVE, tmp_path, [kept]).out == ran.out


FIRST_LIBRARY = b"""
#include <dlfcn.h>
#include <pthread.h>
static int counted;
int ready;
static void *count(void *unused) { counted++; return unused; }
__attribute__((constructor)) static void begin(void) {
    void *program = dlopen(0, RTLD_LAZY);
    pthread_t thread;
    if (!program || pthread_create(&thread, 0, count, 0) || pthread_join(thread, 0)) return;
    ready = counted;
}
"""
SECOND_LIBRARY = b"""
extern int ready;
static int seen;
__attribute__((constructor)) static void begin(void) { seen = ready; }
int was_ready(void) { return seen; }
"""
ORDERED_PROGRAM = b"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
static void *same(void *given) { return given; }
int main(int argc, char **argv) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, same, NULL) || pthread_join(thread, NULL)) return 2;
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    int (*was_ready)(void) = library ? (int (*)(void))dlsym(library, "was_ready") : NULL;
    return was_ready ? printf("ready: %d\\n", was_ready()) < 0 : 1;
}
"""


@pytest.mark.parametrize("named", ["by its path", "by its name"])
def test_a_constructor_that_loads_and_makes_threads_is_over_before_that_of_who_needs_its_library(named: str,
                                                                                                tmp_path: Path) -> None:
    """libGLdispatch's asks for the program itself. What is loaded by its name may be searched for where the caller
    says: then it is shared later."""
    program = tmp_path / "ordered"
    for name, text, more in (("first", FIRST_LIBRARY, []), ("second", SECOND_LIBRARY, ["-lfirst"]),
                             ("plugin", b"int was_ready(void);", ["-Wl,--no-as-needed", "-lsecond"])):
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / f"lib{name}.so", "-x", "c", "-", "-pthread",
                        f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}", *more], input=text, check=True)
    subprocess.run(["gcc", "-o", program, "-x", "c", "-", f"-Wl,-rpath,{tmp_path}"], input=ORDERED_PROGRAM, check=True)
    library = "libplugin.so" if named == "by its name" else tmp_path / "libplugin.so"
    native = run(NATIVE, tmp_path, [program, library])
    assert (native.status, native.out) == (0, b"ready: 1\n")
    for mode in UNDER_LIBTTHREAD:
        ran = run(mode, tmp_path, [program, library], name=mode.name.replace(" ", "-"))
        assert (ran.status, ran.out, ran.err) == (0, b"ready: 1\n", ""), mode
