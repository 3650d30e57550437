# SPDX-License-Identifier: MIT
"""`wrap` and `record` started as root: who the target is, as the kernel and `id` tell it, and whose the bundle is."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptweave.data import Bundle
from ptweave.merge import Run
from ptweave.wrapper.privileges import OF_ROOT_S_PROGRAM, Capability, permitted
from support.bpf import needs_bpf
from support.command import Done, native, ptweave, words
from support.programs import compile_program

pytestmark = pytest.mark.root

NOBODY = pwd.getpwnam("nobody")
KEPT = sum(1 << one for one in (Capability.BPF, Capability.PERFMON, Capability.SYS_NICE))
ROOT_S = KEPT | sum(1 << one for one in OF_ROOT_S_PROGRAM)
TELL_OF_THREADS = "for task in /proc/$PPID/task/*; do cat $task/status; echo end; done"
NO_SUDO = {"SUDO_UID": "", "SUDO_GID": ""}
USED_SUDO = {"SUDO_UID": "12345", "SUDO_GID": "54321"}
"""Of a user that is in no passwd."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder where only root can write and others can pass through. pytest closes the ones above its own to others
    whenever another run of it begins."""
    with tempfile.TemporaryDirectory(prefix="ptweave-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def who_am_i(folder: Path) -> Path:
    return compile_program(folder, "who_am_i")


def status_of(text: bytes) -> dict[str, str]:
    """A file /proc/*/status."""
    return dict(re.findall(r"^(\w+):\s*(.*)$", text.decode(), re.MULTILINE))


def owners(bundle: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in (bundle, *bundle.rglob("*"))}


def assert_complete(done: Done, bundle: Path) -> None:
    assert done.status == 0, done.err
    assert done.lines == [f"ptweave: {bundle}: nothing lost"], done.err


@needs_bpf
@pytest.mark.parametrize("threads", ["native", "process"])
def test_the_target_is_the_named_user_without_capabilities_and_its_run_is_whole(threads: str, who_am_i: Path,
                                                                               folder: Path) -> None:
    bundle = folder / "run.ptw"  # in a folder where only root can write
    done = ptweave("wrap", "--engine", "soft", "--threads", threads, "--user", "nobody", "-o", bundle, "--", who_am_i,
                   env=NO_SUDO)
    assert_complete(done, bundle)
    target = status_of(done.out)
    assert target["Uid"].split() == [str(NOBODY.pw_uid)] * 4
    assert target["Gid"].split() == [str(NOBODY.pw_gid)] * 4
    for one in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(target[one], 16) == 0
    assert owners(bundle) == {(NOBODY.pw_uid, NOBODY.pw_gid)}
    assert bundle.stat().st_mode & 0o777 == 0o700
    with Run(bundle) as run:
        assert run.manifest.threads_mode == threads
        assert run.sql("select count(distinct thread) from thunks").rows() == [(2,)]  # libtthread's lists came through
        assert run.sql("select count(*) > 0 from flow").rows() == [(True,)]
        assert run.sql("select count(*) from syscalls where name = 'openat' and "
                       "paths[1] = '/proc/thread-self/status'").rows() == [(1,)]


@pytest.mark.parametrize("threads", ["native", "process"])
def test_without_a_user_and_without_sudo_the_target_is_root_as_we_are(threads: str, who_am_i: Path,
                                                                     folder: Path) -> None:
    """The control of the test above: the same program does tell of root."""
    bundle = folder / "run.ptw"
    done = ptweave("record", "-q", "--threads", threads, "-o", bundle, "--", who_am_i, env=NO_SUDO)
    assert done.status == 0, done.err
    target = status_of(done.out)
    assert target["Uid"].split() == ["0"] * 4 and int(target["CapEff"], 16) == permitted() != 0
    assert owners(bundle) == {(0, 0)}


def test_id_and_environment_are_as_another_program_makes_them_for_that_user(folder: Path) -> None:
    tell = ["/bin/sh", "-c", 'id; echo "$HOME $USER $LOGNAME"']
    oracle = native(["runuser", "-u", "nobody", "--", "/usr/bin/id"])
    done = ptweave("record", "-q", "--user", "nobody", "-o", folder / "run.ptw", "--", *tell, env=NO_SUDO)
    assert done.status == 0, done.err
    told, environment = done.out.decode().splitlines()
    assert told.encode() == oracle.out.strip() != native(["/usr/bin/id"]).out.strip()
    assert environment == f"{NOBODY.pw_dir} nobody nobody"


@pytest.mark.parametrize("command", ["wrap", "record"])
def test_under_sudo_the_target_is_who_called_it_and_so_is_the_bundle(command: str, folder: Path) -> None:
    bundle = folder / "run.ptw"
    done = ptweave(command, "-o", bundle, "--", "/bin/cat", "/proc/self/status", env=USED_SUDO)
    assert_complete(done, bundle)
    target = status_of(done.out)
    assert set(target["Uid"].split()) == {"12345"} and set(target["Gid"].split()) == {"54321"}
    assert target["Groups"].split() == ["54321"] and int(target["CapPrm"], 16) == 0
    assert owners(bundle) == {(12345, 54321)}


@needs_bpf
def test_the_recorder_is_that_user_too_and_keeps_three_capabilities_at_most(folder: Path) -> None:
    """Its threads, as the target sees them while it is recorded."""
    threads = recorder_s_threads("record", "-q", "--engine", "soft", "--user", "nobody", "-o", folder / "run.ptw")
    for thread in threads:
        assert set(thread["Uid"].split()) == {str(NOBODY.pw_uid)}
        assert int(thread["CapPrm"], 16) in (0, KEPT)
    assert any(int(thread["CapEff"], 16) == KEPT for thread in threads)


def recorder_s_threads(*options: str | Path) -> list[dict[str, str]]:
    """What the target finds of each."""
    done = ptweave(*options, "--", "/bin/sh", "-c", TELL_OF_THREADS, env=NO_SUDO)
    assert done.status == 0, done.err
    threads = [status_of(text) for text in done.out.split(b"end\n") if text]
    assert len(threads) > 1
    return threads


@needs_bpf
@pytest.mark.parametrize("command", ["wrap", "record"])
@pytest.mark.parametrize("options", [[], ["--user", "root"], ["--threads", "native"], ["--probe", "libc.so.6:malloc"],
                                     ["--syscalls-with", "perf"], ["--aux-size", "16M", "--ring", "32M"]])
def test_a_recorder_that_stays_root_keeps_what_recording_needs_in_every_thread(command: str, options: list[str],
                                                                             folder: Path) -> None:
    threads = recorder_s_threads(command, "-q", "--engine", "soft", *options, "-o", folder / "run.ptw")
    rings = 1 << Capability.IPC_LOCK if "perf" in options else 0
    for thread in threads:
        assert set(thread["Uid"].split()) == {"0"}
        assert int(thread["CapPrm"], 16) == int(thread["CapEff"], 16) == (ROOT_S | rings) & permitted() != permitted()
        assert int(thread["CapInh"], 16) == int(thread["CapAmb"], 16) == 0


def test_a_caller_in_whose_process_root_s_program_is_recorded_keeps_its_own(folder: Path) -> None:
    """The control: what `ptweave` gives up in a process of its own is there to be given up."""
    script = f"""
from ptweave.cli import main
from ptweave.wrapper.privileges import permitted
before = permitted()
print(main(["record", "-q", "-o", {str(folder / "run.ptw")!r}, "--", "/bin/true"]), permitted() == before)
"""
    done = subprocess.run([words("x")[0], "-c", script], capture_output=True, text=True, check=True,
                          env={**os.environ, **NO_SUDO})
    assert done.stdout == "0 True\n", done.stderr


@pytest.mark.parametrize("threads", ["native", "process"])
def test_root_s_program_may_be_looked_at_and_dumped_as_without_ptweave(threads: str, folder: Path) -> None:
    """An exec that gains capabilities takes that away."""
    tell = [sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"]  # PR_GET_DUMPABLE
    done = ptweave("record", "-q", "--threads", threads, "-o", folder / "run.ptw", "--", *tell, env=NO_SUDO)
    assert done.status == 0, done.err
    assert done.out == native([*tell]).out == b"1\n"


def test_root_s_program_in_another_user_s_closed_folder_is_recorded_there_and_whole(folder: Path) -> None:
    """Root's file permissions are given up after the bundle's folder was made; reading is not."""
    home = folder / "home"
    home.mkdir()
    program = compile_program(home, "who_am_i")
    program.chmod(0o755)  # Valgrind refuses what its own look at the mode forbids, root or not
    for path in (program, home):
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    home.chmod(0o700)
    bundle = home / "run.ptw"
    done = ptweave("wrap", "--engine", "soft", "-o", bundle, "--", program, env=NO_SUDO)
    assert_complete(done, bundle)
    with Run(bundle) as run:
        assert run.sql(f"select count(*) > 0 from images where path = '{program}'").rows() == [(True,)]
        assert run.sql("select count(*) from gaps").rows() == [(0,)]
        assert run.sql("select count(*) > 0 from flow").rows() == [(True,)]


def test_a_bundle_that_root_may_not_replace_is_one_line_and_left_alone(folder: Path) -> None:
    (folder / "run.ptw").mkdir()
    done = ptweave("record", "-o", folder / "run.ptw", "--", "/bin/touch", folder / "ran", env=NO_SUDO)
    assert done.status == 2 and "exists already" in done.err and len(done.err.splitlines()) == 1, done.err
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("options", [["--shared", "no name"], ["--probe", "no_such_place"], ["--watch", "nothing"]])
def test_options_that_are_wrong_leave_root_no_folder_and_no_process(options: list[str], folder: Path) -> None:
    program = compile_program(folder, "who_am_i")
    done = ptweave("record", *options, "-o", folder / "run.ptw", "--", program, env=NO_SUDO)
    assert done.status == 2 and done.out == b"" and len(done.err.splitlines()) == 1, done.err
    assert not (folder / "run.ptw").exists()
    assert subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, check=False).stdout == b""


@pytest.mark.parametrize("size", ["2M2", "1K", "2G"])
def test_a_ring_of_packets_of_no_such_size_is_wrong_use(size: str, folder: Path) -> None:
    done = ptweave("record", "--aux-size", size, "-o", folder / "run.ptw", "--", "/bin/true", env=NO_SUDO)
    assert done.status == 2 and f"'{size}' is no size from 4K to 1G" in done.err.splitlines()[-1], done.err


def test_the_target_cannot_read_what_only_root_can_nor_does_the_bundle_have_it(folder: Path) -> None:
    """With what it is let into: its own copy of the bundle's folder is closed to others."""
    secret = folder / "secret"
    secret.write_text("only root's")
    secret.chmod(0o600)
    bundle = folder / "run.ptw"
    done = ptweave("record", "-q", "--user", "nobody", "-o", bundle, "--", "/bin/cat", secret, env=NO_SUDO)
    assert done.status == 1 and b"only root's" not in done.out
    assert ptweave("record", "-q", "-o", folder / "root.ptw", "--", "/bin/cat", secret,
                   env=NO_SUDO).out == b"only root's"  # the control
    assert all(b"only root's" not in path.read_bytes() for path in bundle.rglob("*") if path.is_file())


def test_debug_files_are_not_kept_in_root_s_home(folder: Path) -> None:
    home = folder / "home"
    home.mkdir(mode=0o700)
    offline = {"DEBUGINFOD_URLS": "http://127.0.0.1:1", "HOME": str(home), "XDG_CACHE_HOME": ""}
    done = ptweave("wrap", "--debuginfod", "--user", "nobody", "-o", folder / "run.ptw", "--", "/bin/true",
                   env={**NO_SUDO, **offline})
    assert done.status == 0 and done.lines[-1] == f"ptweave: {folder / 'run.ptw'}: nothing lost", done.err
    assert "is kept" not in done.err and str(home) not in done.err  # it was decoded, without a word of root's home
    assert (folder / "run.ptw" / "tables" / "flow").is_dir() and list(home.iterdir()) == []


def test_sigterm_ends_a_target_of_another_user_and_what_was_recorded_is_kept(folder: Path) -> None:
    bundle = folder / "run.ptw"
    process = subprocess.Popen(words("record", "--user", "nobody", "-o", bundle, "--", "/bin/sh", "-c",
                                     "echo ready; exec sleep 1000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, **NO_SUDO})
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGTERM, err
    assert Bundle.open(bundle).manifest.status == signal.SIGTERM
    assert owners(bundle) == {(NOBODY.pw_uid, NOBODY.pw_gid)}


@pytest.mark.parametrize("command", ["wrap", "record"])
@pytest.mark.parametrize("user", ["no such user", "4294967295", "-1"])
def test_an_unknown_user_is_one_line_and_status_2_and_nothing_runs(command: str, user: str, tmp_path: Path) -> None:
    done = ptweave(command, f"--user={user}", "-o", tmp_path / "run.ptw", "--", "/bin/touch", tmp_path / "ran")
    assert done.status == 2
    assert "there is no such user" in done.err and len(done.err.splitlines()) == 1, done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [["--shared", "no name"], ["--pt", "=1"], ["--syscalls-with", "ptrace"]])
def test_options_that_are_wrong_leave_no_folder_behind(options: list[str], folder: Path) -> None:
    done = ptweave("record", "--user", "nobody", *options, "-o", folder / "run.ptw", "--", "/bin/true", env=NO_SUDO)
    assert done.status == 2 and len(done.err.splitlines()) == 1, done.err
    assert list(folder.iterdir()) == []


def test_a_bundle_that_the_user_cannot_reach_is_refused_before_anything_runs(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    done = ptweave("wrap", "--user", "nobody", "-o", closed / "run.ptw", "--", "/bin/touch", tmp_path / "ran")
    assert done.status == 2
    assert "cannot be reached by the user" in done.err and len(done.err.splitlines()) == 1, done.err
    assert list(closed.iterdir()) == [] and not (tmp_path / "ran").exists()


def test_a_bundle_that_is_there_is_left_alone(folder: Path) -> None:
    (folder / "run.ptw").mkdir()
    done = ptweave("record", "--user", "nobody", "-o", folder / "run.ptw", "--", "/bin/true", env=NO_SUDO)
    assert done.status == 2 and "exists already" in done.err and len(done.err.splitlines()) == 1, done.err
    assert owners(folder / "run.ptw") == {(0, 0)}


def test_a_process_that_runs_takes_no_user() -> None:
    done = ptweave("record", "--user", "nobody", "--pid", str(os.getpid()))
    assert done.status == 2
    assert "has its user already" in done.err and len(done.err.splitlines()) == 1, done.err


@pytest.mark.parametrize("command", ["wrap", "record"])
def test_without_root_another_user_is_one_line_and_status_2(command: str, folder: Path) -> None:
    """In an interpreter that becomes nobody when it has read what it needs: nobody need not be able to read it."""
    script = f"""
import os, sys
from ptweave.cli import user
from ptweave.cli.__main__ import main
user.load(user.RECORDING + user.DECODING, own_process=True)
import ptweave.cli.{command}, ptweave.cli.recording, ptweave.decode.debuginfod
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
sys.exit(main([{command!r}, "--user", "root", "-o", {str(folder / "run.ptw")!r}, "--", "/bin/true"]))
"""
    done = subprocess.run([words("x")[0], "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == ("ptweave: --user root: only root can run a program as another user: run it with sudo, or "
                           "leave --user out\n")


def values_of(bundle: Path, query: str) -> list[tuple[Any, ...]]:
    with Run(bundle) as run:
        assert run.ledger.losses == []
        return list(run.sql(query).rows())


HANDLER = """
#include <ptweave/probe.h>
#include <unistd.h>
void tells(struct ptweave_hit *hit)
{
	ptweave_add_i64(hit, "number", (long)ptweave_arg(hit, 1));
	ptweave_add_i64(hit, "user", (long)getuid());
}
"""


@pytest.mark.parametrize("threads", ["native", "process"])
def test_probes_with_a_handler_of_one_s_own_hit_in_the_named_user_s_program_as_in_root_s(threads: str, folder: Path
                                                                                        ) -> None:
    program = compile_program(folder, "probed")
    handler = folder / "handler.c"
    handler.write_text(HANDLER)
    count, others = 50, 2
    seen = {}
    for user, options in (("nobody", ["--user", "nobody"]), ("root", [])):
        bundle = folder / f"{user}.ptw"
        done = ptweave("wrap", "--engine", "soft", "--threads", threads, *options, "-o", bundle, "--handler",
                       f"{handler}:tells", "--probe", "named", "--", program, count, others, env=NO_SUDO)
        assert_complete(done, bundle)
        assert owners(bundle) == ({(NOBODY.pw_uid, NOBODY.pw_gid)} if user == "nobody" else {(0, 0)})
        seen[user] = values_of(bundle, "select cast(data['user'] as bigint), cast(data['number'] as bigint), count(*) "
                               "from probes where function = 'named' group by all order by all")
    assert seen["nobody"] == [(NOBODY.pw_uid, number, others + 1) for number in range(count)]
    assert seen["root"] == [(0, number, others + 1) for number in range(count)]  # the control


@pytest.mark.parametrize("threads", ["native", "process"])
def test_watchpoints_tell_of_the_named_user_s_program_what_they_tell_of_root_s(threads: str, folder: Path) -> None:
    program = compile_program(folder, "watched")
    seen = {}
    for user, options in (("nobody", ["--user", "nobody"]), ("root", [])):
        bundle = folder / f"{user}.ptw"
        done = ptweave("wrap", "-q", "--engine", "soft", "--threads", threads, *options, "-o", bundle, "--watch",
                       "shared.part[1].counter:rw", "--", program, "steps", env=NO_SUDO)
        assert done.status == 0, done.err
        assert owners(bundle) == ({(NOBODY.pw_uid, NOBODY.pw_gid)} if user == "nobody" else {(0, 0)})
        seen[user] = values_of(bundle, "select access, old, new from watches order by hit")
    assert seen["nobody"] == seen["root"] == [
        ("write", 0, 1), ("write", 1, 4), ("write", 4, 9), ("write", 9, 16), ("write", 16, 25), ("write", 25, 25),
        *[("read", 25, 25)] * 3]


@pytest.mark.parametrize("option", ["--probe", "--watch"])
def test_a_place_that_is_not_there_is_one_line_for_another_user_too_and_nothing_runs(option: str, folder: Path) -> None:
    program = compile_program(folder, "who_am_i")
    done = ptweave("wrap", "--engine", "soft", "--user", "nobody", option, "no_such_place", "-o", folder / "run.ptw",
                   "--", program, env=NO_SUDO)
    assert done.status == 2 and done.out == b""
    assert "no_such_place" in done.err and len(done.err.splitlines()) == 1, done.err


def test_where_there_is_no_intel_pt_another_user_is_told_as_root_is_and_nothing_runs(folder: Path) -> None:
    if Path("/sys/bus/event_source/devices/intel_pt").exists():
        pytest.skip("the processor has it: the laboratory's tests say what it records")
    told = [ptweave("record", "--engine", "intel_pt", *options, "-o", folder / "run.ptw", "--", "/bin/echo", "ran",
                    env=NO_SUDO) for options in (["--user", "nobody"], [])]
    assert [done.status for done in told] == [3, 3]
    assert told[0].err == told[1].err and len(told[0].err.splitlines()) == 1
    assert [done.out for done in told] == [b"", b""]
