# SPDX-License-Identifier: MIT
"""The ledger: for every stream of a run, what was produced, what was stored and what was lost.

`ledger.json` is `{"version": 1, "streams": {NAME: {"unit", "produced", "stored", "lost": {WHY: N}}}}`.
`produced = stored + sum(lost)` holds for every stream; `Ledger.check` lists the streams where it does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptweave.data.errors import BadInput

LEDGER_VERSION = 1


@dataclass
class Stream:
    """One stream's account, in `unit` (bytes, events, rows, …)."""

    unit: str
    produced: int = 0
    stored: int = 0
    lost: dict[str, int] = field(default_factory=dict)

    @property
    def total_lost(self) -> int:
        return sum(self.lost.values())

    @property
    def balanced(self) -> bool:
        return self.produced == self.stored + self.total_lost


class Ledger:
    """All accounts of a run, by stream name such as `trace/0`, `syscalls` or `placed/thunks`."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}

    def add(self, name: str, unit: str, *, stored: int = 0, lost: dict[str, int] | None = None,
            produced: int | None = None) -> Stream:
        """Add to a stream's account; `produced` is stored + lost unless counted on its own."""
        stream = self._streams.setdefault(name, Stream(unit))
        why = {reason: count for reason, count in (lost or {}).items() if count}
        stream.stored += stored
        stream.produced += stored + sum(why.values()) if produced is None else produced
        for reason, count in why.items():
            stream.lost[reason] = stream.lost.get(reason, 0) + count
        return stream

    def drop(self, prefix: str) -> None:
        """Forget the streams below `prefix`: a stage that runs again accounts again."""
        for name in [name for name in self._streams if name.startswith(prefix)]:
            del self._streams[name]

    def __getitem__(self, name: str) -> Stream:
        return self._streams[name]

    def __contains__(self, name: object) -> bool:
        return name in self._streams

    def __iter__(self) -> Iterator[tuple[str, Stream]]:
        return iter(sorted(self._streams.items()))

    @property
    def losses(self) -> list[tuple[str, str, int, str]]:
        """What is missing: (stream, why, how much, unit)."""
        return [(name, why, count, stream.unit) for name, stream in self for why, count in stream.lost.items()]

    def check(self) -> list[str]:
        """Names of the streams whose account does not balance."""
        return [name for name, stream in self if not stream.balanced]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": LEDGER_VERSION,
            "streams": {
                name: {"unit": s.unit, "produced": s.produced, "stored": s.stored, "lost": s.lost}
                for name, s in self
            },
        }

    def save(self, path: Path) -> None:
        """Replace the file in one step."""
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(self.to_json(), indent=1) + "\n")
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Ledger:
        """Read a ledger; raises BadInput for one that is malformed or of a newer version."""
        ledger = cls()
        try:
            raw = json.loads(path.read_text())
            if raw["version"] > LEDGER_VERSION:
                raise BadInput(f"is version {raw['version']}, newer than this ptweave reads ({LEDGER_VERSION})",
                               where=str(path), remedy="use a newer ptweave")
            for name, one in raw["streams"].items():
                ledger._streams[str(name)] = Stream(
                    str(one["unit"]), int(one["produced"]), int(one["stored"]),
                    {str(why): int(count) for why, count in one["lost"].items()},
                )
        except FileNotFoundError:
            return ledger
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"is not a ledger ({error})", where=str(path),
                           remedy="record the run again") from error
        return ledger
