# SPDX-License-Identifier: MIT
"""Raw Intel PT packets and the code they ran through, as a run bundle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ptweave.data.errors import BadInput
from ptweave.data.manifest import Clocks, Cpu, Manifest
from ptweave.decode.elf import BadElf
from ptweave.decode.importing import ADDRESSES, Import, Kept, open_given

BUS_HZ = 100_000_000
"""The bus clock that `nom_freq` multiplies (SDM vol. 4, MSR_PLATFORM_INFO)."""

PID = 1
"""The process raw packets are taken to be of."""

_NUMBER = r"(?:0[xX][0-9a-fA-F]{1,32}|[0-9]{1,32})"
_PLACE = re.compile(rf"({_NUMBER})(?::({_NUMBER}):({_NUMBER}))?\Z")


@dataclass(frozen=True)
class ImageSpec:
    """A file of code: `size` bytes from `offset` on lie at `address`.

    Without offset and size an ELF file lies there by its segments, `address` being that of its lowest byte (None:
    where it was linked to be), and any other file as it is.
    """

    file: Path
    address: int | None = None
    offset: int | None = None
    size: int | None = None

    @classmethod
    def parse(cls, text: str) -> ImageSpec:
        """`FILE`, `FILE@ADDR` or `FILE@ADDR:OFFSET:SIZE`, numbers decimal or 0x…. Raises BadInput."""
        file, at, place = text.rpartition("@")
        found = _PLACE.match(place) if at else None
        if found is None:
            if at and not _exists(text):
                raise BadInput(f"{place!r} is not ADDR or ADDR:OFFSET:SIZE", where=f"--image {text}",
                               remedy="as in: libc.so@0x7ffff7a3a000, dump.bin@0x400000:0:4096")
            return cls(Path(text))
        address, offset, size = (None if part is None else number(part) for part in found.groups())
        return cls(Path(file), address, offset, size)

    def check(self, kept: Kept) -> None:
        """Raises BadInput where the place cannot be one of `kept`."""
        if self.address is None or self.address >= ADDRESSES:
            raise BadInput("needs an address below 2^64", where=str(self.file),
                           remedy="say where it lay: --image FILE@ADDR")
        offset, size = self.offset or 0, kept.size if self.size is None else self.size
        if not size or offset + size > kept.size:
            raise BadInput(f"has {kept.size} bytes, not {size} from byte {offset} on", where=str(self.file),
                           remedy="correct OFFSET and SIZE")
        if self.address + size > ADDRESSES:
            raise BadInput("would end beyond the last address", where=str(self.file), remedy="correct ADDR")


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # too long for a name
        return False


def number(text: str) -> int:
    """A number, decimal or 0x…. Raises ValueError."""
    if not re.fullmatch(_NUMBER, text):
        raise ValueError(f"{text!r} is not a number")
    return int(text, 16 if text[:2].lower() == "0x" else 10)


def clocks_of(cpu: Cpu) -> Clocks:
    """Time as ticks at the TSC's frequency, the nominal one when it is not known exactly; moment 0 is TSC 0.

    Without either there is no time: all of it is 0.
    """
    hertz = cpu.tsc_hz or cpu.nom_freq * BUS_HZ
    return Clocks(tsc0=0, t0_ns=0, tsc1=hertz, t1_ns=1_000_000_000 if hertz else 0)


def import_raw(output: Path, traces: Sequence[Path], images: Sequence[ImageSpec], cpu: Cpu) -> Import:
    """Make a bundle: a thread for each trace, all in one address space that holds `images`.

    A later image lies over earlier ones. Raw packets name no process: it is called 1, its threads 1, 2, … Of a trace
    without a PSB the bundle lacks the packets. Raises BadInput for files that cannot be read, do not have the bytes
    asked for, or need an address.
    """
    if not traces:
        raise BadInput("no trace given", remedy="name a file of Intel PT packets with --pt")
    with Import(output, Manifest(cpu=cpu, clocks=clocks_of(cpu))) as run:
        space = run.space(PID, path=str(images[0].file) if images else None)
        for spec in images:
            _map(run, space, spec)
        for tid, path in enumerate(traces, 1):
            thread = run.thread(space, PID, tid)
            if not run.trace(thread, open_given(path), str(path), slices=[(0, PID, space, 0)]):
                run.lacks(f"packets of thread {thread}: no PSB is in {path}, so nothing of it can be decoded")
    return run


def _map(run: Import, space: int, spec: ImageSpec) -> None:
    kept = run.images.keep(open_given(spec.file), str(spec.file))
    if spec.size is None and kept.elf is not None:
        try:
            run.map_elf(space, PID, kept, spec.address, str(spec.file))
        except BadElf as error:
            raise BadInput(f"cannot be mapped as an ELF file ({error})", where=str(spec.file),
                           remedy="say which bytes lie where: --image FILE@ADDR:OFFSET:SIZE") from error
        return
    spec.check(kept)
    assert spec.address is not None
    run.map(space, PID, spec.address, kept.size if spec.size is None else spec.size, spec.offset or 0, kept,
            str(spec.file))
