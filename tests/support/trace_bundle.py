# SPDX-License-Identifier: MIT
"""Bundles of hand-written traces, and what decoding made of them in a form that is easy to compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data.bundle import Bundle
from ptweave.data.manifest import Clocks, Cpu, Manifest, State
from ptweave.data.sideband import SidebandKind, write_sideband
from ptweave.decode.expand import Expansion, instruction_hash, table_files
from ptweave.decode.flow import decode_flow

CLOCKS = Clocks(tsc0=1000, t0_ns=5000, tsc1=4000, t1_ns=6000)
"""Three ticks a nanosecond."""


@dataclass
class TraceBundle:
    """A bundle being written: maps and traces first, then `decode`."""

    path: Path
    engine: str = "soft"
    cpu: Cpu = field(default_factory=Cpu)
    rows: list[dict[str, object]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    traces: dict[int, bytes] = field(default_factory=dict)

    def row(self, kind: SidebandKind, **columns: object) -> TraceBundle:
        self.rows.append({"kind": kind, "tsc": 0, "pid": 100, "space": 0, **columns})
        return self

    def map(self, code: bytes, address: int, *, name: str | None = "code", space: int = 0, epoch: int = 0,
            offset: int = 0, size: int | None = None, path: str = "/bin/code", keep: bool = True) -> TraceBundle:
        """Map a file: its bytes are kept under `name` unless the name is None or `keep` is false."""
        if name is not None and keep:
            self.files[name] = code
        return self.row(SidebandKind.MAP, space=space, addr=address, offset=offset, epoch=epoch, image=name,
                        size=len(code) - offset if size is None else size, path=path)

    def thread(self, packets: bytes, *, number: int = 0, slices: tuple[tuple[int, int, int], ...] = ((0, 0, 0),),
               finished: bool = True) -> TraceBundle:
        """A thread with its packets; `slices` are (offset, space, epoch)."""
        self.traces[number] = bytes(packets)
        self.row(SidebandKind.THREAD, tid=200 + number, thread=number, value=0)
        for offset, space, epoch in slices:
            self.row(SidebandKind.SLICE, thread=number, offset=offset, space=space, epoch=epoch)
        if finished:
            self.row(SidebandKind.FINISH, thread=number, offset=len(packets))
        return self

    def write(self) -> Bundle:
        bundle = Bundle.create(self.path, Manifest(engine=self.engine, cpu=self.cpu, clocks=CLOCKS,
                                                   state=State.COMPLETE))
        for name, data in self.files.items():
            (bundle.images / name).write_bytes(data)
        for number, packets in self.traces.items():
            (bundle.trace / f"{number}.pt").write_bytes(packets)
        write_sideband(bundle.sideband, self.rows)
        return bundle

    def decode(self, **options: Any) -> Decoded:
        """Write it and decode it; `options` are those of decode_flow."""
        bundle = self.write()
        decode_flow(bundle, **options)
        return Decoded(bundle)


@dataclass
class Decoded:
    """The tables of a decoded bundle."""

    bundle: Bundle

    def table(self, name: str) -> pa.Table:
        return pa.concat_tables([pq.read_table(path) for path in table_files(self.bundle.tables / name)])

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(name).to_pylist()
        return rows

    def paths(self, thread: int = 0) -> list[list[tuple[int, int, str]]]:
        """The paths the thread ran, as lists of (ip, instructions, last) of their blocks."""
        blocks = {row["block"]: (row["ip"], row["instructions"], row["last"]) for row in self.rows("blocks")}
        paths = {row["path"]: [blocks[block] for block in row["blocks"]] for row in self.rows("paths")}
        return [paths[row["path"]] for row in self.rows("flow") if row["thread"] == thread]

    def flow(self, thread: int = 0) -> list[tuple[int, int, str]]:
        """The blocks the thread ran, in order."""
        return [block for path in self.paths(thread) for block in path]

    def events(self, thread: int = 0) -> list[tuple[str, int | None, int | None]]:
        """(kind, ip, target) of the thread's events."""
        return [(row["kind"], row["ip"], row["target"]) for row in self.rows("pt_events") if row["thread"] == thread]

    def gaps(self, thread: int = 0) -> list[tuple[str, int, int]]:
        """(kind, offset, bytes) of the thread's gaps."""
        return [(row["kind"], row["offset"], row["bytes"]) for row in self.rows("gaps") if row["thread"] == thread]

    def clock(self, thread: int = 0) -> list[tuple[int, int]]:
        """(seq, tsc) of the thread's known moments."""
        return [(row["seq"], row["tsc"]) for row in self.rows("clock") if row["thread"] == thread]

    def addresses(self, thread: int = 0) -> Iterator[list[int]]:
        """Addresses of the instructions the thread executed, from the tables, in parts."""
        for part in Expansion(self.bundle).addresses(thread):
            yield part.tolist()

    def hash(self, thread: int = 0) -> tuple[int, int]:
        """How many instructions the thread executed, and the hash of their addresses."""
        return instruction_hash(self.bundle, thread)

    def thread(self, number: int = 0) -> dict[str, Any]:
        """What decoding counted for a thread."""
        table = pq.read_table(self.bundle.decoded / "threads.parquet").to_pylist()
        return next(row for row in table if row["thread"] == number)

    def check(self) -> None:
        """What holds for every decode: seq is dense, the ledger balances, gaps and counts agree with each other."""
        ledger = self.bundle.ledger()
        assert ledger.check() == []
        for row in pq.read_table(self.bundle.decoded / "threads.parquet").to_pylist():
            number = row["thread"]
            seq = 0
            lengths = {path["path"]: path["length"] for path in self.rows("paths")}
            for flow in self.rows("flow"):
                if flow["thread"] == number:
                    assert flow["seq"] == seq
                    seq += lengths[flow["path"]]
            flow_blocks = self.flow(number)
            assert row["blocks"] == seq == len(flow_blocks)
            assert row["instructions"] == sum(block[1] for block in flow_blocks)
            assert row["branches"] == sum(block[2] != "other" for block in flow_blocks)
            gaps = [gap for gap in self.rows("gaps") if gap["thread"] == number]
            assert row["gaps"] == len(gaps)
            assert row["lost_bytes"] == sum(gap["bytes"] for gap in gaps)
            of_trace = sum(gap["bytes"] for gap in gaps if gap["kind"] != "lost")
            stream = ledger[f"decode/{number}"]
            assert (stream.produced, stream.stored) == (row["trace_bytes"], row["trace_bytes"] - of_trace)
