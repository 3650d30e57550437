# SPDX-License-Identifier: MIT
"""`ptweave capture`: what a function did, step by step."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ptweave.cli.options import add_run
from ptweave.data import BadInput, Bundle, Exit

if TYPE_CHECKING:
    from ptweave.merge.capture import Execution, Step, SystemCall

SUMMARY = "print what a function did: its instructions and what it called, with stacks and system calls"
EXAMPLES = """\
  ptweave capture prog.ptw --function parse              # its first execution
  ptweave capture prog.ptw --function parse --nth 3      # its third
  ptweave capture prog.ptw --function parse --list       # all of them: thread, block, time (s since the run's start)
  ptweave capture prog.ptw --function parse --thread 2 --unfold --no-instructions

lines: > a function begins, with its callers; < it has returned; = a system call and its result; + a call into the C
library, the loader or libtthread, in one line (with --unfold as any other); others are instructions: block's number,
address, instruction, place. -- gap: the record has a hole there. A step is indented by its depth.
Exit status: 0 done; 1 done, and there is a gap in it, or it was cut; 2 wrong use, or no such function ran.
"""

LIMIT = 100_000
_AHEAD = 4096


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--function", metavar="F", required=True, help="the function, as the table blocks has it")
    parser.add_argument("--thread", metavar="N", type=int, help="executions in this thread only")
    parser.add_argument("--nth", metavar="N", type=int, default=1, help="which execution (default: the first)")
    parser.add_argument("--list", action="store_true", help="list the executions instead")
    parser.add_argument("--unfold", action="store_true", help="show library internals like everything else")
    parser.add_argument("--no-instructions", action="store_true", help="functions and system calls only")
    parser.add_argument("--limit", metavar="BLOCKS", type=int, default=LIMIT,
                        help="follow it for at most so many blocks (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    from ptweave.merge.capture import Cut, Hole, capture, executions, times
    from ptweave.merge.run import Run

    if args.nth < 1 or args.limit < 1:
        raise BadInput("must be at least 1", where="--nth or --limit", remedy="give a positive number")
    with Run(args.bundle) as opened:
        found = executions(opened, args.function, args.thread)
        if args.list:
            _list(found, times(opened, args.function))
            return int(Exit.DONE)
        if args.nth > len(found):
            raise BadInput(f"{args.function} ran {len(found)} times", where=f"--nth {args.nth}",
                           remedy=f"give a number up to {len(found)}")
        execution = found[args.nth - 1]
        code = None if args.no_instructions else _Instructions(Bundle.open(args.bundle), execution)
        broken = False
        for step in capture(opened, execution, unfold=args.unfold, limit=args.limit):
            broken |= isinstance(step, Hole | Cut)
            for line in _lines(step, code):
                print(line)
    sys.stdout.flush()
    return int(Exit.INCOMPLETE if broken else Exit.DONE)


def _list(found: list[Execution], began: dict[Execution, int]) -> None:
    """A line for each: thread, block, time in s since the run's start, as `dump` has it."""
    for execution in found:
        t = began.get(execution)
        when = "-" if t is None else f"{t // 10**9}.{t % 10**9:09}"
        print(f"{execution.thread:>6}  {execution.seq:>12}  {when:>13}")


class _Instructions:
    """The text of a thread's instructions by block, disassembled a stretch at a time."""

    def __init__(self, bundle: Bundle, execution: Execution) -> None:
        self._bundle = bundle
        self._thread = str(execution.thread)
        self._end = execution.seq
        self._text: dict[int, list[str]] = {}

    def of(self, seq: int) -> list[str]:
        """Lines of `dump --instructions` for a block, less its time. Blocks must be asked for in order."""
        while seq >= self._end:
            self._read(max(self._end, seq))
        return self._text.get(seq, [])

    def _read(self, begin: int) -> None:
        from ptweave.decode.dump import Form, Moment, dump_flow

        parts: list[bytes] = []
        self._end = begin + _AHEAD
        dump_flow(self._bundle, Form.INSTRUCTIONS, lambda text: parts.append(bytes(text)), [self._thread],
                  Moment(seq=begin), Moment(seq=self._end))
        self._text = defaultdict(list)
        for line in b"".join(parts).decode(errors="replace").splitlines():
            words = line.split(None, 2)
            if len(words) == 3 and words[0].isdecimal():
                self._text[int(words[0])].append(words[2])


def _lines(step: Step, code: _Instructions | None) -> Iterator[str]:
    from ptweave.merge import capture
    from ptweave.merge.render import safe

    if isinstance(step, capture.Hole):
        yield f"-- gap: {step.kind}, before block {step.seq}"
    elif isinstance(step, capture.Cut):
        yield f"-- cut at block {step.seq}: {step.why}"
    elif isinstance(step, capture.Enter):
        callers = " < ".join(safe(name) for name in step.stack[1:])
        yield f"{'  ' * step.depth}> {safe(step.function)}" + (f"  [{callers}]" if callers else "")
    elif isinstance(step, capture.Leave):
        yield f"{'  ' * step.depth}< {safe(step.function)}"
    elif isinstance(step, capture.Folded):
        what = "calls back:" if step.begins else f"{step.instructions} instructions"
        made = "".join(f"; {_call(call)}" for call in step.calls)
        yield f"{'  ' * step.depth}+ {safe(step.function)} ({safe(step.library)}): {what}{made}"
    else:
        if code is not None:
            for text in code.of(step.seq):
                yield f"{'  ' * step.depth}  {step.seq}  {text}"
        if step.call is not None:
            yield f"{'  ' * step.depth}= {_call(step.call)}"


def _call(call: SystemCall) -> str:
    args = ", ".join(str(word) if word < 1 << 16 else f"{word:#x}" for word in call.args)
    result = "did not return" if call.result is None else (call.errno or str(call.result))
    return f"{call.name}({args}) = {result}"
