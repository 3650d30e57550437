# SPDX-License-Identifier: MIT
"""What the rooms' build scripts share: compile when inputs changed, one clear line when that fails."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

C_FLAGS = ("-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing")
"""Flags of every C file of ours (the engine's tool, built on Valgrind's headers, adds its own)."""


def fail(what: str, remedy: str) -> SystemExit:
    """The error of a build step: one line, what and what to do."""
    return SystemExit(f"ptweave build: {what}: {remedy}")


def run(command: Sequence[str | Path], remedy: str) -> None:
    """Run a compiler; on failure show its output and raise SystemExit with the remedy."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise fail(f"{words[0]} is not installed", remedy) from error
    if done.returncode != 0:
        sys.stderr.write(shlex.join(words) + "\n" + done.stdout + done.stderr)
        raise fail(f"{words[0]} failed", remedy)


def _digest(inputs: Iterable[Path], key: str) -> str:
    state = hashlib.sha256(key.encode())
    for path in sorted(inputs):
        state.update(str(path).encode() + b"\0" + path.read_bytes())
    return state.hexdigest()


def fresh(output: Path, inputs: Iterable[Path], key: str = "") -> bool:
    """True when `output` was made from exactly these inputs and this key (flags, versions)."""
    stamp = output.with_name("." + output.name + ".stamp")
    return output.exists() and stamp.exists() and stamp.read_text() == _digest(inputs, key)


def mark(output: Path, inputs: Iterable[Path], key: str = "") -> None:
    """Remember what `output` was made from."""
    output.with_name("." + output.name + ".stamp").write_text(_digest(inputs, key))


def shared_library(output: Path, sources: Sequence[Path], headers: Sequence[Path], flags: Sequence[str],
                   libraries: Sequence[str], remedy: str) -> Path:
    """Compile C sources into a shared library, if anything changed."""
    inputs = [*sources, *headers]
    key = shlex.join([*C_FLAGS, *flags, *libraries])
    if not fresh(output, inputs, key):
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_name(f".{output.name}.{os.getpid()}")
        run(["gcc", *C_FLAGS, "-shared", "-fPIC", *flags, "-o", partial, *sources, *libraries], remedy)
        partial.replace(output)
        mark(output, inputs, key)
    return output


def cffi_extension(package: Path, name: str, cdef: str, source: str, sources: Sequence[Path],
                   headers: Sequence[Path], libraries: Sequence[str], include: Sequence[Path],
                   remedy: str) -> Path:
    """Build a cffi API-mode extension `name` into the package folder, if anything changed.

    `cdef` is what Python sees, `source` the C text that declares it (usually one #include),
    `sources` the C files compiled in.
    """
    from cffi import FFI

    suffix = _extension_suffix()
    output = package / (name + suffix)
    inputs = [*sources, *headers]
    key = "\0".join([cdef, source, *libraries, *C_FLAGS, suffix])
    if fresh(output, inputs, key):
        return output
    builder: Any = FFI()
    builder.cdef(cdef)
    builder.set_source(
        name, source, sources=[str(path) for path in sources], libraries=list(libraries),
        include_dirs=[str(path) for path in include],
        # cffi's generated wrapper is not written to -Wextra: the parts below are, with -Werror
        extra_compile_args=[*C_FLAGS, "-Wno-unused-parameter", "-Wno-missing-field-initializers",
                            "-Wno-sign-compare", "-Wno-cast-function-type", "-fvisibility=hidden"],
    )
    with tempfile.TemporaryDirectory() as scratch:
        try:
            made = Path(builder.compile(tmpdir=scratch))
        except Exception as error:  # cffi and setuptools raise whatever the compiler step raised
            raise fail(f"cannot build {name} ({error})", remedy) from error
        partial = package / f".{output.name}.{os.getpid()}"
        partial.write_bytes(made.read_bytes())
        partial.chmod(0o755)
        partial.replace(output)
    mark(output, inputs, key)
    return output


def _extension_suffix() -> str:
    import sysconfig

    return str(sysconfig.get_config_var("EXT_SUFFIX"))
