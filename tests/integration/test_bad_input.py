# SPDX-License-Identifier: MIT
"""What goes wrong is one clear line, a documented status, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command import compile_c, engine_processes, ptweave, words

PROGRAM = "int main(void) { return 0; }\n"


@pytest.fixture(autouse=True)
def leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as place:  # short: a socket's path has little room
        monkeypatch.setenv("TMPDIR", place)
        yield
        end = time.monotonic() + 5
        while (os.listdir(place) or engine_processes(tmp_path)) and time.monotonic() < end:
            time.sleep(0.05)
        assert os.listdir(place) == []
        assert engine_processes(tmp_path) == set()


def one_line(err: str) -> str:
    lines = [line for line in err.splitlines() if line]
    assert len(lines) == 1, err
    assert lines[0].startswith("ptweave: ")
    return lines[0]


def refused(tmp_path: Path, command: str | Path, status: int, *wanted: str) -> None:
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--", command)
    assert done.status == status
    line = one_line(done.err)
    for text in wanted:
        assert text in line
    assert not (tmp_path / "run.ptw").exists()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    return compile_c(source, tmp_path / "program")


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    refused(tmp_path, "no-such-command-here", 2, "no-such-command-here", "not found")
    refused(tmp_path, "./no/such/file", 2, "./no/such/file", "does not exist")


def test_a_command_that_is_not_executable(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    refused(tmp_path, plain, 2, "not executable")


def test_a_command_that_is_a_directory(tmp_path: Path) -> None:
    refused(tmp_path, tmp_path, 2, "directory")


def test_a_command_that_is_no_program(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("just text\n")
    text.chmod(0o755)
    refused(tmp_path, text, 2, "not a program")


def test_a_script_whose_interpreter_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    refused(tmp_path, script, 2, "/no/such/interpreter")


def test_a_32_bit_program(tmp_path: Path, program: Path) -> None:
    image = bytearray(program.read_bytes())
    image[4] = 1  # ELFCLASS32
    image[18] = 3  # EM_386
    program.write_bytes(image)
    refused(tmp_path, program, 3, "32-bit")


def test_a_setuid_program(tmp_path: Path, program: Path) -> None:
    program.chmod(0o4755)
    assert program.stat().st_mode & stat.S_ISUID
    refused(tmp_path, program, 3, "setuid")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: capabilities of a file")
def test_a_program_with_file_capabilities(tmp_path: Path, program: Path) -> None:
    os.setxattr(program, "security.capability", struct.pack("<5I", 0x02000001, 1 << 12, 0, 0, 0))
    refused(tmp_path, program, 3, "file capabilities")


def test_a_static_program_is_recorded_and_what_it_lacks_is_said(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    static = compile_c(source, tmp_path / "static", "-static")
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--", static)
    assert done.status == 0
    assert "static" in one_line(done.err)
    rows = ptweave("query", tmp_path / "run.ptw", "--format", "csv", "select instructions > 1000 from threads")
    assert rows.out.split() == [b'"(instructions', b">", b'1000)"', b"true"] or b"true" in rows.out


def test_no_command(tmp_path: Path) -> None:
    done = ptweave("wrap", "-o", tmp_path / "run.ptw")
    assert done.status == 2
    assert "no command" in one_line(done.err)


@pytest.mark.parametrize("command", ["wrap", "record", "events"])
def test_a_command_without_the_dashes_before_it_is_told_of_them_and_does_not_run(command: str, tmp_path: Path) -> None:
    bundle, made = tmp_path / "run.ptw", tmp_path / "made"
    done = ptweave(command, "-o", bundle, "/bin/mkdir", "-m", "700", made)
    assert done.status == 2
    assert one_line(done.err).endswith(f"put the command after --, as in: ptweave {command} -- /bin/mkdir")
    wrong = ptweave(command, "--nonsense", "-o", bundle, "--", "/bin/mkdir", made)
    assert wrong.status == 2 and "unrecognized arguments: --nonsense" in wrong.err and "after --" not in wrong.err
    assert not made.exists() and not bundle.exists()


def test_a_bundle_that_exists(tmp_path: Path) -> None:
    (tmp_path / "run.ptw").mkdir()
    (tmp_path / "run.ptw" / "mine").write_text("kept")
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", "--", "true")
    assert done.status == 2
    assert "exists already" in one_line(done.err)
    assert (tmp_path / "run.ptw" / "mine").read_text() == "kept"


def test_a_bundle_in_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    done = ptweave("wrap", "-o", tmp_path / "no" / "run.ptw", "--", "true")
    assert done.status == 2
    assert "does not exist" in one_line(done.err)


def test_intel_pt_asked_for_by_name(tmp_path: Path) -> None:
    done = ptweave("wrap", "--engine", "intel_pt", "-o", tmp_path / "run.ptw", "--", "true")
    assert done.status == 3
    assert "--engine soft" in one_line(done.err)
    assert not (tmp_path / "run.ptw").exists()


@pytest.mark.parametrize("command", ["decode", "merge", "query"])
def test_a_bundle_from_a_newer_format(tmp_path: Path, command: str) -> None:
    bundle = tmp_path / "run.ptw"
    assert ptweave("record", "-q", "-o", bundle, "--", "true").status == 0
    manifest = json.loads((bundle / "run.json").read_text())
    manifest["format_version"] += 1
    (bundle / "run.json").write_text(json.dumps(manifest))
    done = ptweave(command, bundle, *(["select 1"] if command == "query" else []))
    assert done.status == 2
    assert "newer" in one_line(done.err)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format_version": "x"}', '{"format_version": 1}'])
def test_a_manifest_that_is_malformed(tmp_path: Path, text: str) -> None:
    bundle = tmp_path / "run.ptw"
    bundle.mkdir()
    (bundle / "run.json").write_text(text)
    done = ptweave("decode", bundle)
    assert done.status == 2
    assert "run.json" in one_line(done.err)


def test_where_nothing_can_attach_to_a_process_what_to_do_is_something_that_works(tmp_path: Path) -> None:
    if Path("/sys/bus/event_source/devices/intel_pt").exists():
        pytest.skip("the processor has Intel PT, which can")
    told = [ptweave("record", *engine, "--pid", str(os.getpid()), "-o", tmp_path / "run.ptw")
            for engine in ([], ["--engine", "soft"], ["--engine", "intel_pt"])]
    assert [done.status for done in told] == [3, 3, 3] and len({done.err for done in told}) == 1
    line = one_line(told[0].err)
    assert "no Intel PT" in line and "--engine" not in line
    assert "start the program under ptweave record" in line and f"ptweave events --pid {os.getpid()} -o" in line
    assert not (tmp_path / "run.ptw").exists()


def test_no_bundle_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "missing.ptw", tmp_path / "file", tmp_path):
        done = ptweave("decode", path)
        assert done.status == 2
        one_line(done.err)


def _record_in_background(bundle: Path, script: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(words("record", "-q", "-o", bundle, "--", "sh", "-c", script), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


def test_a_supervisor_that_is_killed_leaves_a_bundle_that_can_be_decoded(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    child = _record_in_background(bundle, "echo up; i=0; while [ $i -lt 30 ]; do i=$((i+1)); sleep 0.05; done; "
                                  f"echo unharmed > {tmp_path}/result")
    time.sleep(0.3)
    child.kill()
    child.wait()
    end = time.monotonic() + 30
    result = tmp_path / "result"
    while not (result.exists() and result.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    assert result.read_text() == "unharmed\n", "the target goes on without its recorder"
    time.sleep(0.3)
    done = ptweave("decode", bundle)
    assert done.status == 1
    assert "recorder died" in done.err
    assert ptweave("merge", bundle).status == 1
    count = ptweave("query", bundle, "--format", "csv", "select sum(instructions)::bigint as n from threads")
    assert int(count.out.split()[1]) > 100_000


def test_a_bundle_that_is_being_recorded(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    child = _record_in_background(bundle, "echo up; sleep 2")
    done = ptweave("decode", bundle)
    child.communicate(timeout=60)
    assert done.status == 2
    assert "being recorded" in one_line(done.err)
    assert ptweave("decode", bundle).status == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_target_that_is_killed_keeps_its_record(tmp_path: Path, number: int) -> None:
    bundle = tmp_path / "run.ptw"
    done = ptweave("wrap", "-o", bundle, "--", "sh", "-c",
                   f"i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; kill -{number} $$")
    assert done.status == -number
    assert "nothing lost" in done.err
    count = ptweave("query", bundle, "--format", "csv", "select sum(instructions)::bigint as n from threads")
    assert int(count.out.split()[1]) > 500_000


def test_a_full_disk_keeps_what_fitted_and_says_what_is_missing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", small], check=True)
    try:
        done = ptweave("wrap", "-o", small / "run.ptw", "--", sys.executable, "-c",
                       "print(sum(hash(str(i)) % 7 == 0 for i in range(600000)) > 0)")
        assert done.out == b"True\n", "the target is not harmed"
        assert done.status == 0
        assert "incomplete" in done.err
        assert "Traceback" not in done.err
        roomy = tmp_path / "roomy.ptw"
        shutil.copytree(small / "run.ptw", roomy)
    finally:
        subprocess.run(["umount", small], check=True)
    assert ptweave("decode", roomy).status == 1
    assert ptweave("merge", roomy).status == 1
    lost = ptweave("query", roomy, "--format", "csv", "select count(*) as n from gaps where kind = 'lost'")
    assert int(lost.out.split()[1]) >= 1
    count = ptweave("query", roomy, "--format", "csv", "select sum(instructions)::bigint as n from threads")
    assert int(count.out.split()[1]) > 1_000_000, "what fitted is decoded"


def test_without_ebpf_the_run_goes_on_and_says_what_it_lacks(tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    strip = ["setpriv", "--bounding-set=-bpf,-sys_admin,-perfmon"] if os.geteuid() == 0 else []
    done = subprocess.run([*strip, *words("wrap", "-o", bundle, "--", "ls", "/")], capture_output=True, text=True,
                          check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "system calls as the kernel sees them" in one_line(done.stderr)
    rows = ptweave("query", bundle, "--format", "csv",
                   "select count(*) filter (name = 'write') > 0, count(*) filter (source <> 'engine') from syscalls")
    assert rows.out.splitlines()[1] == b"true,0"


@pytest.mark.parametrize(("option", "what"), [("--watch", "total"), ("--probe", "main")])
def test_what_needs_libtthread_in_a_static_program_is_refused(tmp_path: Path, option: str, what: str) -> None:
    source = tmp_path / "program.c"
    source.write_text("long total; int main(void) { total++; return 0; }\n")
    static = compile_c(source, tmp_path / "static", "-static")
    handler = ["--handler", "log"] if option == "--probe" else []
    done = ptweave("wrap", "-o", tmp_path / "run.ptw", option, what, *handler, "--", static)
    assert done.status == 2 and "is static: " in one_line(done.err) and "libtthread" in done.err
    assert not (tmp_path / "run.ptw").exists()
