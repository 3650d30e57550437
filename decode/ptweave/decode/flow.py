# SPDX-License-Identifier: MIT
"""Decode the traces of a run into control flow: tables images, maps, blocks, paths, flow, clock, pt_events, gaps.

Traces are cut into ranges (`ranges`), ranges are decoded as tasks (`task`) by one or more processes (`workers`), and
what they come to is put together in the order of the trace (`assemble`). The tables are the same however many
processes there are. Memory stays bounded: nothing holds more than a few steps of a task and the dictionaries.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ptweave.data import schemas
from ptweave.data.bundle import Bundle
from ptweave.data.locks import alone
from ptweave.data.sideband import read_sideband
from ptweave.data.table_writer import TableWriter, write_table
from ptweave.data.written import Written
from ptweave.decode.assemble import CLASSES, EVENTS, PART_ROWS, Assembler, Totals
from ptweave.decode.debug_files import DebugFiles
from ptweave.decode.images import Code
from ptweave.decode.naming import Naming
from ptweave.decode.plan import Thread, plan
from ptweave.decode.processor import processor
from ptweave.decode.ranges import range_bytes
from ptweave.decode.streams import streams_take_long
from ptweave.decode.task import Decoder, Key, Task, chosen, finished, switched, tasks
from ptweave.decode.worker import release_memory
from ptweave.decode.workers import Here, Pool, Workers

__all__ = ["CLASSES", "DECODED_THREADS", "EVENTS", "Decoder", "Report", "decode_flow"]

DECODED_THREADS = pa.schema([
    pa.field("thread", pa.int32()), pa.field("trace_bytes", pa.int64()), pa.field("instructions", pa.int64()),
    pa.field("blocks", pa.int64()), pa.field("branches", pa.int64()), pa.field("gaps", pa.int64()),
    pa.field("lost_bytes", pa.int64()), pa.field("first_block", pa.int32()),
])
"""`decoded/threads.parquet`: what decoding knows of each thread; first_block is null when it has no flow."""

PATH_ROWS = 1 << 15
"""Rows in a row group of `paths`: each holds a dozen numbers."""

KEPT_BYTES = 1 << 26
"""Memory for what is kept of `paths` for who reads it next."""

TASKS = "tasks"
"""Folder in `decoded/` that holds the work of a decode until it is done."""

Progress = Callable[[int, int], None]


@dataclass
class Report:
    """What a decode did. `seconds` are those of its steps, `found` tasks an earlier decode had finished, `paths` the
    columns path and blocks of that table, where they were to be kept and are not too many."""

    decoder: Decoder
    jobs: int
    trace_bytes: int = 0
    instructions: int = 0
    blocks: int = 0
    tasks: int = 0
    found: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    paths: Written | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


def decode_flow(bundle: Bundle, progress: Progress | None = None, *, jobs: int = 1, decoder: Decoder = Decoder.AUTO,
                files: DebugFiles | None = None, size: int | None = None,
                part_rows: int = PART_ROWS, cluster: Any = None, streams: bool = False, keep: bool = False) -> Report:
    """Decode every trace of `bundle` and write the flow tables, `decoded/threads.parquet` and the ledger; with
    `streams` also what else was recorded (`decode_streams`): by one of the processes beside the others, or afterwards.

    `jobs` processes decode at a time (1: this one does it all), or the workers of `cluster`, a Dask client
    (`ptweave.decode.cluster`). `progress` is called with bytes of trace done and in
    all; `files` finds separate debug files. Decoding again replaces what was decoded before; the tables appear when all
    of it is done. A decode that was ended before goes on with the tasks that were finished. `size`, bytes of
    a range (see `range_bytes`), and `part_rows` (see PART_ROWS) decide where traces and tables are cut. `keep`:
    somebody reads `Report.paths` next.

    Raises BadInput for a bundle without a readable sideband, one that is being decoded by somebody else, or a decoder
    that is not there; MachineLacks when memory runs out or a process was killed. Everything that could not be decoded
    is a row of `gaps`, not an error. What `decode_streams` raises is raised when all else is done.
    """
    report = Report(chosen(decoder), jobs)
    with _folder(bundle) as folder:
        decode = _Decode(bundle, folder, report, progress or (lambda done, total: None), files, part_rows, cluster,
                         keep=keep)
        beside = decode.run(size, streams=streams)
    if beside:
        report.seconds |= beside()
    return report


class _Decode:
    """One decode of one bundle. `folder` holds what is not finished."""

    def __init__(self, bundle: Bundle, folder: Path, report: Report, progress: Progress, files: DebugFiles | None,
                 part_rows: int, cluster: Any, *, keep: bool) -> None:
        self.bundle = bundle
        self.cluster = cluster
        self.folder = folder
        self.tables = folder / "tables"
        self.report = report
        self.progress = progress
        self.files = files
        sideband = read_sideband(bundle.sideband)
        self.code = Code(sideband, bundle.images)
        self.threads = plan(bundle, sideband)
        self.cpu = processor(bundle.manifest)
        self.switched = switched(sideband, self.cpu)
        self.kept: list[pa.Table] | None = [] if keep else None
        self.assembler = Assembler(interleaved=any(thread.of_cpu for thread in self.threads), part_rows=part_rows)

    def run(self, size: int | None, *, streams: bool) -> Callable[[], dict[str, float]] | None:
        """Decodes all traces. With `streams`: what is to be called then (`Workers.streams`)."""
        report = self.report
        with report.step("plan"):
            report.trace_bytes = sum(thread.size for thread in self.threads)
            each = range_bytes(report.trace_bytes) if size is None else size
            todo = [task for thread in self.threads for task in tasks(thread, each, self._timed(thread))]
            key = Key.of(self.bundle, report.decoder)
            files = [self.folder / key.name(task) for task in todo]
            done = {index for index, file in enumerate(files) if finished(file)}
            self._clear({file.name for file in files})
        report.tasks, report.found = len(todo), len(done)
        with report.step("decode"):
            beside = self._work(todo, files, done, streams=streams)
        with report.step("publish"):
            self._publish()
        for totals in self.assembler.threads.values():
            report.instructions += totals.instructions
            report.blocks += totals.seq
        self.progress(report.trace_bytes, report.trace_bytes)
        return beside

    def _timed(self, thread: Thread) -> Any:
        """The processor, where times of its packets are told by branch: what is before a range decides them."""
        return self.cpu if self.cpu.exact_time or thread.path.stem in self.switched else None

    def _clear(self, wanted: set[str]) -> None:
        """Remove what an earlier decode left that is of no use."""
        for entry in self.folder.iterdir():
            if entry.name in wanted:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    # --- work

    def _work(self, todo: list[Task], files: list[Path], done: set[int], *,
              streams: bool) -> Callable[[], dict[str, float]] | None:
        behind = [task.bytes if index in done else 0 for index, task in enumerate(todo)]
        total, seen = self.report.trace_bytes, 0
        clocks = self.bundle.manifest.clocks

        def moved(index: int, size: int) -> None:
            nonlocal seen
            behind[index] = size
            seen = max(seen, min(sum(behind), total))
            self.progress(seen, total)

        with self._workers(len(todo) - len(done) + (streams and streams_take_long(self.bundle))) as workers:
            beside = workers.streams() if streams else None  # first: it may take as long as all others
            decoding: dict[Future[None], int] = {}
            writing: set[Future[None]] = set()
            coming = iter([index for index in range(len(todo)) if index not in done])
            taken, index = 0, next(coming, None)
            while taken < len(todo) or decoding:
                while index is not None and len(decoding) < workers.room:
                    future = workers.decode(todo[index], files[index],
                                            lambda size, index=index: moved(index, size))  # type: ignore[misc]
                    decoding[future] = index
                    index = next(coming, None)
                if decoding and taken not in done:
                    for future in workers.wait(set(decoding) | writing):
                        future.result()
                        if future in decoding:
                            done.add(decoding.pop(future))
                        writing.discard(future)
                while taken in done:
                    first = not todo[taken].ranges or todo[taken].ranges[0].first
                    for part in self.assembler.take(todo[taken].trace.stem, files[taken], first=first):
                        writing.add(workers.write(part, self.tables, clocks))
                    taken += 1
                    if index is not None and len(decoding) < workers.room:
                        break  # others wait for work
            for part in self.assembler.finish():
                writing.add(workers.write(part, self.tables, clocks))
            workers.end()
            with self.report.step("dictionaries"):
                self._write_dictionaries()
                release_memory()
            while writing:
                for future in workers.wait(writing):
                    future.result()
                    writing.discard(future)
        return beside

    def _workers(self, tasks: int) -> Workers:
        """Who does so many tasks."""
        if self.cluster is not None:
            from ptweave.decode.cluster import Cluster

            return Cluster(self.cluster, self.bundle, self.report.decoder)
        jobs = min(self.report.jobs, max(1, tasks))
        if jobs == 1:
            return Here(self.bundle, self.report.decoder, self.code)
        return Pool(self.bundle, self.report.decoder, jobs)

    def _write_dictionaries(self) -> None:
        """Paths, and blocks with functions and lines; images and maps. Where there are several processes, there are
        processors for two things at a time: paths are written while names are looked for."""
        if self.report.jobs == 1:
            self._write_paths()
            self._write_blocks()
            return
        with ThreadPoolExecutor(1) as beside:
            paths = beside.submit(self._write_paths)
            self._write_blocks()
            paths.result()

    def _write_paths(self) -> None:
        with TableWriter(self.tables, schemas.PATHS, row_group=PATH_ROWS) as paths:
            for part in self.assembler.paths(PATH_ROWS):
                paths.write(part)
                self._keep(part.select(["path", "blocks"]))

    def _keep(self, paths: pa.Table) -> None:
        if self.kept is not None:
            self.kept.append(paths)
            if sum(part.nbytes for part in self.kept) > KEPT_BYTES:
                self.kept = None

    def _write_blocks(self) -> None:
        blocks = self.assembler.blocks()
        naming = Naming(self.code, self.files)
        names = naming.columns(blocks)
        write_table(self.tables, schemas.BLOCKS, pa.table({**blocks, **names}).cast(schemas.BLOCKS.schema))
        with TableWriter(self.tables, schemas.VARIABLES) as variables:
            for rows in naming.variables():
                variables.write(rows)
        write_table(self.tables, schemas.IMAGES, self.code.image_rows())
        write_table(self.tables, schemas.MAPS, self.code.map_rows())

    # --- the end

    def _publish(self) -> None:
        """Put the new tables in the place of the old ones, and account for them."""
        names = sorted(entry.name for entry in self.tables.iterdir())
        for name in names:
            target = self.bundle.tables / name
            target.mkdir(parents=True, exist_ok=True)
            for old in target.glob("*.parquet*"):
                old.unlink()
        for name in names:
            for file in (self.tables / name).iterdir():
                file.replace(self.bundle.tables / name / file.name)
        if self.kept is not None:
            self.report.paths = Written.to(self.bundle.tables / schemas.PATHS.name / "0.parquet", self.kept)
        self._write_threads()
        self._account()

    def _write_threads(self) -> None:
        rows = []
        sizes = {thread.number: thread.size for thread in self.threads if not thread.of_cpu}
        for number in sorted(sizes.keys() | self.assembler.threads.keys()):
            totals = self.assembler.threads.get(number, Totals())
            rows.append({"thread": number, "trace_bytes": sizes.get(number, 0), "instructions": totals.instructions,
                         "blocks": totals.seq, "branches": totals.branches, "gaps": totals.gaps,
                         "lost_bytes": totals.lost_bytes, "first_block": totals.first_block})
        partial = self.bundle.decoded / ".threads.parquet.partial"
        pq.write_table(pa.Table.from_pylist(rows, schema=DECODED_THREADS), partial)
        partial.replace(self.bundle.decoded / "threads.parquet")

    def _account(self) -> None:
        """Bytes of each trace = bytes decoded + bytes in gaps."""
        ledger = self.bundle.ledger()
        ledger.drop("decode/")
        for thread in self.threads:
            lost = self.assembler.lost.get(thread.path.stem, {})
            ledger.add(f"decode/{thread.path.stem}", "bytes", produced=thread.size,
                       stored=thread.size - sum(lost.values()), lost=lost)
        self.bundle.save_ledger(ledger)


@contextmanager
def _folder(bundle: Bundle) -> Iterator[Path]:
    """The folder of unfinished work, ours alone; gone when the work is done. Raises BadInput when it is taken."""
    folder = bundle.decoded / TASKS
    with alone(bundle, ".lock"):
        if folder.is_symlink():
            folder.unlink()
        folder.mkdir(mode=0o700, exist_ok=True)
        yield folder
        shutil.rmtree(folder)
