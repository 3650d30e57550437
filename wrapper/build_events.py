# SPDX-License-Identifier: MIT
"""Build the recorder of system calls: the BPF object and the extension that loads it and drains its ring."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

from build_tools import cffi_extension, fail, fresh, mark, run

REMEDY = "apt-get install clang libbpf-dev linux-libc-dev gcc python3-dev"

BPF_FLAGS = ("-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
"""-g: its BTF is what the loader fits the program to the kernel with."""


def bpf_object(root: Path) -> Path:
    """Compile the BPF programs, if anything changed."""
    source = root / "wrapper/bpf/syscalls.bpf.c"
    inputs = [source, *sorted((root / "wrapper/bpf").glob("*.h"))]
    output = root / "wrapper/ptweave/wrapper/_bpf/syscalls.bpf.o"
    flags = [*BPF_FLAGS, f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}"]
    key = " ".join(flags)
    if fresh(output, inputs, key):
        return output
    if not Path("/usr/include/bpf/bpf_helpers.h").exists():
        raise fail("libbpf's headers are not installed", REMEDY)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    run(["clang", *flags, "-c", source, "-o", partial], REMEDY)
    partial.replace(output)
    mark(output, inputs, key)
    return output


def declarations(*headers: Path) -> str:
    """What Python sees of the headers: the parts they mark for it."""
    parts: list[str] = []
    for header in headers:
        parts += re.findall(r"/\* cffi begin \*/(.*?)/\* cffi end \*/", header.read_text(), re.DOTALL)
    return "".join(parts)


def extension(root: Path) -> Path:
    """Build `ptweave.wrapper._events`, if anything changed."""
    folder = root / "wrapper/src"
    names = ("ring", "batch", "programs", "filters", "urgency", "events")
    headers = [folder / f"{name}.h" for name in names]
    return cffi_extension(
        root / "wrapper/ptweave/wrapper", "_events",
        cdef=declarations(folder / "batch.h", folder / "filters.h", folder / "events.h"), source='#include "events.h"',
        sources=[folder / f"{name}.c" for name in names], headers=[*headers, root / "wrapper/bpf/record.h"],
        libraries=["bpf"], include=[folder], remedy=REMEDY)


def build(root: Path) -> list[Path]:
    """Build both; returns what was made. Raises SystemExit with one line when something is missing."""
    return [bpf_object(root), extension(root)]
