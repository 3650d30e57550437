# SPDX-License-Identifier: MIT
"""`ptweave import raw`: packets and images as they are."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ptweave.data import BadInput, Bundle, Cpu
from ptweave.data.bundle import SUFFIX

SUMMARY = "Intel PT packets as the processor wrote them, and the files of code they ran through"
EXAMPLES = """\
  ptweave import raw --pt trace.pt --image a.out@0x555555554000 --image vdso.bin@0x7ffff7ffa000 --cpu 6/94/3
  ptweave import raw --pt trace.pt --image dump.bin@0x400000:0x1000:8192 --cpu 6/85/4 --mtc-freq 3 --nom-freq 37 \\
                     --cpuid-0x15 2,308 -o run.ptw
  ptweave decode trace.ptw && ptweave dump trace.ptw

numbers are decimal or 0x…; an ELF file lies by its segments, ADDR being its lowest address (FILE alone: where it was
linked to be); any other file, or FILE@ADDR:OFFSET:SIZE, lies as it is. Several --pt: a thread each. A
file without a PSB has nothing that can be decoded: a line says so, with exit status 1.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pt", metavar="FILE", type=Path, action="append", required=True, dest="traces",
                        help="a trace; once for each thread")
    parser.add_argument("--image", metavar="FILE[@ADDR[:OFFSET:SIZE]]", action="append", default=[], dest="images",
                        help="code, and where it lay; a later one lies over earlier ones")
    parser.add_argument("--cpu", metavar="F/M/S", required=True,
                        help="family, model and stepping of the processor that wrote the packets (for its errata), "
                        "or none")
    parser.add_argument("--mtc-freq", metavar="N", default="0", help="IA32_RTIT_CTL.MTCFreq when it was recorded")
    parser.add_argument("--nom-freq", metavar="N", default="0", help="MSR_PLATFORM_INFO[15:8]")
    parser.add_argument("--cpuid-0x15", metavar="EAX,EBX", default="0,0", dest="ratio",
                        help="CPUID leaf 0x15: crystal ticks and TSC ticks of their ratio")
    parser.add_argument("--tsc-hz", metavar="N", default="0",
                        help="the TSC's frequency, for times in ns (default: nominal, from --nom-freq)")


def run(args: argparse.Namespace) -> Bundle:
    """Import; returns the bundle."""
    from ptweave.decode.import_raw import ImageSpec, import_raw

    output = args.output or Path(args.traces[0].stem + SUFFIX)
    images = [ImageSpec.parse(text) for text in args.images]
    return import_raw(output, args.traces, images, _cpu(args)).bundle


def _cpu(args: argparse.Namespace) -> Cpu:
    eax, ebx = _numbers("--cpuid-0x15", args.ratio, "EAX,EBX", ",", (1 << 32, 1 << 32))
    cpu = Cpu(mtc_freq=_number("--mtc-freq", args.mtc_freq, 16), nom_freq=_number("--nom-freq", args.nom_freq, 256),
              tsc_hz=_number("--tsc-hz", args.tsc_hz, 1 << 40), tsc_ratio=(ebx, eax))
    if args.cpu != "none":
        cpu.vendor = "GenuineIntel"
        cpu.family, cpu.model, cpu.stepping = _numbers("--cpu", args.cpu, "F/M/S, as in 6/94/3, or none", "/",
                                                       (1 << 16, 1 << 8, 1 << 8))
    return cpu


def _numbers(option: str, text: str, form: str, separator: str, ends: tuple[int, ...]) -> list[int]:
    parts = re.split(re.escape(separator), text)
    if len(parts) != len(ends):
        raise BadInput(f"is not {form}", where=f"{option} {text}", remedy="see ptweave import raw --help")
    return [_number(option, part, end) for part, end in zip(parts, ends, strict=True)]


def _number(option: str, text: str, end: int) -> int:
    from ptweave.decode.import_raw import number

    try:
        value = number(text.strip())
    except ValueError as error:
        raise BadInput(str(error), where=option, remedy="give it decimal or as 0x…") from error
    if value >= end:
        raise BadInput(f"{value} is too large: it is below {end}", where=option, remedy="correct it")
    return value
