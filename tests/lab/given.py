# SPDX-License-Identifier: MIT
"""What a machine is given on its disks: a tar of the project as it is, and one of the jobs and their programs."""

from __future__ import annotations

import hashlib
import importlib._bootstrap_external as bootstrap
import os
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from lab.build import FOLDER, HERE, ROOMS, ROOT
from support.command import compile_c

PROJECT_SIZE, JOBS_SIZE = 64 << 20, 64 << 20
"""Of the disks: they are the same in all machines, which may be woken from one saved state."""
COMPILED = FOLDER / "compiled"
"""Byte code and programs by what they were compiled from."""
_UNUSED = ("__pycache__", "_engine", "build", "src")
_DIGEST = 24


def pack_project(folder: Path, made: Path) -> None:
    """Write the tar of the project, the same bytes for the same files; `folder` is for what it is made of."""
    stage = folder / "project"
    for room in ROOMS:
        shutil.copytree(ROOT / room, stage / room, ignore=shutil.ignore_patterns(*_UNUSED))
    for name in ("runner", "labtools"):
        shutil.copy(HERE / "guest" / f"{name}.py", stage)
    (stage / "path").write_text(":".join(f"/in/{room}" for room in ROOMS))
    _pack(stage, made, PROJECT_SIZE)


def pack_jobs(jobs: Sequence[str], folder: Path, made: Path) -> None:
    """Write the tar of these jobs; `folder` is for what it is made of."""
    stage = folder / "given"
    (stage / "jobs").mkdir(parents=True)
    for name in jobs:
        shutil.copy(HERE / "jobs" / f"{name}.py", stage / "jobs")
    shutil.copy(HERE / "guest" / "killing.py", stage)
    (stage / "bin").mkdir()
    COMPILED.mkdir(exist_ok=True)
    for source in sorted((HERE / "programs").glob("*.c")):
        _compile_program(source, stage / "bin" / source.stem)
        if "ptlab: also static" in source.read_text():
            _compile_program(source, stage / "bin" / f"{source.stem}-static", "-static")
    _pack(stage, made, JOBS_SIZE)


def _pack(stage: Path, made: Path, size: int) -> None:
    COMPILED.mkdir(exist_ok=True)
    for source in stage.rglob("*.py"):
        _compile_python(source, f"/in/{source.relative_to(stage)}")
    with tarfile.open(made, "w") as out:
        for path in sorted(stage.rglob("*")):
            out.add(path, str(path.relative_to(stage)), recursive=False, filter=_undated)
    if made.stat().st_size > size:
        raise RuntimeError(f"{made.name} takes {made.stat().st_size} bytes, more than the laboratory's disk has")
    os.truncate(made, size)
    shutil.rmtree(stage)


def _undated(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The machine's clock may be behind."""
    member.mtime = 0
    return member


def _compile_python(source: Path, name: str) -> None:
    """Byte code that Python takes without a look at the source."""
    text = source.read_bytes()
    kept = COMPILED / f"{hashlib.sha256(name.encode() + text).hexdigest()[:_DIGEST]}.pyc"
    if not kept.exists():
        code = compile(text, name, "exec", dont_inherit=True)
        partial = kept.with_suffix(f".{os.getpid()}-{id(code)}")
        partial.write_bytes(bootstrap._code_to_hash_pyc(code, bytes(8), checked=False))
        partial.replace(kept)
    target = Path(bootstrap.cache_from_source(str(source)))
    target.parent.mkdir(exist_ok=True)
    shutil.copy(kept, target)


def _compile_program(source: Path, made: Path, *flags: str) -> None:
    read = [file.read_bytes() for file in (source, *sorted(source.parent.glob("*.h")))]
    digest = hashlib.sha256(" ".join(flags).encode() + b"".join(read)).hexdigest()[:_DIGEST]
    kept = COMPILED / f"{source.stem}-{digest}"
    if not kept.exists():
        partial = kept.with_name(f"{kept.name}.{os.getpid()}-{made.parents[1].parent.name}")
        compile_c(source, partial, *flags)
        partial.replace(kept)
    shutil.copy(kept, made)
