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
from pathlib import Path
from typing import Any

from lab.build import Machine
from lab.given import SIZE

OUT_SIZE = 512 << 20
SECONDS = 1800
"""A machine that is up longer hangs."""
READY_SECONDS = 300
READY = "LAB: ready"
_POLL_SECONDS = 0.05


def _words(built: Machine, given: Path, disk: Path) -> list[str]:
    words = [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi",
        "-cpu", "max,vendor=GenuineIntel,family=6,model=94,stepping=3,level=0x16",
        "-M", "q35", "-smp", "2", "-m", "2048", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", str(built.kernel), "-initrd", str(built.initramfs),
        "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"]
    for number, (file, readonly) in enumerate([(given, True), (disk, False), (built.python, True)]):
        words += ["-drive", f"file={file},format=raw,if=none,id=d{number},readonly={'on' if readonly else 'off'}",
                  "-device", f"virtio-blk-pci,drive=d{number}"]
    return words


def version() -> str:
    """QEMU's: a state is for the version that saved it."""
    return subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout


def run(built: Machine, state: Path, given: Path, log: Path) -> str:
    """Wake a machine and let it do what it is given; returns what it said. Its results are on `log`'s neighbour
    out.img."""
    disk = _empty(log.parent / "out.img", OUT_SIZE)
    words = [*_words(built, given, disk), "-incoming", f"exec:cat {state}"]
    try:
        with log.open("wb") as out:
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=SECONDS,
                           check=False, env={**os.environ, "LC_ALL": "C"})
    except subprocess.TimeoutExpired:
        with log.open("a") as text:
            text.write(f"\nended after {SECONDS} s\n")
    return log.read_text(errors="replace").replace("\r", "")


def _empty(file: Path, size: int) -> Path:
    with file.open("wb") as out:
        out.truncate(size)
    return file


def save(built: Machine, folder: Path, state: Path) -> None:
    """Boot a machine with empty disks until it waits for what it is given, and save it. Raises RuntimeError."""
    given, disk = _empty(folder / "none.img", SIZE), _empty(folder / "none-out.img", OUT_SIZE)
    log, control, partial = folder / "state.log", folder / "qmp", state.with_suffix(".partial")
    control.unlink(missing_ok=True)
    words = [*_words(built, given, disk), "-qmp", f"unix:{control},server=on,wait=off"]
    with log.open("wb") as out:
        qemu = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait_for(log, qemu)
        with _Monitor(control) as monitor:
            monitor.ask("migrate", uri=f"exec:cat > {partial}")
            while (told := monitor.ask("query-migrate").get("status")) in ("setup", "active", "device"):
                time.sleep(_POLL_SECONDS)
            if told != "completed":
                raise RuntimeError(f"QEMU cannot save the laboratory's machine: {told}")
            monitor.ask("quit")
        qemu.wait(30)
    finally:
        qemu.kill()
        qemu.wait()
        for file in (given, disk, control):
            file.unlink(missing_ok=True)
    partial.replace(state)


def _wait_for(log: Path, qemu: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + READY_SECONDS
    while READY not in log.read_text(errors="replace"):
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

    def ask(self, command: str, **arguments: str) -> dict[str, Any]:
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
