# SPDX-License-Identifier: MIT
"""Processes that decode tasks and write parts; or this one, when that is enough.

Workers are forked where this process has no other threads: then they need not load Python's modules again, which takes
longer than some decodes. Else they are started anew: a lock that another thread holds would stay locked in a fork. They
die with this process, and leave Ctrl-C to it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from ptweave.data.bundle import Bundle
from ptweave.data.errors import MachineLacks
from ptweave.data.manifest import Clocks
from ptweave.decode.assemble import Part, write_part
from ptweave.decode.images import Code
from ptweave.decode.streams import decode_streams
from ptweave.decode.task import Decoder, Decoding, Task
from ptweave.decode.worker import begin, decode, release_memory, streams, write

P = ParamSpec("P")
T = TypeVar("T")

CLOSING_SECONDS = 10
"""That processes which were killed are waited for; it takes milliseconds."""


class Workers(Protocol):
    """Does the work of a decode. `wait` gives what was finished since the last time, at least one. `room` is how many
    tasks it is worth giving it at a time. `streams` begins decode_streams, or leaves it to the function it
    gives, which returns and raises what decode_streams does. Nothing else is asked for after `end`."""

    @property
    def room(self) -> int: ...
    def decode(self, task: Task, file: Path, moved: Callable[[int], None]) -> Future[None]: ...
    def write(self, part: Part, folder: Path, clocks: Clocks) -> Future[None]: ...
    def streams(self) -> Callable[[], dict[str, float]]: ...
    def end(self) -> None: ...
    def wait(self, futures: set[Future[None]]) -> set[Future[None]]: ...
    def __enter__(self) -> Workers: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...


class Here:
    """This process: work is done when it is asked for."""

    room = 1

    def __init__(self, bundle: Bundle, decoder: Decoder, code: Code) -> None:
        self._bundle = bundle
        self._decoding = Decoding(bundle, decoder, code)

    def decode(self, task: Task, file: Path, moved: Callable[[int], None]) -> Future[None]:
        self._decoding.run(task, file, moved)
        return self._done()

    def write(self, part: Part, folder: Path, clocks: Clocks) -> Future[None]:
        write_part(part, folder, clocks)
        release_memory()  # not after every task: the next one wants the same memory again
        return self._done()

    def streams(self) -> Callable[[], dict[str, float]]:
        return lambda: decode_streams(self._bundle)

    def end(self) -> None:
        pass

    @staticmethod
    def _done() -> Future[None]:
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def wait(self, futures: set[Future[None]]) -> set[Future[None]]:
        return set(futures)

    def __enter__(self) -> Here:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        pass


class Pool:
    """Processes of their own. An error, or Ctrl-C, ends them all."""

    def __init__(self, bundle: Bundle, decoder: Decoder, jobs: int) -> None:
        self.room = jobs + 2
        self._path = bundle.path
        self._strangers = {process.pid for process in multiprocessing.active_children()}
        method = start_method()
        if method == "fork":
            pa.array(np.zeros(1), mask=np.zeros(1, np.bool_))  # loads numpy.ma, once for all of them
        _start_tracker()
        self._executor = ProcessPoolExecutor(
            jobs, multiprocessing.get_context(method), begin, (bundle.path, decoder.value, os.getpid()))
        # an executor that was told not to wait cannot be waited for any more: another thread does
        self._ending = threading.Thread(target=self._executor.shutdown)

    def decode(self, task: Task, file: Path, moved: Callable[[int], None]) -> Future[None]:
        future = self._submit(decode, task, file)
        future.add_done_callback(lambda done: moved(task.bytes) if succeeded(done) else None)
        return future

    def write(self, part: Part, folder: Path, clocks: Clocks) -> Future[None]:
        return self._submit(write, part, folder, clocks)

    def streams(self) -> Callable[[], dict[str, float]]:
        future = self._submit(streams, self._path)

        def seconds() -> dict[str, float]:
            with self._killed_told():
                return future.result()

        return seconds

    def end(self) -> None:
        self._ending.start()  # who has nothing left to do ends, while others work

    def _submit(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> Future[T]:
        """Hand over work; a process may have been killed since the last wait, and then there is nobody to take it."""
        with self._killed_told(), _held(signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            return self._executor.submit(work, *arguments, **options)

    def wait(self, futures: set[Future[None]]) -> set[Future[None]]:
        done = wait(futures, return_when=FIRST_COMPLETED).done
        with self._killed_told():
            for future in done:
                future.result()
        return done

    @contextmanager
    def _killed_told(self) -> Iterator[None]:
        try:
            yield
        except BrokenProcessPool as error:
            raise MachineLacks("a process of the decoder was killed", where=str(self._path),
                               remedy="free some memory, or use fewer processes with -j; what is done is kept, "
                                      "decode again to go on") from error

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is not None:  # nobody wants what they are doing any more
            for process in multiprocessing.active_children():
                if process.pid not in self._strangers:
                    process.kill()
            self._give_up()
        else:
            self._ending.join()  # a process that lived on would hold the bundle's lock

    def _give_up(self) -> None:
        """Take the executor down, and do not wait for ever: what ended the work may have been a signal's exception,
        which comes anywhere, also between a lock's being taken and its being noted."""
        closing = threading.Thread(target=self._executor.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        closing.start()
        closing.join(CLOSING_SECONDS)


def start_method() -> str:
    """How processes are started: what Python does not know of counts, too, as threads of C libraries."""
    return "fork" if len(list(Path("/proc/self/task").iterdir())) == 1 else "spawn"


def _start_tracker() -> None:
    """Start the process that removes multiprocessing's semaphores should we die. It ends with us, not with the
    terminal: of what asks us to end it ignores all but that."""
    with _held(signal.SIGHUP):
        resource_tracker.ensure_running()


@contextmanager
def _held(*numbers: signal.Signals) -> Iterator[None]:
    """These signals wait. A process that is started meanwhile inherits that, and is not stopped before it has said what
    it ignores."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def succeeded(future: Future[None]) -> bool:
    """Whether it is done, and well."""
    return not future.cancelled() and future.exception() is None
