# SPDX-License-Identifier: MIT
"""The distinct code of a run that is compared with another: images, and each block's function, place and lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.schemas import BLOCKS, IMAGES, PROCESSES
from ptweave.merge._merge import lib
from ptweave.merge.code_alike import ImageCode
from ptweave.merge.program import IMAGE_SHIFT, Program
from ptweave.merge.tables import I64, numbers, read_table

_SYSTEM = ("libc.so", "libpthread.so", "ld-linux", "ld.so")


@dataclass(frozen=True)
class Image:
    """A file whose code ran."""

    number: int
    name: str
    path: str
    kept: str | None
    """Its file in images/."""

    @property
    def stem(self) -> str:
        """Its name without directory and version."""
        base = PurePath(self.path).name
        return base.split(".so")[0] + ".so" if ".so" in base else base

    @property
    def room(self) -> int:
        if self.stem.startswith("libtthread"):
            return int(lib.PTM_LIBTTHREAD)
        return int(lib.PTM_SYSTEM if self.stem.startswith(_SYSTEM) else lib.PTM_PROGRAM)

    @property
    def is_program(self) -> bool:
        """Neither libtthread nor the system's: the C library, the loader."""
        return self.room == int(lib.PTM_PROGRAM)


class Code:
    """The distinct code of a run: its program for the C part, and each block's image, function, place and line."""

    def __init__(self, bundle: Bundle) -> None:
        self.path = bundle.path
        self.bundle = bundle
        self.program = Program(bundle)
        self.program.compile()
        table = read_table(bundle, BLOCKS, ["block", "mode", "function", "function_offset", "file", "line", "last_file",
                                            "last_line", "lines"], ["function", "file", "last_file"])
        order = np.argsort(numbers(table, "block"), kind="stable")
        self.table = table.take(pa.array(order)) if len(order) else table
        self.images = [Image(row["image"], row["name"] or "", row["path"] or "",
                             row["name"] if row["kind"] != "missing" else None)
                       for row in read_table(bundle, IMAGES, ["image", "name", "path", "kind"]).to_pylist()]
        blocks = self.program.blocks
        self.image = (blocks["addr"] >> np.uint64(IMAGE_SHIFT)).astype(np.int64) - 1
        self.offset = (blocks["addr"] & np.uint64((1 << IMAGE_SHIFT) - 1)).astype(np.int64)
        self.line = numbers(self.table, "line", 0).astype(np.int64)
        self.mode = numbers(self.table, "mode", 0)
        names = self.table.column("function").combine_chunks()
        names = names.chunk(0) if isinstance(names, pa.ChunkedArray) and names.num_chunks else names
        self.names: list[str] = names.dictionary.to_pylist() if len(self.table) else []
        self.name: I64 = (names.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
                          if len(self.table) else np.empty(0, np.int64))
        self.within = np.where(self.name >= 0, numbers(self.table, "function_offset", 0), self.offset).astype(np.int64)
        self.main = _main_image(bundle, self)

    def close(self) -> None:
        self.program.close()

    def functions(self, image: int) -> set[str]:
        """Names of the functions of an image that ran."""
        return {self.names[int(name)] for name in np.unique(self.name[(self.image == image) & (self.name >= 0)])}

    def where(self, block: int) -> tuple[str | None, str | None, int | None]:
        """Function, file and line of a block; None unknown."""
        return self._where(block, "file", "line")

    def where_last(self, block: int) -> tuple[str | None, str | None, int | None]:
        """Function, file and line of a block's last instruction; None unknown."""
        return self._where(block, "last_file", "last_line")

    def where_instruction(self, block: int, number: int) -> tuple[str | None, str | None, int | None]:
        """Function, file and line of one of a block's instructions; behind the last one, of that."""
        for part in self.table["lines"][block].as_py() or ():
            number -= part["instructions"]
            if number < 0:
                return self.program.function_of(block), part["file"], part["line"]
        return self.where_last(block)

    def _where(self, block: int, file: str, line: str) -> tuple[str | None, str | None, int | None]:
        if not 0 <= block < len(self.table):
            return None, None, None
        return self.program.function_of(block), self.table[file][block].as_py(), self.table[line][block].as_py() or None

    def follows(self, block: int, other: int) -> bool:
        """Whether one block lies directly behind the other."""
        return bool(self.image[block] == self.image[other]
                    and self.offset[block] + int(self.program.blocks["size"][block]) == self.offset[other])

    def image_code(self, number: int) -> ImageCode | None:
        """The code of an image; None where it was not kept."""
        here = np.flatnonzero(self.image == number)
        kept = next(image for image in self.images if image.number == number).kept
        if not len(here):
            return None
        base = self.program.blocks["ip"][here].astype(np.int64) - self.offset[here]
        return ImageCode.kept(self.bundle, kept, int(base.min()))


def _main_image(bundle: Bundle, code: Code) -> int:
    """The image of the executable: of the last process image that ran code; -1 unknown."""
    ran = {path: number for number, path in ((image.number, image.path) for image in code.images)}
    paths = [row["exe"] for row in read_table(bundle, PROCESSES, ["exe", "space"]).sort_by("space").to_pylist()]
    for path in paths:
        if path in ran:
            return ran[path]
    libraries = (".so", "[")
    return next((image.number for image in code.images if not any(one in image.path for one in libraries)), -1)
