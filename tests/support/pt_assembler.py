# SPDX-License-Identifier: MIT
"""The PT assembler: annotated assembly in; trace, code, expected packets, instructions, events and gaps out.

A `.ptasm` file holds cases. Lines that begin with `@` are directives, all others are lines of GNU as (AT&T, one
instruction a line, or `N * INSTRUCTION`); what follows a `;` is an annotation, `pt: PACKET, PACKET…`, or a comment.
Packets are written in the order of the file.

    @case NAME | what it shows
    @use PROGRAM                  the code of `@program PROGRAM` (its lines up to the next @case or @program)
    @code BITS ADDRESS [missing]  what follows is code for 16, 32 or 64 bits; `missing`: its bytes are not kept
    @cpu F/M/S                    an Intel processor, with its errata; without it: packets as the architecture says
    @timing mtc_freq=N nom_freq=N tsc_ratio=EBX/EAX
    @filter KIND FIRST LAST       an address filter: `filter` (trace only there) or `stop`
    @pt PACKET, PACKET…           packets, as after `; pt:`
    @run ITEMS                    instructions executed: `a`, `a..b` (all from a to b), `(a..b c)*3`
    @started A [BITS]             the events of `start(A)`: enabled, and the mode the processor is in
    @event N KIND ip=A target=A detail=V size=V [update]
                                  an event before the N-th instruction; what is not named is null;
                                  tsc=V at=P lost_mtc=V lost_cyc=V: compared when they are named
    @gap N KIND FROM..TO [ip=A] [text words]          a hole from packet FROM to packet TO, or `end`; without FROM..TO:
                                  of no bytes, somewhere between the events around it
    @clock N:TSC …                moments known, each before the N-th instruction

An address is a number, a label, or `label+N`, N instructions further. Packets take `form:address` where they carry an
IP (the form is IPBytes; without it, it is chosen as a processor would) and may have a label, `name = packet(…)`.
`start(A)` or `start(A, BITS)` is PSB, PSBEND, MODE.Exec and TIP.PGE; `raw(HEX)` is bytes in front of the first PSB,
`bad(HEX)` a packet that cannot be read: nothing after it is listed up to the next PSB; `psb.rest()` ends a PSB whose
first two bytes another packet has swallowed.
Nothing here asks the decoder or libipt anything: addresses of instructions are labels of binutils' own, packets are
written by `PtWriter`, expectations stand in the file.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.assembler import run_tool
from support.pt_writer import WIDTH, Ip, PtWriter

CALL = re.compile(r"\s*(?:(\w+)\s*=\s*)?([a-z0-9.]+)\(([^)]*)\)\s*(?:\*\s*(\d+)\s*)?(?:,|$)")
MARK = "ptasm_line_"


class AssemblyError(Exception):
    """A `.ptasm` file says something that makes no sense."""


@dataclass(frozen=True)
class Piece:
    """Code of one `@code`: `kept` false: mapped, but the bytes are not to be had."""

    address: int
    data: bytes
    kept: bool


@dataclass(frozen=True)
class Program:
    """Assembled code with the addresses of its labels and instructions."""

    pieces: tuple[Piece, ...]
    labels: dict[str, int]
    instructions: tuple[int, ...]  # in the order of the source

    def address(self, text: str) -> int:
        """The address `text` names. Raises AssemblyError when there is no such label."""
        text = text.strip()
        if re.fullmatch(r"0x[0-9a-fA-F]+|\d+", text):
            return int(text, 0)
        name, _, further = text.partition("+")
        if name not in self.labels:
            raise AssemblyError(f"no label {name}")
        address = self.labels[name]
        return self.instructions[self.instructions.index(address) + int(further)] if further else address

    def between(self, first: int, last: int) -> list[int]:
        """Instructions from `first` to `last`, both included, in the order of the source."""
        return list(self.instructions[self.instructions.index(first):self.instructions.index(last) + 1])


@dataclass(frozen=True)
class Packet:
    """A packet as it stands in the trace; `values` in the order of tests/programs/packet_list.c."""

    offset: int
    size: int
    kind: str
    values: tuple[object, ...]


@dataclass(frozen=True)
class Event:
    before: int
    kind: str
    ip: int | None = None
    target: int | None = None
    detail: int | None = None
    size: int | None = None
    update: bool = False
    tsc: int | None = None
    offset: int | None = None
    lost_mtc: int | None = None
    lost_cyc: int | None = None


@dataclass(frozen=True)
class Gap:
    before: int
    kind: str
    offset: int
    size: int
    ip: int | None = None
    text: str = ""


@dataclass
class Case:
    """One assembled case: inputs first, then what must come out."""

    name: str
    about: str
    file: str
    program: Program
    trace: bytes
    cpu: tuple[int, int, int] | None
    timing: dict[str, int | tuple[int, int]]
    filters: list[tuple[str, int, int]]
    packets: list[Packet]
    run: list[int]
    events: list[Event]
    gaps: list[Gap]
    clock: list[tuple[int, int]]
    checks_offsets: bool = False


@dataclass
class _Text:
    """A case's directives and code, before anything is assembled."""

    name: str
    about: str
    lines: list[str] = field(default_factory=list)


def case_texts(path: Path) -> list[_Text]:
    """The cases of a file, `@use` replaced by what it names."""
    programs: dict[str, list[str]] = {}
    cases: list[_Text] = []
    into: list[str] = []
    for line in path.read_text().splitlines():
        word, _, rest = line.strip().partition(" ")
        name, _, about = (part.strip() for part in rest.partition("|"))
        if word == "@program":
            into = programs[name] = []
        elif word == "@case":
            cases.append(_Text(name, about))
            into = cases[-1].lines
        elif word == "@use":
            if name not in programs:
                raise AssemblyError(f"{path.name}: no program {name}")
            into += programs[name]
        elif not line.startswith("#"):
            into.append(line)
    return cases


def assemble_case(text: _Text, file: str) -> Case:
    """Assemble one case. Raises AssemblyError with the case and the line at fault."""
    return _Assembly(text, file).case()


# --- code ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Section:
    bits: int
    address: int
    kept: bool


@functools.cache
def _program(sections: tuple[_Section, ...], source: str, lines: int) -> Program:
    with tempfile.TemporaryDirectory() as folder:
        return _build(Path(folder), sections, source, lines)


def _build(folder: Path, sections: tuple[_Section, ...], source: str, lines: int) -> Program:
    narrow = all(section.bits != 64 for section in sections)
    (folder / "a.s").write_text(source)
    run_tool("as", "--32" if narrow else "--64", "-o", folder / "a.o", folder / "a.s")
    starts = [f"--section-start=.pt{number}={section.address:#x}" for number, section in enumerate(sections)]
    run_tool("ld", "-m", "elf_i386" if narrow else "elf_x86_64", "-e", "0", "--no-warn-rwx-segments", *starts,
             "-o", folder / "a.elf", folder / "a.o")
    labels = {}
    for line in run_tool("nm", folder / "a.elf").splitlines():
        address, _, name = line.split()
        labels[name] = int(address, 16)
    pieces = []
    for number, section in enumerate(sections):
        run_tool("objcopy", "-O", "binary", "-j", f".pt{number}", folder / "a.elf", folder / "a.bin")
        pieces.append(Piece(section.address, (folder / "a.bin").read_bytes(), section.kept))
    instructions = tuple(labels.pop(f"{MARK}{number}") for number in range(lines))
    return Program(tuple(pieces), labels, instructions)


class _Source:
    """The GNU as source of a case, growing line by line."""

    def __init__(self) -> None:
        self.sections: list[_Section] = []
        self.lines: list[str] = []
        self.count = 0

    def section(self, words: list[str]) -> None:
        bits, address = int(words[0]), int(words[1], 0)
        self.lines.append(f'.section .pt{len(self.sections)},"ax",@progbits\n.code{bits}')
        self.sections.append(_Section(bits, address, "missing" not in words[2:]))

    def add(self, line: str) -> None:
        match = re.match(r"\s*(?:(\w+):)?\s*(.*?)\s*$", line)
        assert match
        label, statement = match.groups()
        if label:
            self.lines.append(f"{label}:")
        if not statement:
            return
        times, star, repeated = statement.partition(" * ")
        for _ in range(int(times) if star else 1):
            if not statement.startswith("."):
                self.lines.append(f"{MARK}{self.count}:")
                self.count += 1
            self.lines.append(repeated if star else statement)

    def program(self) -> Program:
        if not self.sections:
            return Program((), {}, ())
        return _program(tuple(self.sections), "\n".join(self.lines) + "\n", self.count)


# --- packets ------------------------------------------------------------------------------------------------------


def _bits(text: str) -> str:
    """TNT bits as `!` and `.`, with `!*47` for repetition."""
    whole = re.fullmatch(r"([!.]+)\*(\d+)([!.]*)", text)
    return whole[1] * int(whole[2]) + whole[3] if whole else text


class _Packets:
    """Writes packets and remembers what they were."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.writer = PtWriter()
        self.packets: list[Packet] = []
        self.labels: dict[str, int] = {}
        self.synchronised = False
        self.makers: dict[str, Callable[..., tuple[object, ...]]] = {
            "psb": self._psb, "psbend": self._plain("psbend"), "pad": self._plain("pad"), "ovf": self._plain("ovf"),
            "stop": self._plain("stop"), "tnt": self._tnt, "tnt.64": self._tnt_long,
            "tip": self._ip("tip"), "tip.pge": self._ip("pge"), "tip.pgd": self._ip("pgd"), "fup": self._ip("fup"),
            "mode.exec": self._mode_exec, "mode.tsx": self._mode_tsx, "pip": self._pip,
            "vmcs": self._number("vmcs"), "cbr": self._number("cbr"), "tsc": self._number("tsc"),
            "mtc": self._number("mtc"), "cyc": self._number("cyc"), "mnt": self._number("mnt"),
            "tma": self._numbers("tma"), "mwait": self._numbers("mwait"), "pwre": self._pwre, "pwrx": self._pwrx,
            "exstop": self._exstop, "ptw": self._ptw,
        }
        # libipt reads none of these, nor what is behind them up to the next PSB
        self.unlisted: dict[str, Callable[..., object]] = {
            "cfe": lambda kind, vector, ip="": self.writer.cfe(int(kind), int(vector, 0), fup=ip == "ip"),
            "evd": lambda kind, payload: self.writer.evd(int(kind), int(payload, 0)),
            "bbp": lambda kind, width="8": self.writer.bbp(int(kind), small=width == "4"),
            "bip": lambda number, payload, width="8": self.writer.bip(int(number), int(payload, 0), small=width == "4"),
            "bep": lambda ip="": self.writer.bep(fup=ip == "ip"),
        }

    def add(self, text: str) -> None:
        at = 0
        while at < len(text.rstrip()):
            match = CALL.match(text, at)
            if not match:
                raise AssemblyError(f"not a packet: {text[at:]!r}")
            label, kind, arguments, times = match.groups()
            if label:
                self.labels[label] = len(self.writer)
            for _ in range(int(times or 1)):
                self._one(kind, [word.strip() for word in arguments.split(",") if word.strip()])
            at = match.end()

    def _one(self, kind: str, arguments: list[str]) -> None:
        offset = len(self.writer)
        if kind in ("raw", "bad"):  # raw: part of no packet the listing shows; bad: nothing is read up to the next PSB
            self.writer.raw(bytes.fromhex("".join(arguments).replace("_", "")))
            self.synchronised &= kind == "raw"
            return
        if kind in self.unlisted:
            self.unlisted[kind](*arguments)
            self.synchronised = False
            return
        if kind == "forget":  # what a processor does where it must not compress the next IP
            self.writer.last_ip = 0
            return
        if kind == "psb.rest":  # of a PSB whose first two bytes stand in the packet before
            self.writer.psb()
            del self.writer.data[-2:]
            self.packets.append(Packet(offset - 2, 16, "psb", ()))
            return
        if kind == "start":
            bits = arguments[1] if len(arguments) > 1 else 64
            self.add(f"psb(), psbend(), mode.exec({bits}), tip.pge({arguments[0]})")
            return
        if kind not in self.makers:
            raise AssemblyError(f"no packet is called {kind}")
        values = self.makers[kind](*arguments)
        self.synchronised |= kind == "psb"
        if self.synchronised:
            name = {"tnt": "tnt.8"}.get(kind, kind)
            self.packets.append(Packet(offset, len(self.writer) - offset, name, values))

    def _psb(self) -> tuple[object, ...]:
        self.writer.psb()
        return ()

    def _plain(self, name: str) -> Callable[[], tuple[object, ...]]:
        def make() -> tuple[object, ...]:
            getattr(self.writer, name)()
            return ()
        return make

    def _tnt(self, bits: str = "") -> tuple[object, ...]:
        self.writer.tnt(_bits(bits))
        return (_bits(bits),)

    def _tnt_long(self, bits: str = "") -> tuple[object, ...]:
        self.writer.tnt_long(_bits(bits))
        return (_bits(bits),)

    def _ip(self, name: str) -> Callable[..., tuple[object, ...]]:
        def make(argument: str = "") -> tuple[object, ...]:
            before = len(self.writer)
            form, _, where = argument.rpartition(":")
            address = self.program.address(where) if where.strip() else None
            chosen = Ip(int(form)) if form else None
            if chosen == Ip.SUPPRESSED:
                address = None
            if name == "pge":
                self.writer._ip(0x11, address, chosen)
            else:
                getattr(self.writer, name)(address, chosen)
            kind = Ip(self.writer.data[before] >> 5)
            width = WIDTH[kind]
            return int(kind), (0 if address is None else address & (1 << 8 * width) - 1)
        return make

    def _mode_exec(self, bits: str, interrupts: str = "") -> tuple[object, ...]:
        self.writer.mode_exec(int(bits), interrupts=interrupts == "if")
        return (int(bits),)

    def _mode_tsx(self, what: str = "") -> tuple[object, ...]:
        begun, aborted = "begin" in what, "abort" in what
        self.writer.mode_tsx(begun=begun, aborted=aborted)
        return int(begun), int(aborted)

    def _pip(self, cr3: str, non_root: str = "") -> tuple[object, ...]:
        self.writer.pip(int(cr3, 0), non_root=bool(non_root))
        return int(cr3, 0), int(bool(non_root))

    def _number(self, name: str) -> Callable[[str], tuple[object, ...]]:
        def make(value: str) -> tuple[object, ...]:
            getattr(self.writer, name)(int(value, 0))
            return (int(value, 0),)
        return make

    def _numbers(self, name: str) -> Callable[..., tuple[object, ...]]:
        def make(*values: str) -> tuple[object, ...]:
            numbers = tuple(int(value, 0) for value in values)
            getattr(self.writer, name)(*numbers)
            return numbers
        return make

    def _pwre(self, state: str, sub_state: str, by: str = "") -> tuple[object, ...]:
        self.writer.pwre(int(state), int(sub_state), hardware=by == "hw")
        return int(state), int(sub_state), int(by == "hw")

    def _pwrx(self, last: str, deepest: str, wake: str) -> tuple[object, ...]:
        bit = {"interrupt": 1, "store": 4, "autonomous": 8}
        value = sum(bit[word] for word in wake.split("|"))
        self.writer.pwrx(int(last), int(deepest), value)
        return int(last), int(deepest), value

    def _exstop(self, ip: str = "") -> tuple[object, ...]:
        self.writer.exstop(fup=ip == "ip")
        return (int(ip == "ip"),)

    def _ptw(self, size: str, payload: str, ip: str = "") -> tuple[object, ...]:
        self.writer.ptw(int(payload, 0), fup=ip == "ip", size=int(size))
        return int(size), int(ip == "ip"), int(payload, 0)


# --- a case -------------------------------------------------------------------------------------------------------


class _Assembly:
    """Turns one case's lines into a Case: code first, then packets, then what they must come to."""

    def __init__(self, text: _Text, file: str) -> None:
        self.text = text
        self.file = file
        self.source = _Source()
        self.packet_texts: list[str] = []
        self.directives: list[tuple[str, str]] = []

    def case(self) -> Case:
        try:
            for line in self.text.lines:
                self._line(line)
            return self._assemble()
        except (ValueError, KeyError, TypeError, AssemblyError, AssertionError) as error:
            raise AssemblyError(f"{self.file}: {self.text.name}: {error}") from error

    def _line(self, line: str) -> None:
        if line.startswith("@"):
            word, _, rest = line.partition(" ")
            if word == "@code":
                self.source.section(rest.split())
            elif word == "@pt":
                self.packet_texts.append(rest.split(";")[0])
            else:
                self.directives.append((word, rest.split(";")[0].strip()))
            return
        code, *notes = line.split(";")
        if code.strip():
            self.source.add(code)
        for note in notes:
            word, _, packets = note.strip().partition("pt:")
            if not word and packets:
                self.packet_texts.append(packets)

    def _assemble(self) -> Case:
        self.program = self.source.program()
        packets = _Packets(self.program)
        for text in self.packet_texts:
            packets.add(text)
        self.packet_labels = packets.labels
        trace = bytes(packets.writer.data)
        case = Case(self.text.name, self.text.about, self.file, self.program, trace, None, {}, [], packets.packets,
                    [], [], [], [])
        self.end = len(trace)
        for word, rest in self.directives:
            self._directive(case, word, rest)
        case.packets = [packet for packet in case.packets if packet.offset + packet.size <= len(case.trace)]
        return case

    def _directive(self, case: Case, word: str, rest: str) -> None:
        if word == "@cut":
            case.trace = case.trace[:-int(rest)]
            self.end = len(case.trace)
        elif word == "@cpu":
            family, model, stepping = (int(number) for number in rest.split("/"))
            case.cpu = (family, model, stepping)
        elif word == "@timing":
            for pair in rest.split():
                name, _, value = pair.partition("=")
                ebx, slash, eax = value.partition("/")
                case.timing[name] = (int(ebx), int(eax)) if slash else int(value)
        elif word == "@filter":
            kind, first, last = rest.split()
            case.filters.append((kind, self.program.address(first), self.program.address(last)))
        elif word == "@run":
            case.run += self._run(rest)
        elif word == "@started":
            label, *bits = rest.split()
            ip = self.program.address(label)
            case.events += [Event(0, "enabled", ip, ip),
                            Event(0, "exec_mode", ip, detail=int(bits[0]) if bits else 64)]
        elif word == "@event":
            case.events.append(self._event(rest))
        elif word == "@gap":
            case.gaps.append(self._gap(rest))
        elif word == "@clock":
            case.clock += [(int(a), int(b, 0)) for a, b in (pair.split(":") for pair in rest.split())]
        else:
            raise AssemblyError(f"no directive {word}")

    def _run(self, text: str) -> list[int]:
        tokens = re.findall(r"\(|\)(?:\*\d+)?|[^\s()]+", text)
        stack: list[list[int]] = [[]]
        for token in tokens:
            if token == "(":
                stack.append([])
            elif token.startswith(")"):
                group = stack.pop()
                stack[-1] += group * int(token[2:] or 1)
            else:
                item, _, times = token.partition("*")
                first, _, last = item.partition("..")
                start = self.program.address(first)
                stack[-1] += self.program.between(start, self.program.address(last or first)) * int(times or 1)
        if len(stack) != 1:
            raise AssemblyError(f"brackets do not match: {text}")
        return stack[0]

    def _event(self, text: str) -> Event:
        before, kind, *pairs = text.split()
        values: dict[str, Any] = {}
        for pair in pairs:
            name, _, value = pair.partition("=")
            if name == "update":
                values["update"] = True
            elif name == "at":
                values["offset"] = self._offset(value)
            elif name in ("ip", "target"):
                values[name] = self.program.address(value)
            else:
                values[name] = int(value, 0)
        return Event(int(before), kind, **values)

    def _gap(self, text: str) -> Gap:
        before, kind, *rest = text.split()
        begin = end = -1
        if rest and ".." in rest[0]:
            begin, end = (self._offset(where) for where in rest.pop(0).split(".."))
        ip = None
        if rest and rest[0].startswith("ip="):
            ip = self.program.address(rest.pop(0)[3:])
        return Gap(int(before), kind, begin, end - begin, ip, " ".join(rest))

    def _offset(self, text: str) -> int:
        if text == "end":
            return self.end
        return self.packet_labels[text] if text in self.packet_labels else int(text, 0)
