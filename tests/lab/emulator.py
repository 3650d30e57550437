# SPDX-License-Identifier: MIT
"""QEMU: starts the laboratory's machine, or wakes one that was saved when it had booted and loaded Python.

Software emulation only: /dev/kvm is never used, and the processor that QEMU emulates has no Intel PT: that is the
module's.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.build import Machine
from lab.given import JOBS_SIZE, PROJECT_SIZE

OUT_SIZE = 512 << 20
READY_SECONDS = 300
_POLL_SECONDS = 0.05
_PROCESSOR = ",".join((
    "max,vendor=GenuineIntel,family=6,model=94,stepping=3,level=0x16",
    "-erms,-fsrm",  # emulated string instructions go byte by byte
    "-mpx,-pku,-la57,-smap,-smep"))  # nothing here is of use for them
_COMMAND_LINE = " ".join((
    "console=ttyS0 quiet panic=-1 tsc=reliable",
    "mitigations=off",  # a trap takes ten times as long with them
    "clearcpuid=rep_good init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off",
    "cgroup_disable=memory audit=0 lsm= nowatchdog transparent_hugepage=never"))


@dataclass(frozen=True)
class Disks:
    """What is on the machine's disks, beside Python."""

    project: Path  # a tar of it
    jobs: Path  # a tar of what is to be done
    out: Path  # where its results go


def _words(built: Machine, disks: Disks) -> list[str]:
    words = [
        "setpriv", "--pdeathsig", "KILL",  # who started it may be killed: nothing is to be left
        "qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", _PROCESSOR,
        "-M", "q35", "-smp", "2", "-m", "2048", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", str(built.kernel), "-initrd", str(built.initramfs), "-append", _COMMAND_LINE]
    files = [(disks.project, True), (disks.out, False), (built.python, True), (disks.jobs, True)]
    for number, (file, readonly) in enumerate(files):
        words += ["-drive", f"file={file},format=raw,if=none,id=d{number},readonly={'on' if readonly else 'off'}",
                  "-device", f"virtio-blk-pci,drive=d{number}"]
    return words


def version() -> str:
    """QEMU's: a state is for the version that saved it."""
    return subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout


def run(built: Machine, state: Path, disks: Disks) -> subprocess.Popen[bytes]:
    """Wake a machine, which does what it is given; what it says can be read from it, and what it asks for written."""
    with state.open("rb") as saved:
        words = [*_words(built, disks), "-incoming", f"fd:{saved.fileno()}"]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                pass_fds=[saved.fileno()], env={**os.environ, "LC_ALL": "C"})


def empty(file: Path, size: int) -> Path:
    """Make a disk of nothing."""
    with file.open("wb") as out:
        out.truncate(size)
    return file


def save(built: Machine, project: Path | None, ready: str, state: Path, before: Path | None = None) -> None:
    """Boot a machine, or wake it from the state `before`, with this project (None: nothing), wait until it says
    `ready`, and save its state. Raises RuntimeError."""
    folder = state.parent
    none, jobs, out = (empty(folder / f"none-{name}.img", size) for name, size in
                       (("project", PROJECT_SIZE), ("jobs", JOBS_SIZE), ("out", OUT_SIZE)))
    log, control, partial = state.with_suffix(".log"), folder / "qmp", state.with_suffix(".partial")
    whole = state.with_suffix(".whole")
    for file in (control, whole):
        file.unlink(missing_ok=True)
    words = [*_words(built, Disks(project or none, jobs, out)), "-qmp", f"unix:{control},server=on,wait=off"]
    if before is not None:
        words += ["-incoming", f"exec:cat {before}"]
    with log.open("wb") as said:
        qemu = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
    try:
        _wait_for(log, ready, qemu)
        with _Monitor(control) as monitor:
            monitor.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
            monitor.ask("migrate", uri=f"exec:cat > {partial} && touch {whole}")
            while (told := monitor.ask("query-migrate").get("status")) in ("setup", "active", "device"):
                time.sleep(_POLL_SECONDS)
            if told != "completed":
                raise RuntimeError(f"QEMU cannot save the laboratory's machine: {told}")
            monitor.ask("quit")
        qemu.wait(30)
        if not whole.exists():
            raise RuntimeError(f"the laboratory's machine cannot be saved to {partial}: is the disk full?")
    finally:
        qemu.kill()
        qemu.wait()
        for file in (none, jobs, out, control, whole):
            file.unlink(missing_ok=True)
    partial.replace(state)


def _wait_for(log: Path, ready: str, qemu: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + READY_SECONDS
    while ready not in log.read_text(errors="replace"):
        if qemu.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the laboratory's machine did not boot:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(_POLL_SECONDS)


class _Monitor:
    """QEMU's machine protocol (QMP)."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rw")

    def __enter__(self) -> _Monitor:
        self._lines.readline()  # its greeting
        self.ask("qmp_capabilities")
        return self

    def __exit__(self, *unused: object) -> None:
        self._lines.close()
        self._socket.close()

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """Its answer. Raises RuntimeError where it refuses."""
        self._lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._lines.flush()
        for line in self._lines:
            said = json.loads(line)
            if "error" in said:
                raise RuntimeError(f"QEMU: {command}: {said['error'].get('desc')}")
            if "return" in said:
                found: dict[str, Any] = said["return"]
                return found
        raise RuntimeError(f"QEMU: {command}: no answer")
