# SPDX-License-Identifier: MIT
"""The program `ptweave` while it begins: Ctrl-C ends it as it ends others, without a word of Python's."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from ptweave.cli import explain

_BEGIN = """
import os, signal, sys
import ptweave.cli
from ptweave.cli.__main__ import command

def stop(chosen):
    os.kill(os.getpid(), signal.SIGINT)
    raise SystemExit(7)

ptweave.cli._parser = stop
sys.argv[1:] = ["doctor"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may have it ignored, as `make test &` has
{before}
sys.exit(command())
"""


def ended(before: str = "") -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", _BEGIN.format(before=before)], capture_output=True, text=True,
                          check=False, restore_signals=True)
    return done.returncode, done.stderr


def test_ctrl_c_while_modules_are_loaded_ends_it_by_the_signal_and_says_nothing() -> None:
    assert ended() == (-signal.SIGINT, "")


@pytest.mark.parametrize("before", ["signal.signal(signal.SIGINT, signal.SIG_IGN)"])
def test_who_ignores_the_signal_has_it_ignored(before: str) -> None:
    assert ended(before) == (7, "")


def test_control_python_itself_says_where_it_was() -> None:
    status, said = ended("signal.signal(signal.SIGINT, lambda *what: signal.default_int_handler(*what))")
    assert status == -signal.SIGINT
    assert said.startswith("Traceback")


@pytest.mark.parametrize(("number", "remedy"), [
    (errno.ENOSPC, "make room"), (errno.EACCES, "give access"),
    (errno.EMFILE, "raise the limit of open files (ulimit -n)"),
    (errno.EXDEV, "see what the machine lacks with ptweave doctor")])
def test_an_error_of_the_system_says_what_where_and_what_to_do_about_that_one(number: int, remedy: str) -> None:
    assert explain(OSError(number, os.strerror(number), "/a/file")) == f"/a/file: {os.strerror(number)}: {remedy}"
    assert explain(OSError(number, os.strerror(number))) == f"{os.strerror(number)}: {remedy}"
