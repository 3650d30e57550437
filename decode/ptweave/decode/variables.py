# SPDX-License-Identifier: MIT
"""Variables of ELF files: what the symbol tables give an address and a size (System V ABI, STT_OBJECT and STT_COMMON;
what each thread has of its own, STT_TLS, has no address in the file).

A variable's place is told as code's is, by an offset in the file: as if the executable segment went on to where the
variable lies. What is mapped where in a run is known of code alone; data is as far from it as the file says.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ptweave.data.schemas import VARIABLES
from ptweave.decode.demangle import demangle
from ptweave.decode.elf import BadElf, Elf
from ptweave.decode.functions import Candidates, Functions
from ptweave.decode.symbols import objects_of

PIECE = 1 << 16
"""Variables named at a time."""


def variables_of(elf: Elf, debug: Elf | None = None) -> Functions:
    """All variables an ELF file names, or its separate debug file does; of a table that is malformed, none (whoever
    reads functions from it says so)."""
    sources: list[Candidates] = []
    for file in (debug, elf):
        try:
            sources += [] if file is None else objects_of(file, elf)
        except BadElf:
            continue
    return Functions(sources)


def variable_rows(image: int, elf: Elf, variables: Functions) -> Iterator[pa.Table]:
    """Rows of the table `variables` for an image, by offset. None for a file whose executable segments do not lie in
    memory as they do in the file: one distance does not hold for all of its code."""
    distance = elf.distance
    if distance is None:
        return
    offsets = (variables.starts - np.uint64(distance % (1 << 64))).view(np.int64)  # a kernel is linked far up
    for first in range(0, len(variables), PIECE):
        last = min(first + PIECE, len(variables))
        names = pa.array([demangle(variables.name(index)) for index in range(first, last)], pa.string())
        yield pa.table({
            "image": np.full(last - first, image, np.int32), "offset": offsets[first:last],
            "size": variables.ends[first:last] - variables.starts[first:last], "name": names},
            schema=VARIABLES.schema)
