# SPDX-License-Identifier: MIT
"""`ptweave dump` as a user meets it: first line at once, constant memory, quiet when nobody reads, right."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from ptweave.data import Bundle
from ptweave.decode.dump import Form
from ptweave.decode.flow import decode_flow
from support.assembler import assemble
from support.command import ptweave, words
from support.disassembly import mnemonic, objdump, registers
from support.dumping import flow_lines
from support.engine import compile_c, record_all
from support.pt_writer import PtWriter
from support.trace_bundle import TraceBundle

LARGE, SMALL = 150_000, 4_000  # long TNT packets, 47 blocks each
MULTIPLIER, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def make(folder: Path, packets: int, *, gap: bool = False) -> Path:
    """A decoded run of a loop of two instructions; `gap`: it ends in the middle of a packet."""
    code = assemble("loop: dec %eax\njnz loop\nsyscall", folder)
    writer = PtWriter().psb_plus(tsc=4000).mode_exec().pge(code["loop"])
    one = bytes(PtWriter().tnt_long("!" * 47).data)
    data = bytes(writer.data) + one * packets + bytes(PtWriter().tnt(".").pgd().data)
    bundle = TraceBundle(folder / "run.ptw").map(code.data, code.base).thread(
        data + (b"\x02" if gap else b""), finished=not gap).write()
    decode_flow(bundle)
    return bundle.path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("large"), LARGE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("small"), SMALL)


def peak(*args: str | Path) -> int:
    """Peak memory in KiB of a dump whose output goes nowhere."""
    process = subprocess.Popen(words("dump", *args), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0
    return usage.ru_maxrss


@pytest.mark.parametrize("form", ["--instructions", "--blocks", "--ip-only", "--packets", "--events"])
def test_the_first_line_comes_at_once(form: str, large: Path) -> None:
    """Within two seconds from the process's start; of its own, for others may be using the machine."""
    process = subprocess.Popen(words("dump", form, large), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline()
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    took = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    process.stdout.close()
    said = process.stderr.read()
    assert (process.wait(60), said) == (0, b"")
    assert took < 2


@pytest.mark.parametrize("form", ["--blocks", "--ip-only", "--packets"])
def test_memory_does_not_grow_with_the_run(form: str, large: Path, small: Path) -> None:
    few, many = peak(small, form), peak(large, form)
    assert many - few < 24 << 10, (few, many)


def test_addresses_come_by_the_million(large: Path) -> None:
    process = subprocess.Popen(words("dump", "--ip-only", large), stdout=subprocess.PIPE)
    assert process.stdout is not None
    size = 0
    while chunk := process.stdout.read(1 << 20):
        size += len(chunk)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0
    lines = size // 17
    assert lines == (47 * LARGE + 1) * 2 + 1
    assert lines / (usage.ru_utime + usage.ru_stime) > 4e6


def test_a_reader_that_stops_is_no_error(large: Path) -> None:
    shell = f"{' '.join(words('dump', str(large)))} | head -n 3; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 4
    assert done.stdout.splitlines()[-1] == "0"


def test_gaps_show_in_the_exit_status_and_where_they_are(tmp_path: Path) -> None:
    run = make(tmp_path, 10, gap=True)
    done = ptweave("dump", run)
    assert done.status == 1
    assert done.out.splitlines()[-1].startswith(b"-- gap: truncated: 1 bytes")
    assert done.err == ""
    done = ptweave("dump", "--ip-only", run)
    assert done.status == 1
    assert re.fullmatch(rb"([0-9a-f]{16}\n)+", done.out)
    assert done.lines == [f"ptweave: {run}: incomplete: gaps: 1 truncated"] == done.err.splitlines()
    assert ptweave("dump", "--ip-only", "--to", "5", run).status == 0
    assert ptweave("dump", "--packets", run).status == 1


def test_use_that_is_wrong_is_one_clear_line(small: Path, tmp_path: Path) -> None:
    code = assemble("syscall", tmp_path)
    raw = TraceBundle(tmp_path / "raw.ptw").map(code.data, code.base).thread(b"").write().path
    for args, said in (((str(raw),), f"run ptweave decode {raw} first"), ((str(tmp_path),), "it has no run.json"),
                       ((str(tmp_path / "none"),), "does not exist"),
                       ((str(small), "--from", "x"), "no place in a run"),
                       ((str(small), "--from", "99999999999"), "there is nothing of the run"),
                       ((str(small), "--thread", "0", "--ip-only", "--from", "1h"), "no place in a run"),
                       ((str(small), "--thread", "0", "--ip-only", "--from", "3000s"), "there is nothing of the run"),
                       ((str(small), "--thread", "9"), "has no thread 9"),
                       ((str(small), "--packets", "--from", "1ms"), "byte offset"),
                       ((str(small), "--packets", "--thread", "../0"), "has no trace"),
                       ((str(small), "--blocks", "--bytes"), "goes with --instructions")):
        done = ptweave("dump", *args)
        assert done.status == 2
        assert done.out == b""
        [line] = done.err.splitlines()
        assert said in line


def test_packets_need_no_decoding(tmp_path: Path) -> None:
    code = assemble("syscall", tmp_path)
    run = TraceBundle(tmp_path / "raw.ptw").map(code.data, code.base).thread(bytes(PtWriter().psb_plus().data)).write()
    done = ptweave("dump", "--packets", run.path)
    assert (done.status, done.out) == (0, b"0000000000000000  psb\n0000000000000010  psbend\n")


# --- a real program ---


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle, int, int]:
    """A static program, its decoded run, and what the engine logged: count and hash of its instructions."""
    folder = tmp_path_factory.mktemp("recorded")
    program = compile_c("bit_tests.c", folder, "-static", "-no-pie")
    recording = record_all([str(program)], folder, log=True)
    assert recording.status == 0
    decode_flow(recording.bundle)
    [(_, _, ran)] = recording.logs
    return program, recording.bundle, ran.count, ran.hash


def test_the_addresses_are_those_the_engine_logged(recorded: tuple[Path, Bundle, int, int]) -> None:
    _, bundle, count, expected = recorded
    done = ptweave("dump", "--ip-only", bundle.path)
    state = 0
    for line in done.out.splitlines():
        state = (state ^ int(line, 16)) * MULTIPLIER & MASK
        state ^= state >> 29
    assert (done.out.count(b"\n"), state) == (count, expected)
    assert count > 20_000


def test_sampled_instructions_are_what_binutils_says(recorded: tuple[Path, Bundle, int, int]) -> None:
    program, bundle, _, _ = recorded
    truth = objdump(program, "-d")
    shown = {int(line.split()[2], 16): line for line in flow_lines(bundle, Form.INSTRUCTIONS)[0]}
    checked = 0
    for ip in random.Random(7).sample(sorted(shown), min(3000, len(shown))):
        text = re.split(r"  +", shown[ip].strip())[3] if ip in truth else ""
        if not text or mnemonic(text).startswith(("rep", "movs", "stos", "cmps", "scas", "lods", "nop")):
            continue  # written too differently to compare
        _, theirs = truth[ip]
        assert (mnemonic(text), registers(text)) == (mnemonic(theirs), registers(theirs)), shown[ip]
        checked += 1
    assert checked > 1500


def test_times_do_not_go_back_and_functions_are_named(recorded: tuple[Path, Bundle, int, int]) -> None:
    _, bundle, _, _ = recorded
    lines, _ = flow_lines(bundle, Form.BLOCKS)
    stamps = [float(line.split()[1]) for line in lines if line.split()[1] != "-"]
    assert stamps == sorted(stamps)
    assert any(re.search(r" main\+0x0( |$)", line) for line in lines)


def test_the_same_run_gives_the_same_text(recorded: tuple[Path, Bundle, int, int]) -> None:
    _, bundle, _, _ = recorded
    digests = {hashlib.sha256(ptweave("dump", bundle.path).out).hexdigest() for _ in range(2)}
    assert len(digests) == 1


def test_what_takes_long_to_load_is_not_loaded(small: Path) -> None:
    program = ("import sys; from ptweave.cli import main; sys.stdout = open('/dev/null', 'w'); "
               "main(['dump', sys.argv[1], sys.argv[2]]); print(*sorted({'pandas', 'duckdb'} & set(sys.modules)), "
               "file=sys.stderr)")
    for form in ("--instructions", "--blocks", "--ip-only", "--packets", "--events"):
        done = subprocess.run([words()[0], "-c", program, str(small), form], capture_output=True, text=True, check=True)
        assert done.stderr == "\n", form
