# SPDX-License-Identifier: MIT
"""The eBPF recorder as a kernel before Linux 6.2 loads it, which has no `bpf_rdonly_cast`: the programs are compiled to
ask for a function that no kernel has."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from ptweave.wrapper import kernel_events
from ptweave.wrapper.syscalls import Options, Variant
from support.bpf import Recorded, needs_bpf, read_files, record
from support.compared import make_tree

pytestmark = [pytest.mark.root, needs_bpf]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "ls -lR . >/dev/null; cat < one/file | wc -c; exec 3>&1; cd one; mv file other; cat other; rm other"
"""Files, folders, pipes, the working directory, a name that changes and one that goes."""


@pytest.fixture(scope="module")
def without_casts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bpf") / "syscalls.bpf.o"
    subprocess.run(["clang", "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Dbpf_rdonly_cast=no_such_kernel_function",
                    f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}", "-c",
                    ROOT / "wrapper/bpf/syscalls.bpf.c", "-o", made], check=True)
    return made


def recorded(folder: Path, options: Options) -> Recorded:
    folder.mkdir()
    cwd = make_tree(folder / "tree")
    (cwd / "one").mkdir(exist_ok=True)
    (cwd / "one/file").write_text("text")
    return record(["/bin/sh", "-c", SCRIPT], folder, options, cwd=cwd)


def short(name: str, folder: Path) -> str:
    return name.replace(str(folder), "").partition(":[")[0]


def named(run: Recorded, folder: Path) -> list[tuple[str, int, list[str]]]:
    """Calls with the names of what their descriptors refer to; inodes and the folder are the run's own."""
    first, rows = run.rows[0].pid, [row for row in run.after_exec() if any(row.files)]
    return [(row.name, row.tid - first, [short(name, folder) for name in row.files if name])
            for row in rows]


@pytest.mark.parametrize("variant", [Variant.TYPED, Variant.RAW])
def test_names_of_files_are_the_same_without_typed_pointers(variant: Variant, without_casts: Path, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(variant=variant)
    usual = recorded(tmp_path / "usual", options)
    monkeypatch.setattr(kernel_events, "_OBJECT", without_casts)
    plain = recorded(tmp_path / "plain", options)
    for run in (usual, plain):
        assert run.status == 0 and run.ledger["syscalls/kernel"].lost == {}
    ours, theirs = ([one[::2] for one in sorted(named(run, tmp_path / name))]
                    for run, name in ((usual, "usual"), (plain, "plain")))
    assert ours == theirs
    assert {name for _, files in ours for name in files} >= {"/tree/one/file", "/tree/one/other", "/tree", "pipe"}
    kinds = [[(one["mode"] >> 12, one["filesystem"], one["deleted"]) for one in read_files(run.bundle.events /
              "files.arrow") if one["path"].startswith(bytes(tmp_path))] for run in (usual, plain)]
    assert sorted(kinds[0]) == sorted(kinds[1]) != []


def test_the_function_that_is_asked_for_is_in_no_kernel(without_casts: Path) -> None:
    """The control: the object does name it, and this kernel has the true one, or both runs above were the same."""
    assert b"no_such_kernel_function" in without_casts.read_bytes()
    symbols = Path("/proc/kallsyms").read_text()
    assert " bpf_rdonly_cast\n" in symbols and "no_such_kernel_function" not in symbols
