# SPDX-License-Identifier: MIT
"""System calls beside a trace of branches, into `events/syscalls.arrow`: by eBPF, or by perf where that is refused.

ptrace is no means here: a task has one tracer, and under the soft engine the calls that the kernel sees are Valgrind's
to make, which a stop at each of would slow down beyond use.
"""

from __future__ import annotations

from ptweave.data.bundle import Bundle
from ptweave.data.errors import MachineLacks
from ptweave.data.ledger import Ledger
from ptweave.data.schemas import RAW_FILES, RAW_SYSCALLS
from ptweave.wrapper.means import Means, check_beside_branches
from ptweave.wrapper.perf_calls import PerfCalls
from ptweave.wrapper.syscalls import FILE_NAME, FILES_NAME, STREAM, Stream, SyscallRecorder


class PerfStream:
    """Used as SyscallRecorder is, once started. `lacks` says what its recordings do not have."""

    def __init__(self, bundle: Bundle) -> None:
        """Raises MachineLacks when perf may not be used, or the files cannot be made."""
        self._source: PerfCalls | None = PerfCalls(everybody=False)
        self.lacks = self._source.lacks
        self.stored = 0
        self._not_written = 0
        try:
            self._calls = Stream(bundle.events / FILE_NAME, RAW_SYSCALLS)
            Stream(bundle.events / FILES_NAME, RAW_FILES).close()  # it has no names of descriptors
        except BaseException:
            self.close()
            raise

    def follow(self, pid: int) -> None:
        """Record the process `pid` and all that it will create. Raises MachineLacks when it is gone."""
        assert self._source is not None
        self._source.follow(pid)

    def fds(self) -> list[int]:
        """Descriptors to poll for reading: then `service` has something to do."""
        return self._source.fds() if self._source is not None else []

    def service(self) -> None:
        """Store what is ready. Raises MachineLacks, once, when the file cannot be written; goes on counting then."""
        self._store(everything=False)

    def finish(self, ledger: Ledger) -> None:
        """Stop, store the rest, and account for every call. Raises as `service` does, after that."""
        source = self._source
        if source is None:
            return
        source.stop()
        try:
            self._store(everything=True)
        finally:
            source.account(ledger, STREAM, self.stored, self._not_written)
            self._calls.close()
            self.close()

    def close(self) -> None:
        """Stop without storing: for a caller that gives up."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _store(self, *, everything: bool) -> None:
        trouble: MachineLacks | None = None
        for batch in self._source.batches(everything=everything) if self._source is not None else ():
            if not self._calls.broken:
                try:
                    self._calls.write(batch)
                except MachineLacks as error:
                    trouble = error
            if self._calls.broken:
                self._not_written += batch.num_rows
            else:
                self.stored += batch.num_rows
        if trouble is not None:
            raise trouble


def open_stream(means: Means, bundle: Bundle) -> tuple[SyscallRecorder | PerfStream, Means]:
    """Begin to record with what was asked for, or with the first that works; says which.

    Raises MachineLacks when nothing does: why eBPF does not, unless perf was asked for. Raises BadInput too, as
    `check_beside_branches` does.
    """
    check_beside_branches(means)
    refused: MachineLacks | None = None
    if means is not Means.PERF:
        recorder = SyscallRecorder(bundle)
        try:
            recorder.start()
            return recorder, Means.EBPF
        except MachineLacks as error:
            if means is Means.EBPF:
                raise
            refused = error
    try:
        return PerfStream(bundle), Means.PERF
    except MachineLacks:
        if refused is not None:
            raise refused from None
        raise


__all__ = ["PerfStream", "open_stream"]
