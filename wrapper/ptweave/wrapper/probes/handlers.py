# SPDX-License-Identifier: MIT
"""Handlers: built-in ones by name, and the user's C functions, compiled on the spot."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from ptweave.data import BadInput, MachineLacks
from ptweave.wrapper.probes.plan import Builtin, Handler

BUILTIN = {"log": Builtin.LOG, "args": Builtin.ARGS, "stack": Builtin.STACK, "time": Builtin.TIME,
           "return": Builtin.RETURN}
_USER = re.compile(r"(.+\.c(?:c|pp|xx)?):([A-Za-z_]\w*)")
NAME_MAX = 191
FLAGS = ("-shared", "-fPIC", "-O2", "-g", "-fno-omit-frame-pointer")


class Handlers:
    """Knows which files are compiled already. The shared objects are made in `scratch`, which the caller removes."""

    def __init__(self, include: Path, scratch: Path) -> None:
        """`include` has ptweave/probe.h."""
        self._include = include
        self._scratch = scratch
        self._objects: dict[Path, Path] = {}

    def get(self, text: str) -> Handler:
        """Raises BadInput for a name that is none, a file that does not compile or has no such function, and
        MachineLacks when there is no compiler."""
        if text in BUILTIN:
            return Handler(text, BUILTIN[text])
        found = _USER.fullmatch(text)
        if not found:
            raise BadInput("is no handler", where=f"--handler {text}",
                           remedy=f"name one of {', '.join(BUILTIN)}, or FILE.c:FUNCTION")
        source = Path(found[1])
        if not source.is_file():
            raise BadInput("does not exist", where=str(source), remedy="check the file of --handler")
        made = self._objects.get(source)
        if made is None:
            made = self._objects[source] = self._compile(source)
        self._check(made, source, found[2])
        return Handler(text, Builtin.USER, made, found[2])

    def _compile(self, source: Path) -> Path:
        name = "gcc" if source.suffix == ".c" else "g++"
        compiler = shutil.which("cc" if name == "gcc" else "c++") or shutil.which(name)
        if compiler is None:
            raise MachineLacks("no C compiler was found", where=f"--handler {source}", remedy=f"install {name}")
        out = self._scratch / f"{len(self._objects)}.so"
        done = subprocess.run([compiler, *FLAGS, f"-I{self._include}", "-o", out, source], capture_output=True,
                              text=True, check=False, errors="replace")
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), "the compiler failed")
            raise BadInput(f"does not compile: {first.strip()}", where=f"--handler {source}",
                           remedy=f"see: {name} {' '.join(FLAGS)} -I{self._include} {source}")
        return out

    def _check(self, made: Path, source: Path, function: str) -> None:
        done = subprocess.run(["nm", "-D", "--defined-only", made], capture_output=True, text=True, check=False)
        names = {line.split()[2] for line in done.stdout.splitlines() if len(line.split()) == 3}
        if done.returncode == 0 and function not in names:
            raise BadInput(f"has no function {function} that can be called from outside", where=str(source),
                           remedy='check its name; it must not be static, and in C++ be extern "C"')
        if len(function) > NAME_MAX:
            raise BadInput("has a name that is too long", where=f"--handler {source}:{function[:20]}…")
