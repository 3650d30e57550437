# SPDX-License-Identifier: MIT
"""Separate debug files: where they are looked for, which are believed, and that names and lines come from them."""

from __future__ import annotations

import lzma
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ptweave.decode.debug_files import DebugFiles
from ptweave.decode.elf import Elf
from ptweave.decode.naming import Named, read_names
from ptweave.decode.symbols import functions_of
from support.assembler import compile_c

PROGRAM = """
#include <stdlib.h>
__attribute__((noinline)) static int helper(int x) { return x * 3 + (x > 4 ? 1 : 2); }
__attribute__((noinline)) int exported(int x) { return helper(x) + rand(); }
int main(int argc, char **argv) { return exported(argc) + (argv == 0); }
"""


class Files:
    """A program with debug information, stripped copies of it, and folders to put its debug file in."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        source = folder / "program.c"
        source.write_text(PROGRAM)
        self.full = compile_c(source, folder / "full", "-g", *flags)
        self.debug = folder / "program.debug"
        run("objcopy", "--only-keep-debug", self.full, self.debug)
        self.address = next(int(line.split()[0], 16) for line in run("nm", self.full).splitlines()
                            if line.endswith(" t helper"))

    @property
    def build_id(self) -> str:
        return str(Elf.open(self.full).build_id)

    def stripped(self, name: str = "stripped", link: Path | None = None) -> Elf:
        out = self.folder / name
        run("objcopy", "--strip-all", self.full, out)
        if link is not None:
            run("objcopy", f"--add-gnu-debuglink={link}", out)
        return Elf.open(out)

    def root(self) -> Path:
        """A folder with the debug file by build id."""
        root = self.folder / "root"
        (root / ".build-id" / self.build_id[:2]).mkdir(parents=True)
        shutil.copy(self.debug, root / ".build-id" / self.build_id[:2] / f"{self.build_id[2:]}.debug")
        return root

    def knows(self, named: Named) -> bool:
        """Whether the local function and its line are known."""
        assert named.functions is not None
        index = int(named.functions.find(np.array([self.address], np.uint64))[0])
        name = named.functions.name(index)
        assert name in ("helper", f"sub_{self.address:x}")
        if named.lines is not None:
            files, lines = named.lines.find(np.array([self.address], np.uint64))
            assert named.lines.names[int(files[0])].endswith("program.c")
            assert lines.tolist() == [3]
        return name == "helper" and named.lines is not None


def run(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def unnumbered(tmp_path: Path) -> Files:
    """Built without a build id: only the CRC can tell."""
    return Files(tmp_path, "-Wl,--build-id=none")


def test_by_build_id(files: Files) -> None:
    root = files.root()
    named = read_names(files.stripped(), "/usr/bin/program", DebugFiles([root]))
    assert files.knows(named)
    assert named.debug == str(root / ".build-id" / files.build_id[:2] / f"{files.build_id[2:]}.debug")
    assert not files.knows(read_names(files.stripped(), "/usr/bin/program"))


def test_a_file_of_another_build_under_the_build_id_is_said_and_not_used(files: Files) -> None:
    root = files.root()
    shutil.copy("/bin/true", root / ".build-id" / files.build_id[:2] / f"{files.build_id[2:]}.debug")
    named = read_names(files.stripped(), None, DebugFiles([root]))
    assert not files.knows(named)
    assert (named.debug, len(named.problems)) == (None, 1)
    assert "another build" in named.problems[0]


@pytest.mark.parametrize("place", [".", ".debug"])
def test_by_link_beside_the_recorded_path(unnumbered: Files, place: str) -> None:
    elf = unnumbered.stripped(link=unnumbered.debug)
    recorded = unnumbered.folder / "usr" / "bin"
    (recorded / place).mkdir(parents=True, exist_ok=True)
    shutil.copy(unnumbered.debug, recorded / place / "program.debug")
    assert unnumbered.knows(read_names(elf, str(recorded / "program")))
    assert not unnumbered.knows(read_names(elf, str(unnumbered.folder / "elsewhere" / "program")))
    assert not unnumbered.knows(read_names(elf, None))


def test_by_link_below_a_root(unnumbered: Files) -> None:
    elf = unnumbered.stripped(link=unnumbered.debug)
    root = unnumbered.folder / "root"
    (root / "usr" / "bin").mkdir(parents=True)
    shutil.copy(unnumbered.debug, root / "usr" / "bin" / "program.debug")
    assert unnumbered.knows(read_names(elf, "/usr/bin/program", DebugFiles([root])))
    assert not unnumbered.knows(read_names(elf, "/usr/sbin/program", DebugFiles([root])))
    assert not unnumbered.knows(read_names(elf, "usr/bin/program", DebugFiles([root])))
    assert not unnumbered.knows(read_names(elf, "/usr/sbin/../bin/program", DebugFiles([root])))


def test_a_linked_file_with_another_crc_is_said_and_not_used(unnumbered: Files) -> None:
    elf = unnumbered.stripped(link=unnumbered.debug)
    recorded = unnumbered.folder / "bin"
    recorded.mkdir()
    shutil.copy(unnumbered.debug, recorded / "program.debug")
    with (recorded / "program.debug").open("ab") as file:
        file.write(b"x")
    named = read_names(elf, str(recorded / "program"))
    assert not unnumbered.knows(named)
    assert len(named.problems) == 1
    assert "another build" in named.problems[0]


def test_with_build_ids_the_crc_does_not_matter(files: Files) -> None:
    elf = files.stripped(link=files.debug)
    recorded = files.folder / "bin"
    recorded.mkdir()
    shutil.copy(files.debug, recorded / "program.debug")
    with (recorded / "program.debug").open("ab") as file:
        file.write(b"x")
    assert files.knows(read_names(elf, str(recorded / "program")))


def test_a_pipe_where_a_debug_file_should_be_does_not_block(unnumbered: Files) -> None:
    import os

    elf = unnumbered.stripped(link=unnumbered.debug)
    recorded = unnumbered.folder / "bin"
    recorded.mkdir()
    os.mkfifo(recorded / "program.debug")
    assert not unnumbered.knows(read_names(elf, str(recorded / "program")))


def test_mini_debug_information_names_local_functions(files: Files) -> None:
    """As Fedora makes it: the symbols .dynsym lacks, in an xz-packed ELF file in a section."""
    mini = files.folder / "mini"
    run("objcopy", "-S", "--remove-section=.comment", "--keep-symbol=helper", files.debug, mini)
    packed = files.folder / "mini.xz"
    packed.write_bytes(lzma.compress(mini.read_bytes()))
    out = files.folder / "with-mini"
    run("objcopy", "--strip-all", files.full, out)
    run("objcopy", f"--add-section=.gnu_debugdata={packed}", out)
    functions = read_names(Elf.open(out), None).functions
    assert functions is not None
    assert functions.name(int(functions.find(np.array([files.address], np.uint64))[0])) == "helper"


def test_a_damaged_debug_file_leaves_what_the_file_itself_knows(files: Files) -> None:
    root = files.root()
    debug = root / ".build-id" / files.build_id[:2] / f"{files.build_id[2:]}.debug"
    data = bytearray(debug.read_bytes())
    symbols = next(section for section in Elf(bytes(data)).sections if section.name == ".symtab")
    data = data[:symbols.offset] + data[-(len(data) - symbols.offset - symbols.size):]  # headers now point nowhere
    debug.write_bytes(data)
    out = files.folder / "dynamic"
    run("gcc", "-shared", "-fPIC", "-g", "-o", out, files.folder / "program.c", f"-Wl,--build-id=0x{files.build_id}")
    named = read_names(Elf.open(out), None, DebugFiles([root]))
    assert named.functions is not None
    assert "exported" in {named.functions.name(index) for index in range(len(named.functions))}


@pytest.mark.skipif(shutil.which("dwz") is None, reason="dwz (Debian: dwz) is not installed")
@pytest.mark.parametrize("version", ["4", "5"])
def test_lines_of_files_that_dwz_shared_the_texts_of(tmp_path: Path, version: str) -> None:
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made.append(Files(tmp_path / name, f"-gdwarf-{version}"))
    before = [functions_of(Elf.open(one.full)) for one in made]
    shared = tmp_path / "shared.debug"
    run("dwz", "-m", shared, "-M", shared, made[0].full, made[1].full)
    assert shared.exists()
    for one, known in zip(made, before, strict=True):
        named = read_names(Elf.open(one.full), str(one.full))
        assert one.knows(named)
        assert named.problems == []
        assert named.functions is not None
        assert len(named.functions) >= len(known)
