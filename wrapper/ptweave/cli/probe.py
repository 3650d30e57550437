# SPDX-License-Identifier: MIT
"""`ptweave probe --list`: the places a SPEC means, before anything is recorded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ptweave.data import BadInput, Exit

SUMMARY = "show the places in a program and its libraries that a probe would be at"
EXAMPLES = """\
  ptweave probe --list malloc ./prog
  ptweave probe --list 'libz.so.1:deflate*' ./prog        # all functions of a library that are called so
  ptweave probe --list prog.c:120 ./prog
  ptweave probe --list 'mov rax, [rdi+?]; call ?' ./prog  # instructions that follow each other; ? is any text
  ptweave probe --list '48 8b ?? 08 ff' /usr/lib/x86_64-linux-gnu/libz.so.1
  ptweave record --handler args --probe malloc --handler my.c:on_open --probe open -- ./prog

SPEC: a function (FUNCTION, FUNCTION+N, with * many), FILE+OFFSET (in the file), SOURCE:LINE, bytes in hexadecimal with
?? for any, or instructions in Intel's syntax separated by `;` (one alone ends with one); FILE: before it names one
file; `after ` before bytes or instructions means the place behind them.
Exit status: 0 all of them can be probed; 1 some cannot; 2 wrong use, or there is no such place.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", metavar="SPEC", required=True, help="the places to show")
    parser.add_argument("file", metavar="FILE", type=Path, help="a program (and its libraries) or a library")
    parser.add_argument("--no-instructions", action="store_true", help="one line for each place")


def run(args: argparse.Namespace) -> int:
    from ptweave.cli.code import load_code
    from ptweave.merge.render import safe
    from ptweave.preload import library_path
    from ptweave.wrapper.probes.plan import Builtin, Handler, Wanted, find_sites, linked_files
    from ptweave.wrapper.probes.search import formatter, text_of
    from ptweave.wrapper.probes.sites import Refusal, examine_site
    from ptweave.wrapper.probes.spec import parse_spec

    if not args.file.is_file():
        raise BadInput("does not exist", where=str(args.file), remedy="name a program or a library")
    load_code(args.file)  # is it one?
    wanted = Wanted(parse_spec(args.list), Handler("log", Builtin.LOG))
    text, refused = formatter(), 0
    found = find_sites(wanted, linked_files(args.file), load_code, listing=True, preloaded=library_path())
    for path, address in found:
        code = load_code(path)
        outcome = examine_site(code, address)
        index = code.function(address)
        function = "?" if index < 0 else f"{safe(code.name(index))}+{address - int(code.starts[index]):#x}"
        verdict = f"refused: {outcome.reason}" if isinstance(outcome, Refusal) else "ok"
        print(f"{safe(str(path))}+{address:#x}  {function}  {verdict}")
        refused += isinstance(outcome, Refusal)
        if not args.no_instructions:
            first = tuple(code.instructions(address, address + 15))[:1]
            for one in first if isinstance(outcome, Refusal) else outcome.moved:
                print(f"    {one.ip:x}:  {text_of(text, one)}")
    sys.stdout.flush()
    return int(Exit.INCOMPLETE if refused else Exit.DONE)
