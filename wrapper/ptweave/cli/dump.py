# SPDX-License-Identifier: MIT
"""`ptweave dump`: a run as text, from its first line to its last."""

from __future__ import annotations

import argparse
import sys

from ptweave.cli.options import add_run, nothing_between
from ptweave.data import BadInput, Bundle, Exit

SUMMARY = "print a run as text: packets, blocks, instructions or events"
EXAMPLES = """\
  ptweave dump prog.ptw                                  # every instruction, thread by thread
  ptweave dump prog.ptw --thread 0 --from 1000 --to 1010 # blocks 1000 to 1009 of thread 0, by instructions
  ptweave dump prog.ptw --blocks --from 12.5ms --to 13ms # of all threads, between two times
  ptweave dump prog.ptw --packets | head                 # needs no decoding
  ptweave dump prog.ptw --ip-only | sha256sum

columns (times in s since the run's start, - unknown):
  --instructions  block's number, time, address, [bytes,] instruction, function+offset, file:line of the block
  --blocks        block's number, time, address, bytes, instructions, class of its last instruction, function, file:line
  --events        number of the next block, time, offset in the trace, kind, ip, target, detail
  --packets       offset in the trace, kind, payload, and of a compressed IP what it comes to
  --ip-only       address
--from is the first block shown, --to the first one not shown; a time stands for the first block at or after it. With
--packets they are byte offsets. Holes in the record appear where they are, as lines that begin with -- gap (with
--ip-only as one line on stderr, at the end).
Exit status: 0 done, also when the reader stops reading; 1 done, and there are gaps; 2 wrong use, or not decoded yet.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    forms = parser.add_mutually_exclusive_group()
    for form, text in (("instructions", "a line an instruction (the default)"), ("blocks", "a line a block"),
                       ("events", "a line for each event the decoder met"), ("packets", "a line a packet"),
                       ("ip-only", "addresses of instructions, and nothing else")):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=text)
    parser.add_argument("--bytes", action="store_true", help="show the instructions' bytes, too")
    parser.add_argument("--thread", metavar="N", action="append", dest="threads",
                        help="this thread only (may be repeated); with --packets cpu-N names a processor's trace")
    parser.add_argument("--from", metavar="A", dest="begin",
                        help="begin here: a block's number, a time since the start (12.5ms, 3s) or t=NS")
    parser.add_argument("--to", metavar="B", dest="end", help="stop before it")


def run(args: argparse.Namespace) -> int:
    from ptweave.cli import say
    from ptweave.decode.dump import Form, Moment, dump_flow, dump_packets

    form = Form(args.form or Form.INSTRUCTIONS)
    if args.bytes and form is not Form.INSTRUCTIONS:
        raise BadInput("goes with --instructions", where="--bytes", remedy="leave it out")
    begin, end = (None if text is None else Moment.parse(text) for text in (args.begin, args.end))
    bundle, write = Bundle.open(args.bundle), _Writer()
    if form is Form.PACKETS:
        dumped = dump_packets(bundle, write, args.threads, _offset(begin) or 0, _offset(end))
    else:
        dumped = dump_flow(bundle, form, write, args.threads, begin, end, with_bytes=args.bytes)
    sys.stdout.buffer.flush()
    if not write.shown and form is not Form.EVENTS and (args.begin is not None or args.end is not None):
        raise nothing_between(args.begin, args.end, 'ptweave query RUN "select thread, blocks, t_start, t_end '
                              'from threads" shows what there is')
    if dumped.gaps and form is Form.IPS:
        say(f"{bundle.path}: incomplete: gaps: {dumped.summary()}")
    return int(Exit.INCOMPLETE if dumped.gaps else Exit.DONE)


class _Writer:
    """Text to stdout, at once. `shown`: there was more than headings."""

    def __init__(self) -> None:
        self.shown = False

    def __call__(self, text: memoryview) -> None:
        self.shown = self.shown or any(not line.startswith(b"-- thread ") for line in bytes(text).splitlines())
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def _offset(moment: object) -> int | None:
    """A byte offset. Raises BadInput for a time."""
    from ptweave.decode.dump import Moment

    if moment is None:
        return None
    assert isinstance(moment, Moment)
    if moment.seq is None:
        raise BadInput("is a time; with --packets it is a byte offset in the trace", where="--from or --to",
                       remedy="give a number (0x… too)")
    return moment.seq
