# SPDX-License-Identifier: MIT
"""What the running kernel says its system calls take."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

_FORMATS = (Path("/sys/kernel/tracing/events/syscalls"), Path("/sys/kernel/debug/tracing/events/syscalls"))
_NAMES = {"newstat": "stat", "newfstat": "fstat", "newlstat": "lstat", "newuname": "uname", "umount": "umount2",
          "sendfile64": "sendfile"}


def kernel_formats() -> str:
    """The formats of all sys_enter events one behind the other; tracefs is mounted for this alone if it is not."""
    script = "cd {} && tail -n +1 sys_enter_*/format"
    for folder in _FORMATS:
        if folder.is_dir():
            words = ["sh", "-c", script.format(folder)]
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout
    mounting = "mount -t tracefs tracefs /mnt && " + script.format("/mnt/events/syscalls")
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mounting], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"tracefs is not mounted and cannot be: {done.stderr.strip()}")
    return done.stdout


def kernel_signatures() -> dict[str, list[tuple[str, str]]]:
    """By the name of a call: C type and name of each argument."""
    signatures = {}
    for text in kernel_formats().split("==> sys_enter_")[1:]:
        name = text.split("/", 1)[0]
        fields = re.findall(r"field:(.*?)\s*(\w+);\toffset:(\d+)", text)
        signatures[_NAMES.get(name, name)] = [(kind, word) for kind, word, offset in fields if int(offset) >= 16]
    return signatures
