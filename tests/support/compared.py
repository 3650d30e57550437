# SPDX-License-Identifier: MIT
"""Programs recorded under strace, so that both see the same calls."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ptweave.wrapper.syscalls import Options
from support.bpf import Recorded, Row, kernel_stream, record
from support.programs import compile_program
from support.strace import Call, parse

PYTHON = """
import os, subprocess, threading
def work(n):
    for i in range(20):
        os.getppid(); os.stat('/tmp')
        try: os.open(f'/nowhere/{n}/{i}', os.O_RDONLY)
        except OSError: pass
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(subprocess.run(['/bin/echo', 'hi'], capture_output=True).stdout)
"""

SHELL = ("ls -la . | sort | wc -l; for i in 1 2 3; do /bin/true; done; cat missing; "
         "echo done > file; test -s file && rm file")


def make_tree(root: Path) -> Path:
    """A folder to list: some folders and files, names that are no UTF-8 among them."""
    root.mkdir()
    for outer in range(4):
        for inner in range(5):
            folder = root / f"outer {outer}" / f"inner-ä{inner}"
            folder.mkdir(parents=True)
            for file in range(6):
                (folder / f"file{file}").write_text("x" * file)
    (root / "outer 0" / "link").symlink_to("file1")
    Path(str(root) + "/bad\udcff").mkdir()
    return root


def repository(folder: Path) -> Path:
    """A small git repository."""
    root = folder / "repository"
    if not root.exists():
        root.mkdir()
        for number in range(20):
            (root / f"file {number}").write_text(f"line {number}\n" * 50)
        git = ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
            subprocess.run([*git, *words], check=True, capture_output=True)
    return root


def source(folder: Path) -> Path:
    path = folder / "compiled.c"
    path.write_text("#include <stdio.h>\nint main(void) { puts(\"hi\"); return 0; }\n")
    return path


def redis_server(folder: Path) -> Path:
    """The server by its name: in Debian's redis-tools it has another, and its package would start it as a service."""
    server = folder / "redis-server"
    if not server.exists():
        server.symlink_to("/usr/bin/redis-check-rdb")
    return server


def use_redis(folder: Path, _: int) -> None:
    """Ask the server a few hundred times, and end it."""
    cli = ["redis-cli", "-s", folder / "redis"]
    for _attempt in range(600):
        if subprocess.run([*cli, "ping"], capture_output=True, check=False).stdout == b"PONG\n":
            break
        time.sleep(0.05)
    subprocess.run(["redis-benchmark", "-s", folder / "redis", "-n", "300", "-c", "5", "-q", "-t", "ping,set,get"],
                   check=True, capture_output=True)
    subprocess.run([*cli, "shutdown", "nosave"], check=True, capture_output=True)


def program(name: str, folder: Path) -> list[str]:
    """Command lines of the programs compared; small ones are compiled into `folder`."""
    words = _words(folder)[name]
    return [str(one) for one in words] if str(words[0]).startswith("/") else \
        [str(compile_program(folder, str(words[0]))), *[str(one) for one in words[1:]]]


def _words(folder: Path) -> dict[str, list[str | Path]]:
    return {
        "ls": ["/bin/ls", "-lR", "."],
        "shell": ["/bin/sh", "-c", SHELL],
        "python": ["/usr/bin/python3", "-c", PYTHON],
        "exec_from_thread": ["exec_from_thread", "/bin/echo", "hi"],
        "vfork": ["process_ends", "vfork", "/bin/true"],
        "killed": ["process_ends", "killed"],
        "threads_at_exit": ["process_ends", "threads"],
        "restarted": ["interrupted", "restart"],
        "interrupted": ["interrupted", "fail"],
        "path_calls": ["path_calls"],
        "git": ["/usr/bin/git", "clone", "-q", "--no-hardlinks", repository(folder), folder / "cloned"],
        "gcc": ["/usr/bin/gcc", "-c", "-o", folder / "compiled.o", source(folder)],
        "redis": [redis_server(folder), "--port", "0", "--unixsocket", folder / "redis", "--save", "",
                  "--appendonly", "no", "--io-threads", "1"],
    }


def record_under_strace(words: list[str], folder: Path, cwd: Path, strace_options: list[str],
                        options: Options | None = None) -> tuple[Recorded, list[Row], list[Call]]:
    """Record `strace -f` running a program: both see the same calls. Returns the tracees' rows and strace's calls."""
    log = folder / "strace"
    during: Callable[[int], None] | None = partial(use_redis, folder) if "redis" in words[0] else None
    recorded = record(["/usr/bin/strace", "-f", *strace_options, "-o", log, *words], folder, options, cwd=cwd,
                      during=during)
    calls = parse(log)
    first = calls[0].tid
    begin = next(i for i, row in enumerate(recorded.rows)
                 if row.tid == first and row.name == "execve" and row.result == 0)
    tids = {call.tid for call in calls}
    assert kernel_stream(recorded).total_lost == 0
    assert recorded.ledger.check() == []
    return recorded, [row for row in recorded.rows[begin:] if row.tid in tids], calls
