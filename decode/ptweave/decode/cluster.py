# SPDX-License-Identifier: MIT
"""Decoding on a Dask cluster: the same tasks and parts as in a process pool, by workers that see the same folder."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from ptweave.data.bundle import Bundle
from ptweave.data.errors import BadInput, MachineLacks, NotInstalled
from ptweave.data.manifest import Clocks
from ptweave.decode.assemble import Part, write_part
from ptweave.decode.task import Decoder, Decoding, Task
from ptweave.decode.worker import release_memory, streams
from ptweave.decode.workers import succeeded

SECONDS = 10
"""How long a scheduler is waited for."""

_mine = threading.local()
"""What a worker's thread decodes with: kept from task to task of one decode."""


def connect(address: str) -> Any:
    """A client of the scheduler at `address`, which has workers. Raises MachineLacks when Dask is not installed, nobody
    answers, or there are no workers; BadInput for what is no address."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise NotInstalled("dask.distributed", "cluster") from error
    client = _client(distributed, address)
    if not client.nthreads():
        client.close()
        raise MachineLacks("the Dask scheduler has no workers", where=address, remedy="start: dask worker ADDRESS")
    return client


def _client(distributed: Any, address: str) -> Any:
    failed: BadInput | MachineLacks
    try:
        return distributed.Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, TimeoutError):
        failed = MachineLacks("no Dask scheduler answers", where=address,
                              remedy="start one with: dask scheduler; and workers with: dask worker ADDRESS")
    except ValueError as error:
        failed = BadInput(f"is no address ({error})", where=address, remedy="write it like tcp://host:8786")
    # A client that could not connect is left open until it is collected, and takes Dask's lock then: if that is while
    # another client begins, which holds the lock, both wait for ever. So it is collected here.
    gc.collect()
    raise failed


@contextlib.contextmanager
def lost_workers(where: str) -> Iterator[None]:
    """Workers that died, or a scheduler that went away, as an error of ours."""
    killed: Any = import_module("distributed").KilledWorker
    closed: Any = import_module("distributed.comm").CommClosedError
    try:
        yield
    except (killed, closed, CancelledError) as error:
        raise MachineLacks(f"workers of the cluster were lost ({type(error).__name__})", where=where,
                           remedy="give them more memory; what is done is kept, decode again to go on") from error


class Cluster:
    """The workers of a Dask cluster. They must see the bundle under the same path, and run the same ptweave."""

    def __init__(self, client: Any, bundle: Bundle, decoder: Decoder) -> None:
        self.room = sum(client.nthreads().values()) + 2
        self._executor: Executor = client.get_executor(pure=False)
        self._path = bundle.path.resolve()
        self._decoder = decoder
        self._stamp = time.time_ns()

    def decode(self, task: Task, file: Path, moved: Callable[[int], None]) -> Future[None]:
        there = replace(task, trace=task.trace.absolute())
        future = self._executor.submit(_decode, self._path, self._decoder.value, self._stamp, there, file.absolute())
        future.add_done_callback(lambda done: moved(task.bytes) if succeeded(done) else None)
        return future

    def write(self, part: Part, folder: Path, clocks: Clocks) -> Future[None]:
        pieces = tuple(replace(piece, file=piece.file.absolute()) for piece in part.pieces)
        return self._executor.submit(_write, replace(part, pieces=pieces), folder.absolute(), clocks)

    def streams(self) -> Callable[[], dict[str, float]]:
        future = self._executor.submit(streams, self._path)

        def seconds() -> dict[str, float]:
            with lost_workers(str(self._path)):
                return future.result()

        return seconds

    def end(self) -> None:
        pass

    def wait(self, futures: set[Future[None]]) -> set[Future[None]]:
        done = wait(futures, return_when=FIRST_COMPLETED).done
        with lost_workers(str(self._path)):
            for future in done:
                future.result()
        return done

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._executor.shutdown(wait=kind is None)  # without waiting, Dask drops what is not done


def _decode(path: Path, decoder: str, stamp: int, task: Task, file: Path) -> None:
    if getattr(_mine, "stamp", None) != stamp:
        if not file.parent.is_dir():
            raise BadInput(f"is not there on the worker {os.uname().nodename}", where=str(path),
                           remedy="put it where all workers see it, or name it by a URL they all reach")
        _mine.decoding = Decoding(Bundle.open(path), Decoder(decoder))
        _mine.stamp = stamp
    _mine.decoding.run(task, file)


def _write(part: Part, folder: Path, clocks: Clocks) -> None:
    write_part(part, folder, clocks)
    release_memory()
