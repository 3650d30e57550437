# SPDX-License-Identifier: MIT
"""Environments in which libtthread is kept: the C code, under sanitizers, against a model of a few lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.programs import ROOT, SANITIZERS, compile_program

SOURCE = ROOT / "preload/src"
OWN = "/opt/x/libtthread.so"
MOST = 1 << 14


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("kept"), "kept_preload_check", [SOURCE / "kept_preload.c"],
                           [*SANITIZERS, f"-I{SOURCE}"])


def kept(checker: Path, own: str, environments: list[list[str]]) -> list[tuple[int, list[str]]]:
    lines = [own, *("\t".join(entries) for entries in environments)]
    done = subprocess.run([checker], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    found = [line.split("\t") for line in done.stdout.splitlines()]
    return [(int(size), entries) for size, *entries in found]


def model(entries: list[str]) -> list[str]:
    """The last LD_PRELOAD gets libtthread before it, if it has something and not that, and if we are known."""
    where = [i for i, entry in enumerate(entries) if entry.startswith("LD_PRELOAD=")]
    if not where or not any(entry.startswith("PTWEAVE_SOCKET=") for entry in entries):
        return entries
    value = entries[where[-1]].removeprefix("LD_PRELOAD=")
    parts = value.replace(":", " ").split(" ")
    if not any(parts) or any(part.endswith("/libtthread.so") for part in parts):
        return entries
    return [*entries[:where[-1]], f"LD_PRELOAD={OWN}:{value}", *entries[where[-1] + 1:]]


PART = st.sampled_from(["libz.so.1", "/a/b.so", OWN, "/other/libtthread.so", "libtthread.so", "x/libtthread.so.2", ""])
VALUE = st.lists(st.tuples(PART, st.sampled_from([":", " ", "::"])), max_size=4).map(
    lambda parts: "".join(part + separator for part, separator in parts).rstrip() or ":")
ENTRY = st.one_of(VALUE.map(lambda value: f"LD_PRELOAD={value}"),
                  st.sampled_from(["PTWEAVE_SOCKET=/run/s", "PTWEAVE_SOCKETS=1", "LD_PRELOADS=x", "A=b", "LD_PRELOAD",
                                   "PATH=:"]))


@settings(max_examples=60, deadline=None)
@given(environments=st.lists(st.lists(ENTRY, min_size=1, max_size=6), min_size=1, max_size=20))
def test_the_last_preload_gets_libtthread_and_nothing_else_is_changed(checker: Path,
                                                                     environments: list[list[str]]) -> None:
    found = kept(checker, f"/first.so:{OWN}", environments)
    assert [entries for _, entries in found] == [model(entries) for entries in environments]
    assert all((size > 0) == (model(entries) != entries)
               for (size, _), entries in zip(found, environments, strict=True))


def test_a_process_without_libtthread_in_its_own_preload_changes_nothing(checker: Path) -> None:
    wanted = ["PTWEAVE_SOCKET=/run/s", "LD_PRELOAD=libz.so.1"]
    for own in ("-", "libz.so.1", ":", "/a/notlibtthread.so", "/" + "x" * 5000 + "/libtthread.so"):
        assert kept(checker, own, [wanted]) == [(0, wanted)]
    assert kept(checker, OWN, [wanted]) != [(0, wanted)], "the control"


def test_no_environment_at_all_stays_none(checker: Path) -> None:
    assert kept(checker, OWN, [["-"]]) == [(0, [])]


@pytest.mark.parametrize(("variables", "changed"), [(1500, True), (2500, False)])
def test_an_environment_that_would_take_too_much_of_a_stack_is_left(checker: Path, variables: int, *,
                                                                   changed: bool) -> None:
    entries = ["PTWEAVE_SOCKET=/run/s", "LD_PRELOAD=libz.so.1", *(f"V{i}=1" for i in range(variables))]
    ((size, found),) = kept(checker, OWN, [entries])
    assert (found == model(entries)) == changed and (0 < size <= MOST) == changed
    assert changed or found == entries
