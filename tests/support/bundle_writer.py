# SPDX-License-Identifier: MIT
"""Makes bundles straight from the schemas: code that never was, flows through it, and what was logged beside them.

A test describes functions and their blocks, then what a thread executed, block by block; the writer cuts that into
paths and writes the tables as decoding would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data import schemas
from ptweave.data.bundle import Bundle
from ptweave.data.manifest import Clocks, Manifest, State
from ptweave.data.schemas import BlockClass, Table
from ptweave.data.sideband import write_sideband
from ptweave.data.table_writer import TableWriter

BASE = 0x400000
"""Where image 0 is mapped; image i is mapped at BASE + i * IMAGE_STRIDE."""

IMAGE_STRIDE = 0x1000000

DECODED_THREADS = pa.schema([
    ("thread", pa.int32()), ("trace_bytes", pa.int64()), ("instructions", pa.int64()), ("blocks", pa.int64()),
    ("branches", pa.int64()), ("gaps", pa.int64()), ("lost_bytes", pa.int64()), ("first_block", pa.int32())])


@dataclass(frozen=True)
class Block:
    """A block of a test's program."""

    number: int
    image: int
    offset: int
    size: int
    instructions: int
    last: BlockClass
    function: str | None
    function_offset: int | None

    @property
    def ip(self) -> int:
        return BASE + self.image * IMAGE_STRIDE + self.offset

    @property
    def end(self) -> int:
        return self.ip + self.size

    @property
    def last_ip(self) -> int:
        return self.end - min(self.size, 2)


@dataclass
class BundleWriter:
    """Collects what a run is to hold; `write` makes the bundle. `cut` blocks at most make a path; an image's path is
    /bin/imageN where `image_paths` has no other."""

    path: Path
    cut: int = 4
    manifest: Manifest = field(default_factory=lambda: Manifest(
        state=State.COMPLETE, command=["./prog", "arg"], engine="soft", pid=100, status=0,
        clocks=Clocks(tsc0=0, t0_ns=0, tsc1=1 << 40, t1_ns=1 << 40)))
    blocks: list[Block] = field(default_factory=list)
    paths: dict[tuple[int, ...], int] = field(default_factory=dict)
    flow: list[tuple[int, int, int]] = field(default_factory=list)
    clock: list[dict[str, object]] = field(default_factory=list)
    events: list[dict[str, object]] = field(default_factory=list)
    gaps: list[dict[str, object]] = field(default_factory=list)
    syscalls: list[dict[str, object]] | None = None
    thunks: list[dict[str, object]] | None = None
    accesses: list[dict[str, object]] = field(default_factory=list)
    pages: list[dict[str, object]] = field(default_factory=list)
    sideband: list[dict[str, object]] = field(default_factory=list)
    executed: dict[int, list[int]] = field(default_factory=dict)
    image_paths: dict[int, str] = field(default_factory=dict)
    _cursor: dict[tuple[int, str | None], int] = field(default_factory=dict)
    _next: dict[int, int] = field(default_factory=dict)

    # --- code -----------------------------------------------------------------------------------------------------

    def block(self, function: str | None, last: BlockClass | str = BlockClass.OTHER, *, size: int = 8,
              instructions: int = 3, image: int = 0, at: int | None = None) -> int:
        """Add a block to a function: behind its last one, or `at` bytes into it. Returns its number."""
        key = (image, function)
        if key not in self._cursor:
            self._next[image] = self._next.get(image, 0x1000)
            self._cursor[key] = self._next[image]
            self._next[image] += 0x1000
        start = self._start(key)
        offset = self._cursor[key] if at is None else start + at
        self._cursor[key] = offset + size
        self.blocks.append(Block(len(self.blocks), image, offset, size, instructions, BlockClass(last), function,
                                 None if function is None else offset - start))
        return len(self.blocks) - 1

    def _start(self, key: tuple[int, str | None]) -> int:
        return self._cursor[key] & ~0xfff

    # --- execution ------------------------------------------------------------------------------------------------

    def run(self, thread: int, blocks: Sequence[int], cuts: Iterable[int] = ()) -> int:
        """Execute blocks in a thread, cut into paths of `cut` blocks and before the given ordinals.

        Returns the ordinal of the block that comes next.
        """
        done = self.executed.setdefault(thread, [])
        edges = set(cuts)
        pending: list[int] = []
        first = len(done)
        for block in blocks:
            if pending and (len(pending) >= self.cut or len(done) in edges):
                self._put(thread, first, pending)
                pending, first = [], len(done)
            pending.append(block)
            done.append(block)
        if pending:
            self._put(thread, first, pending)
        return len(done)

    def _put(self, thread: int, seq: int, blocks: list[int]) -> None:
        path = self.paths.setdefault(tuple(blocks), len(self.paths))
        self.flow.append((thread, seq, path))

    def moment(self, thread: int, seq: int, t: int) -> None:
        """A row of the clock."""
        self.clock.append({"thread": thread, "seq": seq, "tsc": t, "t": t})

    def event(self, thread: int, seq: int, kind: str, ip: int | None = None, target: int | None = None) -> None:
        """A row of pt_events."""
        self.events.append({"thread": thread, "seq": seq, "tsc": 0, "kind": kind, "ip": ip, "target": target,
                            "offset": 0, "detail": None})

    def gap(self, thread: int, seq: int, kind: str = "overflow") -> None:
        """A row of gaps."""
        self.gaps.append({"thread": thread, "seq": seq, "t": None, "kind": kind, "bytes": 0, "offset": 0,
                          "ip": None, "detail": "a test's"})

    def task(self, thread: int, *, pid: int = 100, tid: int | None = None, space: int = 0, begin: int = 0,
             end: int | None = None, creator: int = 0) -> None:
        """A thread in the sideband, and its process if it is the process's first."""
        own = pid if tid is None else tid
        if not any(row["kind"] == "process" and row["space"] == space for row in self.sideband):
            self.sideband.append({"kind": "process", "tsc": begin, "pid": pid, "space": space, "tid": own, "value": 1,
                                  "path": "/bin/prog", "detail": "start"})
        self.sideband.append({"kind": "thread", "tsc": begin, "pid": pid, "space": space, "tid": own,
                              "thread": thread, "value": creator})
        if end is not None:
            self.sideband.append({"kind": "thread_exit", "tsc": end, "pid": pid, "space": space, "tid": own,
                                  "thread": thread})

    def syscall(self, thread: int | None, index: int | None, *, enter: int, leave: int | None, number: int = 0,
                ip: int | None = None, result: int | None = 0) -> None:
        """A decoded system call."""
        if self.syscalls is None:
            self.syscalls = []
        self.syscalls.append({
            "thread": thread, "index": index, "pid": 100, "tid": 100, "t_enter": enter, "t_exit": leave,
            "number": number, "name": f"call_{number}", "args": [1, 2], "paths": ["a", None], "result": result,
            "errno": None, "ip": ip, "source": "both" if index is not None else "kernel"})

    def thunk(self, thread: int, *, t: int, wait: int = 0, marker: int = 0, stack: Sequence[int] = (),
              operation: str = "mutex_lock", clock: Sequence[int] | None = None, acquire: bool = True,
              release: bool = False, object_: int = 0x1234) -> None:
        """A decoded thunk; without a clock it knows of no other thread."""
        if self.thunks is None:
            self.thunks = []
        number = sum(row["thread"] == thread for row in self.thunks)
        self.thunks.append({
            "thread": thread, "thunk": number, "operation": operation, "object": object_, "result": 0, "t": t,
            "wait": wait, "acquire": acquire, "release": release,
            "clock": [0] * thread + [number + 1] if clock is None else list(clock), "stack": list(stack),
            "tsc": t, "marker": marker})

    def access(self, thread: int, thunk: int, page: int, *, write: bool, until: int | None = None, t: int = 0,
               address: int | None = None, site: int = BASE, window: int = 0,
               bytes_: Sequence[tuple[int, int]] | None = None, shared: bool = False) -> None:
        """A decoded access of a page, open until thunk `until`; with bytes (offset, length), a commit of them."""
        record = sum(row["thread"] == thread for row in self.accesses)
        operation = "access_commit" if bytes_ is not None else "access_write" if write else "access_read"
        self.accesses.append({
            "thread": thread, "record": record, "thunk": thunk, "operation": operation, "t": t,
            "address": page - 4096 * window if address is None else address, "argument": window + 1,
            "result": int(shared), "stack": [] if bytes_ is not None else [site + 1],
            "bytes": None if bytes_ is None else [{"offset": at, "length": length} for at, length in bytes_]})
        self.pages.append({"thread": thread, "record": record, "page": page, "write": write, "thunk": thunk,
                           "until_thunk": thunk if until is None else until})

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self) -> Bundle:
        """Make the bundle."""
        bundle = Bundle.create(self.path, self.manifest)
        self._write_code(bundle)
        rows = sorted(self.flow)
        put(bundle, schemas.FLOW, [{"thread": thread, "seq": seq, "path": path} for thread, seq, path in rows])
        for table, own in ((schemas.CLOCK, self.clock), (schemas.PT_EVENTS, self.events), (schemas.GAPS, self.gaps)):
            put(bundle, table, sorted(own, key=lambda row: (row["thread"], row["seq"])))
        if self.syscalls is not None:
            pq.write_table(pa.Table.from_pylist(self.syscalls, schemas.DECODED_SYSCALLS),
                           bundle.decoded / "syscalls.parquet")
        if self.thunks is not None:
            self.write_thunks(bundle, self.thunks)
        if self.accesses:
            for name, rows_, schema in (("accesses", self.accesses, schemas.DECODED_ACCESSES),
                                        ("pages", self.pages, schemas.DECODED_PAGES)):
                pq.write_table(pa.Table.from_pylist(rows_, schema), bundle.decoded / f"{name}.parquet")
        if self.sideband:
            write_sideband(bundle.sideband, sorted(self.sideband, key=lambda row: int(str(row["tsc"]))))
        self._write_counts(bundle)
        return bundle

    @staticmethod
    def write_thunks(bundle: Bundle, thunks: list[dict[str, object]]) -> None:
        """Decoded thunks; call stacks are written once each, the first one last: numbers are no order."""
        stacks = [list(stack) for stack in dict.fromkeys(tuple(row["stack"]) for row in thunks) if stack]  # type: ignore[call-overload]
        stacks.reverse()
        rows = [row | {"stack": stacks.index(list(row["stack"])) if row["stack"] else None}  # type: ignore[call-overload]
                for row in thunks]
        pq.write_table(pa.table([pa.array(stacks, schemas.DECODED_STACKS.field(0).type)],
                                schema=schemas.DECODED_STACKS), bundle.decoded / "stacks.parquet")
        pq.write_table(pa.Table.from_pylist(rows, schemas.DECODED_THUNKS), bundle.decoded / "thunks.parquet")

    def _write_code(self, bundle: Bundle) -> None:
        images = sorted({block.image for block in self.blocks})
        put(bundle, schemas.IMAGES, [{"image": image, "name": f"id{image}",
                                      "path": self.image_paths.get(image, f"/bin/image{image}"),
                                      "build_id": f"{image:040x}", "size": IMAGE_STRIDE, "kind": "elf"}
                                     for image in images])
        spaces = sorted({(int(str(row["space"])), int(str(row["pid"]))) for row in self.sideband}) or [(0, 100)]
        put(bundle, schemas.MAPS, [
            {"space": space, "pid": pid, "start": BASE + image * IMAGE_STRIDE,
             "end": BASE + (image + 1) * IMAGE_STRIDE, "offset": 0, "image": image, "since": 0, "until": None}
            for space, pid in spaces for image in images])
        put(bundle, schemas.BLOCKS, [
            {"block": block.number, "image": block.image, "offset": block.offset, "ip": block.ip, "size": block.size,
             "instructions": block.instructions, "last": block.last.value, "last_ip": block.last_ip,
             "function": block.function, "function_offset": block.function_offset, "file": None, "line": None,
             "last_file": None, "last_line": None, "lines": None}
            for block in self.blocks])
        put(bundle, schemas.PATHS, [
            {"path": number, "blocks": list(blocks), "length": len(blocks),
             "instructions": sum(self.blocks[block].instructions for block in blocks)}
            for blocks, number in self.paths.items()])

    def _write_counts(self, bundle: Bundle) -> None:
        rows = [{"thread": thread, "trace_bytes": 10 * len(blocks),
                 "instructions": sum(self.blocks[block].instructions for block in blocks), "blocks": len(blocks),
                 "branches": len(blocks), "gaps": sum(row["thread"] == thread for row in self.gaps), "lost_bytes": 0,
                 "first_block": blocks[0] if blocks else None} for thread, blocks in sorted(self.executed.items())]
        pq.write_table(pa.Table.from_pylist(rows, DECODED_THREADS), bundle.decoded / "threads.parquet")


def put(bundle: Bundle, table: Table, rows: list[dict[str, object]], name: str = "0.parquet") -> None:
    """Write rows as one file of a table."""
    with TableWriter(bundle.tables, table, name) as writer:
        writer.write(pa.Table.from_pylist(rows, schema=table.schema))


def rows_of(bundle: Bundle, table: Table) -> list[dict[str, object]]:
    """All rows of a table as a reader independent of the merge sees them."""
    found: list[dict[str, object]] = []
    for file in sorted((bundle.tables / table.name).glob("*.parquet")):
        found += pq.read_table(file, partitioning=None).to_pylist()
    return found
