# SPDX-License-Identifier: MIT
"""Address filters: the processor traces inside functions only, or stops at one (`filter` or `stop SYMBOL@FILE`).

The kernel takes them by offset in a file, and sets the processor's ranges when a traced task maps that file
(`perf_event_parse_addr_filter`); for Intel PT it knows no `start`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from ptweave.data import BadInput
from ptweave.data.manifest import MAX_FILTERS, FilterKind
from ptweave.wrapper.elf_functions import Functions
from ptweave.wrapper.elf_headers import loads
from ptweave.wrapper.elf_symbols import Kind

_SPELLED = re.compile(r"\s*(\w+)\s+([^@\s]+)\s*@\s*(\S.*?)\s*")


@dataclass(frozen=True)
class AddressFilter:
    """Bytes `offset` to `offset` + `size` of the file `path`, which is absolute and no link."""

    kind: FilterKind
    path: str
    offset: int
    size: int

    @property
    def kernel(self) -> str:
        """As PERF_EVENT_IOC_SET_FILTER wants it."""
        return f"{self.kind.value} {self.offset:#x}/{self.size:#x}@{self.path}"


def parse_filters(texts: Sequence[str]) -> tuple[AddressFilter, ...]:
    """What the user wrote. Raises BadInput."""
    if len(texts) > MAX_FILTERS:
        raise BadInput(f"no processor has more than {MAX_FILTERS} address ranges", where="--filter",
                       remedy="name fewer functions")
    return tuple(_parse(text) for text in texts)


def _parse(text: str) -> AddressFilter:
    where = f"--filter {text!r}"
    found = _SPELLED.fullmatch(text)
    if found is None:
        raise BadInput("is not ACTION SYMBOL@FILE", where=where, remedy="as in: --filter 'filter main@./prog'")
    action, symbol, name = found.groups()
    if action not in list(FilterKind):
        raise BadInput(f"{action} is nothing the kernel does with Intel PT", where=where,
                       remedy="filter traces inside the function only, stop ends the trace when it is reached")
    path = Path(name)
    try:
        real = path.resolve(strict=True)
        with real.open("rb") as file:
            offset, size, _ = function_place(ELFFile(file), symbol)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", where=name,
                       remedy="name the file the program maps") from error
    except NoSymbol as error:
        raise BadInput(str(error.args[0]), where=where, remedy="nm FILE lists its functions") from error
    except (ELFError, ValueError, LookupError, TypeError, AssertionError) as error:
        raise BadInput(f"is no ELF file that can be read ({error})", where=name,
                       remedy="name a program or a library") from error
    return AddressFilter(FilterKind(action), str(real), offset, size)


class NoSymbol(LookupError):
    """No such function."""


def function_place(elf: ELFFile, symbol: str) -> tuple[int, int, int]:
    """A function's offset in the file, its size, and its address as the file has it. Raises NoSymbol."""
    segments = list(loads(elf))
    for function in Functions(elf, elf.stream).all(symbol, (Kind.FUNCTION,)):
        for one in segments if function.size else ():
            within = function.address - int(one["p_vaddr"])
            if 0 <= within <= int(one["p_filesz"]) - function.size:
                return int(one["p_offset"]) + within, function.size, function.address
    raise NoSymbol(f"there is no function {symbol} in it")
