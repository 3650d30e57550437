# SPDX-License-Identifier: MIT
"""The private view: different bytes of a page at once, and what it finds that it cannot carry."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ptweave.data import Bundle
from support.command import compile_c, ptweave
from support.evl_accesses import PAGE, read_accesses
from support.modes import Mode, process_mode, run
from support.programs import compile_program

THREADS, PAGES, ROUNDS, COUNTS = 4, 3, 50, 20_000  # as in private_view.c
PRIVATE = [process_mode(access, "private") for access in ("held", "exact")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("view"), "private_view", flags=["-O1"])


@pytest.mark.parametrize("mode", PRIVATE, ids=str)
def test_threads_change_different_bytes_of_one_page_and_each_commit_says_which(
        program: Path, mode: Mode, tmp_path: Path) -> None:
    ran = run(mode, tmp_path, [program, "bytes"])
    assert (ran.status, ran.err) == (0, "") and ran.traced is not None
    start = int(ran.out.split()[0], 16)
    accesses = read_accesses(ran.traced.bundle.dependence)
    assert accesses.bytes is not None
    flags = np.unpackbits(accesses.bytes, axis=1, bitorder="little").astype(bool)
    committed = flags.any(axis=1) & (accesses.page >= start) & (accesses.page < start + PAGES * PAGE)
    workers = np.unique(accesses.thread[committed])
    assert len(workers) == THREADS and committed.sum() == THREADS * PAGES * ROUNDS
    stride = [set(np.flatnonzero(flags[committed & (accesses.thread == one)].any(axis=0)) % THREADS)
              for one in workers]
    assert sorted(map(list, stride)) == [[number] for number in range(THREADS)]  # each its own bytes, and no other's


@pytest.mark.parametrize("mode", PRIVATE, ids=str)
def test_blocks_that_only_the_allocator_hands_on_are_neither_lost_nor_old(
        program: Path, mode: Mode, tmp_path: Path) -> None:
    ran = run(mode, tmp_path, [program, "reuse"])
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.parametrize("access", ["held", "exact"])
@pytest.mark.parametrize(("what", "notice"), [("atomics", "atomic instruction"), ("opened", "atomic instruction"),
                                              ("race", "same byte")])
def test_atomics_and_races_are_told_once_and_their_pages_passed_through(
        program: Path, access: str, what: str, notice: str, tmp_path: Path) -> None:
    bundle = tmp_path / "run.ptw"
    done = ptweave("record", "-q", "--engine", "soft", "--threads", "process", "--view", "private", "--access", access,
                   "-o", bundle, "--", program, what)
    assert done.status == 0, done.err
    assert len(re.findall(notice, done.err)) == 1 and "--shared" in done.err
    manifest = Bundle.open(bundle).manifest
    assert manifest.view == "private"
    assert [one for one in manifest.notices if notice in one.text]
    _, counted, raced = done.out.split()
    assert (int(counted), int(raced)) == ((0, 1) if what == "race" else (THREADS * COUNTS, 0))


def test_the_shared_view_tells_nothing_of_either(program: Path, tmp_path: Path) -> None:
    """The control."""
    for what in ("atomics", "opened", "race"):
        ran = run(process_mode("held", "shared"), tmp_path, [program, what], name=what)
        assert (ran.status, ran.err) == (0, "") and ran.traced is not None
        assert not ran.traced.server.notices.all


CRASH = """
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
static void *add(void *counter)
{
	COUNT;
	return NULL;
}
int main(void)
{
	long *counter = calloc(1000, sizeof *counter);
	pthread_t other;
	pthread_create(&other, NULL, add, counter);
	pthread_join(other, NULL);
	END;
}
"""


@pytest.mark.parametrize(("count", "end", "view", "told"), [
    ("__atomic_fetch_add((long *)counter, 1, 5)", "abort()", "private", True),
    ("__atomic_fetch_add((long *)counter, 1, 5)", "*(volatile int *)8 = 0", "private", True),
    ("__atomic_fetch_add((long *)counter, 1, 5)", "abort()", "shared", False),
    ("__atomic_fetch_add((long *)counter, 1, 5)", "return 0", "private", False),
    ("__atomic_fetch_add((long *)counter, 1, 5)", "raise(SIGTERM)", "private", True),
    ("__atomic_fetch_add((long *)counter, 1, 5)", "raise(SIGPIPE)", "private", False),
    ("*(long *)counter = 1", "abort()", "private", False)],
    ids=["abort", "fault", "shared view", "no crash", "ended", "another signal", "no atomics"])
def test_a_crash_that_the_view_may_have_brought_about_is_told_to_need_the_other_one(
        tmp_path: Path, count: str, end: str, view: str, *, told: bool) -> None:
    source = tmp_path / "crash.c"
    source.write_text(CRASH.replace("COUNT", count).replace("END", end))
    made = compile_c(source, tmp_path / "crash")
    done = ptweave("record", "-o", tmp_path / "run.ptw", "--threads=process", f"--view={view}", "--", made)
    line = "and it has atomics: the private view does not follow what they alone order: record it with --view shared"
    assert (line in done.err) == told
