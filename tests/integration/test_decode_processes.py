# SPDX-License-Identifier: MIT
"""More processes in a processor's trace than libipt can count the uses of their code for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ptweave.decode import task
from ptweave.decode.flow import decode_flow
from ptweave.decode.perfimport import Options, import_perf
from support import perf_case
from support.assembler import Code, assemble
from support.perf_writer import PerfWriter
from support.pt_writer import PtWriter
from support.trace_bundle import Decoded

TSC = 3_094_328_170_983_760
STRIDE = 0x2000


@dataclass
class Turns:
    """Processes take turns on a CPU. Each has a file's code mapped `stretches` times, from `base_of` on, and runs it in
    one of these places."""

    folder: Path
    turns: list[int]  # numbers of processes
    stretches: int
    base_of: Callable[[int], int]
    code: Code = field(init=False)
    expected: dict[int, list[int]] = field(default_factory=dict)  # addresses by tid

    def __post_init__(self) -> None:
        self.code = assemble("a: nop\njz b\nnop\nb: nop\njz a\nret", self.folder)
        (self.folder / "bin").mkdir()
        for name in ("lib", "other"):
            (self.folder / "bin" / name).write_bytes(bytes(0x1000) + bytes(self.code.data) + name.encode())

    def record(self, file_of: Callable[[int], str] = lambda number: "/bin/lib") -> Path:
        chance = random.Random(1)
        writer, packets, first = PerfWriter(cyc=False, mtc=False), PtWriter().psb_plus(tsc=TSC - 10000), (0, 0)
        known: set[int] = set()
        for turn, number in enumerate(self.turns):
            begin, second, base = TSC + 1000 * turn, (100 + number, 100 + number), self.base_of(number)
            if number not in known:
                known.add(number)
                writer.comm(*second, "prog")
                for at in range(self.stretches):
                    writer.mmap(second[0], base + at * STRIDE, 0x1000, 0x1000, file_of(number))
            writer.switch_pair(begin, 0, first, second)
            start = base + chance.randrange(self.stretches) * STRIDE
            packets.tsc(begin + 100).mode_exec().pge(start).tnt("!!!!").tsc(begin + 300).fup(start).pgd()
            # nop, jz b, nop at b, jz a; so twice
            lap = [start + self.code[label] - self.code.base + more for label, more in
                   (("a", 0), ("a", 1), ("b", 0), ("b", 1))]
            self.expected.setdefault(second[0], []).extend(lap * 2)
            first = second
        file = self.folder / "perf.data"
        writer.auxtrace(bytes(packets.data), reference=TSC, cpu=0).write(file)
        return file

    def decode(self, file: Path) -> tuple[dict[int, list[int]], list[str]]:
        """Addresses by tid, and what the gaps say."""
        made = import_perf(Options(file, self.folder / "run.ptw", self.folder))
        decode_flow(made.bundle)
        found = {tid: [ip for _, ip in ran] for tid, ran in perf_case.answer(made).items()}
        return found, [row["detail"] for row in Decoded(made.bundle).rows("gaps")]


def at_its_own(number: int) -> int:
    return 0x7F0000000000 + random.Random(number).randrange(1 << 24) * 0x1000


def at_the_same(number: int) -> int:
    return 0x500000


def again(processes: int, more: int) -> list[int]:
    """All of them, and then some once more."""
    chance = random.Random(processes)
    return [*range(processes), *chance.sample(range(processes), more)]


@pytest.mark.parametrize(("processes", "stretches", "base_of"), [
    (700, 50, at_its_own),  # 35,000 addresses of the stretch, and as many uses by images
    (950, 70, at_the_same),  # 70 addresses, 66,500 uses by images
])
def test_code_that_many_processes_have_mapped_is_there_for_all(tmp_path: Path, processes: int, stretches: int,
                                                               base_of: Callable[[int], int]) -> None:
    turns = Turns(tmp_path, again(processes, 200), stretches, base_of)
    found, gaps = turns.decode(turns.record())
    assert gaps == []
    assert found == turns.expected


def test_what_some_lack_is_told_of_them_alone(tmp_path: Path) -> None:
    """The control: with so many processes a gap is still one of the process whose code is missing, and says why."""
    turns = Turns(tmp_path, list(range(700)), 50, at_its_own)
    file = turns.record(lambda number: "/bin/gone" if number % 100 == 99 else "/bin/lib")
    found, gaps = turns.decode(file)
    # a gap lasts up to the next PSB
    assert found == {tid: ips for tid, ips in turns.expected.items() if tid < 100 + 99}
    assert len(gaps) == 1
    assert gaps[0].endswith("/bin/gone was mapped there, but its code is not in the bundle")


def test_code_that_does_not_fit_into_an_image_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "SECTIONS", 0)
    turns = Turns(tmp_path, [0], 1, at_the_same)
    found, gaps = turns.decode(turns.record())
    assert found == {}
    assert gaps == ["no memory mapped at this address: /bin/lib (" + name(tmp_path) + ") was mapped there, beside more "
                    "code than libipt can hold"]


def name(folder: Path) -> str:
    """The one image's name in the bundle."""
    (only,) = (folder / "run.ptw" / "images").iterdir()
    return only.name
