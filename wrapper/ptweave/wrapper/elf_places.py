# SPDX-License-Identifier: MIT
"""Places in an ELF file for probes, as file offsets: symbols, and the markers (USDT) that a compiler left in it."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from ptweave.data.errors import BadInput
from ptweave.wrapper.elf_functions import Functions
from ptweave.wrapper.elf_headers import loads

_NOTES_MOST = 8 << 20
_BITS = {"EM_X86_64": 64, "EM_386": 32}
_ARGUMENT = re.compile(r"(-?)([1248])@(?:\$(-?\d+)|(-?\d*)\(%(\w+)\)|%(\w+))")


@dataclass(frozen=True)
class MarkerArgument:
    """An argument of a marker: a constant (no register), a register, or memory at a register and an offset."""

    size: int
    signed: bool
    register: str = ""
    offset: int = 0
    memory: bool = False


@dataclass(frozen=True)
class Marker:
    """A statically defined probe: offsets in the file; semaphore 0 for none."""

    provider: str
    name: str
    offset: int
    semaphore: int
    arguments: tuple[MarkerArgument, ...]


def _narrow(name: str) -> str:
    """The register that another name stands for a part of: dil → di, eax → ax, r8d → r8."""
    wide = re.fullmatch(r"(r(?:8|9|1[0-5]))[dwb]?", name)
    if wide:
        return wide[1]
    if len(name) == 3 and name[0] in "re":
        return name[1:]
    if name in ("al", "bl", "cl", "dl"):
        return name[0] + "x"
    return name.removesuffix("l") if name in ("dil", "sil", "bpl", "spl") else name


def _arguments(text: str) -> tuple[MarkerArgument, ...]:
    found = []
    for word in text.split():
        match = _ARGUMENT.fullmatch(word)
        if match is None:
            break  # an argument that this does not know ends what is told of the marker
        size, signed = int(match[2]), bool(match[1])
        if match[3] is not None:
            found.append(MarkerArgument(size, signed, "", int(match[3])))
        elif match[5]:
            found.append(MarkerArgument(size, signed, _narrow(match[5]), int(match[4] or "0"), memory=True))
        else:
            found.append(MarkerArgument(size, signed, _narrow(match[6])))
    return tuple(found)


class Places:
    """What a file has. Files are hostile: what makes no sense in one is not there."""

    def __init__(self, path: str) -> None:
        """Raises BadInput when it is no ELF file that can be read."""
        self.path = path
        self.markers: list[Marker] = []
        try:
            with open(path, "rb") as file:  # noqa: PTH123 (a path as the user gave it)
                elf = ELFFile(file)
                self._machine = str(elf["e_machine"])
                self._segments = [(int(one["p_vaddr"]), int(one["p_filesz"]), int(one["p_offset"]))
                                  for one in loads(elf)]
                self._functions = Functions(elf, file)
                self._read_markers(elf)
        except OSError as error:
            raise BadInput(f"cannot be read ({error.strerror})", where=path, remedy="check the path") from error
        except (ELFError, ValueError, KeyError, struct.error, UnicodeDecodeError) as error:
            raise BadInput("is no ELF file", where=path, remedy="name a program or a library") from error

    @staticmethod
    @cache
    def of(path: str) -> Places:
        """The places of a file, read once."""
        return Places(path)

    def _read_markers(self, elf: ELFFile) -> None:
        section, base = elf.get_section_by_name(".note.stapsdt"), elf.get_section_by_name(".stapsdt.base")
        if section is None or int(section["sh_size"]) > _NOTES_MOST:
            return
        data, at = section.data(), 0
        moved = int(base["sh_addr"]) if base is not None else None
        while at + 12 <= len(data):
            name_size, size, _ = struct.unpack_from("<III", data, at)
            at += 12 + (name_size + 3 & ~3)
            note = data[at:at + size]
            at += size + 3 & ~3
            if len(note) < 24:
                return
            place, was, semaphore = struct.unpack_from("<QQQ", note)
            words = note[24:].split(b"\0")
            if len(words) < 3:
                continue
            shift = 0 if moved is None else moved - was
            offset = self._offset(place + shift)
            if offset is not None:
                self.markers.append(Marker(words[0].decode(), words[1].decode(), offset, (self._offset(
                    semaphore + shift) or 0) if semaphore else 0, _arguments(words[2].decode())))

    def _offset(self, address: int) -> int | None:
        for start, size, offset in self._segments:
            if start <= address < start + size:
                return address - start + offset
        return None

    def named(self, name: str) -> list[str]:
        """Functions of this name, itself first, and what a compiler made of them (`name.part.0`)."""
        return self._functions.named(name)

    def find(self, symbol: str) -> int | None:
        """A function's offset in the file; None when it is not there."""
        found = self._functions.find(symbol)
        return None if found is None else self._offset(found.address)

    def offset_of(self, symbol: str, where: str) -> int:
        """The same, or of 0x… the number itself. Raises BadInput when there is no such function."""
        if re.fullmatch(r"0x[0-9a-fA-F]+", symbol):
            return int(symbol, 16)
        found = self.find(symbol)
        if found is None:
            raise BadInput(f"{self.path} has no function {symbol}", where=where,
                           remedy="nm -D shows what it has; a place in the file can be given as 0xOFFSET")
        return found

    def after_jump(self, symbol: str, where: str) -> int:
        """The offset of the function that `symbol` (or what is at 0x…) ends in a jump to: one that a stripped library
        does not name. Raises BadInput when there is no such function, or more than one."""
        from ptweave.wrapper import tail_jumps  # the disassembler is wanted here alone

        offset, found = self.offset_of(symbol, where), self._functions.find(symbol)
        if self._machine != "EM_X86_64":
            raise BadInput("is no x86-64 file", where=where, remedy="give a place in the file as 0xOFFSET")
        address = self._address(offset)
        if address is None:
            raise BadInput(f"{symbol} is not in its code", where=where, remedy="give a function's place in the file")
        targets: dict[int, int] = {}  # address → offset
        code = self._code(offset, tail_jumps.MOST_BYTES)
        for target in tail_jumps.leaving(code, address, found.size if found else 0):
            place = self._offset(target)
            if place is not None:
                targets[target] = place
        imports = [one for one, place in targets.items() if tail_jumps.is_import(self._code(place, 16), one)]
        if imports and len(imports) == len(targets):
            raise BadInput(f"{symbol} ends in a jump to another library", where=where,
                           remedy="probe the function there, by its own name")
        return tail_jumps.only([place for one, place in targets.items() if one not in imports], where, symbol)

    def probed(self, begin: int, offset: int, where: str) -> int:
        """The file offset of an instruction `offset` bytes behind a function's begin. Raises BadInput where the kernel
        puts no probe, or must not: where no instruction begins."""
        from ptweave.wrapper import uprobe_places  # the disassembler, as above

        bits = _BITS.get(self._machine)
        if bits and 0 <= offset <= uprobe_places.FAR:
            uprobe_places.check_place(self._code(begin, offset + uprobe_places.LONGEST), offset, bits, where)
        return begin + offset

    def _address(self, offset: int) -> int | None:
        for start, size, begin in self._segments:
            if begin <= offset < begin + size:
                return offset - begin + start
        return None

    def _code(self, offset: int, size: int) -> bytes:
        """Bytes of the file, as many as its segment has."""
        for _, length, begin in self._segments:
            if begin <= offset < begin + length:
                try:
                    with open(self.path, "rb") as file:  # noqa: PTH123
                        if offset > file.seek(0, 2):
                            return b""
                        file.seek(offset)
                        return file.read(min(size, begin + length - offset))
                except OSError as error:
                    raise BadInput(f"cannot be read ({error.strerror})", where=self.path,
                                   remedy="check the path") from error
        return b""


__all__ = ["Marker", "MarkerArgument", "Places"]
