# SPDX-License-Identifier: MIT
"""Both decoders over the same packets, at the level of their C functions: what each made of them, to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ptweave.decode._ipt import ffi, lib

COLUMNS = {
    "flow": ("path",),
    "clock": ("seq", "tsc", "before"),
    "event": ("seq", "tsc", "kind", "ip", "target", "offset", "detail"),
    "gap": ("seq", "tsc", "kind", "bytes", "offset", "ip", "reason"),
    "piece": ("thread", "tsc", "flow", "clock", "event", "gap", "seq", "instructions", "branches"),
}
NULLABLE = {"event_ip", "event_target", "event_detail", "gap_ip"}
PROGRESS = ("offset", "seq", "tsc", "instructions", "branches", "lost", "first_block", "off", "off_ip")


@dataclass
class Timing:
    """What a decoder is told about the processor's clocks."""

    mtc_freq: int = 0
    nom_freq: int = 0
    cpuid_0x15_eax: int = 0
    cpuid_0x15_ebx: int = 0


@dataclass
class Outcome:
    """Rows as tuples, in the order of COLUMNS; blocks and paths in the order of their numbers."""

    rows: dict[str, list[tuple[int | None, ...]]]
    blocks: list[tuple[int, ...]]
    paths: list[tuple[int, ...]]
    progress: dict[str, int]
    handed: int = 0

    def differences(self, other: Outcome) -> list[str]:
        """What is not the same."""
        found = []
        for name in COLUMNS:
            mine, others = self.rows[name], other.rows[name]
            if mine != others:
                at = next((i for i, pair in enumerate(zip(mine, others, strict=False)) if pair[0] != pair[1]),
                          min(len(mine), len(others)))
                found.append(f"{name} {at}: {mine[at:at + 1]} {others[at:at + 1]} of {len(mine)}, {len(others)}")
        for name in ("blocks", "paths", "progress"):
            if getattr(self, name) != getattr(other, name):
                found.append(f"{name}: {str(getattr(self, name))[-300:]} {str(getattr(other, name))[-300:]}")
        return found

    def instructions(self) -> list[tuple[int, int]]:
        """(address, instructions) of the blocks that ran."""
        return [(self.blocks[block][2], self.blocks[block][5])
                for (path,) in self.rows["flow"] for block in self.paths[path or 0]]


@dataclass
class Decoders:
    """Both decoders over pieces of code: (file, address, offset, size)."""

    code: Sequence[tuple[Path, int, int, int]]
    timing: Timing = field(default_factory=Timing)
    cpu: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        self.images = ffi.gc(lib.ptd_images_create(), lib.ptd_images_destroy)
        sections = [lib.ptd_images_add(self.images, bytes(path), number, offset, size, address)
                    for number, (path, address, offset, size) in enumerate(self.code)]
        assert all(section >= 0 for section in sections), sections
        self.space = self.space_of(sections)

    def space_of(self, sections: list[int]) -> Any:
        made = ffi.new("struct ptd_space **")
        assert lib.ptd_space_create(self.images, sections, len(sections), made) == 0
        return ffi.gc(made[0], lib.ptd_space_destroy)

    def libipt(self, packets: bytes, **options: Any) -> Outcome:
        return self._run(packets, "ptd_decoder", **options)

    def paths(self, packets: bytes, **options: Any) -> Outcome:
        return self._run(packets, "ptd_cached", **options)

    def differences(self, packets: bytes, **options: Any) -> list[str]:
        return self.libipt(packets, **options).differences(self.paths(packets, **options))

    def _run(self, packets: bytes, name: str, *, flow_rows: int = 1 << 12, stop: int | None = None,
             tables: Any = None, space: Any = None, exact: bool = False) -> Outcome:
        """`exact`: times by branch, all of it a thread's from the beginning on, as recordings of perf are decoded."""
        tables = tables or ffi.gc(lib.ptd_tables_create(), lib.ptd_tables_destroy)
        cpu = ffi.new("struct ptd_cpu *", vars(self.timing))
        if self.cpu is not None:
            cpu.intel, (cpu.family, cpu.model, cpu.stepping) = 1, self.cpu
        cpu.exact_time = exact
        only = ffi.new("struct ptd_switch[]", [{"tsc": 0, "space": space or self.space, "thread": 7}])
        buffer = ffi.from_buffer("uint8_t[]", packets)
        part = ffi.new("struct ptd_slice *", {"packets": buffer, "size": len(packets),
                                              "has_stop": stop is not None, "stop_ip": stop or 0,
                                              "switches": only, "switch_count": int(exact)})
        made = ffi.new(f"struct {name} **")
        assert getattr(lib, f"{name}_create")(tables, space or self.space, cpu, part, made) == 0
        decoder = ffi.gc(made[0], getattr(lib, f"{name}_destroy"))
        rows = ffi.gc(lib.ptd_rows_create(flow_rows), lib.ptd_rows_destroy)
        found: dict[str, list[tuple[int | None, ...]]] = {column: [] for column in COLUMNS}
        more = 1
        while more:
            more = getattr(lib, f"{name}_step")(decoder, rows)
            assert more >= 0, more
            for kind in COLUMNS:
                found[kind] += _rows(rows, kind)
            lib.ptd_rows_clear(rows)
        progress = ffi.new("struct ptd_progress *")
        getattr(lib, f"{name}_progress")(decoder, progress)
        handed = int(lib.ptd_cached_handed(decoder)) if name == "ptd_cached" else 0
        return Outcome(found, _blocks(tables), _paths(tables), {key: getattr(progress, key) for key in PROGRESS},
                       handed)


def _rows(rows: Any, kind: str) -> list[tuple[int | None, ...]]:
    count = getattr(rows, f"{kind}_count")
    columns = []
    for column in COLUMNS[kind]:
        values: list[int | None] = list(ffi.unpack(getattr(rows, f"{kind}_{column}"), count)) if count else []
        if f"{kind}_{column}" in NULLABLE:
            valid = getattr(rows, f"valid_{kind}_{column}")
            values = [value if valid[i // 8] >> i % 8 & 1 else None for i, value in enumerate(values)]
        columns.append(values)
    return list(zip(*columns, strict=True))


def _blocks(tables: Any) -> list[tuple[int, ...]]:
    view = ffi.new("struct ptd_blocks_view *")
    lib.ptd_tables_blocks(tables, view)
    columns = ("image", "offset", "ip", "last_ip", "size", "instructions", "last", "mode")
    if not view.count:
        return []
    return list(zip(*(ffi.unpack(getattr(view, column), view.count) for column in columns), strict=True))


def _paths(tables: Any) -> list[tuple[int, ...]]:
    """Blocks of each path, as its legs come to them."""
    legs, paths = (_lists(tables, function) for function in (lib.ptd_tables_legs, lib.ptd_tables_paths))
    expanded = [tuple(block for leg in path for block in legs[leg]) for path in paths]
    view = ffi.new("struct ptd_paths_view *")
    lib.ptd_tables_paths(tables, view)
    starts, blocks = ffi.new("int32_t[]", len(paths) + 1), ffi.new("int32_t[]", sum(map(len, expanded)) + 1)
    assert lib.ptd_tables_expand(tables, 0, len(paths), starts, blocks) == sum(map(len, expanded))
    assert [tuple(ffi.unpack(blocks + begin, end - begin)) if end > begin else () for begin, end in
            pairwise(ffi.unpack(starts, len(paths) + 1))] == expanded
    return expanded


def _lists(tables: Any, function: Any) -> list[tuple[int, ...]]:
    view = ffi.new("struct ptd_paths_view *")
    function(tables, view)
    starts = ffi.unpack(view.starts, view.count + 1)
    items = ffi.unpack(view.items, view.item_count) if view.item_count else []
    return [tuple(items[begin:end]) for begin, end in pairwise(starts)]
