# SPDX-License-Identifier: MIT
"""Probes on code that is awkward to move: every hit is there, the program says what it says without them, and what
cannot be probed is refused with its reason."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ptweave.cli.code import load_code
from ptweave.data import BadInput
from ptweave.merge import Run
from ptweave.wrapper.probes.search import find_addresses
from ptweave.wrapper.probes.sites import Refusal, examine_site
from ptweave.wrapper.probes.spec import parse_spec
from support.command import ptweave
from support.probed import run_probed

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
COUNT, THREADS = 50, 2
FUNCTIONS = ("relative", "branches", "counted", "calling", "calling_stack", "marked", "floating", "named")

HANDLER = """
#include <ptweave/probe.h>
void on_named(struct ptweave_hit *hit)
{
	ptweave_add_string(hit, "text", (const char *)ptweave_arg(hit, 0));
	ptweave_add_i64(hit, "number", (long)ptweave_arg(hit, 1));
	ptweave_add_stack(hit);
}
void crashes(struct ptweave_hit *hit)
{
	*(volatile int *)8 = (int)ptweave_arg(hit, 0);
}
extern long named(const char *, long) __attribute__((weak));
void recurses(struct ptweave_hit *hit)
{
	long (*again)(const char *, long) = (long (*)(const char *, long))hit->registers->rip;
	ptweave_add_i64(hit, "again", again("x", 1));
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("probed") / "probed"
    subprocess.run(["gcc", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o", out, ROOT / "tests/programs/probed.c",
                    "-pthread"], check=True)
    return out


@pytest.fixture(scope="module")
def handler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("handler") / "handler.c"
    out.write_text(HANDLER)
    return out


def native(program: Path) -> bytes:
    return subprocess.run([program, str(COUNT), str(THREADS)], capture_output=True, check=True).stdout


def expected(functions: tuple[str, ...] = FUNCTIONS) -> Counter[str]:
    each = COUNT * (THREADS + 1)
    return Counter({name: each * 3 if name == "relative" else each for name in functions})


@pytest.mark.parametrize("mode", ["native", "process"])
@pytest.mark.parametrize("what", ["log", "args", "stack", "time", "return"])
def test_every_hit_is_there_and_nothing_else_changes(program: Path, tmp_path: Path, what: str, mode: str) -> None:
    given = [("--handler", what), *(("--probe", name) for name in FUNCTIONS)]
    probed = run_probed(tmp_path, given, [program, str(COUNT), str(THREADS)], env={"PTWEAVE_THREADS": mode})
    assert probed.traced.out == native(program)
    assert (probed.traced.status, probed.traced.err) == (0, "")
    assert probed.counts() == expected()
    assert not sum(probed.traced.ledger["events"].lost.values())
    numbers = {hit.hit: hit.function for hit in probed.plan.hits}
    rows = [row for row in probed.rows() if numbers[row["hit"]] == "named"]
    if what == "args":
        assert Counter(row["args"][1] for row in rows) == Counter(dict.fromkeys(range(COUNT), THREADS + 1))
    if what == "return":
        assert Counter(row["result"] for row in rows) == Counter({i + 4: THREADS + 1 for i in range(COUNT)})
    if what == "time":
        assert all(row["ticks"] > 0 for row in rows)


@pytest.mark.parametrize("what", ["log", "args"])
def test_no_hit_is_lost_while_threads_make_threads(tmp_path: Path, what: str) -> None:
    """Each process of a new thread begins a new epoch of the event vector; who made it must not notice."""
    program = tmp_path / "nested_hits"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, ROOT / "tests/programs/nested_hits.c",
                    "-pthread"], check=True)
    probed = run_probed(tmp_path, [("--handler", what), ("--probe", "struck")], [program, "24"],
                        env={"PTWEAVE_THREADS": "process"})
    assert (probed.traced.status, probed.traced.err) == (0, "")
    calls = int(probed.traced.out)
    assert calls > 1000, "main called the function while threads were made"
    account = probed.traced.ledger["events"]
    assert (account.produced, account.stored, sum(account.lost.values())) == (calls, calls, 0)
    assert probed.counts() == {"struck": calls}


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program, and a library that one of its threads loads."""
    folder = tmp_path_factory.mktemp("later")
    program, library = folder / "probe_later", folder / "libprobe_later.so"
    flags = ("-O2", "-g", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["gcc", *flags, "-o", program, ROOT / "tests/programs/probe_later.c", "-pthread"], check=True)
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-o", library, ROOT / "tests/programs/probe_later_library.c"],
                   check=True)
    return program, library


LATER_HITS = Counter({1: 100, 2: 100, 3: 100, 4: 100, 5: 200, 6: 200})
"""By who called, as tests/programs/probe_later.c numbers them; fork children call twice."""


@pytest.mark.parametrize("mode", ["native", "process"])
@pytest.mark.parametrize("words", [(), ("ends",)])
def test_a_library_that_a_thread_loads_is_probed_in_every_thread(later: tuple[Path, Path], tmp_path: Path,
                                                                 words: tuple[str, ...], mode: str) -> None:
    program, library = later
    given = [("--handler", "args"), ("--probe", f"{library}:struck")]
    command: list[str | Path] = [program, library, "100", *words]
    alone = subprocess.run(command, capture_output=True, check=True).stdout
    probed = run_probed(tmp_path, given, command, env={"PTWEAVE_THREADS": mode})
    assert (probed.traced.status, probed.traced.out, probed.traced.err) == (0, alone, "")
    assert Counter(row["args"][0] for row in probed.rows()) == LATER_HITS
    assert not sum(probed.traced.ledger["events"].lost.values()) and not probed.traced.server.notices.all


@pytest.mark.parametrize("mode", ["native", "process"])
def test_the_soft_engine_has_the_hits_of_a_library_that_a_thread_loads_and_decodes_them(
        later: tuple[Path, Path], tmp_path: Path, mode: str) -> None:
    program, library = later
    bundle = tmp_path / "run.ptw"
    done = ptweave("wrap", "-o", bundle, "--threads", mode, "--handler", "args", "--probe", f"{library}:struck", "--",
                   program, library, "100")
    assert done.status == 0, done.err
    with Run(bundle) as run:
        rows = run.sql("select args[1] as who from probes").arrow().to_pylist()
        assert Counter(row["who"] for row in rows) == LATER_HITS
        blocks = run.sql("select count(*) as n from flow_blocks join blocks using (block) where function = 'struck' "
                         "and function_offset = 0").arrow().to_pylist()
        assert blocks == [{"n": 800}], "the flow shows the patched function as often"
        assert run.sql("select * from gaps").arrow().num_rows == 0


def test_a_probe_amid_a_function_keeps_flags_and_what_lies_below_the_stack_pointer(
        program: Path, tmp_path: Path) -> None:
    for what in ("log", "args"):
        probed = run_probed(tmp_path, [("--handler", what), ("--probe", "red_zone_middle")],
                            [program, str(COUNT), str(THREADS)], name=what)
        assert probed.traced.out == native(program)
        assert probed.counts() == {"red_zone": COUNT * (THREADS + 1)}


def test_what_cannot_be_probed_says_why(program: Path) -> None:
    code = load_code(program)
    reasons = {}
    for name in ("tiny", "looped"):
        outcome = examine_site(code, code.symbols[name][0])
        assert isinstance(outcome, Refusal)
        reasons[name] = outcome.reason
    assert "shorter than the five bytes" in reasons["tiny"]
    assert "something jumps to" in reasons["looped"]
    amid = examine_site(code, code.symbols["relative"][0] + 1)
    assert isinstance(amid, Refusal) and "in the middle of an instruction" in amid.reason


@pytest.mark.parametrize(("spec", "message"), [
    ("tiny", "shorter than the five bytes"), ("relative+1", "in the middle of an instruction"),
    ("no_such_function", "found nowhere"), ("libnone.so:f", "has no library"), ("", "is no place"),
    ("/no/such/file+0x10", "does not exist"), ("probed.c:99999", "found nowhere")])
def test_a_wrong_probe_is_one_line_and_nothing_runs(program: Path, tmp_path: Path, spec: str, message: str) -> None:
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--probe", spec, "--", program, "1")
    assert done.status == 2
    assert message in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "run.ptw").exists()


@pytest.mark.parametrize(("text", "message"), [
    ("int f(", "does not compile"), ("static void f(void) {}", "has no function f")])
def test_a_handler_that_cannot_be_used_is_one_line(program: Path, tmp_path: Path, text: str, message: str) -> None:
    source = tmp_path / "bad.c"
    source.write_text(text)
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--handler", f"{source}:f", "--probe", "named", "--", program)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert message in done.err
    assert not (tmp_path / "run.ptw").exists()


@pytest.mark.parametrize("mode", ["native", "process"])
def test_a_handler_that_crashes_costs_its_probe_and_not_the_program(program: Path, handler: Path, tmp_path: Path,
                                                                     mode: str) -> None:
    given = [("--handler", f"{handler}:crashes"), ("--probe", "named"), ("--handler", "log"), ("--probe", "marked")]
    probed = run_probed(tmp_path, given, [program, str(COUNT), str(THREADS)], env={"PTWEAVE_THREADS": mode})
    assert (probed.traced.status, probed.traced.out) == (0, native(program))
    counts = probed.counts()
    assert counts["marked"] == COUNT * (THREADS + 1)
    assert 1 <= counts["named"] <= THREADS + 1
    assert "the handler of a probe crashed" in str(probed.traced.server.notices.all)


def test_a_handler_that_runs_into_its_own_probe_is_not_called_again(program: Path, handler: Path,
                                                                    tmp_path: Path) -> None:
    probed = run_probed(tmp_path, [("--handler", f"{handler}:recurses"), ("--probe", "named")], [program, str(COUNT)])
    assert (probed.traced.status, probed.counts()) == (0, {"named": COUNT})
    assert probed.traced.ledger["events"].lost == {"no room": COUNT}, "hits within a handler are counted"


@pytest.mark.parametrize("mode", ["native", "process"])
def test_a_recorded_run_has_its_hits_in_tables_and_its_patched_code_decodes(program: Path, handler: Path,
                                                                            tmp_path: Path, mode: str) -> None:
    bundle = tmp_path / "run.ptw"
    done = ptweave("wrap", "-o", bundle, "--threads", mode, "--handler", f"{handler}:on_named", "--probe", "named",
                   "--handler", "log", *(word for name in FUNCTIONS[:-1] for word in ("--probe", name)),
                   "--probe", "libc.so.6:str*", "--", program, str(COUNT), str(THREADS))
    assert (done.status, done.out) == (0, native(program)), done.err
    with Run(bundle) as run:
        def ask(query: str) -> list[tuple[Any, ...]]:
            return [tuple(row.values()) for row in run.sql(query).arrow().to_pylist()]

        assert ask("select count(*) from gaps") == [(0,)]
        rows = ask("select data['text'], cast(data['number'] as bigint), functions[1:2] from probes "
                       "where function = 'named'")
        seen = Counter((text, number) for text, number, _ in rows)
        assert seen == Counter({("four", i): THREADS + 1 for i in range(COUNT)})
        assert all(stack[0] == "named" for _, _, stack in rows)
        each = COUNT * (THREADS + 1)
        assert ask("select count(*) from probes where function = 'calling'") == [(each,)]
        blocks = ask("select sum(n) from (select count(*) n from flow_blocks join blocks using (block) "
                     "where function = 'calling' and function_offset = 0)")
        assert blocks == [(each,)], "the flow shows the patched function as often"
        assert ask("select count(*) from probe_sites where site is null and reason = ''") == [(0,)]


PATTERNS = ("mov rax, [rdi+?]; call ?", "xor eax, eax; ret", "push rbp; mov rbp, rsp", "test rax, rax; je ?; mov ?, ?")


@pytest.mark.parametrize("library", ["libz.so.1", "libm.so.6", "libexpat.so.1"])
def test_a_sequence_of_instructions_is_found_where_objdump_shows_it(library: str) -> None:
    path = (LIBRARIES / library).resolve()
    if not path.exists():
        pytest.skip(f"{path} is not installed")
    code = load_code(path)
    listing = _objdump(path)
    found_any = 0
    for pattern in PATTERNS:
        steps = [_grep(step.strip()) for step in pattern.split(";")]
        wanted = [listing[i][0] for i in range(len(listing) - len(steps) + 1)
                  if all(step.fullmatch(listing[i + j][1]) for j, step in enumerate(steps))
                  and all(listing[i + j][0] + listing[i + j][2] == listing[i + j + 1][0]
                          for j in range(len(steps) - 1))]
        assert find_addresses(code, parse_spec(pattern)) == wanted, pattern
        found_any += len(wanted)
    assert found_any > 0, "nothing was found: the test shows nothing"


def _objdump(path: Path) -> list[tuple[int, str, int]]:
    """Address, text (as patterns are written) and length of each instruction."""
    done = subprocess.run(["objdump", "-d", "-M", "intel", "-w", path], capture_output=True, text=True, check=True)
    found = []
    for line in done.stdout.splitlines():
        parts = line.split("\t")
        if len(parts) == 3 and re.fullmatch(r"\s*[0-9a-f]+:", parts[0]):
            text = " ".join(parts[2].split("#")[0].split())
            text = re.sub(r"\b(?:[A-Z]+ )+PTR ", "", re.sub(r" <.*>", "", text))
            found.append((int(parts[0].strip(" :"), 16), text, len(parts[1].split())))
    return found


def _grep(step: str) -> re.Pattern[str]:
    name, _, operands = step.partition(" ")
    words = [{"?": r"[^,]+"}.get(part.strip(), re.escape(part.strip()).replace(r"\?", r"[^,\]]*"))
             for part in operands.split(",")] if operands else []
    return re.compile(re.escape(name) + (" " + ",".join(words) if words else ""))


def test_bytes_are_found_wherever_they_are_in_code(program: Path) -> None:
    code = load_code(program)
    place = code.symbols["marked"][0]
    raw = code.bytes(place, 8)
    pattern = " ".join("??" if i == 5 else f"{byte:02x}" for i, byte in enumerate(raw))
    data = bytes(next(one.data for one in code.stretches if one.code and one.address <= place < one.end))
    base = next(one.address for one in code.stretches if one.code and one.address <= place < one.end)
    wanted = [base + i for i in range(len(data) - 7)
              if all(data[i + j] == raw[j] for j in range(8) if j != 5)]
    assert find_addresses(code, parse_spec(pattern)) == wanted
    assert find_addresses(code, parse_spec("after " + pattern)) == [one + 8 for one in wanted]
    assert place in wanted


def test_the_list_shows_function_and_instructions(program: Path) -> None:
    done = ptweave("probe", "--list", "calling", program)
    assert (done.status, done.err) == (0, "")
    assert b"calling+0x0  ok" in done.out and b"call 0x" in done.out
    refused = ptweave("probe", "--list", "tiny", program)
    assert refused.status == 1 and b"refused: the function is shorter" in refused.out


def test_a_program_that_is_given_as_a_relative_path_has_its_libraries(program: Path, tmp_path: Path) -> None:
    whole = ptweave("probe", "--list", "libc.so.6:qsort", "--no-instructions", program)
    assert whole.status == 0 and b"libc.so.6+0x" in whole.out
    for given in (f"./{program.name}", program.name):
        done = ptweave("probe", "--list", "libc.so.6:qsort", "--no-instructions", given, cwd=program.parent)
        assert (done.status, done.out, done.err) == (0, whole.out, "")
    run = tmp_path / "run.ptw"
    recorded = ptweave("record", "-q", "-o", run, "--probe", "libc.so.6:qsort", "--watch", "stdout",
                       "--engine", "soft", "--", f"./{program.name}", "1", cwd=program.parent)
    assert (recorded.status, recorded.err) == (0, "")
    assert ptweave("merge", "-q", run).status == 0
    for table in ("probe_sites", "watch_sites"):
        places = ptweave("query", run, f"select path from {table}", "--format", "csv").out
        assert places.splitlines()[1].strip(b'"').endswith(b"/libc.so.6")


@pytest.mark.parametrize("given", [("--probe", "main"), ("--watch", "counter")])
def test_a_program_that_its_loader_refuses_is_one_line_that_says_why(tmp_path: Path, given: tuple[str, str]) -> None:
    (tmp_path / "lib.c").write_text("int f(void) { return 1; }\n")
    (tmp_path / "main.c").write_text("int f(void); int counter; int main(void) { return counter = f(); }\n")
    library, program = tmp_path / "libmissing.so", tmp_path / "refused"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "lib.c"], check=True)
    subprocess.run(["gcc", "-o", program, tmp_path / "main.c", library, f"-Wl,-rpath,{tmp_path}"], check=True)
    assert ptweave("probe", "--list", "main", program).status == 0
    library.unlink()
    for words in (("probe", "--list", "main", program),
                  ("record", "-o", tmp_path / "run.ptw", *given, "--", program)):
        done = ptweave(*words)
        assert (done.status, done.out, done.err.count("\n")) == (3, b"", 1)
        assert "refused: the loader does not list its libraries (" in done.err and "libmissing.so" in done.err
    assert not (tmp_path / "run.ptw").exists()


def test_of_a_static_program_its_own_code_is_listed(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", "-o", tmp_path / "static", tmp_path / "main.c"], check=True)
    done = ptweave("probe", "--list", "malloc", "--no-instructions", tmp_path / "static")
    assert (done.status, done.err) == (0, "")
    assert [line.split(b"+0x")[0] for line in done.out.splitlines()] == [bytes(tmp_path / "static")]


def test_an_ambiguous_name_is_an_error_that_names_the_places(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("static __attribute__((noinline, used)) int f(int a) { return a * 3 + 1; }\n"
                                  "int one(int a) { return f(a) + 2; }\n")
    (tmp_path / "b.c").write_text("static __attribute__((noinline, used)) int f(int a) { return a * 5 + 1; }\n"
                                  "int one(int); int main(void) { return f(1) + one(2) != 15; }\n")
    out = tmp_path / "two"
    subprocess.run(["gcc", "-O1", "-o", out, tmp_path / "a.c", tmp_path / "b.c"], check=True)
    with pytest.raises(BadInput, match=r"is ambiguous: .*two\+0x[0-9a-f]+, .*two\+0x"):
        run_probed(tmp_path, [("--probe", "f")], [out])
