# SPDX-License-Identifier: MIT
"""What the soft engine's packets say ran is what ran: every instruction, in order, in every thread.

Two oracles that know nothing of packets: the processor, a single step at a time (programs without a library), and
the engine's own log of instructions, kept apart from its encoder (programs of every size). libipt decodes.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ptweave.data.sideband import read_sideband
from support.engine import Ran, check_exact, compile_c, decode, record_all, system_calls, threads

BARE = ("-nostdlib", "-static", "-no-pie", "-fno-stack-protector", "-fcf-protection=none")


def single_steps(argv: list[str], folder: Path) -> list[Ran]:
    """What the processor says ran, in each process and image."""
    done = subprocess.run([compile_c("ptrace_log.c", folder), *argv], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("count ")]
    return [Ran(int(words[1]), int(words[3], 16)) for words in lines]


@pytest.mark.parametrize("arguments", [["second"], []], ids=["alone", "fork and exec"])
@pytest.mark.parametrize("options", [(), ("--pt-ret=no",), ("--pt-psb-kb=1",)], ids=["", "uncompressed", "small psb"])
def test_bare_program_ran_as_the_processor_runs_it(tmp_path: Path, arguments: list[str],
                                                   options: tuple[str, ...]) -> None:
    program = compile_c("bare.c", tmp_path, *BARE)
    native = single_steps([str(program), *arguments], tmp_path)
    recording = record_all([str(program), *arguments], tmp_path, log=True, options=options)
    assert recording.status == 0
    assert recording.stdout == b"hi\n" * (2 - len(arguments))
    decoded = check_exact(recording, tmp_path)
    assert Counter(one.ran for one in decoded) == Counter(native)
    assert len(decoded) == 3 - 2 * len(arguments)


def test_bare_program_made_the_calls_that_strace_sees(tmp_path: Path) -> None:
    program = compile_c("bare.c", tmp_path, *BARE)
    traced = subprocess.run(["strace", "-n", "-o", tmp_path / "strace", program, "second"], check=True,
                            stdout=subprocess.DEVNULL)
    assert traced.returncode == 0
    lines = (tmp_path / "strace").read_text().splitlines()
    native = [int(line.split("]")[0].strip("[ ")) for line in lines
              if line.startswith("[") and "] --- " not in line and "] +++ " not in line]
    recording = record_all([str(program), "second"], tmp_path)
    log = system_calls(recording.bundle, 0)
    assert native[0] == 59  # strace sees the exec that began it
    assert native[1:] == log["number"].tolist()
    getpid = log[log["number"] == 39]
    assert len(set(getpid["result"].tolist())) == 1
    assert (log["tsc_exit"][:-1] >= log["tsc_enter"][:-1]).all()
    assert log["tsc_exit"][-1] == 0  # exit_group never returns
    answered = {int(number): bool(flags & 1) for number, flags in zip(log["number"], log["flags"], strict=True)}
    assert not answered[10] and not answered[39]  # mprotect and getpid are the kernel's
    assert answered[13]  # the engine keeps signal handlers itself


PROGRAMS: dict[str, tuple[str, list[str], bytes]] = {
    "signals": ("signals.c", [],
                b"jumps 70 skipped 20 traps 10 repaired 10 wrong 0 interrupted 1 alarms 1 received 1\n"),
    "forks": ("forks.c", ["refuse"], b"forks 1\nclones 1\nrefused 1\nspawned\nvforked\nexecutes 1\n"),
    "four threads": ("four_threads.c", ["300"], b""),
    "faults in the middle": ("rep_faults.c", [],
                             b"copies 0 strings 0 directions 0 registers 0 loads 0 pushes 0 faults 1\n"),
    "code in memory": ("jit.c", [], b"anonymous 0 patched 0 views 0 threads 0 children 0\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_decodes_to_what_the_engine_logged(tmp_path: Path, name: str) -> None:
    source, arguments, output = PROGRAMS[name]
    program = compile_c(source, tmp_path, "-pthread")
    recording = record_all([str(program), *arguments], tmp_path, log=True)
    assert recording.status == 0
    assert recording.stderr == b""
    assert recording.messages == ""
    if output:
        assert recording.stdout == output
    check_exact(recording, tmp_path)
    assert recording.bundle.ledger().losses == []


@pytest.mark.parametrize("options", [("--pt-ret=no",), ("--pt-psb-kb=1",)], ids=["uncompressed", "small psb"])
def test_threads_decode_with_other_encodings(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = compile_c("four_threads.c", tmp_path, "-pthread")
    check_exact(record_all([str(program), "60"], tmp_path, log=True, options=options), tmp_path)


def gzip_input(folder: Path) -> Path:
    """Text of a few MB that compresses like text."""
    words = [f"{i * 7919 % 65521:x}" for i in range(3000)]
    file = folder / "text"
    file.write_text(" ".join(words[i * i % 2999] for i in range(400_000)))
    return file


TOOLS: dict[str, list[str]] = {
    "ls": ["ls", "-lR", "/usr/share/doc/bash"],
    "gzip": ["gzip", "-c", "TEXT"],
    "python3": ["/usr/bin/python3", "-c", "import json; print(sum(len(json.dumps(i)) for i in range(3000)))"],
    "sqlite3": ["sqlite3", ":memory:", "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 "
                "from n where i < 5000) insert into t select i, i * i % 97 from n; "
                "select b, count(*) from t group by b order by 2 desc limit 3;"],
    "a pipeline": ["sh", "-c", "ls /usr/bin | sort -r | head -3 | wc -l; exec echo done"],
}


@pytest.mark.parametrize("name", TOOLS)
def test_tool_decodes_to_what_the_engine_logged(tmp_path: Path, name: str) -> None:
    argv = TOOLS[name]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    argv = [str(gzip_input(tmp_path)) if word == "TEXT" else word for word in argv]
    native = subprocess.run(argv, capture_output=True, check=False)
    recording = record_all(argv, tmp_path, log=True)
    assert (recording.status, recording.stdout, recording.stderr) == (native.returncode, native.stdout, native.stderr)
    check_exact(recording, tmp_path)
    assert recording.bundle.ledger().losses == []


def test_libraries_that_take_each_others_place(tmp_path: Path) -> None:
    libraries = [compile_c("reload_library.c", tmp_path, "-shared", "-fPIC", f"-DKIND={kind}", name=f"lib{kind}.so")
                 for kind in (1, 2)]
    program = compile_c("reload.c", tmp_path)
    recording = record_all([str(program), *map(str, libraries)], tmp_path, log=True)
    assert recording.stdout.endswith(b"same 1\n")  # else this tests nothing
    check_exact(recording, tmp_path)
    epochs = {row["epoch"] for row in read_sideband(recording.bundle.sideband).to_pylist() if row["kind"] == "slice"}
    assert len(epochs) > 5


# --- controls: the checks notice -----------------------------------------------------------------------------------

def test_control_a_changed_packet_is_noticed(tmp_path: Path) -> None:
    program = compile_c("four_threads.c", tmp_path, "-pthread")
    recording = record_all([str(program), "20"], tmp_path, log=True)
    check_exact(recording, tmp_path)
    trace = recording.bundle.trace / "1.pt"
    data = bytearray(trace.read_bytes())
    good = decode(recording.bundle, 1, tmp_path)[0]
    noticed = 0
    places = range(len(data) // 4, len(data) // 4 + 40)
    for at in places:
        trace.write_bytes(data[:at] + bytes([data[at] ^ 0x04]) + data[at + 1:])
        other = decode(recording.bundle, 1, tmp_path)[0]
        noticed += other.errors > 0 or other.ran != good.ran
    assert noticed >= len(places) - 8  # a bit of a time stamp changes nothing that ran


def test_control_changed_code_is_noticed(tmp_path: Path) -> None:
    program = compile_c("four_threads.c", tmp_path, "-pthread")
    recording = record_all([str(program), "20"], tmp_path, log=True)
    rows = read_sideband(recording.bundle.sideband).to_pylist()
    row = next(row for row in rows if row["kind"] == "map" and row["path"] == str(program))
    image = recording.bundle.images / row["image"]
    data = bytearray(image.read_bytes())
    text = slice(row["offset"], row["offset"] + row["size"])
    data[text] = b"\x90" * row["size"]
    image.write_bytes(data)
    with pytest.raises(AssertionError):
        check_exact(recording, tmp_path)


def test_control_a_missing_call_is_noticed(tmp_path: Path) -> None:
    recording = record_all(["/bin/true"], tmp_path, log=True)
    check_exact(recording, tmp_path)
    calls = recording.bundle.trace / "0.sys"
    data = calls.read_bytes()
    calls.write_bytes(data[:96] + data[192:])
    with pytest.raises(AssertionError):
        check_exact(recording, tmp_path)


def test_control_lost_epochs_are_noticed(tmp_path: Path) -> None:
    """Decoded with the code of the first epoch throughout, libraries that take each other's place do not decode."""
    libraries = [compile_c("reload_library.c", tmp_path, "-shared", "-fPIC", f"-DKIND={kind}", name=f"lib{kind}.so")
                 for kind in (1, 2)]
    recording = record_all([str(compile_c("reload.c", tmp_path)), *map(str, libraries)], tmp_path, log=True)
    first = next(iter(threads(recording.bundle)))
    good = decode(recording.bundle, first, tmp_path)[0]
    lib1, lib2 = (row["image"] for row in read_sideband(recording.bundle.sideband).to_pylist()
                  if row["kind"] == "map" and row["path"] in map(str, libraries) and row["epoch"] < 2)
    shutil.copy(recording.bundle.images / lib1, recording.bundle.images / lib2)
    bad = decode(recording.bundle, first, tmp_path)[0]
    assert bad.errors > 0 or bad.ran != good.ran
