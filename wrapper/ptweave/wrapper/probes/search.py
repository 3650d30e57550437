# SPDX-License-Identifier: MIT
"""The addresses in a file's code that a SPEC means.

A pattern of instructions is compared as text, in Intel's syntax: `?` stands for any text within an operand. Spaces and
letter case do not matter, nor how numbers are written; `qword ptr` and its like only where the pattern has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from iced_x86 import Code as Op
from iced_x86 import Formatter, FormatterSyntax, Instruction, MemorySizeOptions

from ptweave.data import BadInput
from ptweave.wrapper.probes.code import Code
from ptweave.wrapper.probes.spec import REMEDY, Form, Spec

_SIZE = r"(?:(?:byte|word|dword|fword|qword|tbyte|xmmword|ymmword|zmmword) (?:ptr|bcst) )?"
_NUMBER = re.compile(r"(?<![\w?])(0x[0-9a-f]+|\d[\da-f]*h|\d+)(?!\w)")
STEPS_MAX = 64
_MOVABS = {Op.MOV_R64_IMM64, Op.MOV_AL_MOFFS8, Op.MOV_AX_MOFFS16, Op.MOV_EAX_MOFFS32, Op.MOV_RAX_MOFFS64,
           Op.MOV_MOFFS8_AL, Op.MOV_MOFFS16_AX, Op.MOV_MOFFS32_EAX, Op.MOV_MOFFS64_RAX}


def find_addresses(code: Code, spec: Spec) -> list[int]:
    """In order; none where the file has no such place."""
    if spec.form is Form.SYMBOL:
        return sorted({address + spec.number for address in code.symbols.get(spec.name, ())})
    if spec.form is Form.OFFSET:
        address = code.address_of(spec.number)
        return [] if address is None else [address]
    if spec.form is Form.LINE:
        return code.lines(spec.name, spec.number)
    found = _bytes(code, spec.pattern) if spec.form is Form.BYTES else Assembly(spec.pattern).find(code)
    return [end if spec.after else begin for begin, end in found]


def _bytes(code: Code, pattern: str) -> list[tuple[int, int]]:
    """Where a pattern of bytes begins and ends, anywhere in code."""
    words = pattern.split()
    expression = re.compile(b"(?=" + b"".join(
        b"." if word == "??" else re.escape(bytes([int(word, 16)])) for word in words) + b")", re.DOTALL)
    return [(stretch.address + match.start(), stretch.address + match.start() + len(words))
            for stretch in code.stretches if stretch.code for match in expression.finditer(stretch.data)]


def formatter() -> Formatter:
    """Instructions as patterns are written: `mov rax, qword ptr [rdi+0x8]`."""
    made = Formatter(FormatterSyntax.INTEL)
    made.hex_prefix, made.hex_suffix = "0x", ""
    made.uppercase_hex = made.uppercase_all = False
    made.small_hex_numbers_in_decimal = False
    made.space_after_operand_separator = True
    made.memory_size_options = MemorySizeOptions.ALWAYS
    made.branch_leading_zeros = False
    made.show_branch_size = False
    made.rip_relative_addresses = True
    return made


def text_of(formatter: Formatter, instruction: Instruction) -> str:
    """An instruction as patterns are written; what the GNU assembler calls movabs is called so."""
    text: str = formatter.format(instruction)
    return text.replace("mov ", "movabs ", 1) if instruction.code in _MOVABS else text


class Assembly:
    """A sequence of instruction patterns that follow each other without a gap."""

    def __init__(self, text: str) -> None:
        """Raises BadInput for what cannot match anything."""
        steps = [" ".join(step.lower().split()) for step in text.split(";") if step.strip()]
        if not steps or len(steps) > STEPS_MAX:
            raise BadInput(f"a pattern has 1 to {STEPS_MAX} instructions", where=f"--probe '{text}'", remedy=REMEDY)
        self._steps = [re.compile(_expression(step)) for step in steps]
        self._names = [re.compile(_text(step.split(" ", 1)[0], r"\S*")) for step in steps]
        self._formatter = formatter()
        self._mnemonics: list[dict[int, bool]] = [{} for _ in steps]

    def _may_match(self, step: int, instruction: Instruction) -> bool:
        """By mnemonic alone: decided once for each that occurs."""
        key = instruction.code << 4 | instruction.has_rep_prefix << 3 | instruction.has_repne_prefix << 2 \
            | instruction.has_lock_prefix << 1
        known = self._mnemonics[step].get(key)
        if known is None:
            words = text_of(self._formatter, instruction).split(" ", 1)[:1] \
                + self._formatter.format_mnemonic(instruction).split()[-1:]
            if instruction.code in _MOVABS:
                words = words[:1]
            known = self._mnemonics[step][key] = bool(words) and (
                self._names[step].fullmatch(words[-1]) is not None or self._names[step].fullmatch(words[0]) is not None)
        return known

    def _matches(self, step: int, instruction: Instruction) -> bool:
        return self._may_match(step, instruction) and bool(
            self._steps[step].fullmatch(text_of(self._formatter, instruction)))

    def find(self, code: Code) -> list[tuple[int, int]]:
        """Begin and end of each place, overlapping ones too."""
        return list(self._find(code.sweep()))

    def _find(self, instructions: Iterator[Instruction]) -> Iterator[tuple[int, int]]:
        open_at: list[tuple[int, int]] = []  # where a match began, and how many steps it has
        last = -1
        for instruction in instructions:
            if instruction.ip != last:
                open_at = []
            last = instruction.next_ip
            going = [(begin, step + 1) for begin, step in open_at if self._matches(step, instruction)]
            if self._matches(0, instruction):
                going.append((instruction.ip, 1))
            yield from ((begin, last) for begin, step in going if step == len(self._steps))
            open_at = [one for one in going if one[1] < len(self._steps)]


def _expression(step: str) -> str:
    name, _, operands = step.partition(" ")
    if name in ("rep", "repe", "repne", "repz", "repnz", "lock", "bnd", "notrack"):
        inner, _, operands = operands.partition(" ")
        name = f"{name} {inner}"
    parts = [_operand(part.strip()) for part in operands.split(",")] if operands else []
    return _text(name, r"\S*") + (" " + ", ".join(parts) if parts else "")


def _operand(text: str) -> str:
    """One operand as an expression. A bare `?` is any operand."""
    if text == "?":
        return r"[^,]*(?:\[[^\]]*\])?[^,]*"
    text = re.sub(r"\s*([\[\]+*-])\s*", r"\1", text)
    text = _NUMBER.sub(lambda found: hex(_number(found[1])), text)
    size = "" if " ptr" in text or "[" not in text else _SIZE
    segment = r"(?:\w\w:)?" if "[" in text and ":" not in text else ""
    if segment:
        head, _, rest = text.partition("[")
        return size + _text(head, r"[^,\]]*") + segment + _text("[" + rest, r"[^,\]]*")
    return size + _text(text, r"[^,\]]*")


def _number(text: str) -> int:
    return int(text[:-1], 16) if text.endswith("h") else int(text, 0 if text.startswith("0x") else 10)


def _text(pattern: str, anything: str) -> str:
    return "".join(anything if letter == "?" else re.escape(letter) for letter in pattern)
